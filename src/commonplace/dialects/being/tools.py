"""The declarations of the eleven tools of the contract."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from commonplace.access.caller import Scope
from commonplace.dialects.being import context, history, notes, recalling, records, running
from commonplace.dialects.contract import WHOLE_TEXT_BYTES, Call, Schema, Tool
from commonplace.dialects.tool_schemas import (
    FLAG,
    SHARE,
    TEXT,
    array,
    input_schema,
    object_of,
    output_schema,
    text,
)


def _text_array(description: str) -> Schema:
    return array(TEXT, description=description)


SCENE = object_of(
    ("action", "actors", "when"),
    action=text("What happened"),
    actors=_text_array("Who was involved"),
    when=array({**TEXT, "format": "date"}, description="Date(s) as YYYY-MM-DD"),
    setting=text("Where, in what context"),
    feeling=text("First-person impression"),
    themes=_text_array("Theme tags"),
    importance={**SHARE, "default": 0.5},
    dialogue=_text_array("What was said"),
    sensory=_text_array("What was sensed"),
)
MESSAGE = object_of(
    ("role", "content"), role={"enum": list(history.ROLES)}, content=TEXT, created_at=TEXT
)
NOTE_TYPE = object_of(("id", "type"), id=TEXT, type={"enum": list(notes.NOTE_TYPES)})
NOTE: Schema = {
    "anyOf": [
        TEXT,
        object_of(
            ("content",), content=TEXT, type={"enum": list(notes.NOTE_TYPES), "default": "note"}
        ),
    ]
}
NOTES_INPUT = input_schema(
    action={"enum": ["append", "update"], "default": "append"},
    scenes=array(SCENE, 200, default=[]),
    notes=array(NOTE, 200, default=[]),
    scene_ids={
        **_text_array("Scenes to delete when action=update"),
        "default": [],
        "maxItems": 500,
    },
    note_type_updates=array(NOTE_TYPE, 200, default=[]),
)
MEMORY_INPUT = input_schema(
    ("target", "action"),
    target={"enum": list(records.TARGETS)},
    action={"enum": list(records.ACTIONS)},
    content=text("For append and update"),
    key=text("Narrows update, delete and get to one entry"),
    location=text("For partner_map"),
    to=text("Recipient's name, for party_message"),
)
RELATION_INPUT = input_schema(
    ("entity_name", "relation_type", "action"),
    entity_name=text("Whom or what it is about"),
    relation_type=text("person, device, ai, organization, …"),
    content=text("What the relation is; needed for upsert"),
    action={"enum": ["upsert", "delete"]},
)
HISTORY_INPUT = input_schema(
    query=text("Part of what was said"),
    date_from=text("YYYY-MM-DD, from 00:00:00 UTC"),
    date_to=text("YYYY-MM-DD, until 23:59:59 UTC"),
    limit={"type": "number", "default": history.DEFAULT_RESULTS, "description": "At most 50"},
)
SEARCH_INPUT = input_schema(
    ("query",),
    query=text("What to search for"),
    limit={"type": "number", "default": recalling.DEFAULT_RESULTS, "description": "At most 30"},
    mode={"enum": ["or", "and"], "default": "or"},
)
PATROL_INPUT = input_schema(
    ("messages",),
    messages=array(MESSAGE, 1_000),
    marker_id=text("Marker of the previous patrol"),
)
MERGE_INPUT = input_schema(
    ("node_ids", "summary"),
    node_ids=text("Comma-separated ids of nodes"),
    summary=text("What the merged node tells"),
    feeling=text("Its feeling"),
)
RECALL_MEMORY_INPUT = input_schema(
    cluster_id=text("Omit to list all clusters"),
    node_id=text("One node's details"),
    limit={"type": "number", "default": recalling.DEFAULT_NODES},
    query=text("Filters nodes by their action"),
    no_nodes={**FLAG, "default": False},
)

_DAYS = "月火水木金土日"


def get_current_time(call: Call, *, timezone: str = "UTC") -> dict[str, Any]:
    """Return the time in a time zone, or in UTC if the zone is unknown."""
    del call
    now = datetime.now(UTC)
    iso = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    try:
        there = now.astimezone(ZoneInfo(timezone))
        shown = f"{there:%Y/%m/%d}({_DAYS[there.weekday()]}) {there:%H:%M:%S}"
    except (ValueError, OSError, KeyError):  # the last is ZoneInfoNotFoundError
        shown = iso
    return {"datetime": shown, "iso": iso, "timezone": timezone}


def _tool(
    scope: Scope,
    handler: Callable[..., Any],
    description: str,
    schema: Schema,
    *gives_keys: str,
    **options: Any,
) -> Tool:
    name = handler.__name__
    return Tool(
        name=name, title=name.replace("_", " ").capitalize(), description=description,
        scope=scope, handler=handler, input=schema,
        output=output_schema(*gives_keys) if gives_keys else None, **options,
    )  # fmt: skip


TOOLS = (
    _tool(
        "read", recalling.recall,
        "Recall past memories related to the current user message."
        " Call at the start of every turn.",
        input_schema(("user_message",), user_message=text("The current user message")),
    ),
    _tool(
        "read", context.get_context,
        "Get the Being's persona definition and memory snapshot. Call once at session start.",
        input_schema(), "system_prompt", "snapshot", "metadata", "capability_tools",
        response_bytes=WHOLE_TEXT_BYTES,
    ),
    _tool(
        "read", recalling.recall_memory,
        "Explore memory clusters, one cluster's nodes, or a single node.", RECALL_MEMORY_INPUT,
        response_bytes=WHOLE_TEXT_BYTES,
    ),
    _tool(
        "read", recalling.search_memory,
        "Search all memory nodes by meaning, or by keywords if the query cannot be embedded.",
        SEARCH_INPUT,
    ),
    _tool(
        "write", recalling.merge_nodes, "Merge several similar memory nodes into one.",
        MERGE_INPUT, destructive=True,
    ),
    _tool(
        "write", records.update_memory,
        "Read and write structured memory: preferences, knowledge, relationships, tools, map,"
        " diary, notes, messages to other Beings, rules, soul.",
        MEMORY_INPUT, "success", "message", destructive=True, response_bytes=WHOLE_TEXT_BYTES,
    ),
    _tool(
        "write", notes.update_notes,
        "Record conversation scenes and free-form notes. Scenes become memories.", NOTES_INPUT,
    ),
    _tool(
        "read", history.search_history,
        "Search past conversation messages by keyword and date.", HISTORY_INPUT,
    ),
    _tool(
        "write", records.update_relation,
        "Store or remove a relation of the Being to somebody or something.",
        RELATION_INPUT, "success", "message", destructive=True, idempotent=True,
    ),
    _tool(
        "write", running.trigger_patrol,
        "Run the patrol: scenes become memories, and memories are tidied.",
        PATROL_INPUT, "status", "scenes_created", "nodes_created", "marker_id",
        open_world=True, stepwise=True,
    ),
    _tool(
        "read", get_current_time, "Get the current date and time in a time zone.",
        input_schema(timezone={**text("IANA name, such as Asia/Tokyo"), "default": "UTC"}),
        "datetime", "iso", "timezone",
    ),
)  # fmt: skip
