"""Locks on files: one holder over threads and processes, and none after its holder died."""

from __future__ import annotations

import ast
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pytest

import commonplace
from commonplace import Commonplace
from commonplace.engine.binding import lease
from commonplace.storage.locking import Busy, file_lock, open_locked, try_lock
from commonplace.storage.sqlite.coordination import FileCoordination

HOLDER = """
import sys, time
from pathlib import Path
from commonplace.storage.locking import file_lock
with file_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def _holder(file: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(file)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_a_second_descriptor_is_refused_until_the_first_is_closed(tmp_path: Path) -> None:
    first = open_locked(tmp_path / "lock")
    assert first is not None
    assert open_locked(tmp_path / "lock") is None
    os.close(first)
    again = open_locked(tmp_path / "lock")
    assert again is not None
    os.close(again)


def test_a_refused_descriptor_is_closed(tmp_path: Path) -> None:
    first = open_locked(tmp_path / "lock")
    assert first is not None
    opened = len(list(Path("/dev/fd").iterdir()))
    for _ in range(20):
        assert open_locked(tmp_path / "lock") is None
    assert len(list(Path("/dev/fd").iterdir())) == opened
    os.close(first)


def test_threads_hold_it_one_after_the_other(tmp_path: Path) -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        with file_lock(tmp_path / "deep" / "lock", seconds=30):
            inside += 1
            most = max(most, inside)
            time.sleep(0.01)
            inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1)


def test_another_thread_is_busy_and_the_lock_is_free_after_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with pytest.raises(RuntimeError), file_lock(file):
        raise RuntimeError
    with file_lock(file):
        found: list[BaseException] = []

        def come() -> None:
            try:
                with file_lock(file, seconds=0.05):
                    pass
            except Busy as error:
                found.append(error)

        thread = threading.Thread(target=come)
        thread.start()
        thread.join()
    assert [type(error) for error in found] == [Busy]


def test_another_process_is_waited_for_and_a_kill_releases_its_lock(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    process = _holder(file)
    try:
        with pytest.raises(Busy, match="Another process"), file_lock(file, seconds=0.1):
            pass
        threading.Timer(0.2, process.send_signal, [signal.SIGKILL]).start()
        with file_lock(file, seconds=30):
            assert process.wait() == -signal.SIGKILL
    finally:
        process.kill()
        process.communicate()


def test_on_windows_a_byte_behind_the_file_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = []

    def locking(descriptor: int, mode: int, size: int) -> None:
        places.append((os.lseek(descriptor, 0, os.SEEK_CUR), mode, size))
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", types.SimpleNamespace(locking=locking, LK_NBLCK=2))
    with (tmp_path / "lock").open("a") as first, (tmp_path / "lock").open("r+") as second:
        first.write("a few words")
        first.flush()
        assert try_lock(first.fileno()) and not try_lock(second.fileno())
        assert places == [(1 << 30, 2, 1)] * 2
        first.write(", and more")
        first.flush()
        assert second.read() == "a few words, and more"


def test_files_are_locked_in_one_module_and_by_the_thin_client() -> None:
    """The client loads the standard library alone, so that starting it costs little."""
    source = Path(commonplace.__file__).parent
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import) and {a.name for a in node.names} & {"fcntl", "msvcrt"}
    }
    assert found == {"client/connection.py", "storage/locking.py"}


def test_work_requests_are_listed_oldest_first_whatever_their_names(memory: Commonplace) -> None:
    shared = FileCoordination(memory.library.path)
    assert shared.requests() == []
    with lease(memory) as space:
        for seconds, turn in ((30, 9), (20, 10), (10, 11)):
            shared.request(space.store, "task", turn)
            file = memory.library.path / "workflows" / "due" / f"task.{turn}.json"
            os.utime(file, (time.time() - seconds, time.time() - seconds))
    assert [request.turn for request in shared.requests()] == [9, 10, 11]
