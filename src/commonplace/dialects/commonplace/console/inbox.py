"""The inbox page of the console: memories proposed from conversations, to accept or reject."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commonplace.dialects.commonplace.console import rows
from commonplace.dialects.commonplace.tools import proposal_to_dict
from commonplace.dialects.contract import Call, Tool
from commonplace.dialects.rest import Route
from commonplace.dialects.tool_schemas import TEXT, array, input_schema, integer
from commonplace.engine.model import iso
from commonplace.errors import InvalidInput
from commonplace.platform import review
from commonplace.platform.exclusive import exclusively


def proposals(call: Call, *, offset: int, limit: int) -> dict[str, Any]:
    """Return a page of open proposals, newest first, and the total number."""
    found, total = review.pending_proposals(call.memory, limit, offset)
    page = [
        {
            **proposal_to_dict(one),
            "at": iso(one.occurred_at or one.created_at),
            "version": one.version,
        }
        for one in found
    ]
    return {"proposals": page, "total": total, "offset": offset}


@exclusively
def accept(call: Call, *, ids: Sequence[str], text: str | None = None) -> dict[str, Any]:
    """Store proposals as memories; `text` replaces the wording of a single proposal."""
    if text is not None and len(ids) != 1:
        raise InvalidInput(
            "text can be given for one proposal only, not for several.", field="text"
        )
    stored = [review.accept(call.memory, each, text) for each in dict.fromkeys(ids)]
    return {"ids": [one.id for one in stored], "operation": call.memory.operation}


@exclusively
def reject(call: Call, *, ids: Sequence[str]) -> dict[str, Any]:
    """Reject proposals."""
    decided = [review.reject(call.memory, each) for each in dict.fromkeys(ids)]
    return {"ids": [one.id for one in decided], "operation": call.memory.operation}


@exclusively
def edit(call: Call, *, id: str, text: str, version: int) -> dict[str, Any]:
    """Change the wording of a proposal, unless it has changed since the given version."""
    edited = review.edit(call.memory, id, text, version)
    return {"ids": [edited.id], "operation": call.memory.operation}


_IDS = array(TEXT, 200, minItems=1)
OPERATIONS = (
    Tool(
        name="console_proposals", title="Inbox", scope="read", handler=proposals,
        description="List memories proposed from conversations, newest first.",
        input=input_schema(offset=rows.OFFSET, limit=rows.LIMIT),
    ),
    Tool(
        name="console_accept", title="Accept", scope="write", handler=accept,
        description="Store proposals as memories; the wording of a single one can be changed.",
        input=input_schema(["ids"], ids=_IDS, text=TEXT),
    ),
    Tool(
        name="console_reject", title="Reject", scope="write", handler=reject,
        description="Reject proposals.", input=input_schema(["ids"], ids=_IDS),
    ),
    Tool(
        name="console_edit_proposal", title="Edit a proposal", scope="write", handler=edit,
        description="Change the wording of a proposal without accepting it.",
        input=input_schema(["id", "text", "version"], id=TEXT, text=TEXT, version=integer(0)),
    ),
)  # fmt: skip
_ROOT = "/api/console/proposals"
ROUTES = (
    Route("GET", _ROOT, "console_proposals", summary="List open proposals"),
    Route("POST", f"{_ROOT}/accept", "console_accept", summary="Accept proposals"),
    Route("POST", f"{_ROOT}/reject", "console_reject", summary="Reject proposals"),
    Route("PATCH", f"{_ROOT}/{{id}}", "console_edit_proposal", summary="Edit a proposal"),
)
