"""Private directories, and files that are replaced atomically."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_PART = re.compile(r"\..+\.([0-9]{1,10})\.[0-9a-f]{8}\.part", re.DOTALL)


def make_private(directory: Path) -> None:
    """Create a directory and its missing parents with mode 0700; existing ones keep their mode."""
    for missing in reversed(
        [each for each in (directory, *directory.parents) if not each.exists()]
    ):
        missing.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def replace_file(path: Path, *, mode: int = 0o600, only_new: bool = False) -> Iterator[BinaryIO]:
    """Open a stream whose content replaces the file atomically and durably when the block ends.

    If the block fails, nothing changes. With `only_new`, an existing file is not replaced.
    """
    from commonplace.storage.database import sync_directory

    part = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    try:
        with open(descriptor, "wb") as stream:  # noqa: PTH123
            yield stream
            stream.flush()
            os.fsync(descriptor)
        if only_new:
            os.link(part, path)  # This fails if another process was first.
        else:
            part.replace(path)
        sync_directory(path.parent)
    except FileExistsError:
        if not only_new:
            raise
    finally:
        part.unlink(missing_ok=True)


def remove_unfinished(directory: Path) -> None:
    """Delete the temporary files below a directory that killed processes left in `replace_file`."""
    if sys.platform == "win32":  # On Windows, os.kill(process, 0) would end the process.
        return
    for folder, _, names in os.walk(directory):
        for name in names:
            found = _PART.fullmatch(name)
            if found is not None and not _is_running(int(found[1])):
                with suppress(OSError):
                    Path(folder, name).unlink()


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # The process runs, as another user.
        return True
    return True
