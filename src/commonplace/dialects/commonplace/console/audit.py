"""The audit page of the console: every call, and the verification of the hash chain."""

from __future__ import annotations

from typing import Any

from commonplace.dialects.contract import Call, Tool, as_json
from commonplace.dialects.rest import Route
from commonplace.dialects.tool_schemas import FLAG, TEXT, input_schema, integer
from commonplace.engine.binding import lease
from commonplace.engine.history import audit
from commonplace.engine.model import iso
from commonplace.errors import NotFound

SHOWN_CHARS = 2_000


def calls(call: Call, *, limit: int, **conditions: Any) -> dict[str, Any]:
    """Return the newest audited calls that meet the conditions."""
    filters = {name: value for name, value in conditions.items() if value not in ("", None)}
    with lease(call.memory) as space:
        found = audit.listing(space.store, limit=limit, **filters)
    return {"calls": [to_dict(one) for one in found]}


def audit_entry(call: Call, *, num: int) -> dict[str, Any]:
    """Return one audited call with its arguments and its result."""
    with lease(call.memory) as space:
        found = audit.listing(space.store, before=num + 1, limit=1)
    if not found or found[0].num != num:
        raise NotFound("There is no audit entry with this number.", field="num")
    one = found[0]
    return {
        "call": {
            **to_dict(one),
            "arguments": truncated_json(one.arguments),
            "result": truncated_json(one.result),
        }
    }


def verify_chain(call: Call) -> dict[str, Any]:
    """Verify the hash chain of the audit; return the faults that were found."""
    with lease(call.memory) as space:
        verdict = audit.verify(space.store)
    return {
        "entries": verdict.rows,
        "head": verdict.head,
        "faults": [str(each) for each in verdict.faults][:20],
        "removed": verdict.removed,
    }


def truncated_json(value: Any) -> str | None:
    """Return a payload as truncated JSON, or None if a purge deleted it."""
    return None if value is None else as_json(value)[:SHOWN_CHARS]


def to_dict(one: audit.Call) -> dict[str, Any]:
    """Return the fields of an audited call for lists, without arguments and result."""
    return {
        "num": one.num, "at": iso(one.at), "dialect": one.dialect, "tool": one.tool,
        "caller": one.caller, "credential": one.credential, "client": one.client,
        "address": one.address, "success": one.success, "error": one.error.partition(":")[0],
        "milliseconds": one.milliseconds, "request": one.request,
    }  # fmt: skip


OPERATIONS = (
    Tool(
        name="console_audit", title="Audit", scope="admin", handler=calls,
        description="List audited calls, newest first.",
        input=input_schema(
            tool=TEXT, caller=TEXT, success=FLAG, since=TEXT, until=TEXT,
            before=integer(1, 2**53), limit=integer(1, 1_000, 50),
        ),
    ),
    Tool(
        name="console_audit_entry", title="An audited call", scope="admin", handler=audit_entry,
        description="Show one audited call with its arguments and its result.",
        input=input_schema(["num"], num=integer(1, 2**53)),
    ),
    Tool(
        name="console_audit_verify", title="Verify the audit", scope="admin", handler=verify_chain,
        description="Verify the chain of audit entries.", input=input_schema(),
    ),
)  # fmt: skip
ROUTES = (
    Route("GET", "/api/console/audit", "console_audit", summary="List audited calls"),
    Route(
        "GET", "/api/console/audit/entry", "console_audit_entry",
        summary="Show one audited call",
    ),
    Route(
        "GET", "/api/console/audit/verify", "console_audit_verify",
        summary="Verify the audit",
    ),
)  # fmt: skip
