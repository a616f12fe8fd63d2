"""Connecting agents: what is written into their files, and what is left alone."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import stat
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonplace.cli import clients, connect, json_text, settings_files
from commonplace.cli.app import run
from commonplace.cli.clients import CLIENTS, Format
from commonplace.dialects import registry
from commonplace.dialects.being import beings
from commonplace.engine.commonplace import Commonplace
from commonplace.text.hidden import escape_hidden
from server.harness import Running, running

SERVER = str(Path(__file__).parent / "small_mcp_server.py")
PROGRAM = connect.program_words
COMMAND = "/opt/bin/commonplace"
ARGS = ["mcp", "--dialect", "commonplace"]
URL = "http://127.0.0.1:3847/mcp/commonplace"
DOCS = Path(__file__).parents[2] / "docs" / "connect.md"


class Ended:
    """What a command did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        (line,) = self.out.splitlines()
        return json.loads(line)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of our own: the real one is never looked at."""
    where = tmp_path / "home"
    where.mkdir()
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(where))
    for name in ("XDG_CONFIG_HOME", "APPDATA", "LOCALAPPDATA", "COMMONPLACE_DATA", "FOO"):
        monkeypatch.delenv(name, raising=False)
    for client in CLIENTS.values():
        for name, _ in client.directory_variables:
            monkeypatch.delenv(name, raising=False)
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setattr(connect, "program_words", lambda: [COMMAND])
    return where


@pytest.fixture
def do(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    def act(*args: str) -> Ended:
        code = run(["connect", *args])
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return act


def parsed(client: str, path: Path) -> Any:
    text = path.read_text(encoding="utf-8-sig")
    if CLIENTS[client].format is Format.TOML:
        return tomllib.loads(text)
    return json_text.read(text, CLIENTS[client].format)


def backups() -> Path:
    return Path.home() / ".commonplace" / "connect"


def kept() -> list[Path]:
    return list(backups().iterdir()) if backups().is_dir() else []


# What each client is given

LOCATIONS = {
    "claude-code": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "codex": ".codex/config.toml",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "gemini": ".gemini/settings.json",
    "opencode": ".config/opencode/opencode.json",
    "openclaw": ".openclaw/openclaw.json",
}
ON_STDIO: dict[str, dict[str, Any]] = {
    "claude-code": {"mcpServers": {"type": "stdio", "command": COMMAND, "args": ARGS}},
    "claude-desktop": {"mcpServers": {"command": COMMAND, "args": ARGS}},
    "cursor": {"mcpServers": {"command": COMMAND, "args": ARGS}},
    "vscode": {"servers": {"type": "stdio", "command": COMMAND, "args": ARGS}},
    "codex": {"mcp_servers": {"command": COMMAND, "args": ARGS}},
    "windsurf": {"mcpServers": {"command": COMMAND, "args": ARGS}},
    "gemini": {"mcpServers": {"command": COMMAND, "args": ARGS}},
    "opencode": {"mcp": {"type": "local", "command": [COMMAND, *ARGS], "enabled": True}},
    "openclaw": {"mcp.servers": {"command": COMMAND, "args": ARGS}},
}
ON_HTTP: dict[str, dict[str, Any]] = {
    "claude-code": {"mcpServers": {"type": "http", "url": URL}},
    "cursor": {"mcpServers": {"url": URL}},
    "vscode": {"servers": {"type": "http", "url": URL}},
    "codex": {"mcp_servers": {"url": URL}},
    "windsurf": {"mcpServers": {"serverUrl": URL}},
    "gemini": {"mcpServers": {"httpUrl": URL}},
    "opencode": {"mcp": {"type": "remote", "url": URL, "enabled": True}},
    "openclaw": {"mcp.servers": {"url": URL, "transport": "streamable-http"}},
}
WITH_VARIABLE: dict[str, dict[str, Any]] = {
    "claude-code": {"headers": {"Authorization": "Bearer ${FOO}"}},
    "cursor": {"headers": {"Authorization": "Bearer ${env:FOO}"}},
    "vscode": {"headers": {"Authorization": "Bearer ${env:FOO}"}},
    "codex": {"bearer_token_env_var": "FOO"},
    "windsurf": {"headers": {"Authorization": "Bearer ${env:FOO}"}},
    "gemini": {"headers": {"Authorization": "Bearer ${FOO}"}},
    "opencode": {"headers": {"Authorization": "Bearer {env:FOO}"}},
    "openclaw": {"headers": {"Authorization": "Bearer ${FOO}"}},
}


def whole(table: dict[str, Any], more: dict[str, Any] | None = None) -> Any:
    ((container, entry),) = table.items()
    value: Any = {"commonplace": entry | (more or {})}
    for name in reversed(container.split(".")):
        value = {name: value}
    return value


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_starts_the_server_from_a_new_file(
    client: str, home: Path, do: Callable[..., Ended]
) -> None:
    path = home / LOCATIONS[client]
    ended = do(client, "--yes")
    assert (ended.code, ended.err) == (0, "")
    assert parsed(client, path) == whole(ON_STDIO[client])
    assert f"+++ {path}" in ended.out and f"written to {path}" in ended.out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kept() == []


@pytest.mark.parametrize("client", ON_HTTP)
def test_each_client_is_given_the_address_in_its_own_words(
    client: str, home: Path, do: Callable[..., Ended]
) -> None:
    path = home / LOCATIONS[client]
    assert do(client, "--transport", "http", "--yes").code == 0
    assert parsed(client, path) == whole(ON_HTTP[client])
    assert do(client, "--token-env", "FOO", "--yes").code == 0
    assert parsed(client, path) == whole(ON_HTTP[client], WITH_VARIABLE[client])
    assert do(client, "--token", "s3cret", "--yes").code == 0
    headers = {CLIENTS[client].headers: {"Authorization": "Bearer s3cret"}}
    assert parsed(client, path) == whole(ON_HTTP[client], headers)


@pytest.mark.parametrize("client", ON_HTTP)
def test_changing_the_transport_leaves_nothing_of_the_other(
    client: str, home: Path, do: Callable[..., Ended]
) -> None:
    path = home / LOCATIONS[client]
    do(client, "--token-env", "FOO", "--yes")
    assert do(client, "--yes").code == 0
    assert parsed(client, path) == whole(ON_STDIO[client])
    do(client, "--transport", "http", "--yes")
    assert parsed(client, path) == whole(ON_HTTP[client])


def test_keys_that_a_client_refuses_beside_the_other_transport_go(
    tmp_path: Path, do: Callable[..., Ended]
) -> None:
    codex, opencode = tmp_path / "codex.toml", tmp_path / "opencode.json"
    codex.write_text('[mcp_servers.commonplace]\ncommand = "x"\nenv_vars = ["A"]\nenabled = true\n')
    do("codex", "--config", str(codex), "--transport", "http", "--yes")
    there = parsed("codex", codex)["mcp_servers"]["commonplace"]
    assert there == {"url": URL, "enabled": True}
    codex.write_text(
        '[mcp_servers.commonplace]\nurl = "http://x"\nenv_http_headers = {A = "B"}\n'
        'oauth_resource = "http://x"\noauth = {client_id = "x"}\nenabled = true\n'
    )
    do("codex", "--config", str(codex), "--yes")
    there = parsed("codex", codex)["mcp_servers"]["commonplace"]
    assert there == {"command": COMMAND, "args": ARGS, "enabled": True}
    opencode.write_text('{"mcp": {"commonplace": {"type": "remote", "url": "x", "oauth": {}}}}')
    do("opencode", "--config", str(opencode), "--yes")
    there = parsed("opencode", opencode)["mcp"]["commonplace"]
    assert set(there) == {"type", "command", "enabled"}


def test_claude_desktop_refuses_an_address(home: Path, do: Callable[..., Ended]) -> None:
    ended = do("claude-desktop", "--transport", "http", "--yes")
    assert ended.code == 2
    assert "have no URL" in ended.err and "--transport stdio" in ended.err
    assert not (home / LOCATIONS["claude-desktop"]).exists()


def test_the_command_carries_dialect_data_and_space(
    tmp_path: Path, do: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "c.json"
    where = ("--config", str(config), "--yes")
    do("cursor", *where, "--dialect", "mama", "--data", "some/dir", "--space", "team")
    args = parsed("cursor", config)["mcpServers"]["commonplace"]["args"]
    data = str(Path.cwd() / "some" / "dir")
    assert args == ["mcp", "--dialect", "mama", "--data", data, "--space", "team"]
    monkeypatch.setenv("COMMONPLACE_DATA", "/elsewhere")
    do("cursor", *where)
    args = parsed("cursor", config)["mcpServers"]["commonplace"]["args"]
    assert args == [*ARGS, "--data", "/elsewhere"]


def test_a_database_that_the_agent_would_not_use_is_told(
    tmp_path: Path, do: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "postgresql://commonplace:hunter2@127.0.0.1:1/none"
    asked = ("cursor", "--config", str(tmp_path / "c.json"), "--yes", "--database", address)
    ended = do(*asked)
    assert ended.code == 0 and "--database is not written" in ended.err
    assert "hunter2" not in (tmp_path / "c.json").read_text() + ended.err
    monkeypatch.setenv("COMMONPLACE_DATABASE", address)
    assert "--database is not written" not in do(*asked).err


@pytest.mark.parametrize("dialect", registry.names())
def test_the_address_of_each_dialect_is_where_it_is_served(
    dialect: str, tmp_path: Path, do: Callable[..., Ended]
) -> None:
    config = tmp_path / "c.json"
    asked = ("cursor", "--config", str(config), "--transport", "http", "--dialect", dialect)
    if dialect == "being":
        refused = do(*asked, "--yes")
        assert refused.code == 2 and "/mcp/ID" in refused.err
        asked = (*asked, "--token-env", "BEING")
    assert do(*asked, "--yes").code == 0
    address = parsed("cursor", config)["mcpServers"]["commonplace"]["url"]
    path = address.removeprefix("http://127.0.0.1:3847")
    with running(tmp_path / "data", embedding="none") as server:
        space = server.parts.library
        being = beings.create(Commonplace(library=space), "Mika").id if dialect == "being" else ""
        client = server.client(server.token(subject=being, dialects=frozenset({dialect})), path)
        listed = {tool["name"] for tool in client.listed()}
    assert listed <= {tool.name for tool in registry.load(dialect).tools} and listed


def test_the_command_is_of_this_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pytest"])
    found = PROGRAM()
    assert Path(found[0]).is_absolute()
    assert found[1:] in ([], ["-m", "commonplace.cli"])
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert PROGRAM() == ["/nowhere/python", "-m", "commonplace.cli"]


def test_another_name_stands_beside(home: Path, do: Callable[..., Ended]) -> None:
    do("cursor", "--yes")
    do("cursor", "--name", "work", "--space", "work", "--yes")
    servers = parsed("cursor", home / LOCATIONS["cursor"])["mcpServers"]
    assert list(servers) == ["work", "commonplace"]


@pytest.mark.parametrize(
    ("client", "name"),
    [
        ("claude-code", ".mcp.json"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", ".vscode/mcp.json"),
        ("codex", ".codex/config.toml"),
        ("gemini", ".gemini/settings.json"),
        ("opencode", "opencode.json"),
    ],
)
def test_a_project_has_its_own_file(
    client: str, name: str, home: Path, do: Callable[..., Ended]
) -> None:
    ended = do(client, "--project", "--yes")
    assert ended.code == 0
    assert parsed(client, Path.cwd() / name) == whole(ON_STDIO[client])
    assert "for this machine" in ended.err
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("client", ["claude-desktop", "windsurf", "openclaw"])
def test_a_client_without_project_files_says_so(client: str, do: Callable[..., Ended]) -> None:
    ended = do(client, "--project", "--yes")
    assert ended.code == 2
    assert "no configuration files for projects" in ended.err


# Where the files are


def located(name: str, system: str, environ: dict[str, str], home: Path) -> str:
    path = clients.configuration_paths(CLIENTS[name], system=system, home=home, environ=environ)[0]
    return path.relative_to(home).as_posix()


@pytest.mark.parametrize(
    ("client", "macos", "windows"),
    [
        (
            "claude-desktop",
            "Library/Application Support/Claude/claude_desktop_config.json",
            "AppData/Roaming/Claude/claude_desktop_config.json",
        ),
        (
            "vscode",
            "Library/Application Support/Code/User/mcp.json",
            "AppData/Roaming/Code/User/mcp.json",
        ),
        ("opencode", ".config/opencode/opencode.json", ".config/opencode/opencode.json"),
        ("claude-code", ".claude.json", ".claude.json"),
        ("codex", ".codex/config.toml", ".codex/config.toml"),
        (
            "windsurf",
            ".codeium/windsurf/mcp_config.json",
            ".codeium/windsurf/mcp_config.json",
        ),
    ],
)
def test_files_are_found_on_each_system(
    client: str, macos: str, windows: str, tmp_path: Path
) -> None:
    assert located(client, "linux", {}, tmp_path) == LOCATIONS[client]
    assert located(client, "darwin", {}, tmp_path) == macos
    assert located(client, "win32", {}, tmp_path) == windows


def test_variables_of_the_client_move_its_file(tmp_path: Path) -> None:
    def file(name: str, **environ: str) -> Path:
        return clients.configuration_paths(
            CLIENTS[name], home=tmp_path, environ=environ, system="linux"
        )[0]

    assert file("claude-code", CLAUDE_CONFIG_DIR="/c") == Path("/c/.claude.json")
    assert file("codex", CODEX_HOME="/c") == Path("/c/config.toml")
    assert file("openclaw", OPENCLAW_STATE_DIR="/o") == Path("/o/openclaw.json")
    assert file("openclaw", OPENCLAW_CONFIG_PATH="/p/x.json", OPENCLAW_STATE_DIR="/o") == Path(
        "/p/x.json"
    )
    assert file("vscode", XDG_CONFIG_HOME="/x") == Path("/x/Code/User/mcp.json")


def test_claude_desktop_from_the_windows_store_reads_a_file_of_its_own(tmp_path: Path) -> None:
    package = tmp_path / "AppData/Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude"
    package.mkdir(parents=True)
    old = tmp_path / "AppData/Roaming/Claude/claude_desktop_config.json"
    old.parent.mkdir(parents=True)
    old.write_text("{}")
    found = clients.configuration_paths(
        CLIENTS["claude-desktop"], system="win32", home=tmp_path, environ={}
    )
    assert found == [package / "claude_desktop_config.json", old]


def test_the_successor_of_windsurf_is_given_its_file_and_its_word(
    home: Path, do: Callable[..., Ended]
) -> None:
    (home / ".config" / "devin").mkdir(parents=True)
    do("windsurf", "--transport", "http", "--yes")
    path = home / ".config" / "devin" / "mcp_config.json"
    assert parsed("windsurf", path) == {"mcpServers": {"commonplace": {"url": URL}}}
    assert not (home / LOCATIONS["windsurf"]).exists()


def test_an_entry_in_the_former_file_is_taken_out_of_that_one(
    home: Path, do: Callable[..., Ended]
) -> None:
    do("windsurf", "--yes")
    (home / ".config" / "devin").mkdir(parents=True)
    assert do("windsurf", "--check").code == 3
    assert do("windsurf", "--remove", "--yes").code == 0
    assert not (home / LOCATIONS["windsurf"]).exists()


def test_the_opencode_file_that_is_there_is_used(home: Path, do: Callable[..., Ended]) -> None:
    commented = home / ".config" / "opencode" / "opencode.jsonc"
    commented.parent.mkdir(parents=True)
    commented.write_text('{\n  // mine\n  "model": "x",\n}\n')
    do("opencode", "--yes")
    assert "commonplace" in parsed("opencode", commented)["mcp"]
    assert "// mine" in commented.read_text()
    assert not (home / LOCATIONS["opencode"]).exists()
    (home / LOCATIONS["opencode"]).write_text("{}")
    assert "already" in do("opencode", "--yes").out


def test_an_opencode_2_file_is_written_its_way(tmp_path: Path, do: Callable[..., Ended]) -> None:
    config = tmp_path / "opencode.json"
    config.write_text('{"mcp": {"servers": {"a": {"type": "local", "command": ["a"]}}}}')
    do("opencode", "--config", str(config), "--yes")
    assert parsed("opencode", config)["mcp"]["servers"]["commonplace"] == {
        "type": "local",
        "command": [COMMAND, *ARGS],
    }
    assert do("opencode", "--config", str(config), "--name", "servers").code == 2


# What is there already stays

OTHERS: dict[str, list[bytes]] = {
    "json": [
        b"",
        b"\n",
        b"{}",
        b"{}\n",
        b"{\n}\n",
        b'{"%(c)s": {}}\n',
        b'{"%(c)s":{"a":{"command":"x"}},"z":[1,2]}',
        b'{\n  "z": 1.50,\n  "%(c)s": {\n    "a": {"url": "x", "env": {"K": "\\u00e9"}}\n  }\n}',
        b'{\n\t"%(c)s": {\n\t\t"a": {\n\t\t\t"command": "x"\n\t\t}\n\t},\n\t"y": null\n}',
        b'{\r\n    "%(c)s": {\r\n        "a": {"url": "http://x"}\r\n    }\r\n}\r\n',
        b'\xef\xbb\xbf{\n  "%(c)s": {"a": {}}\n}\n',
        '{\n  "ключ": "値 🌸",\n  "%(c)s": {}\n}\n'.encode(),
    ],
    "comments": [
        b"// nothing yet\n",
        b'// top\n{\n  // why\n  "%(c)s": {\n    "a": {"url": "x"} // one\n    // last\n  }\n}\n',
        b'{\n  "%(c)s": {\n    "a": {"command": "x"}, // one\n  },\n  /* all */\n}\n// end\n',
        b'{\n  "%(c)s": { // none yet\n  },\n}\n',
        b'{ "%(c)s": { "a": { "command": "x", }, /* b */ }, }\n',
        b'{\r\n  // windows\r\n  "%(c)s": {\r\n    "a": {},\r\n  },\r\n}\r\n',
    ],
    "five": [
        b"{\n  // ours\n  gateway: {port: 0x10, mode: 'local',},\n  %(c)s: {},\n}\n",
        b"{%(c)s: {a: {command: 'x',},},}\n",
        b"{\n  t: 'it''s',\n}\n".replace(b"''", b"\\'"),
        b"{\n  n: [+1, .5, Infinity, -NaN],\n  long: 'a\\\nb',\n}\n",
    ],
    "toml": [
        b"",
        b"\n",
        b'model = "x" # why\n',
        b'model = "x"',
        b'# top\n[mcp_servers.a]\ncommand = "x" # one\nargs = [\n  "b", # two\n]\n\n'
        b"# last\n[profiles.p]\nm = 1\n",
        b'[mcp_servers]\na = {command = "x"}\n',
        b'mcp_servers = { a = { command = "x" } }\n',
        b'[mcp_servers]\na.command = "x"\n[z]\n',
        b'model = "x"\r\n\r\n[mcp_servers.a]\r\ncommand = "x"\r\n',
        b'\xef\xbb\xbfmodel = "x"\n',
        b"[[hooks]]\na = 1\n\n[[hooks]]\na = 2\n",
    ],
}


def originals(client: str) -> list[bytes]:
    row = CLIENTS[client]
    if row.format is Format.TOML:
        return OTHERS["toml"]
    kinds = ["json"]
    if row.format is not Format.JSON:
        kinds.append("comments")
    if row.format is Format.JSON5:
        kinds.append("five")
    name = row.container[0].encode()
    return [text.replace(b"%(c)s", name) for kind in kinds for text in OTHERS[kind]]


A_CLIENT_OF_EACH_FORMAT = ("claude-code", "opencode", "openclaw", "codex")
CASES = [(client, text) for client in A_CLIENT_OF_EACH_FORMAT for text in originals(client)]


def without_ours(client: str, value: Any) -> Any:
    """The value without our entry and what was made to hold it."""
    container = CLIENTS[client].container
    above = [value]
    for name in container:
        above.append(above[-1][name])
    del above[-1]["commonplace"]
    for name, holder, held in reversed(list(zip(container, above, above[1:], strict=False))):
        if not held:
            del holder[name]
    return value


def pruned(client: str, value: Any) -> Any:
    value.setdefault(CLIENTS[client].container[0], {})
    at = value
    for name in CLIENTS[client].container:
        at = at.setdefault(name, {})
    at["commonplace"] = {}
    return without_ours(client, value)


def our_path(client: str) -> tuple[str, ...]:
    return (*CLIENTS[client].container, "commonplace")


def change(client: str, config: Path, entry: dict[str, Any] | None) -> None:
    settings = settings_files.open_settings(config, CLIENTS[client].format)
    if entry is None:
        new = settings_files.without_entry(settings, our_path(client), backups())
    else:
        new = settings_files.with_entry(settings, our_path(client), entry)
    if new != settings.data:
        settings_files.write(settings, new, backups())


@pytest.mark.parametrize(("client", "original"), CASES)
def test_all_else_stays_and_removing_gives_the_very_bytes_back(
    client: str, original: bytes, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_bytes(original)
    before = parsed(client, config)
    ((_, entry),) = ON_STDIO[client].items()
    change(client, config, entry)
    after = parsed(client, config)
    assert settings_files.value_at(after, our_path(client)) == entry
    assert without_ours(client, after) == pruned(client, before)
    written = config.read_bytes()
    if b"http://" not in original:
        for comment in re.findall(rb"//[^\r\n]*|/\*.*?\*/|# [^\r\n]*", original):
            assert comment in written
    assert written.startswith(b"\xef\xbb\xbf") == original.startswith(b"\xef\xbb\xbf")
    if b"\r\n" in original:
        assert written.count(b"\r\n") == written.count(b"\n")
    (backup,) = kept()
    assert backup.read_bytes() == original

    change(client, config, entry)
    assert config.read_bytes() == written and len(kept()) == 1

    change(client, config, None)
    assert config.read_bytes() == original


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (("http://10.0.0.7:3847",), "http://10.0.0.7:3847/mcp/commonplace"),
        (("https://memory.example/", "--dialect", "mama"), "https://memory.example/mcp/mama"),
        (("http://10.0.0.7:3847/proxy/mcp",), "http://10.0.0.7:3847/proxy/mcp"),
    ],
)
def test_the_address_of_a_server_is_enough(
    do: Callable[..., Ended], given: tuple[str, ...], written: str
) -> None:
    assert f'"{written}"' in do("cursor", "--url", *given, "--dry-run").out


@pytest.mark.parametrize(("client", "original"), CASES)
def test_without_the_backup_removing_still_leaves_all_else(
    client: str, original: bytes, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_bytes(original)
    before = parsed(client, config)
    ((_, entry),) = ON_STDIO[client].items()
    change(client, config, entry)
    for backup in kept():
        backup.unlink()
    change(client, config, None)
    left = parsed(client, config) if config.exists() else {}
    assert pruned(client, left) == pruned(client, before)
    held = b'"a"' in original or b"[mcp_servers.a]" in original
    if held and len(CLIENTS[client].container) == 1:
        assert config.read_bytes() == original


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_keeps_its_other_servers(
    client: str, tmp_path: Path, do: Callable[..., Ended]
) -> None:
    config = tmp_path / "config"
    toml = CLIENTS[client].format is Format.TOML
    other: Any = {"a": {"command": "x"}, "b": {"url": "http://b"}}
    for name in reversed(CLIENTS[client].container):
        other = {name: other}
    original = OTHERS["toml"][4] if toml else json.dumps(other | {"z": 1}, indent=4).encode()
    config.write_bytes(original)
    where = ("--config", str(config), "--yes")
    connected = do(client, *where)
    assert (connected.code, connected.err) == (0, "")
    again = do(client, *where)
    assert (again.code, len(kept())) == (0, 1)
    assert "nothing to change" in again.out
    assert do(client, *where, "--remove").code == 0
    assert config.read_bytes() == original
    assert "nothing to remove" in do(client, *where, "--remove").out


@pytest.mark.parametrize("client", CLIENTS)
def test_a_file_made_for_us_goes_with_us(client: str, home: Path, do: Callable[..., Ended]) -> None:
    path = home / LOCATIONS[client]
    do(client, "--yes")
    ended = do(client, "--remove", "--yes")
    assert (ended.code, path.exists(), len(kept())) == (0, False, 1)
    assert "has no other content" in ended.err


def test_what_others_added_since_stays_when_we_go(tmp_path: Path, do: Callable[..., Ended]) -> None:
    config = tmp_path / "mcp.json"
    config.write_text('{\n  "mcpServers": {\n    "a": {}\n  }\n}\n')
    where = ("--config", str(config), "--yes")
    do("cursor", *where)
    config.write_text(config.read_text().replace('"a": {}', '"a": {},\n    "b": {}'))
    do("cursor", *where, "--remove")
    assert config.read_text() == '{\n  "mcpServers": {\n    "a": {},\n    "b": {}\n  }\n}\n'


def test_of_our_own_entry_what_we_do_not_say_is_kept(
    tmp_path: Path, do: Callable[..., Ended]
) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(
        """{
  "servers": {
    "commonplace": {
      // set up by Ann
      "type": "stdio",
      "command": "/old/commonplace",
      "timeout": 60, // slow disk
      "args": ["mcp"],
      "env": {"LANG": "C"}
    }
  }
}
"""
    )
    where = ("--config", str(config), "--yes")
    do("vscode", *where)
    text = config.read_text()
    assert "// set up by Ann" in text and '"timeout": 60, // slow disk' in text
    entry = parsed("vscode", config)["servers"]["commonplace"]
    assert entry == {
        "type": "stdio", "command": COMMAND, "timeout": 60, "args": ARGS, "env": {"LANG": "C"},
    }  # fmt: skip
    do("vscode", *where, "--transport", "http")
    assert parsed("vscode", config)["servers"]["commonplace"] == {
        "type": "http", "timeout": 60, "url": URL,
    }  # fmt: skip
    assert "// slow disk" in config.read_text()


@pytest.mark.parametrize(
    ("client", "odd"),
    [
        ("cursor", '{"mcpServers": {"commonplace": "x", "a": {}}}'),
        ("cursor", '{"mcpServers": {"commonplace": null, "a": {}}}'),
        ("codex", '[mcp_servers]\ncommonplace = "x"\na = {}\n'),
    ],
)
def test_an_entry_that_is_no_server_is_replaced_and_removed(
    client: str, odd: str, tmp_path: Path, do: Callable[..., Ended]
) -> None:
    config = tmp_path / "config"
    config.write_text(odd)
    where = ("--config", str(config), "--yes")
    assert do(client, *where, "--remove").code == 0
    config.write_text(odd)
    assert do(client, *where).code == 0
    assert settings_files.value_at(parsed(client, config), our_path(client))["command"] == COMMAND


def test_other_headers_are_kept_beside_the_token(tmp_path: Path, do: Callable[..., Ended]) -> None:
    config = tmp_path / "mcp.json"
    headers = {"X-Team": "a", "authorization": "Bearer old"}
    config.write_text(json.dumps({"mcpServers": {"commonplace": {"url": URL, "headers": headers}}}))
    do("cursor", "--config", str(config), "--token-env", "FOO", "--yes")
    assert parsed("cursor", config)["mcpServers"]["commonplace"]["headers"] == {
        "X-Team": "a",
        "Authorization": "Bearer ${env:FOO}",
    }


# What is refused

BROKEN = {
    Format.JSON: [b"{", b'{"a": 1,}', b"// c\n{}", b"[]", b"null", b'{"a" 1}', b"{} {}", b"\xff{}"],
    Format.JSONC: [b"{", b"/* {}", b"{a: 1}", b"[]", b'"x"', b'{"a": tru}', b'{"a": 1 "b": 2}'],
    Format.JSON5: [b"{", b"{a b: 1}", b"[1]", b"{a: 'x}", b"{a: 1, , }"],
    Format.TOML: [b"a = ", b"[mcp_servers", b"a = 1\na = 2\n", b"\xff"],
}


@pytest.mark.parametrize(
    ("client", "broken"),
    [
        (client, text)
        for client, row in CLIENTS.items()
        for text in BROKEN[row.format][: None if client in A_CLIENT_OF_EACH_FORMAT else 1]
    ],
)
def test_a_broken_file_is_refused_and_left_alone(
    client: str, broken: bytes, tmp_path: Path, do: Callable[..., Ended]
) -> None:
    config = tmp_path / "config"
    config.write_bytes(broken)
    for more in ((), ("--remove",), ("--check",)):
        ended = do(
            client, "--config", str(config), *(() if "--check" in more else ("--yes",)), *more
        )
        assert ended.code == 2
        assert "cannot be changed safely" in ended.err and "Nothing was changed" in ended.err
    assert config.read_bytes() == broken
    assert list(tmp_path.glob("config*")) == [config]


@pytest.mark.parametrize(
    ("client", "odd"),
    [
        ("cursor", b'{"mcpServers": []}'),
        ("cursor", b'{"mcpServers": null}'),
        ("cursor", b'{"mcpServers": {}, "mcpServers": {"a": {}}}'),
        ("codex", b'mcp_servers = "none"\n'),
        ("openclaw", b"{mcp: {servers: 3}}"),
    ],
)
def test_a_file_that_leaves_no_room_is_refused_with_what_to_paste(
    client: str, odd: bytes, tmp_path: Path, do: Callable[..., Ended]
) -> None:
    config = tmp_path / "config"
    config.write_bytes(odd)
    ended = do(client, "--config", str(config), "--yes")
    assert ended.code == 2
    assert "add this by hand" in ended.err and COMMAND in ended.err
    assert config.read_bytes() == odd


def test_what_is_not_a_file_is_refused(tmp_path: Path, do: Callable[..., Ended]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        ended = do("cursor", "--config", str(tmp_path / name), "--yes")
        assert (ended.code, "is not a file" in ended.err) == (2, True)
    (tmp_path / "round").symlink_to(tmp_path / "round")
    assert do("cursor", "--config", str(tmp_path / "round"), "--yes").code == 5


def test_a_place_that_cannot_be_written_is_told(
    tmp_path: Path, do: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    ended = do("cursor", "--config", str(tmp_path / "file" / "mcp.json"), "--yes")
    assert (ended.code, "cannot be" in ended.err) == (5, True)

    config = tmp_path / "mcp.json"
    config.write_text("{}")
    config.chmod(0o444)
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)  # root may do all
    ended = do("cursor", "--config", str(config), "--yes")
    assert (ended.code, "write-protected" in ended.err) == (5, True)
    assert config.read_text() == "{}"
    assert [path.name for path in tmp_path.glob("*mcp.json*")] == ["mcp.json"]


def test_a_failing_disk_leaves_the_file_as_it_was(
    tmp_path: Path, do: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "mcp.json"
    config.write_text("{}")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    ended = do("cursor", "--config", str(config), "--yes")
    assert (ended.code, "No space left" in ended.err) == (5, True)
    assert config.read_text() == "{}"
    assert not list(tmp_path.glob(".mcp.json*"))


def test_a_link_stays_a_link_and_rights_stay(tmp_path: Path, do: Callable[..., Ended]) -> None:
    real = tmp_path / "dotfiles" / "cursor.json"
    real.parent.mkdir()
    real.write_text("{}")
    real.chmod(0o640)
    link = tmp_path / "mcp.json"
    link.symlink_to(real)
    ended = do("cursor", "--config", str(link), "--yes")
    assert ended.code == 0
    assert link.is_symlink() and "commonplace" in parsed("cursor", real)["mcpServers"]
    (backup,) = kept()
    assert (stat.S_IMODE(real.stat().st_mode), stat.S_IMODE(backup.stat().st_mode)) == (
        0o640,
        0o600,
    )
    do("cursor", "--config", str(link), "--remove", "--yes")
    assert link.is_symlink() and real.read_text() == "{}"


@pytest.mark.parametrize("now", ['{"mcpServers": {"b": {}}}', None])
def test_nothing_is_written_over_what_came_in_between(
    now: str | None, tmp_path: Path, do: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "mcp.json"
    config.write_text("{}")

    def agree(as_json: bool) -> bool:
        config.unlink() if now is None else config.write_text(now)
        return True

    monkeypatch.setattr(connect, "_ask_confirmation", agree)
    ended = do("cursor", "--config", str(config))
    assert (ended.code, "in the meantime" in ended.err) == (4, True)
    assert (config.read_text() if config.exists() else None) == now
    assert not kept()


def test_a_file_that_appears_in_between_is_not_overwritten(
    tmp_path: Path, do: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "mcp.json"
    monkeypatch.setattr(connect, "_ask_confirmation", lambda as_json: bool(config.write_text("{}")))
    assert do("cursor", "--config", str(config)).code == 4
    assert config.read_text() == "{}"


def test_each_change_can_be_undone(tmp_path: Path, do: Callable[..., Ended]) -> None:
    config = tmp_path / "mcp.json"
    config.write_bytes(b'{ "z": 1 }')
    where = ("cursor", "--config", str(config), "--yes", "--data", str(tmp_path / "data"))
    do(*where)
    first = config.read_bytes()
    do(*where[:4], "--transport", "http")
    assert config.read_bytes() != first
    assert do(*where[:4], "--undo").code == 0
    assert config.read_bytes() == first
    undone = do(*where, "--undo")
    assert undone.code == 0 and config.read_bytes() == b'{ "z": 1 }'
    assert "written to" in undone.out and "--check" not in undone.out
    assert list(tmp_path.glob("*mcp.json*")) == [config]
    folder = tmp_path / "data" / "connect"
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder.parent, folder)] == [0o700] * 2


def test_undoing_takes_a_file_away_that_was_made_for_us_and_brings_a_removed_one_back(
    home: Path, do: Callable[..., Ended]
) -> None:
    path = home / LOCATIONS["cursor"]
    do("cursor", "--yes")
    written = path.read_bytes()
    do("cursor", "--undo", "--yes")
    assert not path.exists()
    do("cursor", "--undo", "--yes")
    assert path.read_bytes() == written


def test_undoing_a_file_that_was_changed_since_is_refused_with_a_diff(
    tmp_path: Path, do: Callable[..., Ended]
) -> None:
    config = tmp_path / "mcp.json"
    config.write_text('{\n  "mcpServers": {\n    "a": {}\n  }\n}\n')
    asked = ("cursor", "--config", str(config), "--yes")
    missing = do(*asked, "--undo")
    assert (missing.code, "no backup" in missing.err) == (3, True)
    do(*asked)
    changed = config.read_text().replace('"a": {}', '"a": {},\n    "b": {}')
    config.write_text(changed)
    refused = do(*asked, "--undo")
    assert refused.code == 4
    assert '-    "b": {}' in refused.err and "--remove" in refused.err
    assert config.read_text() == changed


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("nobody",), "Unknown client nobody"),
        ((), "The client is missing"),
        (("cursor", "--name", "a b"), "letters, digits"),
        (("cursor", "--name", ""), "letters, digits"),
        (("cursor", "--transport", "sse"), "stdio or http"),
        (("cursor", "--url", "localhost:3847"), "not a URL"),
        (("cursor", "--url", "http://x y"), "not a URL"),
        (("cursor", "--url", "http://x:99999"), "not a URL"),
        (("cursor", "--transport", "stdio", "--url", URL), "has no URL"),
        (("cursor", "--transport", "stdio", "--token", "x"), "needs no token"),
        (("cursor", "--token", "x", "--token-env", "X"), "Choose one"),
        (("cursor", "--token", "a b"), "visible ASCII"),
        (("cursor", "--token-env", "a-b"), "name of an environment variable"),
        (("cursor", "--transport", "http", "--space", "x"), "do not apply to a running server"),
        (("cursor", "--transport", "http", "--data", "x"), "do not apply to a running server"),
        (("cursor", "--url", URL, "--dialect", "mama"), "already selects the dialect"),
        (("cursor", "--dialect", "A B"), "There is no dialect"),
        (("cursor", "--dialect", "mamma"), "commonplace, mama"),
        (("cursor", "--transport", "http", "--dialect", "mamma"), "There is no dialect"),
        (("cursor", "--space", "A B"), "space's name"),
        (("cursor", "--check", "--remove"), "exclude each other"),
        (("cursor", "--undo", "--remove"), "exclude each other"),
        (("cursor", "--config", "x", "--project"), "Choose one"),
        (("cursor", "--check", "--timeout", "0"), "time limit"),
        (("--list", "--config", "x"), "default configuration files"),
    ],
)
def test_bad_input_is_refused(args: tuple[str, ...], says: str, do: Callable[..., Ended]) -> None:
    ended = do(*args)
    assert ended.code == 2
    assert says in ended.err


# Asking


def test_nobody_is_asked_without_a_terminal(home: Path, do: Callable[..., Ended]) -> None:
    for more in ((), ("--dry-run",), ("--dry-run", "--yes")):
        ended = do("cursor", *more)
        assert ended.code == 0
        assert f"+++ {home / LOCATIONS['cursor']}" in ended.out
        assert "add --yes to write it" in ended.err
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_at_a_terminal_the_person_decides(
    answer: str, code: int, home: Path, do: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return answer

    monkeypatch.setattr(sys, "stdin", Terminal())
    ended = do("cursor")
    assert ended.code == code
    assert (home / LOCATIONS["cursor"]).exists() == (code == 0)


def test_scripts_read_json(home: Path, do: Callable[..., Ended]) -> None:
    path = home / LOCATIONS["cursor"]
    shown = do("cursor", "--json").json
    assert (shown["action"], shown["written"], path.exists()) == ("add", False, False)
    done = do("cursor", "--json", "--yes").json
    assert done == shown | {"written": True}
    assert done["entry"] == ON_STDIO["cursor"]["mcpServers"] and "+++" in done["diff"]
    assert do("cursor", "--json", "--yes").json["action"] == "none"
    changed = do("cursor", "--json", "--yes", "--transport", "http").json
    assert changed["action"] == "update" and Path(changed["backup"]).exists()
    assert do("cursor", "--json", "--yes", "--remove").json["action"] == "remove"
    failed = do("cursor", "--json", "--transport", "x")
    assert json.loads(failed.err)["error"]["field"] == "transport"


def test_a_file_with_carriage_returns_is_shown_without_them(
    tmp_path: Path, do: Callable[..., Ended]
) -> None:
    config = tmp_path / "c.json"
    config.write_bytes(b'{\r\n  "mcpServers": {}\r\n}\r\n')
    shown = do("cursor", "--config", str(config), "--dry-run").out
    assert "+++" in shown and "\r" not in shown and "\\u{d}" not in shown


@pytest.mark.parametrize(
    "more", [(), ("--name", "work"), ("--project",), ("--config", "a b/c.json")]
)
def test_the_command_that_is_advised_finds_what_was_written(
    more: tuple[str, ...], home: Path, do: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "project").mkdir()
    monkeypatch.chdir(home / "project")
    missing = do("cursor", "--check", *more)
    assert missing.code == 3
    advised = re.search(r"Add it: commonplace connect (.+)\.", missing.err)
    assert advised
    written = do(*shlex.split(advised[1]), "--url", "http://127.0.0.1:1/mcp", "--yes")
    advised = re.search(r"Check it: commonplace connect (.+)", written.out)
    assert advised
    assert do(*shlex.split(advised[1])).code == 6  # it is there, and nobody listens


def test_gemini_is_told_to_trust_the_folder(home: Path, do: Callable[..., Ended]) -> None:
    written = " ".join(do("gemini", "--yes").out.split())
    assert "“Disabled” until you trust the folder" in written
    assert "trust the folder" not in do("cursor", "--yes").out


def test_a_change_late_in_a_long_file_has_the_right_line_numbers(
    tmp_path: Path, do: Callable[..., Ended]
) -> None:
    config = tmp_path / "mcp.json"
    many = {f"server{number}": {"command": "x"} for number in range(3000)}
    config.write_text(json.dumps({"mcpServers": many, "z": 1}, indent=2))
    diff = do("cursor", "--config", str(config)).out
    lines = config.read_text().split("\n")
    (header,) = re.findall(r"^@@ -(\d+),\d+ \+\1,\d+ @@\n(.*)$", diff, re.MULTILINE)
    assert lines[int(header[0]) - 1] == header[1][1:]
    assert len(diff.split("\n")) < 30


def test_the_change_cannot_steer_the_terminal(tmp_path: Path, do: Callable[..., Ended]) -> None:
    config = tmp_path / "mcp.json"
    config.write_text('{\n  "mcpServers": {\n    "a": {} // \x1b[2J\n  }\n}\n')
    ended = do("cursor", "--config", str(config))
    assert "\x1b" not in ended.out and "\\u{1b}" in ended.out


def test_the_list_tells_of_every_client(home: Path, do: Callable[..., Ended]) -> None:
    do("cursor", "--yes")
    do("codex", "--transport", "http", "--yes")
    (home / LOCATIONS["gemini"]).parent.mkdir()
    (home / LOCATIONS["gemini"]).write_text("{")
    (home / LOCATIONS["claude-code"]).write_text("{}")
    ended = do("--list", "--json")
    rows = {row["client"]: row for row in map(json.loads, ended.out.splitlines())}
    assert list(rows) == list(CLIENTS)
    assert {name: row["path"] for name, row in rows.items()} == {
        name: str(home / location) for name, location in LOCATIONS.items()
    }
    assert (rows["cursor"]["connected"], rows["cursor"]["transport"]) == (True, "stdio")
    assert (rows["codex"]["connected"], rows["codex"]["transport"]) == (True, "http")
    assert (rows["claude-code"]["exists"], rows["claude-code"]["connected"]) == (True, False)
    assert "not valid" in rows["gemini"]["error"]
    assert not rows["vscode"]["exists"]
    text = do("--list").out
    for words in ("connected (stdio)", "connected (http)", "not installed", "not valid JSON"):
        assert words in text
    project = [
        json.loads(line)["client"] for line in do("--list", "--project", "--json").out.splitlines()
    ]
    assert project == [name for name, row in CLIENTS.items() if row.project]


# Trying it


def configured(tmp_path: Path, *behaviour: str, **more: Any) -> tuple[str, ...]:
    config = tmp_path / "check.json"
    entry = {"command": sys.executable, "args": [SERVER, *behaviour], **more}
    config.write_text(json.dumps({"mcpServers": {"commonplace": entry}}))
    return ("cursor", "--config", str(config), "--check")


def test_a_configured_server_is_started_and_asked(tmp_path: Path, do: Callable[..., Ended]) -> None:
    asked = configured(tmp_path, "good", "with args", env={"SMALL": "yes"})
    ended = do(*asked)
    assert (ended.code, ended.err) == (0, "")
    assert "it answers: small 1.2.3" in ended.out and "1 tools" in ended.out
    assert "context: nothing is known yet; yes with args" in ended.out
    found = do(*asked, "--json").json
    assert found["ok"] and found["called"] == "context" and found["protocol"]


@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_written_is_understood_again(client: str) -> None:
    row = CLIENTS[client]
    started = clients.Stdio(COMMAND, tuple(ARGS))
    assert clients.server_of_entry(row, clients.server_entry(row, started), {}) == started
    if row.http is not None:
        running = clients.server_entry(row, clients.Http(URL), token_env="FOO")
        expected = clients.Http(URL, {"Authorization": "Bearer s3cret"})
        assert clients.server_of_entry(row, running, {"FOO": "s3cret"}) == expected
        plain = clients.server_entry(row, clients.Http(URL), token="s3cret")
        assert clients.server_of_entry(row, plain, {}) == expected


@pytest.mark.parametrize("client", CLIENTS)
def test_a_connected_client_can_be_checked(
    client: str, do: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "program_words", lambda: [sys.executable, SERVER, "good"])
    do(client, "--yes")
    found = do(client, "--check", "--json")
    assert (found.code, found.json["ok"]) == (0, True)
    assert "mcp --dialect commonplace" in found.json["answer"]


def test_the_command_we_write_starts_our_own_server(
    do: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path
) -> None:
    """In every format; what is the same command, with the same environment, is started once."""
    program = [sys.executable, "-m", "commonplace.cli"]
    monkeypatch.setattr(connect, "program_words", lambda: program)
    written: dict[str, str] = {}
    for client in A_CLIENT_OF_EACH_FORMAT:
        assert do(client, "--data", str(tmp_path / "data"), "--yes").code == 0
        row = CLIENTS[client]
        entry = settings_files.value_at(
            parsed(client, home / LOCATIONS[client]), (*row.container, "commonplace")
        )
        assert isinstance(entry, dict), client
        written[repr(clients.server_of_entry(row, entry, os.environ))] = client
    for client in written.values():
        ended = do(client, "--check", "--timeout", "120", "--json")
        assert ended.code == 0, ended.out + ended.err
        assert (ended.json["called"], ended.json["tools"]) == ("context", 10)


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        ("hang", "no complete response within 1 seconds"),
        ("garbage", "not MCP messages"),
        ("exit", "no such luck"),
        ("failing", "the tool context failed"),
        ("empty", "lists no tools"),
    ],
)
def test_a_server_that_misbehaves_is_told_of(
    behaviour: str, says: str, tmp_path: Path, do: Callable[..., Ended]
) -> None:
    limit = () if behaviour in ("exit", "failing", "empty") else ("--timeout", "1")
    begun = time.monotonic()
    ended = do(*configured(tmp_path, behaviour), *limit)
    assert time.monotonic() - begun < 30
    assert ended.code == 6
    assert "it does not work" in ended.out and says in ended.out
    assert ended.err == ""


def test_a_server_that_talks_beside_still_counts(tmp_path: Path, do: Callable[..., Ended]) -> None:
    assert do(*configured(tmp_path, "chatty")).code == 0


def test_only_what_reads_is_called(tmp_path: Path, do: Callable[..., Ended]) -> None:
    assert do(*configured(tmp_path, "reader"), "--json").json["called"] == "look"
    other = do(*configured(tmp_path, "other"), "--json").json
    assert (other["ok"], other["called"], other["tools"]) == (True, "", 1)


def test_a_program_that_is_not_there_is_told(tmp_path: Path, do: Callable[..., Ended]) -> None:
    asked = configured(tmp_path, "good", command="/nowhere/commonplace")
    ended = do(*asked)
    assert (ended.code, "program not found: /nowhere/commonplace" in ended.out) == (6, True)


def test_an_entry_that_is_off_missing_or_empty_is_told(
    tmp_path: Path, do: Callable[..., Ended]
) -> None:
    assert "disabled" in do(*configured(tmp_path, "exit", disabled=True)).err
    assert do(*configured(tmp_path, "good"), "--name", "other").code == 3
    (tmp_path / "check.json").write_text('{"mcpServers": {"commonplace": {}}}')
    ended = do("cursor", "--config", str(tmp_path / "check.json"), "--check")
    assert (ended.code, "neither a command nor a URL" in ended.err) == (2, True)


@pytest.fixture(scope="module")
def shared_server(shared_data: Path) -> Iterator[tuple[Running, str]]:
    """A server of ours that asks for a token, and a token."""
    with running(shared_data, require_token=True) as server:
        yield server, server.token("default")


@pytest.fixture
def running_server(shared_server: tuple[Running, str]) -> tuple[str, str]:
    """The address of the server, and the token; no wrong token was sent in the last minute."""
    server, token = shared_server
    server.door._failures._buckets.clear()
    return f"http://127.0.0.1:{server.port}/mcp/commonplace", token


@pytest.mark.parametrize("client", ON_HTTP)
def test_a_running_server_is_reached_with_its_token(
    client: str,
    running_server: tuple[str, str],
    do: Callable[..., Ended],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, token = running_server
    do(client, "--url", url, "--token-env", "FOO", "--yes")
    unset = do(client, "--check")
    assert (unset.code, "FOO, which is not set" in unset.err) == (2, True)
    monkeypatch.setenv("FOO", token)
    right = do(client, "--check", "--json")
    assert (right.code, right.json["called"], right.json["tools"]) == (0, "context", 10)
    monkeypatch.setenv("FOO", "wrong")
    wrong = do(client, "--check")
    assert (wrong.code, "401" in wrong.out) == (6, True)
    assert "revoked" in wrong.err and "token create" not in wrong.err
    assert "where it listens" not in wrong.err
    do(client, "--url", url, "--token", token, "--yes")
    assert do(client, "--check").code == 0
    do(client, "--remove", "--yes")
    do(client, "--url", url, "--yes")
    none = do(client, "--check")
    assert none.code == 6 and "token create" in none.err


def test_the_address_is_that_of_the_server_as_it_is_configured(
    do: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMONPLACE_PORT", "3990")
    assert "http://127.0.0.1:3990/mcp/mama" in (
        do("cursor", "--transport", "http", "--dialect", "mama", "--dry-run").out
    )


def test_a_server_that_does_not_run_is_told(do: Callable[..., Ended]) -> None:
    with socket.socket() as taken:  # and nobody listens
        taken.bind(("127.0.0.1", 0))
        do("cursor", "--url", f"http://127.0.0.1:{taken.getsockname()[1]}/mcp", "--yes")
        ended = do("cursor", "--check", "--timeout", "10")
    assert ended.code == 6
    assert "commonplace serve" in ended.err


# The text itself

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)
LAYOUTS = st.sampled_from([None, 0, 1, 2, 4, "\t"])


@settings(deadline=None)
@given(OBJECTS, LAYOUTS, st.sampled_from([Format.JSON, Format.JSONC, Format.JSON5]))
def test_plain_json_is_read_alike_in_every_format(
    value: dict[str, Any], layout: Any, format: Format
) -> None:
    text = json.dumps(value, indent=layout, ensure_ascii=bool(layout))
    assert json_text.read(text, format) == value


@settings(deadline=None)
@given(OBJECTS, OBJECTS, LAYOUTS, st.text(max_size=3), OBJECTS)
def test_writing_and_removing_change_one_name_only(
    value: dict[str, Any], held: dict[str, Any], layout: Any, name: str, entry: dict[str, Any]
) -> None:
    value = value | {"holder": held}
    text = json.dumps(value, indent=layout)
    written = json_text.write(text, Format.JSON, ("holder", name), entry)
    assert json.loads(written) == value | {"holder": held | {name: entry}}
    removed = json_text.remove(written, Format.JSON, ("holder", name))
    left = {key: each for key, each in held.items() if key != name}
    assert json.loads(removed) == value | {"holder": left}
    if held and name not in held and layout is not None:
        assert removed == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"""{a: 'it\'s', "b": "say \"x\"",}""", {"a": "it's", "b": 'say "x"'}),
        (r"""{$a_1: '\x41\v\0\q "'}""", {"$a_1": 'A\v\0q "'}),
        ("{a: 'x\\\ny', b: [+1, .5, 0x1F, 2,]}", {"a": "xy", "b": ["+1", ".5", "0x1F", 2]}),
        ("{/* '{' */ 'a//b': '/*', // }\n}", {"a//b": "/*"}),
    ],
)
def test_json5_is_read(text: str, value: Any) -> None:
    assert json_text.read(text, Format.JSON5) == value
    with pytest.raises(json_text.NotReadable):
        json_text.read(text, Format.JSONC)


@pytest.mark.parametrize(
    "text", ["{,}", "[,]", "{a: 1,, }", "{a: 1},", "{a 1}", "{'a: 1}", "{a: b}"]
)
def test_what_is_not_json5_is_refused(text: str) -> None:
    with pytest.raises(json_text.NotReadable):
        json_text.read(text, Format.JSON5)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("{}", '{\n  "n": {\n    "k": 1\n  }\n}'),
        ('{"a": 1}', '{"n": {"k": 1}, "a": 1}'),
        ('{ "a": 1 }', '{ "n": {"k": 1}, "a": 1 }'),
        (
            '{\r\n  "a": 1,\n  "b": 2\r\n}',
            '{\n  "n": {\n    "k": 1\n  },\r\n  "a": 1,\n  "b": 2\r\n}',
        ),
        ('{\n\t"a": 1\n}', '{\n\t"n": {\n\t\t"k": 1\n\t},\n\t"a": 1\n}'),
        ('{ // c\n  "a": 1,\n}', '{ // c\n  "n": {\n    "k": 1\n  },\n  "a": 1,\n}'),
        ('{\n  // of a\n  "a": 1\n}', '{\n  "n": {\n    "k": 1\n  },\n  // of a\n  "a": 1\n}'),
    ],
)
def test_an_entry_comes_first_in_the_layout_of_the_file(text: str, written: str) -> None:
    assert json_text.write(text, Format.JSONC, ["n"], {"k": 1}) == written
    assert json_text.remove(written, Format.JSONC, ["n"]) == text


@settings(deadline=None)
@given(st.text(max_size=40), st.sampled_from(list(Format)[:3]))
def test_any_text_is_read_or_refused(text: str, format: Format) -> None:
    try:
        value = json_text.read(text, format)
    except json_text.NotReadable as error:
        assert re.search(r"line \d+, column \d+", str(error))
    else:
        if format is Format.JSON and text.strip(" \t\r\n"):
            assert json.loads(text) == value


def test_a_number_that_json_does_not_have_is_named_with_its_place() -> None:
    for text in ('{"Infinity":\n -Infinity}', '{"NaN":\n NaN}', "[\n Infinityx]"):
        with pytest.raises(json_text.NotReadable, match=r"is not a number in line 2, column 2"):
            json_text.read(text, Format.JSON)


def test_the_page_has_every_client_and_option(do: Callable[..., Ended]) -> None:
    page = DOCS.read_text(encoding="utf-8")
    for name in CLIENTS:
        assert f"`{name}`" in page
    for option in re.findall(r"(--[a-z-]+)", do("--help").out):
        assert option in page or option in ("--json", "--help"), option
    assert escape_hidden(page) == page
