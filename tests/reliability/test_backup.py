"""Backups taken while others write hold every acknowledged write, and say so only if it is true."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from commonplace import Commonplace
from commonplace.engine.binding import engine_call, lease
from commonplace.engine.history import audit
from commonplace.engine.library import Library, OpenSpace
from commonplace.engine.maintenance import upkeep
from commonplace.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    StorageCorrupt,
    StorageUnavailable,
    UnsupportedVersion,
)
from commonplace.storage.sqlite import backup, swap
from conftest import WordVectors
from fixtures.full_store import answers, fill, questions
from reliability.progress import counted

WRITER = """
import sys, time
from commonplace import Commonplace
path, who = sys.argv[1:]
with Commonplace(path, embedding="none") as memory:
    i = 0
    while True:
        memory.remember(f"{who} wrote {i}", tags=[who])
        print(f"{who} wrote {i}", flush=True)
        i += 1
        time.sleep(0.001)
"""


@pytest.fixture
def full(quick_disk: Path) -> Iterator[Commonplace]:
    with Commonplace(quick_disk / "data", embedding=WordVectors()) as memory:
        fill(memory)
        engine_call(memory, upkeep.embed_all)
        yield memory


def test_a_backup_restored_elsewhere_gives_the_same_answers(
    full: Commonplace, quick_disk: Path
) -> None:
    before = answers(full)
    seen: list[tuple[int, int]] = []
    report = full.library.maintenance.backup(
        quick_disk / "backup", progress=lambda *at: seen.append(at)
    )
    assert seen == sorted(seen) and seen[-1][0] == seen[-1][1]
    assert report.as_dict()["spaces"] == {"default": 38}
    assert backup.verify(report.path) == report
    with Commonplace(quick_disk / "other", embedding=WordVectors()) as other:
        restored = other.library.maintenance.restore(report.path)
        assert restored.digest == report.digest
        assert answers(other) == before
        assert other.library.maintenance.check("default").findings == []
        with lease(other) as space, space.store.read() as connection:
            assert connection.pragma("journal_mode") == "wal"


def test_a_backup_is_for_its_owner_only_and_leaves_nothing_beside_it(
    full: Commonplace, quick_disk: Path
) -> None:
    full.library.maintenance.backup(quick_disk / "backups" / "today")
    backup.verify(quick_disk / "backups" / "today")
    assert [path.name for path in (quick_disk / "backups").iterdir()] == ["today"]
    today = quick_disk / "backups" / "today"
    assert sorted(path.name for path in today.iterdir()) == ["default.db", "manifest.json"]
    assert today.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in today.iterdir()} == {0o600}


def test_an_existing_target_is_never_touched(full: Commonplace, quick_disk: Path) -> None:
    (quick_disk / "taken").mkdir()
    with pytest.raises(Conflict):
        full.library.maintenance.backup(quick_disk / "taken")
    (quick_disk / "file").write_text("mine")
    with pytest.raises(Conflict):
        full.library.maintenance.backup(quick_disk / "file")
    assert (quick_disk / "file").read_text() == "mine"
    assert not [path for path in quick_disk.iterdir() if path.name.endswith(".part")]


def test_unknown_spaces_are_refused_and_not_created(full: Commonplace, quick_disk: Path) -> None:
    with pytest.raises(NotFound):
        full.library.maintenance.backup(quick_disk / "backup", spaces=["nobody"])
    assert full.library.spaces() == ["default"]
    assert not (quick_disk / "backup").exists()


def test_a_failed_backup_leaves_nothing(
    full: Commonplace, quick_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup, "_write_manifest", fails)
    with pytest.raises(backup.StorageFull):
        full.library.maintenance.backup(quick_disk / "backup")
    assert sorted(path.name for path in quick_disk.iterdir()) == ["data"]


@pytest.mark.parametrize(
    "damage", ["flip", "cut", "missing", "manifest", "exchange", "no manifest"]
)
def test_a_damaged_backup_is_named_and_not_restored(
    full: Commonplace, quick_disk: Path, damage: str
) -> None:
    path = full.library.maintenance.backup(quick_disk / "backup").path
    file, manifest = path / "default.db", path / "manifest.json"
    if damage == "flip":
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 4
        file.write_bytes(data)
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-4096])
    elif damage == "missing":
        file.unlink()
    elif damage == "manifest":
        said = json.loads(manifest.read_text())
        said["spaces"]["default"]["rows"]["memories"] -= 1
        manifest.write_text(json.dumps(said))
    elif damage == "exchange":
        full.remember("one more")
        other = full.library.maintenance.backup(quick_disk / "later").path
        shutil.copy(other / "default.db", file)
    else:
        manifest.unlink()
    with pytest.raises(StorageCorrupt) as caught:
        backup.verify(path)
    assert "default.db" in caught.value.message or "manifest.json" in caught.value.message
    with pytest.raises(StorageCorrupt), Commonplace(quick_disk / "new", embedding="none") as new:
        new.library.maintenance.restore(path)
    assert not list((quick_disk / "new" / "spaces").iterdir())


def test_a_backup_of_a_newer_release_is_refused(full: Commonplace, quick_disk: Path) -> None:
    path = full.library.maintenance.backup(quick_disk / "backup").path
    said = json.loads((path / "manifest.json").read_text())
    said["version"] = 99
    said["sum"] = backup._manifest_sum(said)
    (path / "manifest.json").write_text(json.dumps(said))
    with pytest.raises(UnsupportedVersion):
        backup.verify(path)


def test_a_manifest_cannot_name_a_file_elsewhere(full: Commonplace, quick_disk: Path) -> None:
    path = full.library.maintenance.backup(quick_disk / "backup").path
    said = json.loads((path / "manifest.json").read_text())
    said["spaces"]["default"]["file"] = "../data/spaces/default.db"
    said["sum"] = backup._manifest_sum(said)
    (path / "manifest.json").write_text(json.dumps(said))
    with pytest.raises(StorageCorrupt):
        backup.verify(path)


def test_a_space_with_a_damaged_row_is_not_backed_up_as_if_it_were_whole(
    full: Commonplace, quick_disk: Path
) -> None:
    connection = apsw.Connection(str(full.library.file("default")))
    connection.execute("UPDATE memories SET text = 'forged' WHERE ref = 'ref-3'")
    connection.close()
    with pytest.raises(StorageCorrupt, match="memories num 4"):
        full.library.maintenance.backup(quick_disk / "backup")
    assert not (quick_disk / "backup").exists()


def test_a_restore_replaces_only_when_told_and_keeps_what_was_there(
    full: Commonplace, quick_disk: Path
) -> None:
    before = answers(full)
    path = full.library.maintenance.backup(quick_disk / "backup").path
    full.remember("Later than the backup.", ref="later")
    with pytest.raises(Conflict):
        full.library.maintenance.restore(path)
    assert full.get("later").text == "Later than the backup."
    report = full.library.maintenance.restore(path, overwrite=True)
    assert answers(full) == before
    assert full.library.spaces() == ["default"]
    kept = Path(report.replaced["default"])
    with Commonplace(quick_disk / "old", embedding=WordVectors()) as old:
        shutil.copy(kept, old.library.file("default"))
        assert old.get("later").text == "Later than the backup."
    full.remember("The restored space goes on.")
    assert full.find_text("goes on")[1] == 1


def test_a_space_that_can_no_longer_be_opened_is_restored_over(
    full: Commonplace, quick_disk: Path
) -> None:
    before = answers(full)
    path = full.library.maintenance.backup(quick_disk / "backup").path
    full.library.drop("default")
    file = full.library.file("default")
    file.write_bytes(b"nonsense" * 1000)
    Path(f"{file}-wal").write_bytes(b"the log of another file")
    full.library.maintenance.restore(path, overwrite=True)
    assert answers(full) == before


def test_a_restore_waits_for_no_other_process_but_refuses(
    full: Commonplace, quick_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "EXCLUSIVE_SECONDS", 0.3)
    path = full.library.maintenance.backup(quick_disk / "backup").path
    full.remember("Acknowledged to somebody.", ref="later")
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(full.library.path), "other"], stdout=subprocess.PIPE
    )
    try:
        assert writer.stdout is not None and writer.stdout.readline()
        with pytest.raises(StorageUnavailable):
            full.library.maintenance.restore(path, overwrite=True)
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    assert full.get("later").text == "Acknowledged to somebody."


def test_a_space_restored_under_another_name_is_whole_there(
    full: Commonplace, quick_disk: Path
) -> None:
    path = full.library.maintenance.backup(quick_disk / "backup").path
    report = full.library.maintenance.restore(path, into="copy")
    assert report.digest["copy"] == backup.verify(path).digest["default"]
    copy = full.at("copy")
    assert full.library.maintenance.check("copy").findings == []
    here, there = dict(questions(full)), dict(questions(copy))
    for name in here:
        assert there[name]() == here[name](), name
    copy.revise("ref-1", text="Changed in the copy alone.")
    copy.undo()
    with pytest.raises(InvalidInput):
        full.library.maintenance.restore(path, into="Not A Name")


def test_the_audit_of_a_space_restored_under_another_name_is_verified_as_before(
    full: Commonplace, quick_disk: Path
) -> None:
    def append(space: OpenSpace, tool: str) -> None:
        audit.append(
            space.store,
            audit.Entry(
                request=tool, dialect="commonplace", tool=tool, success=True, milliseconds=1,
                arguments="{}", result="{}",
            ),
        )  # fmt: skip

    with lease(full) as space:
        for tool in ("remember", "recall", "forget"):
            append(space, tool)
    maintenance = full.library.maintenance
    maintenance.restore(maintenance.backup(quick_disk / "intact").path, into="intact")
    with lease(full.at("intact")) as space:
        append(space, "undo")
        verdict = audit.verify(space.store)
        assert (verdict.rows, verdict.faults) == (4, ())
    with lease(full) as space, space.store.maintain() as connection:
        connection.execute("UPDATE audit SET caller = 'eve' WHERE space = 'default' AND num = 2")
    maintenance.restore(
        maintenance.backup(quick_disk / "changed", spaces=["default"]).path, into="changed"
    )
    with lease(full.at("changed")) as space:
        faults = audit.verify(space.store).faults
        assert [(fault.num, fault.what) for fault in faults] == [(2, "was changed")]


def test_several_spaces_are_not_restored_into_one(full: Commonplace, quick_disk: Path) -> None:
    full.at("second").remember("Another space.")
    path = full.library.maintenance.backup(quick_disk / "backup").path
    with pytest.raises(InvalidInput):
        full.library.maintenance.restore(path, into="third")
    full.library.maintenance.restore(path, spaces=["second"], into="third")
    assert full.at("third").browse()[1] == 1
    assert full.library.spaces() == ["default", "second", "third"]


class _Load:
    """Threads and processes that write without a pause, and what was acknowledged to them."""

    def __init__(self, memory: Commonplace, threads: int, processes: int) -> None:
        self.acked: list[str] = []
        self._stop = threading.Event()
        self._writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(memory.library.path), f"process{i}"],
                stdout=subprocess.PIPE, text=True,
            )
            for i in range(processes)
        ]  # fmt: skip
        self._threads = [
            threading.Thread(target=self._write, args=(memory, f"thread{i}"))
            for i in range(threads)
        ]
        self._threads += [threading.Thread(target=self._hear, args=(w,)) for w in self._writers]
        for thread in self._threads:
            thread.start()

    def _write(self, memory: Commonplace, who: str) -> None:
        i = 0
        while not self._stop.is_set():
            memory.remember(f"{who} wrote {i}", tags=[who])
            self.acked.append(f"{who} wrote {i}")
            i += 1
            time.sleep(0.001)  # the checks between two backups want a turn, too

    def _hear(self, writer: subprocess.Popen[str]) -> None:
        assert writer.stdout is not None
        for line in writer.stdout:
            self.acked.append(line.strip())

    def wait_for(self, count: int) -> None:
        until = time.monotonic() + 30
        while len(self.acked) < count:
            assert time.monotonic() < until
            time.sleep(0.01)

    def stop(self) -> None:
        self._stop.set()
        for writer in self._writers:
            writer.kill()
        for thread in self._threads:
            thread.join()
        for writer in self._writers:
            writer.wait()
            if writer.stdout is not None:
                writer.stdout.close()


def _rounds(
    place: Path, rounds: int, copy: Callable[[Library, Path], None]
) -> tuple[int, int, list[str]]:
    """(acknowledged, restored whole, what was wrong) of backups under load."""
    wrong = []
    memory = Commonplace(place / "data", embedding="none")
    load = _Load(memory, threads=2, processes=2)
    try:
        load.wait_for(50)
        for i in range(rounds):
            load.wait_for(len(load.acked) + 20)
            acked = set(load.acked)
            copy(memory.library, place / f"copy{i}")
            with Commonplace(place / f"copy{i}", embedding="none") as restored:
                try:
                    connection = apsw.Connection(str(restored.library.file("default")))
                    found = {row[0] for row in connection.execute("SELECT text FROM memories")}
                    connection.close()
                    if acked - found:
                        wrong.append(f"{len(acked - found)} acknowledged writes are missing")
                    elif not restored.library.maintenance.check("default").healthy:
                        wrong.append("the file is damaged")
                except apsw.Error as error:
                    wrong.append(str(error))
            shutil.rmtree(place / f"copy{i}")
    finally:
        load.stop()
        memory.close()
    return len(load.acked), rounds - len(wrong), wrong


def test_backups_under_load_hold_every_acknowledged_write(
    quick_disk: Path, publish: Callable[[str], None]
) -> None:
    def whole(library: Library, target: Path) -> None:
        path = library.maintenance.backup(target / "backup").path
        other = Library(target, embedder=None)
        other.maintenance.restore(path)
        other.close()

    acked, good, wrong = _rounds(quick_disk, 10, whole)
    publish(f"{good} of 10 backups whole under load ({acked} writes acknowledged meanwhile)")
    assert wrong == []


def test_a_plain_copy_under_load_is_broken(
    quick_disk: Path, publish: Callable[[str], None]
) -> None:
    """The mutant: what people do with cp."""

    def plain(library: Library, target: Path) -> None:
        (target / "spaces").mkdir(parents=True)
        shutil.copy(library.file("default"), target / "spaces")

    _, good, wrong = _rounds(quick_disk, 5, plain)
    publish(f"{len(wrong)} of 5 plain copies broken")
    assert wrong and good < 5


@pytest.mark.soak
def test_many_backups_under_load(quick_disk: Path, publish: Callable[[str], None]) -> None:
    def whole(library: Library, target: Path) -> None:
        path = library.maintenance.backup(target / "backup").path
        other = Library(target, embedder=None)
        other.maintenance.restore(path)
        other.close()

    # Ten short lives: in a long one each copy takes longer, and so what is written meanwhile.
    lives = [
        _rounds(quick_disk / f"life{number}", 10, whole)
        for number in counted(range(10), 10, "lives of 10 backups")
    ]
    acked, good = sum(life[0] for life in lives), sum(life[1] for life in lives)
    publish(
        f"{good} of 100 backups whole under load ({acked} writes acknowledged meanwhile), no seed:"
        " threads and processes decide the order"
    )
    assert [wrong for life in lives for wrong in life[2]] == []
