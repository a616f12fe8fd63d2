"""Storing, reading, changing and deleting memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from commonplace.dialects.contract import Call
from commonplace.dialects.penfield import tags as tag_rules
from commonplace.dialects.penfield.detection import checkpoint_of, detect_type, rate_importance
from commonplace.dialects.penfield.failures import (
    Exists,
    Invalid,
    NameTaken,
    NoMemory,
    Protected,
    stamp,
)
from commonplace.dialects.penfield.kinds import (
    CHUNK,
    DIRECT,
    PROTECTED,
    is_own,
    of_types,
    source_of,
    type_of,
)
from commonplace.dialects.penfield.schemas import CONTENT_CHARS
from commonplace.engine import checks
from commonplace.engine.binding import engine_call
from commonplace.engine.finding.filters import Filters
from commonplace.engine.maintenance import upkeep
from commonplace.engine.model import LIVE_STATES, Link, Memory, Origin
from commonplace.errors import Conflict, NotFound
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusively
from commonplace.text.snippets import opening

CONFIDENCE = 0.8
CHECKPOINT_IMPORTANCE = 0.9
SURPRISE = 0.5
LIFECYCLE = {
    "correction": "corrected",
    "update": "superseded",
    "expansion": "superseded",
    "contradiction": "contradicted",
    "deprecation": "archived",
}
CONTEXT_REF = "penfield:context:"
AWAKENING = "awakening"
MOST_PER_PAGE = 100


# --- reading ------------------------------------------------------------------------------------


def readable(call: Call, identity: str, *, count: bool = False) -> Memory:
    """A memory that is there: live, or a former form of a live one; NoMemory otherwise."""
    try:
        memory = call.memory.get(identity, count=False)
    except NotFound:
        raise no_memory() from None
    hidden = memory.state not in LIVE_STATES and memory.state != "superseded"
    if hidden and "lifecycle" not in memory.attrs:
        raise no_memory()
    if memory.id != identity.lower():  # ids of other contracts are not ids here
        raise no_memory()
    return call.memory.get(identity) if count else memory


def no_memory() -> NoMemory:
    """The one answer for what does not exist, was deleted, or is another's."""
    return NoMemory("Memory not found", field="id")


def changeable(call: Call, identity: str) -> Memory:
    """A memory that this contract may change, or why it may not."""
    memory = readable(call, identity)
    if memory.kind in PROTECTED:
        raise Protected(
            f"Cannot change {memory.kind} memories via this endpoint."
            " Use /personality endpoints instead.",
            field="id",
        )
    if not is_own(memory):
        by = f" (stored with {memory.origin.tool})" if memory.origin.tool else ""
        raise Protected(
            f"This memory is a {memory.kind!r} of another contract{by}.",
            hint="Change it with the tools that stored it; it can be read and linked here.",
            field="id",
        )
    return memory


def shown(call: Call, memory: Memory, links: Sequence[Link] | None = None) -> dict[str, Any]:
    """A memory as this contract shows it."""
    return {**shown_all(call, [memory], [links])[0], "content": memory.text}


def shown_all(
    call: Call, memories: Sequence[Memory], links: Sequence[Sequence[Link] | None] | None = None
) -> list[dict[str, Any]]:
    """Memories as a list of this contract shows them: longer ones than it has are cut."""
    from commonplace.dialects.penfield.relationships import shown_link

    waiting = engine_call(call.memory, upkeep.waiting, [memory.id for memory in memories])
    found = []
    for at, memory in enumerate(memories):
        usage = call.memory.usage(memory.id)
        around = links[at] if links else None
        found.append(
            {
                "id": memory.id,
                "content": opening(memory.text, CONTENT_CHARS),
                "memory_type": type_of(memory.kind),
                "importance": memory.importance,
                "confidence": memory.confidence,
                "surprise_score": SURPRISE,
                "source_type": source_of(memory),
                "user_id": memory.origin.user,
                "tags": list(memory.tags),
                "access_count": usage.accesses,
                "last_accessed": stamp(usage.last_access),
                "created_at": stamp(memory.created_at),
                "updated_at": stamp(memory.updated_at),
                "metadata": metadata_of(memory),
                "lifecycle_state": lifecycle_of(memory),
                "embedding_status": embedding_status(waiting.get(memory.id)),
                "trust": memory.trust,
                "relationships": [shown_link(link) for link in around or ()],
            }
        )
    return found


def metadata_of(memory: Memory) -> dict[str, Any]:
    """What the one who stored it said beside the text; nothing of other contracts' attributes."""
    kept = memory.attrs.get("metadata") if is_own(memory) else None
    return dict(kept) if isinstance(kept, Mapping) else {}


def lifecycle_of(memory: Memory) -> str:
    """active, superseded, corrected, contradicted or archived."""
    if memory.state in LIVE_STATES:
        return "active"
    kept = memory.attrs.get("lifecycle")
    return kept if isinstance(kept, str) and is_own(memory) else "superseded"


def embedding_status(waiting: str | None) -> str:
    """completed, or pending while it waits for a vector, or failed when that was refused."""
    if waiting is None:
        return "completed"
    return "failed" if waiting else "pending"


def title_of(memory: Memory) -> str:
    """The first 80 characters of the first line."""
    if memory.title:
        return memory.title[:80]
    return memory.text.strip().partition("\n")[0].strip()[:80]


# --- storing ------------------------------------------------------------------------------------


def kept_tags(given: Sequence[str] | None) -> list[str]:
    """Tags as they are stored; those that cannot be are left out."""
    kept, _ = tag_rules.normalised(given or ())
    check_tags(kept)
    return kept


def check_tags(tags: Sequence[str]) -> None:
    """At most as many as a memory may have."""
    if len(tags) > tag_rules.MOST:
        raise Invalid(
            f"A memory has at most {tag_rules.MOST} tags.",
            field="tags",
            details={"field": "tags", "max_items": tag_rules.MOST, "actual_items": len(tags)},
        )


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
    if not content.strip():
        raise Invalid("content must say something.", field="content")
    kind = memory_type or detect_type(content)
    if kind in PROTECTED:
        raise Protected(
            f"Cannot create {kind} memories via this endpoint. Use /personality endpoints instead.",
            field="memory_type",
        )
    attrs: dict[str, Any] = {}
    if metadata:
        attrs["metadata"] = dict(metadata)
    if source_type and source_type != DIRECT:
        attrs["source_type"] = source_type
    draft: dict[str, Any] = {"kind": kind, "tags": kept_tags(tags)}
    if kind == "checkpoint":
        draft |= context_fields(content, attrs)
    else:
        draft["attrs"] = attrs
    if importance is None:
        importance = rate_importance(content, kind)
    try:
        return call.memory.remember(
            content,
            importance=importance,
            confidence=CONFIDENCE if confidence is None else confidence,
            trust="inferred",
            **draft,
        )
    except Conflict as error:
        if error.field != "ref":
            raise
        raise name_taken(draft["title"]) from None


def context_fields(content: str, attrs: dict[str, Any]) -> dict[str, Any]:
    """What makes a stored text a checkpoint that can be restored by its name."""
    read = checkpoint_of(content)
    if read is None:
        raise Invalid(
            "The content of a checkpoint is a JSON object with a checkpoint_name.",
            hint="Use save_context.",
            field="content",
        )
    name = str(read["checkpoint_name"])
    if not name.strip() or len(name) > 200:
        raise Invalid("checkpoint_name has 1 to 200 characters.", field="content")
    if is_reserved(name):
        raise reserved("content")
    ids = read.get("memory_ids")
    attached = [one for one in ids if isinstance(one, str)] if isinstance(ids, list) else []
    about = {"checkpoint_name": name, "memory_count": len(attached)}
    named = {**attrs, "checkpoint_name": name, "memory_ids": attached}
    named["metadata"] = {**about, **attrs.get("metadata", {})}
    return {"title": name, "ref": f"{CONTEXT_REF}{name}", "attrs": named}


def is_reserved(name: str) -> bool:
    """Whether the name is that of the personality briefing, which no checkpoint can have."""
    return name.strip().lower() == AWAKENING


def reserved(field: str) -> Invalid:
    """A checkpoint of this name could not be restored by it."""
    return Invalid(
        f"The name '{AWAKENING}' is that of the personality briefing.",
        hint="Choose another name.",
        field=field,
    )


def name_taken(name: str) -> NameTaken:
    """Checkpoints' names are unique."""
    return NameTaken(
        f"Context name '{name}' already exists. Use a unique name.",
        field="name",
        details={"identifier": name},
    )


@exclusively
def change(
    call: Call,
    identity: str,
    *,
    content: str | None = None,
    memory_type: str | None = None,
    importance: float | None = None,
    confidence: float | None = None,
    metadata: Mapping[str, Any] | None = None,
    tags: Sequence[str] | None = None,
) -> Memory:
    """Change what is given of a memory; what it was stays in its history."""
    memory = changeable(call, identity)
    if memory_type in PROTECTED:
        raise Protected(
            f"Cannot create {memory_type} memories via this endpoint."
            " Use /personality endpoints instead.",
            field="memory_type",
        )
    changes: dict[str, Any] = {}
    if content is not None and content != memory.text:
        if not content.strip():
            raise Invalid("content must say something.", field="content")
        changes["text"] = content
        if memory.trust == "stated":
            changes["trust"] = "inferred"  # the words are no longer the user's own
    if memory_type is not None and memory_type != type_of(memory.kind):
        changes["kind"] = memory_type
    if importance is not None:
        changes["importance"] = importance
    if confidence is not None:
        changes["confidence"] = confidence
    if tags is not None:
        changes["tags"] = kept_tags(tags)
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
    if not changes:
        return memory
    try:
        return call.memory.revise(memory.id, **changes)
    except Conflict as error:
        if error.field != "ref":
            raise
        raise name_taken(changes["title"]) from None


@exclusively
def remove(call: Call, identity: str) -> None:
    """Delete a memory with its relationships; undo and history keep what it was."""
    memory = changeable(call, identity)
    for link in call.memory.links.of(memory.id):
        call.memory.links.remove(link.id)
    attrs = {name: value for name, value in memory.attrs.items() if name != "lifecycle"}
    # Its name is free again; a chunk's ref is the document's business.
    ref = memory.ref if memory.kind == CHUNK else None
    call.memory.revise(memory.id, state="archived", ref=ref, attrs=attrs)


# --- what the tools and endpoints do ------------------------------------------------------------


def store(call: Call, **details: Any) -> dict[str, Any]:
    """`store`: a new memory, its type detected."""
    return {"success": True, **shown(call, create(call, **details))}


def update_memory(call: Call, *, memory_id: str, **changes: Any) -> dict[str, Any]:
    """`update_memory`: change content, importance or tags."""
    memory = change(call, memory_id, **changes)
    return {"success": True, **shown(call, memory, call.memory.links.of(memory.id))}


def create_memory(call: Call, **details: Any) -> dict[str, Any]:
    """POST /memories."""
    return shown(call, create(call, **details))


def read_memory(call: Call, *, id: str) -> dict[str, Any]:
    """GET /memories/{id}."""
    memory = readable(call, id, count=True)
    return shown(call, memory, call.memory.links.of(memory.id))


def replace_memory(call: Call, *, id: str, **changes: Any) -> dict[str, Any]:
    """PUT /memories/{id}."""
    memory = change(call, id, **changes)
    return shown(call, memory, call.memory.links.of(memory.id))


def delete_memory(call: Call, *, id: str) -> None:
    """DELETE /memories/{id}."""
    remove(call, id)


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
    """GET /memories: a page of them."""
    since: str | datetime | None
    until: str | datetime | None
    since, until = moments(date_from, date_to, "date_from", "date_to")
    if time_range is not None:
        since, until = span_of(time_range, datetime.now(UTC))
    conditions: dict[str, Any] = {
        "created_since": since,
        "created_until": until,
        "importance": importance_threshold or 0.0,
        "tags_any": wanted_tags(tags),
    }
    if memory_type is not None:
        conditions |= of_types([memory_type])
    if user_id:
        conditions["origin"] = Origin(user=user_id)
    field, down = sort.removeprefix("-"), sort.startswith("-")
    first, size = window(page, per_page)
    if include_inactive:
        found = _with_inactive(call, conditions, field, down)
        chosen, total = found[first : first + size], len(found)
    elif down or field == "created_at":
        order = {"created_at": "newest" if down else "oldest", "updated_at": "updated"}
        chosen, total = call.memory.browse(
            order=order.get(field, field), limit=size, offset=first, **conditions
        )
    else:
        chosen, total = _ascending(call, field, first, size, conditions)
    return {"items": shown_all(call, chosen), "pagination": pagination(page, per_page, total)}


def _ascending(
    call: Call, field: str, first: int, size: int, conditions: dict[str, Any]
) -> tuple[list[Memory], int]:
    """A page from the other end."""
    order = {"updated_at": "updated"}.get(field, field)
    _, total = call.memory.browse(order=order, limit=1, **conditions)
    stop = total - first
    if stop <= 0:
        return [], total
    start = max(0, stop - size)
    page, _ = call.memory.browse(order=order, limit=stop - start, offset=start, **conditions)
    return page[::-1], total


def _with_inactive(call: Call, conditions: dict[str, Any], field: str, down: bool) -> list[Memory]:
    states = (*LIVE_STATES, "superseded", "archived")
    found = [
        memory
        for memory in lookup.every(call.memory, states=states, **conditions)
        if memory.state != "archived" or "lifecycle" in memory.attrs
    ]
    keys = {
        "created_at": lambda m: (m.created_at, m.num),
        "updated_at": lambda m: (m.updated_at, m.num),
        "importance": lambda m: (m.importance, m.num),
    }
    return sorted(found, key=keys[field], reverse=down)


def window(page: int, per_page: int) -> tuple[int, int]:
    """(the first item, how many items) of a page; a page has at most a hundred."""
    size = min(per_page, MOST_PER_PAGE)
    return (page - 1) * size, size


def pagination(page: int, per_page: int, total: int) -> dict[str, Any]:
    """Where a page stands."""
    per_page = min(per_page, MOST_PER_PAGE)
    pages = -(-total // per_page)
    return {
        "page": page,
        "per_page": per_page,
        "total": total,
        "pages": pages,
        "has_next": page < pages,
        "has_prev": page > 1,
    }


def wanted_tags(given: str | Sequence[str] | None) -> list[str]:
    """Tags to filter by, of a list or a text with commas; those that cannot be stored stay."""
    parts = given.split(",") if isinstance(given, str) else list(given or ())
    asked = [part.strip() for part in parts if part.strip()]
    found = [tag_rules.normal(part) or part[: checks.TAG_CHARS] for part in asked]
    return list(dict.fromkeys(found))


def moments(
    since: str | None, until: str | None, first: str = "start_date", last: str = "end_date"
) -> tuple[str | None, str | None]:
    """Two dates that can be read, and in their order."""
    start, end = checks.when(since or None, first), checks.when(until or None, last)
    if start is not None and end is not None and start > end:
        raise Invalid(f"{first} lies after {last}.", field=first)
    return since or None, until or None


def span_of(time_range: str, now: datetime) -> tuple[datetime, datetime]:
    """The first and the last moment of a range such as `today`; days are UTC days."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if time_range == "today":
        return midnight, now
    if time_range == "yesterday":
        return midnight - timedelta(days=1), midnight - timedelta(microseconds=1)
    days = {"week": 7, "month": 30, "quarter": 90, "year": 365}[time_range]
    return now - timedelta(days=days), now


def filters_for(
    *,
    types: Sequence[str] | None = None,
    tags: str | Sequence[str] | None = None,
    importance: float | None = None,
    since: str | None = None,
    until: str | None = None,
    source: str | None = None,
) -> Filters:
    """What a search may see."""
    start, end = moments(since, until)
    conditions: dict[str, Any] = of_types(types) if types else {}
    if source == "document":
        conditions["kinds"] = [CHUNK]
    elif source == "memory":
        conditions["without_kinds"] = [*conditions.get("without_kinds", ()), CHUNK]
    return Filters(
        **conditions,
        tags_any=wanted_tags(tags),
        importance=importance or 0.0,
        created_since=start,
        created_until=end,
    )


# --- versions -----------------------------------------------------------------------------------


def read_history(call: Call, *, id: str) -> dict[str, Any]:
    """GET /memories/{id}/history: its versions, and those of what it came from."""
    memory = readable(call, id)
    chain = _chain(call, memory)
    history = []
    for one in chain:
        for version in call.memory.history.versions(one.id):
            history.append((version.since, one, version.memory, version.until is None))
    distinct = _distinct(history)
    versions = [
        {
            "id": one.id,
            "version": number,
            "content": form.text,
            "created_at": stamp(since),
            "lifecycle_state": lifecycle_of(one) if current else "superseded",
            "is_active": current and one.state in LIVE_STATES,
        }
        for number, (since, one, form, current) in enumerate(distinct, start=1)
    ]
    newest = chain[-1]
    return {
        "current": shown(call, newest, call.memory.links.of(newest.id)),
        "history": versions[::-1],
        "total_versions": len(versions),
    }


def _chain(call: Call, memory: Memory) -> list[Memory]:
    """The memory with those it replaced and those that replaced it, oldest first."""
    seen = {memory.id: memory}
    for direction in ("out", "in"):
        here = memory
        while True:
            links = call.memory.links.of(here.id, direction=direction, kinds=["supersedes"])
            ends = [link.target if direction == "out" else link.source for link in links]
            following = next((end for end in ends if end not in seen), None)
            if following is None:
                break
            try:
                here = readable(call, following)
            except NoMemory:
                break
            if direction == "in" and lifecycle_of(memory) == "active":
                break
            seen[here.id] = here
    return sorted(seen.values(), key=lambda one: (one.created_at, one.num))


def _distinct(
    history: Sequence[tuple[datetime, Memory, Memory, bool]],
) -> list[tuple[datetime, Memory, Memory, bool]]:
    """Oldest first; changes that left the text as it was are no versions of it."""
    found: list[tuple[datetime, Memory, Memory, bool]] = []
    for each in sorted(history, key=lambda entry: (entry[2].num, entry[2].version)):
        since, one, form, current = each
        if found and found[-1][1].id == one.id and found[-1][2].text == form.text:
            found[-1] = (found[-1][0], one, form, current)
        else:
            found.append((since, one, form, current))
    return found


@exclusively
def evolve_memory(
    call: Call, *, id: str, new_content: str, evolution_type: str, reason: str | None = None
) -> dict[str, Any]:
    """POST /memories/{id}/evolve: a new memory takes the place of the old one."""
    old = changeable(call, id)
    if old.state not in LIVE_STATES:
        raise Exists(
            f"The memory is {lifecycle_of(old)} already.",
            hint="Evolve the newest of its history.",
            field="id",
        )
    new, link = succeed(call, old, new_content, LIFECYCLE[evolution_type], reason or "")
    call.memory.links.revise(link.id, attrs={**link.attrs, "evolution_type": evolution_type})
    version = len(_distinct([
        (version.since, one, version.memory, version.until is None)
        for one in _chain(call, new)
        for version in call.memory.history.versions(one.id)
    ]))  # fmt: skip
    return {
        "original_memory_id": old.id,
        "new_memory_id": new.id,
        "evolution_id": link.id,
        "evolution_type": evolution_type,
        "version": version,
        "created_at": stamp(new.created_at),
    }


def succeed(
    call: Call, old: Memory, content: str, lifecycle: str, reason: str
) -> tuple[Memory, Link]:
    """Store what replaces a memory, which keeps its links; what was linked to it is so again."""
    if not content.strip():
        raise Invalid("The new content must say something.", field="new_content")
    links = call.memory.links
    around = links.of(old.id)
    attrs = {name: value for name, value in old.attrs.items() if name != "lifecycle"}
    draft: dict[str, Any] = {
        "kind": "reference" if old.kind == CHUNK else old.kind,
        "tags": old.tags,
        "importance": old.importance,
        "confidence": old.confidence,
        "trust": "inferred" if old.trust == "stated" else old.trust,
    }
    if old.kind == CHUNK:
        attrs = {"metadata": metadata_of(old)}
    if old.kind == "checkpoint":
        draft |= context_fields(content, attrs)
    else:
        draft["attrs"] = attrs
    try:
        new = call.memory.supersede(old.id, content, reason=reason, **draft)
    except Conflict as error:
        if error.field != "ref":
            raise
        raise name_taken(draft["title"]) from None
    marked: dict[str, Any] = {"attrs": {**old.attrs, "lifecycle": lifecycle}}
    if old.kind == "checkpoint":
        marked["ref"] = None
    if lifecycle == "archived":
        marked["state"] = "archived"
    call.memory.revise(old.id, **marked)
    for link in around:
        other = link.target if link.source == old.id else link.source
        if link.kind == "supersedes" or not _is_live(call, other):
            continue
        source, target = (new.id, other) if link.source == old.id else (other, new.id)
        links.add(
            source, target, link.kind, weight=link.weight, reason=link.reason, attrs=link.attrs
        )
    joined = next(
        link
        for link in links.of(new.id, direction="out", kinds=["supersedes"])
        if link.target == old.id
    )
    return new, joined


def _is_live(call: Call, identity: str) -> bool:
    return call.memory.get(identity, count=False).state in LIVE_STATES


# --- tags ---------------------------------------------------------------------------------------


def read_tags(call: Call, *, id: str) -> dict[str, Any]:
    """GET /memories/{id}/tags."""
    memory = readable(call, id)
    return {"memory_id": memory.id, "tags": list(memory.tags), "warnings": []}


@exclusively
def add_tags(call: Call, *, id: str, tags: Sequence[str]) -> dict[str, Any]:
    """POST /memories/{id}/tags."""
    memory = changeable(call, id)
    kept, refused = tag_rules.normalised(tags)
    joined = list(dict.fromkeys([*memory.tags, *kept]))
    check_tags(joined)
    return _retagged(call, memory, joined, refused)


@exclusively
def remove_tags(call: Call, *, id: str, tags: str) -> dict[str, Any]:
    """DELETE /memories/{id}/tags."""
    memory = changeable(call, id)
    kept, refused = tag_rules.normalised(part for part in tags.split(",") if part.strip())
    left = [tag for tag in memory.tags if tag not in kept]
    return _retagged(call, memory, left, refused)


def _retagged(
    call: Call, memory: Memory, tags: Sequence[str], refused: Sequence[str]
) -> dict[str, Any]:
    changed = call.memory.revise(memory.id, tags=list(tags))
    warnings = [f"'{tag[:100]}' cannot be a tag: a-z, 0-9 and '-' can." for tag in refused]
    return {"memory_id": changed.id, "tags": list(changed.tags), "warnings": warnings}


def list_tags(call: Call) -> dict[str, Any]:
    """GET /tags: every tag by how often it is used."""
    items = [
        {"id": name, "name": name, "usage_count": count, "created_at": stamp(first)}
        for name, count, first in call.memory.tags()
    ]
    return {"items": items, "total": len(items)}


def list_tagged(call: Call, *, tag: str, page: int, per_page: int) -> dict[str, Any]:
    """GET /tags/{tag}/memories."""
    first, size = window(page, per_page)
    chosen, total = call.memory.browse(
        tags_any=wanted_tags([tag]) or [tag], limit=size, offset=first
    )
    return {"items": shown_all(call, chosen), "pagination": pagination(page, per_page, total)}
