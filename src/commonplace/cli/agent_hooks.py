"""The hooks that `start` writes for an agent, beside the server's entry.

Hooks of others in the same file stay as they are.
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

HOOKS = ("hooks",)
SERVER, TOOL = "commonplace", "hook"
PROGRAM, MODULE = "commonplace-hook", "commonplace.client.hook"

Groups = dict[str, list[dict[str, Any]]]
"""The hooks of each event; some agents group them, others list them as they are."""


@dataclass(frozen=True)
class HookFile:
    """Where an agent keeps its hooks, and which hooks we add."""

    file: Callable[[Client], Path]
    hooks: Callable[[str], Groups]
    then: str = ""
    version: int | None = None
    """The number of the format, where a file has to name it."""
    server: Mapping[str, Any] = field(default_factory=dict)
    """More keys of the server's entry, which the hooks need."""


def _beside(name: str) -> Callable[[Client], Path]:
    """A file in the directory of the agent's own settings."""

    def file(client: Client) -> Path:
        own = clients.files(client)[0]
        if client.name == "claude-code" and not os.environ.get("CLAUDE_CONFIG_DIR"):
            # the agent declares MCP servers in another file of that directory
            return own.with_name(".claude") / name
        return own.with_name(name)

    return file


def _tool(event: str, seconds: int, **more: str) -> dict[str, Any]:
    given = {"event": event, "session": "${session_id}", "cwd": "${cwd}", **more}
    return {"type": "mcp_tool", "server": SERVER, "tool": TOOL, "timeout": seconds, "input": given}


def _by_tool(command: str) -> Groups:
    """The hooks of agents that can call a tool of a running server."""
    transcript = "${transcript_path}"
    first = f"{command} {UNTIL_CONNECTED}"
    return {
        "SessionStart": [{"matcher": "startup|resume|clear|compact",
                          "hooks": [{"type": "command", "command": first, "timeout": 5}]}],
        "UserPromptSubmit": [{"hooks": [_tool("UserPromptSubmit", 3, prompt="${prompt}")]}],
        "Stop": [{"hooks": [_tool("Stop", 5, transcript=transcript)]}],
        "PreCompact": [{"hooks": [_tool("PreCompact", 5, transcript=transcript)]}],
        "SessionEnd": [{"hooks": [{"type": "command", "command": command, "timeout": 3}]}],
    }  # fmt: skip


def _by_command(command: str) -> Groups:
    """The hooks of Gemini CLI: commands, with timeouts in milliseconds."""
    events = ("SessionStart", "BeforeAgent", "AfterAgent", "PreCompress", "SessionEnd")
    hook = {"name": SERVER, "type": "command", "command": command, "timeout": 5_000}
    return {event: [{"matcher": "*", "hooks": [hook]}] for event in events}


def _listed(command: str) -> Groups:
    """The hooks of VS Code: commands in one list."""
    events = ("SessionStart", "UserPromptSubmit", "PreCompact", "Stop")
    return {event: [{"type": "command", "command": command, "timeout": 5}] for event in events}


def _of_cursor(command: str) -> Groups:
    events = ("sessionStart", "beforeSubmitPrompt", "preCompact", "stop", "sessionEnd")
    return {event: [{"command": command, "timeout": 5}] for event in events}


def _copilot_file(_: Client) -> Path:
    """VS Code reads every file of this directory."""
    home = os.environ.get("COPILOT_HOME")
    return (Path(home) if home else Path.home() / ".copilot") / "hooks" / "commonplace.json"


HOOK_FILES: Mapping[str, HookFile] = {
    # Claude Code then waits until the server is connected, and skips no hook at the first prompt.
    "claude-code": HookFile(_beside("settings.json"), _by_tool, server={"alwaysLoad": True}),
    "codex": HookFile(
        _beside("hooks.json"), _by_tool, "Codex asks once whether it may run the hooks: /hooks."
    ),
    "gemini": HookFile(_beside("settings.json"), _by_command),
    "cursor": HookFile(_beside("hooks.json"), _of_cursor, version=1),
    "vscode": HookFile(_copilot_file, _listed),
}
FORMAT = Format.JSONC


def command_line(words: Sequence[str]) -> str:
    """The program as one command for a shell."""
    return shlex.join(words)


def merged(present: Any, ours: Groups) -> dict[str, Any]:
    """The hooks of a file with ours; groups of others keep their order."""
    found = others(present)
    for event, groups in ours.items():
        before = found.get(event)
        found[event] = [*(before if isinstance(before, list) else []), *groups]
    return found


def others(present: Any) -> dict[str, Any]:
    """The hooks of a file without ours."""
    kept: dict[str, Any] = {}
    for event, groups in present.items() if isinstance(present, Mapping) else ():
        if not isinstance(groups, list):
            kept[event] = groups
            continue
        left = [group for group in groups if not _is_ours(group)]
        if left or not groups:
            kept[event] = left
    return kept


def has_ours(present: Any) -> bool:
    """Whether a file has a hook of ours."""
    groups = present.values() if isinstance(present, Mapping) else ()
    return any(_is_ours(group) for each in groups if isinstance(each, list) for group in each)


def _is_ours(group: Any) -> bool:
    hooks = group.get("hooks") if isinstance(group, Mapping) else None
    return _is_our_hook(group) or (isinstance(hooks, list) and any(map(_is_our_hook, hooks)))


def _is_our_hook(hook: Any) -> bool:
    if not isinstance(hook, Mapping):
        return False
    by_tool = hook.get("type") == "mcp_tool" and hook.get("server") == SERVER
    command = hook.get("command")
    return by_tool or (isinstance(command, str) and (PROGRAM in command or MODULE in command))
