"""Files that hooks use while no server is running: spooled events, and the prepared context for
the start of a session."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from typing import Any

INBOX_FOLDER = "inbox"
STARTS_FOLDER = "starts"
SESSIONS_FOLDER = "sessions"
"""Notes on how far the transcript of each session was read."""
PROJECT_VARIABLE = "COMMONPLACE_PROJECT"


def data_directory(given: str | None) -> str:
    """Return the absolute path of the data directory."""
    path = given or os.environ.get("COMMONPLACE_DATA") or "~/.commonplace"
    return os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111


def spool_event(data: str, space: str, event: Mapping[str, Any]) -> str:
    """Write an event to disk, for the next server to handle; return the file's path."""
    folder = os.path.join(data, INBOX_FOLDER)  # noqa: PTH118
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    name = f"{time.time_ns():020d}-{os.getpid()}-{os.urandom(4).hex()}.json"
    path = os.path.join(folder, name)  # noqa: PTH118
    part = f"{path}.part"
    environ = (
        {PROJECT_VARIABLE: os.environ[PROJECT_VARIABLE]} if os.environ.get(PROJECT_VARIABLE) else {}
    )
    spooled = {"version": 1, "space": space, "event": event, "environ": environ}
    written = json.dumps(spooled).encode()
    descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(written)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)  # noqa: PTH105
    except BaseException:
        if os.path.exists(part):  # noqa: PTH110
            os.unlink(part)  # noqa: PTH108
        raise
    _sync_folder(folder)
    return path


def _sync_folder(folder: str) -> None:
    if os.name != "posix":  # Windows cannot open a directory
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def prepared_context_file(data: str, space: str, cwd: str, project: str = "") -> str:
    """Return the file with the prepared context for sessions in a working directory.

    `project` is the one that the agent's variable names, if any; `-` means none.
    """
    parts = [space, os.path.realpath(cwd), *([project] if project not in ("", "-") else [])]
    key = "\0".join(parts).encode("utf-8", "surrogatepass")
    name = hashlib.sha256(key).hexdigest()[:32]
    return os.path.join(data, STARTS_FOLDER, f"{name}.json")  # noqa: PTH118
