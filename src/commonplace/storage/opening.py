"""Open the storage: the files of a data directory, or a PostgreSQL database."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any, TypeGuard
from urllib.parse import parse_qsl, urlsplit

from commonplace.errors import StorageUnavailable
from commonplace.storage.ports import Spaces, Store

VARIABLE = "COMMONPLACE_DATABASE"
SCHEMES = ("postgresql://", "postgres://")


def is_database_url(value: object) -> TypeGuard[str]:
    """Return whether a value is the URL of a database, not a path."""
    return isinstance(value, str) and value.startswith(SCHEMES)


def server_and_database(address: str) -> str:
    """Return the server and the database of a database URL, without user and password."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2] or dict(parse_qsl(parts.query)).get("host", "localhost")
    return f"PostgreSQL at {host}, database {parts.path.strip('/') or '(default)'}"


def default_database() -> str | None:
    """Return the URL of the default database, or None."""
    return os.environ.get(VARIABLE) or None


def administration() -> Any:
    """Return the module that creates and migrates databases."""
    return _import_postgres("administration")


def _import_postgres(module: str) -> Any:
    try:
        return importlib.import_module(f"commonplace.storage.postgres.{module}")
    except ImportError as error:
        # If its C library is missing, psycopg raises an ImportError without a name.
        if (error.name or "psycopg").partition(".")[0] != "psycopg":
            raise
        from commonplace import DISTRIBUTION

        raise StorageUnavailable(
            "The driver for PostgreSQL is missing or incomplete.",
            hint=f"Install it: pip install '{DISTRIBUTION}[postgres]'.",
        ) from error


def open_spaces(data: Path, database: str | None) -> Spaces:
    """Return all spaces of a data directory, or of a database."""
    if database is not None:
        found: Spaces = _import_postgres("spaces").PostgresSpaces(data, database)
        return found
    from commonplace.storage.sqlite.spaces import SqliteSpaces

    return SqliteSpaces(data)


def open_system(data: Path, database: str | None) -> Store:
    """Open the system store: accounts, credentials, and calls that reached no space."""
    if database is not None:
        found: Store = _import_postgres("spaces").open_system(data, database)
        return found
    from commonplace.storage import system

    return system.open_system(data)
