"""Every command reads the settings in the same way, and none goes on without them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from commonplace import Commonplace
from commonplace.cli.app import run
from commonplace.client import config
from commonplace.server.settings import Settings

SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
BROKEN = {
    "not TOML": ('database = "postgresql://127.0.0.1:1/x"\nport = \n', "is not valid TOML"),
    "a mistyped name": ('databse = "postgresql://127.0.0.1:1/x"\n', "sets 'databse'"),
    "a bad value": ('port = "high"\n', "port from config.toml is not valid"),
    "not an address": ('database = "memory"\n', "database must be an address"),
    "not a string": ("database = 5\n", "is not a string"),
    "not UTF-8": ("# \udcff\n", "is not valid TOML"),
}
COMMANDS = [
    "remember x", "search x", "list", "show 3f2a", "revise 3f2a y", "forget 3f2a", "log", "undo",
    "status", "stop", "restart", "doctor", "doctor --repair", "spaces", "scan", "review",
    "export", "import {note}", "import {note} --dry-run", "backup {new}", "token list",
    "token create", "user list", "audit list", "being list", "workspace list", "guard list",
    "guard look {note}", "open", "mcp", "mcp --in-process", "serve --port 0", "start --yes",
]  # fmt: skip


def written(data: Path, text: str) -> None:
    (data / "config.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    (data / "config.toml").chmod(0o600)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    data = tmp_path / "data"
    with Commonplace(data, embedding="none") as memory:
        memory.remember("tea is at four")
    (tmp_path / "note.md").write_text("a note")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COMMONPLACE_DATA", str(data))
    monkeypatch.delenv("COMMONPLACE_EMBEDDING", raising=False)
    return data


def test_the_file_has_the_settings_that_there_are() -> None:
    assert [field.name for field in fields(Settings)] == ["data", *config.SETTING_NAMES]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_goes_on_with_a_mistyped_setting(
    data: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written(data, BROKEN["a mistyped name"][0])
    before = {each: each.read_bytes() for each in data.rglob("*") if each.is_file()}
    line = command.format(note=tmp_path / "note.md", new=tmp_path / "new")
    code = run(line.split())
    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    assert "sets 'databse'" in told.err
    assert len(told.err.splitlines()) == 1
    assert before == {each: each.read_bytes() for each in data.rglob("*") if each.is_file()}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("command", ["remember x", "status", "doctor"])
def test_a_file_that_cannot_be_read_stops_a_command_with_one_error(
    data: Path, kind: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, says = BROKEN[kind]
    written(data, text)
    assert run(command.split()) == 2
    told = capsys.readouterr().err
    assert says in told
    assert len(told.splitlines()) == 1


def test_a_file_that_is_a_directory_stops_a_command(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "config.toml").mkdir()
    assert run(["remember", "x"]) == 2
    assert "config.toml cannot be read" in capsys.readouterr().err


def test_an_agent_gets_the_same_error_from_mcp_and_hooks_keep_their_events(data: Path) -> None:
    written(data, BROKEN["a mistyped name"][0])
    started = subprocess.run(
        [sys.executable, "-m", "commonplace.cli", "mcp"], input=b"", capture_output=True, timeout=60
    )
    assert (started.returncode, started.stdout) == (2, b"")
    assert started.stderr.count(b"\n") == 1
    assert b"sets 'databse'" in started.stderr
    event = json.dumps({"hook_event_name": "SessionEnd", "session_id": "s", "cwd": "/"}).encode()
    hook = subprocess.run(
        [sys.executable, "-m", "commonplace.client.hook"],
        input=event, capture_output=True, timeout=60,
    )  # fmt: skip
    assert hook.returncode == 0
    assert b"sets 'databse'" in hook.stderr
    assert len(list((data / "inbox").iterdir())) == 1


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def act(*words: str) -> str:
        assert run(words) == 0
        return capsys.readouterr().out

    return act


def test_allow_secrets_of_the_file_counts_for_commands(
    data: Path, tmp_path: Path, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(data, 'allow_secrets = true\nembedding = "none"\n')
    said("remember", f"the key is {SECRET}")
    assert SECRET in said("list")
    (tmp_path / "note.md").write_text(f"another {SECRET}")
    assert SECRET in said("import", str(tmp_path / "note.md"), "--dry-run")
    monkeypatch.setenv("COMMONPLACE_ALLOW_SECRETS", "0")  # a variable counts before the file
    said("remember", f"a second key is {SECRET}")
    assert said("list").count(SECRET) == 1


def test_embedding_of_the_file_counts_for_commands(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(data, 'embedding = "word"\n')
    assert run(["remember", "x"]) == 2
    assert "no embedding provider named 'word'" in capsys.readouterr().err
    assert run(["remember", "x", "--embedding", "none"]) == 0  # an option counts before the file


def test_a_dry_run_does_not_touch_the_database(
    data: Path, tmp_path: Path, said: Callable[..., str]
) -> None:
    written(data, 'database = "postgresql://127.0.0.1:1/x"\n')  # nobody answers there
    for more in ((), ("--database", "postgresql://127.0.0.1:1/y")):
        assert "nothing was stored" in said("import", str(tmp_path / "note.md"), "--dry-run", *more)
