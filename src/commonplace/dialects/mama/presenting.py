"""Memories in the contract's format; times are in seconds over MCP, in milliseconds over HTTP."""

from __future__ import annotations

from typing import Any

from commonplace.dialects.mama import checkpoints, decisions
from commonplace.dialects.mama.searching import SearchResult
from commonplace.engine.model import Memory, microseconds
from commonplace.text.snippets import opening

SECONDS, MILLISECONDS = 1, 1_000
SHOWN_TYPES = {"checkpoint": "checkpoint", "*": "decision"}
"""The type under which a memory of each kind is shown, whichever contract stored it."""
FOREIGN_CHARS = 10_000
"""The maximum length of another contract's memory in a list or in the graph, so that a single one
cannot fill the response.
"""


def public_id(memory: Memory) -> str:
    """Return the contract's id of any memory."""
    if memory.kind == checkpoints.KIND:
        return checkpoints.public_id(memory)
    return decisions.public_id(memory)


def unix_time(memory: Memory, per_second: int) -> int:
    """Return the Unix time of storage in seconds, multiplied by `per_second`."""
    return microseconds(memory.created_at) * per_second // 1_000_000


def item_to_dict(memory: Memory, per_second: int) -> dict[str, Any]:
    """Return the fields of a memory for search results and lists of recent memories."""
    shown_as = SHOWN_TYPES.get(memory.kind, SHOWN_TYPES["*"])
    if shown_as == "checkpoint":
        checkpoint = checkpoints.read(memory)
        return {
            "id": checkpoints.public_id(memory),
            "summary": checkpoint.summary,
            "next_steps": checkpoint.next_steps,
            "created_at": unix_time(memory, per_second),
            "_type": shown_as,
        }
    return {**memory_to_dict(memory, per_second), "_type": shown_as}


def memory_to_dict(memory: Memory, per_second: int) -> dict[str, Any]:
    """Return the fields of a decision; another contract's memory is shortened and has its kind."""
    shown = decision_to_dict(memory, per_second)
    if memory.kind != decisions.KIND:
        shown |= {"kind": memory.kind, "decision": opening(shown["decision"], FOREIGN_CHARS)}
    return shown


def decision_to_dict(memory: Memory, per_second: int) -> dict[str, Any]:
    """Return the fields of a decision for results, nodes and exports."""
    decision = decisions.read(memory)
    shown: dict[str, Any] = {
        "id": decisions.public_id(memory),
        "topic": decision.topic,
        "decision": decision.decision,
        "reasoning": decision.reasoning,
        "outcome": decisions.outcome_of(memory.attrs),
        "confidence": memory.confidence,
        "created_at": unix_time(memory, per_second),
    }
    if reason := memory.attrs.get("failure_reason"):
        shown["failure_reason"] = reason
    return shown


def result_to_dict(found: SearchResult, per_second: int) -> dict[str, Any]:
    """Return the fields of a search result with its scores."""
    return {
        **item_to_dict(found.memory, per_second),
        "similarity": round(found.similarity, 4),
        "recency_score": round(found.recency, 4),
        "recency_age_days": round(found.age_days, 2),
        "final_score": round(found.score, 4),
        "graph_source": found.source,
        "graph_rank": found.rank,
        **relation_fields(found),
    }


def relation_fields(found: SearchResult) -> dict[str, Any]:
    """Return the memory that a result is related to, with the reason; empty if there is none."""
    if found.related_to is None:
        return {}
    return {"related_to": public_id(found.related_to), "edge_reason": found.reason}


def similar_to_dict(found: SearchResult, per_second: int, *names: str) -> dict[str, Any]:
    """Return the fields of a result as a decision, with its similarity; `names` selects fields."""
    shown = {**decision_to_dict(found.memory, per_second), "similarity": round(found.similarity, 4)}
    return {name: shown[name] for name in names} if names else shown
