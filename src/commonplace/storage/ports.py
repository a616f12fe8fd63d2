"""The interfaces of the storage, which each database engine implements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from commonplace.storage.derived import DerivedData, Model
    from commonplace.storage.reports import (
        BackupReport,
        Diagnosis,
        Progress,
        Repair,
        RestoreReport,
        Salvage,
    )
    from commonplace.storage.tables import Row
    from commonplace.storage.writing import Unit

T = TypeVar("T")


class Rows(Protocol):
    """A connection inside a snapshot or a unit of work.

    Only `storage/` calls its methods. Other code passes the connection to functions of `storage/`,
    so that several of them run in one transaction.
    """

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open; after some errors, the engine has ended it itself."""

    def execute(self, statements: str, bindings: Any = None, /) -> Any:
        """Run a statement; the result can be iterated, and has `fetchone` and `fetchall`."""

    def executemany(self, statements: str, sequenceofbindings: Iterable[Any], /) -> Any:
        """Run a statement once for each set of bindings."""

    def select_each(
        self, statement: str, column: str, space: str, values: Sequence[int], /
    ) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a space whose column has one of these numbers, in their order.

        The statement ends with its WHERE clause, and its only placeholder is for the space.
        """

    def stream(self, statement: str, bindings: Sequence[Any], /) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a query one by one, without holding a large result in memory."""

    def columns(self, table: str, /) -> set[str]:
        """Return the names of a table's columns."""

    @property
    def grams_indexed(self) -> bool:
        """Whether an index finds memories by trigrams, without reading all texts."""

    def add_grams(self, space: str, texts: Iterable[tuple[int, str]], /) -> None:
        """Store the folded texts of memories, by number, for substring search."""

    def drop_grams(self, space: str, memory: int, /) -> None:
        """Remove a memory's text from substring search."""

    def memories_with_grams(
        self, space: str, grams: Sequence[str], most: int | None, /
    ) -> list[int]:
        """Return the numbers of at most `most` memories that contain all these trigrams."""


class SweepResult(NamedTuple):
    """The result of a search for deleted bytes."""

    files: tuple[str, ...]
    scanned: int
    traces: int | None
    """The number of searched byte strings that are in the files, but in no remaining row;
    None if unknown, because the files belong to a database server.
    """
    copies: tuple[str, ...]
    """Copies left by a restore or a migration, which may still contain the bytes."""


class Store(Protocol):
    """The rows of one space, or of the system. Thread-safe."""

    @property
    def path(self) -> Path:
        """The file of the space, or the path that it would have; other files are beside it."""

    @property
    def space(self) -> str:
        """The name of the space."""

    @property
    def read_only(self) -> bool:
        """Whether the store is read-only."""

    @property
    def open_unit(self) -> Unit | None:
        """The unit in which this thread has begun to write; None if no unit is open."""

    @property
    def in_unit(self) -> bool:
        """Whether this thread is in a unit of work, also before its first write."""

    def read(self) -> AbstractContextManager[Rows]:
        """Return a consistent snapshot; inside an open unit, that unit's own view."""

    def unit(self, name: str, origin: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Make all writes of the block one unit of work; nested blocks join it."""

    def after_commit(self, act: Callable[[], None]) -> None:
        """Call a function after the commit of this thread's `unit` block, or now without a block.

        If the block fails, the function is not called.
        """

    def write(
        self, name: str, origin: Mapping[str, Any], undoes: int | None = None
    ) -> AbstractContextManager[Unit]:
        """Return the unit of work to write with: a new one, or a savepoint in the open one."""

    def maintain(self, *, durable: bool = True) -> AbstractContextManager[Rows]:
        """Open a write that is not part of the history: counters, the outbox, indexes.

        Unless `durable` is true, the write is not synced, and a power cut may undo it as a whole.
        """

    def next_change(self) -> int:
        """Count a change of vectors, inside `maintain`; return its number (`head.derived`)."""

    def with_reserve(self, work: Callable[[], T]) -> T:
        """Call `work`, which must succeed even on a full disk, with reserved disk space.

        `work` may be called several times, and must have no effect when it raises StorageFull.
        """

    def watch(self) -> Watch:
        """Return an object that reports changes."""

    def sweep(self, windows: Set[bytes]) -> SweepResult:
        """Search the files for bytes that must have been deleted."""

    def close(self) -> None:
        """Wait for running units of work, and close the store."""


class LeasedSpace(Protocol):
    """An open space, as maintenance uses it."""

    @property
    def store(self) -> Store:
        """The store of the space."""

    def write_reads(self) -> None:
        """Write the read counts that are held in memory."""

    def forget_index(self) -> None:
        """Discard the in-memory index; the next read loads it again."""


class Contents(Protocol):
    """The interface that maintenance requires of the engine: spaces, and derivation of rows."""

    @property
    def path(self) -> Path:
        """The data directory."""

    @property
    def embedder(self) -> Model | None:
        """The embedding model in use."""

    def spaces(self) -> list[str]:
        """Return the names of all spaces."""

    def file(self, space: str) -> Path:
        """Return the file of a space; raise InvalidInput if the name is invalid."""

    def lease(self, space: str) -> AbstractContextManager[LeasedSpace]:
        """Open the space, and keep it open during the block."""

    def drop(self, space: str) -> None:
        """Close a space, so that its file can be replaced."""

    def derive(self, row: Row, speaker: str) -> DerivedData:
        """Return the derived data of a memory, computed from its row."""


class Maintenance(Protocol):
    """Backup, restore, check, repair and salvage."""

    def backup(
        self,
        target: Path,
        *,
        spaces: Sequence[str] | None = None,
        system: bool | None = None,
        progress: Progress | None = None,
    ) -> BackupReport:
        """Copy spaces into a new directory, while others write.

        `system` includes the data that belong to no space; the default is to include them if no
        spaces are named.
        """

    def restore(
        self,
        source: Path,
        *,
        spaces: Sequence[str] | None = None,
        into: str | None = None,
        overwrite: bool | Literal["empty"] = False,
        system: bool | None = None,
        progress: Progress | None = None,
    ) -> RestoreReport:
        """Restore a backup, completely or not at all.

        With `overwrite`, what exists is replaced; with "empty", only if it has no rows. A file that
        is replaced is kept under another name, so there "empty" means the same as True.
        """

    def check(self, space: str, *, progress: Progress | None = None) -> Diagnosis:
        """Check all data of a space without changing anything."""

    def check_shared_files(self) -> list[Diagnosis]:
        """Check the files that belong to no space."""

    def repair(self, space: str, *, progress: Progress | None = None) -> Repair:
        """Rebuild derived rows that do not match their memory."""

    def salvage(self, space: str, target: Path, *, progress: Progress | None = None) -> Salvage:
        """Write all intact rows of a damaged space into a new file."""


class Watch(Protocol):
    """Reports whether any process has changed anything."""

    def version(self) -> tuple[int, int]:
        """Return a value that differs after every commit that changed content."""

    def close(self) -> None:
        """Close the connection; the next call opens it again."""


class ProcessLock(Protocol):
    """A lock held by this process that excludes all other processes of an installation."""

    @property
    def is_held(self) -> bool:
        """Whether this process holds the lock; False once another is known to have taken it."""

    def guard_writes(self) -> AbstractContextManager[None]:
        """Refuse writes of this thread in the block if another process has taken the lock.

        A refused unit of work raises `locking.LockLost`.
        """

    def release(self) -> None:
        """Release the lock."""


class WorkRequest(NamedTuple):
    """A request for durable background work (`platform/durable.py`)."""

    space: str
    identity: str
    turn: int
    age: float
    """Seconds since the request was made."""


class Coordination(Protocol):
    """Locks and work requests that the processes of an installation share."""

    def try_lock(self, name: str) -> ProcessLock | None:
        """Take a lock; return None if another process or call holds it."""

    def lock(self, name: str, seconds: float) -> AbstractContextManager[None]:
        """Hold a lock and guard the writes of the block; raise `locking.Busy` if it stays taken."""

    @property
    def work_expected(self) -> bool:
        """Whether the process that holds the work lock must look for requests."""

    def expect_work(self) -> None:
        """Make processes look for requests from now on."""

    def request(self, store: Store, identity: str, turn: int) -> None:
        """Request work for a space; the request is durable when the store's open unit is."""

    def requests(self) -> list[WorkRequest]:
        """Return all requests, oldest first."""

    def forget_request(self, request: WorkRequest) -> None:
        """Remove a request that was carried out or is void."""

    def dbos_settings(self) -> dict[str, Any]:
        """Return the settings of DBOS that say where it stores its tables."""

    def replace_damaged_dbos(self) -> bool:
        """Move the tables of DBOS aside if they are damaged; return whether they were damaged."""


class Spaces(Protocol):
    """All spaces of an installation, by name. Callers validate the names."""

    @property
    def read_only(self) -> bool:
        """Whether the spaces are read-only."""

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings about the configuration of the storage, which the server logs at its start."""

    def names(self) -> list[str]:
        """Return the names of all spaces."""

    def file(self, name: str) -> Path:
        """Return the file of a space."""

    def exists(self, name: str) -> bool:
        """Return whether the space exists."""

    def size(self, name: str) -> int:
        """Return the size of a space in bytes."""

    def open(self, name: str) -> Store:
        """Return the store of a space; create the space if it does not exist."""

    def remove(self, name: str) -> None:
        """Delete a space that no process uses, with all its content."""

    def watch(self, name: str) -> Watch:
        """Return an object that reports changes in a space."""

    def maintenance(self, contents: Contents) -> Maintenance:
        """Return the object for backups, checks and repair."""

    @property
    def coordination(self) -> Coordination:
        """Locks and work requests that all processes share."""

    def close(self) -> None:
        """Close the resources that all spaces share."""
