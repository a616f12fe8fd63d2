"""The hooks that `start` adds to an agent's configuration.

Other hooks in the same file are not changed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commonplace.cli import clients
from commonplace.cli.clients import Client, Format
from commonplace.client.hook import UNTIL_CONNECTED

HOOKS_PATH = ("hooks",)
SERVER, TOOL = "commonplace", "hook"
PROGRAM, MODULE = "commonplace-hook", "commonplace.client.hook"

Groups = dict[str, list[dict[str, Any]]]
"""The hooks of each event: in groups or in a list, depending on the agent."""


@dataclass(frozen=True)
class HookFile:
    """The file with an agent's hooks, and the hooks that we add to it."""

    file: Callable[[Client], Path]
    hooks: Callable[[str], Groups]
    next_step: str = ""
    """What the user has to do so that the agent runs the hooks; empty if nothing."""
    format_number: int | None = None
    """The number of the format, if the file must contain it."""
    server_keys: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the server's entry that the hooks need."""


def _in_settings_folder(name: str) -> Callable[[Client], Path]:
    """Return a function that returns a file in the directory of the agent's settings."""

    def file(client: Client) -> Path:
        own = clients.configuration_paths(client)[0]
        if client.name == "claude-code" and not os.environ.get("CLAUDE_CONFIG_DIR"):
            # the MCP servers are in ~/.claude.json, but the hooks in ~/.claude/
            return own.with_name(".claude") / name
        return own.with_name(name)

    return file


def _tool_hook(event: str, seconds: int, **more: str) -> dict[str, Any]:
    given = {"event": event, "session": "${session_id}", "cwd": "${cwd}", **more}
    return {"type": "mcp_tool", "server": SERVER, "tool": TOOL, "timeout": seconds, "input": given}


def _tool_hooks(command: str) -> Groups:
    """Return the hooks of agents that can call an MCP tool from a hook."""
    transcript = "${transcript_path}"
    first = f"{command} {UNTIL_CONNECTED}"
    return {
        "SessionStart": [{"matcher": "startup|resume|clear|compact",
                          "hooks": [{"type": "command", "command": first, "timeout": 5}]}],
        "UserPromptSubmit": [{"hooks": [_tool_hook("UserPromptSubmit", 3, prompt="${prompt}")]}],
        "Stop": [{"hooks": [_tool_hook("Stop", 5, transcript=transcript)]}],
        "PreCompact": [{"hooks": [_tool_hook("PreCompact", 5, transcript=transcript)]}],
        "SessionEnd": [{"hooks": [{"type": "command", "command": command, "timeout": 3}]}],
    }  # fmt: skip


def _gemini_hooks(command: str) -> Groups:
    """Return the hooks of Gemini CLI: commands with timeouts in milliseconds."""
    events = ("SessionStart", "BeforeAgent", "AfterAgent", "PreCompress", "SessionEnd")
    hook = {"name": SERVER, "type": "command", "command": command, "timeout": 5_000}
    return {event: [{"matcher": "*", "hooks": [hook]}] for event in events}


def _vscode_hooks(command: str) -> Groups:
    """Return the hooks of VS Code: a list of commands."""
    events = ("SessionStart", "UserPromptSubmit", "PreCompact", "Stop")
    return {event: [{"type": "command", "command": command, "timeout": 5}] for event in events}


def _cursor_hooks(command: str) -> Groups:
    events = ("sessionStart", "beforeSubmitPrompt", "preCompact", "stop", "sessionEnd")
    return {event: [{"command": command, "timeout": 5}] for event in events}


def _copilot_file(_: Client) -> Path:
    """Return our file in the directory from which VS Code reads all hook files."""
    home = os.environ.get("COPILOT_HOME")
    return (Path(home) if home else Path.home() / ".copilot") / "hooks" / "commonplace.json"


HOOK_FILES: Mapping[str, HookFile] = {
    # With this key Claude Code waits for the server, so that hooks run at the first prompt too.
    "claude-code": HookFile(
        _in_settings_folder("settings.json"), _tool_hooks, server_keys={"alwaysLoad": True}
    ),
    "codex": HookFile(
        _in_settings_folder("hooks.json"),
        _tool_hooks,
        "Codex asks once whether it may run the hooks: /hooks.",
    ),
    "gemini": HookFile(_in_settings_folder("settings.json"), _gemini_hooks),
    "cursor": HookFile(_in_settings_folder("hooks.json"), _cursor_hooks, format_number=1),
    "vscode": HookFile(_copilot_file, _vscode_hooks),
}
FORMAT = Format.JSONC


def command_line(words: Sequence[str]) -> str:
    """Return the program's words as one shell command."""
    return shlex.join(words)


def hooks_with_ours(present: Any, ours: Groups) -> dict[str, Any]:
    """Return the hooks of a file with ours added; other groups keep their order."""
    found = hooks_without_ours(present)
    for event, groups in ours.items():
        before = found.get(event)
        found[event] = [*(before if isinstance(before, list) else []), *groups]
    return found


def hooks_without_ours(present: Any) -> dict[str, Any]:
    """Return the hooks of a file without ours."""
    kept: dict[str, Any] = {}
    for event, groups in present.items() if isinstance(present, Mapping) else ():
        if not isinstance(groups, list):
            kept[event] = groups
            continue
        left = [other for group in groups if (other := _group_without_ours(group)) is not None]
        if left or not groups:
            kept[event] = left
    return kept


def _group_without_ours(group: Any) -> Any:
    """Return a group of hooks without ours; None if nothing else is in it.

    Agents add hooks of their users to a group that is there.
    """
    if _is_our_hook(group):
        return None
    hooks = group.get("hooks") if isinstance(group, Mapping) else None
    if not isinstance(hooks, list) or not any(map(_is_our_hook, hooks)):
        return group
    left = [hook for hook in hooks if not _is_our_hook(hook)]
    return {**group, "hooks": left} if left else None


def has_our_hook(present: Any) -> bool:
    """Return whether a file has a hook of ours."""
    groups = present.values() if isinstance(present, Mapping) else ()
    return any(
        _group_has_our_hook(group) for each in groups if isinstance(each, list) for group in each
    )


def _group_has_our_hook(group: Any) -> bool:
    hooks = group.get("hooks") if isinstance(group, Mapping) else None
    return _is_our_hook(group) or (isinstance(hooks, list) and any(map(_is_our_hook, hooks)))


def _is_our_hook(hook: Any) -> bool:
    if not isinstance(hook, Mapping):
        return False
    by_tool = hook.get("type") == "mcp_tool" and hook.get("server") == SERVER
    command = hook.get("command")
    return by_tool or (isinstance(command, str) and (PROGRAM in command or MODULE in command))
