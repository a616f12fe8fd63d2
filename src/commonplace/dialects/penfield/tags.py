"""Tags as the contract writes them: lower case, with hyphens."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST = 10
CHARS = 100
_JOINS = re.compile(r"[\s_:]+")
_TAG = re.compile(r"[a-z0-9-]+")


def normal(tag: str) -> str | None:
    """The tag as it is stored, or None for one that cannot be."""
    written = _JOINS.sub("-", tag.strip().lower())
    return written if len(written) <= CHARS and _TAG.fullmatch(written) else None


def normalised(tags: Iterable[str]) -> tuple[list[str], list[str]]:
    """(distinct tags that can be stored, those that cannot)."""
    kept: dict[str, None] = {}
    refused = []
    for tag in tags:
        written = normal(tag)
        if written is None:
            refused.append(tag)
        else:
            kept[written] = None
    return list(kept), refused
