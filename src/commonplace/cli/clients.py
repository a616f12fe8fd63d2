"""The agents that `connect` supports: their configuration files, and the format of a server entry.

To support another agent, add a row to `CLIENTS`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from commonplace.errors import InvalidInput


class Format(Enum):
    """The format of a configuration file."""

    JSON = "JSON"
    JSONC = "JSON with comments"
    JSON5 = "JSON5"
    TOML = "TOML"


@dataclass(frozen=True)
class PossiblePath:
    """A possible path. `~`, `{xdg}`, `{config}`, `{settings}` and `{local}` are directories.

    A `decisive` path is used as soon as its directory exists.
    """

    template: str
    decisive: bool = False


@dataclass(frozen=True)
class Client:
    """An agent: its configuration files, and the keys it uses for a server."""

    name: str
    title: str
    possible_paths: tuple[PossiblePath, ...]
    project: tuple[str, ...] = ()
    # environment variables with a directory, and the file in that directory
    directory_variables: tuple[tuple[str, str], ...] = ()
    format: Format = Format.JSONC
    container: tuple[str, ...] = ("mcpServers",)
    # further keys of a stdio entry
    stdio: Mapping[str, Any] = field(default_factory=dict)
    # further keys of an HTTP entry; None if the client does not support HTTP
    http: Mapping[str, Any] | None = field(default_factory=dict)
    # keys that a person may have added, and that the client refuses with the other transport
    only_stdio: tuple[str, ...] = ()
    only_http: tuple[str, ...] = ()
    command_with_args: bool = False
    env: str = "env"
    url: str = "url"
    headers: str = "headers"
    variable_syntax: str = "${{{}}}"  # the syntax of a reference to an environment variable
    token_variable: str = ""  # or the key whose value is the variable's name
    next_step: str = "Restart it to use the new server."


@dataclass(frozen=True)
class Stdio:
    """A stdio server, which the client starts."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None


@dataclass(frozen=True)
class Http:
    """A running HTTP server."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)


CLIENTS: dict[str, Client] = {
    client.name: client
    for client in (
        Client(
            name="claude-code",
            title="Claude Code",
            possible_paths=(PossiblePath("~/.claude.json"),),
            project=(".mcp.json",),
            directory_variables=(("CLAUDE_CONFIG_DIR", ".claude.json"),),
            format=Format.JSON,
            stdio={"type": "stdio"},
            http={"type": "http"},
            next_step="New sessions use it; see /mcp.",
        ),
        Client(
            name="claude-desktop",
            title="Claude Desktop",
            possible_paths=(
                PossiblePath(
                    "{local}/Packages/Claude_*/LocalCache/Roaming/Claude/claude_desktop_config.json",
                    decisive=True,
                ),
                PossiblePath("{settings}/Claude/claude_desktop_config.json"),
            ),
            format=Format.JSON,
            http=None,
            next_step="Quit and start Claude Desktop to use it.",
        ),
        Client(
            name="cursor",
            title="Cursor",
            possible_paths=(PossiblePath("~/.cursor/mcp.json"),),
            project=(".cursor/mcp.json",),
            variable_syntax="${{env:{}}}",
            next_step="Restart Cursor, or switch the server on in its MCP settings.",
        ),
        Client(
            name="vscode",
            title="VS Code",
            possible_paths=(PossiblePath("{settings}/Code/User/mcp.json"),),
            project=(".vscode/mcp.json",),
            container=("servers",),
            stdio={"type": "stdio"},
            http={"type": "http"},
            variable_syntax="${{env:{}}}",
            next_step="Start it with “MCP: List Servers” in VS Code.",
        ),
        Client(
            name="codex",
            title="Codex",
            possible_paths=(PossiblePath("~/.codex/config.toml"),),
            project=(".codex/config.toml",),
            directory_variables=(("CODEX_HOME", "config.toml"),),
            format=Format.TOML,
            container=("mcp_servers",),
            headers="http_headers",
            only_stdio=("env_vars",),
            only_http=("bearer_token", "env_http_headers", "oauth", "oauth_resource"),
            token_variable="bearer_token_env_var",  # noqa: S106 - the name of a key
            next_step="New sessions use it; see /mcp.",
        ),
        Client(
            name="windsurf",
            title="Windsurf",
            possible_paths=(
                PossiblePath("{config}/devin/mcp_config.json", decisive=True),
                PossiblePath("~/.codeium/windsurf/mcp_config.json"),
            ),
            url="serverUrl",
            variable_syntax="${{env:{}}}",
            next_step="Refresh the MCP servers in Windsurf to use it.",
        ),
        Client(
            name="gemini",
            title="Gemini CLI",
            possible_paths=(PossiblePath("~/.gemini/settings.json"),),
            project=(".gemini/settings.json",),
            url="httpUrl",
            next_step="New sessions use it; see /mcp. Gemini CLI shows it as “Disabled” until you"
            " trust the folder that you start it in (/permissions).",
        ),
        Client(
            name="opencode",
            title="OpenCode",
            possible_paths=(
                PossiblePath("{xdg}/opencode/opencode.json"),
                PossiblePath("{xdg}/opencode/opencode.jsonc"),
            ),
            project=("opencode.json", "opencode.jsonc"),
            container=("mcp",),
            stdio={"type": "local", "enabled": True},
            http={"type": "remote", "enabled": True},
            only_http=("oauth",),
            command_with_args=True,
            env="environment",
            variable_syntax="{{env:{}}}",
        ),
        Client(
            name="openclaw",
            title="OpenClaw",
            possible_paths=(PossiblePath("~/.openclaw/openclaw.json"),),
            directory_variables=(
                ("OPENCLAW_CONFIG_PATH", ""),
                ("OPENCLAW_STATE_DIR", "openclaw.json"),
            ),
            format=Format.JSON5,
            container=("mcp", "servers"),
            http={"transport": "streamable-http"},
            next_step="See it with “openclaw mcp status”.",
        ),
    )
}


def client(name: str) -> Client:
    """Return the client with this name."""
    if name not in CLIENTS:
        raise InvalidInput(
            f"Unknown client {name}.",
            hint=f"Choose one of {', '.join(CLIENTS)}.",
            field="client",
        )
    return CLIENTS[name]


def configuration_paths(
    client: Client,
    *,
    project: Path | None = None,
    system: str = sys.platform,
    home: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> list[Path]:
    """Return possible paths of the client's configuration, the most likely first."""
    if project is not None:
        if not client.project:
            raise InvalidInput(
                f"{client.title} has no configuration files for projects.",
                hint="Omit --project.",
                field="project",
            )
        return _existing_first([(project / name, False) for name in client.project])
    home = Path.home() if home is None else home
    for variable, name in client.directory_variables:
        if environ.get(variable):
            return [Path(environ[variable]).expanduser() / name]
    found: list[tuple[Path, bool]] = []
    for place in client.possible_paths:
        path = _expand_template(place.template, system, home, environ)
        found += [(each, place.decisive) for each in _expand_star(path)]
    return _existing_first(found)


def _expand_template(template: str, system: str, home: Path, environ: Mapping[str, str]) -> Path:
    xdg = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    roaming = Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
    directories = {
        "~": home,
        "{xdg}": xdg,
        "{config}": roaming if system == "win32" else xdg,
        "{settings}": {
            "darwin": home / "Library" / "Application Support",
            "win32": roaming,
        }.get(system, xdg),
        "{local}": Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local"),
    }
    first, rest = template.split("/", 1)
    return directories[first] / rest


def _expand_star(path: Path) -> list[Path]:
    """Return the path; for a path with a star, every match whose directory exists."""
    if "*" not in str(path):
        return [path]
    star = next(index for index, part in enumerate(path.parts) if "*" in part)
    above, below = Path(*path.parts[:star]), path.parts[star + 1 :]
    return [found.joinpath(*below) for found in sorted(above.glob(path.parts[star]))]


def _existing_first(found: list[tuple[Path, bool]]) -> list[Path]:
    def order(each: tuple[Path, bool]) -> int:
        path, decisive = each
        if decisive:
            return 0 if path.parent.is_dir() else 3
        return 1 if path.exists() else 2

    return [path for path, _ in sorted(found, key=order)]


def client_for_file(client: Client, path: Path, contents: Mapping[str, Any]) -> Client:
    """Return the client with the keys that this file uses, since releases differ.

    Windsurf became Devin Desktop, which uses `url` in its own file. OpenCode 2 also reads files of
    OpenCode 1; its own have the servers in `mcp.servers`, without `enabled`.
    """
    if client.name == "windsurf" and path.parent.name.lstrip(".") == "devin":
        return replace(client, url="url")
    if client.name == "opencode":
        mcp = contents.get("mcp")
        servers = mcp.get("servers") if isinstance(mcp, Mapping) else None
        if isinstance(servers, Mapping) and "type" not in servers:
            return replace(
                client,
                container=("mcp", "servers"),
                stdio={"type": "local"},
                http={"type": "remote"},
            )
    return client


def server_entry(
    client: Client,
    server: Stdio | Http,
    *,
    token: str | None = None,
    token_env: str | None = None,
    former: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the entry for a server; other keys of a former entry are kept."""
    written: dict[str, Any]
    if isinstance(server, Stdio):
        command = [server.command, *server.args]
        if client.command_with_args:
            written = _with_type_first(client.stdio, {"command": command})
        else:
            written = _with_type_first(
                client.stdio, {"command": server.command, "args": command[1:]}
            )
        foreign = {client.url, "url", client.headers, client.token_variable, *client.only_http}
        foreign |= set(client.http or ())
    else:
        written = _with_type_first(client.http or {}, {client.url: server.url})
        headers = _kept_headers(former, client.headers) | dict(server.headers)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        elif token_env is not None and client.token_variable:
            written[client.token_variable] = token_env
        elif token_env is not None:
            headers["Authorization"] = f"Bearer {client.variable_syntax.format(token_env)}"
        if headers:
            written[client.headers] = headers
        foreign = {"command", "args", "cwd", client.env, client.headers, client.token_variable}
        foreign |= client.stdio.keys() | {"url", "serverUrl", "httpUrl", *client.only_stdio}
    others = {key: value for key, value in (former or {}).items() if key not in foreign}
    return others | written


def _with_type_first(more: Mapping[str, Any], what: dict[str, Any]) -> dict[str, Any]:
    """Return the keys with the type first, as is usual."""
    return {key: value for key, value in more.items() if key == "type"} | what | dict(more)


def _kept_headers(former: Mapping[str, Any] | None, key: str) -> dict[str, str]:
    headers = (former or {}).get(key)
    if not isinstance(headers, Mapping):
        return {}
    return {name: value for name, value in headers.items() if name.lower() != "authorization"}


def server_of_entry(
    client: Client, written: Mapping[str, Any], environ: Mapping[str, str]
) -> Stdio | Http:
    """Return the MCP server of an entry in a client's configuration, with variables expanded."""
    command, url = written.get("command"), written.get(client.url) or written.get("url")
    if isinstance(command, str) or (isinstance(command, list) and command):
        line = [command] if isinstance(command, str) else command
        args, env = written.get("args") or [], written.get(client.env) or {}
        line = [str(part) for part in (*line, *args)]
        return Stdio(
            _expand_variables(client, line[0], environ),
            tuple(_expand_variables(client, part, environ) for part in line[1:]),
            {key: _expand_variables(client, str(value), environ) for key, value in env.items()},
            written.get("cwd"),
        )
    if isinstance(url, str):
        headers = {
            key: _expand_variables(client, str(value), environ)
            for key, value in (written.get(client.headers) or {}).items()
        }
        if variable := written.get(client.token_variable):
            headers["Authorization"] = f"Bearer {_variable_value(str(variable), environ)}"
        return Http(_expand_variables(client, url, environ), headers)
    raise InvalidInput(
        "The entry has neither a command nor a URL.",
        hint=f"Write it again: commonplace connect {client.name}.",
    )


def _expand_variables(client: Client, text: str, environ: Mapping[str, str]) -> str:
    if client.token_variable:  # this client does not expand variables
        return text
    before, after = client.variable_syntax.format("\0").split("\0")
    pattern = f"{re.escape(before)}([A-Za-z_][A-Za-z0-9_]*){re.escape(after)}"
    return re.sub(pattern, lambda match: _variable_value(match[1], environ), text)


def _variable_value(variable: str, environ: Mapping[str, str]) -> str:
    if not environ.get(variable):
        raise InvalidInput(
            f"The entry refers to the environment variable {variable}, which is not set here.",
            hint="Set it in the client's environment, and in this shell for the check.",
            field="token_env",
        )
    return environ[variable]
