"""Save the intact rows of a damaged file into a new file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
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
    typed_error,
    version_of,
)
from commonplace.storage.directories import make_private
from commonplace.storage.ports import Contents
from commonplace.storage.reports import RESTORE, Diagnosis, Progress, Salvage
from commonplace.storage.sqlite.check import (
    DERIVED,
    READ_ERRORS,
    compare_derived,
    stored_rows,
    vector_models,
)
from commonplace.storage.sqlite.hashed_rows import (
    TABLES,
    is_intact_row,
    key_of,
    read_rows,
    row_name,
)
from commonplace.storage.sqlite.repair import fill_grams, head_from_rows, write_derived
from commonplace.storage.sqlite.swap import Swap, close_space
from commonplace.storage.tables import VERSIONED, VERSIONS, Hashed, Row
from commonplace.storage.writing import read_head, write_head


def salvage(
    library: Contents, space: str, target: Path, *, progress: Progress | None = None
) -> Salvage:
    """Write all intact rows of a damaged space into a new file; lost rows are listed."""
    directory = Path(target).expanduser().absolute()
    path = directory / f"{space}.db"
    if path.exists():
        raise Conflict(f"{path} already exists.", hint="Choose another directory.", field="target")
    make_private(directory)
    part = path.with_name(path.name + ".part")
    try:
        saved, lost, _ = _save_rows(library, space, part, progress)
        part.rename(path)
        sync_directory(directory)
    finally:
        part.unlink(missing_ok=True)
    return Salvage(path, saved, lost)


def _save_rows(
    library: Contents, space: str, target: Path, progress: Progress | None = None
) -> tuple[dict[str, int], list[str], int]:
    """Write the intact rows of a space into a new file.

    Return the number of saved rows of each table, the lost rows, and the change counter then.
    """
    path = library.file(space)
    if not path.exists():
        raise NotFound(f"There is no space named {space}.", field="space")
    if not path.stat().st_size:  # SQLite would treat the file as new, and delete its log.
        raise StorageCorrupt("The file is empty: there is no row to save.", hint=RESTORE)
    target.unlink(missing_ok=True)
    old = Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        old.set_busy_timeout(30_000)
        if version_of(old) != len(schema.MIGRATIONS):
            raise StorageCorrupt(
                "The file was not written by this release, or its schema version is damaged.",
                hint=RESTORE,
            )
        old.execute("BEGIN")
        new = connect(target, create=True)
        try:
            migrate(new)
            with new:
                saved, lost = _copy_rows(old, new, space, library, progress)
                seq = read_head(new, space)[0]
            new.pragma("journal_mode", "wal")
        finally:
            new.close(True)
    except apsw.Error as error:
        raise typed_error(error) from error
    finally:
        old.close(True)
    return saved, lost, seq


def _copy_rows(
    old: Connection,
    new: Connection,
    space: str,
    library: Contents,
    progress: Progress | None,
) -> tuple[dict[str, int], list[str]]:
    saved: dict[str, int] = {}
    lost: list[str] = []
    highest = _highest_number(old, space)
    for i, (name, table) in enumerate(TABLES.items()):
        if progress is not None:
            progress(i, len(TABLES) + 1)
        saved[name], found = 0, set()
        broken: list[str] = []
        for row, sound in _readable_rows(old, table, space, highest, broken):
            if sound and row["space"] == space:
                new.execute(table.insert_sql, tuple(row.values()))
                saved[name] += 1
            elif name not in ("head", "counters"):
                lost.append(row_name(table, row))
            found.add(_key_values(table, row))
        indexed = _indexed_keys(old, table, space)
        if indexed is not None:
            lost += [f"{name} {key}" for key in sorted(indexed - found)]
        elif broken:
            lost.append(f"{name}: the index is damaged too, so the lost rows cannot be listed")
    if not saved["head"]:
        write_head(new, space, head_from_rows(new, space))
    for copied, columns in (("models", "num, id, weights, dimensions"), ("touches", "memory, seq")):
        marks = ", ".join("?" * len(columns.split(",")))
        select = f"SELECT space, {columns} FROM {copied} WHERE space = ?"  # noqa: S608
        insert = f"INSERT INTO {copied} (space, {columns}) VALUES (?, {marks})"  # noqa: S608
        with contextlib.suppress(*READ_ERRORS):
            for values in old.execute(select, (space,)):
                new.execute(insert, values)
    _write_derived_rows(old, new, space, library)
    return saved, lost


def _key_values(table: Hashed, row: Row) -> tuple[Any, ...]:
    return tuple(row[part] for part in key_of(table))


def _write_derived_rows(old: Connection, new: Connection, space: str, library: Contents) -> None:
    """Write the derived rows of the saved memories, with the intact stored vectors."""
    models = vector_models(new, space, Diagnosis(space))
    for memory in compare_derived(new, space, DERIVED, library.derive):
        with contextlib.suppress(apsw.Error):
            memory.passages = stored_rows(old, "passages", memory.num - 1, memory.num)[memory.num]
        write_derived(new, space, memory, set(DERIVED), models, library.embedder)
    fill_grams(new, library.derive)


def _highest_number(connection: Connection, space: str) -> int:
    """Return an upper bound of all row numbers, as far as the file can be read."""
    columns = [("head", "seq"), ("head", "next_num"), ("counters", "memory")]
    columns += [(name, "num") for name in TABLES if name not in ("head", "counters")]
    highest = 0
    for name, column in columns:
        with contextlib.suppress(apsw.Error):
            row = connection.execute(
                f"SELECT max({column}) FROM {name} WHERE space = ?",  # noqa: S608
                (space,),
            ).fetchone()
            highest = max(highest, (row and row[0]) or 0)
    return min(highest, 50_000_000)


def _readable_rows(
    connection: Connection, table: Hashed, space: str, highest: int, broken: list[str]
) -> Iterator[tuple[Row, bool]]:
    """Yield all readable rows; after a damaged page, the other rows are read by number."""
    seen: set[tuple[Any, ...]] = set()
    try:
        for row, sound in read_rows(connection, table):
            seen.add(_key_values(table, row))
            yield row, sound
        return
    except apsw.Error as error:
        broken.append(str(error))
    number = "num" if table is VERSIONS else key_of(table)[0]
    select = f"SELECT {', '.join(table.stored)} FROM {table.name} WHERE space = ? AND {number} = ?"  # noqa: S608
    for entity in [each.name for each in VERSIONED] if table is VERSIONS else [None]:
        statement = select if entity is None else f"{select} AND entity = ?"
        for num in range(1, highest + 1):
            bindings = (space, num) if entity is None else (space, num, entity)
            try:
                for values in connection.execute(statement, bindings):
                    row = dict(zip(table.stored, values, strict=True))
                    if _key_values(table, row) not in seen:
                        yield row, is_intact_row(table, row)
            except READ_ERRORS:
                continue


_INDEXES = {
    **{table.name: f"{table.name}_seq" for table in VERSIONED},
    "operations": "operations_id", "events": "events_kind", "versions": "versions_until",
}  # fmt: skip


def _indexed_keys(connection: Connection, table: Hashed, space: str) -> set[tuple[Any, ...]] | None:
    """Return the keys in an index, including lost rows; None if the index cannot be read."""
    if table.name not in _INDEXES:
        return set()
    try:
        return set(
            connection.execute(
                f"SELECT {', '.join(key_of(table))} FROM {table.name}"  # noqa: S608
                f" INDEXED BY {_INDEXES[table.name]} WHERE space = ?",
                (space,),
            )
        )
    except READ_ERRORS:
        return None


def rewrite(library: Contents, space: str) -> None:
    """Replace a file whose structure is broken by a new one with all rows, if no row is lost."""
    staged = library.file(space).with_suffix(".db.repairing")
    try:
        _, lost, seq = _save_rows(library, space, staged)
        if lost:
            raise StorageCorrupt(
                f"{len(lost)} rows cannot be read, the first is {lost[0]}; nothing was changed.",
                hint=RESTORE,
            )

        def unchanged(connection: Connection) -> bool:
            with contextlib.suppress(StorageCorrupt, apsw.Error):
                return read_head(connection, space)[0] == seq
            return True  # The counter itself is damaged, so no process can have written.

        swap = Swap.plan(library.file(space), staged, "repair")
        swap.run(partial(close_space, library, space), unchanged=unchanged)
    finally:
        staged.unlink(missing_ok=True)
