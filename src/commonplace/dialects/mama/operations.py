"""The operations of the HTTP routes; they run through the gate like tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from commonplace.access.caller import Scope
from commonplace.dialects.contract import WHOLE_TEXT_BYTES, Call, Schema, Tool, as_json
from commonplace.dialects.mama import (
    checkpoints,
    decisions,
    exporting,
    fitting,
    graph,
    presenting,
    recalling,
    saving,
    searching,
)
from commonplace.dialects.mama.presenting import MILLISECONDS
from commonplace.dialects.tool_schemas import FLAG, SHARE, TEXT, array, input_schema, integer
from commonplace.engine.model import LIVE_STATES, Memory
from commonplace.errors import NotFound
from commonplace.platform import lookup

DEFAULT_CONFIDENCE = 0.8
SEARCH_LIMIT, SEARCH_MAX = 10, 20
SEARCH_THRESHOLD = 0.3
PAGE, CHECKPOINT_BYTES = 50, 700_000


def save_decision(
    call: Call, *, topic: str, decision: str, reasoning: str, confidence: float
) -> Any:
    """Store a decision."""
    saved = saving.save_decision(call, topic, decision, reasoning, confidence)
    return {
        "success": True,
        "id": decisions.public_id(saved.memory),
        "message": "Decision saved successfully",
    }


def save_checkpoint(call: Call, *, summary: str, next_steps: str, open_files: Sequence[str]) -> Any:
    """Store a checkpoint."""
    memory = saving.save_checkpoint(call, summary, next_steps, open_files)
    return {
        "success": True,
        "id": checkpoints.checkpoint_number(memory),
        "message": "Checkpoint saved successfully",
    }


def load_checkpoint(call: Call) -> Any:
    """Return the latest checkpoint."""
    memory = searching.latest_checkpoint(call.memory)
    if memory is None:
        raise NotFound("No checkpoint found")
    return {"success": True, "checkpoint": _checkpoint_to_dict(memory)}


def list_checkpoints(call: Call) -> Any:
    """Return the checkpoints, newest first, as many as fit into a response."""
    shown: list[dict[str, Any]] = []
    size = 0
    for memory in _all_checkpoints(call):
        (each,) = fitting.fit_items([_checkpoint_to_dict(memory)], CHECKPOINT_BYTES // 2)
        size += len(as_json(each).encode())
        if size > CHECKPOINT_BYTES:
            break
        shown.append(each)
    return {"checkpoints": shown, "count": len(shown)}


def _all_checkpoints(call: Call) -> Iterator[Memory]:
    states = ["active", "dying", "archived"]
    # Archived checkpoints of other contracts are omitted, because they were deleted.
    for each in lookup.all_memories(
        call.memory, page=PAGE, kinds=[checkpoints.KIND], states=states
    ):
        if each.state in LIVE_STATES or checkpoints.is_numbered(each):
            yield each


def _checkpoint_to_dict(memory: Memory) -> dict[str, Any]:
    shown = checkpoints.to_dict(memory, per_second=MILLISECONDS)
    return {**shown, "status": checkpoints.status(memory)}


def search_decisions(call: Call, *, query: str, limit: int) -> Any:
    """Search decisions, and other memories in the format of decisions."""
    found = searching.suggest(
        call.memory, query, limit=min(limit, SEARCH_MAX), threshold=SEARCH_THRESHOLD,
        without_kinds=[checkpoints.KIND],
    )  # fmt: skip
    results = [
        {**presenting.similar_to_dict(each, MILLISECONDS), **presenting.relation_fields(each)}
        for each in found
    ]
    return {"query": query, "results": fitting.fit_items(results), "count": len(results)}


def similar_decisions(call: Call, *, id: str) -> Any:
    """Return the memories most similar to one memory."""
    similar = fitting.fit_items(graph.most_similar_to(call.memory, saving.get_visible(call, id)))
    return {"id": id, "similar": similar, "count": len(similar)}


def update_outcome(call: Call, *, id: str, outcome: str, reason: str | None = None) -> Any:
    """Set the outcome of a decision."""
    identity, stored = saving.update_outcome(call, id, outcome, reason)
    return {"success": True, "id": identity, "outcome": stored}


def auto_recall(call: Call, *, prompt: str, start: bool, tokens: int) -> Any:
    """Return relevant memories as a text to insert before a prompt."""
    recalled = recalling.recall(call.memory, prompt, start=start, tokens=tokens)
    return {"success": True, "count": recalled.count, "prependContext": recalled.block}


def _operation(
    name: str,
    title: str,
    scope: Scope,
    handler: Any,
    response_bytes: int | None = None,
    /,
    **properties: Schema,
) -> Tool:
    """Return an operation; arguments without a default are required, except `reason`."""
    required = [
        key for key, schema in properties.items() if "default" not in schema and key != "reason"
    ]
    return Tool(
        name=name, title=title, description=handler.__doc__ or "", scope=scope, handler=handler,
        response_bytes=response_bytes, input=input_schema(required, **properties),
    )  # fmt: skip


OPERATIONS = (
    _operation(
        "http_save", "Save a decision", "write", save_decision,
        topic=TEXT, decision=TEXT, reasoning=TEXT,
        confidence={**SHARE, "default": DEFAULT_CONFIDENCE},
    ),
    _operation(
        "http_save_checkpoint", "Save a checkpoint", "write", save_checkpoint, summary=TEXT,
        next_steps={**TEXT, "default": ""}, open_files=array(TEXT, default=[]),
    ),
    _operation(
        "http_load_checkpoint", "Load the checkpoint", "read", load_checkpoint, WHOLE_TEXT_BYTES
    ),
    _operation("http_checkpoints", "List checkpoints", "read", list_checkpoints),
    _operation(
        "http_search", "Search", "read", search_decisions, query=TEXT,
        limit=integer(1, default=SEARCH_LIMIT),
    ),
    _operation(
        "http_export", "Export", "read", exporting.export_piece,
        format={"enum": ["csv", "json"], "default": "json"}, until=TEXT,
        offset=integer(0, default=0), skip=integer(0, default=0),
    ),
    _operation(
        "http_graph", "Graph", "read", graph.decision_graph, graph.RESPONSE_BYTES,
        topic={**TEXT, "default": ""}, cluster={**FLAG, "default": False},
    ),
    _operation("http_similar", "Similar decisions", "read", similar_decisions, id=TEXT),
    _operation(
        "http_update", "Update an outcome", "write", update_outcome,
        id=TEXT, outcome=TEXT, reason=TEXT,
    ),
    _operation(
        "auto_recall", "Auto-recall", "read", auto_recall, prompt=TEXT,
        start={**FLAG, "default": True}, tokens=integer(100, 20_000, recalling.DEFAULT_TOKENS),
    ),
)  # fmt: skip
