"""Tags in the contract's form: lower case, with hyphens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from commonplace.dialects.penfield.failures import Invalid
from commonplace.engine.checks import TAG_CHARS

MAX_TAGS = 10
MAX_TAG_CHARS = 100
_SEPARATORS = re.compile(r"[\s_:]+")
_TAG = re.compile(r"[a-z0-9-]+")


def normalise(tag: str) -> str | None:
    """Return the normalised form of a tag, or None if the tag is invalid."""
    written = _SEPARATORS.sub("-", tag.strip().lower())
    return written if len(written) <= MAX_TAG_CHARS and _TAG.fullmatch(written) else None


def normalise_all(tags: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return (distinct normalised tags, invalid tags)."""
    written = [(normalise(tag), tag) for tag in tags]
    valid = dict.fromkeys(tag for tag, _ in written if tag is not None)
    return list(valid), [given for tag, given in written if tag is None]


def storable_tags(tags: Iterable[str] | None) -> list[str]:
    """Return normalised tags without invalid ones; raise Invalid if there are too many."""
    return check_limit(normalise_all(tags or ())[0])


def check_limit(tags: list[str]) -> list[str]:
    """Return the tags; raise Invalid if there are too many for a memory."""
    if len(tags) > MAX_TAGS:
        raise Invalid(
            f"A memory can have at most {MAX_TAGS} tags.",
            field="tags",
            details={"field": "tags", "max_items": MAX_TAGS, "actual_items": len(tags)},
        )
    return tags


def parse_filter_tags(tags: str | Sequence[str] | None) -> list[str]:
    """Parse the tags of a filter, from a list or a comma-separated string.

    Each is returned normalised and as it is written, since other contracts do not normalise tags.
    """
    parts = tags.split(",") if isinstance(tags, str) else tags or ()
    items = [part.strip() for part in parts if part.strip()]
    forms = [form for part in items for form in (normalise(part), part[:TAG_CHARS])]
    return list(dict.fromkeys(form for form in forms if form))
