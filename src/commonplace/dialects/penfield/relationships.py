"""Relationships between memories, paths along them, and contradictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from commonplace.dialects.contract import Call, as_json
from commonplace.dialects.penfield.failures import (
    AlreadyExists,
    AlreadyRelated,
    Forbidden,
    Invalid,
    Missing,
    stamp,
)
from commonplace.dialects.penfield.fitting import MAX_BYTES, MIN_CHARS, response_size
from commonplace.dialects.penfield.memories import (
    PageRange,
    get_changeable,
    get_readable,
    lifecycle_of,
    main_fields,
    to_dict,
)
from commonplace.dialects.penfield.versions import store_successor
from commonplace.engine.model import LIVE_STATES, Link, Memory
from commonplace.errors import Conflict, NotFound
from commonplace.platform.exclusive import exclusively

STRENGTH, CONFIDENCE = 0.5, 0.8
INVERSE_PAIRED = "INVERSE_PAIRED"
DIRECTIONS = ("DIRECTED", "BIDIRECTIONAL", INVERSE_PAIRED)
LINK_DIRECTIONS = {"OUTBOUND": "out", "INBOUND": "in", "ANY": "any"}
MOST_PATHS = 1_000
SHOWN_PATHS = 200
SHOWN_CHARS = 1_000  # characters shown of each visited memory
MAX_BULK = 100


def link_to_dict(link: Link) -> dict[str, Any]:
    """Return the fields of a relationship."""
    attrs = link.attrs
    direction = attrs.get("direction_type")
    return {
        "id": link.id,
        "from_id": link.source,
        "to_id": link.target,
        "relationship_type": link.kind,
        "direction_type": direction if direction in DIRECTIONS else "DIRECTED",
        "inverse_type": attrs.get("inverse_type"),
        "strength": link.weight,
        "confidence": attrs.get("confidence", CONFIDENCE),
        "evidence": attrs.get("evidence") or {},
        "traversal_properties": attrs.get("traversal_properties") or {},
        "created_at": stamp(link.created_at),
    }


@exclusively
def relate(
    call: Call,
    *,
    from_id: str,
    to_id: str,
    relationship_type: str,
    direction_type: str = "DIRECTED",
    inverse_type: str | None = None,
    strength: float = STRENGTH,
    confidence: float = CONFIDENCE,
    evidence: Mapping[str, Any] | None = None,
    traversal_properties: Mapping[str, Any] | None = None,
) -> list[Link]:
    """Relate two memories; an inverse type adds a relationship in the other direction."""
    one, other = _get_live(call, from_id, "from_id"), _get_live(call, to_id, "to_id")
    if one.id == other.id:
        raise Invalid("A memory cannot be related to itself.", field="to_id")
    if direction_type == INVERSE_PAIRED and inverse_type is None:
        raise Invalid("INVERSE_PAIRED needs an inverse_type.", field="inverse_type")
    if inverse_type is not None and direction_type != INVERSE_PAIRED:
        raise Invalid("inverse_type is for INVERSE_PAIRED only.", field="inverse_type")
    properties = {
        "confidence": confidence,
        "direction_type": direction_type,
        "evidence": dict(evidence or {}),
        "traversal_properties": dict(traversal_properties or {}),
    }
    ways = [(one.id, other.id, relationship_type, inverse_type)]
    if inverse_type is not None:
        ways.append((other.id, one.id, inverse_type, relationship_type))
    links = []
    for source, target, kind, inverse in ways:
        attrs = {**properties, "inverse_type": inverse}
        attrs = {name: value for name, value in attrs.items() if value not in (None, {})}
        try:
            links.append(call.memory.links.add(source, target, kind, weight=strength, attrs=attrs))
        except Conflict:
            raise AlreadyRelated(
                f"The relationship '{kind}' between these memories already exists",
                hint="Change it, or remove it first.",
                details={"from_id": source, "to_id": target, "relationship_type": kind},
            ) from None
    return links


def _get_live(call: Call, identity: str, field: str) -> Memory:
    memory = get_readable(call, identity)
    if memory.state not in LIVE_STATES:
        raise Invalid(
            f"The memory is {lifecycle_of(memory)}; only a live memory can be related.",
            hint="Use the newest version; see the history of the memory.",
            field=field,
        )
    return memory


def find_paths(
    call: Call,
    *,
    start_memory_id: str,
    max_depth: int,
    direction: str,
    include_scores: bool,
    relationship_types: Sequence[str] | None = None,
    min_strength: float | None = None,
    most: int = MOST_PATHS,
) -> dict[str, Any]:
    """Return simple paths from a memory.

    The score of a path is the product of its strengths, halved at each step.
    """
    start = get_readable(call, start_memory_id)
    found = call.memory.links.traverse(
        start.id,
        depth=max_depth,
        direction=LINK_DIRECTIONS[direction],  # type: ignore[arg-type]
        kinds=relationship_types or None,
        weight=min_strength or 0.0,
        max_paths=most,
    )
    paths = [
        {
            "nodes": list(path.nodes),
            "relationships": [link_to_dict(link) for link in path.links],
            "total_score": round(path.score, 6) if include_scores else None,
            "path_metadata": {
                "depth": path.depth,
                "start_node": start.id,
                "direction": direction,
            },
        }
        for path in found.paths
    ]
    return {
        "paths": paths,
        "visited_chunks": found.visited,
        "max_depth_reached": max((path.depth for path in found.paths), default=0),
        "total_paths_found": len(paths),
        "complete": found.complete,
    }


# --- tools --------------------------------------------------------------------------------------


def connect(
    call: Call, *, from_memory: str, to_memory: str, relationship_type: str, strength: float
) -> dict[str, Any]:
    """`connect`: relate two memories."""
    ends = {"from_id": from_memory, "to_id": to_memory, "relationship_type": relationship_type}
    return {"success": True, **create_relationship(call, **ends, strength=strength)}


def explore(
    call: Call,
    *,
    start_memory: str,
    max_depth: int,
    relationship_types: Sequence[str] | None = None,
) -> dict[str, Any]:
    """`explore`: return the paths from a memory, and the memories on these paths."""
    walked = find_paths(
        call,
        start_memory_id=start_memory,
        max_depth=max_depth,
        direction="ANY",
        include_scores=True,
        relationship_types=relationship_types,
        most=SHOWN_PATHS,
    )
    known = {each: call.memory.get(each, count=False) for each in walked["visited_chunks"]}
    chars = SHOWN_CHARS
    while True:
        memories = [main_fields(known[each], chars - 1) for each in walked["visited_chunks"]]
        answer = {"success": True, **walked, "memories": memories}
        if response_size(answer) <= MAX_BYTES:
            return answer
        if chars > MIN_CHARS:
            chars //= 2
        else:
            walked = _without_farthest(walked)


def _without_farthest(walked: dict[str, Any]) -> dict[str, Any]:
    """Return the walk without the last quarter of its paths, the longest and weakest ones."""
    paths = walked["paths"][: len(walked["paths"]) * 3 // 4]
    visited = [walked["visited_chunks"][0], *(node for path in paths for node in path["nodes"])]
    return {
        "paths": paths,
        "visited_chunks": list(dict.fromkeys(visited)),
        "max_depth_reached": max((path["path_metadata"]["depth"] for path in paths), default=0),
        "total_paths_found": len(paths),
        "complete": False,
    }


def disconnect(call: Call, *, from_memory: str, to_memory: str) -> dict[str, Any]:
    """`disconnect`: remove relationships; the caller needs the permission to delete."""
    if not call.caller.scopes & {"delete", "admin"}:
        raise Forbidden("Forbidden")
    count = _remove_between(call, from_memory, to_memory)
    return {"success": True, "message": f"{count} relationships removed", "removed": count}


@exclusively
def _remove_between(call: Call, from_id: str, to_id: str) -> int:
    """Remove every relationship from one memory to another; return their number."""
    one, other = get_readable(call, from_id), get_readable(call, to_id)
    leaving = call.memory.links.of(one.id, direction="out")
    between = [link for link in leaving if link.target == other.id]
    if not between:
        raise Missing(
            "Relationship not found", hint="The relationship may have the other direction."
        )
    for link in between:
        call.memory.links.remove(link.id)
    return len(between)


# --- endpoints ----------------------------------------------------------------------------------


def create_relationship(call: Call, **details: Any) -> dict[str, Any]:
    """POST /relationships."""
    return link_to_dict(relate(call, **details)[0])


def read_relationship(call: Call, *, id: str) -> dict[str, Any]:
    """GET /relationships/{id}."""
    return link_to_dict(_get_link(call, id))


def _get_link(call: Call, identity: str) -> Link:
    try:
        return call.memory.links.get(identity.lower())
    except NotFound:
        raise Missing("Relationship not found", field="id") from None


def list_relationships(
    call: Call,
    *,
    page: int,
    per_page: int,
    from_id: str | None = None,
    to_id: str | None = None,
    memory_id: str | None = None,
    relationship_type: str | None = None,
) -> dict[str, Any]:
    """GET /relationships: list a page of relationships, oldest first."""
    kinds = [relationship_type] if relationship_type else None
    try:
        links = call.memory.links.of(memory_id or from_id or to_id, kinds=kinds)
    except NotFound:
        links = []
    source, target, end = (each and each.lower() for each in (from_id, to_id, memory_id))
    chosen = [
        link
        for link in links
        if source in (None, link.source)
        and target in (None, link.target)
        and end in (None, link.source, link.target)
    ]
    chosen.sort(key=lambda link: (link.created_at, link.id))
    return PageRange(page, per_page).select(chosen, link_to_dict)


@exclusively
def change_relationship(
    call: Call,
    *,
    id: str,
    strength: float | None = None,
    confidence: float | None = None,
    evidence: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """PATCH /relationships/{id}."""
    link = _get_link(call, id)
    given = {"confidence": confidence, "evidence": evidence}
    attrs = {**link.attrs, **{name: each for name, each in given.items() if each is not None}}
    weight = link.weight if strength is None else strength
    if (weight, attrs) != (link.weight, link.attrs):
        link = call.memory.links.revise(link.id, weight=weight, attrs=attrs)
    return link_to_dict(link)


@exclusively
def delete_relationship(call: Call, *, id: str) -> None:
    """DELETE /relationships/{id}."""
    call.memory.links.remove(_get_link(call, id).id)


def delete_between(call: Call, *, from_id: str, to_id: str) -> None:
    """DELETE /relationships/between."""
    _remove_between(call, from_id, to_id)


def create_relationships(
    call: Call, *, relationships: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """POST /relationships/bulk: create all relationships, or none."""
    links = [link for one in relationships for link in relate(call, **one)]
    return {
        "created": [link_to_dict(link) for link in links],
        "updated": [],
        "deleted": [],
        "errors": [],
    }


def traverse(call: Call, **details: Any) -> dict[str, Any]:
    """POST /relationships/traverse: return as many paths as fit into a response."""
    walked = find_paths(call, **details)
    while len(as_json(walked).encode()) > MAX_BYTES:
        walked = _without_farthest(walked)
    return walked


# --- contradictions -----------------------------------------------------------------------------


def contradiction_to_dict(link: Link) -> dict[str, Any]:
    """Return the fields of a contradiction, a relationship with a status."""
    about = link.attrs.get("contradiction") or {}
    return {
        "id": link.id,
        "source_memory_id": link.source,
        "target_memory_id": link.target,
        "contradiction_type": about.get("type", "direct"),
        "confidence": link.attrs.get("confidence", CONFIDENCE),
        "metadata": about.get("metadata") or {},
        "status": about.get("status", "unresolved"),
        "resolution": about.get("resolution"),
        "reason": about.get("reason"),
        "new_memory_id": about.get("new_memory_id"),
        "created_at": stamp(link.created_at),
    }


def create_contradiction(
    call: Call,
    *,
    source_memory_id: str,
    target_memory_id: str,
    contradiction_type: str,
    confidence: float,
    metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """POST /memories/contradictions."""
    about = {"type": contradiction_type, "status": "unresolved", "metadata": dict(metadata or {})}
    (link,) = relate(
        call,
        from_id=source_memory_id,
        to_id=target_memory_id,
        relationship_type="contradicts",
        confidence=confidence,
    )
    link = call.memory.links.revise(link.id, attrs={**link.attrs, "contradiction": about})
    return contradiction_to_dict(link)


def list_contradictions(call: Call, *, id: str) -> dict[str, Any]:
    """GET /memories/{id}/contradictions."""
    memory = get_readable(call, id)
    links = call.memory.links.of(memory.id, kinds=["contradicts"])
    return {"items": [contradiction_to_dict(link) for link in links], "total": len(links)}


@exclusively
def resolve_contradiction(
    call: Call,
    *,
    id: str,
    resolution: str,
    new_content: str | None = None,
    reason: str | None = None,
) -> dict[str, Any]:
    """POST /memories/contradictions/{id}/resolve."""
    link = _get_link(call, id)
    if link.kind != "contradicts":
        raise Missing("Contradiction not found", field="id")
    about = dict(link.attrs.get("contradiction") or {"type": "direct"})
    if about.get("status", "unresolved") != "unresolved":
        raise AlreadyExists(f"The contradiction is already {about['status']}.", field="id")
    about |= {"resolution": resolution, "reason": reason, "status": "resolved"}
    if resolution == "keep_both":
        about["status"] = "accepted"
    elif resolution == "create_new":
        if new_content is None:
            raise Invalid("create_new needs new_content.", field="new_content")
        one, other = get_changeable(call, link.source), get_changeable(call, link.target)
        # Mark it first, so that the new memory does not inherit the contradiction.
        _mark_contradicted(call, other)
        new, _ = store_successor(call, one, new_content, "contradicted", reason or "")
        _link_as_replaced(call, other, new)
        about["new_memory_id"] = new.id
    else:
        ends = (link.source, link.target)
        right, wrong = ends if resolution == "choose_memory_1" else ends[::-1]
        loser = get_changeable(call, wrong)
        _mark_contradicted(call, loser)
        _link_as_replaced(call, loser, get_readable(call, right))
    changed = call.memory.links.revise(link.id, attrs={**link.attrs, "contradiction": about})
    answer = contradiction_to_dict(changed)
    if "new_memory_id" in about:
        answer["new_memory"] = to_dict(call, get_readable(call, about["new_memory_id"]))
    return answer


def _mark_contradicted(call: Call, memory: Memory) -> None:
    """Mark a memory as contradicted; searches no longer find it."""
    attrs = {**memory.attrs, "lifecycle": "contradicted"}
    call.memory.revise(memory.id, state="superseded", attrs=attrs)


def _link_as_replaced(call: Call, old: Memory, new: Memory) -> None:
    there = call.memory.links.of(new.id, direction="out", kinds=["supersedes"])
    if all(link.target != old.id for link in there):
        call.memory.links.add(new.id, old.id, "supersedes", weight=1.0)
