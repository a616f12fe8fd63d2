"""MAMA's configuration: a record of the space, encrypted secrets, and a copy as config.yaml.

The record contains the values that were set; other values have defaults. If a person edits the
file, the next read of the configuration imports it. Secrets are encrypted in system.db and are
never shown.
"""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from commonplace.dialects.contract import Call
from commonplace.dialects.mama.platform import members, service
from commonplace.dialects.mama.platform.failures import PlatformError, invalid_value
from commonplace.dialects.mama.platform.files import KIND, StoredFile, records
from commonplace.dialects.mama.platform.service import OBJECT_BODY, Service, operation
from commonplace.dialects.rest import Exchange, Route
from commonplace.engine.commonplace import Commonplace
from commonplace.platform import sealed
from commonplace.platform.exclusive import exclusive

MASK = "***[redacted]***"
SECRETS_REF = "mama:secrets"
"""The ref of the record that decides which encrypted secrets are valid."""

DEFAULT_MODEL = "claude-sonnet-4-6"


def _default_team() -> dict[str, Any]:
    tiers = {"conductor": 1, "developer": 1, "reviewer": 3, "architect": 2, "pm": 2}
    return {
        name: {
            **members.AGENT_DEFAULTS, "name": name, "display_name": name.capitalize(), "tier": tier,
            "model": DEFAULT_MODEL, "trigger_prefix": f"!{name}", "can_delegate": tier == 1,
        }
        for name, tier in tiers.items()
    }  # fmt: skip


DEFAULTS: Mapping[str, Any] = {
    "version": 1,
    "agent": {
        "backend": "claude", "model": DEFAULT_MODEL, "effort": None, "max_turns": 10,
        "timeout": 300_000,
        "tools": {"gateway": ["*"], "mcp": [], "mcp_config": "mcp-config.json"}, "api_key": "",
    },
    "database": {"path": f"spaces/{service.OWNER_SPACE}.db"},  # below the data directory
    "logging": {"level": "info", "file": "logs/daemon.log"},
    "discord": {"enabled": False, "token": "", "default_channel_id": ""},
    "slack": {"enabled": False, "bot_token": "", "app_token": ""},
    "telegram": {"enabled": False, "token": ""},
    "chatwork": {"enabled": False, "api_token": ""},
    "heartbeat": {
        "enabled": False, "interval": 1_800_000, "quiet_start": 23, "quiet_end": 8,
        "notify_channel_id": "",
    },
    "roles": {"definitions": {}, "sourceMapping": {}},
    "multi_agent": {
        "enabled": False, "agents": _default_team(), "default_agent": None,
        "loop_prevention": {
            "max_chain_length": 3, "global_cooldown_ms": 2_000, "chain_window_ms": 60_000,
        },
    },
}  # fmt: skip
SECTIONS = (*DEFAULTS, "scheduling")
READ_ONLY_SECTIONS = ("database", "logging")
"""Read-only sections; `agent.tools.mcp_config` is read-only, too."""
MOST_MILLISECONDS = 2**31 - 1
"""The longest interval of a timer in MAMA itself."""
MOST_CHARS = 200_000
NUMBER_RANGES: Mapping[str, tuple[int, int]] = {
    "version": (1, 1),
    "agent.max_turns": (1, 100),
    "agent.timeout": (1_000, MOST_MILLISECONDS),
    "heartbeat.interval": (60_000, MOST_MILLISECONDS),
    "heartbeat.quiet_start": (0, 23),
    "heartbeat.quiet_end": (0, 23),
    "multi_agent.loop_prevention.max_chain_length": (1, 100),
    "multi_agent.loop_prevention.global_cooldown_ms": (0, MOST_MILLISECONDS),
    "multi_agent.loop_prevention.chain_window_ms": (0, MOST_MILLISECONDS),
}
Tree = dict[str, Any]


# --- trees ---------------------------------------------------------------------------------------


def is_secret(name: str) -> bool:
    """Return whether a key holds a secret."""
    return name in ("token", "api_key") or name.endswith("_token")


def leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of every value that is not an object; dots in names are escaped."""
    for name, value in tree.items():
        part = name.replace("%", "%25").replace(".", "%2E")
        where = f"{path}.{part}" if path else part
        if isinstance(value, Mapping):
            yield from leaves(value, where)
        else:
            yield where, value


def put_value(tree: Tree, path: str, value: Any) -> None:
    """Set a value by its path."""
    *folders, name = (unquote(part) for part in path.split("."))
    for folder in folders:
        tree = tree.setdefault(folder, {})
    tree[name] = value


def _has_parent(tree: Tree, path: str) -> bool:
    """Return whether the object that holds a value exists."""
    here: Any = tree
    for folder in path.split(".")[:-1]:
        here = here.get(unquote(folder)) if isinstance(here, Mapping) else None
    return isinstance(here, Mapping)


def merge_trees(base: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """Merge two trees; values and lists of the second tree replace those of the first."""
    result = {name: copy.deepcopy(value) for name, value in base.items()}
    for name, value in over.items():
        held = result.get(name)
        if isinstance(value, Mapping) and isinstance(held, Mapping):
            result[name] = merge_trees(held, value)
        else:
            result[name] = copy.deepcopy(value)
    return result


def mask_secrets(tree: Mapping[str, Any]) -> Tree:
    """Return a tree with its secrets masked."""
    shown = merge_trees({}, tree)
    for path, value in leaves(tree):
        if is_secret(path.rpartition(".")[2]):
            put_value(shown, path, MASK if value else "")
    return shown


def without_secrets(tree: Mapping[str, Any]) -> tuple[Tree, dict[str, str]]:
    """Return a tree with empty secrets, and the secrets by path, masks included."""
    plain, secrets = merge_trees({}, tree), {}
    for path, value in leaves(tree):
        if is_secret(path.rpartition(".")[2]):
            put_value(plain, path, "")
            secrets[path] = value or ""
    return plain, secrets


# --- checks --------------------------------------------------------------------------------------


def check(changes: Mapping[str, Any]) -> None:
    """Refuse a change with an unknown section, a wrong type or an invalid value."""
    for section in changes:
        if section not in SECTIONS:
            raise invalid_value(f"Unknown section {section!r}. Allowed: {', '.join(SECTIONS)}.")
    _check_types(changes, {**DEFAULTS, "scheduling": {"jobs": []}}, "")
    for path, value in leaves(changes):
        if path in NUMBER_RANGES:
            least, most = NUMBER_RANGES[path]
            if not least <= value <= most:
                raise invalid_value(f"{path} must be {least} to {most}.")
    _check_secrets(changes, "")
    jobs = changes.get("scheduling", {}).get("jobs", [])
    if not all(isinstance(job, Mapping) for job in jobs):
        raise invalid_value("scheduling.jobs must be a list of objects.")


def _check_secrets(value: Any, where: str, *, in_list: bool = False) -> None:
    """Refuse a secret that cannot be encrypted: it is not a string, or it is in a list."""
    if isinstance(value, list):
        for each in value:
            _check_secrets(each, where, in_list=True)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if is_secret(name) and inner and (in_list or not isinstance(inner, str)):
                raise invalid_value(f"{where}.{name} must be a string, and not in a list.")
            _check_secrets(inner, f"{where}.{name}" if where else name, in_list=in_list)


def _check_types(changes: Mapping[str, Any], model: Mapping[str, Any], path: str) -> None:
    for name, value in changes.items():
        where = f"{path}.{name}" if path else name
        if where.startswith(("roles.", "multi_agent.agents")):
            if not isinstance(value, Mapping):
                raise invalid_value(f"{where} must be an object.")
            for id, agent in value.items() if where == "multi_agent.agents" else ():
                if not members.ID_PATTERN.fullmatch(str(id)) or not isinstance(agent, Mapping):
                    raise invalid_value(
                        "An agent must be an object; its id, letters, digits, - or _."
                    )
            continue
        if name not in model:
            continue
        default = model[name]
        if isinstance(default, Mapping):
            if not isinstance(value, Mapping):
                raise invalid_value(f"{where} must be an object.")
            _check_types(value, default, where)
        elif value is None and (default is None or is_secret(name)):
            continue
        elif type(value) is not type("" if default is None else default):
            wanted = {bool: "true or false", int: "a whole number", str: "a text", list: "a list"}
            raise invalid_value(
                f"{where} must be {wanted[type('' if default is None else default)]}."
            )


# --- reading and changing ------------------------------------------------------------------------


def _parse_yaml(data: bytes) -> Tree:
    try:
        import yaml
    except ImportError:
        raise ValueError("PyYAML is not installed") from None
    try:
        tree = yaml.safe_load(data.decode("utf-8-sig")) or {}
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(type(error).__name__) from error
    if not isinstance(tree, dict):
        raise ValueError("it is not a mapping")
    try:
        tree = json.loads(json.dumps(tree))  # YAML can contain dates, sets and cycles
    except TypeError as error:
        raise ValueError("it holds a value that JSON cannot represent") from error
    known = {name: tree[name] for name in SECTIONS if tree.get(name) is not None}
    check(known)
    return known


def _render_yaml(tree: Tree) -> bytes:
    try:
        import yaml
    except ImportError:
        return b""
    text = "# MAMA's configuration. Secrets are stored elsewhere, sealed.\n"
    text += str(
        yaml.safe_dump(merge_trees({"version": 1}, tree), allow_unicode=True, sort_keys=False)
    )
    return text.encode()


FILE = StoredFile("config.yaml", _parse_yaml, _render_yaml, {})


def _load_settings(memory: Commonplace, running: Service) -> Tree:
    """Return the stored settings, without defaults and secrets; import an edited file first."""

    def edited(tree: Tree) -> Tree:
        members.check_model(merge_trees(DEFAULTS, tree)["agent"], running.environ, "agent")
        agents = tree.get("multi_agent", {}).get("agents", {})
        for id, agent in agents.items():
            agents[id] = members.without_invalid_fields(id, agent, running)
        plain, secrets = without_secrets(tree)
        new_secrets = {path: value for path, value in secrets.items() if value}
        if new_secrets:
            with exclusive(memory, "read secrets of a file"):
                _store_secrets(memory, running, new_secrets)
        return plain

    tree: Tree = FILE.load(memory, running, edited)
    return tree


def effective_configuration(memory: Commonplace, running: Service) -> Tree:
    """Return the whole configuration: defaults, stored settings and secrets."""
    tree = merge_trees(DEFAULTS, _load_settings(memory, running))
    for path, value in _load_secrets(memory, running).items():
        if _has_parent(tree, path):  # not if a person has removed the object, such as an agent
            put_value(tree, path, value)
    return tree


# Secrets are stored in another database than the record. That store has an id and two versions of
# the secrets: before and after a change. A record of the space, which is committed together with
# the configuration, contains the id if the change is valid. An interrupted change has no effect.


def _secret_store(running: Service) -> sealed.SealedSettings:
    if running.setting.vault is None:
        raise PlatformError(
            501, "NOT_CONFIGURED", "Secrets cannot be stored, because this server has no vault."
        )
    return sealed.mama_secrets(running.setting.system, running.setting.vault())


def _load_secrets(memory: Commonplace, running: Service) -> dict[str, str]:
    if running.setting.vault is None:
        return {}
    stored = _secret_store(running).get(service.OWNER_SPACE) or {}
    if "id" not in stored:  # written by an older release
        return stored
    chosen = records.find(memory, SECRETS_REF, KIND)
    after = chosen is not None and chosen.attrs["content"] == stored["id"]
    secrets: dict[str, str] = stored["after" if after else "before"]
    return secrets


def _store_secrets(memory: Commonplace, running: Service, new: Mapping[str, str]) -> None:
    """Store secrets in the current transaction; "" deletes one, a mask keeps the stored one."""
    new = {path: value for path, value in new.items() if not _is_mask(value)}
    if not new:
        return
    store, before = _secret_store(running), _load_secrets(memory, running)
    after = {path: value for path, value in {**before, **new}.items() if value}
    if after == before:
        return
    id = uuid.uuid4().hex
    store.put(service.OWNER_SPACE, {"id": id, "before": before, "after": after})
    chosen = records.find(memory, SECRETS_REF, KIND)
    if chosen is None:
        records.add(memory, KIND, SECRETS_REF, "secrets", {"content": id, "copies": []})
    else:
        records.change(memory, chosen, content=id)


def _is_mask(value: str) -> bool:
    return value.startswith("***[") and value.endswith("]***")


def change(memory: Commonplace, running: Service, partial: Mapping[str, Any]) -> None:
    """Merge a partial configuration; if any value is invalid, change nothing."""
    check(partial)
    partial = {name: value for name, value in partial.items() if name not in READ_ONLY_SECTIONS}
    plain, secrets = without_secrets(partial)
    plain.get("agent", {}).get("tools", {}).pop("mcp_config", None)
    for path, value in secrets.items():
        if not isinstance(value, str) or len(value) > 1_000 or not value.isprintable():
            raise invalid_value(f"{path} must be printable text of at most 1000 characters.")
    with exclusive(memory, "change configuration"):
        stored = merge_trees(_load_settings(memory, running), plain)
        full = merge_trees(DEFAULTS, stored)
        members.check_model(full["agent"], running.environ, "agent")
        agents = members.agents_of(full)
        for id, changes in partial.get("multi_agent", {}).get("agents", {}).items():
            members.check(changes, agents[id], running)
            members.check_permissions(changes, agents[id])
        if len(json.dumps(stored)) > MOST_CHARS:
            raise invalid_value(f"The configuration may have at most {MOST_CHARS:,} characters.")
        FILE.save(memory, running, stored)
        _store_secrets(memory, running, secrets)


# --- operations ----------------------------------------------------------------------------------


def show(call: Call) -> Any:
    """Get the configuration; secrets are masked."""
    return mask_secrets(effective_configuration(call.memory, service.service_of(call)))


def update(call: Call, *, config: Mapping[str, Any]) -> Any:
    """Merge a partial configuration; it takes effect at once."""
    change(call.memory, service.service_of(call), config)
    return {"success": True, "message": "Configuration updated"}


async def _config_arguments(exchange: Exchange) -> dict[str, Any]:
    return {"config": await exchange.json_body(required=True)}


OPERATIONS = (
    operation("get_config", "Get configuration", "read", show),
    operation(
        "put_config", "Update configuration", "operator", update, ("config",),
        {"config": {"type": "object"}}, has_secret_arguments=True,
    ),
)  # fmt: skip
ROUTES = (
    Route("GET", "/api/config", "get_config"),
    Route("PUT", "/api/config", "put_config", read=_config_arguments, request_body=OBJECT_BODY),
)
