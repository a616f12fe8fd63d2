"""Connections to PostgreSQL: one pool for each URL, shared by all spaces of a process.

A connection is used only inside a transaction that `Rows` begins, and no setting is made for the
session, because PgBouncer may use another connection for each transaction.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any
from urllib.parse import unquote

import psycopg
from psycopg import conninfo, generators
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import TransactionStatus
from psycopg.raw_cursor import RawCursor
from psycopg.types.numeric import NumericBinaryLoader
from psycopg.types.string import StrDumperUnknown

from commonplace.errors import InvalidInput, StorageUnavailable
from commonplace.storage.opening import is_database_url
from commonplace.storage.postgres.errors import unreachable_error

MOST_CONNECTIONS = 16
"""The most connections of one process; a thread that already has one may exceed it."""
WAIT_SECONDS = 30.0
CONNECT_SECONDS = 10
# A host that stops answering is noticed within half a minute, unless the URL sets other values.
KEEPALIVE = {
    "connect_timeout": CONNECT_SECONDS, "keepalives_idle": 10, "keepalives_interval": 5,
    "keepalives_count": 4, "tcp_user_timeout": 30_000,
}  # fmt: skip
_OPTIONS = {"pool": str(MOST_CONNECTIONS), "prepare": "on", "lease": "30"}
"""Options in a URL that are not passed to libpq, with their defaults."""

Connection = psycopg.Connection[tuple[Any, ...]]


class _Number(Dumper):
    """Sends a number as untyped text, so that one query plan serves small and large numbers."""

    oid = 0

    def dump(self, obj: Any) -> Buffer | None:
        return b"%d" % obj


class _Float(Dumper):
    oid = 0

    def dump(self, obj: Any) -> Buffer | None:
        return float.__repr__(obj).encode()


class _IntegerSum(NumericBinaryLoader):
    """Loads a sum of integers, which PostgreSQL returns as `numeric`, as an int."""

    def load(self, data: Buffer) -> Any:
        value = super().load(data)
        return int(value) if value == value.to_integral_value() else float(value)


def _register_types(connection: Connection) -> None:
    adapters = connection.adapters
    for kind in (int, bool):
        adapters.register_dumper(kind, _Number)
    adapters.register_dumper(float, _Float)
    adapters.register_dumper(str, StrDumperUnknown)
    adapters.register_loader("numeric", _IntegerSum)


def _split_url(address: str) -> tuple[str, dict[str, str]]:
    """Return the URL for libpq, and the options in it that are not for libpq."""
    # What is for libpq stays as it is written. The functions of urllib write some addresses in
    # other words: without the slashes of an address that names no host, and with "+" for a blank.
    place, _, query = address.partition("?")
    options = dict(_OPTIONS)
    kept = []
    for parameter in filter(None, query.split("&")):
        name, _, value = parameter.partition("=")
        if name in options:
            options[name] = unquote(value)
        else:
            kept.append(parameter)
    if not options["pool"].isdigit() or not 1 <= int(options["pool"]) <= 1_000:
        raise InvalidInput(
            "pool must be a number from 1 to 1000.",
            hint="Leave out the option to use the default.",
            field="pool",
        )
    if not options["lease"].isdigit() or not 1 <= int(options["lease"]) <= 3_600:
        raise InvalidInput(
            "lease must be a number of seconds from 1 to 3600.",
            hint="Leave out the option to use the default.",
            field="lease",
        )
    if options["prepare"] not in ("on", "off"):
        raise InvalidInput(
            "prepare must be on or off.",
            hint="Leave out the option to use the default.",
            field="prepare",
        )
    return f"{place}?{'&'.join(kept)}" if kept else place, options


class Pool:
    """The open connections to one URL. Threads share the pool."""

    def __init__(self, address: str) -> None:
        if not is_database_url(address):
            raise InvalidInput(
                "The URL of a database must begin with postgresql://.",
                hint="Use a URL such as postgresql://commonplace@db.example.com/commonplace.",
                field="database",
            )
        self._given = address
        self._users = 1
        try:
            self.address, options = _split_url(address)
            known = conninfo.conninfo_to_dict(self.address)
        except (psycopg.Error, ValueError) as error:
            raise InvalidInput(
                "This is not the URL of a PostgreSQL database.",
                hint="Use a URL such as postgresql://commonplace@db.example.com/commonplace.",
                field="database",
            ) from error
        self.where = f"{known.get('host') or 'this machine'}, database {known.get('dbname') or ''}"
        """The server and the database, without user or password."""
        self._reached = False
        self._prepare = 5 if options["prepare"] == "on" else None
        self._most = int(options["pool"])
        self.lease = int(options["lease"])
        """The seconds after which a lock between servers expires unless it is renewed."""
        self._idle: list[Connection] = []
        self._changed = threading.Condition()
        self._open = 0
        self._held = threading.local()
        self._closed = False

    def take(self) -> Connection:
        """Return a connection outside of any transaction. The caller must return it with
        `give_back`.
        """
        until = time.monotonic() + WAIT_SECONDS
        held = getattr(self._held, "count", 0)
        with self._changed:
            while True:
                if self._closed:
                    raise StorageUnavailable("The store is closed.", hint="Open it again.")
                if self._idle:
                    connection: Connection | None = self._idle.pop()
                    break
                # A thread that already holds a connection must not wait: that could deadlock.
                if self._open < self._most or held:
                    self._open += 1
                    connection = None
                    break
                if not self._changed.wait(until - time.monotonic()):
                    raise StorageUnavailable(
                        f"All {self._most} connections to the database have been in use for over"
                        f" {WAIT_SECONDS:.0f} seconds.",
                        hint="Try again, or raise the limit with pool=… in the URL.",
                    )
        if connection is not None:
            _read_answer(connection)
        else:
            try:
                connection = self._connect()
            except BaseException:
                with self._changed:
                    self._open -= 1
                    self._changed.notify()
                raise
        self._held.count = held + 1
        return connection

    def give_back(self, connection: Connection, *, sound: bool = True, ending: bytes = b"") -> None:
        """Return a connection to the pool; a connection that is not `sound` is closed.

        `ending` is the command that ends its transaction. It is sent without waiting; the next user
        of the connection waits for the answer.
        """
        self._held.count = getattr(self._held, "count", 1) - 1
        if ending:
            sound = _send(connection, ending)
        else:
            sound = sound and connection.pgconn.transaction_status == TransactionStatus.IDLE
        with self._changed:
            keep = sound and not self._closed and self._open <= self._most
            if keep:
                self._idle.append(connection)
            else:
                self._open -= 1
            self._changed.notify()
        if not keep:
            _close(connection)

    def _connect(self) -> Connection:
        try:
            connection: Connection = psycopg.Connection.connect(
                self.address,
                autocommit=True,
                prepare_threshold=self._prepare,
                client_encoding="UTF8",
                application_name="commonplace",
                cursor_factory=RawCursor,
                **self._keepalive,
            )
        except psycopg.Error as error:
            # Name the database only to the caller that opens the pool; later callers may be remote
            # clients.
            raise unreachable_error(error, "" if self._reached else self.where) from error
        self._reached = True
        _register_types(connection)
        return connection

    @property
    def _keepalive(self) -> dict[str, Any]:
        return {name: value for name, value in KEEPALIVE.items() if name not in self.address}

    def connect_plainly(self) -> Connection:
        """Return a new connection outside the pool, with the defaults of psycopg."""
        return psycopg.connect(
            self.address,
            prepare_threshold=self._prepare,
            application_name="commonplace workflows",
            **self._keepalive,
        )

    def replace(self, connection: Connection) -> Connection:
        """Return a new connection in place of a dead one."""
        _close(connection)
        return self._connect()

    def close(self) -> None:
        """Close the pool when its last user closes it; busy connections close when returned."""
        with _LOCK:
            self._users -= 1
            if self._users > 0:
                return
            if _SHARED.get(self._given) is self:
                del _SHARED[self._given]
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._open -= len(idle)
            self._changed.notify_all()
        for connection in idle:
            _close(connection)


def _send(connection: Connection, command: bytes) -> bool:
    """Send a command without waiting for its answer; return whether it was sent."""
    try:
        connection.pgconn.send_query(command)
        while connection.pgconn.flush():
            pass
    except psycopg.Error:
        return False
    return True


def _read_answer(connection: Connection) -> None:
    """Read the answer to the last command; a dead connection is noticed at its next use."""
    with contextlib.suppress(psycopg.Error):
        connection.wait(generators.fetch_many(connection.pgconn))


_LOCK = threading.Lock()
_SHARED: dict[str, Pool] = {}


def shared_pool(address: str) -> Pool:
    """Return this process's pool for a URL; each caller must close it once."""
    with _LOCK:
        pool = _SHARED.get(address)
        if pool is None:
            pool = _SHARED[address] = Pool(address)
        else:
            pool._users += 1
        return pool


def _close(connection: Connection) -> None:
    with contextlib.suppress(psycopg.Error):
        connection.close()
