"""Runs tests on PostgreSQL: each data directory that a test uses has a database of its own.

With COMMONPLACE_TEST_ENGINE=postgres the first test that needs it starts a server. A database is a
copy of a template, and is emptied for the next test instead of being dropped. Which database
belongs to a directory is a file, so that processes which a test starts find it too.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postgres_server import PostgresServer

ENGINE = os.environ.get("COMMONPLACE_TEST_ENGINE", "sqlite")
ON_POSTGRES = ENGINE == "postgres"
NO_TRACES = None if ON_POSTGRES else 0
"""What a purge says when it found nothing; bytes in files of PostgreSQL cannot be looked for."""
_FOLDER = "COMMONPLACE_TEST_POSTGRES"
LEASE = "COMMONPLACE_TEST_LEASE"
"""For how many seconds the lock of a killed process stays held."""
TEMPLATE = "commonplace_template"
_ROLE = "commonplace"
_server: PostgresServer | None = None


def start(
    standby_of: PostgresServer | None = None, *, on_disk: bool = False, **settings: str
) -> PostgresServer:
    """A server of its own, or a standby, which ends with the run at the latest."""
    from postgres_server import PostgresServer

    # A sync costs nothing in memory, and nothing here survives the run.
    in_memory = Path("/dev/shm").is_dir() and not on_disk
    place = "/dev/shm" if in_memory else None
    folder = Path(tempfile.mkdtemp(prefix="commonplace-postgres-", dir=place))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    started = PostgresServer(folder, standby_of, **settings)
    atexit.register(started.stop)
    return started


def server() -> PostgresServer:
    """The server of this run, started on first use."""
    global _server
    if _server is None:
        from commonplace.storage.postgres import administration

        _server = start()
        (_server.folder / "databases").mkdir()
        os.environ[_FOLDER] = f"{_server.folder}|{_server.port}"
        _run("postgres", f"CREATE DATABASE {TEMPLATE}")
        administration.set_up(_admin(TEMPLATE), _ROLE, "secret")
    return _server


def _admin(database: str) -> str:
    folder, _, port = os.environ[_FOLDER].partition("|")
    return f"postgresql://admin@/{database}?host={folder}&port={port}"


def _run(database: str, *statements: str) -> None:
    import psycopg

    with psycopg.connect(_admin(database), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def _note(path: Path) -> Path:
    folder = os.environ[_FOLDER].partition("|")[0]
    return Path(folder, "databases", hashlib.sha256(os.fsencode(path)).hexdigest()[:32])


def address_for(path: Path) -> str:
    """The app's address of the database that belongs to a data directory, made if need be."""
    import fcntl

    if _FOLDER not in os.environ:
        server()
    note = _note(path)
    with (note.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes may begin with a directory at once
        if note.exists():
            name = note.read_text()
        else:
            name = _free.pop() if _free else f"test_{note.name}"
            if name == f"test_{note.name}":
                _run("postgres", f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
            note.write_text(name)
            _used[path] = name
    lease = f"&lease={os.environ[LEASE]}" if LEASE in os.environ else ""
    return _admin(name).replace("//admin@", f"//{_ROLE}@") + lease


_CONDITION = re.compile(r"\b(?:\w+\.)?space = (\$\d+)")


def without_space(statement: str) -> str:
    """A query for memories without its condition on the space, as if somebody had forgotten it."""
    if not statement.startswith("SELECT") or " FROM memories" not in statement:
        return statement
    return _CONDITION.sub(r"CAST(\1 AS TEXT) IS NOT NULL", statement)


def forget_space() -> None:
    """Strip every query for memories of its space: row-level security alone is left."""
    from commonplace.storage.postgres import rows

    written = rows.translated_statement
    rows.translated_statement = lambda statement: without_space(written(statement))  # type: ignore[assignment]


_of_files: list[tuple[ModuleType, str, Any]] = []
"""What `use` has replaced."""


def use_files(replace: Callable[[Any, str, Any], None]) -> None:
    """Let a data directory mean files again, for tests that have databases beside them."""
    for module, name, function in _of_files:
        replace(module, name, function)


def use(module: ModuleType) -> None:
    """Let a data directory mean the database that belongs to it, wherever a module opens one."""
    from commonplace.storage import opening

    patched: Any = module
    if module.__name__ == "commonplace.engine.library":
        _of_files.append((module, "default_database", patched.default_database))
        patched.default_database = lambda path: address_for(patched.directory(path))
    elif module.__name__ == "commonplace.server.serving":
        # A database has tokens and accounts from the beginning, so there is no file to look for.
        _of_files.append((module, "system_file", patched.system_file))
        patched.system_file = lambda data: Path(__file__) if address_for(data) else None
    elif module.__name__ == "commonplace.cli.options":
        given = patched.database_of
        _of_files.append((module, "database_of", given))
        patched.database_of = lambda data: given(data) or _default_database(data)
        # Servers of these tests are told a directory alone, so they are found by it.
        from commonplace.client import connection

        place_of: Any = connection.place_of

        def placed(data: str, database: str = "") -> Any:
            assigned = database and database == address_for(Path(data))
            return place_of(data, "" if assigned else database)

        _of_files.append((connection, "place_of", place_of))
        connection.place_of = placed
    else:
        of_files = patched.open_system
        _of_files.append((module, "open_system", of_files))
        patched.open_system = lambda data: (
            of_files(data)  # a copy that is being made or checked
            if patched.system_file(data).exists()
            else opening.open_system(data, address_for(data))
        )


def _default_database(data: Path | None) -> str | None:
    from commonplace.engine import library

    return library.default_database(data)


@dataclass(frozen=True)
class Place:
    """A space in a database."""

    address: str
    space: str

    def content(self, without: Sequence[str] = ()) -> dict[str, str]:
        """A digest of the space's rows in each table."""
        import psycopg

        found: dict[str, str] = {}
        with psycopg.connect(self.address) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT set_config('commonplace.space', %s, true)", (self.space,))
            names = connection.execute(
                "SELECT relname FROM pg_class"
                " WHERE relkind = 'r' AND relnamespace = 'commonplace'::regnamespace"
            ).fetchall()
            for (name,) in names:
                if name not in (*without, "spaces", "schema_version", "locks", "work_requests"):
                    rows = connection.execute(f'SELECT * FROM commonplace."{name}"').fetchall()
                    text = "\n".join(sorted(map(repr, rows)))
                    found[name] = hashlib.sha256(text.encode()).hexdigest()
        return found


_used: dict[Path, str] = {}
_free: list[str] = []
_EMPTY = """
DO $$ DECLARE t regclass; BEGIN
FOR t IN SELECT c.oid FROM pg_class c WHERE c.relkind = 'r'
  AND c.relnamespace IN ('commonplace'::regnamespace, 'commonplace_system'::regnamespace,
    'commonplace_workflows'::regnamespace)
  AND c.relname NOT IN ('schema_version', 'revision', 'dbos_migrations')
LOOP EXECUTE format('DELETE FROM %s', t); END LOOP; END $$
"""


def forget(under: Path) -> None:
    """Empty the databases of the data directories in a folder, for the tests to come."""
    for path in [path for path in _used if path.is_relative_to(under)]:
        name = _used.pop(path)
        _run(name, _EMPTY)
        _note(path).unlink()
        _free.append(name)
