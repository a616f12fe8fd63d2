"""What the rest of the program may know of the storage, whichever engine is behind it."""

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

        The statement ends with its WHERE, and its one mark is for the space.
        """

    def columns(self, table: str, /) -> set[str]:
        """The names of a table's columns."""

    def add_grams(self, space: str, texts: Iterable[tuple[int, str]], /) -> None:
        """Store the folded texts of memories, by their numbers, for the search of substrings."""

    def drop_grams(self, space: str, memory: int, /) -> None:
        """Remove a memory's text from the search of substrings."""

    def holding(self, space: str, grams: Sequence[str], most: int | None, /) -> list[int]:
        """Numbers of the memories whose text holds all of these trigrams; at most so many."""


class Swept(NamedTuple):
    """What a search for deleted bytes found."""

    files: tuple[str, ...]
    scanned: int
    traces: int | None
    """How many stretches are still in the files, and in no remaining row; None if that is unknown,
    since the files are not ours to look through."""
    copies: tuple[str, ...]
    """Copies that a restore or a migration left beside the file, which may hold them still."""


class Store(Protocol):
    """The rows of one space, or of the system above the spaces. Threads may share it."""

    @property
    def path(self) -> Path:
        """The file; what belongs to it and is no row lies beside it."""

    @property
    def space(self) -> str:
        """The space whose rows these are."""

    @property
    def read_only(self) -> bool:
        """Whether it can only be read."""

    @property
    def open_unit(self) -> Unit | None:
        """The unit in which this thread has begun to write, if it is still open."""

    def read(self) -> AbstractContextManager[Rows]:
        """A consistent snapshot; inside an open unit, that unit's own view."""

    def unit(self, name: str, origin: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Make all writes of the block one unit of work; a block inside another joins it."""

    def write(
        self, name: str, origin: Mapping[str, Any], undoes: int | None = None
    ) -> AbstractContextManager[Unit]:
        """The unit to write with: a new one, or a part of the one that is open."""

    def maintain(self) -> AbstractContextManager[Rows]:
        """A durable write of what is outside history: counters, the outbox, indexes."""

    def with_reserve(self, work: Callable[[], T]) -> T:
        """Do something that must go on when the disk is full, with room set aside for it.

        It may be done several times, and must leave nothing behind when it raises StorageFull.
        """

    def watch(self) -> Watch:
        """What tells whether anything in it changed."""

    def sweep(self, windows: Set[bytes]) -> Swept:
        """Look for bytes that must not be stored any more."""

    def close(self) -> None:
        """Finish what runs, and close it."""


class Leased(Protocol):
    """An open space."""

    @property
    def store(self) -> Store:
        """Its store."""

    def write_reads(self) -> None:
        """Write noted reads."""

    def forget_index(self) -> None:
        """Load what is held in memory anew."""


class Contents(Protocol):
    """What maintenance must be told by the engine: where spaces are, and what rows stand for."""

    @property
    def path(self) -> Path:
        """The data directory."""

    @property
    def embedder(self) -> Model | None:
        """The model whose vectors memories must have."""

    def spaces(self) -> list[str]:
        """The names of all spaces."""

    def file(self, space: str) -> Path:
        """A space's file; InvalidInput for what cannot be a space's name."""

    def lease(self, space: str) -> AbstractContextManager[Leased]:
        """The open space; it is not closed while the block runs."""

    def drop(self, space: str) -> None:
        """Close a space, so that its file can be replaced."""

    def derive(self, row: Row, speaker: str) -> Findable:
        """What finds a memory, computed from its row."""


class Maintenance(Protocol):
    """Care for what is stored, beside reading and writing it."""

    def backup(
        self, target: Path, *, spaces: Sequence[str] | None = None, progress: Progress | None = None
    ) -> BackupReport:
        """Copy spaces into a new directory, while others write."""

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
        """Bring back what a backup holds: all of it, or nothing is changed."""

    def check(self, space: str, *, progress: Progress | None = None) -> Diagnosis:
        """Compare all that a space holds with what it must be; nothing is changed."""

    def check_shared_files(self) -> list[Diagnosis]:
        """The same for what belongs to no space."""

    def repair(self, space: str, *, progress: Progress | None = None) -> Repair:
        """Rebuild what is derived from rows, wherever it is not what they give."""

    def salvage(self, space: str, target: Path, *, progress: Progress | None = None) -> Salvage:
        """Write every sound row of a damaged space into a new file."""


class Watch(Protocol):
    """Tells whether anything changed, whoever changed it."""

    def version(self) -> tuple[int, int]:
        """Another value after every commit."""

    def close(self) -> None:
        """Give back what it holds; another look opens it again."""


class Spaces(Protocol):
    """All spaces of an installation, by their names, which are checked before."""

    @property
    def read_only(self) -> bool:
        """Whether the spaces can only be read."""

    def names(self) -> list[str]:
        """The names of all spaces."""

    def file(self, name: str) -> Path:
        """The file of a space."""

    def exists(self, name: str) -> bool:
        """Whether there is such a space."""

    def size(self, name: str) -> int:
        """How many bytes a space takes."""

    def open(self, name: str) -> Store:
        """The store of a space, which is made if need be."""

    def watch(self, name: str) -> Watch:
        """What tells whether anything in a space changed."""

    def maintenance(self, contents: Contents) -> Maintenance:
        """Backups, checks and repair."""

    def close(self) -> None:
        """Let go of what all spaces share."""
