"""A file that is replaced by an older one under an open index: two histories are never mixed."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from commonplace import Commonplace
from commonplace.engine.binding import engine_call, lease
from commonplace.engine.content.facts import Room
from commonplace.engine.finding.filters import Filters
from commonplace.engine.finding.substrings import locate
from commonplace.errors import StorageUnavailable
from commonplace.storage import index
from commonplace.storage.database import copy_database

BEFORE, LOST = 5, 4


@pytest.fixture
def opened(quick_disk: Path) -> Iterator[Commonplace]:
    """A memory whose index has followed some operations beyond those of `older.db`."""
    with Commonplace(quick_disk / "data", embedding="none") as memory:
        for i in range(BEFORE):
            memory.remember(f"Common harbour {i}.", ref=f"common-{i}")
        _copy(memory.library.file("default"), quick_disk / "older.db")
        for i in range(LOST):
            memory.remember(f"Lost lantern {i}.", ref=f"lost-{i}")
            memory.facts.add("lantern", "is", f"lost {i}", room=Room(100, 100))
        assert len(memory.recall("lantern")) == LOST
        assert memory.find_text("lantern")[1] == LOST
        assert _located(memory, "lantern") == LOST
        yield memory


def _copy(file: Path, target: Path) -> None:
    connection = apsw.Connection(str(file))
    connection.execute("BEGIN")
    copy_database(connection, target)
    connection.close()


def _put_back(quick_disk: Path) -> None:
    """Restore the older copy into the file, in a transaction, while others have it open."""
    source = apsw.Connection(str(quick_disk / "older.db"))
    target = apsw.Connection(str(quick_disk / "data" / "spaces" / "default.db"))
    target.set_busy_timeout(10_000)
    with target.backup("main", source, "main") as copying:
        copying.step()
    target.close()
    source.close()


def _located(memory: Commonplace, word: str) -> int:
    return engine_call(memory, locate, [word], Filters(), lambda located: located.num * 1.0)[1]


def _told(memory: Commonplace) -> dict[str, Any]:
    found: dict[str, Any] = {
        word: sorted(str(hit.memory.ref) for hit in memory.recall(word, limit=50))
        for word in ("harbour", "lantern", "compass")
    }
    found["browsed"] = [each.ref for each in memory.browse(limit=100)[0]]
    found["text"] = memory.find_text("compass")[1], memory.find_text("lantern")[1]
    found["located"] = _located(memory, "compass"), _located(memory, "lantern")
    found["facts"] = memory.facts.totals()
    return found


@pytest.mark.parametrize("written", [0, 1, LOST, 2 * LOST, 3 * LOST])
def test_an_index_is_loaded_anew_where_its_operation_is_not_there(
    opened: Commonplace, quick_disk: Path, written: int
) -> None:
    """With as many new operations as were lost, the numbers are the same as before."""
    _put_back(quick_disk)
    with Commonplace(quick_disk / "data", embedding="none") as other:
        for i in range(written):  # rows and operations get the numbers of those that were lost
            other.remember(f"New compass {i}.", ref=f"new-{i}")
            other.facts.add("compass", "is", f"new {i}")
    done: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: done.append(_told(opened)), daemon=True)
    asking.start()
    asking.join(60)
    assert done, "it looks for ever"
    with Commonplace(quick_disk / "data", embedding="none") as fresh:
        assert done[0] == _told(fresh)
    assert done[0]["lantern"] == [] and len(done[0]["compass"]) == written
    # Facts that were lost take no room.
    opened.facts.add("compass", "is", "new", room=Room(written + 1, written + 2))
    opened.remember("New compass, by the one that was open.")
    assert len(opened.recall("compass", limit=50)) == written + 1


def test_inside_an_open_unit_it_is_seen_too(opened: Commonplace, quick_disk: Path) -> None:
    _put_back(quick_disk)
    with Commonplace(quick_disk / "data", embedding="none") as other:
        for i in range(2 * LOST):
            other.remember(f"New compass {i}.", ref=f"new-{i}")
    with opened.unit("both"):
        opened.remember("New compass, in a unit.")
        assert len(opened.recall("compass", limit=50)) == 2 * LOST + 1
        assert not opened.recall("lantern")


def test_without_the_ids_two_histories_would_be_mixed(
    opened: Commonplace, quick_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: operations are known by their numbers alone."""
    real = index.newest_change
    monkeypatch.setattr(index, "newest_change", lambda *given: (real(*given)[0], "", 0))
    monkeypatch.setattr(index, "operation_id", lambda *_: "")
    monkeypatch.setattr(
        "commonplace.engine.library.newest_change", lambda *given: (real(*given)[0], "", 0)
    )
    opened.remember("So that the index is of the mutant.")
    opened.recall("harbour")
    with lease(opened) as space:
        space.forget_index()
    opened.recall("harbour")
    _put_back(quick_disk)
    with Commonplace(quick_disk / "data", embedding="none") as other:
        for i in range(3 * LOST):
            other.remember(f"New compass {i}.", ref=f"new-{i}")
    told = {hit.memory.ref for hit in opened.recall("compass", limit=50)}
    assert len(told) != 3 * LOST


@pytest.mark.parametrize("how", ["directory", "file", "replaced"])
def test_nothing_is_acknowledged_into_a_file_that_lost_its_name(
    opened: Commonplace, quick_disk: Path, how: str
) -> None:
    """SQLite goes on writing to a file that was deleted."""
    file = quick_disk / "data" / "spaces" / "default.db"
    if how == "directory":
        shutil.rmtree(quick_disk / "data")
    elif how == "file":
        file.unlink()
    else:
        (quick_disk / "older.db").replace(file)
    for _ in range(2):  # the second time with a new connection
        with pytest.raises(StorageUnavailable):
            opened.remember("A write that would be lost.")
    with pytest.raises(StorageUnavailable), opened.unit("several"):
        opened.remember("Another one.")
        opened.facts.add("lantern", "is", "lost")
    if how == "replaced":
        opened.close()
        for log in ("-wal", "-shm"):
            file.with_name(f"default.db{log}").unlink(missing_ok=True)
        with Commonplace(quick_disk / "data", embedding="none") as other:
            assert other.remember("Stored.").id
            assert not other.recall("lost")
