"""Versions of memories: their history, and memories that replace other memories."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from commonplace.dialects.contract import Call
from commonplace.dialects.penfield import memories
from commonplace.dialects.penfield.failures import AlreadyExists, Invalid, NoMemory, stamp
from commonplace.dialects.penfield.kinds import CHUNK_KIND
from commonplace.dialects.penfield.memories import get_changeable, get_readable, lifecycle_of
from commonplace.engine.model import LIVE_STATES, Link, Memory
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusively

LIFECYCLE_BY_EVOLUTION = {
    "correction": "corrected",
    "update": "superseded",
    "expansion": "superseded",
    "contradiction": "contradicted",
    "deprecation": "archived",
}


class _Version(NamedTuple):
    since: datetime
    memory: Memory
    form: Memory
    """The memory in this version."""
    is_current: bool


def read_history(call: Call, *, id: str) -> dict[str, Any]:
    """GET /memories/{id}/history: list the versions of a memory and of those it replaced."""
    chain = _replacement_chain(call, get_readable(call, id))
    versions = [
        {
            "id": version.memory.id,
            "version": number,
            "content": version.form.text,
            "created_at": stamp(version.since),
            "lifecycle_state": (
                lifecycle_of(version.memory) if version.is_current else "superseded"
            ),
            "is_active": version.is_current and version.memory.state in LIVE_STATES,
        }
        for number, version in enumerate(_versions(call, chain), start=1)
    ]
    newest = chain[-1]
    return {
        "current": memories.to_dict(call, newest, call.memory.links.of(newest.id)),
        "history": versions[::-1],
        "total_versions": len(versions),
    }


def _replacement_chain(call: Call, memory: Memory) -> list[Memory]:
    """Return the chain of a memory, its predecessors and its successors, oldest first."""
    seen = {memory.id: memory}
    for direction in ("out", "in"):
        current = memory
        while True:
            links = call.memory.links.of(current.id, direction=direction, kinds=["supersedes"])
            ends = [link.target if direction == "out" else link.source for link in links]
            following = next((end for end in ends if end not in seen), None)
            if following is None:
                break
            try:
                current = get_readable(call, following)
            except NoMemory:
                break
            if direction == "in" and lifecycle_of(memory) == "active":
                break
            seen[current.id] = current
    return sorted(seen.values(), key=lambda one: (one.created_at, one.num))


def _versions(call: Call, chain: list[Memory]) -> list[_Version]:
    """Return the versions of a chain, oldest first; a change that keeps the text is no version."""
    found = [
        _Version(version.since, one, version.memory, version.until is None)
        for one in chain
        for version in call.memory.history.versions(one.id)
    ]
    distinct: list[_Version] = []
    for each in sorted(found, key=lambda version: (version.form.num, version.form.version)):
        last = distinct[-1] if distinct else None
        if last and last.memory.id == each.memory.id and last.form.text == each.form.text:
            distinct[-1] = each._replace(since=last.since)
        else:
            distinct.append(each)
    return distinct


@exclusively
def evolve_memory(
    call: Call, *, id: str, new_content: str, evolution_type: str, reason: str | None = None
) -> dict[str, Any]:
    """POST /memories/{id}/evolve: replace a memory by a new one."""
    old = get_changeable(call, id)
    if old.state not in LIVE_STATES:
        raise AlreadyExists(
            f"The memory is already {lifecycle_of(old)}.",
            hint="Evolve the newest version; see the history of the memory.",
            field="id",
        )
    new, link = store_successor(
        call, old, new_content, LIFECYCLE_BY_EVOLUTION[evolution_type], reason or ""
    )
    call.memory.links.revise(link.id, attrs={**link.attrs, "evolution_type": evolution_type})
    return {
        "original_memory_id": old.id,
        "new_memory_id": new.id,
        "evolution_id": link.id,
        "evolution_type": evolution_type,
        "version": len(_versions(call, _replacement_chain(call, new))),
        "created_at": stamp(new.created_at),
    }


def store_successor(
    call: Call, old: Memory, content: str, lifecycle: str, reason: str
) -> tuple[Memory, Link]:
    """Store the successor of a memory, with copies of its links to live memories."""
    if not content.strip():
        raise Invalid("The new content must not be blank.", field="new_content")
    links = call.memory.links
    around = links.of(old.id)
    attrs = {name: value for name, value in old.attrs.items() if name != "lifecycle"}
    draft: dict[str, Any] = {
        "kind": "reference" if old.kind == CHUNK_KIND else old.kind,
        "tags": old.tags,
        "importance": old.importance,
        "confidence": old.confidence,
        "trust": "inferred" if old.trust == "stated" else old.trust,
        "attrs": {"metadata": memories.metadata_of(old)} if old.kind == CHUNK_KIND else attrs,
    }
    if old.kind == "checkpoint":
        draft |= memories.context_fields(content, attrs)
    with memories.claim_name(call, draft):
        new = call.memory.supersede(old.id, content, reason=reason, **draft)
    marked: dict[str, Any] = {"attrs": {**old.attrs, "lifecycle": lifecycle}}
    if old.kind == "checkpoint":
        marked["ref"] = None
    if lifecycle == "archived":
        marked["state"] = "archived"
    call.memory.revise(old.id, **marked)
    for link in around:
        other = link.target if link.source == old.id else link.source
        if link.kind == "supersedes" or lookup.find_live_memory(call.memory, other) is None:
            continue
        source, target = (new.id, other) if link.source == old.id else (other, new.id)
        links.add(
            source, target, link.kind, weight=link.weight, reason=link.reason, attrs=link.attrs
        )
    replaced = links.of(new.id, direction="out", kinds=["supersedes"])
    return new, next(link for link in replaced if link.target == old.id)
