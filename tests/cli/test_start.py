"""`start` sets everything up, twice as well as once, and `stop-using` leaves no trace."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from commonplace import Commonplace
from commonplace.cli import agent_hooks, agent_plugins
from commonplace.cli.app import run as run_command
from importers import samples

# What people have in these files before: comments, hooks of their own, odd layout, no last newline.
BEFORE = {
    ".claude.json": '{"numStartups": 3,\n "mcpServers": {"other": {"command": "x"}}}',
    ".claude/settings.json": '{\n  // mine\n  "theme": "dark",\n  "hooks": {"Stop": [{"hooks": '
    '[{"type": "command", "command": "say done"}]}]}\n}\n',
    ".codex/config.toml": 'model = "o3"  # mine\r\n\r\n[mcp_servers.other]\r\ncommand = "x"\r\n',
    ".gemini/settings.json": '{"theme":"x"}',
    ".cursor/mcp.json": "{}\n",
    ".cursor/hooks.json": '{"version": 1, "hooks": {"stop": [{"command": "say done"}]}}',
    ".config/Code/User/settings.json": "{}",
    ".config/opencode/opencode.jsonc": '{\n\t"model": "a/b", // mine\n}\n',
    ".openclaw/openclaw.json": "{ plugins: { entries: { other: { enabled: true } } } } // mine\n",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    for name, text in BEFORE.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(text.encode())
    samples.claude_code(home / ".claude")
    samples.codex(home / ".codex")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))  # noqa: PTH120
    monkeypatch.setattr("shutil.which", lambda _: None)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    return home


def files(home: Path) -> dict[str, bytes]:
    found = (file for file in home.rglob("*") if file.is_file())
    return {str(file.relative_to(home)): file.read_bytes() for file in found}


def run(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert run_command([*args, "--json"]) == 0
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    return shown


def test_start_imports_connects_and_quotes_and_stop_using_leaves_no_trace(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, data = files(home), str(tmp_path / "data")
    done = run(capsys, "start", "--yes", "--data", data)
    assert done["agents"] == [
        "claude-code", "cursor", "vscode", "codex", "gemini", "opencode", "openclaw",
    ]  # fmt: skip
    assert [each["added"] for each in done["imported"]] == [2, 2]
    assert done["recalled"]["text"] in (
        "Use port 8080 for the gateway.", "The gateway uses port 8080.",
        "Rename the table users.", "It is called people now.",
    )  # fmt: skip
    after = files(home)
    assert after != before and set(done["written"]) == {
        str(home / name) for name in after if after[name] != before.get(name)
    }
    again = run(capsys, "start", "--yes", "--data", data)
    assert again["written"] == [] and [each["added"] for each in again["imported"]] == [0, 0]
    assert files(home) == after
    for client in done["agents"]:
        run(capsys, "stop-using", client, "--yes", "--data", data)
    assert files(home) == before
    assert run(capsys, "stop-using", "codex", "--yes", "--data", data)["files"] == []


def test_what_is_masked_in_an_import_is_told(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, data = "AKIA" + "Q7RSTUVWXYZ2345A", str(tmp_path / "data")
    lines, table = tmp_path / "notes.jsonl", tmp_path / "notes.csv"
    lines.write_text("".join(json.dumps({"text": f"Key {n} is {key}."}) + "\n" for n in range(2)))
    table.write_text(f"text\nThe other key is {key}.\nNothing here.\n")
    assert run(capsys, "import", str(lines), "--data", data)["masked"] == {"aws key": 2}
    assert run_command(["import", str(table), "--data", data]) == 0
    assert "masked: 1 × aws key" in capsys.readouterr().err
    assert run(capsys, "import", str(table), "--data", data)["masked"] == {}


def test_one_undo_takes_back_all_that_start_imported(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path / "data")
    run(capsys, "start", "--yes", "--data", data)
    with Commonplace(data, embedding="none") as memory:
        assert memory.browse()[1] == 4
        memory.undo()
        assert memory.browse()[1] == 0


def test_without_a_terminal_start_only_shows_what_it_would_do(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(home)
    assert run_command(["start", "--data", str(tmp_path / "data")]) == 0
    shown = capsys.readouterr()
    assert "Agents here: Claude Code" in shown.out and "+++ " in shown.out
    assert "1 session in" in shown.out and "add --yes" in shown.err
    assert files(home) == before and not (tmp_path / "data").exists()
    told = run(capsys, "start", "--data", str(tmp_path / "data"))
    assert told["done"] is False and told["changes"]
    assert files(home) == before


def test_hooks_of_others_stay_and_ours_are_written_as_the_agents_read_them(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "start", "--yes", "--data", str(tmp_path / "data"), "--only", "claude-code",
        "--only", "gemini", "--only", "codex")  # fmt: skip
    text = (home / ".claude/settings.json").read_text()
    assert "// mine" in text
    hooks = json.loads(text.replace("// mine", ""))["hooks"]
    assert hooks["Stop"][0]["hooks"][0]["command"] == "say done"
    tool = hooks["Stop"][1]["hooks"][0]
    assert (tool["type"], tool["server"], tool["tool"]) == ("mcp_tool", "commonplace", "hook")
    assert tool["input"]["transcript"] == "${transcript_path}"
    command = hooks["SessionStart"][0]["hooks"][0]["command"]
    assert agent_hooks.PROGRAM in command or agent_hooks.MODULE in command
    assert str(tmp_path / "data") in command
    gemini = json.loads((home / ".gemini/settings.json").read_text())
    assert gemini["hooks"]["BeforeAgent"][0]["hooks"][0]["timeout"] == 5000
    assert gemini["mcpServers"]["commonplace"]["args"][0] == "mcp"
    assert "hooks" in json.loads((home / ".codex/hooks.json").read_text())


def test_other_agents_get_hooks_or_plugins_in_their_own_formats(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path / "data")
    run(capsys, "start", "--yes", "--data", data)
    cursor = json.loads((home / ".cursor/hooks.json").read_text())
    assert cursor["version"] == 1
    assert cursor["hooks"]["stop"][0] == {"command": "say done"}
    assert data in cursor["hooks"]["stop"][1]["command"]
    assert {"sessionStart", "beforeSubmitPrompt", "preCompact", "sessionEnd"} < set(cursor["hooks"])
    vscode = json.loads((home / ".copilot/hooks/commonplace.json").read_text())
    assert {event: len(each) for event, each in vscode["hooks"].items()} == {
        "SessionStart": 1, "UserPromptSubmit": 1, "PreCompact": 1, "Stop": 1,
    }  # fmt: skip
    assert vscode["hooks"]["Stop"][0]["type"] == "command"
    plugin = (home / ".config/opencode/plugins/commonplace.js").read_text()
    assert agent_plugins.MARK in plugin and json.dumps(data) in plugin

    folder = home / ".openclaw/extensions/commonplace"
    assert {file.name for file in folder.iterdir()} == {
        "index.js", "openclaw.plugin.json", "package.json",
    }  # fmt: skip
    assert json.dumps(data) in (folder / "index.js").read_text()
    openclaw = (home / ".openclaw/openclaw.json").read_text()
    assert "// mine" in openclaw and "allowConversationAccess" in openclaw

    (home / ".cursor/hooks.json").write_text(json.dumps(cursor | {"more": 1}))
    run(capsys, "stop-using", "cursor", "--yes", "--data", data)
    assert json.loads((home / ".cursor/hooks.json").read_text()) == {
        "version": 1, "hooks": {"stop": [{"command": "say done"}]}, "more": 1,
    }  # fmt: skip


def test_a_new_hooks_file_of_cursor_names_its_version_and_goes_again(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path / "data")
    (home / ".cursor/hooks.json").unlink()
    run(capsys, "start", "--yes", "--data", data, "--only", "cursor")
    assert json.loads((home / ".cursor/hooks.json").read_text())["version"] == 1
    run(capsys, "stop-using", "cursor", "--yes", "--data", data)
    assert not (home / ".cursor/hooks.json").exists()


def test_a_plugin_of_somebody_else_is_not_overwritten(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = home / ".config/opencode/plugins/commonplace.js"
    theirs.parent.mkdir()
    theirs.write_text("export const Mine = async () => ({});\n")
    done = run(capsys, "start", "--yes", "--data", str(tmp_path / "data"), "--only", "opencode")
    assert any("another program wrote it" in problem for problem in done["problems"])
    run(capsys, "stop-using", "opencode", "--yes", "--data", str(tmp_path / "data"))
    assert theirs.read_text() == "export const Mine = async () => ({});\n"


def test_what_somebody_else_changed_since_stays_changed(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path / "data")
    run(capsys, "start", "--yes", "--data", data)
    settings = home / ".claude/settings.json"
    settings.write_text(settings.read_text().replace('"dark"', '"light"'))
    state = json.loads((home / ".claude.json").read_text()) | {"numStartups": 4}
    (home / ".claude.json").write_text(json.dumps(state))
    run(capsys, "stop-using", "claude-code", "--yes", "--data", data)
    left = json.loads(settings.read_text().replace("// mine", ""))
    assert left["theme"] == "light"
    assert left["hooks"] == {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}
    assert json.loads((home / ".claude.json").read_text()) == {
        "numStartups": 4, "mcpServers": {"other": {"command": "x"}},
    }  # fmt: skip


def test_a_file_that_cannot_be_read_keeps_no_other_agent_from_being_set_up(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / ".gemini/settings.json").write_text("{ not json")
    done = run(capsys, "start", "--yes", "--data", str(tmp_path / "data"))
    assert any("Gemini CLI" in problem for problem in done["problems"])
    assert (home / ".gemini/settings.json").read_text() == "{ not json"
    assert str(home / ".claude.json") in done["written"]


def test_an_empty_machine_is_told_what_is_known(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(home)
    home.mkdir()
    assert run_command(["start", "--yes", "--data", str(tmp_path / "data")]) == 0
    assert "No supported agent was found on this machine" in capsys.readouterr().out
    assert list(home.iterdir()) == [] and not (tmp_path / "data").exists()
    done = run(capsys, "start", "--yes", "--only", "codex", "--data", str(tmp_path / "data"))
    assert done["recalled"] is None and len(done["written"]) == 2
    run(capsys, "stop-using", "codex", "--yes", "--data", str(tmp_path / "data"))
    assert files(home) == {}


def test_an_unknown_agent_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["start", "--only", "emacs"]) == 2
    assert run_command(["stop-using", "emacs"]) == 2
    assert "Choose one of claude-code" in capsys.readouterr().err


def test_a_history_that_cannot_be_read_keeps_no_other_from_being_imported(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = samples.opencode(home / ".local" / "share" / "opencode") / "opencode.db"
    whole = database.read_bytes()
    database.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))
    done = run(capsys, "start", "--yes", "--data", str(tmp_path / "data"))
    assert {each["format"]: each["added"] for each in done["imported"]} == {
        "claude-code": 2, "codex": 2, "opencode": 0,
    }  # fmt: skip
    assert str(database) in done["imported"][2]["problems"][0]
    assert done["written"] and done["recalled"]


def test_a_hook_that_its_user_added_to_our_group_stays(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, settings = str(tmp_path / "data"), home / ".claude/settings.json"
    only = ("--only", "claude-code", "--no-import")
    run(capsys, "start", "--yes", "--data", data, *only)
    written = json.loads(settings.read_text().replace("// mine", ""))
    mine = {"type": "command", "command": "say hello"}
    written["hooks"]["SessionStart"][0]["hooks"].append(mine)
    settings.write_text(json.dumps(written))
    run(capsys, "start", "--yes", "--data", str(tmp_path / "other"), *only)
    groups = json.loads(settings.read_text())["hooks"]["SessionStart"]
    matcher = written["hooks"]["SessionStart"][0]["matcher"]
    assert groups[0] == {"matcher": matcher, "hooks": [mine]} and len(groups) == 2
    run(capsys, "stop-using", "claude-code", "--yes", "--data", data)
    left = json.loads(settings.read_text())["hooks"]
    assert left["SessionStart"] == [{"matcher": matcher, "hooks": [mine]}]
    assert not agent_hooks.has_our_hook(left)
