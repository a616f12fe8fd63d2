"""Synchronise memory directories: one process per directory, by a lock, watches and writes.

A process without the lease leaves its changes in the rows, where the keeper finds them, and waits
until they are written. When the keeper ends, however it ends, the next one to look takes over.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from commonplace.dialects.clawbrain import briefing, commits, lifecycle, places, strategy
from commonplace.dialects.clawbrain.directory import OWN, Directory, Stat
from commonplace.dialects.clawbrain.mirror import EDITOR, Mirror
from commonplace.dialects.contract import Call, Setting
from commonplace.engine.binding import engine_call
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.library import Library
from commonplace.engine.maintenance import file_copies
from commonplace.errors import NO_ROOM, CommonplaceError, NotFound, StorageUnavailable

SESSION = "local-session"
SMALL = 1_000  # up to this many files are checked one by one before every call
TICK_SECONDS = 0.1
WAIT_SECONDS = 10.0
SEEN_SECONDS = 3.0  # how long to wait for an edit to be imported; usually 0.3 s
HOUR = 3600.0

log = logging.getLogger(__name__)
_keepers: WeakKeyDictionary[Library, Keeper] = WeakKeyDictionary()


class Kept:
    """One space's memory directory, and whether this process synchronises it."""

    def __init__(self, memory: Commonplace, path: Path) -> None:
        self.memory = memory
        self.directory = Directory(path)
        self.mirror = Mirror(memory, self.directory)
        self._lease: int | None = None
        self._turn = threading.Lock()
        self._rows = memory.library.watch(memory.name)
        self._version: object = None
        self._folders: object = None
        self._tended: float | None = None
        self._left: set[tuple[str, Stat | None]] = set()
        """Files that the keeper left as they are, when this process does not keep them."""
        self._is_large = False
        self._unwritten = ""
        self.stale = False
        """Whether MEMORY.md is to be written anew."""

    def left_alone(self) -> list[str]:
        """The files that cannot be read or written, and why."""
        problems = sorted(self.mirror.problems.items())
        unwritten = [self._unwritten] if self._unwritten else []
        return [f"Left alone '{path}': {why}" for path, (_, why) in problems] + unwritten

    def hold(self) -> bool:
        """Take the lock of the directory if it is free; whether this process holds it."""
        if self._lease is not None:
            return True
        with self._turn:
            if self._lease is not None:
                return True
            lease = self.directory.lock()
            if lease is None:
                return False
            try:
                commits.commit(self.directory.path, strategy.read(self.directory), "start")
                self.mirror.start()
                self._refresh()
            except BaseException:
                os.close(lease)
                raise
            self._lease = lease
            return True

    def _refresh(self) -> None:
        """Apply the strategy and write MEMORY.md at the start of a session."""
        chosen = strategy.read(self.directory)
        strategy.apply(self.memory, chosen)
        lifecycle.note_decay(self.memory)
        self._brief(chosen)
        self._folders = self._folder_times()

    def _brief(self, chosen: strategy.Strategy) -> None:
        """Write MEMORY.md; a failure is only logged."""
        try:
            briefing.write(self.memory, self.directory, chosen)
            self._unwritten = ""
        except OSError as error:
            self._unwritten = f"{briefing.FILE} could not be written: {error.strerror or error}."
            log.warning("the briefing could not be written", extra={"why": self._unwritten})

    def release(self) -> None:
        """Release the lock, so that another process can synchronise the directory."""
        with self._turn, self.mirror.lock:
            if self._lease is not None:
                with contextlib.suppress(OSError):
                    commits.commit(self.directory.path, strategy.read(self.directory), "end")
                os.close(self._lease)
                self._lease = None
        self._rows.close()

    def before(self, named: str | None) -> None:
        """Import edits: all of them, or in a large directory changed folders and the named file."""
        if not self.hold():
            self._until_seen()
            return
        if self.mirror.files() <= SMALL:
            self.mirror.sync()
            return
        if self._folder_times() != self._folders:
            self.mirror.sync()
            self._folders = self._folder_times()
        elif named:
            with contextlib.suppress(places.OutOfPlace):
                self.mirror.look(named)

    def _until_seen(self) -> None:
        """Wait until the process that holds the lock has imported all edits."""
        until = time.monotonic() + SEEN_SECONDS
        while True:
            unlike = self._unlike_noted()
            if unlike <= self._left:
                self._left = unlike  # later calls do not wait for the same differences
                return
            if self.hold():
                self.mirror.sync()
                return
            if time.monotonic() > until:
                self._left = unlike
                return
            time.sleep(0.02)

    def _unlike_noted(self) -> set[tuple[str, Stat | None]]:
        """Files that differ from their recorded state; none in a new or large directory."""
        root = self.directory.known_identity()
        if not root or self._is_large:
            return set()
        scanned = self.directory.scan().files
        self._is_large = len(scanned) > SMALL
        known = {
            file.path: Stat(file.size, file.mtime, file.inode)
            for file in engine_call(self.memory, file_copies.known, root)
            if file.path
        }
        changed = {(path, stat) for path, stat in scanned.items() if known.get(path) != stat}
        return changed | {(path, None) for path in known if path not in scanned}

    def after(self, head: int) -> None:
        """Wait until the files of memories changed since then are on disk."""
        if engine_call(self.memory, file_copies.head) == head and not self.stale:
            return
        if self.hold():
            self.mirror.push()
            if self.stale:
                self.stale = False
                self._brief(strategy.read(self.directory))
            self._folders = self._folder_times()
            for version, why in self.mirror.failures.values():
                if version > head:
                    raise StorageUnavailable(
                        f"The memory is stored, but its file could not be written ({why}).",
                        hint="It will be written as soon as that is possible; do not store it"
                        " again.",
                    )
            return
        until = time.monotonic() + WAIT_SECONDS
        while True:
            root = self.directory.known_identity()
            behind = (
                engine_call(self.memory, file_copies.behind, root, places.KINDS, after=head)
                if root
                else None
            )
            if behind is not None and not behind.memories and not behind.gone:
                return
            if self.hold():
                self.after(head)
                return
            if time.monotonic() > until:
                raise StorageUnavailable(
                    "The memory is stored, but the process that keeps the files has not written"
                    f" its file within {WAIT_SECONDS:.0f} seconds.",
                    hint="It will; do not store it again.",
                )
            time.sleep(0.02)

    def tick(self, touched: set[str], *, afresh: bool = False) -> None:
        """One round of the watching thread: import edits, write what other processes changed."""
        if not self.hold():
            return
        own = os.fspath(self.directory.path)
        aside = f"{os.sep}{OWN}{os.sep}"
        if afresh or any(path.startswith(own) and aside not in path for path in touched):
            self.mirror.sync()
            strategy.apply(self.memory, strategy.read(self.directory))
        version = self._rows.version()
        if version != self._version:
            # read before the push, so that later commits are pushed next time
            self._version = version
            self.mirror.push()
        if self._tended is None or time.monotonic() - self._tended > HOUR:
            self._tended = time.monotonic()
            self.tend()

    def tend(self) -> None:
        """Hourly work: record the day's decay, and compact if the strategy says so."""
        lifecycle.note_decay(self.memory)
        chosen = strategy.read(self.directory)
        if not chosen.automatic_compaction:
            return
        done = lifecycle.compact_what_is_due(self.memory, chosen, self.mirror.taken())
        if done is not None:
            self.mirror.push()
            self._brief(chosen)

    def watched(self) -> list[str]:
        """The folders to watch, all inside the memory directory."""
        if self._lease is None:
            return []
        paths = [self.directory.path / folder for folder in ("", *self.mirror.folders)]
        return [os.fspath(path) for path in paths if path.is_dir() and not path.is_symlink()]

    def _folder_times(self) -> object:
        root = self.directory.path
        return [_state(root / folder) for folder in ("", *self.mirror.folders)]


def _state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


class Keeper:
    """The directories of a server: one for each space, or the one of a stdio server."""

    def __init__(self, setting: Setting) -> None:
        self._library = setting.library
        self._environ = setting.environ
        self._space = setting.space
        self._kept: dict[str, Kept] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._again = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="clawbrain-files", daemon=True)

    def start(self) -> None:
        """Synchronise now, and watch from now on."""
        if self._space is not None:
            self.at(self._space).hold()
        self._thread.start()

    def stop(self) -> None:
        """Stop watching and release the locks."""
        self._stop.set()
        self._again.set()
        self._thread.join(10)
        for kept in self._kept.values():
            kept.release()

    def path(self, space: str) -> Path:
        """The memory directory of a space."""
        own = self._environ.get("MEMORY_DIR")
        if self._space is not None and own:
            return Path(own).expanduser().absolute()
        return self._library.path / "clawbrain" / space

    def session(self, call: Call) -> str:
        """The session that a call belongs to."""
        if self._space is not None:
            return self._environ.get("SESSION_ID") or SESSION
        return call.request_info.session or SESSION

    def at(self, space: str) -> Kept:
        """The directory of a space."""
        with self._lock:
            kept = self._kept.get(space)
            if kept is None:
                try:
                    memory = Commonplace(space=space, origin=EDITOR, library=self._library)
                    kept = self._kept[space] = Kept(memory, self.path(space))
                except OSError as error:
                    raise StorageUnavailable(
                        f"{self.path(space)} cannot be used: {error.strerror}.",
                        hint="Choose another directory with MEMORY_DIR.",
                    ) from error
                self._again.set()
            return kept

    def _watch(self) -> None:
        self._open_known()
        while not self._stop.is_set():
            self._again.clear()
            for kept in list(self._kept.values()):
                self._tick(kept, set())
            folders = self._folders()
            if not folders:
                self._again.wait(TICK_SECONDS)
                continue
            try:
                self._watch_folders(folders)
            except (OSError, RuntimeError) as error:  # a folder was deleted while the watch started
                log.warning("watching starts again", extra={"why": str(error)})
                self._stop.wait(TICK_SECONDS)

    def _watch_folders(self, folders: list[str]) -> None:
        """Watch until the set of folders changes."""
        from watchfiles import watch

        logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it logs every change
        afresh = True  # changes from before the watch started are not reported
        for changes in watch(
            *folders, recursive=False, watch_filter=None, stop_event=self._stop, debounce=60,
            step=15, rust_timeout=int(TICK_SECONDS * 1000), yield_on_timeout=True,
            raise_interrupt=False, ignore_permission_denied=True,
        ):  # fmt: skip
            touched = {path for _, path in changes}
            for kept in list(self._kept.values()):
                self._tick(kept, touched, afresh=afresh)
            afresh = False
            if self._again.is_set() or self._folders() != folders:
                return

    def _folders(self) -> list[str]:
        return [folder for kept in list(self._kept.values()) for folder in kept.watched()]

    def _open_known(self) -> None:
        """Open the existing directories of all spaces when a server starts."""
        if self._space is not None:
            return
        spaces = set(self._library.spaces())
        with contextlib.suppress(OSError):
            for path in sorted((self._library.path / "clawbrain").iterdir()):
                if path.name in spaces and not self._stop.is_set():
                    self._tick(self.at(path.name), set())

    def _tick(self, kept: Kept, touched: set[str], *, afresh: bool = False) -> None:
        try:
            kept.tick(touched, afresh=afresh)
        except (CommonplaceError, OSError) as error:
            log.warning("files could not be compared", extra={"why": str(error)})


@contextlib.contextmanager
def running(setting: Setting) -> Iterator[None]:
    """Synchronise memory directories while the dialect is served."""
    keeper = Keeper(setting)
    _keepers[setting.library] = keeper
    try:
        keeper.start()
        yield
    finally:
        keeper.stop()
        del _keepers[setting.library]


def kept(call: Call) -> Kept | None:
    """The directory of the caller's space; None if the server has no memory directories."""
    keeper = _keepers.get(call.memory.library)
    return None if keeper is None else keeper.at(call.memory.name)


def session(call: Call) -> str:
    """The session that a call belongs to."""
    keeper = _keepers.get(call.memory.library)
    return call.request_info.session or SESSION if keeper is None else keeper.session(call)


@contextlib.contextmanager
def call_wrapper(call: Call, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Import edited files before a call; after it, wait until its own files are written."""
    directory = kept(call)
    if directory is None:
        yield
        return
    head: int | None = None
    try:
        directory.before(_path(call, arguments.get("id")))
        head = engine_call(call.memory, file_copies.head)
    except OSError as error:
        # A full disk does not prevent reading: the rows are authoritative; files are written later.
        if not (call.reads and error.errno in NO_ROOM):
            raise _refused(error) from error
    yield
    if head is None:
        return
    try:
        directory.after(head)
    except (OSError, CommonplaceError) as error:
        if call.reads:
            log.warning("files could not be written", extra={"why": str(error)})
        elif isinstance(error, OSError):
            raise _refused(error) from error
        else:
            raise


def _path(call: Call, identity: object) -> str | None:
    if not isinstance(identity, str) or not identity:
        return None
    with contextlib.suppress(CommonplaceError, NotFound):
        place = places.of_memory(call.memory.get(identity, count=False))
        return None if place is None else place.path
    return None


def _refused(error: OSError) -> StorageUnavailable:
    return StorageUnavailable(
        f"The memory directory cannot be used: {error.strerror or error}.",
        hint="Check the directory, its permissions and the disk.",
    )
