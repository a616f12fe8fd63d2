"""Locks and work requests, as rows, for the servers that share one database.

A lock has a time limit and is renewed while its holder lives. A holder that was stopped for longer
may not notice that another server has the lock. So each holder gets a higher number, the fence, and
a unit of work under the lock checks it (`PostgresStore._check_unit`). All times are those of the
database's clock.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from commonplace.errors import CommonplaceError
from commonplace.storage.locking import Busy
from commonplace.storage.ports import Store, WorkRequest
from commonplace.storage.postgres.connections import Pool
from commonplace.storage.postgres.rows import PostgresRows
from commonplace.storage.postgres.schema import SPACES_PART, WORKFLOWS
from commonplace.storage.postgres.store import Fence, held_fences, transaction

RETRY_SECONDS = 0.2
RENEWALS = 3
"""How many times a lock is renewed before it would expire."""

_TAKE = """
INSERT INTO locks (name, holder, fence, until)
VALUES (?, ?, 1, clock_timestamp() + CAST(? AS DOUBLE PRECISION) * interval '1 second')
ON CONFLICT ON CONSTRAINT locks_pkey DO UPDATE
SET holder = excluded.holder, fence = locks.fence + 1, until = excluded.until
WHERE locks.until <= clock_timestamp() RETURNING fence
""".strip()
_RENEW = """
UPDATE locks SET until = clock_timestamp() + CAST(? AS DOUBLE PRECISION) * interval '1 second'
WHERE name = ? AND fence = ? RETURNING fence
""".strip()
# The fence grows, so that a concurrent renewal of the released lock finds no row.
_RELEASE = """
UPDATE locks SET until = clock_timestamp(), fence = fence + 1
WHERE name = ? AND fence = ? RETURNING fence
""".strip()
_REQUESTS = """
SELECT in_space, identity, turn,
  CAST(extract(epoch FROM clock_timestamp() - requested_at) AS DOUBLE PRECISION)
FROM work_requests ORDER BY requested_at, identity, turn
""".strip()

log = logging.getLogger(__name__)


class LockRow:
    """`ports.ProcessLock` as a row of a table."""

    def __init__(self, owner: RowCoordination, fence: Fence) -> None:
        self._owner = owner
        self.fence = fence
        self.is_held = True

    @contextlib.contextmanager
    def guard_writes(self) -> Iterator[None]:
        """Refuse this thread's writes in the block if another server has taken the lock."""
        before = held_fences.set((*held_fences.get(), self.fence))
        try:
            yield
        finally:
            held_fences.reset(before)

    def release(self) -> None:
        """Release the lock; if the database does not answer, the lock expires."""
        self._owner.release(self)


class RowCoordination:
    """`ports.Coordination` for a database."""

    work_expected = True

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._held: set[LockRow] = set()
        self._changed = threading.Condition()
        self._renewer: threading.Thread | None = None

    def _transaction(self) -> contextlib.AbstractContextManager[PostgresRows]:
        return transaction(self._pool, SPACES_PART, "", writes=True)

    def try_lock(self, name: str) -> LockRow | None:
        """Take a lock; return None if another server or call holds it."""
        with self._transaction() as rows:
            found = rows.execute(_TAKE, (name, str(uuid4()), self._pool.lease)).fetchone()
        if found is None:
            return None
        lock = LockRow(self, Fence(self._pool, name, int(found[0])))
        with self._changed:
            self._held.add(lock)
            if self._renewer is None:
                self._renewer = threading.Thread(
                    target=self._renew, name="commonplace-locks", daemon=True
                )
                self._renewer.start()
        return lock

    @contextlib.contextmanager
    def lock(self, name: str, seconds: float) -> Iterator[None]:
        """Hold a lock and guard the writes of the block; raise Busy if it is not free in time."""
        until = time.monotonic() + seconds
        while (lock := self.try_lock(name)) is None:
            if time.monotonic() >= until:
                raise Busy(
                    "Another call or server is running the same task now.", hint="Try again later."
                )
            time.sleep(RETRY_SECONDS)
        try:
            with lock.guard_writes():
                yield
        finally:
            lock.release()

    def release(self, lock: LockRow) -> None:
        """Release a lock."""
        with self._changed:
            self._held.discard(lock)
            self._changed.notify()
        with contextlib.suppress(CommonplaceError), self._transaction() as rows:
            rows.execute(_RELEASE, lock.fence[1:])

    def close(self) -> None:
        """Release all locks."""
        for lock in list(self._held):
            self.release(lock)

    def _renew(self) -> None:
        """Renew the held locks, until none is held."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._held, self._pool.lease / RENEWALS)
                if not self._held:
                    self._renewer = None
                    return
                held = list(self._held)
            for lock in held:
                self._renew_one(lock)

    def _renew_one(self, lock: LockRow) -> None:
        try:
            with self._transaction() as rows:
                lease = (self._pool.lease, *lock.fence[1:])
                lock.is_held = rows.execute(_RENEW, lease).fetchone() is not None
        except CommonplaceError as error:
            log.warning("a lock was not renewed", extra={"why": error.message})
        if not lock.is_held:
            with self._changed:
                self._held.discard(lock)

    def expect_work(self) -> None:
        """Do nothing: the lock holder looks for requests in any case."""

    def request(self, store: Store, identity: str, turn: int) -> None:
        """Store a request in the open unit of the store."""
        with store.maintain() as rows:
            rows.execute(
                "INSERT INTO work_requests (in_space, identity, turn, requested_at)"
                " VALUES (?, ?, ?, clock_timestamp()) ON CONFLICT DO NOTHING",
                (store.space, identity, turn),
            )

    def requests(self) -> list[WorkRequest]:
        """Return all requests, oldest first."""
        with transaction(self._pool, SPACES_PART, "") as rows:
            return [WorkRequest(*row) for row in rows.execute(_REQUESTS)]

    def forget_request(self, request: WorkRequest) -> None:
        """Remove a request."""
        with self._transaction() as rows:
            rows.execute(
                "DELETE FROM work_requests WHERE in_space = ? AND identity = ? AND turn = ?",
                request[:3],
            )

    def dbos_settings(self) -> dict[str, Any]:
        """Return settings that give DBOS its own schema.

        DBOS polls, because PgBouncer does not pass notifications on.
        """
        import sqlalchemy

        engine = sqlalchemy.create_engine(
            "postgresql+psycopg://", creator=self._pool.connect_plainly, pool_pre_ping=True
        )
        return {
            "system_database_engine": engine,
            "dbos_system_schema": WORKFLOWS,
            "use_listen_notify": False,
        }

    def replace_damaged_dbos(self) -> bool:
        """Return False: the database protects its own tables."""
        return False
