"""The interface of the storage, for any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from commonplace.storage.derived import Findable, Model
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

    Only `storage/` calls its methods. Elsewhere it is passed on to functions of `storage/`, so that
    several of them run in one transaction.
    """

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open; an engine ends it itself when it is damaged."""

    def execute(self, statements: str, bindings: Any = None, /) -> Any:
        """Run a statement; the result can be iterated, and has `fetchone` and `fetchall`."""

    def executemany(self, statements: str, sequenceofbindings: Iterable[Any], /) -> Any:
        """Run a statement once for each set of bindings."""

    def select_each(
        self, statement: str, column: str, space: str, values: Sequence[int], /
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of a space that have one of some numbers in a column, in their order.

        The statement ends with its WHERE clause, and its only placeholder is for the space.
        """

    def stream(self, statement: str, bindings: Sequence[Any], /) -> Iterator[tuple[Any, ...]]:
        """The rows of a query with a large result, which is never held in memory as a whole."""

    def columns(self, table: str, /) -> set[str]:
        """The names of a table's columns."""

    @property
    def grams_indexed(self) -> bool:
        """Whether memories are found by trigrams without looking through all texts."""

    def add_grams(self, space: str, texts: Iterable[tuple[int, str]], /) -> None:
        """Store the folded texts of memories, by number, for substring search."""

    def drop_grams(self, space: str, memory: int, /) -> None:
        """Remove a memory's text from substring search."""

    def memories_with_grams(
        self, space: str, grams: Sequence[str], most: int | None, /
    ) -> list[int]:
        """Numbers of at most `most` memories whose text contains all of these trigrams."""


class Swept(NamedTuple):
    """The result of a search for deleted bytes."""

    files: tuple[str, ...]
    scanned: int
    traces: int | None
    """How many of the searched byte strings are still in the files, though no remaining row has
    them; None if unknown, since the files belong to a database server.
    """
    copies: tuple[str, ...]
    """Copies that a restore or a migration left next to the file, which may still contain them."""


class Store(Protocol):
    """The rows of one space, or of the system. Thread-safe."""

    @property
    def path(self) -> Path:
        """The file; other files of the space are next to it."""

    @property
    def space(self) -> str:
        """The name of the space."""

    @property
    def read_only(self) -> bool:
        """Whether it can only be read."""

    @property
    def open_unit(self) -> Unit | None:
        """The unit in which this thread has begun to write, if it is still open."""

    def read(self) -> AbstractContextManager[Rows]:
        """A consistent snapshot; inside an open unit, that unit's own view."""

    def unit(self, name: str, origin: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Make all writes of the block one unit of work; nested blocks join it."""

    def after_commit(self, act: Callable[[], None]) -> None:
        """Call a function once this thread's open unit is stored; at once without a unit.

        If the unit fails, the function is not called.
        """

    def write(
        self, name: str, origin: Mapping[str, Any], undoes: int | None = None
    ) -> AbstractContextManager[Unit]:
        """The unit of work to write with: a new one, or a savepoint in the open one."""

    def maintain(self, *, durable: bool = True) -> AbstractContextManager[Rows]:
        """A write that is not part of the history: counters, the outbox, indexes.

        Unless it is durable, it costs no sync of its own, and a power cut may undo it as a whole.
        """

    def next_change(self) -> int:
        """Count a change of vectors, inside `maintain`; returns its number (`head.derived`)."""

    def with_reserve(self, work: Callable[[], T]) -> T:
        """Call `work`, which must succeed even on a full disk, with reserved disk space. It may be
        called several times, and must have no effect when it raises StorageFull.
        """

    def watch(self) -> Watch:
        """A watch for changes."""

    def sweep(self, windows: Set[bytes]) -> Swept:
        """Search the files for bytes that must have been deleted."""

    def close(self) -> None:
        """Wait for running units of work, and close it."""


class Leased(Protocol):
    """An open space."""

    @property
    def store(self) -> Store:
        """The store of the space."""

    def write_reads(self) -> None:
        """Write the access counters that are kept in memory."""

    def forget_index(self) -> None:
        """Discard the index in memory; the next read loads it."""


class Contents(Protocol):
    """What maintenance needs of the engine: where spaces are, and how rows are derived."""

    @property
    def path(self) -> Path:
        """The data directory."""

    @property
    def embedder(self) -> Model | None:
        """The embedding model in use."""

    def spaces(self) -> list[str]:
        """The names of all spaces."""

    def file(self, space: str) -> Path:
        """A space's file; InvalidInput if the name is invalid."""

    def lease(self, space: str) -> AbstractContextManager[Leased]:
        """The open space; it is not closed while the block runs."""

    def drop(self, space: str) -> None:
        """Close a space, so that its file can be replaced."""

    def derive(self, row: Row, speaker: str) -> Findable:
        """The derived data of a memory, computed from its row."""


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

        What belongs to no space is copied with `system`; by default, if no spaces are named.
        """

    def restore(
        self,
        source: Path,
        *,
        spaces: Sequence[str] | None = None,
        into: str | None = None,
        overwrite: bool = False,
        system: bool | None = None,
        progress: Progress | None = None,
    ) -> RestoreReport:
        """Restore a backup, completely or not at all."""

    def check(self, space: str, *, progress: Progress | None = None) -> Diagnosis:
        """Check all data of a space; nothing is changed."""

    def check_shared_files(self) -> list[Diagnosis]:
        """Check the files that belong to no space."""

    def repair(self, space: str, *, progress: Progress | None = None) -> Repair:
        """Rebuild derived rows that do not match their memory."""

    def salvage(self, space: str, target: Path, *, progress: Progress | None = None) -> Salvage:
        """Write all intact rows of a damaged space into a new file."""


class Watch(Protocol):
    """Tells whether any process has changed anything."""

    def version(self) -> tuple[int, int]:
        """A value that differs after every commit."""

    def close(self) -> None:
        """Close the connection; the next call opens it again."""


class ProcessLock(Protocol):
    """A lock that this process holds; it excludes all processes of an installation."""

    @property
    def is_held(self) -> bool:
        """False once another process is known to have taken the lock."""

    def guard_writes(self) -> AbstractContextManager[None]:
        """Refuse this thread's writes in the block once another process has the lock.

        A refused unit of work raises `locking.LockLost`.
        """

    def release(self) -> None:
        """Let others have the lock."""


class WorkRequest(NamedTuple):
    """A request for work in steps (`platform/durable.py`)."""

    space: str
    identity: str
    turn: int
    age: float
    """Seconds since it was made."""


class Coordination(Protocol):
    """How the processes of an installation agree on who does what."""

    def try_lock(self, name: str) -> ProcessLock | None:
        """Take a lock; None if another process, or another call, holds it."""

    def lock(self, name: str, seconds: float) -> AbstractContextManager[None]:
        """Hold a lock, and guard the writes of the block; `locking.Busy` if it stays taken."""

    @property
    def work_expected(self) -> bool:
        """Whether the process that holds the lock for work must look for requests."""

    def expect_work(self) -> None:
        """Make processes look for requests from now on."""

    def request(self, store: Store, identity: str, turn: int) -> None:
        """Request work of a space; it is durable once the store's open unit is."""

    def requests(self) -> list[WorkRequest]:
        """All requests, oldest first."""

    def forget_request(self, request: WorkRequest) -> None:
        """Remove a request that was carried out or is void."""

    def dbos_settings(self) -> dict[str, Any]:
        """Where DBOS keeps its tables, as settings of DBOS."""

    def replace_damaged_dbos(self) -> bool:
        """Put the tables of DBOS aside if they are damaged; return whether they were."""


class Spaces(Protocol):
    """All spaces of an installation, by name. Callers validate names."""

    @property
    def read_only(self) -> bool:
        """Whether the spaces can only be read."""

    @property
    def warnings(self) -> Sequence[str]:
        """What an operator should know of where the rows are kept."""

    def names(self) -> list[str]:
        """The names of all spaces."""

    def file(self, name: str) -> Path:
        """The file of a space."""

    def exists(self, name: str) -> bool:
        """Whether there is such a space."""

    def size(self, name: str) -> int:
        """How many bytes a space takes."""

    def open(self, name: str) -> Store:
        """The store of a space, which is created if it does not exist."""

    def remove(self, name: str) -> None:
        """Delete a space that no process uses, with all that it holds."""

    def watch(self, name: str) -> Watch:
        """A watch for changes in a space."""

    def maintenance(self, contents: Contents) -> Maintenance:
        """Backups, checks and repair."""

    @property
    def coordination(self) -> Coordination:
        """Locks and requests for work that all processes share."""

    def close(self) -> None:
        """Close what all spaces share."""
