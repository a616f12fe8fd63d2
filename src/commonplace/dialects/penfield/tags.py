"""Tags as the contract writes them: lower case, with hyphens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from commonplace.dialects.penfield.failures import Invalid
from commonplace.engine.checks import TAG_CHARS

MOST = 10
CHARS = 100
_JOINS = re.compile(r"[\s_:]+")
_TAG = re.compile(r"[a-z0-9-]+")


def normal(tag: str) -> str | None:
    """The tag as it is stored, or None for one that cannot be stored."""
    written = _JOINS.sub("-", tag.strip().lower())
    return written if len(written) <= CHARS and _TAG.fullmatch(written) else None


def normalised(tags: Iterable[str]) -> tuple[list[str], list[str]]:
    """(distinct tags that can be stored, tags that cannot)."""
    written = [(normal(tag), tag) for tag in tags]
    valid = dict.fromkeys(tag for tag, _ in written if tag is not None)
    return list(valid), [given for tag, given in written if tag is None]


def storable(given: Iterable[str] | None) -> list[str]:
    """Tags as they are stored, without those that cannot be; Invalid if there are too many."""
    return within_limit(normalised(given or ())[0])


def within_limit(tags: list[str]) -> list[str]:
    """The tags; Invalid if there are more than a memory may have."""
    if len(tags) > MOST:
        raise Invalid(
            f"A memory can have at most {MOST} tags.",
            field="tags",
            details={"field": "tags", "max_items": MOST, "actual_items": len(tags)},
        )
    return tags


def wanted(given: str | Sequence[str] | None) -> list[str]:
    """Tags to filter by, from a list or a comma-separated string; invalid ones are kept."""
    parts = given.split(",") if isinstance(given, str) else given or ()
    asked = [part.strip() for part in parts if part.strip()]
    return list(dict.fromkeys(normal(part) or part[:TAG_CHARS] for part in asked))
