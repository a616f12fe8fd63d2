"""The server's log file, and its last lines for the operator."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from commonplace.dialects.contract import Call
from commonplace.dialects.mama.platform import service
from commonplace.dialects.mama.platform.failures import not_found
from commonplace.dialects.mama.platform.service import Service, operation, read_arguments
from commonplace.dialects.rest import Exchange, Reply, Route
from commonplace.dialects.tool_schemas import integer
from commonplace.errors import DISK_FULL_ERRNOS
from commonplace.storage.directories import make_private

FILE_BYTES, LOG_FILES = 5 * 1024 * 1024, 3
DEFAULT_LINES, MOST_LINES = 200, 5_000
MOST_BYTES = 1024 * 1024


def log_path(running: Service) -> Path:
    """Return the path of the log file."""
    return running.folder / "logs" / "daemon.log"


class _PrivateFile(RotatingFileHandler):
    """A log file that only its owner can read."""

    def _open(self) -> Any:
        make_private(Path(self.baseFilename).parent)

        def private(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        return open(self.baseFilename, self.mode, encoding="utf-8", opener=private)

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop a record if the disk is full; report other errors as usual."""
        error = sys.exc_info()[1]
        if not (isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS):
            super().handleError(record)


@contextlib.contextmanager
def log_to_file(running: Service) -> Iterator[None]:
    """Write the server's log to the file as well as to standard error."""
    root = logging.getLogger()
    handler = _PrivateFile(
        log_path(running), maxBytes=FILE_BYTES, backupCount=LOG_FILES - 1, delay=True
    )
    handler.setFormatter(running.setting.log_formatter)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def daemon_log(call: Call, *, tail: int, since: int | None = None) -> Any:
    """Return the last lines of the log, or none if the log has not changed since a time."""
    path = log_path(service.service_of(call))
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            data = file.read(2 * FILE_BYTES)
    except OSError:
        raise not_found("Log") from None
    if not data:
        raise not_found("Log")
    changed = found.st_mtime_ns // 1_000_000
    if since is not None and changed <= since:
        return None
    lines = data.decode("utf-8", "replace").splitlines()
    shown, size = [], 0
    for line in reversed(lines[-tail:]):
        size += len(line.encode()) + 1
        if size > MOST_BYTES:
            break
        shown.append(line)
    return {
        "lines": shown[::-1],
        "total": len(lines),
        "totalBytes": len(data),
        "mtime": changed,
        "truncated": len(shown) < min(tail, len(lines)),
    }


async def _read_arguments(exchange: Exchange) -> dict[str, Any]:
    arguments = await read_arguments(exchange)
    if isinstance(arguments.get("tail"), int):
        arguments["tail"] = max(1, min(arguments["tail"], MOST_LINES))
    return arguments


def _not_modified_if_none(exchange: Exchange, value: Any) -> Any:
    del exchange
    return Reply(None, 304) if value is None else value


OPERATIONS = (
    operation(
        "daemon_log", "Log of the server", "operator", daemon_log, (),
        {"tail": integer(1, MOST_LINES, DEFAULT_LINES), "since": integer(0)},
    ),
)  # fmt: skip
ROUTES = (
    Route(
        "GET", "/api/logs/daemon", "daemon_log", read=_read_arguments, show=_not_modified_if_none
    ),
)
