"""Keep each memory directory in sync with its space; a file lock allows one process at a time.

The process that holds the lock watches the directory and writes its files. Other processes only
change rows, and wait until the lock holder has written the files. When the lock holder ends or
crashes, the next process that tries gets the lock.
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

from commonplace.dialects.clawbrain import briefing, commits, lifecycle, locations, strategy
from commonplace.dialects.clawbrain.directory import STATE_FOLDER, Directory, Stat
from commonplace.dialects.clawbrain.mirror import EDITOR_ORIGIN, Mirror, recorded_stat
from commonplace.dialects.contract import Call, Setting
from commonplace.engine.binding import engine_call
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.library import Library
from commonplace.engine.maintenance import file_copies
from commonplace.errors import DISK_FULL_ERRNOS, CommonplaceError, NotFound, StorageUnavailable

DEFAULT_SESSION = "local-session"
MAX_SCANNED_FILES = 1_000  # a directory with more files is not scanned before every call
TICK_SECONDS = 0.1
WRITE_WAIT_SECONDS = 10.0
IMPORT_WAIT_SECONDS = 3.0  # seconds to wait for the lock holder to import an edit
HOUR_SECONDS = 3600.0

log = logging.getLogger(__name__)
_running_syncs: WeakKeyDictionary[Library, FileSync] = WeakKeyDictionary()


class SpaceFiles:
    """The memory directory of one space, in this process."""

    def __init__(self, memory: Commonplace, path: Path) -> None:
        self.memory = memory
        self.directory = Directory(path)
        self.mirror = Mirror(memory, self.directory)
        self._lock_descriptor: int | None = None
        self._acquiring = threading.Lock()
        self._rows = memory.library.watch(memory.name)
        self._version: object = None
        self._folders: object = None
        self._maintained_at: float | None = None
        self._ignored: set[tuple[str, Stat | None]] = set()
        """Changed files that the lock holder did not import in time; no call waits for them."""
        self._is_large = False
        self._briefing_error = ""
        self.briefing_stale = False
        """Whether MEMORY.md must be written again."""

    def problems(self) -> list[str]:
        """Return messages: files that were not imported, and MEMORY.md if it was not written."""
        problems = sorted(self.mirror.problems.items())
        unwritten = [self._briefing_error] if self._briefing_error else []
        return [f"Ignored '{path}': {why}" for path, (_, why) in problems] + unwritten

    def acquire(self) -> bool:
        """Take the lock unless another process holds it; return whether this process has it now."""
        if self._lock_descriptor is not None:
            return True
        with self._acquiring:
            if self._lock_descriptor is not None:
                return True
            descriptor = self.directory.lock()
            if descriptor is None:
                return False
            try:
                commits.commit(self.directory.path, strategy.read(self.directory), "start")
                self.mirror.start()
                self._refresh()
            except BaseException:
                os.close(descriptor)
                raise
            self._lock_descriptor = descriptor
            return True

    def begin_session(self) -> None:
        """Take the lock if it is free, and prepare the directory for a client."""
        held = self._lock_descriptor is not None
        if self.acquire() and held:
            self._refresh()

    def _refresh(self) -> None:
        """Apply STRATEGY.md and write MEMORY.md, at the start of a session."""
        chosen = strategy.read(self.directory)
        strategy.apply_credit_rule(self.memory, chosen)
        lifecycle.log_decay(self.memory)
        self._write_briefing(chosen)
        self._folders = self._folder_times()

    def _write_briefing(self, chosen: strategy.Strategy) -> None:
        """Write MEMORY.md; report a failure without failing the call."""
        try:
            briefing.write_briefing(self.memory, self.directory, chosen)
            self._briefing_error = ""
        except OSError as error:
            self._briefing_error = (
                f"{briefing.FILE} could not be written: {error.strerror or error}."
            )
            log.warning("MEMORY.md could not be written", extra={"why": self._briefing_error})

    def release(self) -> None:
        """Release the lock, so that another process can take it."""
        with self._acquiring, self.mirror.lock:
            if self._lock_descriptor is not None:
                with contextlib.suppress(OSError):
                    commits.commit(self.directory.path, strategy.read(self.directory), "end")
                os.close(self._lock_descriptor)
                self._lock_descriptor = None
        self._rows.close()

    def before_call(self, path: str | None) -> None:
        """Import edited files before a call.

        In a large directory, check only the folder times and the file that the call uses.
        """
        if not self.acquire():
            self._wait_for_import()
            return
        if self.mirror.file_count() <= MAX_SCANNED_FILES:
            self.mirror.sync()
            return
        if self._folder_times() != self._folders:
            self.mirror.sync()
            self._folders = self._folder_times()
        elif path:
            with contextlib.suppress(locations.InvalidLocation):
                self.mirror.import_file(path)

    def _wait_for_import(self) -> None:
        """Wait until the process that holds the lock has imported edited files."""
        until = time.monotonic() + IMPORT_WAIT_SECONDS
        while True:
            changed = self._changed_files()
            if changed <= self._ignored:
                self._ignored = changed  # wait again for files that have changed again
                return
            if self.acquire():
                self.mirror.sync()
                return
            if time.monotonic() > until:
                self._ignored = changed
                return
            time.sleep(0.02)

    def _changed_files(self) -> set[tuple[str, Stat | None]]:
        """Return the files that differ from their records; none for a new or a large directory."""
        root = self.directory.stored_id()
        if not root or self._is_large:
            return set()
        scanned = self.directory.scan().files
        self._is_large = len(scanned) > MAX_SCANNED_FILES
        known = {
            file.path: recorded_stat(file)
            for file in engine_call(self.memory, file_copies.recorded_files, root)
            if file.path
        }
        changed = {(path, stat) for path, stat in scanned.items() if known.get(path) != stat}
        return changed | {(path, None) for path in known if path not in scanned}

    def after_call(self, head: int) -> None:
        """Write the files of rows changed since `head`, or wait for the lock holder to do it."""
        if engine_call(self.memory, file_copies.newest_seq) == head and not self.briefing_stale:
            return
        if self.acquire():
            self.mirror.push()
            if self.briefing_stale:
                self.briefing_stale = False
                self._write_briefing(strategy.read(self.directory))
            self._folders = self._folder_times()
            for version, why in self.mirror.failures.values():
                if version > head:
                    raise StorageUnavailable(
                        f"The memory is stored, but its file could not be written ({why}).",
                        hint="Do not store it again. The file is written as soon as possible.",
                    )
            return
        until = time.monotonic() + WRITE_WAIT_SECONDS
        while True:
            root = self.directory.stored_id()
            behind = (
                engine_call(
                    self.memory, file_copies.outdated_copies, root, locations.KINDS, after=head
                )
                if root
                else None
            )
            if behind is not None and not behind.memories and not behind.gone:
                return
            if self.acquire():
                self.after_call(head)
                return
            if time.monotonic() > until:
                raise StorageUnavailable(
                    "The memory is stored, but the process that writes the files has not written"
                    f" its file within {WRITE_WAIT_SECONDS:.0f} seconds.",
                    hint="Do not store the memory again. The file will be written later.",
                )
            time.sleep(0.02)

    def tick(self, changed_paths: set[str], *, rescan: bool = False) -> None:
        """Import edits, write the rows that other processes changed, run hourly maintenance."""
        if not self.acquire():
            return
        own = os.fspath(self.directory.path)
        aside = f"{os.sep}{STATE_FOLDER}{os.sep}"
        if rescan or any(path.startswith(own) and aside not in path for path in changed_paths):
            self.mirror.sync()
            strategy.apply_credit_rule(self.memory, strategy.read(self.directory))
        version = self._rows.version()
        if version != self._version:
            self._version = version  # the next tick handles later commits
            self.mirror.push()
        if self._maintained_at is None or time.monotonic() - self._maintained_at > HOUR_SECONDS:
            self._maintained_at = time.monotonic()
            self.run_maintenance()

    def run_maintenance(self) -> None:
        """Log the day's credit decay, and run a compaction if the strategy enables it."""
        lifecycle.log_decay(self.memory)
        chosen = strategy.read(self.directory)
        if not chosen.automatic_compaction:
            return
        done = lifecycle.compact_if_due(self.memory, chosen, self.mirror.used_paths())
        if done is not None:
            self.mirror.push()
            self._write_briefing(chosen)

    def watched_folders(self) -> list[str]:
        """Return the folders to watch, without symbolic links."""
        if self._lock_descriptor is None:
            return []
        paths = [self.directory.path / folder for folder in ("", *self.mirror.folders)]
        return [os.fspath(path) for path in paths if path.is_dir() and not path.is_symlink()]

    def _folder_times(self) -> object:
        root = self.directory.path
        return [_time_and_size(root / folder) for folder in ("", *self.mirror.folders)]


def _time_and_size(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


class FileSync:
    """All memory directories of a server, and the thread that watches them."""

    def __init__(self, setting: Setting) -> None:
        self._library = setting.library
        self._space = setting.space
        self.environ = setting.environ if setting.space is not None else None
        """The environment variables of the client of a stdio server; None for other servers.
        """
        self._spaces: dict[Path, SpaceFiles] = {}
        """The directories in use, by their path."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._folders_changed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="clawbrain-files", daemon=True)

    def start(self) -> None:
        """Sync the directory of a stdio server, then start the watching thread."""
        if self._space is not None:
            self.space_files(self._space).acquire()
        self._thread.start()

    def stop(self) -> None:
        """Stop watching, and release all directories."""
        self._stop.set()
        self._folders_changed.set()
        self._thread.join(10)
        for files in self._spaces.values():
            files.release()

    def path(self, space: str, environ: Mapping[str, str] | None = None) -> Path:
        """Return the memory directory of a space; over stdio, the client's MEMORY_DIR."""
        environ = self.environ if environ is None else environ
        if own := (environ or {}).get("MEMORY_DIR"):
            return Path(own).expanduser().absolute()
        return self._library.path / "clawbrain" / space

    def space_files(self, space: str, environ: Mapping[str, str] | None = None) -> SpaceFiles:
        """Return the directory of a space, opened on first use."""
        path = self.path(space, environ)
        with self._lock:
            files = self._spaces.get(path)
            if files is not None and files.memory.name != space:
                raise StorageUnavailable(
                    f"{path} is the memory directory of another space.",
                    hint="Set MEMORY_DIR to another directory.",
                )
            if files is None:
                try:
                    memory = Commonplace(space=space, origin=EDITOR_ORIGIN, library=self._library)
                    files = self._spaces[path] = SpaceFiles(memory, path)
                except OSError as error:
                    raise StorageUnavailable(
                        f"{path} cannot be used: {error.strerror}.",
                        hint="Set MEMORY_DIR to another directory.",
                    ) from error
                self._folders_changed.set()
            return files

    def _watch(self) -> None:
        self._open_existing()
        while not self._stop.is_set():
            self._folders_changed.clear()
            for files in list(self._spaces.values()):
                self._tick(files, set())
            folders = self._folders()
            if not folders:
                self._folders_changed.wait(TICK_SECONDS)
                continue
            try:
                self._watch_folders(folders)
            except (OSError, RuntimeError) as error:  # a folder was removed during the watch
                log.warning("watching restarted", extra={"why": str(error)})
                self._stop.wait(TICK_SECONDS)

    def _watch_folders(self, folders: list[str]) -> None:
        """Watch these folders until the list of folders changes."""
        from watchfiles import watch

        # By default the watcher logs every change.
        logging.getLogger("watchfiles").setLevel(logging.WARNING)
        rescan = True  # the watcher does not report earlier changes
        for changes in watch(
            *folders, recursive=False, watch_filter=None, stop_event=self._stop, debounce=60,
            step=15, rust_timeout=int(TICK_SECONDS * 1000), yield_on_timeout=True,
            raise_interrupt=False, ignore_permission_denied=True,
        ):  # fmt: skip
            changed_paths = {path for _, path in changes}
            for files in list(self._spaces.values()):
                self._tick(files, changed_paths, rescan=rescan)
            rescan = False
            if self._folders_changed.is_set() or self._folders() != folders:
                return

    def _folders(self) -> list[str]:
        return [
            folder for files in list(self._spaces.values()) for folder in files.watched_folders()
        ]

    def _open_existing(self) -> None:
        """Sync the spaces that already have a directory, at the start of an HTTP server."""
        if self._space is not None:
            return
        spaces = set(self._library.spaces())
        with contextlib.suppress(OSError):
            for path in sorted((self._library.path / "clawbrain").iterdir()):
                if path.name in spaces and not self._stop.is_set():
                    self._tick(self.space_files(path.name), set())

    def _tick(self, files: SpaceFiles, changed_paths: set[str], *, rescan: bool = False) -> None:
        try:
            files.tick(changed_paths, rescan=rescan)
        except (CommonplaceError, OSError) as error:
            log.warning("files could not be synced", extra={"why": str(error)})


@contextlib.contextmanager
def background_work(setting: Setting) -> Iterator[None]:
    """Sync files while the dialect is served."""
    sync = FileSync(setting)
    _running_syncs[setting.library] = sync
    try:
        sync.start()
        yield
    finally:
        sync.stop()
        del _running_syncs[setting.library]


@contextlib.contextmanager
def stdio_connection(setting: Setting) -> Iterator[None]:
    """Sync the directory of a client before its first call."""
    sync = _running_syncs.get(setting.library)
    if sync is not None and setting.space is not None:
        sync.space_files(setting.space, setting.environ).begin_session()
    yield


def space_files(call: Call) -> SpaceFiles | None:
    """Return the directory of the caller's space, or None if files are not synced."""
    sync = _running_syncs.get(call.memory.library)
    if sync is None:
        return None
    return sync.space_files(call.memory.name, call.request_info.environ)


def session_of(call: Call) -> str:
    """Return the id of the session to which a call belongs."""
    sync, environ = _running_syncs.get(call.memory.library), call.request_info.environ
    if environ is None and sync is not None:
        environ = sync.environ
    if environ is not None:  # all calls over stdio belong to one session
        return environ.get("SESSION_ID") or DEFAULT_SESSION
    return call.request_info.session or DEFAULT_SESSION


@contextlib.contextmanager
def call_wrapper(call: Call, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Import edited files before a call, and write the call's files after it."""
    directory = space_files(call)
    if directory is None:
        yield
        return
    head: int | None = None
    try:
        directory.before_call(_memory_path(call, arguments.get("id")))
        head = engine_call(call.memory, file_copies.newest_seq)
    except OSError as error:
        # A read succeeds on a full disk: rows are authoritative, and files are written later.
        if not (call.reads and error.errno in DISK_FULL_ERRNOS):
            raise _unavailable_error(error) from error
    yield
    if head is None:
        return
    try:
        directory.after_call(head)
    except (OSError, CommonplaceError) as error:
        if call.reads:
            log.warning("files could not be written", extra={"why": str(error)})
        elif isinstance(error, OSError):
            raise _unavailable_error(error) from error
        else:
            raise


def _memory_path(call: Call, identity: object) -> str | None:
    if not isinstance(identity, str) or not identity:
        return None
    with contextlib.suppress(CommonplaceError, NotFound):
        location = locations.of_memory(call.memory.get(identity, count=False))
        return None if location is None else location.path
    return None


def _unavailable_error(error: OSError) -> StorageUnavailable:
    return StorageUnavailable(
        f"The memory directory cannot be used: {error.strerror or error}.",
        hint="Check the directory, its permissions and the disk space.",
    )
