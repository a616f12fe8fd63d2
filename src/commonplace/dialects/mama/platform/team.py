"""The team: the agents of the configuration, and their delegations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from commonplace.dialects.contract import Call
from commonplace.dialects.mama.platform import configuration, members, service
from commonplace.dialects.mama.platform.failures import PlatformError
from commonplace.dialects.mama.platform.files import records
from commonplace.dialects.mama.platform.service import OBJECT_BODY, operation, read_arguments
from commonplace.dialects.rest import Exchange, Route
from commonplace.dialects.tool_schemas import OBJECT, TEXT, integer
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import Memory, iso
from commonplace.platform.exclusive import exclusive

DELEGATION = "mama_delegation"
RECENT_DELEGATIONS = 20
MAX_STORED_DELEGATIONS = 1_000
"""The maximum number of stored delegations; older ones are deleted."""
LONGEST_SECONDS = 900.0
SHOWN_FIELDS = (
    "fromAgentId", "toAgentId", "task", "status", "startedAt", "completedAt", "duration", "error",
)  # fmt: skip


def _agent_to_dict(id: str, agent: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: agent.get(name) for name in members.AGENT_DEFAULTS}
    for name in members.SECRET_FIELDS:
        known[name] = configuration.MASK if agent.get(name) else None
    return {"id": id, **known}


def delegations(memory: Commonplace, limit: int) -> list[Memory]:
    """Return the newest delegations."""
    return [_with_timeout(each) for each in records.page(memory, DELEGATION, limit=limit)]


def _with_timeout(record: Memory) -> Memory:
    """Return a delegation, marked as failed if it has been active for too long."""
    attrs, latest = record.attrs, record.created_at + timedelta(seconds=LONGEST_SECONDS)
    if attrs["status"] != "active" or datetime.now(UTC) < latest:
        return record
    failed = {**attrs, "status": "failed", "error": "interrupted"}
    return replace(record, attrs=failed)


def team_status(call: Call) -> Any:
    """Return the state of the team: agents, recent delegations and active chains."""
    tree = configuration.effective_configuration(call.memory, service.service_of(call))
    enabled = tree["multi_agent"]["enabled"]
    recent = delegations(call.memory, RECENT_DELEGATIONS)
    active = [each for each in recent if each.attrs["status"] == "active"]
    busy = {each.attrs["toAgentId"] for each in active}
    last: dict[str, str] = {}
    for each in reversed(recent):
        last[each.attrs["toAgentId"]] = str(iso(each.updated_at))
    return {
        "enabled": enabled,
        "agents": [
            {
                "id": id, "name": agent["name"], "tier": agent["tier"], "model": agent["model"],
                "status": _agent_state(id, agent, busy),
                "lastActivity": last.get(id),
            }
            for id, agent in members.agents_of(tree).items()
        ] if enabled else [],
        "recentDelegations": [
            {"id": each.ref, **{name: each.attrs[name] for name in SHOWN_FIELDS}} for each in recent
        ],
        "activeChains": len({each.attrs.get("chain") for each in active}),
    }  # fmt: skip


def _agent_state(id: str, agent: Mapping[str, Any], busy: set[str]) -> str:
    if not agent["enabled"]:
        return "disabled"
    return "busy" if id in busy else "online"


def list_agents(call: Call) -> Any:
    """List the configured agents; tokens are masked."""
    tree = configuration.effective_configuration(call.memory, service.service_of(call))
    return {"agents": [_agent_to_dict(id, agent) for id, agent in members.agents_of(tree).items()]}


def list_delegations(call: Call, *, limit: int) -> Any:
    """Return recent delegations, newest first."""
    found = [
        {
            "id": each.ref, "description": each.attrs["task"], "category": "delegation",
            "wave": each.attrs["depth"], "status": each.attrs["status"],
            "claimedBy": each.attrs["toAgentId"], "claimedAt": each.attrs["startedAt"],
            "completedAt": each.attrs["completedAt"], "result": each.attrs.get("result"),
        }
        for each in delegations(call.memory, limit)
    ]  # fmt: skip
    return {"delegations": found, "count": len(found)}


def update_agent(call: Call, *, id: str, changes: Mapping[str, Any]) -> Any:
    """Change an agent; the change takes effect with the next prompt."""
    if not members.ID_PATTERN.fullmatch(id):
        raise PlatformError(400, "INVALID_AGENT_ID", "The id must be letters, digits, - or _.")
    running = service.service_of(call)
    with exclusive(call.memory, "change agent"):
        tree = configuration.effective_configuration(call.memory, running)
        if id not in members.agents_of(tree):
            raise PlatformError(404, "AGENT_NOT_FOUND", "There is no such agent.")
        known = {name: value for name, value in changes.items() if name in members.AGENT_DEFAULTS}
        configuration.change(call.memory, running, {"multi_agent": {"agents": {id: known}}})
    return {"success": True, "message": f"Agent {id} updated"}


async def _change_arguments(exchange: Exchange) -> dict[str, Any]:
    body = await exchange.json_body(required=True)
    return {"id": exchange.request.path_params["id"], "changes": body}


OPERATIONS = (
    operation("team_status", "Status of the team", "read", team_status),
    operation("list_team", "List agents", "read", list_agents),
    operation(
        "update_agent_config", "Change an agent", "operator", update_agent, ("id", "changes"),
        {"id": TEXT, "changes": OBJECT}, has_secret_arguments=True,
    ),
    operation(
        "list_delegations", "List delegations", "read", list_delegations, (),
        {"limit": integer(1, 100, RECENT_DELEGATIONS)},
    ),
)  # fmt: skip
ROUTES = (
    Route("GET", "/api/multi-agent/status", "team_status"),
    Route("GET", "/api/multi-agent/agents", "list_team"),
    Route(
        "PUT",
        "/api/multi-agent/agents/{id}",
        "update_agent_config",
        read=_change_arguments,
        request_body=OBJECT_BODY,
    ),
    Route("GET", "/api/multi-agent/delegations", "list_delegations", read=read_arguments),
)
