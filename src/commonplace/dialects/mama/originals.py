"""What is taken over of an original MAMA database, and how its values are to be read."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commonplace.storage.sqlite import foreign
from commonplace.storage.sqlite.foreign import Row, fingerprint

SECONDS_BELOW = 1_577_836_800_000  # 2020 in milliseconds: less is told in seconds

TABLES = {
    "decisions": (
        "id", "topic", "decision", "reasoning", "outcome", "failure_reason", "limitation",
        "duration_days", "user_involvement", "session_id", "supersedes", "superseded_by",
        "refined_from", "confidence", "created_at", "needs_validation", "usage_count",
        "trust_context", "evidence", "alternatives", "risks",
    ),
    "decision_edges": (
        "from_id", "to_id", "relationship", "reason", "weight", "created_by", "approved_by_user",
    ),
    "checkpoints": (
        "id", "timestamp", "summary", "open_files", "next_steps", "recent_conversation", "status",
    ),
}  # fmt: skip

__all__ = ["Originals", "Row", "fingerprint", "listed", "milliseconds", "read"]


@dataclass(frozen=True, slots=True)
class Originals:
    """All that is imported of a database."""

    decisions: list[Row]
    edges: list[Row]
    checkpoints: list[Row]


def read(path: Path) -> Originals:
    """The rows of a database as of one moment; StorageUnavailable if it cannot be read."""
    found = foreign.read(path, TABLES)
    return Originals(found["decisions"], found["decision_edges"], found["checkpoints"])


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
