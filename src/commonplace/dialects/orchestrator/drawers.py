"""The Memory Palace and its tools: verbatim texts (drawers), sorted into rooms of wings.

Each drawer is a memory of the space.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from commonplace.dialects.contract import Call
from commonplace.dialects.orchestrator import rooms
from commonplace.dialects.orchestrator.answering import (
    LARGE_BYTES,
    Answer,
    clamp_limit,
    stamp,
    tool,
)
from commonplace.dialects.orchestrator.classifier import classify
from commonplace.engine import checks
from commonplace.engine.binding import engine_call
from commonplace.engine.content import memories, write_policy
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import LIVE_STATES, Memory
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusive
from commonplace.storage.database import now
from commonplace.text.prose import neutralise
from commonplace.text.snippets import opening

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.finding.recall import Hit, Hits

DRAWER, DIARY, IDENTITY = "drawer", "diary", "identity"
OWN_KINDS = (DRAWER, DIARY)
IMPORTANCE_SCALE = 5.0  # importance is 0..5 in the palace and 0..1 in the engine
NEW_IMPORTANCE = 3.0  # the least importance of a new drawer, from 0 to 5
CONTENT_CHARS = 10_000
IDENTITY_CHARS = 2_000
NAME_CHARS = 200
MOST_DRAWERS = 10_000
REPEATED_ENTRY = "failed to write diary entry: this entry was written before"
LEAST_CHARS = 10
# A new drawer raises the importance of so many drawers that are more similar than NEAR.
NEIGHBOURS = 5
NEIGHBOUR_SIMILARITY = 0.7
REINFORCEMENT = 0.5
IDENTITY_REF = "palace:identity"
DEFAULT_RESULTS, MAX_RESULTS = 5, 50
DEFAULT_HOPS, MOST_HOPS = 3, 5
DEFAULT_ENTRIES, MOST_ENTRIES = 10, 100
DUPLICATE_SIMILARITY = 0.9
L0_CHARS = 400
L1_DRAWERS = 15
L1_SNIPPET_CHARS = 200
L1_CHARS = 2_000
PROMPT_CHARS = 14_000
"""The maximum length of the text before a message to an agent: wake-up text and last messages."""
SHARED_WING = "shared"
"""The wing that contains memories of other dialects; their kind is the room."""

# The type of memories of other dialects in the palace, by kind.
SHOWN_TYPES: Mapping[str, str] = {
    "decision": "decision",
    "preference": "preference",
    "checkpoint": "milestone",
    "fact": "fact",
    "task": "task",
    "diary": "diary",
    "*": "general",
}
_FILLER = frozenset(  # shorter phrases are rejected because of their length
    {"thanks a lot", "thank you so much", "thank you very much", "sounds good", "good morning",
     "good night", "good evening", "good afternoon", "no problem", "you're welcome", "of course",
     "see you later", "sounds good to me", "that's great", "very nice", "makes sense"}
)  # fmt: skip


def is_noise(content: str) -> bool:
    """Return whether a text is too short or too trivial to store."""
    said = content.strip()
    return len(said) < LEAST_CHARS or said.lower().strip(" .!?,") in _FILLER


def drawer_id(wing: str, room: str, content: str) -> str:
    """Return the id of a drawer: its wing, its room and a hash of its text."""
    return f"drawer_{wing}_{room}_{hashlib.sha256(content.encode()).hexdigest()[:16]}"


def address_tags(wing: str, room: str) -> list[str]:
    """Return the tags of drawers in a room of a wing."""
    return [_address_tag("wing", wing), _address_tag("room", room)]


def _address_tag(sort: str, name: str) -> str:
    tag = f"{sort}:{name}"
    if len(tag) > 100:  # a longer name is hashed, because tags have a maximum length
        tag = f"{sort}:{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    return tag


def wing_of_agent(name: str) -> str:
    """Return the wing of an agent's diary."""
    return "wing_" + name.strip().lower().replace(" ", "_").replace("'", "")


def room_counts(memory: Commonplace) -> list[tuple[tuple[str, str, str], int]]:
    """Return the number of drawers of each (wing, room, hall)."""
    found = engine_call(memory, memories.count_by_attrs, ["wing", "room", "hall"], OWN_KINDS)
    return [((wing, room, hall), count) for (wing, room, hall), count in found.items()]


def drawer_to_dict(found: Memory, similarity: float) -> dict[str, Any]:
    """Return the fields of a drawer, or of another dialect's memory as a drawer."""
    attrs = found.attrs
    own = found.kind in OWN_KINDS
    return {
        "id": found.ref if own and found.ref else found.id,
        "wing": attrs.get("wing", "") if own else SHARED_WING,
        "room": attrs.get("room", "") if own else found.kind,
        "content": opening(found.text, CONTENT_CHARS),
        "memory_type": attrs.get("memory_type", "general")
        if own
        else SHOWN_TYPES.get(found.kind, SHOWN_TYPES["*"]),
        "importance": round(found.importance * IMPORTANCE_SCALE, 4),
        "similarity": round(similarity, 4),
        "filed_at": stamp(found.created_at),
    }


def search(
    memory: Commonplace, query: str, *, limit: int, wing: str = "", room: str = ""
) -> list[dict[str, Any]]:
    """Return the most similar live memories, optionally of a wing or a room."""
    tags = [_address_tag(sort, name) for sort, name in (("wing", wing), ("room", room)) if name]
    conditions: dict[str, Any] = {"tags_all": tags}
    if tags:
        conditions["kinds"] = OWN_KINDS
    hits = [*search_by_meaning(memory, query, limit=limit, **conditions)]
    if wing == SHARED_WING:
        hits += _search_other_dialects(memory, query, limit, room)
        hits.sort(key=lambda hit: -hit.similarity)
    del hits[limit:]
    engine_call(memory, OpenSpace.count_reads, [hit.memory.num for hit in hits], now())
    return [drawer_to_dict(hit.memory, hit.similarity) for hit in hits]


def _search_other_dialects(memory: Commonplace, query: str, limit: int, room: str) -> Sequence[Hit]:
    """Search memories of other dialects; a room restricts the search to one kind."""
    if not room:
        return search_by_meaning(memory, query, limit=limit, without_kinds=OWN_KINDS)
    try:
        kind = checks.kind(room)
    except InvalidInput:  # the name is not a valid kind, so there is no such room
        return []
    return [] if kind in OWN_KINDS else search_by_meaning(memory, query, limit=limit, kinds=[kind])


def search_by_meaning(memory: Commonplace, query: str, *, limit: int, **conditions: Any) -> Hits:
    """Search by meaning, or also by words if that is not possible or finds nothing.

    The hits are not counted as read.
    """
    from commonplace.engine.finding.recall import NEAREST_FIRST

    conditions |= {"limit": limit, "minimum": 0, "count": False}
    hits = memory.recall(query, weighting=NEAREST_FIRST, **conditions)
    if hits.degraded or not hits:
        hits = memory.recall(query, **conditions)
    return hits


def add_drawer(
    memory: Commonplace, wing: str, room: str, content: str, **about: str
) -> tuple[str, str]:
    """Store a drawer unless it exists; return its id and type. Similar ones gain importance."""
    for name, value in (("wing", wing), ("room", room)):
        if len(value) > NAME_CHARS:
            raise InvalidInput(f"{name} exceeds max length of {NAME_CHARS}")
    _check_length("content", content, CONTENT_CHARS)
    if is_noise(content):
        raise InvalidInput("content too short or trivial to store")
    identity = drawer_id(wing, room, content)
    sorts = classify(content)
    memory_type = sorts[0].memory_type if sorts else "general"
    importance = max([NEW_IMPORTANCE, *(IMPORTANCE_SCALE * sort.confidence for sort in sorts)])
    there = _find_drawer(memory, identity, content)
    if there is not None:
        if there.state not in LIVE_STATES:
            # Pruning would archive a drawer that kept its low importance again.
            least = min(1.0, importance / IMPORTANCE_SCALE)
            with _within_limit(memory):
                memory.revise(there.id, state="active", importance=max(there.importance, least))
        return identity, str(there.attrs.get("memory_type", "general"))
    near = search_by_meaning(memory, content, limit=NEIGHBOURS, kinds=OWN_KINDS)
    try:
        _store_drawer(memory, identity, wing, room, content, DRAWER, importance, memory_type, about)
    except Conflict:  # another call has stored the same text
        return identity, memory_type
    for hit in near:
        if hit.similarity > NEIGHBOUR_SIMILARITY:
            stands = memory.get(hit.memory.id, count=False)
            raised = min(1.0, stands.importance + REINFORCEMENT / IMPORTANCE_SCALE)
            memory.revise(hit.memory.id, importance=raised)
    return identity, memory_type


def write_diary(memory: Commonplace, agent: str, entry: str, topic: str) -> str:
    """Store a diary entry of an agent and return its id; raise Conflict for a repeated text."""
    _check_length("entry", entry, CONTENT_CHARS)
    if len(agent) > NAME_CHARS or len(topic) > NAME_CHARS:
        raise InvalidInput(f"agent_name and topic may have at most {NAME_CHARS} characters")
    wing = wing_of_agent(agent)
    identity = drawer_id(wing, DIARY, entry)
    about = {"hall": topic, "added_by": agent}
    there = _find_drawer(memory, identity, entry)
    try:
        if there is None or there.state not in LIVE_STATES:
            if there is not None:  # a deleted entry gives its id to the new one
                memory.revise(there.id, ref=None)
            _store_drawer(memory, identity, wing, DIARY, entry, DIARY, NEW_IMPORTANCE, DIARY, about)
            return identity
    except Conflict:  # another call has stored the same text
        pass
    raise Conflict(REPEATED_ENTRY)


def _find_drawer(memory: Commonplace, identity: str, content: str) -> Memory | None:
    """Return the drawer with this id and text, in any state; None if there is none.

    A memory whose kind or text another dialect has changed gives up the id.
    """
    there = lookup.find_memory(memory, identity)
    if there is None:
        return None
    stored = engine_call(memory, write_policy.mask_text, content)
    if there.kind in OWN_KINDS and there.text == stored:
        return there
    memory.revise(there.id, ref=None)
    return None


def _store_drawer(
    memory: Commonplace,
    identity: str,
    wing: str,
    room: str,
    content: str,
    kind: str,
    importance: float,
    memory_type: str,
    about: Mapping[str, str],
) -> None:
    known = {name: value for name, value in about.items() if value}
    with _within_limit(memory):
        memory.remember(
            content,
            kind=kind,
            ref=identity,
            tags=address_tags(wing, room),
            importance=min(1.0, importance / IMPORTANCE_SCALE),
            trust="inferred",
            attrs={"wing": wing, "room": room, "memory_type": memory_type, **known},
        )


@contextlib.contextmanager
def _within_limit(memory: Commonplace) -> Iterator[None]:
    """Check the limit of drawers before the block, and again after it under the write lock."""
    _check_count(memory, MOST_DRAWERS - 1)
    yield
    _check_count(memory, MOST_DRAWERS)


def _check_count(memory: Commonplace, most: int) -> None:
    if sum(engine_call(memory, memories.count_by_attrs, [], OWN_KINDS).values()) > most:
        raise InvalidInput(f"the workspace has {MOST_DRAWERS} drawers, the most it may have")


def _check_length(name: str, text: str, most: int) -> None:
    if len(text) > most:
        raise InvalidInput(f"{name} exceeds max length of {most}")


def delete_drawer(memory: Commonplace, identity: str) -> None:
    """Archive a drawer; 'commonplace recover' makes it live again."""
    found = lookup.find_memory(memory, identity)
    if found is None or found.state not in LIVE_STATES:
        raise NotFound("drawer not found")
    if found.kind not in OWN_KINDS:
        kind = f"a memory of the kind '{found.kind}'"
        raise Conflict(f"this is not a drawer but {kind}, which cannot be deleted here")
    memory.forget(found.id)


def workspace_identity(memory: Commonplace) -> str:
    """Return the identity text of the workspace, or an empty string if there is none."""
    found = lookup.find_live_memory(memory, IDENTITY_REF)
    return found.text if found is not None else ""


def set_identity(memory: Commonplace, content: str) -> None:
    """Replace the identity text of the workspace."""
    _check_length("content", content, IDENTITY_CHARS)
    with exclusive(memory, "set identity"):
        found = lookup.find_memory(memory, IDENTITY_REF)
        if found is None:
            memory.remember(
                content, kind=IDENTITY, ref=IDENTITY_REF, importance=1.0, pinned=True,
                trust="inferred",
            )  # fmt: skip
        else:
            memory.revise(found.id, text=content, state="active")


# The wake-up text of agents


def wake_up_text(memory: Commonplace) -> str:
    """Return the identity (L0) and the most important drawers (L1) as text for a model."""
    identity = workspace_identity(memory)
    parts = [f"## Identity\n{neutralise(truncate(identity, L0_CHARS))}" if identity else ""]
    best, _ = memory.browse(kinds=OWN_KINDS, order="importance", limit=L1_DRAWERS)
    by_room: dict[str, list[str]] = defaultdict(list)
    for drawer in best:
        snippet = " ".join(truncate(drawer.text, L1_SNIPPET_CHARS).split())
        room = " ".join(str(drawer.attrs.get("room", "")).split())
        by_room[room].append(f"- {neutralise(snippet)}")
    parts.append(_fit_entries("## Essential memories", by_room, L1_CHARS))
    return "\n\n".join(part for part in parts if part)


def _fit_entries(heading: str, by_room: Mapping[str, Sequence[str]], chars: int) -> str:
    text = heading
    for room, lines in by_room.items():
        started = f"{text}\n[{neutralise(room)}]"
        if len(started) + len(lines[0]) + 1 > chars:
            break
        text = started
        for line in lines:
            if len(text) + len(line) + 1 > chars:
                return text
            text += f"\n{line}"
    return text if text != heading else ""


def truncate(text: str, chars: int) -> str:
    """Truncate a text that is longer than a number of characters, and add three dots."""
    return text if len(text) <= chars else text[:chars] + "..."


# The tools


@tool("read", {"total_drawers": 0, "wings": [], "rooms": []}, response_bytes=LARGE_BYTES)
def memory_status(call: Call) -> Answer:
    """Get memory palace status: total drawer count, wings, and rooms."""
    counted = room_counts(call.memory)
    return {
        "total_drawers": sum(count for _, count in counted),
        "wings": rooms.wing_totals(counted),
        "rooms": rooms.room_totals(counted),
    }


@tool("read", {"wings": []}, response_bytes=LARGE_BYTES)
def memory_list_wings(call: Call) -> Answer:
    """List all wings (top-level categories) of the memory palace with drawer counts."""
    return {"wings": rooms.wing_totals(room_counts(call.memory))}


@tool("read", {"rooms": []}, response_bytes=LARGE_BYTES)
def memory_list_rooms(
    call: Call, *, wing: Annotated[str, "Only rooms of this wing."] = ""
) -> Answer:
    """List rooms of the memory palace with drawer counts, optionally of one wing."""
    return {"rooms": rooms.room_totals(room_counts(call.memory), wing)}


@tool("read", {"taxonomy": {}}, response_bytes=LARGE_BYTES)
def memory_get_taxonomy(call: Call) -> Answer:
    """Get the full taxonomy: wings with their rooms and drawer counts."""
    taxonomy: dict[str, dict[str, dict[str, int]]] = {}
    for room in rooms.room_totals(room_counts(call.memory)):
        held = taxonomy.setdefault(room["wing"], {"rooms": {}})["rooms"]
        held[room["room"]] = room["count"]
    return {"taxonomy": taxonomy}


@tool("read", {"results": [], "count": 0}, response_bytes=LARGE_BYTES)
def memory_search(
    call: Call,
    *,
    query: Annotated[str, "What to search for."],
    limit: Annotated[int, f"How many results; at most {MAX_RESULTS}."] = DEFAULT_RESULTS,
    wing: Annotated[str, "Only drawers of this wing."] = "",
    room: Annotated[str, "Only drawers of this room."] = "",
) -> Answer:
    """Search memories by meaning: the nearest first."""
    most = clamp_limit(limit, DEFAULT_RESULTS, MAX_RESULTS)
    found = search(call.memory, query, limit=most, wing=wing, room=room)
    return {"results": found, "count": len(found)}


@tool("read", {"duplicates": [], "has_duplicate": False})
def memory_check_duplicate(
    call: Call,
    *,
    content: Annotated[str, "The text that may be filed already."],
    threshold: Annotated[float, "How alike, 0 to 1."] = DUPLICATE_SIMILARITY,
) -> Answer:
    """Check whether a text is filed already, by meaning, before it is added."""
    _check_length("content", content, CONTENT_CHARS)
    states = (*LIVE_STATES, "superseded", "dead")  # a deleted drawer is no duplicate
    near = search_by_meaning(call.memory, content, limit=NEIGHBOURS, kinds=OWN_KINDS, states=states)
    least = threshold if threshold > 0 else DUPLICATE_SIMILARITY
    found = [drawer_to_dict(hit.memory, hit.similarity) for hit in near if hit.similarity >= least]
    return {"duplicates": found, "has_duplicate": bool(found)}


@tool("read", {"rooms": [], "count": 0}, response_bytes=LARGE_BYTES)
def memory_traverse(
    call: Call,
    *,
    start_room: Annotated[str, "The room to start from."],
    max_hops: Annotated[int, f"How far to go, 1 to {MOST_HOPS}."] = DEFAULT_HOPS,
) -> Answer:
    """Walk from a room to those that share a wing with it, step by step."""
    graph = rooms.rooms_by_name(room_counts(call.memory))
    found = rooms.rooms_within_hops(
        graph, start_room, clamp_limit(max_hops, DEFAULT_HOPS, MOST_HOPS)
    )
    return {"rooms": found, "count": len(found)}


@tool("read", {"tunnels": [], "count": 0}, response_bytes=LARGE_BYTES)
def memory_find_tunnels(
    call: Call,
    *,
    wing_a: Annotated[str, "A wing that must be joined."] = "",
    wing_b: Annotated[str, "Another one."] = "",
) -> Answer:
    """Find rooms that occur in two or more wings: subjects that join them."""
    joining = rooms.tunnel_rooms(rooms.rooms_by_name(room_counts(call.memory)), wing_a, wing_b)
    found = [room.as_dict() for room in joining[: rooms.MAX_ROOMS]]
    return {"tunnels": found, "count": len(found)}


@tool(
    "read",
    {
        "total_rooms": 0,
        "tunnel_rooms": 0,
        "total_edges": 0,
        "rooms_per_wing": {},
        "top_tunnels": [],
    },
    response_bytes=LARGE_BYTES,
)
def memory_graph_stats(call: Call) -> Answer:
    """Get statistics of the palace's map: rooms, tunnels, edges, rooms of each wing."""
    return rooms.map_statistics(rooms.rooms_by_name(room_counts(call.memory)))


@tool("write", {"drawer_id": "", "memory_type": "", "info": ""}, idempotent=True)
def memory_add_drawer(
    call: Call,
    *,
    wing: Annotated[str, "The wing: a person, a project, a subject."],
    room: Annotated[str, "The room in it: a topic."],
    content: Annotated[str, f"The text, verbatim; at most {CONTENT_CHARS} characters."],
    source_file: Annotated[str, "Where it comes from."] = "",
    added_by: Annotated[str, "Who adds it."] = "",
) -> Answer:
    """Store a text verbatim in a room of a wing; its type and importance are set automatically."""
    identity, memory_type = add_drawer(
        call.memory, wing, room, content, source_file=source_file, added_by=added_by
    )
    return {"drawer_id": identity, "memory_type": memory_type, "info": "drawer added"}


@tool("delete", {"deleted": False, "info": ""}, destructive=True)
def memory_delete_drawer(call: Call, *, drawer_id: Annotated[str, "Its id."]) -> Answer:
    """Delete a drawer by its id. It can be restored by a person."""
    delete_drawer(call.memory, drawer_id)
    return {"deleted": True, "info": "drawer deleted"}


@tool("write", {"info": ""}, idempotent=True)
def memory_set_identity(
    call: Call,
    *,
    content: Annotated[str, f"At most {IDENTITY_CHARS} characters."],
) -> Answer:
    """Set who this workspace is: what every agent is told first. Replaces what was set before."""
    set_identity(call.memory, content)
    return {"info": "identity set"}


@tool("write", {"drawer_id": "", "info": ""})
def memory_diary_write(
    call: Call,
    *,
    agent_name: Annotated[str, "Whose diary it is."],
    entry: Annotated[str, f"The entry; at most {CONTENT_CHARS} characters."],
    topic: Annotated[str, "A tag for it."] = "",
) -> Answer:
    """Write an entry into an agent's diary."""
    identity = write_diary(call.memory, agent_name, entry, topic)
    return {"drawer_id": identity, "info": "diary entry written"}


@tool("read", {"entries": [], "count": 0}, response_bytes=LARGE_BYTES)
def memory_diary_read(
    call: Call,
    *,
    agent_name: Annotated[str, "Whose diary it is."],
    last_n: Annotated[int, f"How many entries; at most {MOST_ENTRIES}."] = DEFAULT_ENTRIES,
) -> Answer:
    """Read an agent's diary, the newest entry first."""
    tags = address_tags(wing_of_agent(agent_name), DIARY)
    last = clamp_limit(last_n, DEFAULT_ENTRIES, MOST_ENTRIES)
    newest, _ = call.memory.browse(kinds=OWN_KINDS, tags_all=tags, limit=last)
    entries = [
        {
            "id": entry.ref or entry.id,
            "content": opening(entry.text, CONTENT_CHARS),
            "hall": entry.attrs.get("hall", ""),
            "filed_at": stamp(entry.created_at),
        }
        for entry in newest
    ]
    return {"entries": entries, "count": len(entries)}
