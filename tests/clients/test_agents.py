"""The agents themselves accept what `commonplace start` writes; none of them signs in anywhere."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clients import programs

AGENTS = ("claude-code", "codex", "gemini")
HOOKS = {"sessionStart", "userPromptSubmit", "stop", "preCompact", "sessionEnd"}


def native(pattern: str) -> str:
    """The program of a package that is there for this machine only."""
    found = sorted(path for path in programs.MODULES.glob(pattern) if path.is_file())
    if not found:
        raise RuntimeError("The packages are missing: make tests/clients/node_modules/.installed")
    return str(found[0])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("agents") / "home"
    home.mkdir()
    chosen = [word for agent in AGENTS for word in ("--only", agent)]
    ran(home, programs.COMMAND, "start", "--yes", *chosen, "--data", str(home / "data"))
    return home


def environment(home: Path) -> dict[str, str]:
    moving = ("CLAUDE_", "CODEX_", "GEMINI_", "XDG_")
    kept = {k: v for k, v in programs.environment().items() if not k.startswith(moving)}
    return {**kept, "HOME": str(home), "NO_COLOR": "1", "CI": "1"}


def ran(home: Path, *command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=programs.SECONDS, check=False, cwd=home,
        env=environment(home),
    )  # fmt: skip
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def test_claude_code_starts_the_server_and_it_answers(home: Path) -> None:
    listed = ran(home, native("@anthropic-ai/claude-code-*/claude"), "mcp", "list")
    (line,) = [line for line in listed.splitlines() if line.startswith("commonplace:")]
    assert "mcp --dialect commonplace" in line and "Connected" in line


def test_claude_codes_validator_accepts_the_hooks(home: Path, tmp_path: Path) -> None:
    written = json.loads((home / ".claude/settings.json").read_text())["hooks"]
    (tmp_path / ".claude-plugin").mkdir()
    (tmp_path / "hooks").mkdir()
    about = {"name": "commonplace", "version": "1.0.0", "author": {"name": "a"}}
    (tmp_path / ".claude-plugin/plugin.json").write_text(json.dumps(about))
    hooks = tmp_path / "hooks/hooks.json"
    hooks.write_text(json.dumps({"hooks": written}))
    claude = native("@anthropic-ai/claude-code-*/claude")
    assert "Validation passed" in ran(home, claude, "plugin", "validate", str(tmp_path))
    hooks.write_text(hooks.read_text().replace("mcp_tool", "no_such_type"))
    with pytest.raises(AssertionError, match="Validation failed"):
        ran(home, claude, "plugin", "validate", str(tmp_path))


def test_claude_codes_validator_accepts_the_plugin_and_its_marketplace(home: Path) -> None:
    root = Path(__file__).parent.parent.parent
    claude = native("@anthropic-ai/claude-code-*/claude")
    for place in (root / "plugins" / "commonplace", root):
        said = ran(home, claude, "plugin", "validate", str(place))
        assert "Validation passed" in said and "warning" not in said


def test_codex_lists_the_server(home: Path) -> None:
    codex = programs.package("@openai/codex", "bin/codex.js")
    listed = ran(home, programs.node(), codex, "mcp", "list")
    (line,) = [line for line in listed.splitlines() if line.startswith("commonplace")]
    assert "mcp --dialect commonplace" in line and "enabled" in line


def test_codex_reads_every_hook_without_a_warning(home: Path) -> None:
    answered = asked_of_codex(home, "hooks/list", {"cwds": [str(home)]})
    (found,) = answered["data"]
    assert (found["warnings"], found["errors"]) == ([], [])
    assert {hook["eventName"] for hook in found["hooks"]} == HOOKS
    assert all(hook["enabled"] for hook in found["hooks"])


def asked_of_codex(home: Path, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """What Codex's own server answers."""
    with subprocess.Popen(
        [native("@openai/codex-*/vendor/*/bin/codex"), "app-server"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=environment(home),
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        about = {"clientInfo": {"name": "test", "title": "test", "version": "1"}}
        messages = [
            {"id": 1, "method": "initialize", "params": about},
            {"method": "initialized"},
            {"id": 2, "method": method, "params": params},
        ]
        for message in messages:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
        try:
            for line in process.stdout:
                if (answer := json.loads(line)).get("id") == 2:
                    result: dict[str, Any] = answer["result"]
                    return result
        finally:
            process.kill()
    raise AssertionError("Codex did not answer")


def test_gemini_lists_the_server(home: Path) -> None:
    gemini = programs.package("@google/gemini-cli", "bundle/gemini.js")
    listed = ran(home, programs.node(), gemini, "mcp", "list")
    assert "commonplace:" in listed and "mcp --dialect commonplace" in listed


def test_after_stop_using_the_agents_know_nothing_of_it(home: Path, tmp_path: Path) -> None:
    again = tmp_path / "home"
    shutil.copytree(home, again, ignore=shutil.ignore_patterns("data", ".npm", "*.sock"))
    for agent in AGENTS:
        ran(again, programs.COMMAND, "stop-using", agent, "--yes", "--data", str(again / "data"))
    codex = [programs.node(), programs.package("@openai/codex", "bin/codex.js")]
    for command in ([native("@anthropic-ai/claude-code-*/claude")], codex):
        assert "mcp --dialect commonplace" not in ran(again, *command, "mcp", "list")
