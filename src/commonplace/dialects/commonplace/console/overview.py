"""The start page of the console: the signed-in user, and an overview of the space."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from commonplace import __version__
from commonplace.access.caller import SCOPES
from commonplace.dialects.commonplace.console import graph, rows, sample
from commonplace.dialects.contract import Call, Tool
from commonplace.dialects.rest import Route
from commonplace.dialects.tool_schemas import TEXT, input_schema
from commonplace.engine.binding import engine_call, lease
from commonplace.engine.finding.summary import summary
from commonplace.engine.history import audit
from commonplace.engine.model import iso
from commonplace.errors import CommonplaceError
from commonplace.platform import review

RECENT_MEMORIES = 5
CLIENT_DAYS = 30
CONSOLE_PREFIX = "console_"
"""Prefix of the names of the console's operations, to exclude their calls from statistics."""
BROWSER_PREFIX = "Mozilla/"
"""Prefix of the client names of browsers; pages also call operations of other dialects."""


def signed_in_user(call: Call) -> dict[str, Any]:
    """Return the signed-in user and the permissions of the credential."""
    caller = call.caller
    return {
        "user": caller.user,
        "space": caller.space,
        "scopes": [scope for scope in SCOPES if scope in caller.scopes],
        "dialects": None if caller.dialects is None else sorted(caller.dialects),
        "local": not caller.credential,
        "demo": sample.is_demo(caller.space),
        "version": __version__,
    }


def overview(call: Call, *, as_of: str | None = None) -> dict[str, Any]:
    """Return counts of memories, today's calls of agents, and the state of the space."""
    found = engine_call(call.memory, summary, as_of=as_of or None)
    newest, _ = call.memory.browse(limit=RECENT_MEMORIES, as_of=as_of or None)
    waiting, age = call.memory.backlog()
    if as_of is None:
        call.afterwards.append(lambda: graph.compute_groups_soon(call))
    return {
        "total": found.total,
        "pinned": found.pinned,
        "kinds": _name_count_pairs(found.kinds),
        "states": _name_count_pairs(found.states),
        "clients": _name_count_pairs(found.clients),
        "trusts": _name_count_pairs(found.trusts),
        "projects": _name_count_pairs(found.projects),
        "proposals": review.pending_proposals(call.memory, 1)[1],
        "days": [[day.isoformat(), many] for day, many in found.days.items()],
        "recent": [rows.memory_to_row(one) for one in newest],
        "use": _agent_calls(call),
        "backlog": {"memories": waiting, "oldest_seconds": age},
        "disk": _disk_usage(call),
        "version": __version__,
    }


def _name_count_pairs(counts: Any) -> list[list[Any]]:
    return [[name, many] for name, many in counts.items()]


def _agent_calls(call: Call) -> dict[str, Any]:
    """Return today's calls of agents, and the clients of the last weeks.

    Calls of the console itself are excluded.
    """
    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    with lease(call.memory) as space:
        today = _agent_counts(audit.counts(space.store, midnight))
        recent = _agent_counts(audit.counts(space.store, now - timedelta(days=CLIENT_DAYS)))
    tools: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for each in today:
        tools[each.dialect, each.tool, each.caller][0 if each.success else 1] += each.calls
    clients: dict[tuple[str, str], tuple[int, datetime]] = {}
    for each in recent:
        calls, last = clients.get((each.client, each.caller), (0, each.last))
        clients[each.client, each.caller] = (calls + each.calls, max(last, each.last))
    return {
        "today": [
            {"dialect": dialect, "tool": tool, "caller": caller, "calls": calls, "refused": refused}
            for (dialect, tool, caller), (calls, refused) in tools.items()
        ],
        "clients": [
            {"client": client, "caller": caller, "calls": calls, "last": iso(last)}
            for (client, caller), (calls, last) in sorted(
                clients.items(), key=lambda each: each[1][1], reverse=True
            )[:20]
        ],
    }  # fmt: skip


def _agent_counts(counts: Iterable[audit.Count]) -> list[audit.Count]:
    return [
        each for each in counts
        if each.dialect and not each.tool.startswith(CONSOLE_PREFIX)
        and not each.client.startswith(BROWSER_PREFIX)
    ]  # fmt: skip


def _disk_usage(call: Call) -> dict[str, Any]:
    """Return the size of the space and the free disk space; None for an unknown value."""
    library = call.memory.library
    try:
        size: int | None = library.size(call.memory.name)
    except CommonplaceError:
        size = None
    free = shutil.disk_usage(library.path).free if library.database is None else None
    return {"bytes": size, "free": free}


OPERATIONS = (
    Tool(
        name="console_me", title="Signed-in user", scope="read", handler=signed_in_user,
        input=input_schema(),
        description="Show the signed-in user and the permissions of the credential.",
    ),
    Tool(
        name="console_overview", title="Overview", scope="read", handler=overview,
        description="Show counts of memories, today's calls of agents, and the state of the space.",
        input=input_schema(as_of=TEXT),
    ),
)  # fmt: skip
ROUTES = (
    Route("GET", "/api/console/me", "console_me", summary="Show the signed-in user"),
    Route(
        "GET", "/api/console/overview", "console_overview", summary="Show an overview of the space"
    ),
)
