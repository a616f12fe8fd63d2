"""Read files by paths from callers: regular files inside an allowed directory, opened once."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from commonplace.dialects.mama.platform.failures import (
    PlatformError,
    malformed,
    not_found,
)
from commonplace.dialects.mama.platform.files import (
    KIND,
    NotRegularError,
    open_regular,
    records,
    write_private,
)
from commonplace.dialects.mama.platform.service import OWNER_SPACE
from commonplace.engine.commonplace import Commonplace
from commonplace.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from commonplace.dialects.mama.platform.service import Service

_DRIVE = re.compile(r"[A-Za-z]:")
TEMPORARY = Path("/tmp")  # noqa: S108


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file with its content at the time when it was opened."""

    name: str
    path: Path
    data: bytes


def workspace(running: Service) -> Path:
    """Return the directory whose files agents may read and send."""
    return running.folder / "workspace"


def read_file(
    running: Service, requested: str, *, most: int, temporary: bool = False
) -> OpenedFile:
    """Read the file at a path; a relative path is relative to the workspace.

    Links are followed, but their targets must be in the workspace, too. With `temporary`, files of
    the server's user in the system's temporary directory are allowed as well.
    """
    if not requested or "\0" in requested or requested.startswith("~") or _DRIVE.match(requested):
        raise malformed("The path is not valid.")
    root = workspace(running)
    try:
        real = Path(os.path.realpath(root / requested))
        inside = real.is_relative_to(os.path.realpath(root))
        if inside and not real.exists():
            _restore_stored_file(running, real.relative_to(os.path.realpath(root)).as_posix())
        # The data directory itself may be in the temporary directory.
        data = os.path.realpath(running.setting.library.path)
        shared = temporary and real.is_relative_to(os.path.realpath(TEMPORARY))
        shared = shared and not real.is_relative_to(data)
        if not inside and not shared:
            raise malformed("The path is outside the workspace.")
        return _open_and_read(real, most, own=not inside)
    except NotRegularError:
        raise malformed("The path is not a regular file.") from None
    except (OSError, ValueError) as error:
        if isinstance(error, PermissionError):
            raise malformed("The file cannot be read.") from None
        raise not_found("File") from None


def _restore_stored_file(running: Service, path: str) -> None:
    """Write a stored file into this machine's workspace; do nothing if no such file is stored."""
    memory = Commonplace(space=OWNER_SPACE, library=running.setting.library)
    if not running.setting.library.exists(OWNER_SPACE):
        return
    page = records.find(memory, f"mama:workspace/{path}", KIND)
    if page is not None and isinstance(page.attrs["content"], str):
        write_private(workspace(running) / path, page.attrs["content"].encode())
        return
    with contextlib.suppress(NotFound, InvalidInput):
        write_private(
            workspace(running) / path, memory.artifacts.read(f"mama/workspace/{path}")[1].content
        )


def _open_and_read(real: Path, most: int, *, own: bool) -> OpenedFile:
    with open_regular(real) as file:
        found = os.fstat(file.fileno())
        # A directory in the path may have become a link after the path was resolved.
        moved = os.path.realpath(real) != str(real) or not os.path.samestat(found, real.stat())
        if moved or (own and hasattr(os, "getuid") and found.st_uid != os.getuid()):
            raise malformed("The path is outside the workspace.")
        data = file.read(most + 1)
    if len(data) > most:
        raise PlatformError(413, "TOO_LARGE", f"The file is larger than {most:,} bytes.")
    return OpenedFile(real.name, real, data)
