"""The files of a data directory that belong to no space, as part of a backup.

`system.db` holds credentials and the audit entries of calls without a space.
`workflows/dbos.sqlite` holds the progress of workflows, and `workflows/due` the requests that are
not started yet. A workflow step may run twice without harm, but a step that is recorded as done
while its effect is missing in the space would be lost. So the workflows' file is copied before the
spaces, and the due requests are read again after them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import apsw

from commonplace.storage import audit
from commonplace.storage.database import Connection, connect, copy_database, typed_error
from commonplace.storage.directories import make_private, replace_file
from commonplace.storage.reports import MOST_LISTED
from commonplace.storage.system import NAME, open_system

SYSTEM = "system.db"
WORKFLOWS = "workflows/dbos.sqlite"
FILES = (WORKFLOWS, SYSTEM)
_DUE_FOLDER = "workflows/due"


def existing_files(data: Path) -> list[str]:
    """Return the names of the shared files that exist in a data directory."""
    return [name for name in FILES if (data / name).exists()]


@contextlib.contextmanager
def open_snapshot(data: Path, name: str) -> Iterator[Connection]:
    """Open a snapshot of a file while others write to it."""
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
        raise typed_error(error) from error


def copy_file(data: Path, name: str, target: Path) -> dict[str, Any]:
    """Copy a snapshot of a file; return the summary that the copy must match."""
    with open_snapshot(data, name) as connection:
        copy_database(connection, target)
        return file_summary(connection, name)


def file_summary(connection: Connection, name: str) -> dict[str, Any]:
    """Return row counts, schema version and audit head, which a copy must match."""
    rows = {}
    for (table,) in connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        " ORDER BY name"
    ).fetchall():
        quoted = str(table).replace('"', '""')
        counted = connection.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()  # noqa: S608
        rows[str(table)] = int(counted[0]) if counted else 0
    found: dict[str, Any] = {"rows": rows, "schema": int(connection.pragma("user_version"))}
    if name == SYSTEM:
        count, head = audit.read_head(connection, NAME)
        found["audit"] = {"rows": count, "head": head.hex()}
    return found


def file_faults(connection: Connection, name: str) -> Iterator[str]:
    """Return the faults that SQLite's integrity check finds, and faults in the audit chain."""
    for (fault,) in connection.execute(f"PRAGMA integrity_check({MOST_LISTED})"):
        if fault != "ok":
            yield f"SQLite: {fault}"
    if name == SYSTEM:
        for each in audit.faults(connection, NAME):
            yield f"Row {each.num} of audit: {each.what}"


def due_requests(data: Path) -> list[dict[str, Any]]:
    """Return the workflow requests that were not started yet."""
    found = []
    folder = data / _DUE_FOLDER
    for file in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        # The request was started meanwhile, or its file is incomplete.
        with contextlib.suppress(OSError, ValueError):
            found.append(json.loads(file.read_text(encoding="utf-8")))
    return [each for each in found if isinstance(each, dict) and each.keys() >= {"space", "id"}]


def started_turns(connection: Connection) -> set[str]:
    """Return the keys of all workflow turns that DBOS has started."""
    # If the table is missing, no workflow was ever started.
    with contextlib.suppress(apsw.SQLError):
        return {
            str(row[0]) for row in connection.execute("SELECT workflow_uuid FROM workflow_status")
        }
    return set()


def requests_to_back_up(
    data: Path, before: list[dict[str, Any]], known: set[str]
) -> list[dict[str, Any]]:
    """Return the requests that a backup must contain: due before or now, or started since."""
    found = {_key(each): each for each in (*before, *due_requests(data))}
    since: set[str] = set()
    if (data / WORKFLOWS).exists():
        with open_snapshot(data, WORKFLOWS) as connection:
            since = started_turns(connection) - known
    for key in since:
        space, _, rest = key.partition(":")
        identity, _, turn = rest.rpartition(":")
        if identity and turn.isdigit():
            found[key] = {"space": space, "id": identity, "turn": int(turn)}
    return [found[key] for key in sorted(found)]


def _key(each: Mapping[str, Any]) -> str:
    return f"{each['space']}:{each['id']}:{each.get('turn', 0)}"


def write_due_requests(data: Path, due: list[dict[str, Any]]) -> None:
    """Write the requests of a backup as files, so that they are started again."""
    if not due:
        return
    folder = data / _DUE_FOLDER
    make_private(folder)
    for each in due:
        name = f"{each['id']}.{each.get('turn', 0)}.json"
        if Path(name).name == name:
            with replace_file(folder / name) as stream:
                stream.write(json.dumps(each).encode())
