"""The memory directory: everything that touches its files.

Every path is opened part by part and no part may be a symbolic link, so that nothing outside is
read or written. A file is written beside its place, synced, and renamed into it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from commonplace.storage.sqlite import new_id

OWN = ".commonplace"  # the lease and the directory's id
FILE_BYTES = 4_200_000  # a million characters, and room for the frontmatter
FOLDERS = ("entities", "episodes", "archive/entities", "archive/episodes")
SECOND = 1_000_000_000
_TEMPORARY = ".tmp-"  # being written
_SWAPPED = ".swap-"  # whole: about to take its place, or just displaced
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK


class Stat(NamedTuple):
    """By what a file is recognised as unchanged."""

    size: int
    mtime: int
    inode: int


def _stat_of(found: os.stat_result) -> Stat:
    # The inode of a large file system may not fit a signed number of 64 bits.
    return Stat(found.st_size, found.st_mtime_ns, found.st_ino & 0x7FFF_FFFF_FFFF_FFFF)


@dataclass(frozen=True, slots=True)
class Scan:
    """What lies in the directory: files that may be memories, and the folders they are in."""

    files: dict[str, Stat]
    folders: tuple[str, ...]


class TooLong(OSError):
    """A file larger than any memory."""


class Directory:
    """Files below one directory, by paths with slashes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ensure()

    def ensure(self) -> None:
        """Make the directory if it is not there; one that was there keeps its mode."""
        if not self.path.exists():
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync(self.path.parent)

    @contextlib.contextmanager
    def _folder(self, parts: tuple[str, ...], *, create: bool = False) -> Iterator[int]:
        """A descriptor of a folder below; OSError if it is not there or a link."""
        if any(part in ("", ".", "..") or "/" in part or "\0" in part for part in parts):
            raise OSError(errno.EINVAL, "The path leads elsewhere.")
        descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            for part in parts:
                try:
                    inner = os.open(part, _FOLDER, dir_fd=descriptor)
                except FileNotFoundError:
                    if not create:
                        raise
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=descriptor)
                    os.fsync(descriptor)
                    inner = os.open(part, _FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    def stat(self, path: str) -> Stat | None:
        """How a file is now; None if there is no regular file."""
        *folders, name = path.split("/")
        try:
            with self._folder(tuple(folders)) as folder:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                return None
            raise
        return _stat_of(found) if stat.S_ISREG(found.st_mode) else None

    def exists(self, path: str) -> bool:
        """Whether anything at all is there, a link included."""
        *folders, name = path.split("/")
        try:
            with self._folder(tuple(folders)) as folder:
                os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return False
        return True

    def read(self, path: str) -> tuple[bytes, Stat]:
        """A regular file's content; OSError for anything else."""
        *folders, name = path.split("/")
        with self._folder(tuple(folders)) as folder:
            flags = os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0)
            descriptor = os.open(name, flags, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "It is not a regular file.")
            data = file.read(FILE_BYTES + 1)
            if len(data) > FILE_BYTES:
                raise TooLong(errno.EFBIG, f"It is larger than {FILE_BYTES:,} bytes.")
            return data, _stat_of(os.fstat(descriptor))

    def write(self, path: str, data: bytes) -> Stat:
        """Put a file in its place, whatever was there; it is on disk when this returns."""
        *folders, name = path.split("/")
        with self._folder(tuple(folders), create=True) as folder:
            beside, found = self._beside(folder, data)
            os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
            return found

    def swap(self, path: str, data: bytes) -> tuple[Stat, str]:
        """Put a file in its place, and say where what was there is now: nothing is overwritten.

        Somebody may have saved the file a moment ago; what they wrote is then what was there.
        """
        *folders, name = path.split("/")
        with self._folder(tuple(folders), create=True) as folder:
            beside, found = self._beside(folder, data)
            displaced = beside if _exchange(folder, beside, name) else ""
            if not displaced:
                former = f"{_SWAPPED}{secrets.token_hex(8)}"
                with contextlib.suppress(FileNotFoundError):
                    os.rename(name, former, src_dir_fd=folder, dst_dir_fd=folder)
                    displaced = former
                os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
            return found, "/".join((*folders, displaced)) if displaced else ""

    def take_away(self, path: str) -> str:
        """Take a file from its place; where it is now, or nothing if it was not there."""
        *folders, name = path.split("/")
        with contextlib.suppress(FileNotFoundError), self._folder(tuple(folders)) as folder:
            former = f"{_SWAPPED}{secrets.token_hex(8)}"
            os.rename(name, former, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
            return "/".join((*folders, former))
        return ""

    def _beside(self, folder: int, data: bytes) -> tuple[str, Stat]:
        """A whole and durable file beside its place."""
        mark = secrets.token_hex(8)
        temporary, whole = _TEMPORARY + mark, _SWAPPED + mark
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK
        descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                # Not now: an edit in the same tick of the clock must have another time.
                before = os.fstat(descriptor).st_mtime_ns - SECOND
                os.utime(descriptor, ns=(before, before))
                os.fsync(descriptor)
                found = _stat_of(os.fstat(descriptor))
            os.rename(temporary, whole, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        return whole, found

    def remove(self, path: str) -> None:
        """Delete a file, if it is there."""
        *folders, name = path.split("/")
        with contextlib.suppress(FileNotFoundError), self._folder(tuple(folders)) as folder:
            os.unlink(name, dir_fd=folder)

    def set_aside(self, path: str, called: str = "") -> str:
        """Rename what is in the way; it keeps its content under a name that is no memory's."""
        *folders, name = path.split("/")
        with self._folder(tuple(folders)) as folder:
            aside = f"{called or name}.conflict-{secrets.token_hex(4)}"
            os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        return "/".join((*folders, aside))

    def scan(self) -> Scan:
        """All files that end in .md where memories live; links and hidden ones are passed by."""
        files: dict[str, Stat] = {}
        folders = []
        for top in FOLDERS:
            try:
                with self._folder(tuple(top.split("/"))) as outer:
                    inner = [entry.name for entry in _entries(outer) if _is_folder(entry)]
            except OSError:
                continue
            folders.append(top)
            for name in sorted(inner):
                with contextlib.suppress(OSError), self._folder((*top.split("/"), name)) as folder:
                    folders.append(f"{top}/{name}")
                    for entry in _entries(folder):
                        if entry.name.endswith(".md") and entry.is_file(follow_symlinks=False):
                            with contextlib.suppress(FileNotFoundError):
                                found = entry.stat(follow_symlinks=False)
                                files[f"{top}/{name}/{entry.name}"] = _stat_of(found)
        return Scan(files, tuple(folders))

    def tidy(self) -> list[str]:
        """Remove files that were never finished; those that a swap left behind, by path."""
        left = []
        for path in ("", *self.scan().folders):
            with self._folder(tuple(path.split("/")) if path else ()) as folder:
                with os.scandir(folder) as found:
                    names = [entry.name for entry in found]
                for name in names:
                    if name.startswith(_TEMPORARY):
                        os.unlink(name, dir_fd=folder)
                    elif name.startswith(_SWAPPED):
                        left.append(f"{path}/{name}" if path else name)
        return left

    def identity(self) -> str:
        """The directory's own id, given on first use: another directory is another copy."""
        known = self.known_identity()
        if known:
            return known
        identity = new_id()
        self.write(f"{OWN}/id", f"{identity}\n".encode())
        return identity

    def known_identity(self) -> str:
        """The id, or nothing for a directory that is new, or gone."""
        try:
            return self.read(f"{OWN}/id")[0].decode("ascii", "replace").strip()[:100]
        except OSError:
            return ""

    def lock(self) -> int | None:
        """Hold the lease: a descriptor to close, or None while another process holds it."""
        import fcntl

        with self._folder((OWN,), create=True) as folder:
            flags = os.O_RDWR | os.O_CREAT | _NO_LINK | getattr(os, "O_CLOEXEC", 0)
            descriptor = os.open("lease", flags, 0o600, dir_fd=folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor


_RENAME_EXCHANGE = 2


@functools.cache
def _renameat2() -> Any:
    """The system's call that swaps two names at once, where there is one."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return None
    call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return call


def _exchange(folder: int, one: str, other: str) -> bool:
    """Swap two files; False if the other is not there, or the system cannot."""
    call = _renameat2()
    if call is None:
        return False
    return not call(folder, one.encode(), folder, other.encode(), _RENAME_EXCHANGE)


def _entries(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        return [entry for entry in found if not entry.name.startswith(".")]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
