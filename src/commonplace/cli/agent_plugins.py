"""The plugins that `start` writes for agents that run JavaScript instead of hooks.

A plugin passes each event to `commonplace-hook`, like the hooks of other agents.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

MARK = "Written by `commonplace start`"
"""The text that every file written by us contains."""
_COMMAND_PLACEHOLDER = "COMMAND_WORDS"
_COMMON_PART_FILE = "plugin_parts.js"


@dataclass(frozen=True)
class Plugin:
    """A plugin of an agent: a function from the settings file to its folder, and its files."""

    folder: Callable[[Path], Path]
    program: tuple[str, str]
    """The name of the JavaScript file, and its template."""
    json_files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The plugin's JSON files by name."""
    setting: tuple[tuple[str, ...], Mapping[str, Any]] | None = None
    """The entry for the plugin in the agent's settings."""


def _openclaw_folder(_: Path) -> Path:
    state = os.environ.get("OPENCLAW_STATE_DIR") or Path.home() / ".openclaw"
    return Path(state).expanduser() / "extensions" / "commonplace"


PLUGINS: Mapping[str, Plugin] = {
    "opencode": Plugin(
        lambda settings: settings.parent / "plugins", ("commonplace.js", "opencode_plugin.js")
    ),
    "openclaw": Plugin(
        _openclaw_folder,
        ("index.js", "openclaw_plugin.js"),
        json_files={
            "openclaw.plugin.json": {
                "id": "commonplace", "name": "Commonplace", "description": MARK,
                "activation": {"onStartup": True},
                "configSchema": {"type": "object", "additionalProperties": False},
            },
            "package.json": {
                "name": "commonplace-openclaw", "version": "1.0.0", "description": MARK,
                "private": True, "type": "module", "openclaw": {"extensions": ["./index.js"]},
            },
        },
        setting=(
            ("plugins", "entries", "commonplace"),
            {"enabled": True, "hooks": {"allowConversationAccess": True}},
        ),
    ),
}  # fmt: skip


def plugin_files(agent: str, command: Sequence[str]) -> dict[str, str]:
    """Return the texts of a plugin's files by file name, with the hook command filled in."""
    plugin = PLUGINS[agent]
    name, template = plugin.program
    source = resources.files("commonplace.cli")
    parts = source.joinpath(_COMMON_PART_FILE).read_text("utf-8")
    program = source.joinpath(template).read_text("utf-8")
    json_files = {
        each: json.dumps(content, indent=2) + "\n" for each, content in plugin.json_files.items()
    }
    return {
        name: f"// {MARK}; `commonplace stop-using {agent}` removes it.\n"
        + parts.replace(_COMMAND_PLACEHOLDER, json.dumps(list(command)), 1) + f"\n{program}",
        **json_files,
    }  # fmt: skip
