"""The eleven tools of the contract, as they are listed."""

from __future__ import annotations

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
from commonplace.dialects.tool_schemas import FLAG, SHARE, TEXT, gives, held, listed, takes, text

TARGETS = (
    "preferences", "knowledge", "relationship", "partner_tools", "partner_map", "diary", "notes",
    "party_message", "partner_rules", "souls",
)  # fmt: skip


def _texts(description: str) -> Schema:
    return listed(TEXT, description=description)


SCENE = held(
    ("action", "actors", "when"),
    action=text("What happened"),
    actors=_texts("Who was involved"),
    when=listed({**TEXT, "format": "date"}, description="Date(s) as YYYY-MM-DD"),
    setting=text("Where, in what context"),
    feeling=text("First-person impression"),
    themes=_texts("Theme tags"),
    importance={**SHARE, "default": 0.5},
    dialogue=_texts("What was said"),
    sensory=_texts("What was sensed"),
)
MESSAGE = held(
    ("role", "content"), role={"enum": list(history.ROLES)}, content=TEXT, created_at=TEXT
)
NOTE_TYPE = held(("id", "type"), id=TEXT, type={"enum": list(notes.TYPES)})
NOTE: Schema = {
    "anyOf": [
        TEXT,
        held(("content",), content=TEXT, type={"enum": list(notes.TYPES), "default": "note"}),
    ]
}
NOTES_INPUT = takes(
    action={"enum": ["append", "update"], "default": "append"},
    scenes=listed(SCENE, 200, default=[]),
    notes=listed(NOTE, 200, default=[]),
    scene_ids={**_texts("Scenes to delete when action=update"), "default": [], "maxItems": 500},
    note_type_updates=listed(NOTE_TYPE, 200, default=[]),
)
MEMORY_INPUT = takes(
    ("target", "action"),
    target={"enum": list(TARGETS)},
    action={"enum": list(records.ACTIONS)},
    content=text("For append and update"),
    key=text("Narrows update, delete and get to one entry"),
    location=text("For partner_map"),
    to=text("Recipient's name, for party_message"),
)
RELATION_INPUT = takes(
    ("entity_name", "relation_type", "action"),
    entity_name=text("Whom or what it is about"),
    relation_type=text("person, device, ai, organization, …"),
    content=text("What the relation is; needed for upsert"),
    action={"enum": ["upsert", "delete"]},
)
HISTORY_INPUT = takes(
    query=text("Part of what was said"),
    date_from=text("YYYY-MM-DD, from 00:00:00 UTC"),
    date_to=text("YYYY-MM-DD, until 23:59:59 UTC"),
    limit={"type": "number", "default": history.FOUND, "description": "At most 50"},
)
SEARCH_INPUT = takes(
    ("query",),
    query=text("What to search for"),
    limit={"type": "number", "default": recalling.FOUND, "description": "At most 30"},
    mode={"enum": ["or", "and"], "default": "or"},
)
PATROL_INPUT = takes(
    ("messages",),
    messages=listed(MESSAGE, 1_000),
    marker_id=text("Marker of the previous patrol"),
)
MERGE_INPUT = takes(
    ("node_ids", "summary"),
    node_ids=text("Comma-separated ids of nodes"),
    summary=text("What the merged node tells"),
    feeling=text("Its feeling"),
)
RECALL_MEMORY_INPUT = takes(
    cluster_id=text("Omit to list all clusters"),
    node_id=text("One node's details"),
    limit={"type": "number", "default": recalling.NODES},
    query=text("Filters nodes by their action"),
    no_nodes={**FLAG, "default": False},
)

TOOLS = (
    Tool(
        name="recall",
        title="Recall",
        description="Recall past memories related to the current user message."
        " Call at the start of every turn.",
        scope="read",
        handler=recalling.recall,
        input=takes(("user_message",), user_message=text("The current user message")),
    ),
    Tool(
        name="get_context",
        title="Get context",
        description="Get the Being's persona definition and memory snapshot."
        " Call once at session start.",
        scope="read",
        handler=context.get_context,
        input=takes(),
        output=gives("system_prompt", "snapshot", "metadata", "capability_tools"),
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
        output=gives("success", "message"),
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
        output=gives("success", "message"),
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
        output=gives("status", "scenes_created", "nodes_created", "marker_id"),
        open_world=True,
        stepwise=True,
    ),
    Tool(
        name="get_current_time",
        title="Get current time",
        description="Get the current date and time in a time zone.",
        scope="read",
        handler=clock.get_current_time,
        input=takes(timezone={**text("IANA name, such as Asia/Tokyo"), "default": "UTC"}),
        output=gives("datetime", "iso", "timezone"),
    ),
)
