"""The files of a data directory that belong to no space, as a backup holds them.

`system.db` holds who may come in and the calls that reached no space. `workflows/dbos.sqlite`
holds how far workflows have come, `workflows/due` what is asked for and not begun. A step that is
taken twice changes nothing, while one that is taken for done and is not in its space is lost; so
the workflows' file is copied before the spaces, and what is due is asked again after them.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import apsw

from commonplace.storage import audit
from commonplace.storage.database import Connection, connect, copy_database, sync_directory, typed
from commonplace.storage.directories import make_private
from commonplace.storage.system import NAME, open_system

SYSTEM = "system.db"
WORKFLOWS = "workflows/dbos.sqlite"
FILES = (WORKFLOWS, SYSTEM)
_DUE = "workflows/due"
_NAMED = 100
BEGUN = "SELECT workflow_uuid FROM workflow_status"  # what DBOS was asked to carry out, by its key


def present(data: Path) -> list[str]:
    """Which of the files a data directory has."""
    return [name for name in FILES if (data / name).exists()]


@contextlib.contextmanager
def reading(data: Path, name: str) -> Iterator[Connection]:
    """A snapshot of a file, while others write to it."""
    if name == SYSTEM:
        store = open_system(data)
        try:
            with store.read() as connection:
                yield connection
        finally:
            store.close()
        return
    try:
        connection = connect(data / name)
        try:
            connection.execute("PRAGMA query_only = ON; BEGIN")
            yield connection
        finally:
            connection.close(True)
    except apsw.Error as error:
        raise typed(error) from error


def copy(data: Path, name: str, target: Path) -> dict[str, Any]:
    """Copy a file as it is at one moment; what the copy must hold."""
    with reading(data, name) as connection:
        copy_database(connection, target)
        return summary(connection, name)


def summary(connection: Connection, name: str) -> dict[str, Any]:
    """What a file holds, to be compared after it was copied."""
    tables = [
        row[0]
        for row in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            " ORDER BY name"
        )
    ]
    found: dict[str, Any] = {
        "rows": {table: _count(connection, table) for table in tables},
        "schema": int(connection.pragma("user_version")),
    }
    if name == SYSTEM:
        count, head = audit.read_head(connection, NAME)
        found["audit"] = {"rows": count, "head": head.hex()}
    return found


def _count(connection: Connection, table: str) -> int:
    quoted = table.replace('"', '""')
    row = connection.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()  # noqa: S608
    return int(row[0]) if row else 0


def faults(connection: Connection, name: str) -> Iterator[str]:
    """What is not as it was written, of SQLite's structure and of the audit's chain."""
    for (fault,) in connection.execute(f"PRAGMA integrity_check({_NAMED})"):
        if fault != "ok":
            yield f"SQLite: {fault}"
    if name == SYSTEM:
        for each in audit.faults(connection, NAME):
            yield f"Row {each.num} of audit: {each.what}"


def asked(data: Path) -> list[dict[str, Any]]:
    """The work that is asked for and not begun."""
    found = []
    folder = data / _DUE
    for file in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        with contextlib.suppress(OSError, ValueError):  # it was begun meanwhile, or is half written
            found.append(json.loads(file.read_text(encoding="utf-8")))
    return [each for each in found if isinstance(each, dict) and each.keys() >= {"space", "id"}]


def begun(connection: Connection) -> set[str]:
    """The keys of the work that was ever begun, by the workflows' file."""
    with contextlib.suppress(apsw.SQLError):  # a file without such a table has begun nothing
        return {str(row[0]) for row in connection.execute(BEGUN)}
    return set()


def due_since(data: Path, before: list[dict[str, Any]], known: set[str]) -> list[dict[str, Any]]:
    """What a copy must ask for: what was due, what is, and what was begun since it was made."""
    found = {_key(each): each for each in (*before, *asked(data))}
    since: set[str] = set()
    if (data / WORKFLOWS).exists():
        with reading(data, WORKFLOWS) as connection:
            since = begun(connection) - known
    for key in since:
        space, _, rest = key.partition(":")
        identity, _, turn = rest.rpartition(":")
        if identity and turn.isdigit():
            found[key] = {"space": space, "id": identity, "turn": int(turn)}
    return [found[key] for key in sorted(found)]


def _key(each: Mapping[str, Any]) -> str:
    return f"{each['space']}:{each['id']}:{each.get('turn', 0)}"


def ask_again(data: Path, due: list[dict[str, Any]]) -> None:
    """Have work carried out that was due when the backup was taken."""
    if not due:
        return
    folder = data / _DUE
    make_private(folder)
    for each in due:
        name = f"{each['id']}.{each.get('turn', 0)}.json"
        if Path(name).name != name:
            continue
        descriptor = os.open(folder / name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            json.dump(each, stream)
            stream.flush()
            os.fsync(stream.fileno())
    sync_directory(folder)
