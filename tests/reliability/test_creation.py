"""A space's file is there whole or not at all; one that is empty has lost what it held."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from commonplace import Commonplace
from commonplace.cli.app import run
from commonplace.errors import StorageCorrupt, StorageUnavailable
from commonplace.storage import database, sqlite
from commonplace.storage.sqlite import store as store_module
from commonplace.storage.system import open_system, system_file
from reliability.faulty_vfs import Recorder, mounted
from reliability.test_power_loss import Recording, cut_power, figures
from reliability.workers import file_of

CREATOR = """
import sys
from commonplace import Commonplace
sys.stdin.readline()
with Commonplace(sys.argv[1], embedding="none") as memory:
    memory.remember("by " + sys.argv[2])
"""
KILLED = """
import os, signal, sys
from commonplace import Commonplace
os.{call} = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
Commonplace(sys.argv[1], embedding="none").remember("x")
"""


def stored(directory: Path) -> Path:
    """A space that held something, closed."""
    with Commonplace(directory, embedding="none") as memory:
        memory.remember("worth keeping")
    return file_of(directory)


@pytest.mark.parametrize("content", [b"", b"x", bytes(4096), b"SQLite format 3\x00"])
def test_a_file_without_its_content_is_damage_and_no_new_space(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    file = stored(tmp_path)
    file.write_bytes(content)
    with Commonplace(tmp_path, embedding="none") as memory:
        for call in (lambda: memory.browse(), lambda: memory.remember("over it")):
            with pytest.raises(StorageCorrupt) as caught:
                call()
            assert "doctor" in caught.value.hint and "restore" in caught.value.hint.lower()
        assert not memory.library.maintenance.check("default").healthy
        with pytest.raises(StorageCorrupt):
            memory.library.maintenance.repair("default")
    assert file.read_bytes() == content
    here = ["--data", str(tmp_path), "--embedding", "none"]
    assert run(["remember", "x", *here]) == 5
    assert run(["doctor", *here]) == 6
    capsys.readouterr()


def test_a_database_without_tables_is_damage(tmp_path: Path) -> None:
    file = tmp_path / "default.db"
    connection = database.connect(file, create=True)
    connection.execute("PRAGMA journal_mode = wal; CREATE TABLE t (x); DROP TABLE t")
    connection.close()
    with pytest.raises(StorageCorrupt, match="has no tables"):
        sqlite.Store(file, "default")


def test_the_log_of_an_emptied_file_is_not_touched(tmp_path: Path) -> None:
    file = stored(tmp_path)
    log = file.with_name(file.name + "-wal")
    log.write_bytes(b"what may be all that is left")
    file.write_bytes(b"")
    with Commonplace(tmp_path, embedding="none") as memory:
        with pytest.raises(StorageCorrupt):
            memory.browse()
        memory.library.maintenance.check("default")
        with pytest.raises(StorageCorrupt):
            memory.library.maintenance.salvage("default", tmp_path / "saved")
    assert log.read_bytes() == b"what may be all that is left"


def test_a_log_without_its_file_is_damage(tmp_path: Path) -> None:
    file = stored(tmp_path)
    file.rename(file.with_name(file.name + "-wal"))
    with (
        Commonplace(tmp_path, embedding="none") as memory,
        pytest.raises(StorageCorrupt, match="is missing, but its log"),
    ):
        memory.browse()


def test_an_emptied_file_comes_back_from_a_backup(tmp_path: Path) -> None:
    file = stored(tmp_path / "data")
    with Commonplace(tmp_path / "data", embedding="none") as memory:
        memory.library.maintenance.backup(tmp_path / "backup")
    file.write_bytes(b"")
    with Commonplace(tmp_path / "data", embedding="none") as memory:
        with pytest.raises(StorageCorrupt):
            memory.browse()
        memory.library.maintenance.restore(tmp_path / "backup", overwrite=True)
        assert memory.find_text("worth keeping")[1] == 1


def test_of_many_that_create_a_space_at_once_none_loses_anything(quick_disk: Path) -> None:
    Commonplace(quick_disk, embedding="none").close()
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", CREATOR, str(quick_disk), str(i)], stdin=subprocess.PIPE
        )
        for i in range(8)
    ]
    for maker in makers:
        assert maker.stdin is not None
        with maker.stdin as start:
            start.write(b"go\n")
    assert [maker.wait(60) for maker in makers] == [0] * 8
    with Commonplace(quick_disk, embedding="none") as memory:
        assert sorted(each.text for each in memory.browse()[0]) == [f"by {i}" for i in range(8)]
    assert [path.name for path in file_of(quick_disk).parent.iterdir()] == ["default.db"]


def test_threads_that_create_a_file_at_once_share_it(quick_disk: Path) -> None:
    for i in range(20):
        path, start = quick_disk / f"{i}.db", threading.Barrier(6)
        problems: list[BaseException] = []

        def make(
            path: Path = path,
            start: threading.Barrier = start,
            seen: list[BaseException] = problems,
        ) -> None:
            start.wait()
            try:
                sqlite.Store(path, "default").close()
            except BaseException as error:
                seen.append(error)

        threads = [threading.Thread(target=make) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
    assert len(list(quick_disk.iterdir())) == 20


@pytest.mark.parametrize("call", ["link", "fsync"])
def test_a_kill_while_a_space_is_made_leaves_none_or_a_whole_one(
    quick_disk: Path, call: str
) -> None:
    Commonplace(quick_disk, embedding="none").close()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED.replace("{call}", call), str(quick_disk)], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    with Commonplace(quick_disk, embedding="none") as memory:
        assert memory.library.spaces() == ([] if call == "link" else ["default"])
        assert memory.browse()[1] == 0
        memory.remember("and on it goes")
        assert memory.library.spaces() == ["default"]


def test_the_file_above_the_spaces_is_made_and_missed_in_the_same_way(tmp_path: Path) -> None:
    open_system(tmp_path).close()
    with closing(open_system(tmp_path)) as store, store.read() as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    assert "credentials" in tables and "memories" not in tables
    assert [path.name for path in tmp_path.iterdir()] == ["system.db"]
    system_file(tmp_path).write_bytes(b"")
    with pytest.raises(StorageCorrupt):
        open_system(tmp_path)


def test_where_there_are_no_links_a_space_is_made_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("not here")

    monkeypatch.setattr(os, "link", refuse)
    stored(tmp_path)
    assert [path.name for path in file_of(tmp_path).parent.iterdir()] == ["default.db"]


def test_a_directory_that_takes_no_file_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable):
        sqlite.Store(tmp_path / "absent" / "default.db", "default")


def life(directory: Path) -> Recording:
    recording = Recording(Recorder())
    directory.mkdir(parents=True)
    with mounted(recording.disk):
        sqlite.Store(directory / "default.db", "default").close()
    return recording


def test_a_power_cut_while_a_space_is_made_leaves_none_or_a_whole_one(
    quick_disk: Path, publish: Callable[[str], None]
) -> None:
    recording = life(quick_disk / "life" / "spaces")
    toll = cut_power(recording, quick_disk / "cuts", cuts=recording.disk.position)
    publish(figures(toll))
    assert toll.broken == 0, toll.examples[:5]
    assert toll.different > 20


def test_a_space_made_in_its_place_is_detected(
    quick_disk: Path, publish: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: the file has its name before it has its tables."""

    def in_place(path: Path, steps: Sequence[str]) -> None:
        connection = database.connect(path, create=True)
        database.migrate(connection, steps)
        connection.close()

    with monkeypatch.context() as mutant:
        mutant.setattr(store_module, "create", in_place)
        recording = life(quick_disk / "life" / "spaces")
    toll = cut_power(recording, quick_disk / "cuts", cuts=recording.disk.position)
    publish(figures(toll))
    assert toll.broken > 0
