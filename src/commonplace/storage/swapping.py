"""Putting a finished file in the place of one that is in use."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw

from commonplace.errors import Conflict, StorageUnavailable
from commonplace.storage.database import sync_directory

ALONE_SECONDS = 3.0


def swap_in(
    live: Path,
    aside: Path,
    why: str,
    let_go: Callable[[], None],
    *,
    overwrite: bool,
    unchanged: Callable[[apsw.Connection], bool] = lambda _: True,
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
    stamp = f".before-{why}-{time.strftime('%Y%m%dT%H%M%S')}"
    kept = live.with_name(f"{live.stem}{stamp}{live.suffix}")
    while kept.exists():
        kept = kept.with_name(f"{kept.stem}x{live.suffix}")
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
def _alone(live: Path) -> Iterator[apsw.Connection]:
    """Keep every other process out of a file, with nothing left in its write-ahead log."""
    connection = apsw.Connection(str(live), flags=apsw.SQLITE_OPEN_READWRITE)
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
