"""Replace files in use by finished files: all of them, or none.

Before the first file is replaced, a journal in the data directory lists all replacements and the
names under which the former files are kept. The journal is locked meanwhile. An unlocked journal
was left by a killed process. The process that finds it puts all former files back; if it is killed
as well, the next one does it again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import apsw

from commonplace.errors import CommonplaceError, Conflict, StorageUnavailable
from commonplace.storage import audit, operations
from commonplace.storage.database import Connection, sync_directory
from commonplace.storage.locking import try_lock
from commonplace.storage.ports import Contents
from commonplace.storage.sqlite.readonly import is_writable

EXCLUSIVE_SECONDS = 3.0
JOURNAL = "restoring.json"  # The journal, a file in the data directory while files are replaced.
_LOGS = ("-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class Swap:
    """The replacement of one file by a finished file."""

    live: Path
    """The file in use."""
    staged: Path
    """The finished file that replaces it."""
    former: Path
    """The new path of the replaced file."""
    existed: bool
    """Whether there was a file to replace."""

    @staticmethod
    def plan(live: Path, staged: Path, why: str) -> Swap:
        """Return a swap that keeps the former file under an unused name."""
        stamp = f".before-{why}-{time.strftime('%Y%m%dT%H%M%S')}"
        former = live.with_name(f"{live.stem}{stamp}{live.suffix}")
        while former.exists():
            former = former.with_name(f"{former.stem}x{live.suffix}")
        return Swap(live, staged, former, live.exists())

    def run(
        self,
        close: Callable[[], None],
        *,
        overwrite: bool = True,
        unchanged: Callable[[Connection], bool] = lambda _: True,
    ) -> bool:
        """Replace the file; return whether there was one. A kill leaves either file intact.

        `close` closes the file in this process. Raise an error if another process has the file
        open, or if `unchanged` returns false, because changes made meanwhile would be lost.
        """
        close()
        live, directory = self.live, self.live.parent
        if not live.exists():
            try:
                os.link(self.staged, live)  # Unlike a rename, a link never replaces a file.
                self.staged.unlink()
            except FileExistsError:
                raise Conflict(f"{live.name} already exists.", hint="Try again.") from None
            except OSError:
                self.staged.replace(live)  # The file system does not support links.
            sync_directory(directory)
            return False
        if not overwrite:
            raise Conflict(f"{live.name} already exists.", hint="Replace it with --overwrite.")
        with _exclusive(live) as connection:
            if not unchanged(connection):
                raise Conflict("The space was changed meanwhile.", hint="Try again.")
            try:
                os.link(live, self.former)
            except OSError:
                shutil.copy2(live, self.former)
            # A remaining log would be read as if it belonged to the new file.
            for suffix in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{live}{suffix}").replace(f"{self.former}{suffix}")
            sync_directory(directory)
            self.staged.replace(live)
            sync_directory(directory)
        close()
        return True

    def undo(self) -> None:
        """Put the former file back, however far the swap had come. The call can be repeated."""
        if self.staged.exists():
            if not self.existed and self.live.exists() and self.live.samefile(self.staged):
                self.live.unlink()
            # The kept file is a second link to the file that is still in place.
            self.former.unlink(missing_ok=True)
            self._move_logs_back()
            self.staged.unlink()
        elif self.former.exists():
            with _exclusive(self.live) if self.live.exists() else contextlib.nullcontext():
                self._delete_logs()
                self.former.replace(self.live)
            self._move_logs_back()
        elif not self.existed:
            if self.live.exists():
                with _exclusive(self.live):
                    self.live.unlink()
            self._delete_logs()
        else:
            self._move_logs_back()
        if self.live.parent.is_dir():
            sync_directory(self.live.parent)

    def _delete_logs(self) -> None:
        for suffix in _LOGS:
            Path(f"{self.live}{suffix}").unlink(missing_ok=True)

    def _move_logs_back(self) -> None:
        for suffix in _LOGS:
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self.former}{suffix}").replace(f"{self.live}{suffix}")


@contextlib.contextmanager
def journal(data: Path, swaps: Sequence[Swap]) -> Iterator[None]:
    """Write the journal for the block; if the block fails or is killed, all swaps are undone."""
    path = data / JOURNAL
    entries = [
        [*(str(each.relative_to(data)) for each in (swap.live, swap.staged, swap.former)),
         swap.existed]
        for swap in swaps
    ]  # fmt: skip
    part = path.with_name(f"{JOURNAL}.part")
    # Do not truncate the file: it may belong to another process.
    with part.open("a", encoding="utf-8") as stream:
        if not try_lock(stream.fileno()):
            raise _restore_running_error(data)
        stream.truncate(0)
        undo_interrupted(data)
        json.dump({"swaps": entries}, stream)
        stream.flush()
        os.fsync(stream.fileno())
        part.replace(path)
        sync_directory(data)
        try:
            yield
        except BaseException:
            _undo_all(data, swaps)
            raise
        path.unlink(missing_ok=True)
        sync_directory(data)


def undo_interrupted(data: Path) -> bool:
    """Undo the swaps of a killed process; return whether there were any.

    A journal that cannot be read stays, and `doctor` reports it.
    """
    path = data / JOURNAL
    if not path.exists() or not is_writable(data):
        return False
    try:
        with path.open("r+", encoding="utf-8") as stream:
            if not try_lock(stream.fileno()):
                raise _restore_running_error(data)
            swaps = _read_journal(data, stream)
            if swaps is None or not path.exists():
                return False
            try:
                _undo_all(data, swaps)
            except OSError as error:
                raise StorageUnavailable(
                    f"An interrupted restore cannot be undone: {error.strerror or error}.",
                    hint="Check the disk and the permissions, and try again.",
                ) from error
    except FileNotFoundError:  # Another process has just recovered.
        return False
    return True


def _undo_all(data: Path, swaps: Sequence[Swap]) -> None:
    for swap in swaps:
        swap.undo()
    (data / JOURNAL).unlink(missing_ok=True)
    sync_directory(data)


def _read_journal(data: Path, stream: IO[str]) -> list[Swap] | None:
    """Return the swaps of a journal; None if it is damaged or names files outside the directory."""
    try:
        swaps = [
            Swap(data / live, data / staged, data / former, bool(existed))
            for live, staged, former, existed in json.load(stream)["swaps"]
        ]
    except (ValueError, KeyError, TypeError):
        return None
    inside = all(
        data in each.resolve().parents or data.resolve() in each.resolve().parents
        for swap in swaps
        for each in (swap.live, swap.staged, swap.former)
    )
    return swaps if inside else None


def delete_file(live: Path, *, unused: str | None = None) -> None:
    """Delete a file that no process has open, and the files that belong to it.

    If `unused` is the name of its space, delete it only if nothing was ever stored in it.
    """
    # Check first without the lock, because others would have to wait for it.
    if unused is not None:
        with contextlib.closing(Connection(str(live), apsw.SQLITE_OPEN_READWRITE)) as connection:
            _refuse_used(connection, live, unused)
    with _exclusive(live) as connection:
        if unused is not None:
            _refuse_used(connection, live, unused)
        live.unlink()
    for each in live.parent.glob(f"{live.name}-*"):
        each.unlink(missing_ok=True)
    sync_directory(live.parent)


def _refuse_used(connection: Connection, live: Path, space: str) -> None:
    if (
        operations.first_and_last(connection, space) != (0, 0)
        or audit.read_head(connection, space)[0]
    ):
        raise StorageUnavailable(
            f"{live.name} is not deleted: something is stored in it.",
            hint="Delete the space instead, if its content is not needed.",
        )


def close_space(library: Contents, space: str) -> None:
    """Close the space in this process, after waiting briefly for calls that use it."""
    until = time.monotonic() + EXCLUSIVE_SECONDS
    while True:
        try:
            library.drop(space)
            return
        except StorageUnavailable:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        except CommonplaceError:
            return  # The read counts could not be written: the file is damaged.


def _restore_running_error(data: Path) -> StorageUnavailable:
    return StorageUnavailable(
        f"A backup is being restored into {data}.",
        hint="Wait until it has finished, and try again.",
    )


@contextlib.contextmanager
def _exclusive(live: Path) -> Iterator[Connection]:
    """Lock a file against all other processes, with an empty write-ahead log."""
    connection = Connection(str(live), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(int(EXCLUSIVE_SECONDS * 1_000))
        try:
            connection.pragma("locking_mode", "exclusive")
            # SQLite can leave WAL mode only while no other connection has the file open.
            connection.pragma("journal_mode", "delete")
            connection.execute("BEGIN EXCLUSIVE")
        except (apsw.BusyError, apsw.LockedError) as error:
            raise StorageUnavailable(
                f"Another process has {live.name} open.",
                hint="Stop that process ('commonplace stop' stops a server) and try again.",
            ) from error
        except apsw.Error:
            pass  # The file is too damaged to be locked or used.
        try:
            yield connection
        except BaseException:
            with contextlib.suppress(apsw.Error):
                connection.execute("ROLLBACK")
                connection.pragma("journal_mode", "wal")
            raise
    finally:
        connection.close(True)
