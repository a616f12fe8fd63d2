"""Read, store, change, delete and list memories in the contract's format."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from commonplace.dialects.contract import Call
from commonplace.dialects.penfield import tags as tag_rules
from commonplace.dialects.penfield.detection import detect_type, parse_checkpoint, rate_importance
from commonplace.dialects.penfield.failures import (
    Invalid,
    NameTaken,
    NoMemory,
    Protected,
    require_text,
    stamp,
)
from commonplace.dialects.penfield.kinds import (
    CHUNK_KIND,
    DIRECT_SOURCE,
    PROTECTED_TYPES,
    filters_of_types,
    is_context,
    is_own,
    source_type_of,
    type_of,
)
from commonplace.dialects.penfield.schemas import CONTENT_CHARS
from commonplace.engine import checks
from commonplace.engine.binding import engine_call
from commonplace.engine.finding.filters import Filters
from commonplace.engine.maintenance import upkeep
from commonplace.engine.model import LIVE_STATES, Link, Memory, Origin
from commonplace.errors import Conflict
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusively
from commonplace.text.snippets import opening

DEFAULT_CONFIDENCE = 0.8
CHECKPOINT_IMPORTANCE = 0.9
SURPRISE_SCORE = 0.5
CONTEXT_REF = "penfield:context:"
AWAKENING = "awakening"
MOST_PER_PAGE = 100


# --- reading ------------------------------------------------------------------------------------


def get_readable(call: Call, identity: str, *, count: bool = False) -> Memory:
    """Return a live or a replaced memory by its id; raise NoMemory if there is none."""
    memory = lookup.find_memory(call.memory, identity)
    hidden = (
        memory is None
        or (memory.state not in (*LIVE_STATES, "superseded") and "lifecycle" not in memory.attrs)
        # the memory was found by its ref, which is not an id in this contract
        or memory.id != identity.lower()
    )
    if memory is None or hidden:
        raise NoMemory("Memory not found", field="id")
    return call.memory.get(identity) if count else memory


def get_changeable(call: Call, identity: str) -> Memory:
    """Return a memory that this contract may change; raise Protected otherwise."""
    memory = get_readable(call, identity)
    if memory.kind in PROTECTED_TYPES:
        raise _protected_error("change", memory.kind, "id")
    if not is_own(memory):
        by = f" (stored with {memory.origin.tool})" if memory.origin.tool else ""
        raise Protected(
            f"This memory is a {memory.kind!r} of another contract{by}.",
            hint="Change the memory with the tools that stored it. Here it can be read and linked.",
            field="id",
        )
    return memory


def _protected_error(action: str, kind: str, field: str) -> Protected:
    return Protected(
        f"Cannot {action} {kind} memories via this endpoint. Use /personality endpoints instead.",
        field=field,
    )


def to_dict(call: Call, memory: Memory, links: Sequence[Link] = ()) -> dict[str, Any]:
    """Return all fields of a memory."""
    from commonplace.dialects.penfield.relationships import link_to_dict

    related = [link_to_dict(link) for link in links]
    return {
        **memories_to_dicts(call, [memory])[0],
        "content": memory.text,
        "relationships": related,
    }


def memories_to_dicts(call: Call, memories: Sequence[Memory]) -> list[dict[str, Any]]:
    """Return the fields of memories for lists, without relationships, with truncated texts."""
    embedding_errors = engine_call(
        call.memory, upkeep.waiting_for_vectors, [memory.id for memory in memories]
    )
    found = []
    for memory in memories:
        usage = call.memory.usage(memory.id)
        found.append(
            {
                **main_fields(memory),
                "confidence": memory.confidence,
                "surprise_score": SURPRISE_SCORE,
                "source_type": source_type_of(memory),
                "user_id": memory.origin.user,
                "tags": list(memory.tags),
                "access_count": usage.accesses,
                "last_accessed": stamp(usage.last_access),
                "updated_at": stamp(memory.updated_at),
                "metadata": metadata_of(memory),
                "lifecycle_state": lifecycle_of(memory),
                "embedding_status": _embedding_status(embedding_errors.get(memory.id)),
                "trust": memory.trust,
                "relationships": [],
            }
        )
    return found


def main_fields(memory: Memory, most: int = CONTENT_CHARS) -> dict[str, Any]:
    """Return the main fields of a memory, with a limited part of its text."""
    return {
        "id": memory.id,
        "content": opening(memory.text, most),
        "memory_type": type_of(memory.kind),
        "importance": memory.importance,
        "created_at": stamp(memory.created_at),
    }


def _embedding_status(waiting: str | None) -> str:
    """Return the embedding status of a memory.

    `waiting` is None if the memory has its vectors; otherwise it is the last error or "".
    """
    if waiting is None:
        return "completed"
    return "failed" if waiting else "pending"


def metadata_of(memory: Memory) -> dict[str, Any]:
    """Return the metadata of a memory; memories of other contracts have none."""
    found = memory.attrs.get("metadata") if is_own(memory) else None
    return dict(found) if isinstance(found, Mapping) else {}


def lifecycle_of(memory: Memory) -> str:
    """Return the state: active, superseded, corrected, contradicted or archived."""
    if memory.state in LIVE_STATES:
        return "active"
    found = memory.attrs.get("lifecycle")
    return found if isinstance(found, str) and is_own(memory) else "superseded"


# --- storing, changing, deleting ----------------------------------------------------------------


def create(
    call: Call,
    *,
    content: str,
    memory_type: str | None = None,
    importance: float | None = None,
    confidence: float | None = None,
    tags: Sequence[str] | None = None,
    source_type: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Memory:
    """Store a memory of this contract."""
    require_text(content, "content")
    kind = memory_type or detect_type(content)
    if kind in PROTECTED_TYPES:
        raise _protected_error("create", kind, "memory_type")
    attrs: dict[str, Any] = {}
    if metadata:
        attrs["metadata"] = dict(metadata)
    if source_type and source_type != DIRECT_SOURCE:
        attrs["source_type"] = source_type
    draft: dict[str, Any] = {
        "kind": kind,
        "tags": tag_rules.storable_tags(tags),
        "importance": rate_importance(content, kind) if importance is None else importance,
        "confidence": DEFAULT_CONFIDENCE if confidence is None else confidence,
        "trust": "inferred",
        "attrs": attrs,
    }
    if kind == "checkpoint":
        draft |= context_fields(content, attrs)
    with claim_name(call, draft):
        return call.memory.remember(content, **draft)


def context_fields(content: str, attrs: dict[str, Any]) -> dict[str, Any]:
    """Return the fields by which a checkpoint can be restored by its name."""
    read = parse_checkpoint(content)
    if read is None:
        raise Invalid(
            "The content of a checkpoint must be a JSON object with a checkpoint_name.",
            hint="Use save_context.",
            field="content",
        )
    name = str(read["checkpoint_name"])
    if not name.strip() or len(name) > 200:
        raise Invalid("checkpoint_name must have 1 to 200 characters.", field="content")
    check_not_reserved(name, "content")
    ids = read.get("memory_ids")
    attached = [one for one in ids if isinstance(one, str)] if isinstance(ids, list) else []
    about = {"checkpoint_name": name, "memory_count": len(attached), **attrs.get("metadata", {})}
    named = {**attrs, "checkpoint_name": name, "memory_ids": attached, "metadata": about}
    return {"title": name, "ref": f"{CONTEXT_REF}{name}", "attrs": named}


def is_reserved(name: str) -> bool:
    """Return whether the name stands for the personality briefing in restore_context."""
    return name.strip().lower() == AWAKENING


def check_not_reserved(name: str, field: str) -> None:
    """Refuse the reserved name, under which a checkpoint could not be restored."""
    if is_reserved(name):
        raise Invalid(
            f"The name '{AWAKENING}' is reserved for the personality briefing.",
            hint="Choose another name.",
            field=field,
        )


def name_taken_error(name: str) -> NameTaken:
    """Return the error for a name that another checkpoint has."""
    return NameTaken(
        f"Context name '{name}' already exists. Use a unique name.",
        field="name",
        details={"identifier": name},
    )


@contextlib.contextmanager
def claim_name(call: Call, fields: Mapping[str, Any]) -> Iterator[None]:
    """Raise NameTaken if the block stores a checkpoint with the name of another one.

    A checkpoint that is hidden, or has become a memory of another kind, loses its name.
    """
    ref = fields.get("ref")
    former = lookup.find_memory(call.memory, ref) if ref else None
    if former is not None and not (former.state in LIVE_STATES and is_context(former)):
        call.memory.revise(former.id, ref=None)
    try:
        yield
    except Conflict as error:
        if error.field != "ref":
            raise
        raise name_taken_error(fields["title"]) from None


@exclusively
def change(
    call: Call,
    identity: str,
    /,
    *,
    content: str | None = None,
    memory_type: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    tags: Sequence[str] | None = None,
    **numbers: float | None,
) -> dict[str, Any]:
    """Change the given fields of a memory; the old values stay in the history."""
    memory = get_changeable(call, identity)
    if memory_type in PROTECTED_TYPES:
        raise _protected_error("create", memory_type, "memory_type")
    changes: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
    if content is not None and content != memory.text:
        changes["text"] = require_text(content, "content")
        if memory.trust == "stated":
            changes["trust"] = "inferred"  # the text is no longer the user's own wording
    if memory_type is not None and memory_type != type_of(memory.kind):
        changes["kind"] = memory_type
    if tags is not None:
        changes["tags"] = tag_rules.storable_tags(tags)
    attrs = dict(memory.attrs)
    if metadata is not None:
        attrs["metadata"] = dict(metadata)
    kind = changes.get("kind", memory.kind)
    if kind == "checkpoint" and ("text" in changes or "kind" in changes):
        changes |= context_fields(changes.get("text", memory.text), attrs)
        attrs = changes.pop("attrs")
    elif memory.kind == "checkpoint" and kind != "checkpoint":
        changes |= {"ref": None, "title": ""}
        attrs = {k: v for k, v in attrs.items() if k not in ("checkpoint_name", "memory_ids")}
    if attrs != memory.attrs:
        changes["attrs"] = attrs
    if changes:
        with claim_name(call, changes):
            memory = call.memory.revise(memory.id, **changes)
    return to_dict(call, memory, call.memory.links.of(memory.id))


def store(call: Call, **details: Any) -> dict[str, Any]:
    """`store`: store a memory; its type is detected."""
    return {"success": True, **to_dict(call, create(call, **details))}


def update_memory(call: Call, *, memory_id: str, **changes: Any) -> dict[str, Any]:
    """`update_memory`: change content, importance or tags."""
    return {"success": True, **change(call, memory_id, **changes)}


def create_memory(call: Call, **details: Any) -> dict[str, Any]:
    """POST /memories."""
    return to_dict(call, create(call, **details))


def read_memory(call: Call, *, id: str) -> dict[str, Any]:
    """GET /memories/{id}."""
    memory = get_readable(call, id, count=True)
    return to_dict(call, memory, call.memory.links.of(memory.id))


def replace_memory(call: Call, *, id: str, **changes: Any) -> dict[str, Any]:
    """PUT /memories/{id}."""
    return change(call, id, **changes)


@exclusively
def delete_memory(call: Call, *, id: str) -> None:
    """DELETE /memories/{id}: delete a memory and its relationships; undo can restore them."""
    memory = get_changeable(call, id)
    for link in call.memory.links.of(memory.id):
        call.memory.links.remove(link.id)
    attrs = {name: value for name, value in memory.attrs.items() if name != "lifecycle"}
    # Free the name of a checkpoint for reuse; keep the ref of a chunk, by which it is found.
    ref = memory.ref if memory.kind == CHUNK_KIND else None
    call.memory.revise(memory.id, state="archived", ref=ref, attrs=attrs)


# --- listing ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PageRange:
    """A page of a list; a page has at most a hundred items."""

    page: int
    per_page: int

    @property
    def size(self) -> int:
        """The maximum number of items on the page."""
        return min(self.per_page, MOST_PER_PAGE)

    @property
    def first(self) -> int:
        """The number of items before the page."""
        return (self.page - 1) * self.size

    def response(self, items: list[dict[str, Any]], total: int) -> dict[str, Any]:
        """Return the page in the contract's format."""
        pages = -(-total // self.size)
        return {
            "items": items,
            "pagination": {
                "page": self.page,
                "per_page": self.size,
                "total": total,
                "pages": pages,
                "has_next": self.page < pages,
                "has_prev": self.page > 1,
            },
        }

    def select(self, found: Sequence[Any], show: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Return the items of a complete list that are on this page."""
        items = [show(one) for one in found[self.first : self.first + self.size]]
        return self.response(items, len(found))


def list_memories(
    call: Call,
    *,
    page: int,
    per_page: int,
    sort: str,
    include_inactive: bool,
    memory_type: str | None = None,
    user_id: str | None = None,
    importance_threshold: float | None = None,
    date_from: str | None = None,
    date_to: str | None = None,
    time_range: str | None = None,
    tags: str | None = None,
) -> dict[str, Any]:
    """GET /memories."""
    since: str | datetime | None
    until: str | datetime | None
    since, until = checked_dates(date_from, date_to, "date_from", "date_to")
    if time_range is not None:
        since, until = _range_bounds(time_range, datetime.now(UTC))
    conditions: dict[str, Any] = {
        "created_since": since,
        "created_until": until,
        "importance": importance_threshold or 0.0,
        "tags_any": tag_rules.parse_filter_tags(tags),
    }
    if memory_type is not None:
        conditions |= filters_of_types([memory_type])
    if user_id:
        conditions["origin"] = Origin(user=user_id)
    page_range = PageRange(page, per_page)
    field, down = sort.removeprefix("-"), sort.startswith("-")
    if include_inactive:
        everything = _memories_with_inactive(call, conditions, field, down)
        found, total = (
            everything[page_range.first : page_range.first + page_range.size],
            len(everything),
        )
    elif down or field == "created_at":
        order = {"created_at": "newest" if down else "oldest", "updated_at": "updated"}
        found, total = call.memory.browse(
            order=order.get(field, field),
            limit=page_range.size,
            offset=page_range.first,
            **conditions,
        )
    else:
        found, total = _ascending_page(call, field, page_range, conditions)
    return page_range.response(memories_to_dicts(call, found), total)


def _ascending_page(
    call: Call, field: str, page_range: PageRange, conditions: dict[str, Any]
) -> tuple[list[Memory], int]:
    """Return a page in ascending order, which the engine does not support for this field."""
    order = {"updated_at": "updated"}.get(field, field)
    _, total = call.memory.browse(order=order, limit=1, **conditions)
    stop = total - page_range.first
    if stop <= 0:
        return [], total
    start = max(0, stop - page_range.size)
    page, _ = call.memory.browse(order=order, limit=stop - start, offset=start, **conditions)
    return page[::-1], total


def _memories_with_inactive(
    call: Call, conditions: dict[str, Any], field: str, down: bool
) -> list[Memory]:
    states = (*LIVE_STATES, "superseded", "archived")
    found = [
        memory
        for memory in lookup.all_memories(call.memory, states=states, **conditions)
        if memory.state != "archived" or "lifecycle" in memory.attrs
    ]
    return sorted(found, key=lambda memory: (getattr(memory, field), memory.num), reverse=down)


def checked_dates(
    since: str | None, until: str | None, first: str = "start_date", last: str = "end_date"
) -> tuple[str | None, str | None]:
    """Return two dates; raise Invalid if the first is after the second."""
    start, end = checks.time(since or None, first), checks.time(until or None, last)
    if start is not None and end is not None and start > end:
        raise Invalid(f"{first} must not be after {last}.", field=first)
    return since or None, until or None


def _range_bounds(time_range: str, now: datetime) -> tuple[datetime, datetime]:
    """Return the start and the end of a range such as `today`; days are in UTC."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if time_range == "today":
        return midnight, now
    if time_range == "yesterday":
        return midnight - timedelta(days=1), midnight - timedelta(microseconds=1)
    days = {"week": 7, "month": 30, "quarter": 90, "year": 365}[time_range]
    return now - timedelta(days=days), now


def search_filters(
    *,
    types: Sequence[str] | None = None,
    tags: str | Sequence[str] | None = None,
    importance: float | None = None,
    since: str | None = None,
    until: str | None = None,
    source: str | None = None,
    user: str | None = None,
) -> Filters:
    """Return the filters of a search."""
    start, end = checked_dates(since, until)
    conditions: dict[str, Any] = filters_of_types(types) if types else {}
    if source == "document":
        conditions["kinds"] = [CHUNK_KIND]
    elif source == "memory":
        conditions["without_kinds"] = [*conditions.get("without_kinds", ()), CHUNK_KIND]
    if user:
        conditions["origin"] = Origin(user=user)
    return Filters(
        **conditions,
        tags_any=tag_rules.parse_filter_tags(tags),
        importance=importance or 0.0,
        created_since=start,
        created_until=end,
    )
