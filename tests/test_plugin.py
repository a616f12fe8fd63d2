"""The plugin for agents says what the program says."""

from __future__ import annotations

import json
import re
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from commonplace import DISTRIBUTION, __version__
from commonplace.dialects.commonplace.dialect import DIALECT

sys.path.append(str(Path(__file__).parent.parent / "tools"))
import write_bundle as bundle
import write_plugin as plugin


@pytest.mark.parametrize(
    "path", plugin.file_texts(), ids=lambda path: str(path.relative_to(plugin.ROOT))
)
def test_every_file_is_as_the_program_says(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == plugin.file_texts()[path], "run 'make docs'"


def test_nothing_else_is_in_the_plugin() -> None:
    held = {path for path in plugin.FOLDER.rglob("*") if path.is_file()}
    assert held == {path for path in plugin.file_texts() if path.is_relative_to(plugin.FOLDER)}


def test_the_plugin_starts_our_distribution_and_its_hooks_name_its_server() -> None:
    servers = json.loads((plugin.FOLDER / ".mcp.json").read_text())["mcpServers"]
    assert servers["commonplace"]["args"][:2] == ["--from", "commonplace-memory"]
    hooks = (plugin.FOLDER / "hooks" / "hooks.json").read_text()
    assert '"server": "plugin:commonplace:commonplace"' in hooks
    assert "uvx --from commonplace-memory commonplace-hook" in hooks


def test_the_registry_entry_is_one_that_the_registry_takes() -> None:
    entry = json.loads((plugin.ROOT / "server.json").read_text())
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert len(entry["description"]) <= 100
    (package,) = entry["packages"]
    assert package["version"] == entry["version"] == __version__
    # the registry looks for this line in the description of the package
    assert f"mcp-name: {entry['name']} -->" in (plugin.ROOT / "README.md").read_text()
    project = tomllib.loads((plugin.ROOT / "pyproject.toml").read_text())["project"]
    assert project["readme"] == "README.md"
    # a client gives `uvx` the name of the distribution, and it runs a program of that name
    scripts = project["scripts"]
    assert scripts[package["identifier"]] == scripts["commonplace"]


def test_another_namespace_changes_the_entry_and_the_readme_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugin, "NAMESPACE", "org.example.memory")
    written = plugin.file_texts()
    assert json.loads(written[plugin.ROOT / "server.json"])["name"].startswith("org.example.memory")
    readme = written[plugin.README]
    assert readme.count("mcp-name:") == 1 and "org.example.memory/commonplace -->" in readme


def test_the_bundle_has_a_manifest_and_what_it_names(tmp_path: Path) -> None:
    path = bundle.write_bundle(tmp_path)
    with zipfile.ZipFile(path) as packed:
        manifest = json.loads(packed.read("manifest.json"))
        assert manifest["server"]["entry_point"] in packed.namelist()
    required = {"manifest_version", "name", "version", "description", "author", "server"}
    assert required <= manifest.keys()
    assert (manifest["manifest_version"], manifest["version"]) == ("0.3", __version__)
    started = manifest["server"]["mcp_config"]
    assert started["args"] == ["--from", f"{DISTRIBUTION}=={__version__}", "commonplace", "mcp"]
    for name in re.findall(r"\$\{user_config\.(\w+)\}", json.dumps(started)):
        assert name in manifest["user_config"]
    tools = [tool.name for tool in DIALECT.tools if not tool.hidden]
    assert [tool["name"] for tool in manifest["tools"]] == tools
    assert path.read_bytes() == bundle.write_bundle(tmp_path / "again").read_bytes()
