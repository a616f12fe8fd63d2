"""Putting finished files in the place of those that are in use: all of them, or none.

Before the first is put in place, a journal in the data directory says which are to be, and under
which names the former ones are kept. It is held locked while that goes on. Whoever finds one that
nobody holds finds what a kill has left, and puts everything back as it was; a kill while doing so
leaves as much for the next.
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

from commonplace.errors import Conflict, StorageUnavailable
from commonplace.storage.database import Connection, sync_directory
from commonplace.storage.locking import try_lock
from commonplace.storage.sqlite.readonly import writable

ALONE_SECONDS = 3.0
JOURNAL = "restoring.json"  # in the data directory while files are put in place
_LOGS = ("-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class Swap:
    """A finished file, the place it is to have, and the name that the former one there gets."""

    live: Path
    aside: Path
    kept: Path
    there: bool
    """Whether there was a file to be replaced."""

    def undo(self) -> None:
        """Put back what was there, however far it had come; twice is as good as once."""
        if self.aside.exists():
            if not self.there and self.live.exists() and self.live.samefile(self.aside):
                self.live.unlink()
            self.kept.unlink(missing_ok=True)  # another name of the file that is still in place
            self._logs_back()
            self.aside.unlink()
        elif self.kept.exists():
            with _alone(self.live) if self.live.exists() else contextlib.nullcontext():
                self._drop_logs()
                self.kept.replace(self.live)
            self._logs_back()
        elif not self.there:
            if self.live.exists():
                with _alone(self.live):
                    self.live.unlink()
            self._drop_logs()
        else:
            self._logs_back()
        if self.live.parent.is_dir():
            sync_directory(self.live.parent)

    def _drop_logs(self) -> None:
        for suffix in _LOGS:
            Path(f"{self.live}{suffix}").unlink(missing_ok=True)

    def _logs_back(self) -> None:
        for suffix in _LOGS:
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self.kept}{suffix}").replace(f"{self.live}{suffix}")


def planned(live: Path, aside: Path, why: str) -> Swap:
    """A swap under names that are free."""
    stamp = f".before-{why}-{time.strftime('%Y%m%dT%H%M%S')}"
    kept = live.with_name(f"{live.stem}{stamp}{live.suffix}")
    while kept.exists():
        kept = kept.with_name(f"{kept.stem}x{live.suffix}")
    return Swap(live, aside, kept, live.exists())


@contextlib.contextmanager
def journal(data: Path, swaps: Sequence[Swap]) -> Iterator[None]:
    """While files are put in place: if the block fails, or is killed, all is put back."""
    path = data / JOURNAL
    names = [[str(each.relative_to(data)) for each in (swap.live, swap.aside, swap.kept)]
             for swap in swaps]  # fmt: skip
    noted = [[*each, swap.there] for each, swap in zip(names, swaps, strict=True)]
    aside = path.with_name(f"{JOURNAL}.part")
    with aside.open("a", encoding="utf-8") as stream:
        if not try_lock(
            stream.fileno()
        ):  # of another one that is just beginning, and is not to be emptied
            raise _under_way(data)
        stream.truncate(0)
        recover(data)
        json.dump({"swaps": noted}, stream)
        stream.flush()
        os.fsync(stream.fileno())
        aside.replace(path)
        sync_directory(data)
        try:
            yield
        except BaseException:
            _undo(data, swaps)
            raise
        path.unlink(missing_ok=True)
        sync_directory(data)


def recover(data: Path) -> bool:
    """Put back what was there before files were to be swapped and it was never ended.

    Whether there was such a thing. One whose journal cannot be read is left for the doctor.
    """
    path = data / JOURNAL
    if not path.exists() or not writable(data):
        return False
    try:
        with path.open("r+", encoding="utf-8") as stream:
            if not try_lock(stream.fileno()):
                raise _under_way(data)
            swaps = _read(data, stream)
            if swaps is None or not path.exists():
                return False
            try:
                _undo(data, swaps)
            except OSError as error:
                raise StorageUnavailable(
                    f"An interrupted restore cannot be taken back: {error.strerror or error}.",
                    hint="Look at the disk, and try again.",
                ) from error
    except FileNotFoundError:  # somebody else has just done it
        return False
    return True


def _undo(data: Path, swaps: Sequence[Swap]) -> None:
    for swap in swaps:
        swap.undo()
    (data / JOURNAL).unlink(missing_ok=True)
    sync_directory(data)


def _read(data: Path, stream: IO[str]) -> list[Swap] | None:
    try:
        noted = json.load(stream)["swaps"]
        swaps = [
            Swap(data / live, data / aside, data / kept, bool(there))
            for live, aside, kept, there in noted
        ]
    except (ValueError, KeyError, TypeError):
        return None
    inside = all(
        data in each.resolve().parents or data.resolve() in each.resolve().parents
        for swap in swaps
        for each in (swap.live, swap.aside, swap.kept)
    )
    return swaps if inside else None


def _under_way(data: Path) -> StorageUnavailable:
    return StorageUnavailable(
        f"A backup is being restored into {data}.", hint="Wait until it is over, and try again."
    )


def swap_in(
    live: Path,
    aside: Path,
    why: str,
    let_go: Callable[[], None],
    *,
    overwrite: bool,
    unchanged: Callable[[Connection], bool] = lambda _: True,
    kept: Path | None = None,
) -> Path | None:
    """Make a finished file the one in use; where the former one is kept, if there was one."""
    let_go()
    if not live.exists():
        try:
            os.link(aside, live)  # unlike a rename, never over a file that came meanwhile
            aside.unlink()
        except FileExistsError:
            raise Conflict(f"There is a {live.name}.", hint="Try again.") from None
        except OSError:
            aside.replace(live)  # a file system without links
        sync_directory(live.parent)
        return None
    if not overwrite:
        raise Conflict(f"There is a {live.name}.", hint="Say --overwrite to replace it.")
    kept = kept or planned(live, aside, why).kept
    with _alone(live) as connection:
        if not unchanged(connection):
            raise Conflict("The space was changed meanwhile.", hint="Try again.")
        try:
            os.link(live, kept)
        except OSError:
            shutil.copy2(live, kept)
        # A log that stayed would be read as if it belonged to the new file.
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{live}{suffix}").replace(f"{kept}{suffix}")
        sync_directory(live.parent)
        aside.replace(live)
        sync_directory(live.parent)
    let_go()
    return kept


@contextlib.contextmanager
def _alone(live: Path) -> Iterator[Connection]:
    """Keep every other process out of a file, with nothing left in its write-ahead log."""
    connection = Connection(str(live), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(int(ALONE_SECONDS * 1_000))
        try:
            connection.pragma("locking_mode", "exclusive")
            # Leaving the log is possible only while no other connection has the file open.
            connection.pragma("journal_mode", "delete")
            connection.execute("BEGIN EXCLUSIVE")
        except (apsw.BusyError, apsw.LockedError) as error:
            raise StorageUnavailable(
                f"Another process has {live.name} open.", hint="Stop it, and try again."
            ) from error
        except apsw.Error:
            pass  # too damaged to lock, and so to be used by anybody
        try:
            yield connection
        except BaseException:
            with contextlib.suppress(apsw.Error):
                connection.execute("ROLLBACK")
                connection.pragma("journal_mode", "wal")
            raise
    finally:
        connection.close(True)
