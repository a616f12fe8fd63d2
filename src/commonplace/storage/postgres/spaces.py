"""The spaces of a PostgreSQL database, and the system tables."""

from __future__ import annotations

from pathlib import Path

from commonplace.errors import StorageUnavailable
from commonplace.storage.directories import make_private
from commonplace.storage.ports import Contents, Maintenance
from commonplace.storage.postgres import administration
from commonplace.storage.postgres.connections import shared_pool
from commonplace.storage.postgres.coordination import RowCoordination
from commonplace.storage.postgres.schema import SPACES_PART, SYSTEM_PART
from commonplace.storage.postgres.store import PostgresStore, Watch, create_space, transaction
from commonplace.storage.sqlite.spaces import unusable_error
from commonplace.storage.system import NAME, system_file
from commonplace.storage.tables import VERSIONED

TRUSTED_SECONDS = 5
"""The most seconds for which cached rows of the system tables may be used."""
_COUNTED_TABLES = (
    *(table.name for table in VERSIONED),
    "versions",
    "events",
    "lexemes",
    "passages",
)


def _make_private(data: Path) -> None:
    try:
        make_private(data)
    except OSError as error:
        raise unusable_error(data, error.strerror) from error


class SystemStore(PostgresStore):
    """The system tables, which belong to no space. The store holds the pool while it is open."""

    def watch(self) -> Watch:
        """Return an object that reports changes of the system tables.

        Its version also changes with time: a failover may lose commits and reuse their numbers, and
        a revocation under a reused number must still be noticed.
        """
        statement = (
            "SELECT number, CAST(floor(extract(epoch FROM clock_timestamp())"  # noqa: S608
            f" / {TRUSTED_SECONDS}) AS BIGINT)"
            " FROM revision WHERE CAST(? AS TEXT) IS NOT NULL"
        )
        return Watch(self._pool, self._part, self.space, statement)

    def close(self) -> None:
        """Wait for running units of work, and release the pool."""
        if not self._closed:
            super().close()
            self._pool.close()


def open_system(data: Path, address: str) -> SystemStore:
    """Open the system tables; local files are in the data directory."""
    _make_private(data)
    pool = shared_pool(address)
    try:
        administration.refuse_unfit(pool)
        return SystemStore(pool, SYSTEM_PART, NAME, system_file(data))
    except BaseException:
        pool.close()
        raise


class PostgresSpaces:
    """`ports.Spaces` for a database. Callers validate the names."""

    read_only = False

    def __init__(self, data: Path, address: str) -> None:
        self._data = data
        _make_private(data)
        self._pool = shared_pool(address)
        self.coordination = RowCoordination(self._pool)
        try:
            warned = administration.refuse_unfit(self._pool)
            self.warnings = tuple(f"{each.message} {each.hint}" for each in warned)
        except BaseException:
            self._pool.close()
            raise

    def names(self) -> list[str]:
        """Return the names of all spaces."""
        with transaction(self._pool, SPACES_PART, "") as rows:
            return [row[0] for row in rows.execute("SELECT name FROM spaces ORDER BY name")]

    def file(self, name: str) -> Path:  # noqa: ARG002
        """Raise StorageUnavailable: a space in PostgreSQL is not a file."""
        raise StorageUnavailable(
            "A space in PostgreSQL is not a file.", hint="Use the tools of the database."
        )

    def exists(self, name: str) -> bool:
        """Return whether the space exists."""
        with transaction(self._pool, SPACES_PART, name) as rows:
            found = rows.execute("SELECT 1 FROM spaces WHERE name = ?", (name,)).fetchone()
        return found is not None

    def size(self, name: str) -> int:
        """Return the size of a space's rows in bytes, without indexes."""
        sums = " + ".join(
            f"(SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM {table} t WHERE t.space = ?1)"  # noqa: S608
            for table in _COUNTED_TABLES
        )
        with transaction(self._pool, SPACES_PART, name) as rows:
            found = rows.execute(f"SELECT {sums}", (name,)).fetchone()
        return int(found[0]) if found else 0

    def open(self, name: str) -> PostgresStore:
        """Return the store of a space; create the space if it does not exist."""
        if not self.exists(name):
            with transaction(self._pool, SPACES_PART, name, writes=True) as rows:
                create_space(rows, name)
        return PostgresStore(self._pool, SPACES_PART, name, self._data / "spaces" / f"{name}.db")

    def remove(self, name: str) -> None:
        """Delete a space and all its content."""
        with transaction(self._pool, SPACES_PART, name, writes=True) as rows:
            rows.lock(SPACES_PART.lock, name)
            tables = rows.execute(
                "SELECT table_name FROM information_schema.columns"
                " WHERE table_schema = current_schema() AND column_name = 'space'"
            ).fetchall()
            for (table,) in tables:
                rows.execute(f"DELETE FROM {table} WHERE space = ?", (name,))  # noqa: S608
            rows.execute("DELETE FROM spaces WHERE name = ?", (name,))

    def watch(self, name: str) -> Watch:
        """Return an object that reports new operations in a space."""
        return PostgresStore(self._pool, SPACES_PART, name, self._data).watch()

    def maintenance(self, contents: Contents) -> Maintenance:
        """Return the object for backups and checks."""
        # imported here because it is rarely used
        from commonplace.storage.postgres.maintenance import PostgresMaintenance

        return PostgresMaintenance(self._pool, self.names, contents)

    def close(self) -> None:
        """Release the locks and the pool."""
        self.coordination.close()
        self._pool.close()
