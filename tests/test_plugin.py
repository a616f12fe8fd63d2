"""The plugin for agents says what the program says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "tools"))
import write_plugin as plugin


@pytest.mark.parametrize(
    "path", plugin.files(), ids=lambda path: str(path.relative_to(plugin.ROOT))
)
def test_every_file_is_as_the_program_says(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == plugin.files()[path], "run 'make docs'"


def test_nothing_else_is_in_the_plugin() -> None:
    held = {path for path in plugin.FOLDER.rglob("*") if path.is_file()}
    assert held == {path for path in plugin.files() if path.is_relative_to(plugin.FOLDER)}


def test_the_plugin_starts_our_distribution_and_its_hooks_name_its_server() -> None:
    servers = json.loads((plugin.FOLDER / ".mcp.json").read_text())["mcpServers"]
    assert servers["commonplace"]["args"][:2] == ["--from", "commonplace-memory"]
    hooks = (plugin.FOLDER / "hooks" / "hooks.json").read_text()
    assert '"server": "plugin:commonplace:commonplace"' in hooks
    assert "uvx --from commonplace-memory commonplace-hook" in hooks
