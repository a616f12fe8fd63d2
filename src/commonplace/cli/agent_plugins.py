"""The plugins that `start` writes for agents that run JavaScript instead of hooks.

A plugin passes each event to `commonplace-hook`, as the hooks of other agents do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

MARK = "// Written by `commonplace start`"
"""How a file of ours begins."""
_COMMAND = "COMMAND_WORDS"


@dataclass(frozen=True)
class Plugin:
    """A plugin of an agent: where its file is, given that of the settings, and our template."""

    file: Callable[[Path], Path]
    template: str


PLUGINS: Mapping[str, Plugin] = {
    "opencode": Plugin(
        lambda settings: settings.parent / "plugins" / "commonplace.js", "opencode_plugin.js"
    ),
}


def text(plugin: Plugin, command: Sequence[str]) -> str:
    """The plugin with the command of our hook program."""
    template = resources.files("commonplace.cli").joinpath(plugin.template).read_text("utf-8")
    return template.replace(_COMMAND, json.dumps(list(command)), 1)
