"""The team: agents of the configuration, and what they delegate to each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from commonplace.dialects.contract import Call
from commonplace.dialects.mama.platform import configuration, service
from commonplace.dialects.mama.platform.failures import PlatformError, invalid_value
from commonplace.dialects.mama.platform.files import records
from commonplace.dialects.mama.platform.service import Service, operation, read
from commonplace.dialects.rest import Exchange, Route
from commonplace.dialects.tool_schemas import OBJECT, TEXT, integer
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import Memory, iso
from commonplace.platform.exclusive import exclusive

DELEGATION = "mama_delegation"
RECENT = 20
TOOLS = {
    3: ("mama_search", "mama_load_checkpoint", "Read", "os_list_bots", "os_get_config"),
    2: ("mama_save", "mama_update"),
    1: ("discord_send", "slack_send", "playground_create"),
}
"""What each tier has beside those of the tiers below it, from the lowest."""
SECRETS = ("bot_token", "slack_bot_token", "slack_app_token")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TEXTS = {"name": 100, "display_name": 100}


def tools_of(tier: int) -> tuple[str, ...]:
    """The tools that an agent of a tier may have."""
    return tuple(name for level, names in TOOLS.items() if level >= tier for name in names)


def agents_of(tree: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The agents of a configuration by their ids, each with every field."""
    found = tree["multi_agent"]["agents"]
    return {
        name: {**configuration.AGENT, "name": name, "display_name": name, **agent}
        for name, agent in found.items()
        if isinstance(agent, Mapping)
    }


def _shown(id: str, agent: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: agent.get(name) for name in configuration.AGENT}
    for name in SECRETS:
        known[name] = configuration.MASK if agent.get(name) else None
    return {"id": id, **known}


def delegations(memory: Commonplace, limit: int) -> list[Memory]:
    """The newest delegations."""
    return records.page(memory, DELEGATION, limit=limit)


def team_status(call: Call) -> Any:
    """The state of the team: its agents, recent delegations and chains under way."""
    tree = configuration.effective(call.memory, service.of(call))
    enabled = tree["multi_agent"]["enabled"]
    recent = delegations(call.memory, RECENT)
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
                "status": _state(id, agent, busy),
                "lastActivity": last.get(id),
            }
            for id, agent in agents_of(tree).items()
        ] if enabled else [],
        "recentDelegations": [{"id": each.ref, **each.attrs} for each in recent],
        "activeChains": len({each.attrs.get("chain") for each in active}),
    }  # fmt: skip


def _state(id: str, agent: Mapping[str, Any], busy: set[str]) -> str:
    if not agent["enabled"]:
        return "disabled"
    return "busy" if id in busy else "online"


def list_agents(call: Call) -> Any:
    """List the configured agents; tokens are masked."""
    tree = configuration.effective(call.memory, service.of(call))
    return {"agents": [_shown(id, agent) for id, agent in agents_of(tree).items()]}


def list_delegations(call: Call, *, limit: int) -> Any:
    """The newest delegations, newest first."""
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
    """Change an agent; it takes effect at its next prompt."""
    if not _ID.fullmatch(id):
        raise PlatformError(400, "INVALID_AGENT_ID", "The id must be letters, digits, - or _.")
    running = service.of(call)
    with exclusive(call.memory, "change agent"):
        tree = configuration.effective(call.memory, running)
        agent = agents_of(tree).get(id)
        if agent is None:
            raise PlatformError(404, "AGENT_NOT_FOUND", "There is no such agent.")
        known = {name: value for name, value in changes.items() if name in configuration.AGENT}
        _check(known, {**agent, **known}, running)
        configuration.change(call.memory, running, {"multi_agent": {"agents": {id: known}}})
    return {"success": True, "message": f"Agent {id} updated"}


def _check(changes: Mapping[str, Any], agent: Mapping[str, Any], running: Service) -> None:
    """Refuse invalid values for an agent."""
    for name, most in _TEXTS.items():
        if name in changes and not (
            isinstance(changes[name], str) and 1 <= len(changes[name]) <= most
        ):
            raise invalid_value(f"{name} must be 1 to {most} characters.")
    for name in ("enabled", "can_delegate"):
        if name in changes and not isinstance(changes[name], bool):
            raise invalid_value(f"{name} must be true or false.")
    for name, least, most in (("tier", 1, 3), ("cooldown_ms", 0, 86_400_000)):
        value = agent[name]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise invalid_value(f"{name} must be a whole number from {least} to {most}.")
    for name in ("persona_file", "trigger_prefix", "effort", *SECRETS):
        if changes.get(name) is not None and not isinstance(changes[name], str):
            raise invalid_value(f"{name} must be a text.")
    if not isinstance(agent["model"], str) or not isinstance(agent["backend"], str):
        raise invalid_value("backend and model must be texts.")
    configuration.check_model(agent, running.environ, "agent")
    _check_persona(changes.get("persona_file"), running)
    _check_lists(changes, agent)


def _check_persona(given: str | None, running: Service) -> None:
    if given is None:
        return
    allowed = (running.folder / "personas", running.folder / "workspace")
    path = (running.folder / given).resolve()
    if "\0" in given or not any(path.is_relative_to(root.resolve()) for root in allowed):
        raise invalid_value("persona_file must lie in personas or in the workspace.")


def _check_lists(changes: Mapping[str, Any], agent: Mapping[str, Any]) -> None:
    words = changes.get("auto_respond_keywords")
    if words is not None and not _are_texts(words):
        raise invalid_value("auto_respond_keywords must be a list of texts.")
    permissions = changes.get("tool_permissions")
    if permissions is None:
        return
    if not isinstance(permissions, Mapping) or not all(
        name in ("allowed", "blocked") and _are_texts(value) for name, value in permissions.items()
    ):
        raise invalid_value("tool_permissions must have lists of tools as allowed and blocked.")
    beyond = set(permissions.get("allowed", ())) - {*tools_of(agent["tier"]), "*"}
    if beyond:
        raise invalid_value(
            f"An agent of tier {agent['tier']} cannot have {', '.join(sorted(beyond))}."
        )


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


async def _changes(exchange: Exchange) -> dict[str, Any]:
    body = await exchange.json(required=True)
    return {"id": exchange.request.path_params["id"], "changes": body}


OPERATIONS = (
    operation("team_status", "Status of the team", "read", team_status),
    operation("list_team", "List agents", "read", list_agents),
    operation(
        "update_agent_config", "Change an agent", "operator", update_agent, ("id", "changes"),
        {"id": TEXT, "changes": OBJECT}, withheld=True,
    ),
    operation(
        "list_delegations", "List delegations", "read", list_delegations, (),
        {"limit": integer(1, 100, RECENT)},
    ),
)  # fmt: skip
ROUTES = (
    Route("GET", "/api/multi-agent/status", "team_status"),
    Route("GET", "/api/multi-agent/agents", "list_team"),
    Route("PUT", "/api/multi-agent/agents/{id}", "update_agent_config", read=_changes),
    Route("GET", "/api/multi-agent/delegations", "list_delegations", read=read),
)
