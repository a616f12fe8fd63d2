"""Rows of an original MAMA database, read from a copy: the file itself is never touched.

Its write-ahead log is copied with it. A copy that was torn by a writer shows as changed or as
damaged, and is made again.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from commonplace.errors import StorageUnavailable

TRIES = 20
PAUSE_SECONDS = 0.05
BESIDE = ("", "-wal", "-journal")
SECONDS_BELOW = 1_577_836_800_000  # 2020 in milliseconds: less is told in seconds

DECISIONS = (
    "id", "topic", "decision", "reasoning", "outcome", "failure_reason", "limitation",
    "duration_days", "user_involvement", "session_id", "supersedes", "superseded_by",
    "refined_from", "confidence", "created_at", "needs_validation", "usage_count",
    "trust_context", "evidence", "alternatives", "risks",
)  # fmt: skip
EDGES = ("from_id", "to_id", "relationship", "reason", "weight", "created_by", "approved_by_user")
CHECKPOINTS = (
    "id", "timestamp", "summary", "open_files", "next_steps", "recent_conversation", "status",
)  # fmt: skip

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Originals:
    """All that is imported of a database."""

    decisions: list[Row]
    edges: list[Row]
    checkpoints: list[Row]


def fingerprint(path: Path) -> str:
    """Changes when the file or its log do."""
    parts = []
    for suffix in BESIDE:
        with contextlib.suppress(OSError):
            state = path.with_name(path.name + suffix).stat()
            parts.append(f"{suffix}:{state.st_size}:{state.st_mtime_ns}:{state.st_ino}")
    return " ".join(parts)


def read(path: Path) -> Originals:
    """The rows of a database as of one moment; StorageUnavailable if it cannot be read."""
    with _copied(path) as copy:
        connection = apsw.Connection(str(copy))
        try:
            return Originals(
                _rows(connection, "decisions", DECISIONS, "created_at, rowid"),
                _rows(connection, "decision_edges", EDGES, "rowid"),
                _rows(connection, "checkpoints", CHECKPOINTS, "id"),
            )
        except (apsw.Error, UnicodeDecodeError) as error:
            raise _unreadable(path, str(error)) from error
        finally:
            connection.close(True)


@contextlib.contextmanager
def _copied(path: Path) -> Iterator[Path]:
    why = "it keeps changing"
    with tempfile.TemporaryDirectory(prefix="commonplace-mama-") as folder:
        copy = Path(folder) / "copy.db"
        for _ in range(TRIES):
            try:
                before = fingerprint(path)
                for suffix in BESIDE:
                    Path(f"{copy}{suffix}").unlink(missing_ok=True)
                    Path(f"{copy}-shm").unlink(missing_ok=True)
                    with contextlib.suppress(FileNotFoundError):
                        shutil.copyfile(path.with_name(path.name + suffix), f"{copy}{suffix}")
                if fingerprint(path) == before and _whole(copy):
                    break
            except OSError as error:
                why = str(error)
            time.sleep(PAUSE_SECONDS)
        else:
            raise _unreadable(path, why)
        yield copy


def _whole(copy: Path) -> bool:
    try:
        connection = apsw.Connection(str(copy))
        try:
            return bool(connection.pragma("quick_check") == "ok")
        finally:
            connection.close(True)
    except apsw.Error:
        return False


def _unreadable(path: Path, why: str) -> StorageUnavailable:
    return StorageUnavailable(
        f"The MAMA database {path} cannot be read: {why}.",
        hint="Check MAMA_DB_PATH; the file must be a SQLite database.",
    )


def _rows(
    connection: apsw.Connection, table: str, columns: tuple[str, ...], order: str
) -> list[Row]:
    """The rows of a table in whichever of the columns it has; none if there is no such table."""
    there = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
    names = [name for name in columns if name in there]
    if not names:
        return []
    known = order if all(n in there or n == "rowid" for n in order.split(", ")) else "rowid"
    found = connection.execute(
        f"SELECT {', '.join(names)} FROM {table} ORDER BY {known}"  # noqa: S608  constant names
    )
    return [dict(zip(names, row, strict=True)) for row in found]


def milliseconds(value: Any) -> int | None:
    """A time of the original, which has told some in seconds."""
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        return None
    return int(value * 1000 if value < SECONDS_BELOW else value)


def listed(value: Any) -> list[Any]:
    """A column that holds a JSON list."""
    with contextlib.suppress(TypeError, ValueError):
        found = json.loads(value)
        if isinstance(found, list):
            return found
    return []
