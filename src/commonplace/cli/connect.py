"""`commonplace connect`: adds this server to an agent's configuration, or removes it."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from commonplace import DISTRIBUTION
from commonplace.cli import clients, options, settings_files
from commonplace.cli.background import running_server_address
from commonplace.cli.clients import CLIENTS, Client, Http, Stdio
from commonplace.cli.options import DIALECTS, AsJson, Data, argument, option, path_option
from commonplace.cli.settings_files import SettingsFile
from commonplace.cli.terminal import bold, columns, dim, emit_json, note, one_line, paragraph, say
from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.text.hidden import escape_hidden

UNHEALTHY = 6
DEFAULT_SERVER = "http://127.0.0.1:3847"
DEFAULT_DIALECT = "commonplace"
ENTRY_NAME = "commonplace"
CHECK_SECONDS = 30.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(r"[\x21-\x7e]+")


def connect(
    context: typer.Context,
    client: Annotated[str | None, argument("CLIENT", ", ".join(CLIENTS) + ".")] = None,
    list_: Annotated[
        bool, option("--list", "List every client, its file, and whether it is connected.")
    ] = False,
    check: Annotated[
        bool, option("--check", "Start the server as configured, and call a tool.")
    ] = False,
    remove: Annotated[bool, option("--remove", "Remove our entry.")] = False,
    undo: Annotated[
        bool, option("--undo", "Restore the file from before our last change.")
    ] = False,
    yes: Annotated[bool, option("--yes -y", "Write without asking.")] = False,
    dry_run: Annotated[bool, option("--dry-run", "Only show the change.")] = False,
    transport: Annotated[
        str | None,
        option(
            "--transport stdio|http",
            "The client starts the server (stdio, the default), or uses a running one.",
        ),
    ] = None,
    url: Annotated[
        str | None,
        option(
            "--url URL",
            "The server's address (default: the running server's, or the configured one's:"
            f" {DEFAULT_SERVER}/mcp/commonplace).",
        ),
    ] = None,
    dialect: Annotated[
        str, option("--dialect NAME", f"Which tools the agent gets: {DIALECTS}.")
    ] = DEFAULT_DIALECT,
    name: Annotated[str, option("--name NAME", "The name of the entry.")] = ENTRY_NAME,
    token_env: Annotated[
        str | None, option("--token-env NAME", "The environment variable that holds the token.")
    ] = None,
    token: Annotated[str | None, option("--token TOKEN", "Write the token into the file.")] = None,
    project: Annotated[
        bool, option("--project", "Use the configuration file of the project in this directory.")
    ] = False,
    config: Annotated[
        Path | None, path_option("--config PATH", "Another configuration file.")
    ] = None,
    timeout: Annotated[
        float, option("--timeout SECONDS", "The time limit of --check in seconds.")
    ] = CHECK_SECONDS,
    data: Data = None,
    space: Annotated[str | None, option("--space NAME", "The space to use.")] = None,
    as_json: AsJson = False,
) -> None:
    """Add this server to an agent's configuration. Show the change, and ask before writing.

    The rest of the file, with its comments, stays unchanged; a backup is stored in the data
    directory. Exit code 6 means that --check found a server that does not answer.

    \b
      commonplace connect --list
      commonplace connect claude-code
      commonplace connect codex --transport http --token-env COMMONPLACE_TOKEN
      commonplace connect cursor --check
      commonplace connect cursor --remove
    """
    from commonplace.engine.library import directory

    if [list_, check, remove, undo].count(True) > 1:
        raise InvalidInput(
            "--list, --check, --remove and --undo exclude each other.", hint="Choose one."
        )
    if config is not None and project:
        raise InvalidInput("--config and --project exclude each other.", hint="Choose one.")
    root = Path.cwd() if project else None
    if list_:
        if config is not None:
            raise InvalidInput(
                "--list only reads the default configuration files.", hint="Omit --config."
            )
        _list_clients(client, root, _valid_name(name), as_json)
        return
    if client is None:
        raise InvalidInput(
            "The client is missing.", hint=f"Choose one of {', '.join(CLIENTS)}, or use --list."
        )
    chosen, settings = _open_client_file(
        clients.client(client), config, root, _valid_name(name), with_former_files=remove or undo
    )
    connect_command = _command_for_same_entry(client, name, project, config)
    if check:
        _check_server(chosen, settings, name, timeout, connect_command, as_json)
        return
    backups, path = directory(data) / "connect", (*chosen.container, name)
    former = settings_files.value_at(settings.contents(), path)
    entry: dict[str, Any] | None = None
    if undo:
        action, new = "undo", settings_files.contents_before_last_change(settings, path, backups)
    elif remove and former is None:
        action, new = "none", settings.data
    elif remove:
        action, new = "remove", settings_files.without_entry(settings, path, backups)
    else:
        if transport is None:
            transport = "http" if (url, token, token_env) != (None, None, None) else "stdio"
        source = context.get_parameter_source("data")
        # set as an option, not by an environment variable
        data_is_option = getattr(source, "name", "") == "COMMANDLINE"
        with_token = (token, token_env) != (None, None)
        server = _server_from_options(
            chosen,
            transport,
            url,
            dialect,
            data,
            space,
            data_is_option=data_is_option,
            with_token=with_token,
        )
        _check_token(transport, token, token_env)
        if transport == "stdio":
            options.warn_of_unconfigured_database(data)
        known = former if isinstance(former, dict) else None
        entry = clients.server_entry(chosen, server, token=token, token_env=token_env, former=known)
        new = settings_files.with_entry(settings, path, entry)
        action = "none" if new == settings.data else "add" if former is None else "update"
    change = _Change(chosen, settings, name, action, new, entry, project)
    _apply_change(change, backups, yes, dry_run, connect_command, as_json)


COMMANDS = (connect,)


def _command_for_same_entry(client: str, name: str, project: bool, config: Path | None) -> str:
    """Return the `connect` command for the same entry and file, for messages."""
    words = ["commonplace", "connect", client]
    words += ["--name", name] if name != ENTRY_NAME else []
    words += ["--project"] if project else []
    words += ["--config", shlex.quote(str(config))] if config is not None else []
    return " ".join(words)


def _valid_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            "The entry's name must be 1 to 64 letters, digits, '_' and '-'.", field="name"
        )
    return name


def _open_client_file(
    client: Client,
    config: Path | None,
    project: Path | None,
    name: str,
    *,
    with_former_files: bool = False,
) -> tuple[Client, SettingsFile]:
    """Return the client's file, and the client with the keys that this file uses.

    If the client reads several files, choose the file with our entry. With `with_former_files`,
    also look at files of its former releases.
    """
    if client.name == "opencode" and name == "servers":
        raise InvalidInput(
            "OpenCode uses this name itself.",
            hint="Choose another --name.",
            field="name",
        )
    if config is not None:
        return _read_client_file(client, config.expanduser().absolute())
    paths = clients.configuration_paths(client, project=project)
    reads_all = not any(place.decisive for place in client.possible_paths)
    opened = [_read_client_file(client, path) for path in paths[:1]]
    for path in paths[1:] if reads_all or with_former_files else ():
        try:
            opened.append(_read_client_file(client, path))
        except CommonplaceError:
            continue  # skip an unreadable file, which will not be changed
    for chosen, settings in opened:
        if settings_files.value_at(settings.contents(), (*chosen.container, name)) is not None:
            return chosen, settings
    return opened[0]


def _read_client_file(client: Client, path: Path) -> tuple[Client, SettingsFile]:
    settings = settings_files.open_settings(path, client.format)
    return clients.client_for_file(client, path, settings.contents()), settings


# The entry that is written to a client's file


def _server_from_options(
    client: Client,
    transport: str,
    url: str | None,
    dialect: str,
    data: Path | None,
    space: str | None,
    *,
    data_is_option: bool,
    with_token: bool,
) -> Stdio | Http:
    from commonplace.dialects import registry

    registry.checked_name(dialect)
    if transport == "stdio":
        if url is not None:
            raise InvalidInput("A stdio server has no URL.", hint="Omit --url.")
        return Stdio(*server_command(dialect, data, space))
    if transport != "http":
        raise InvalidInput("The transport must be stdio or http.", field="transport")
    if client.http is None:
        raise InvalidInput(
            f"{client.title} supports only stdio servers, which have no URL.",
            hint="Use --transport stdio.",
            field="transport",
        )
    if space is not None or (data_is_option and data is not None):
        raise InvalidInput(
            "--data and --space do not apply to a running server.",
            hint="Omit them; the server's token selects the space.",
        )
    base = ""
    if url is not None:
        parts = urlsplit(valid_url(url))
        if parts.path not in ("", "/") or parts.query:
            if dialect != DEFAULT_DIALECT:
                raise InvalidInput(
                    "The path of the URL already selects the dialect.",
                    hint="Omit --dialect, or the path.",
                )
            return Http(url)
        # The URL has no path, so the dialect determines it.
        base = f"{parts.scheme}://{parts.netloc}"
    base = base or running_server_address(data) or options.settings_of(data).local_url
    chosen = registry.load(dialect)
    if chosen.subject is not None and not with_token:
        noun = chosen.subject.title.lower()
        raise InvalidInput(
            f"Over HTTP, the URL or the token must name the {noun}.",
            hint=f"Give --url {base}/mcp/ID, or its token with --token-env.",
            field="dialect",
        )
    return Http(base + chosen.paths[0])


def valid_url(url: str) -> str:
    """Return the URL if it is an http or https URL; raise InvalidInput otherwise."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or re.search(r"[\s\x00-\x1f]", url):
        raise InvalidInput(
            "This is not a URL.",
            hint=f"Write it like {DEFAULT_SERVER}/mcp/commonplace.",
            field="url",
        )
    return url


def _check_token(transport: str, token: str | None, token_env: str | None) -> None:
    if token is None and token_env is None:
        return
    if transport != "http":
        raise InvalidInput("A stdio server needs no token.", hint="Use --transport http.")
    if token is not None and token_env is not None:
        raise InvalidInput("--token and --token-env exclude each other.", hint="Choose one.")
    if token_env is not None and not _VARIABLE.fullmatch(token_env):
        raise InvalidInput(
            "This is not the name of an environment variable.",
            hint="Write it like COMMONPLACE_TOKEN.",
            field="token_env",
        )
    if token is not None and not _TOKEN.fullmatch(token):
        raise InvalidInput(
            "A token consists of visible ASCII characters.",
            hint="Copy it exactly as it was shown.",
            field="token",
        )


def server_command(
    dialect: str, data: Path | None, space: str | None
) -> tuple[str, tuple[str, ...]]:
    """Return the command that starts this installation from any directory."""
    program, *rest = program_words()
    rest += ["mcp", "--dialect", dialect]
    if data is not None:
        rest += ["--data", str(data.expanduser().absolute())]
    if space is not None:
        from commonplace.engine import checks

        rest += ["--space", checks.space(space)]
    return program, tuple(rest)


def program_words(name: str = "commonplace", module: str = "commonplace.cli") -> list[str]:
    """Return the words that start a program of this installation: its path, or a uvx command if it
    runs from uv's cache.
    """
    suffix = ".exe" if os.name == "nt" else ""
    installed = Path(sys.executable).with_name(f"{name}{suffix}")
    if "archive-v0" in installed.parts:  # uv may delete programs in its cache
        return ["uvx", "--from", DISTRIBUTION, name]
    for program in (Path(sys.argv[0]).absolute(), installed):
        if program.stem == name and program.is_file() and os.access(program, os.X_OK):
            return [str(program)]
    return [sys.executable, "-m", module]


# Show the change, ask, and write it


@dataclass(frozen=True)
class _Change:
    """A change of a configuration file."""

    client: Client
    settings: SettingsFile
    name: str
    action: str  # none, add, update, remove or undo
    new: bytes | None
    entry: dict[str, Any] | None
    project: bool

    @property
    def diff(self) -> str:
        """Return the change as a diff; empty if nothing changes."""
        return "" if self.action == "none" else settings_files.unified_diff(self.settings, self.new)

    def report(self, written: bool, backup: Path | None) -> dict[str, Any]:
        """Return the change as JSON output."""
        return {
            "client": self.client.name,
            "path": str(self.settings.path),
            "name": self.name,
            "action": self.action,
            "written": written,
            "backup": None if backup is None else str(backup),
            "entry": self.entry,
            "diff": self.diff,
        }


def _apply_change(
    change: _Change, backups: Path, yes: bool, dry_run: bool, connect_command: str, as_json: bool
) -> None:
    shown = escape_hidden(str(change.settings.path))
    if not as_json:
        _show_change(change, shown)
    if change.action == "none" or dry_run or not (yes or _ask_confirmation(as_json)):
        if as_json:
            emit_json(change.report(False, None))
        elif change.action != "none":
            note("nothing was written; add --yes to write it")
        return
    mode = settings_files.SHARED_MODE if change.project else settings_files.PRIVATE_MODE
    backup = settings_files.write(change.settings, change.new, backups, mode=mode)
    if as_json:
        emit_json(change.report(True, backup))
        return
    say(f"{'removed from' if change.action == 'remove' else 'written to'} {shown}")
    if backup is not None:
        say(dim(f"backup: {escape_hidden(str(backup))}"))
    if change.entry is not None:
        say(
            *paragraph(change.client.next_step),
            f"Check it: {escape_hidden(connect_command)} --check",
        )


def _show_change(change: _Change, shown: str) -> None:
    if change.action != "none":
        diff = f"{change.diff}\n"  # the last line of a file may end with a carriage return
        say(escape_hidden(diff)[:-1])
        if change.new is None:
            note(f"{shown} has no other content and is deleted")
    elif change.entry is None:
        say(f"{change.name} is not in {shown}; there is nothing to remove")
    else:
        say(f"{change.name} is already in {shown}; there is nothing to change")
    if change.project and change.action in ("add", "update") and "command" in (change.entry or {}):
        note("the command is for this machine; other users of this file may need another command")


def _ask_confirmation(as_json: bool) -> bool:
    """Ask for confirmation; return False without a terminal."""
    if as_json or not sys.stdin.isatty():
        return False
    if not typer.confirm("Write this change?", err=True):
        raise typer.Abort
    return True


# --list and --check


def _list_clients(name: str | None, project: Path | None, entry: str, as_json: bool) -> None:
    wanted = [clients.client(name)] if name is not None else list(CLIENTS.values())
    for client in wanted:
        if project is not None and not client.project:
            continue
        row = _client_row(client, project, entry)
        if as_json:
            emit_json(row)
            continue
        state = row["error"] or (
            f"connected ({row['transport']})" if row["connected"]
            else "not connected" if row["exists"] else "not installed"
        )  # fmt: skip
        say(f"{bold(client.name):<{24 if bold('') else 16}} {escape_hidden(row['path'])}")
        say(f"{'':16} {escape_hidden(' '.join(state.split()))}")


def _client_row(client: Client, project: Path | None, name: str) -> dict[str, Any]:
    path = clients.configuration_paths(client, project=project)[0]
    row = {
        "client": client.name,
        "title": client.title,
        "path": str(path),
        "exists": path.exists(),
        "connected": False,
        "transport": None,
        "error": None,
    }
    try:
        chosen, settings = _open_client_file(client, None, project, name)
        written = settings_files.value_at(settings.contents(), (*chosen.container, name))
        row |= {"path": str(settings.path), "exists": settings.data is not None}
        if written is not None:
            kind = "stdio" if isinstance(written, dict) and "command" in written else "http"
            row |= {"connected": True, "transport": kind}
    except CommonplaceError as error:
        row["error"] = error.message
    return row


def _check_server(
    client: Client,
    settings: SettingsFile,
    name: str,
    seconds: float,
    connect_command: str,
    as_json: bool,
) -> None:
    from commonplace.cli.probe import probe

    if not 0 < seconds <= 3600:
        raise InvalidInput(
            "The time limit must be more than 0 and at most 3600 seconds.", field="timeout"
        )
    written = settings_files.value_at(settings.contents(), (*client.container, name))
    if not isinstance(written, dict):
        raise NotFound(
            f"{name} is not in {settings.path}.",
            hint=f"Add it: {connect_command}.",
            field="name",
        )
    server = clients.server_of_entry(client, written, os.environ)
    off = written.get("enabled") is False or written.get("disabled") is True
    found = probe(server, seconds)
    what = server.url if isinstance(server, Http) else " ".join((server.command, *server.args))
    if as_json:
        emit_json(
            {"client": client.name, "path": str(settings.path), "name": name, "server_at": what}
            | {"switched_off": off, **asdict(found)}
        )
    else:
        say(escape_hidden(what))
        if found.ok:
            title = escape_hidden(found.server) or "a server without a name"
            say(f"{bold('it answers')}: {title}, MCP {found.protocol}, {found.tools} tools,"
                f" {found.seconds:.1f} s")  # fmt: skip
            if found.called:
                say(one_line(f"{found.called}: {_describe_answer(found.answer)}", columns()))
        else:
            say(f"{bold('it does not work')}: {escape_hidden(found.error)}")
            for line in found.stderr:
                say(dim(f"  {escape_hidden(line)}"))
            if isinstance(server, Http) and found.status in (401, 403):
                note(*paragraph(_token_advice(server)))
            elif isinstance(server, Http) and found.status is None:
                note("no server answers there; start one with 'commonplace serve'")
        if off:
            note(f"the entry is disabled in {escape_hidden(str(settings.path))}")
    if not found.ok:
        raise typer.Exit(UNHEALTHY)


def _describe_answer(answer: str) -> str:
    """Return a tool's answer for people; recalled memories are framed for models, so only name
    them."""
    if answer.startswith("<recalled "):
        return "it gives stored memories"
    return answer or "an empty answer"


def _token_advice(server: Http) -> str:
    if any(name.lower() == "authorization" for name in server.headers):
        return (
            "the server does not accept the token that was sent: it was revoked, has expired, or is"
            " for another dialect or space; on the server, see 'commonplace token list'"
        )
    return (
        "create a token with 'commonplace token create', and name the variable with the token by"
        " --token-env"
    )
