"""The agents of the team: their fields, and the allowed values."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from commonplace.dialects.mama.platform.failures import PlatformError, invalid_value

if TYPE_CHECKING:
    from commonplace.dialects.mama.platform.service import Service

log = logging.getLogger(__name__)

AGENT_DEFAULTS = {
    "name": "", "display_name": "", "tier": 1, "backend": "claude", "model": "", "enabled": True,
    "persona_file": None, "trigger_prefix": None, "bot_token": "", "slack_bot_token": "",
    "slack_app_token": "", "auto_respond_keywords": [], "cooldown_ms": 5_000,
    "can_delegate": False, "effort": None, "tool_permissions": None,
}  # fmt: skip
BACKENDS = {
    "claude": ("anthropic", ("claude-",)),
    "codex-mcp": ("openai", ("gpt-", "codex", *(f"o{digit}" for digit in range(10)))),
}
"""The provider of each backend, and the prefix of its models' names."""
EFFORTS = ("low", "medium", "high", "max")
TOOLS_BY_TIER = {
    3: (
        "mama_search", "mama_load_checkpoint", "Read", "os_list_bots", "os_get_config",
        "skill_read",
    ),
    2: ("mama_save", "mama_update"),
    1: ("discord_send", "slack_send", "playground_create"),
}  # fmt: skip
"""The tools that each tier adds to the tools of lower tiers, lowest tier first."""
SECRET_FIELDS = ("bot_token", "slack_bot_token", "slack_app_token")
ORIGINAL_FOLDER = "~/.mama/"
"""The directory in which MAMA itself stores its files."""
ID_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TEXT_LIMITS = {"name": 100, "display_name": 100}


def tools_of(tier: int) -> tuple[str, ...]:
    """Return the tools that an agent of a tier may have."""
    return tuple(name for level, names in TOOLS_BY_TIER.items() if level >= tier for name in names)


def agents_of(tree: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the agents of a configuration by their ids, each with every field."""
    found = tree["multi_agent"]["agents"]
    return {
        name: {**AGENT_DEFAULTS, "name": name, "display_name": name, **agent}
        for name, agent in found.items()
        if isinstance(agent, Mapping)
    }


def check_model(agent: Mapping[str, Any], environ: Mapping[str, str], where: str) -> None:
    """Refuse a backend, a model and an effort that do not match."""
    backend, model, effort = agent["backend"], agent["model"], agent.get("effort")
    if backend not in BACKENDS:
        raise invalid_value(f"{where}.backend must be one of {', '.join(BACKENDS)}.")
    free = backend == "codex-mcp" and environ.get("COMMONPLACE_LLM_OPENAI_URL")
    if model and not free and not str(model).startswith(BACKENDS[backend][1]):
        raise invalid_value(f"{where}.model does not belong to the backend {backend}.")
    if effort is not None:
        if effort not in EFFORTS:
            raise invalid_value(f"{where}.effort must be one of {', '.join(EFFORTS)}.")
        if backend != "claude" or (effort == "max" and model != "claude-opus-4-6"):
            raise invalid_value(f"{where}.effort {effort} is not supported by the model {model}.")


def without_invalid_fields(id: str, agent: Mapping[str, Any], running: Service) -> dict[str, Any]:
    """Return an agent of an edited configuration file without its invalid fields."""
    persona = agent.get("persona_file")
    if isinstance(persona, str) and persona.startswith(ORIGINAL_FOLDER):
        agent = {**agent, "persona_file": persona.removeprefix(ORIGINAL_FOLDER)}
    together = {name: agent[name] for name in ("backend", "model", "effort") if name in agent}
    others = [{name: value} for name, value in agent.items() if name not in together]
    valid: dict[str, Any] = {}
    for fields in (together, *others):
        try:
            check(fields, {**AGENT_DEFAULTS, "name": id, **valid, **fields}, running)
        except PlatformError as error:
            log.warning("fields were not read", extra={"agent": id, "why": error.message})
        else:
            valid |= fields
    return valid


def check(changes: Mapping[str, Any], agent: Mapping[str, Any], running: Service) -> None:
    """Refuse invalid values for an agent."""
    for name, most in _TEXT_LIMITS.items():
        if name in changes and not (
            isinstance(changes[name], str) and 1 <= len(changes[name]) <= most
        ):
            raise invalid_value(f"{name} must be 1 to {most} characters.")
    for name in ("enabled", "can_delegate"):
        if name in changes and not isinstance(changes[name], bool):
            raise invalid_value(f"{name} must be true or false.")
    for name, least, most in (("tier", 1, 3), ("cooldown_ms", 0, 2**31 - 1)):
        value = agent[name]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise invalid_value(f"{name} must be a whole number from {least} to {most}.")
    for name in ("persona_file", "trigger_prefix", "effort", *SECRET_FIELDS):
        if changes.get(name) is not None and not isinstance(changes[name], str):
            raise invalid_value(f"{name} must be a string.")
    if not all(isinstance(agent[name], str) for name in ("backend", "model")):
        raise invalid_value("backend and model must be strings.")
    check_model(agent, running.environ, "agent")
    _check_persona(changes.get("persona_file"), running)
    _check_lists(changes)


def _check_persona(given: str | None, running: Service) -> None:
    if given is None:
        return
    allowed = (running.folder / "personas", running.folder / "workspace")
    path = (running.folder / given.replace("\0", "")).resolve()
    if "\0" in given or not any(path.is_relative_to(root.resolve()) for root in allowed):
        raise invalid_value("persona_file must be in the folder personas or in the workspace.")


def _check_lists(changes: Mapping[str, Any]) -> None:
    words = changes.get("auto_respond_keywords")
    if words is not None and not _are_texts(words):
        raise invalid_value("auto_respond_keywords must be a list of strings.")
    permissions = changes.get("tool_permissions")
    if permissions is None:
        return
    if not isinstance(permissions, Mapping) or not all(
        name in ("allowed", "blocked") and _are_texts(value) for name, value in permissions.items()
    ):
        raise invalid_value("tool_permissions must have lists of tools as allowed and blocked.")


def check_permissions(changes: Mapping[str, Any], agent: Mapping[str, Any]) -> None:
    """Refuse permissions for tools that the agent's tier does not have.

    A file of MAMA itself may contain such permissions; they have no effect.
    """
    permissions = changes.get("tool_permissions") or {}
    beyond = set(permissions.get("allowed", ())) - {*tools_of(agent["tier"]), "*"}
    if beyond:
        raise invalid_value(
            f"An agent of tier {agent['tier']} cannot have {', '.join(sorted(beyond))}."
        )


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
