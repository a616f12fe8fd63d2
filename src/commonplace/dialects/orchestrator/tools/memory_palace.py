"""The Memory Palace: what is filed where, and how rooms hang together."""

from __future__ import annotations

from typing import Annotated

from commonplace.dialects.contract import Call
from commonplace.dialects.orchestrator import drawers, rooms
from commonplace.dialects.orchestrator.answering import Answer, clamped, stamp, tool
from commonplace.errors import InvalidInput

SEARCH, MOST_FOUND = 5, 50
HOPS, MOST_HOPS = 3, 5
ENTRIES, MOST_ENTRIES = 10, 100
ALIKE = 0.9


@tool("read", {"total_drawers": 0, "wings": [], "rooms": []})
def memory_status(call: Call) -> Answer:
    """Get memory palace status: total drawer count, wings, and rooms."""
    counts = drawers.counts(call.memory)
    return {
        "total_drawers": sum(count for _, count in counts),
        "wings": rooms.by_wing(counts),
        "rooms": rooms.by_room(counts),
    }


@tool("read", {"wings": []})
def memory_list_wings(call: Call) -> Answer:
    """List all wings (top-level categories) of the memory palace with drawer counts."""
    return {"wings": rooms.by_wing(drawers.counts(call.memory))}


@tool("read", {"rooms": []})
def memory_list_rooms(
    call: Call, *, wing: Annotated[str, "Only rooms of this wing."] = ""
) -> Answer:
    """List rooms of the memory palace with drawer counts, optionally of one wing."""
    return {"rooms": rooms.by_room(drawers.counts(call.memory), wing)}


@tool("read", {"taxonomy": {}})
def memory_get_taxonomy(call: Call) -> Answer:
    """Get the full taxonomy: wings with their rooms and drawer counts."""
    taxonomy: dict[str, dict[str, dict[str, int]]] = {}
    for room in rooms.by_room(drawers.counts(call.memory)):
        held = taxonomy.setdefault(room["wing"], {"rooms": {}})["rooms"]
        held[room["room"]] = room["count"]
    return {"taxonomy": taxonomy}


@tool("read", {"results": [], "count": 0})
def memory_search(
    call: Call,
    *,
    query: Annotated[str, "What to search for."],
    limit: Annotated[int, f"How many results; at most {MOST_FOUND}."] = SEARCH,
    wing: Annotated[str, "Only drawers of this wing."] = "",
    room: Annotated[str, "Only drawers of this room."] = "",
) -> Answer:
    """Search memories by meaning: the nearest first."""
    most = clamped(limit, SEARCH, MOST_FOUND)
    found = drawers.search(call.memory, query, limit=most, wing=wing, room=room)
    return {"results": found, "count": len(found)}


@tool("read", {"duplicates": [], "has_duplicate": False})
def memory_check_duplicate(
    call: Call,
    *,
    content: Annotated[str, "The text that may be filed already."],
    threshold: Annotated[float, "How alike, 0 to 1."] = ALIKE,
) -> Answer:
    """Check whether a text is filed already, by meaning, before it is added."""
    if len(content) > drawers.CONTENT_CHARS:
        raise InvalidInput(f"content exceeds max length of {drawers.CONTENT_CHARS}")
    found = drawers.duplicates(call.memory, content, threshold if threshold > 0 else ALIKE)
    return {"duplicates": found, "has_duplicate": bool(found)}


@tool("read", {"rooms": [], "count": 0})
def memory_traverse(
    call: Call,
    *,
    start_room: Annotated[str, "The room to start from."],
    max_hops: Annotated[int, f"How far to go, 1 to {MOST_HOPS}."] = HOPS,
) -> Answer:
    """Walk from a room to those that share a wing with it, step by step."""
    graph = rooms.graph(drawers.counts(call.memory))
    found = rooms.traverse(graph, start_room, clamped(max_hops, HOPS, MOST_HOPS))
    return {"rooms": found, "count": len(found)}


@tool("read", {"tunnels": [], "count": 0})
def memory_find_tunnels(
    call: Call,
    *,
    wing_a: Annotated[str, "A wing that must be joined."] = "",
    wing_b: Annotated[str, "Another one."] = "",
) -> Answer:
    """Find rooms that occur in two or more wings: subjects that join them."""
    joining = rooms.tunnels(rooms.graph(drawers.counts(call.memory)), wing_a, wing_b)
    found = [room.as_dict() for room in joining[: rooms.MOST]]
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
)
def memory_graph_stats(call: Call) -> Answer:
    """Get statistics of the palace's map: rooms, tunnels, edges, rooms of each wing."""
    return rooms.stats(rooms.graph(drawers.counts(call.memory)))


@tool("write", {"drawer_id": "", "memory_type": "", "info": ""}, idempotent=True)
def memory_add_drawer(
    call: Call,
    *,
    wing: Annotated[str, "The wing: a person, a project, a subject."],
    room: Annotated[str, "The room in it: a topic."],
    content: Annotated[str, f"The text, verbatim; at most {drawers.CONTENT_CHARS} characters."],
    source_file: Annotated[str, "Where it comes from."] = "",
    added_by: Annotated[str, "Who adds it."] = "",
) -> Answer:
    """Store a text verbatim in a room of a wing; its type and importance are found by itself."""
    identity, memory_type = drawers.put(
        call.memory, wing, room, content, source_file=source_file, added_by=added_by
    )
    return {"drawer_id": identity, "memory_type": memory_type, "info": "drawer added"}


@tool("delete", {"deleted": False, "info": ""}, destructive=True)
def memory_delete_drawer(call: Call, *, drawer_id: Annotated[str, "Its id."]) -> Answer:
    """Delete a drawer by its id. It can be restored by a person."""
    drawers.delete(call.memory, drawer_id)
    return {"deleted": True, "info": "drawer deleted"}


@tool("write", {"info": ""}, idempotent=True)
def memory_set_identity(
    call: Call,
    *,
    content: Annotated[str, f"At most {drawers.IDENTITY_CHARS} characters."],
) -> Answer:
    """Set who this workspace is: what every agent is told first. Replaces what was set before."""
    drawers.set_identity(call.memory, content)
    return {"info": "identity set"}


@tool("write", {"drawer_id": "", "info": ""})
def memory_diary_write(
    call: Call,
    *,
    agent_name: Annotated[str, "Whose diary it is."],
    entry: Annotated[str, f"The entry; at most {drawers.CONTENT_CHARS} characters."],
    topic: Annotated[str, "A tag for it."] = "",
) -> Answer:
    """Write an entry into an agent's diary."""
    identity = drawers.write_diary(call.memory, agent_name, entry, topic)
    return {"drawer_id": identity, "info": "diary entry written"}


@tool("read", {"entries": [], "count": 0})
def memory_diary_read(
    call: Call,
    *,
    agent_name: Annotated[str, "Whose diary it is."],
    last_n: Annotated[int, f"How many entries; at most {MOST_ENTRIES}."] = ENTRIES,
) -> Answer:
    """Read an agent's diary, the newest entry first."""
    last = clamped(last_n, ENTRIES, MOST_ENTRIES)
    entries = [
        {
            "id": entry.ref,
            "content": entry.text,
            "hall": entry.attrs.get("hall", ""),
            "filed_at": stamp(entry.created_at),
        }
        for entry in drawers.read_diary(call.memory, agent_name, last)
    ]
    return {"entries": entries, "count": len(entries)}
