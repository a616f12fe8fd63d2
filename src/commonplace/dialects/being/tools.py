"""The eleven tools of the contract, as they are listed."""

from __future__ import annotations

from typing import Any

from commonplace.dialects.being import (
    clock,
    context,
    history,
    merging,
    notes,
    recalling,
    records,
    running,
)
from commonplace.dialects.contract import Schema, Tool

TARGETS = (
    "preferences", "knowledge", "relationship", "partner_tools", "partner_map", "diary", "notes",
    "party_message", "partner_rules", "souls",
)  # fmt: skip


def _text(words: str) -> dict[str, Any]:
    return {"type": "string", "description": words}


def _texts(words: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": words}


def takes(required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """The schema of arguments."""
    taken: dict[str, Any] = {
        "type": "object", "properties": properties, "additionalProperties": False,
    }  # fmt: skip
    return {**taken, "required": list(required)} if required else taken


def _gives(*required: str) -> Schema:
    return {"type": "object", "required": list(required)}


SCENE: Schema = {
    "type": "object",
    "properties": {
        "action": _text("What happened"),
        "actors": _texts("Who was involved"),
        "when": {
            "type": "array",
            "items": {"type": "string", "format": "date"},
            "description": "Date(s) as YYYY-MM-DD",
        },
        "setting": _text("Where, in what context"),
        "feeling": _text("First-person impression"),
        "themes": _texts("Theme tags"),
        "importance": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.5},
        "dialogue": _texts("What was said"),
        "sensory": _texts("What was sensed"),
    },
    "required": ["action", "actors", "when"],
}
MESSAGE: Schema = {
    "type": "object",
    "properties": {
        "role": {"enum": list(history.ROLES)},
        "content": {"type": "string"},
        "created_at": {"type": "string"},
    },
    "required": ["role", "content"],
}
NOTE_TYPE: Schema = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "type": {"enum": list(notes.TYPES)}},
    "required": ["id", "type"],
}
NOTE: Schema = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {
                "content": {"type": "string"},
                "type": {"enum": list(notes.TYPES), "default": "note"},
            },
            "required": ["content"],
        },
    ]
}
NOTES_INPUT = takes(
    action={"enum": ["append", "update"], "default": "append"},
    scenes={"type": "array", "items": SCENE, "default": [], "maxItems": 200},
    notes={"type": "array", "items": NOTE, "default": [], "maxItems": 200},
    scene_ids={**_texts("Scenes to delete when action=update"), "default": [], "maxItems": 500},
    note_type_updates={"type": "array", "items": NOTE_TYPE, "default": [], "maxItems": 200},
)
MEMORY_INPUT = takes(
    ("target", "action"),
    target={"enum": list(TARGETS)},
    action={"enum": list(records.ACTIONS)},
    content=_text("For append and update"),
    key=_text("Narrows update, delete and get to one entry"),
    location=_text("For partner_map"),
    to=_text("Recipient's name, for party_message"),
)
RELATION_INPUT = takes(
    ("entity_name", "relation_type", "action"),
    entity_name=_text("Whom or what it is about"),
    relation_type=_text("person, device, ai, organization, …"),
    content=_text("What the relation is; needed for upsert"),
    action={"enum": ["upsert", "delete"]},
)
HISTORY_INPUT = takes(
    query=_text("Part of what was said"),
    date_from=_text("YYYY-MM-DD, from 00:00:00 UTC"),
    date_to=_text("YYYY-MM-DD, until 23:59:59 UTC"),
    limit={"type": "number", "default": history.FOUND, "description": "At most 50"},
)
SEARCH_INPUT = takes(
    ("query",),
    query=_text("What to search for"),
    limit={"type": "number", "default": recalling.FOUND, "description": "At most 30"},
    mode={"enum": ["or", "and"], "default": "or"},
)
PATROL_INPUT = takes(
    ("messages",),
    messages={"type": "array", "items": MESSAGE, "maxItems": 1_000},
    marker_id=_text("Marker of the previous patrol"),
)
MERGE_INPUT = takes(
    ("node_ids", "summary"),
    node_ids=_text("Comma-separated ids of nodes"),
    summary=_text("What the merged node tells"),
    feeling=_text("Its feeling"),
)
RECALL_MEMORY_INPUT = takes(
    cluster_id=_text("Omit to list all clusters"),
    node_id=_text("One node's details"),
    limit={"type": "number", "default": recalling.NODES},
    query=_text("Filters nodes by their action"),
    no_nodes={"type": "boolean", "default": False},
)

TOOLS = (
    Tool(
        name="recall",
        title="Recall",
        description="Recall past memories related to the current user message."
        " Call at the start of every turn.",
        scope="read",
        handler=recalling.recall,
        input=takes(("user_message",), user_message=_text("The current user message")),
    ),
    Tool(
        name="get_context",
        title="Get context",
        description="Get the Being's persona definition and memory snapshot."
        " Call once at session start.",
        scope="read",
        handler=context.get_context,
        input=takes(),
        output=_gives("system_prompt", "snapshot", "metadata", "capability_tools"),
    ),
    Tool(
        name="recall_memory",
        title="Recall memory",
        description="Explore memory clusters, one cluster's nodes, or a single node.",
        scope="read",
        handler=recalling.recall_memory,
        input=RECALL_MEMORY_INPUT,
    ),
    Tool(
        name="search_memory",
        title="Search memory",
        description="Search all memory nodes by meaning, or by keywords where meaning is unknown.",
        scope="read",
        handler=recalling.search_memory,
        input=SEARCH_INPUT,
    ),
    Tool(
        name="merge_nodes",
        title="Merge nodes",
        description="Merge several similar memory nodes into one.",
        scope="write",
        handler=merging.merge_nodes,
        input=MERGE_INPUT,
        destructive=True,
    ),
    Tool(
        name="update_memory",
        title="Update memory",
        description="Read and write structured memory: preferences, knowledge, relationships,"
        " tools, map, diary, notes, messages to other Beings, rules, soul.",
        scope="write",
        handler=records.update_memory,
        input=MEMORY_INPUT,
        output=_gives("success", "message"),
        destructive=True,
    ),
    Tool(
        name="update_notes",
        title="Update notes",
        description="Record conversation scenes and free-form notes. Scenes become memories.",
        scope="write",
        handler=notes.update_notes,
        input=NOTES_INPUT,
    ),
    Tool(
        name="search_history",
        title="Search history",
        description="Search past conversation messages by keyword and date.",
        scope="read",
        handler=history.search_history,
        input=HISTORY_INPUT,
    ),
    Tool(
        name="update_relation",
        title="Update relation",
        description="Store or remove a relation of the Being to somebody or something.",
        scope="write",
        handler=records.update_relation,
        input=RELATION_INPUT,
        output=_gives("success", "message"),
        destructive=True,
        idempotent=True,
    ),
    Tool(
        name="trigger_patrol",
        title="Trigger patrol",
        description="Run the patrol: scenes become memories, and memories are tidied.",
        scope="write",
        handler=running.trigger_patrol,
        input=PATROL_INPUT,
        output=_gives("status", "scenes_created", "nodes_created", "marker_id"),
        open_world=True,
        stepwise=True,
    ),
    Tool(
        name="get_current_time",
        title="Get current time",
        description="Get the current date and time in a time zone.",
        scope="read",
        handler=clock.get_current_time,
        input=takes(timezone={**_text("IANA name, such as Asia/Tokyo"), "default": "UTC"}),
        output=_gives("datetime", "iso", "timezone"),
    ),
)
