"""A restore that is killed at any step, and so is what takes it back: all of it, or nothing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commonplace import Commonplace
from commonplace.engine.history import audit
from commonplace.engine.library import Library
from commonplace.errors import StorageUnavailable
from commonplace.storage.locking import try_lock
from commonplace.storage.sqlite import shared_files, swap
from commonplace.storage.system import open_system

STEPS = ("os.link", "os.rename", "os.remove")
"""What changes a directory; SQLite's own calls are not among them."""


RESTORED = {"default": ["before"], "gone": ["before"], "system": ["before"]}


def killed(work: Callable[[], Any], step: int) -> bool:
    """Whether a process was killed just before its so-many-th step; else it came to its end."""
    child = os.fork()
    if not child:
        left = [step]

        def count(event: str, _: Any) -> None:
            if event in STEPS:
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1

        try:
            sys.addaudithook(count)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def entry(tool: str) -> audit.Entry:
    return audit.Entry(
        request="",
        dialect="d",
        tool=tool,
        success=True,
        milliseconds=0,
        arguments="{}",
        result="{}",
    )


def put(data: Path, word: str, *spaces: str) -> None:
    """Say a word in spaces and in what is beside them."""
    with Commonplace(data, embedding="none") as memory:
        for space in spaces:
            memory.at(space).remember(word)
    with contextlib.closing(open_system(data)) as store:
        audit.append(store, entry(word))


def said(data: Path) -> dict[str, list[str]]:
    """All that a directory says, by its files."""
    with Commonplace(data, embedding="none") as memory:
        found = {
            space: sorted(each.text for each in memory.at(space).browse()[0])
            for space in memory.library.spaces()
        }
        assert all(each.healthy for each in memory.library.maintenance.check_shared_files())
    with contextlib.closing(open_system(data)) as store, store.read() as connection:
        found["system"] = [
            row[0] for row in connection.execute("SELECT tool FROM audit ORDER BY num")
        ]
    return found


def names(data: Path) -> set[str]:
    """The files, but for the logs that SQLite makes as it likes."""
    every = {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}
    return {name for name in every if not name.endswith(("-wal", "-shm", "-journal"))}


def restore(data: Path, source: Path) -> None:
    library = Library(data, embedder=None)
    library.maintenance.restore(source, overwrite=True)
    library.close()


@pytest.fixture
def prepared(quick_disk: Path) -> tuple[Path, Path]:
    """(a directory, a backup of it as it was before; one space of the backup is gone since)."""
    data = quick_disk / "data"
    put(data, "before", "default", "gone")
    (data / "workflows").mkdir()
    shutil.copy(data / "system.db", data / shared_files.WORKFLOWS)
    library = Library(data, embedder=None)
    source = library.maintenance.backup(quick_disk / "copy").path
    library.close()
    for path in data.glob("spaces/gone.db*"):
        path.unlink()
    put(data, "after", "default")
    return data, source


def test_a_restore_killed_at_any_step_is_taken_back_by_whoever_comes_next(
    prepared: tuple[Path, Path], quick_disk: Path
) -> None:
    data, source = prepared
    former, files = said(data), names(data)
    assert former == {"default": ["after", "before"], "system": ["before", "after"]}
    step, halves, over = 0, 0, False
    while True:
        one = quick_disk / f"killed-{step}"
        shutil.copytree(data, one)
        if not killed(lambda: restore(one, source), step):  # noqa: B023
            break
        noted = (one / swap.JOURNAL).exists()
        over = over or (halves > 0 and not noted)  # all that is left to do is to tidy up
        halves += noted
        if step % 2:
            open_system(one).close()  # a program that opens no space comes first
        assert said(one) == (RESTORED if over else former), f"after a kill at step {step}"
        if not over:
            left = names(one) - files
            left = {name for name in left if not name.endswith((".restoring", ".part"))}
            assert not left, f"after a kill at step {step}"
        step += 1
    assert step > 12 and halves > 10
    assert said(one) == RESTORED
    assert not [name for name in names(one) if name.startswith(swap.JOURNAL)]
    assert not [name for name in names(one) if name.endswith(".restoring")]


def test_what_takes_a_restore_back_may_be_killed_at_any_step_too(
    prepared: tuple[Path, Path], quick_disk: Path
) -> None:
    data, source = prepared
    former = said(data)
    total = 0
    while True:
        half = quick_disk / f"half-{total}"
        shutil.copytree(data, half)
        if not killed(lambda: restore(half, source), total):  # noqa: B023
            break
        total += 1
    halves = [quick_disk / f"half-{at}" for at in range(total)]
    halves = [half for half in halves if (half / swap.JOURNAL).exists()]
    kills = 0
    for half in halves[::2]:
        step = 0
        while killed(lambda: swap.undo_interrupted(half), step):  # noqa: B023
            step += 1  # and again, from where the one before it was killed
        kills += step
        assert said(half) == former, f"after {step} kills of {half.name}"
    assert kills > 20


def test_nobody_comes_in_while_a_backup_is_restored(prepared: tuple[Path, Path]) -> None:
    data, source = prepared
    with swap.journal(data, []):
        for come in (
            lambda: Library(data, embedder=None),
            lambda: open_system(data),
            lambda: restore(data, source),
        ):
            with pytest.raises(StorageUnavailable, match="is being restored"):
                come()
    assert said(data)["default"] == ["after", "before"]


def test_a_second_restore_does_not_empty_the_journal_that_another_begins(tmp_path: Path) -> None:
    begun = tmp_path / f"{swap.JOURNAL}.part"
    with begun.open("w") as first:
        assert try_lock(first.fileno())
        first.write("what the first one notes")
        first.flush()
        with (
            pytest.raises(StorageUnavailable, match="is being restored"),
            swap.journal(tmp_path, []),
        ):
            pass
        assert begun.read_text() == "what the first one notes"


@pytest.mark.parametrize(
    "text", ["", "{}", "[", '{"swaps": 1}', '{"swaps": [["a"]]}',
             json.dumps({"swaps": [["../other/x.db", "../other/y", "../other/z", False]]})]
)  # fmt: skip
def test_a_journal_that_cannot_be_read_changes_nothing_and_is_told(
    prepared: tuple[Path, Path], quick_disk: Path, text: str
) -> None:
    data, _ = prepared
    other = quick_disk / "other" / "x.db"
    other.parent.mkdir()
    other.write_bytes(b"somebody else's")
    (data / swap.JOURNAL).write_text(text)
    with Commonplace(data, embedding="none") as memory:
        assert memory.browse()[1] == 2
        told = memory.library.maintenance.check_shared_files()[-1]
        assert not told.healthy and "--overwrite" in told.findings[0].hint
    assert other.read_bytes() == b"somebody else's"
