"""File access within the memory directory.

Each part of a path is opened separately and must not be a symbolic link, so that nothing outside
the directory is read or written. Windows cannot open folders; there each part is checked instead.
Files are written under a temporary name, synced, and renamed.
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

from commonplace.storage.database import new_id
from commonplace.storage.directories import make_private
from commonplace.storage.locking import try_lock

STATE_FOLDER = ".commonplace"  # the folder of the lock file and the directory's id
_ID = f"{STATE_FOLDER}/id"
FILE_BYTES = 4_200_000  # room for a million characters and the frontmatter
FOLDERS = ("entities", "episodes", "archive/entities", "archive/episodes")
NANOSECONDS_PER_SECOND = 1_000_000_000
_TEMPORARY = ".tmp-"  # prefix of an incomplete file
_SWAPPED = ".swap-"  # prefix of a complete file that is about to be renamed, or was replaced
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_OPEN_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_FOLLOW
_JUNCTION_TAG = 0xA0000003
HAS_DIR_FD = os.open in os.supports_dir_fd and bool(_NO_FOLLOW)


class Stat(NamedTuple):
    """The metadata of a file by which a change is detected."""

    size: int
    mtime: int
    inode: int


def _stat_of(found: os.stat_result) -> Stat:
    # The database stores signed 64-bit integers; an inode may be larger.
    return Stat(found.st_size, found.st_mtime_ns, found.st_ino & 0x7FFF_FFFF_FFFF_FFFF)


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a scan: the files that may be memories, and their folders."""

    files: dict[str, Stat]
    folders: tuple[str, ...]


class _FolderByDescriptor:
    """A folder that is open as a descriptor, which stays valid if the folder is renamed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def at(cls, path: Path) -> _FolderByDescriptor:
        """Return the directory itself, which may be reached by links."""
        return cls(os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)))

    def open_inner(self, name: str) -> _FolderByDescriptor:
        return _FolderByDescriptor(os.open(name, _OPEN_FOLDER, dir_fd=self._descriptor))

    def make(self, name: str) -> None:
        os.mkdir(name, 0o700, dir_fd=self._descriptor)

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        return os.open(name, flags | _NO_FOLLOW, mode, dir_fd=self._descriptor)

    def stat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def rename(self, name: str, other: str) -> None:
        os.rename(name, other, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def exchange(self, name: str, other: str) -> bool:
        return _exchange(self._descriptor, name, other)

    def unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self._descriptor)

    def entries(self) -> list[os.DirEntry[str]]:
        with os.scandir(self._descriptor) as found:
            return list(found)

    def stat_entry(self, entry: os.DirEntry[str]) -> os.stat_result:
        return entry.stat(follow_symlinks=False)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class _FolderByPath:
    """A folder that is accessed by its path, for systems that cannot open folders."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def at(cls, path: Path) -> _FolderByPath:
        """Return the directory itself, which may be reached by links."""
        if not path.is_dir():
            raise FileNotFoundError(errno.ENOENT, "The directory does not exist.")
        return cls(path)

    def open_inner(self, name: str) -> _FolderByPath:
        found = os.lstat(self._path / name)
        if not stat.S_ISDIR(found.st_mode) or _is_junction(found):
            raise NotADirectoryError(errno.ENOTDIR, "A part of the path is not a folder.")
        return _FolderByPath(self._path / name)

    def make(self, name: str) -> None:
        (self._path / name).mkdir(0o700)

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        path = self._path / name
        with contextlib.suppress(FileNotFoundError):
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode) or _is_junction(found):
                raise OSError(errno.ELOOP, "The file is a symbolic link.")
        return os.open(path, flags, mode)

    def stat(self, name: str) -> os.stat_result:
        return os.lstat(self._path / name)

    def rename(self, name: str, other: str) -> None:
        (self._path / name).replace(self._path / other)

    def exchange(self, name: str, other: str) -> bool:
        del name, other
        return False

    def unlink(self, name: str) -> None:
        (self._path / name).unlink()

    def date(self, name: str, at: int) -> None:
        os.utime(self._path / name, ns=(at, at))

    def entries(self) -> list[os.DirEntry[str]]:
        with os.scandir(self._path) as found:
            return list(found)

    def stat_entry(self, entry: os.DirEntry[str]) -> os.stat_result:
        return os.lstat(entry.path)  # on Windows an entry has no inode

    def sync(self) -> None:
        """Do nothing: Windows cannot sync folders."""

    def close(self) -> None:
        """Do nothing: no descriptor is open."""


_Folder = _FolderByDescriptor | _FolderByPath


def _is_junction(found: os.stat_result) -> bool:
    """Return whether a folder is a junction, which Windows does not report as a symbolic link."""
    return getattr(found, "st_reparse_tag", 0) == _JUNCTION_TAG


class Directory:
    """Files in one directory; paths are relative and use slashes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ensure()

    def ensure(self) -> None:
        """Create the directory if it is missing."""
        if not self.path.exists():
            make_private(self.path)
            _sync(self.path.parent)

    @contextlib.contextmanager
    def _folder(self, parts: tuple[str, ...], *, create: bool = False) -> Iterator[_Folder]:
        """Open a folder; raise OSError if it is missing or a symbolic link."""
        if any(part in ("", ".", "..") or set(part) & set("/\\:\0") for part in parts):
            raise OSError(errno.EINVAL, "The path is not within the directory.")
        folder: _Folder = (_FolderByDescriptor if HAS_DIR_FD else _FolderByPath).at(self.path)
        try:
            for part in parts:
                try:
                    inner: _Folder = folder.open_inner(part)
                except FileNotFoundError:
                    if not create:
                        raise
                    with contextlib.suppress(FileExistsError):
                        folder.make(part)
                    folder.sync()
                    inner = folder.open_inner(part)
                folder.close()
                folder = inner
            yield folder
        finally:
            folder.close()

    @contextlib.contextmanager
    def _parent(self, path: str, *, create: bool = False) -> Iterator[tuple[_Folder, str]]:
        """Open the folder of a file; yield the folder and the name of the file."""
        *folders, name = path.split("/")
        with self._folder(tuple(folders), create=create) as folder:
            yield folder, name

    def _rename(self, path: str, name: str) -> str:
        """Rename a file within its folder, and return its new path."""
        with self._parent(path) as (folder, former):
            folder.rename(former, name)
            folder.sync()
        return _sibling_path(path, name)

    def stat(self, path: str) -> Stat | None:
        """Return the metadata of a regular file, or None if there is none."""
        try:
            with self._parent(path) as (folder, name):
                found = folder.stat(name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                return None
            raise
        return _stat_of(found) if stat.S_ISREG(found.st_mode) else None

    def exists(self, path: str) -> bool:
        """Return whether the path exists, also as a broken symbolic link."""
        try:
            with self._parent(path) as (folder, name):
                folder.stat(name)
        except OSError:
            return False
        return True

    def read(self, path: str) -> tuple[bytes, Stat]:
        """Return the content and metadata of a regular file; raise OSError for anything else."""
        with self._parent(path) as (folder, name):
            flags = os.O_RDONLY | _BINARY | getattr(os, "O_NONBLOCK", 0)
            descriptor = folder.open(name, flags)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "The path is not a regular file.")
            data = file.read(FILE_BYTES + 1)
            if len(data) > FILE_BYTES:
                raise OSError(errno.EFBIG, f"The file is larger than {FILE_BYTES:,} bytes.")
            return data, _stat_of(os.fstat(descriptor))

    def write(self, path: str, data: bytes) -> Stat:
        """Create or replace a file, and sync it to the disk."""
        with self._parent(path, create=True) as (folder, name):
            temporary, found = self._write_temporary(folder, data)
            try:
                folder.rename(temporary, name)
            except OSError:
                folder.unlink(temporary)
                raise
            folder.sync()
            return found

    def swap(self, path: str, data: bytes) -> tuple[Stat, str]:
        """Create or replace a file; also return the path to which the old file was moved, or "".

        The old file is not deleted, because an editor may have saved it a moment ago.
        """
        with self._parent(path, create=True) as (folder, name):
            temporary, found = self._write_temporary(folder, data)
            displaced = temporary if folder.exchange(temporary, name) else ""
            if not displaced:
                former = f"{_SWAPPED}{secrets.token_hex(8)}"
                with contextlib.suppress(FileNotFoundError):
                    folder.rename(name, former)
                    displaced = former
                folder.rename(temporary, name)
            folder.sync()
            return found, _sibling_path(path, displaced) if displaced else ""

    def move_away(self, path: str) -> str:
        """Rename a file to a hidden name; return the new path, or "" if there is no file."""
        with contextlib.suppress(FileNotFoundError):
            return self._rename(path, f"{_SWAPPED}{secrets.token_hex(8)}")
        return ""

    def _write_temporary(self, folder: _Folder, data: bytes) -> tuple[str, Stat]:
        """Write and sync a file under a hidden name; return the name and the metadata."""
        mark = secrets.token_hex(8)
        temporary, complete = _TEMPORARY + mark, _SWAPPED + mark
        descriptor = folder.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                # Set the time one second back: an edit in the same clock tick gets another time.
                before = os.fstat(descriptor).st_mtime_ns - NANOSECONDS_PER_SECOND
                if isinstance(folder, _FolderByDescriptor):
                    os.utime(descriptor, ns=(before, before))
                os.fsync(descriptor)
            if isinstance(folder, _FolderByPath):
                folder.date(temporary, before)
            found = _stat_of(folder.stat(temporary))
            folder.rename(temporary, complete)
        except BaseException:
            with contextlib.suppress(OSError):
                folder.unlink(temporary)
            raise
        return complete, found

    def remove(self, path: str) -> None:
        """Delete a file if it exists."""
        with contextlib.suppress(FileNotFoundError), self._parent(path) as (folder, name):
            folder.unlink(name)

    def set_aside(self, path: str, new_name: str = "") -> str:
        """Rename a file so that it no longer belongs to a memory; return the new path."""
        name = new_name or path.rpartition("/")[2]
        return self._rename(path, f"{name}.conflict-{secrets.token_hex(4)}")

    def scan(self) -> Scan:
        """Scan the folders of memories for .md files; skip links and hidden files."""
        files: dict[str, Stat] = {}
        folders = []
        for top in FOLDERS:
            try:
                with self._folder(tuple(top.split("/"))) as outer:
                    inner = [entry.name for entry in _visible_entries(outer) if _is_folder(entry)]
            except OSError:
                continue
            folders.append(top)
            for name in sorted(inner):
                with contextlib.suppress(OSError), self._folder((*top.split("/"), name)) as folder:
                    folders.append(f"{top}/{name}")
                    for entry in _visible_entries(folder):
                        if entry.name.endswith(".md") and entry.is_file(follow_symlinks=False):
                            with contextlib.suppress(FileNotFoundError):
                                found = _stat_of(folder.stat_entry(entry))
                                files[f"{top}/{name}/{entry.name}"] = found
        return Scan(files, tuple(folders))

    def clean_up(self) -> list[str]:
        """Remove incomplete files; return the paths of complete hidden files that a crash left."""
        left = []
        for path in ("", *self.scan().folders):
            with self._folder(tuple(path.split("/")) if path else ()) as folder:
                for name in [entry.name for entry in folder.entries()]:
                    if name.startswith(_TEMPORARY):
                        folder.unlink(name)
                    elif name.startswith(_SWAPPED):
                        left.append(f"{path}/{name}" if path else name)
        return left

    def id(self) -> str:
        """Return the id of the directory; create it on first use, or if the directory is a copy."""
        known = self.stored_id() or new_id()
        if not self._has_valid_id():
            inode = self.write(_ID, f"{known}\n".encode()).inode
            with self._parent(_ID) as (folder, name):
                descriptor = folder.open(name, os.O_WRONLY | os.O_APPEND | _BINARY)
            with os.fdopen(descriptor, "wb") as file:
                file.write(f"{inode}\n".encode())
                file.flush()
                os.fsync(descriptor)
        return known

    def stored_id(self) -> str:
        """Return the id of the directory, or "" if there is none or the directory is a copy.

        The id file also contains its own inode, by which a copy is detected. A copy with the same
        id would share the records of files with this directory, and each would undo the other's
        edits.
        """
        known, mark, inode = self._id_file()
        return known if mark in ("", inode) else ""

    def _has_valid_id(self) -> bool:
        known, mark, inode = self._id_file()
        return bool(known) and mark == inode

    def _id_file(self) -> tuple[str, str, str]:
        """Return the id, the inode in the id file, and the actual inode of the id file."""
        try:
            data, found = self.read(_ID)
        except OSError:
            return "", "", ""
        known, _, mark = data.decode("ascii", "replace")[:200].partition("\n")
        return known.strip()[:100], mark.strip(), str(found.inode)

    def lock(self) -> int | None:
        """Take the lock; return its descriptor, or None if another process holds it."""
        with self._folder((STATE_FOLDER,), create=True) as folder:
            flags = os.O_RDWR | os.O_CREAT | _BINARY | getattr(os, "O_CLOEXEC", 0)
            descriptor = folder.open("lease", flags)
        if try_lock(descriptor):
            return descriptor
        os.close(descriptor)
        return None


def _sibling_path(path: str, name: str) -> str:
    return path[: path.rfind("/") + 1] + name


_RENAME_EXCHANGE = 2


@functools.cache
def _renameat2() -> Any:
    """Return the system call that exchanges two names atomically, or None."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return None
    call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return call


def _exchange(folder: int, one: str, other: str) -> bool:
    """Exchange two files; False if one is missing or the system does not support it."""
    call = _renameat2()
    if call is None:
        return False
    return not call(folder, one.encode(), folder, other.encode(), _RENAME_EXCHANGE)


def _visible_entries(folder: _Folder) -> list[os.DirEntry[str]]:
    return [entry for entry in folder.entries() if not entry.name.startswith(".")]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
