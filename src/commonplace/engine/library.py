"""A data directory: its spaces, which of them are open, and the thread that tends them."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from commonplace.embedding.provider import Embedder
from commonplace.engine import checks
from commonplace.engine.content import memories
from commonplace.engine.maintenance import upkeep
from commonplace.engine.space import OpenSpace
from commonplace.errors import CommonplaceError, InvalidInput, StorageUnavailable
from commonplace.storage.ports import Maintenance, Spaces, Watch
from commonplace.storage.sqlite.spaces import SqliteSpaces, unusable
from commonplace.storage.tables import Row

OPEN_SPACES = 64
TEND_SECONDS = 0.5
RETRY_SECONDS = 1.0


def default_path() -> Path:
    """Where the data lives unless told otherwise."""
    return Path(os.environ.get("COMMONPLACE_DATA") or "~/.commonplace")


def directory(path: str | Path | None = None) -> Path:
    """Where the data lives, if it can: a path that leads to no file."""
    path = default_path() if path is None else path
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str):
        raise InvalidInput("The data directory must be a path.", hint="Name one.", field="data")
    if not name.strip():
        raise InvalidInput("The data directory has no name.", hint="Name one.", field="data")
    try:
        if b"\x00" in os.fsencode(name):
            raise ValueError("a NUL")
        found = Path(name).expanduser().absolute()
    except (ValueError, RuntimeError) as error:  # no file name, or a home that nobody has
        raise InvalidInput(
            f"The data directory cannot be called {ascii(name)[:60]}: {str(error)[:60]}.",
            hint="Choose another.",
            field="data",
        ) from None
    if found.is_file():
        raise unusable(found, os.strerror(errno.ENOTDIR))
    return found


class Library:
    """All spaces of one data directory. Safe to share between threads."""

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        embedder: Embedder | None,
        open_spaces: int = OPEN_SPACES,
    ) -> None:
        self.path = directory(path)
        for method in ("embed", "close"):
            if embedder is not None and not callable(getattr(embedder, method, None)):
                raise InvalidInput(
                    f"This is no embedding provider: it cannot {method}.",
                    hint='Use "builtin", "none", a URL, or an Embedder.',
                    field="embedding",
                )
        self.embedder = embedder
        self._open_spaces = checks.limit(open_spaces, "open_spaces", 10_000)
        self._lock = threading.Lock()
        self._opened: OrderedDict[str, OpenSpace] = OrderedDict()
        self._opening: dict[str, threading.Lock] = {}
        self._closed = False
        self._retired: list[OpenSpace] = []
        self._closing: list[OpenSpace] = []
        self._closed_one = threading.Condition(self._lock)
        self._retiring = threading.Semaphore(0)
        self._closer: threading.Thread | None = None
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._tender: threading.Thread | None = None
        self._spaces: Spaces = SqliteSpaces(self.path)

    @property
    def read_only(self) -> bool:
        """Whether the spaces can only be read."""
        return self._spaces.read_only

    @property
    def maintenance(self) -> Maintenance:
        """Backups, checks and repair of what is stored here."""
        return self._spaces.maintenance(self)

    @staticmethod
    def derive(row: Row, speaker: str) -> memories.Prepared:
        """What finds a memory, computed from its row."""
        return memories.analysed(row, speaker)

    def file(self, space: str) -> Path:
        """The file of a space."""
        return self._spaces.file(checks.space(space))

    def exists(self, space: str) -> bool:
        """Whether there is such a space."""
        return self._spaces.exists(checks.space(space))

    def size(self, space: str) -> int:
        """How many bytes a space takes."""
        return self._spaces.size(checks.space(space))

    def watch(self, space: str) -> Watch:
        """What tells whether anything in a space changed."""
        return self._spaces.watch(checks.space(space))

    def spaces(self) -> list[str]:
        """The names of all spaces that hold something."""
        return self._spaces.names()

    @contextlib.contextmanager
    def lease(self, space: str) -> Iterator[OpenSpace]:
        """The open space; it is not closed while the block runs."""
        opened = self._pin(space)
        try:
            yield opened
        finally:
            with self._lock:
                opened.pins -= 1

    def _pin(self, name: str) -> OpenSpace:
        with self._lock:
            if self._closed:
                raise StorageUnavailable("The library is closed.", hint="Open it again.")
            opened = self._opened.get(name) if isinstance(name, str) else None
            if opened is not None:
                opened.pins += 1
                self._opened.move_to_end(name)
                return opened
            turn = self._opening.setdefault(checks.space(name), threading.Lock())
        with turn:
            with self._lock:
                opened = self._opened.get(name)
                if opened is not None:
                    opened.pins += 1
                    return opened
            opened = OpenSpace(self._spaces.open(name), self.embedder, self._rouse, pins=1)
            if upkeep.find_work(opened):
                opened.has_work = True
                self._rouse()
            with self._lock:
                self._opened[name] = opened
                self._opening.pop(name, None)
                surplus = self._surplus()
        for each in surplus:
            self._retire(each)
        return opened

    def _retire(self, space: OpenSpace) -> None:
        """Close a space behind the caller's back: its last commit and checkpoint take a while."""
        with self._lock:
            if self._closer is None and not self._closed:
                self._closer = threading.Thread(
                    target=self._close_retired, name="commonplace-closer", daemon=True
                )
                self._closer.start()
            self._retired.append(space)
        self._retiring.release()
        if len(self._retired) > self._open_spaces:
            self._close_one()  # faster than they are closed: help

    def _close_retired(self) -> None:
        while True:
            self._retiring.acquire()
            if not self._close_one() and self._closed:
                return

    def _close_one(self, name: str | None = None) -> bool:
        with self._lock:
            found = [s for s in self._retired if name is None or s.name == name]
            if not found:
                return False
            self._retired.remove(found[0])
            self._closing.append(found[0])
        try:
            with contextlib.suppress(CommonplaceError):  # reads noted on a full disk are lost
                found[0].close()
        finally:
            with self._closed_one:
                self._closing.remove(found[0])
                self._closed_one.notify_all()
        return True

    def _surplus(self) -> list[OpenSpace]:
        """Take the least recently used spaces that nobody uses out of the open ones."""
        surplus = []
        for name in list(self._opened):
            if len(self._opened) <= self._open_spaces:
                break
            if self._opened[name].pins == 0:
                surplus.append(self._opened.pop(name))
        return surplus

    def drop(self, space: str) -> None:
        """Close a space's file, so that it can be replaced or removed."""
        checks.space(space)
        with self._lock:
            opened = self._opened.get(space)
            if opened is not None and opened.pins:
                raise StorageUnavailable("The space is in use.", hint="Try again.")
            self._opened.pop(space, None)
        if opened is not None:
            opened.close()
        while self._close_one(space):
            pass
        with self._closed_one:
            self._closed_one.wait_for(lambda: all(each.name != space for each in self._closing))

    def _rouse(self) -> None:
        """Make sure that the tending thread runs and looks around."""
        if self._tender is None:
            with self._lock:
                if self._tender is None and not self._closed:
                    self._tender = threading.Thread(
                        target=self._tend, name="commonplace-upkeep", daemon=True
                    )
                    self._tender.start()
        self._wake.set()

    def _tend(self) -> None:
        """Write noted reads and embed what waits, until the library is closed."""
        waiting = False
        while True:
            self._wake.wait(RETRY_SECONDS if waiting else None)
            self._wake.clear()
            # A pause, so that many small notes become one write.
            if self._stop.wait(TEND_SECONDS):
                return
            waiting = False
            for name in self._due():
                try:
                    with self.lease(name) as space:
                        space.write_reads()
                        while space.has_work and not self._stop.is_set():
                            space.has_work = False  # before looking: a write may set it again
                            if upkeep.embed_some(space, self._stop.is_set):
                                space.has_work = True
                            elif upkeep.find_work(space):
                                space.has_work = waiting = True
                                break
                except CommonplaceError:
                    waiting = True  # a full disk, an absent provider: later
                    self._look_again(name)

    def _look_again(self, name: str) -> None:
        with self._lock:
            if name in self._opened:
                self._opened[name].has_work = True

    def _due(self) -> list[str]:
        with self._lock:
            return [
                name for name, space in self._opened.items() if space.has_reads or space.has_work
            ]

    def close(self) -> None:
        """Finish, write what is noted, and close every file."""
        with self._lock:
            if self._closed:
                return
            if any(space.store.open_unit is not None for space in self._opened.values()):
                raise StorageUnavailable("A unit of work is open.", hint="Finish it first.")
            self._closed = True
            opened = list(self._opened.values())
            self._opened.clear()
        self._stop.set()
        self._wake.set()
        if self._tender is not None:
            self._tender.join(timeout=10)
        while self._close_one():
            pass
        if self._closer is not None:
            self._retiring.release()
            self._closer.join(timeout=10)
        for space in opened:
            with contextlib.suppress(CommonplaceError):  # reads noted on a full disk are lost
                space.close()
        if self.embedder is not None:
            self.embedder.close()
