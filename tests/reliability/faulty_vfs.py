"""Disks that fail: one that records what a power cut would lose, one that refuses, one that fills.

The first two are apsw VFS shims around SQLite's own. The third replaces the system call below it,
so that SQLite meets a real ENOSPC with a real short write.

What the power cut model assumes, as SQLite documents it for Linux:
- a write is on disk once a sync of its file has returned; until then it may be there, or not, or
  any of its 512-byte sectors may be, independently of all others (a write does not harm bytes
  outside its range: SQLITE_IOCAP_POWERSAFE_OVERWRITE);
- a new or deleted name is on disk once its directory was synced, which SQLite's VFS does on the
  first sync of a journal or WAL handle and on a delete that asks for it; until then the old file
  or the new one may be there;
- a second name for a file, and a sync of the directory by ourselves, go by the same rules;
- the -shm file is volatile; the directory itself existed before.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import apsw

from commonplace.storage import database

SECTOR = 512
LOSSES = ("drop", "prefix", "subset", "torn")
Loss = Literal["drop", "prefix", "subset", "torn"]

_kept: list[object] = []  # SQLite holds pointers into these


class Disk:
    """What a shim tells; a disk may raise to make the call fail before it is done."""

    def opened(self, path: str, new: bool) -> None: ...
    def write(self, path: str, offset: int, data: bytes) -> None: ...
    def truncate(self, path: str, size: int) -> None: ...
    def before_sync(self, path: str) -> int:
        return 0

    def synced(self, path: str, mark: int, directory: bool) -> None: ...
    def delete(self, path: str, sync: bool) -> None: ...
    def linked(self, path: str, name: str) -> None: ...
    def directory_synced(self, path: str) -> None: ...


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: apsw.URIFilename | str | None, flags: list[int]) -> None:
        named = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._path = named or ""
        self._disk = disk
        lasting = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_MAIN_DB
        self._told = bool(named) and bool(flags[0] & lasting)
        self._directory_due = bool(flags[0] & lasting & ~apsw.SQLITE_OPEN_MAIN_DB)
        new = not (named and Path(named).exists())
        super().__init__("unix", name, flags)
        if self._told:
            disk.opened(self._path, new)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self._told:
            self._disk.write(self._path, offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        if self._told:
            self._disk.truncate(self._path, newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        if not self._told:
            return super().xSync(flags)
        mark = self._disk.before_sync(self._path)
        super().xSync(flags)
        self._disk.synced(self._path, mark, self._directory_due)
        self._directory_due = False
        return None


class _Shim(apsw.VFS):
    def __init__(self, name: str, disk: Disk) -> None:
        self._disk = disk
        super().__init__(name, "unix", makedefault=True)

    def xOpen(self, name: apsw.URIFilename | str | None, flags: list[int]) -> _File:
        return _File(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self._disk.delete(filename, syncdir)
        super().xDelete(filename, syncdir)


@contextlib.contextmanager
def mounted(disk: Disk) -> Iterator[None]:
    """Every connection that is opened in the block works on this disk.

    So does what the storage does beside SQLite: giving a new file its name, and making that last.
    """
    shim = _Shim(f"shim-{len(_kept)}", disk)
    _kept.append(shim)
    link, sync_directory = os.link, database.sync_directory

    def linking(source: Path, target: Path) -> None:
        link(source, target)
        disk.linked(str(source), str(target))

    def syncing(directory: Path) -> None:
        sync_directory(directory)
        disk.directory_synced(str(directory))

    os.link, database.sync_directory = linking, syncing  # type: ignore[assignment]
    try:
        yield
    finally:
        os.link, database.sync_directory = link, sync_directory
        apsw.set_default_vfs("unix")


# Power cuts


@dataclass(eq=False)
class _Inode:
    """One file's content: what a power cut keeps, and what it may lose."""

    kept: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, int, bytes | None]] = field(default_factory=list)


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    """A write, or a truncation where there is no data."""
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


@dataclass(frozen=True, slots=True)
class _Step:
    kind: Literal["open", "write", "truncate", "sync", "delete", "link", "settle"]
    path: str
    offset: int = 0
    data: bytes = b""
    directory: bool = False
    source: str = ""


class Recorder(Disk):
    """Remembers every step in order, so that any moment's power cut can be built."""

    def __init__(self, *, lying_sync: bool = False) -> None:
        self.steps: list[_Step] = []
        self._lying = lying_sync

    @property
    def position(self) -> int:
        """How many steps there were until now."""
        return len(self.steps)

    def opened(self, path: str, new: bool) -> None:
        # A new file is made by us before SQLite sees it: its first opening is its creation.
        if new or not any(step.path == path for step in self.steps):
            self.steps.append(_Step("open", path))

    def write(self, path: str, offset: int, data: bytes) -> None:
        self.steps.append(_Step("write", path, offset, data))

    def truncate(self, path: str, size: int) -> None:
        self.steps.append(_Step("truncate", path, size))

    def before_sync(self, path: str) -> int:
        return len(self.steps)

    def synced(self, path: str, mark: int, directory: bool) -> None:
        if not self._lying:
            self.steps.append(_Step("sync", path, mark, directory=directory))

    def delete(self, path: str, sync: bool) -> None:
        self.steps.append(_Step("delete", path, directory=sync))

    def linked(self, path: str, name: str) -> None:
        self.steps.append(_Step("link", name, source=path))

    def directory_synced(self, path: str) -> None:
        if not self._lying:
            self.steps.append(_Step("settle", path, directory=True))


class Replay:
    """Goes through a recording step by step; at each, the power may be cut."""

    def __init__(self, recorder: Recorder) -> None:
        self._steps = recorder.steps
        self._at = 0
        self._current: dict[str, _Inode | None] = {}
        self._durable: dict[str, _Inode | None] = {}

    def advance(self, cut: int) -> None:
        """Go on to where `cut` steps were done."""
        assert cut >= self._at, "time goes forward"
        for number in range(self._at, cut):
            self._do(number, self._steps[number])
        self._at = cut

    def _do(self, number: int, step: _Step) -> None:
        name = os.path.basename(step.path)  # noqa: PTH119 - a hundred thousand times
        inode = self._current.get(name)
        match step.kind:
            case "open":
                self._current[name] = _Inode()
            case "write" if inode is not None:
                inode.pending.append((number, step.offset, step.data))
            case "truncate" if inode is not None:
                inode.pending.append((number, step.offset, None))
            case "sync" if inode is not None:
                for issued, offset, data in inode.pending:
                    if issued < step.offset:
                        _apply(inode.kept, offset, data)
                inode.pending = [each for each in inode.pending if each[0] >= step.offset]
            case "delete":
                self._current[name] = None
            case "link":
                self._current[name] = self._current[os.path.basename(step.source)]  # noqa: PTH119
        if step.directory:
            self._durable = dict(self._current)

    def image(self, loss: Loss, chance: random.Random) -> dict[str, bytes]:
        """The files by name, as they may be after a power cut now."""
        files: dict[str, bytes] = {}
        for name in sorted(self._current.keys() | self._durable.keys()):
            old = loss == "drop" or chance.random() < 0.5
            inode = (self._durable if old else self._current).get(name)
            if inode is not None:
                files[name] = bytes(_survived(inode, loss, chance))
        return files


def _survived(inode: _Inode, loss: Loss, chance: random.Random) -> bytearray:
    content = bytearray(inode.kept)
    if loss == "drop":
        return content
    if loss == "prefix":
        for _, offset, data in inode.pending[: chance.randint(0, len(inode.pending))]:
            _apply(content, offset, data)
        return content
    for _, offset, data in inode.pending:
        if data is None or loss == "subset":
            if chance.random() < 0.5:
                _apply(content, offset, data)
            continue
        # Sectors are those of the disk, so a write that starts inside one tears at its end.
        start = 0
        while start < len(data):
            stop = min(len(data), start + SECTOR - (offset + start) % SECTOR)
            if chance.random() < 0.5:
                _apply(content, offset + start, data[start:stop])
            start = stop
    return content


# Failing syncs


class FailingSync(Disk):
    """Fails one sync after a given number of good ones."""

    def __init__(self) -> None:
        self.syncs = 0
        self.failures = 0
        self.reachable = 0  # of the syncs, those at which a failure was possible
        self._left: int | None = None

    def fail_after(self, good: int | None) -> None:
        """Let this many syncs pass, fail one, then be well again."""
        self._left = good

    def before_sync(self, path: str) -> int:
        self.syncs += 1
        if self._left is not None:
            if self._left == 0:
                self._left = None
                self.failures += 1
                raise apsw.IOError("the disk did not take it")
            self._left -= 1
        return 0


# Full disks

_PWRITE = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t,
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int64,
    use_errno=True,
)


class SmallDisk:
    """A directory that holds only so many bytes; a write that does not fit is cut short."""

    def __init__(self, directory: Path, free: int) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self.refusals: dict[str, int] = {}
        self.capacity = self._used() + free

    def _used(self) -> int:
        return sum(entry.stat().st_size for entry in os.scandir(self._directory))

    def room(self, descriptor: int, size: int, offset: int) -> int:
        """How much of a write fits."""
        with self._lock:
            grows = offset + size - os.fstat(descriptor).st_size
            missing = grows - (self.capacity - self._used())
            if grows <= 0 or missing <= 0:
                return size
            name = Path(f"/proc/self/fd/{descriptor}").readlink().name
            suffix = name.rpartition("-")[2] if "-" in name else "db"
            self.refusals[suffix] = self.refusals.get(suffix, 0) + 1
            return max(0, size - missing)


@contextlib.contextmanager
def filling(disk: SmallDisk) -> Iterator[None]:
    """SQLite's writes in the block meet this disk's limit as ENOSPC."""
    unix = apsw.VFS(f"plain-{len(_kept)}", "unix")
    address = unix.xGetSystemCall("pwrite64")
    assert address is not None, "this build of SQLite does not write with pwrite64"
    real = _PWRITE(address)

    def pwrite(descriptor: int, data: int, size: int, offset: int) -> int:
        fits = disk.room(descriptor, size, offset)
        if fits == 0:
            ctypes.set_errno(errno.ENOSPC)
            return -1
        return int(real(descriptor, data, fits, offset))

    replaced = _PWRITE(pwrite)
    _kept.extend((unix, real, replaced))
    pointer = ctypes.cast(replaced, ctypes.c_void_p).value
    assert pointer is not None
    unix.xSetSystemCall("pwrite64", pointer)
    try:
        yield
    finally:
        unix.xSetSystemCall("pwrite64", address)
