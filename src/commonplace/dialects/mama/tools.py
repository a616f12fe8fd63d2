"""The four tools that MCP lists, and one that editors' hooks call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from commonplace.dialects.contract import WHOLE_TEXT_BYTES, Call, Tool, Wire, as_json
from commonplace.dialects.mama import (
    checkpoints,
    decisions,
    fitting,
    presenting,
    saving,
    searching,
)
from commonplace.dialects.mama.presenting import SECONDS
from commonplace.dialects.tool_schemas import SHARE, TEXT, array, input_schema, text
from commonplace.errors import CommonplaceError

DEFAULT_CONFIDENCE = 0.5
DEFAULT_LIMIT, MAX_LIMIT = 10, 100
# For `search_decisions_and_contracts`, which hooks of editors call before code is changed.
EDITING_TOOLS = ("Edit", "Write", "apply_patch")
CODE_SUFFIXES = (".js", ".ts", ".jsx", ".tsx", ".py", ".go", ".rs", ".java")
CONTRACT_PREFIX = "contract_"  # prefix of the topics of contracts
CONTRACT_CANDIDATES = 10
KINDS_BY_TYPE: dict[str, tuple[str, ...] | None] = {
    "all": None,
    "decision": (decisions.KIND,),
    "checkpoint": (checkpoints.KIND,),
}


def format_result(tool: Tool, value: Any) -> Wire:
    """Return a tool's result in the contract's format."""
    del tool
    return {"content": [{"type": "text", "text": as_json(value)}]}


def format_error(tool: Tool, error: CommonplaceError) -> Wire:
    """Return an error as a tool's result in the contract's format."""
    del tool
    return {"content": [{"type": "text", "text": f"Error: {error}"}], "isError": True}


def save(
    call: Call,
    *,
    type: str,
    confidence: float,
    next_steps: str,
    open_files: Sequence[str],
    topic: str | None = None,
    decision: str | None = None,
    reasoning: str | None = None,
    summary: str | None = None,
) -> Any:
    """Store a decision or a checkpoint."""
    if type == "checkpoint":
        memory = saving.save_checkpoint(call, summary, next_steps, open_files)
        return {
            "success": True,
            "id": checkpoints.public_id(memory),
            "type": type,
            "message": "Checkpoint saved",
        }
    saved = saving.save_decision(call, topic, decision, reasoning, confidence)
    answer = {
        "success": True,
        "id": decisions.public_id(saved.memory),
        "type": type,
        "message": f"Decision saved: {topic}",
    }
    if saved.similar:
        names = ("id", "topic", "decision", "similarity", "created_at")
        similar = [presenting.similar_to_dict(found, SECONDS, *names) for found in saved.similar]
        answer["similar_decisions"] = fitting.fit_items(similar, fitting.MAX_BYTES // 2)
    return {**answer, **saved.advice}


def search(call: Call, *, query: str, type: str, limit: float) -> Any:
    """Return the best matches, or without a query the newest memories."""
    most = max(1, min(int(limit), MAX_LIMIT))
    kinds = KINDS_BY_TYPE[type]
    if query.strip():
        found = searching.suggest(call.memory, query, limit=most, kinds=kinds)
        results = [presenting.result_to_dict(each, SECONDS) for each in found]
    else:
        newest = searching.newest_memories(call.memory, limit=most, kinds=kinds)
        results = [presenting.item_to_dict(each, SECONDS) for each in newest]
    return {"success": True, "count": len(results), "results": fitting.fit_items(results)}


def update(call: Call, *, id: str, outcome: str, reason: str | None = None) -> Any:
    """Set the outcome of a decision."""
    identity, _ = saving.update_outcome(call, id, outcome, reason)
    return {"success": True, "message": f"Updated {identity} -> {outcome.strip().lower()}"}


def load_checkpoint(call: Call) -> Any:
    """Return the latest checkpoint."""
    memory = searching.latest_checkpoint(call.memory)
    if memory is None:
        return {"success": True, "checkpoint": None, "message": "No checkpoint found"}
    return {"success": True, "checkpoint": checkpoints.to_dict(memory, per_second=SECONDS)}


def search_decisions_and_contracts(
    call: Call,
    *,
    query: str,
    filePath: str,
    toolName: str,
    decisionLimit: float,
    contractLimit: float,
    similarityThreshold: float,
) -> Any:
    """Return decisions for a query, and contracts for the file that is about to change."""
    file = PurePosixPath(filePath.replace("\\", "/"))
    about = ""
    if toolName in EDITING_TOOLS and file.suffix in CODE_SUFFIXES:
        about = f"contract api {' '.join(file.stem.replace('-', '_').split('_'))}"

    def nearest(asked: str, most: int) -> list[searching.SearchResult]:
        if most < 1 or not asked.strip():
            return []
        return searching.most_similar(
            call.memory, asked, limit=min(most, MAX_LIMIT), least=similarityThreshold
        )

    contracts = [
        found
        for found in nearest(about, CONTRACT_CANDIDATES)
        if decisions.read(found.memory).topic.startswith(CONTRACT_PREFIX)
    ]
    parts = (nearest(query, int(decisionLimit)), contracts[: max(0, int(contractLimit))])
    found, agreed = (
        fitting.fit_items(
            [presenting.similar_to_dict(each, SECONDS) for each in part], fitting.MAX_BYTES // 2
        )
        for part in parts
    )
    return {"success": True, "decisionResults": found, "contractResults": agreed}


TOOLS = (
    Tool(
        name="save",
        title="Save",
        description="Save a decision or a checkpoint. A decision on a topic that has one"
        " supersedes it; nothing is lost. Refer to others in the reasoning: builds_on: <id>,"
        " debates: <id>, synthesizes: [<id>, <id>].",
        scope="write",
        handler=save,
        input=input_schema(
            ["type"],
            type=text("What to save.", enum=["decision", "checkpoint"]),
            topic=text("Decision: topic identifier, e.g. 'auth_strategy'."
                       " Same topic = supersedes previous."),
            decision=text("Decision: the decision made."),
            reasoning=text("Decision: why, with references to other decisions."),
            confidence={**SHARE, "default": DEFAULT_CONFIDENCE,
                        "description": "Decision: 0.0-1.0."},
            summary=text("Checkpoint: what was done, what is pending."),
            next_steps=text("Checkpoint: instructions for the next session.", default=""),
            open_files=array(
                TEXT, default=[], description="Checkpoint: relevant file paths."
            ),
        ),
    ),
    Tool(
        name="search",
        title="Search",
        description="Search decisions, checkpoints and whatever else is remembered by meaning;"
        " without a query, list the newest. Results tell outcomes and how decisions are related.",
        scope="read",
        handler=search,
        input=input_schema(
            query=text("What to look for; empty for the newest items.", default=""),
            type=text("What to search.", enum=list(KINDS_BY_TYPE), default="all"),
            limit={"type": "number", "default": DEFAULT_LIMIT,
                   "description": f"Maximum results, up to {MAX_LIMIT}."},
        ),
    ),
    Tool(
        name="update",
        title="Update outcome",
        description="Update a decision's outcome after trying it, so that later searches tell"
        " what worked.",
        scope="write",
        handler=update,
        idempotent=True,
        input=input_schema(
            ["id", "outcome"],
            id=text("The decision's id."),
            outcome=text("success, failed or partial, in any case."),
            reason=text("Why it succeeded, failed or was partial."),
        ),
    ),
    Tool(
        name="load_checkpoint",
        title="Load checkpoint",
        description="Load the latest checkpoint to resume a previous session. Call it first.",
        scope="read",
        handler=load_checkpoint,
        response_bytes=WHOLE_TEXT_BYTES,
        input=input_schema(),
    ),
    Tool(
        name="search_decisions_and_contracts",
        title="Search decisions and contracts",
        description="Search decisions, and contracts of a file, for an editor's hook.",
        scope="read",
        handler=search_decisions_and_contracts,
        hidden=True,
        input=input_schema(
            query=text("What to look for.", default=""),
            filePath=text("The file that is about to be changed.", default=""),
            toolName=text("The editor's tool: Edit, Write or apply_patch.", default=""),
            decisionLimit={"type": "number", "default": 5},
            contractLimit={"type": "number", "default": 3},
            similarityThreshold={"type": "number", "default": 0.7},
        ),
    ),
)  # fmt: skip
