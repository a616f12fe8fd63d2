"""A backup of a data directory holds what belongs to no space, and it is restored with the rest."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from commonplace import Commonplace
from commonplace.access.credentials import Credentials, Grant
from commonplace.access.vault import open_vault
from commonplace.dialects.registry import token_formats
from commonplace.engine.binding import lease
from commonplace.engine.history import audit
from commonplace.errors import Conflict, NotFound, StorageCorrupt, StorageUnavailable
from commonplace.storage.sqlite import backup, shared_files, swap
from commonplace.storage.sqlite.shared_files import SYSTEM, WORKFLOWS
from commonplace.storage.system import open_system

OPENER = """
import sys, time
from pathlib import Path
from commonplace.storage.system import open_system
store = open_system(Path(sys.argv[1]))
with store.read() as connection:
    connection.execute("SELECT count(*) FROM audit").fetchone()
    print("open", flush=True)
    time.sleep(60)
"""
WORKER = """
import sys, time
from pathlib import Path
from commonplace.engine.library import Library
from commonplace.platform.durable import running_workflows

library, stop_in = Library(Path(sys.argv[1]), embedder=None), int(sys.argv[2])

class Work:
    def count_steps(self, space, identity):
        return 3
    def step(self, space, identity, index):
        print(f"step {identity} {index}", flush=True)
        while index == stop_in:
            time.sleep(0.05)
        return True
    def end(self, space, identity):
        print(f"end {identity}", flush=True)
    def mark_failed(self, space, identity):
        print(f"failed {identity}", flush=True)
    def unfinished(self, given_up):
        return iter([("default", "first", 0)] if stop_in < 0 else [])
    def tick(self):
        pass

with running_workflows(library, "workflow", Work()):
    sys.stdin.readline()
"""


def entry(tool: str) -> audit.Entry:
    return audit.Entry(
        request="", dialect="d", tool=tool, success=True, milliseconds=1, arguments="{}",
        result="{}",
    )  # fmt: skip


@pytest.fixture
def place(quick_disk: Path) -> Iterator[Commonplace]:
    with Commonplace(quick_disk / "data", embedding="none") as memory:
        memory.remember("In the default space.", ref="one")
        memory.at("second").remember("In the second space.")
        store = open_system(memory.library.path)
        for number in range(5):
            audit.append(store, entry(f"tool {number}"))
        store.close()
        yield memory


def tools(data: Path) -> list[str]:
    store = open_system(data)
    try:
        assert audit.verify(store).faults == ()
        return [call.tool for call in audit.listing(store)]
    finally:
        store.close()


def test_a_whole_backup_runs_on_another_machine(quick_disk: Path) -> None:
    here, there = quick_disk / "data", quick_disk / "there"
    with Commonplace(here, embedding="none", space="team") as memory:
        memory.remember("Known to the team.")
        store = open_system(here)
        known = Credentials(store, open_vault(store), token_formats())
        token = known.create(Grant(name="laptop", user="ann", space="team")).token
        known.close()
        store.close()
        report = memory.library.maintenance.backup(quick_disk / "copy")
    assert report.files == (SYSTEM,)
    assert not list((quick_disk / "copy").rglob("master.key")), "it is kept apart"
    there.mkdir()
    shutil.copy2(here / "master.key", there / "master.key")
    with Commonplace(there, embedding="none", space="team") as memory:
        shutil.rmtree(there / "spaces")
        (there / "spaces").mkdir()
        restored = memory.library.maintenance.restore(report.path)
        assert restored.files == (SYSTEM,) and restored.replaced == {}
        assert memory.browse()[1] == 1
        store = open_system(there)
        known = Credentials(store, open_vault(store), token_formats())
        assert known.recognise(token).user == "ann"
        known.close()
        store.close()
        assert [each.healthy for each in memory.library.maintenance.check_shared_files()] == [True]


def test_chosen_spaces_go_without_what_is_beside_them(place: Commonplace, quick_disk: Path) -> None:
    report = place.library.maintenance.backup(quick_disk / "copy", spaces=["default"])
    assert report.files == () and not (report.path / "beside").exists()
    with pytest.raises(NotFound):
        place.library.maintenance.restore(report.path, system=True)


def test_what_is_beside_is_restored_alone_with_some_or_not_at_all(
    place: Commonplace, quick_disk: Path
) -> None:
    data = place.library.path
    path = place.library.maintenance.backup(quick_disk / "copy").path
    assert backup.verify(path).files == (SYSTEM,)
    store = open_system(data)
    audit.append(store, entry("later"))
    store.close()
    place.remember("later")
    with pytest.raises(Conflict):
        place.library.maintenance.restore(path, system=True)
    place.library.maintenance.restore(path, system=False, overwrite=True)
    assert tools(data)[0] == "later" and place.browse()[1] == 1
    place.remember("later")
    report = place.library.maintenance.restore(path, system=True, overwrite=True)
    assert tools(data)[0] == "tool 4" and place.browse()[1] == 2
    assert report.spaces == {} and tools_of_file(Path(report.replaced[SYSTEM]))[-1] == "later"
    place.library.maintenance.restore(path, spaces=["default"], system=True, overwrite=True)
    assert place.browse()[1] == 1


def tools_of_file(file: Path) -> list[str]:
    connection = apsw.Connection(str(file))
    try:
        return [row[0] for row in connection.execute("SELECT tool FROM audit ORDER BY num")]
    finally:
        connection.close(True)


def test_a_restore_that_cannot_be_finished_takes_back_what_it_began(
    place: Commonplace, quick_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "EXCLUSIVE_SECONDS", 0.3)
    data = place.library.path
    path = place.library.maintenance.backup(quick_disk / "copy").path
    place.at("second").remember("Stored since.")
    store = open_system(data)
    audit.append(store, entry("later"))
    store.close()
    files = sorted(file.name for file in data.rglob("*"))
    with lease(place), pytest.raises(StorageUnavailable):  # somebody uses the default space
        place.library.maintenance.restore(path, overwrite=True)
    assert tools(data)[0] == "later"
    assert place.at("second").browse()[1] == 2
    place.library.drop("second")
    assert sorted(file.name for file in data.rglob("*") if "-" not in file.suffix) == [
        name for name in files if not name.endswith(("-wal", "-shm", "-ballast"))
    ]
    other = subprocess.Popen(
        [sys.executable, "-c", OPENER, str(data)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None and other.stdout.readline() == "open\n"
        with pytest.raises(StorageUnavailable) as caught:
            place.library.maintenance.restore(path, overwrite=True)
        assert SYSTEM in caught.value.message
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    assert place.at("second").browse()[1] == 2 and tools(data)[0] == "later"


def test_a_restore_that_was_killed_in_the_middle_is_seen_by_the_doctor(place: Commonplace) -> None:
    (place.library.path / swap.JOURNAL).write_text("{}")
    found = place.library.maintenance.check_shared_files()[-1]
    assert not found.healthy and "--overwrite" in found.findings[0].hint


@pytest.mark.parametrize("how", ["flipped", "cut", "gone", "another", "manifest"])
def test_a_damaged_copy_of_it_is_named_and_nothing_is_restored(
    place: Commonplace, quick_disk: Path, how: str
) -> None:
    path = place.library.maintenance.backup(quick_disk / "copy").path
    file = path / "beside" / SYSTEM
    content = bytearray(file.read_bytes())
    if how == "flipped":
        content[len(content) // 2] ^= 4
        file.write_bytes(content)
    elif how == "cut":
        file.write_bytes(content[:-4096])
    elif how == "gone":
        file.unlink()
    elif how == "another":
        shutil.copy(path / "default.db", file)
    else:
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["files"][SYSTEM]["file"] = "../data/system.db"
        manifest["sum"] = backup._manifest_sum(manifest)
        (path / "manifest.json").write_text(json.dumps(manifest))
    place.remember("later")
    with pytest.raises(StorageCorrupt):
        backup.verify(path)
    with pytest.raises(StorageCorrupt):
        place.library.maintenance.restore(path, overwrite=True)
    assert place.browse()[1] == 2


def test_it_is_copied_whole_while_calls_are_audited(
    place: Commonplace, quick_disk: Path, publish: Callable[[str], None]
) -> None:
    store, stop, written = open_system(place.library.path), threading.Event(), [5]

    def write() -> None:
        while not stop.is_set():
            written[0] = audit.append(store, entry("busy"))

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        for number in range(5):
            before = written[0]
            path = place.library.maintenance.backup(quick_disk / f"copy{number}").path
            manifest = json.loads((path / "manifest.json").read_text())
            assert manifest["files"][SYSTEM]["rows"]["audit"] >= before
            assert backup.verify(path).files == (SYSTEM,)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
        store.close()
    publish(f"5 backups of system.db under load, {written[0]} rows in its chain, all whole")


def test_the_doctor_finds_what_is_wrong_beside_the_spaces(place: Commonplace) -> None:
    data = place.library.path
    (healthy,) = place.library.maintenance.check_shared_files()
    assert healthy.space == SYSTEM and healthy.findings == [] and healthy.counts["audit"] == 5
    for damage, check in (
        ("UPDATE audit SET tool = 'other' WHERE num = 3", "audit"),
        ("DELETE FROM audit WHERE num = 2", "audit"),
        ("DROP INDEX credentials_user", "schema"),
    ):
        connection = apsw.Connection(str(data / SYSTEM))
        connection.execute(damage)
        connection.close()
        (ill,) = place.library.maintenance.check_shared_files()
        assert ill.has_damage_in(check) and "--system" in ill.findings[-1].hint, damage
    content = bytearray((data / SYSTEM).read_bytes())
    content[4096:8192] = bytes(4096)
    (data / SYSTEM).write_bytes(content)
    assert not place.library.maintenance.check_shared_files()[0].healthy
    (data / SYSTEM).write_bytes(b"")
    assert place.library.maintenance.check_shared_files()[0].has_damage_in("file")


def test_workflows_go_on_where_the_backup_is_restored(place: Commonplace, quick_disk: Path) -> None:
    from commonplace.platform.durable import request_workflow

    data = place.library.path
    request_workflow(place.library, "default", "first")
    with worker(data, stop_in=1) as said:
        assert [said() for _ in range(2)] == ["step first 0", "step first 1"]
        report = place.library.maintenance.backup(quick_disk / "copy")
    assert report.files == (WORKFLOWS, SYSTEM)
    request_workflow(place.library, "default", "never begun")
    path = place.library.maintenance.backup(quick_disk / "later").path
    with Commonplace(quick_disk / "there", embedding="none") as there:
        there.library.maintenance.restore(path)
        assert all(each.healthy for each in there.library.maintenance.check_shared_files())
        lines: list[str] = []
        with worker(there.library.path, stop_in=-1) as said:
            while not {"end first", "end never begun"} <= set(lines):
                lines.append(said())
    assert "step first 1" in lines and "step first 0" not in lines, "what was over is over"


def test_what_is_begun_while_spaces_are_copied_is_asked_for_again(tmp_path: Path) -> None:
    (tmp_path / "workflows").mkdir()
    connection = apsw.Connection(str(tmp_path / WORKFLOWS))
    connection.execute("CREATE TABLE workflow_status (workflow_uuid TEXT)")
    connection.execute("INSERT INTO workflow_status VALUES ('team:old:0'), ('team:new:2')")
    connection.close()
    before = [{"space": "team", "id": "waiting", "turn": 1}]
    assert shared_files.requests_to_back_up(tmp_path, before, {"team:old:0"}) == [
        {"space": "team", "id": "new", "turn": 2}, *before,
    ]  # fmt: skip


@contextlib.contextmanager
def worker(data: Path, stop_in: int) -> Iterator[Callable[[], str]]:
    """A process that carries out what is due; it is killed at the end of the block."""
    child = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(data), str(stop_in)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None
    out = child.stdout
    hanging = threading.Timer(60, child.kill)
    hanging.start()

    def said() -> str:
        line = out.readline()
        assert line, "it ended early"
        return line.strip()

    try:
        yield said
    finally:
        hanging.cancel()
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
