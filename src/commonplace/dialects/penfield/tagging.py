"""The REST endpoints for tags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commonplace.dialects.contract import Call
from commonplace.dialects.penfield import memories
from commonplace.dialects.penfield import tags as tag_rules
from commonplace.dialects.penfield.failures import stamp
from commonplace.platform.exclusive import exclusively


def read_tags(call: Call, *, id: str) -> dict[str, Any]:
    """GET /memories/{id}/tags."""
    memory = memories.get_readable(call, id)
    return {"memory_id": memory.id, "tags": list(memory.tags), "warnings": []}


@exclusively
def add_tags(call: Call, *, id: str, tags: Sequence[str]) -> dict[str, Any]:
    """POST /memories/{id}/tags."""
    memory = memories.get_changeable(call, id)
    added, invalid = tag_rules.normalise_all(tags)
    joined = list(dict.fromkeys([*memory.tags, *added]))
    return _retag(call, id, tag_rules.check_limit(joined), invalid)


@exclusively
def remove_tags(call: Call, *, id: str, tags: str) -> dict[str, Any]:
    """DELETE /memories/{id}/tags."""
    memory = memories.get_changeable(call, id)
    removed = tag_rules.parse_filter_tags(tags)
    invalid = [tag for tag in tag_rules.normalise_all(removed)[1] if tag not in memory.tags]
    return _retag(call, id, [tag for tag in memory.tags if tag not in removed], invalid)


def _retag(call: Call, id: str, tags: list[str], invalid: Sequence[str]) -> dict[str, Any]:
    changed = call.memory.revise(id, tags=tags)
    warnings = [f"'{tag[:100]}' cannot be a tag: use a-z, 0-9 and '-'." for tag in invalid]
    return {"memory_id": changed.id, "tags": list(changed.tags), "warnings": warnings}


def list_tags(call: Call) -> dict[str, Any]:
    """GET /tags: list all tags, most used first."""
    items = [
        {"id": name, "name": name, "usage_count": count, "created_at": stamp(first)}
        for name, count, first in call.memory.tags()
    ]
    return {"items": items, "total": len(items)}


def list_tagged(call: Call, *, tag: str, page: int, per_page: int) -> dict[str, Any]:
    """GET /tags/{tag}/memories."""
    page_range = memories.PageRange(page, per_page)
    found, total = call.memory.browse(
        tags_any=tag_rules.parse_filter_tags([tag]) or [tag],
        limit=page_range.size,
        offset=page_range.first,
    )
    return page_range.response(memories.memories_to_dicts(call, found), total)
