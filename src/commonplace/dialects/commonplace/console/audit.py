"""The audit in the console: every call, and whether the chain is whole."""

from __future__ import annotations

from typing import Any

from commonplace.dialects.contract import Call, Tool, as_json
from commonplace.dialects.rest import Route
from commonplace.dialects.tool_schemas import FLAG, TEXT, integer, takes
from commonplace.engine.binding import lease
from commonplace.engine.history import audit
from commonplace.engine.model import iso
from commonplace.errors import NotFound

SHOWN_CHARS = 2_000


def calls(call: Call, *, limit: int, **conditions: Any) -> dict[str, Any]:
    """The newest calls that meet the conditions."""
    given = {name: value for name, value in conditions.items() if value not in ("", None)}
    with lease(call.memory) as space:
        found = audit.listing(space.store, limit=limit, **given)
    return {"calls": [to_dict(one) for one in found]}


def entry(call: Call, *, num: int) -> dict[str, Any]:
    """One call with what was sent and answered."""
    with lease(call.memory) as space:
        found = audit.listing(space.store, before=num + 1, limit=1)
    if not found or found[0].num != num:
        raise NotFound("There is no entry of that number.", field="num")
    one = found[0]
    return {"call": {**to_dict(one), "arguments": cut(one.arguments), "result": cut(one.result)}}


def verified(call: Call) -> dict[str, Any]:
    """Whether every entry is as it was written."""
    with lease(call.memory) as space:
        verdict = audit.verify(space.store)
    return {
        "entries": verdict.rows,
        "head": verdict.head,
        "faults": [str(each) for each in verdict.faults][:20],
        "removed": verdict.removed,
    }


def cut(value: Any) -> str | None:
    """A payload as JSON, cut where it is long; None if a purge deleted it."""
    return None if value is None else as_json(value)[:SHOWN_CHARS]


def to_dict(one: audit.Call) -> dict[str, Any]:
    """An entry in a list, without what was sent and answered."""
    return {
        "num": one.num, "at": iso(one.at), "dialect": one.dialect, "tool": one.tool,
        "caller": one.caller, "credential": one.credential, "client": one.client,
        "address": one.address, "success": one.success, "error": one.error.partition(":")[0],
        "milliseconds": one.milliseconds, "request": one.request,
    }  # fmt: skip


OPERATIONS = (
    Tool(
        name="console_audit", title="Audit", scope="admin", handler=calls,
        description="List audited calls, the newest first.",
        input=takes(
            tool=TEXT, caller=TEXT, success=FLAG, since=TEXT, until=TEXT,
            before=integer(1, 2**53), limit=integer(1, 1_000, 50),
        ),
    ),
    Tool(
        name="console_audit_entry", title="An audited call", scope="admin", handler=entry,
        description="Show one audited call with what was sent and answered.",
        input=takes(["num"], num=integer(1, 2**53)),
    ),
    Tool(
        name="console_audit_verify", title="Verify the audit", scope="admin", handler=verified,
        description="Verify the chain of audit entries.", input=takes(),
    ),
)  # fmt: skip
ROUTES = (
    Route("GET", "/api/console/audit", "console_audit", summary="Calls, and who made them"),
    Route(
        "GET", "/api/console/audit/entry", "console_audit_entry",
        summary="One call, with what was sent and answered",
    ),
    Route(
        "GET", "/api/console/audit/verify", "console_audit_verify",
        summary="Whether the audit is as it was written",
    ),
)  # fmt: skip
