"""Saving what can still be read of a damaged file into a new one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from commonplace.errors import Conflict, NotFound, StorageCorrupt
from commonplace.storage import schema
from commonplace.storage.database import (
    Connection,
    connect,
    migrate,
    sync_directory,
    typed,
    version_of,
)
from commonplace.storage.directories import make_private
from commonplace.storage.ports import Contents
from commonplace.storage.reports import RESTORE, Diagnosis, Progress, Salvage
from commonplace.storage.sqlite import restoring
from commonplace.storage.sqlite.backup import KEPT, Kept, named, read_rows
from commonplace.storage.sqlite.comparing import (
    DERIVED,
    Unreadable,
    compare,
    stored_rows,
    vector_sizes,
)
from commonplace.storage.sqlite.rebuilding import fill_grams, true_head, write_derived
from commonplace.storage.tables import VERSIONED
from commonplace.storage.writing import read_head, write_head


def salvage(
    library: Contents, space: str, target: Path, *, progress: Progress | None = None
) -> Salvage:
    """Write every sound row of a damaged space into a new file; what is lost is listed."""
    directory = Path(target).expanduser().absolute()
    path = directory / f"{space}.db"
    if path.exists():
        raise Conflict(f"{path} exists already.", hint="Choose another directory.", field="target")
    make_private(directory)
    aside = path.with_name(path.name + ".part")
    try:
        saved, lost, _ = _save(library, space, aside, progress)
        aside.rename(path)
        sync_directory(directory)
    finally:
        aside.unlink(missing_ok=True)
    return Salvage(path, saved, lost)


def _save(
    library: Contents, space: str, aside: Path, progress: Progress | None = None
) -> tuple[dict[str, int], list[str], int]:
    """(rows saved, rows lost, the change counter they were read at)."""
    path = library.file(space)
    if not path.exists():
        raise NotFound(f"There is no space {space}.", field="space")
    if not path.stat().st_size:  # which SQLite would take for a new one, and delete its log
        raise StorageCorrupt("The file is empty: no row is left to save.", hint=RESTORE)
    aside.unlink(missing_ok=True)
    old = Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        old.set_busy_timeout(30_000)
        if version_of(old) != len(schema.MIGRATIONS):
            raise StorageCorrupt("The file's schema is not of this release.", hint=RESTORE)
        old.execute("BEGIN")
        new = connect(aside, create=True)
        try:
            migrate(new)
            with new:
                saved, lost = _carry_over(old, new, space, library, progress)
                seq = read_head(new, space)[0]
            new.pragma("journal_mode", "wal")
        finally:
            new.close(True)
    except apsw.Error as error:
        raise typed(error) from error
    finally:
        old.close(True)
    return saved, lost, seq


def _carry_over(
    old: Connection,
    new: Connection,
    space: str,
    library: Contents,
    progress: Progress | None,
) -> tuple[dict[str, int], list[str]]:
    saved: dict[str, int] = {}
    lost: list[str] = []
    bound = _bound(old, space)
    for i, kept in enumerate(KEPT):
        if progress is not None:
            progress(i, len(KEPT) + 1)
        count, found = 0, set()
        at = [kept.columns.index(part) for part in kept.key]
        marks = ", ".join("?" * (len(kept.columns) + 2))
        insert = f"INSERT INTO {kept.name} (space, {', '.join(kept.columns)}, hash)"
        broken: list[str] = []
        for owner, values, sound in _every(old, kept, space, bound, broken):
            if sound and owner == space:
                hashed = kept.hash(space, values)
                new.execute(f"{insert} VALUES ({marks})", (space, *values, hashed))
                count += 1
            elif kept.name not in ("head", "counters"):
                lost.append(named(kept, values))
            found.add(tuple(values[i] for i in at))
        saved[kept.name] = count
        promised = _promised(old, kept, space)
        if promised is not None:
            lost += [f"{kept.name} {key}" for key in sorted(promised - found)]
        elif broken:
            lost.append(f"{kept.name}: no index is left to tell which")
    if not saved["head"]:
        write_head(new, space, true_head(new, space))
    with contextlib.suppress(*Unreadable):
        for row in old.execute(
            "SELECT num, space, id, weights, dimensions FROM models WHERE space = ?", (space,)
        ):
            new.execute(
                "INSERT INTO models (num, space, id, weights, dimensions) VALUES (?, ?, ?, ?, ?)",
                row,
            )
    with contextlib.suppress(*Unreadable):
        for memory, seq in old.execute("SELECT memory, seq FROM touches WHERE space = ?", (space,)):
            new.execute(
                "INSERT INTO touches (space, memory, seq) VALUES (?, ?, ?)", (space, memory, seq)
            )
    _derive(old, new, space, library)
    return saved, lost


def _derive(old: Connection, new: Connection, space: str, library: Contents) -> None:
    """What finds the saved memories, with the vectors that are still whole."""
    sizes = vector_sizes(new, space, Diagnosis(space))
    for wrong in compare(new, space, DERIVED, library.derive):
        with contextlib.suppress(apsw.Error):
            wrong.passages = stored_rows(old, "passages", wrong.num - 1, wrong.num)[wrong.num]
        write_derived(new, space, wrong, set(DERIVED), sizes, library.embedder)
    fill_grams(new, library.derive)


def _bound(connection: Connection, space: str) -> int:
    """A number above that of every row, as far as can be told."""
    highest = 0
    for kept in KEPT[1:]:
        column = "memory" if kept.name == "counters" else "num"
        with contextlib.suppress(apsw.Error):
            row = connection.execute(
                f"SELECT max({column}) FROM {kept.name} WHERE space = ?",  # noqa: S608
                (space,),
            ).fetchone()
            highest = max(highest, (row and row[0]) or 0)
    with contextlib.suppress(apsw.Error):
        row = connection.execute(
            "SELECT max(seq), max(next_num) FROM head WHERE space = ?", (space,)
        ).fetchone()
        highest = max(highest, *((row and (row[0] or 0, row[1] or 0)) or (0, 0)))
    return min(highest, 50_000_000)


def _every(
    connection: Connection, kept: Kept, space: str, bound: int, broken: list[str]
) -> Iterator[tuple[Any, tuple[Any, ...], bool]]:
    """All rows that can still be read; where a page is broken, each row behind it by its key."""
    seen: set[tuple[Any, ...]] = set()
    at = [kept.columns.index(part) for part in kept.key]
    try:
        for owner, values, sound in read_rows(connection, kept):
            seen.add(tuple(values[i] for i in at))
            yield owner, values, sound
        return
    except apsw.Error as error:
        broken.append(str(error))
    columns = ", ".join(kept.columns)
    entities = [table.name for table in VERSIONED] if kept.name == "versions" else [None]
    number = "seq" if kept.name == "head" else "memory" if kept.name == "counters" else "num"
    for entity in entities:
        clause = f"{number} = ?" + (" AND entity = ?" if entity else "")
        statement = f"SELECT {columns}, hash FROM {kept.name} WHERE space = ? AND {clause}"  # noqa: S608
        for num in range(1, bound + 1):
            try:
                for *values, hashed in connection.execute(
                    statement, (space, num, *([entity] if entity else []))
                ):
                    if tuple(values[i] for i in at) not in seen:
                        yield space, tuple(values), kept.hash(space, values) == hashed
            except Unreadable:
                continue


_INDEXES = {
    **{table.name: f"{table.name}_seq" for table in VERSIONED},
    "operations": "operations_id", "events": "events_kind", "versions": "versions_until",
}  # fmt: skip


def _promised(connection: Connection, kept: Kept, space: str) -> set[tuple[Any, ...]] | None:
    """Keys of rows that an index knows of, whatever became of the rows; None if it cannot tell."""
    if kept.name not in _INDEXES:
        return set()
    try:
        return set(
            connection.execute(
                f"SELECT {', '.join(kept.key)} FROM {kept.name}"  # noqa: S608
                f" INDEXED BY {_INDEXES[kept.name]} WHERE space = ?",
                (space,),
            )
        )
    except Unreadable:
        return None


def write_anew(library: Contents, space: str) -> None:
    """Put a new file with all rows in place of one whose structure is broken, or refuse."""
    aside = library.file(space).with_suffix(".db.repairing")
    try:
        _, lost, seq = _save(library, space, aside)
        if lost:
            raise StorageCorrupt(
                f"{len(lost)} rows cannot be read any more, first {lost[0]}; nothing was changed.",
                hint=RESTORE,
            )

        def unchanged(connection: Connection) -> bool:
            with contextlib.suppress(StorageCorrupt, apsw.Error):
                return read_head(connection, space)[0] == seq
            return True  # the counter is part of the damage: nobody can have written

        restoring.put_in_place(library, space, aside, "repair", unchanged=unchanged)
    finally:
        aside.unlink(missing_ok=True)
