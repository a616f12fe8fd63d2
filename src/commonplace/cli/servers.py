"""Commands that serve over HTTP or stdio, and commands for the audit log."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commonplace.cli.background import running_server_address
from commonplace.cli.options import (
    DIALECTS,
    AllowSecrets,
    AsJson,
    Data,
    Database,
    Embedding,
    GlobalOption,
    ProjectOption,
    Space,
    current_project,
    database_of,
    existing_directory,
    has_system_store,
    open_library,
    option,
    parse_time,
    settings_of,
)
from commonplace.cli.terminal import (
    columns,
    emit_json,
    join_into_lines,
    local_time,
    note,
    paragraph,
    say,
)
from commonplace.dialects import registry
from commonplace.storage.opening import server_and_database

if TYPE_CHECKING:
    from commonplace.storage.ports import Store

_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,32}")
Dialect = Annotated[str, option("--dialect", f"The dialect to serve: {DIALECTS}.")]


def serve(
    data: Data = None,
    database: Database = None,
    host: Annotated[str | None, option("--host", "Address to listen on.")] = None,
    port: Annotated[int | None, option("--port", "Port; 0 for any free port.")] = None,
    public_url: Annotated[
        str | None,
        option("--public-url", "The URL that remote clients use, such as the URL of a proxy."),
    ] = None,
    require_token: Annotated[
        bool | None, option("--require-token", "Require a token on loopback too.")
    ] = None,
    embedding: Annotated[
        str | None, option("--embedding", "builtin, none, or an OpenAI-compatible base URL.")
    ] = None,
    log: Annotated[str | None, option("--log", "text or json.")] = None,
) -> None:
    """Serve every dialect over HTTP (http://127.0.0.1:3847).

    Settings can also be given in COMMONPLACE_* variables and in config.toml of the data directory.
    """
    from commonplace.platform.loading import without_garbage_collection

    with without_garbage_collection():
        from commonplace.server.serving import serve as run
        from commonplace.server.settings import Settings

    settings = Settings.load(
        data=data, database=database, host=host, port=port, public_url=public_url,
        require_token=require_token, embedding=embedding, log=log,
    )  # fmt: skip
    run(settings, _print_addresses)
    sys.stderr.write("stopped; all acknowledged calls are stored\n")


def _print_addresses(settings: Any) -> None:
    from commonplace.server.request import own_host_names
    from commonplace.server.settings import PORT

    base, names = settings.base_url, own_host_names(settings)
    if settings.on_every_address and not settings.public_url:
        base = f"http://{names[0]}:{settings.port}"
    usual = base == f"http://127.0.0.1:{PORT}"
    how = "--transport http" if usual else f"--url {base}/mcp/commonplace"
    program = _program_name()
    remember = settings.command_line('remember "…"', program)
    lines = [
        f"Commonplace is listening on {base}   (Ctrl-C stops it)",
        "",
        f"  look     {base}/viewer",
        f"  MCP      {base}/mcp/commonplace",
        f"  health   {base}/health",
        f"  data     {settings.data}",
    ]
    if settings.database:
        lines.append(f"  rows     {server_and_database(settings.database)}")
    if settings.on_every_address:
        accepted = ", ".join((*names, *settings.allow_hosts))
        lines += paragraph(f"  names    {accepted}; add others to the setting allow_hosts", 11)
    if not settings.is_local and base.startswith("http:"):
        lines += paragraph(
            "  plain    without HTTPS, passwords and tokens can be read on the network, and apps"
            " cannot sign in by OAuth; a proxy with a certificate and --public-url change that",
            11,
        )
    lines += [
        "",
        "Next:",
        f"  {settings.command_line('start', program)}",
        "      sets up the agents of this machine; they need no running server",
        f"  {program} connect claude-code {how}",
        "      or another agent: connect --list",
        f"  {remember}",
        "      and ask your agent; 'audit list' shows its calls",
    ]
    if not settings.is_local or settings.require_token:
        made = settings.command_line("token create", program)
        lines += [f"  {made}", "      for each client"]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def open_(
    data: Data = None,
    space: Space = "default",
    url: Annotated[
        str | None, option("--url URL", "The server's address, if it is not the configured one.")
    ] = None,
    show: Annotated[
        bool, option("--print", "Print the address instead of opening a browser.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Open the viewer in a browser, signed in.

    The address contains a code that is valid once, for one minute.
    """
    import webbrowser

    from commonplace.access.caller import ALL_SCOPES
    from commonplace.access.credentials import CODE_SECONDS, Grant
    from commonplace.cli.access import open_access
    from commonplace.engine import checks

    existing_directory(data)
    base = (url or running_server_address(data) or settings_of(data).local_url).rstrip("/")
    _check_running(base)
    with open_access(data, create=True) as access:
        grant = Grant(space=checks.space(space), scopes=ALL_SCOPES, name="one-time code")
        code = access.tokens.credentials.create_code(grant)
        access.write_audit_entry("open", space=space)
    address = f"{base}/viewer#code={code}"
    if as_json:
        emit_json({"url": address, "seconds": CODE_SECONDS})
    elif show or not webbrowser.open(address):
        say(address)
        note(f"open it within {CODE_SECONDS} seconds; the code can be used once")
    else:
        say(f"opened {base}/viewer in your browser")


def _check_running(base: str) -> None:
    """Raise StorageUnavailable unless a server answers at an address."""
    import httpx

    from commonplace.errors import StorageUnavailable

    try:
        answered = httpx.get(f"{base}/health", timeout=5).status_code == 200
    except (httpx.HTTPError, httpx.InvalidURL):
        answered = False
    if not answered:
        raise StorageUnavailable(
            f"No server answers at {base}.", hint="Start one: 'commonplace serve'."
        )


def _program_name() -> str:
    """Return the command to show for this program: its name, or its path if it is not in PATH."""
    import shutil

    called = sys.argv[0]
    if shutil.which("commonplace") or Path(called).name != "commonplace":
        return "commonplace"
    return called


def mcp(
    dialect: Dialect = "commonplace",
    data: Data = None,
    space: Space = "default",
    embedding: Embedding = None,
    read_only: Annotated[bool, option("--read-only", "Serve only read-only tools.")] = False,
    prefix: Annotated[str, option("--prefix", "Prefix of the tool names, such as mama_.")] = "",
    subject: Annotated[
        str,
        option(
            "--subject --being ID",
            "The subject of the dialect, such as a being: its id, the id's beginning, or its name;"
            " required if there are several.",
        ),
    ] = "",
    everywhere: GlobalOption = False,
    project: ProjectOption = None,
    allow_secrets: AllowSecrets = False,
    in_process: Annotated[
        bool, option("--in-process", "Serve in this process, without a server in the background.")
    ] = False,
) -> None:
    """Serve one dialect over stdio, for a client that starts it.

    Calls are answered by the server of the data directory; if none is running, one is started in
    the background. In a repository, new memories belong to its project.
    """
    from commonplace.client import command
    from commonplace.engine import checks
    from commonplace.errors import InvalidInput
    from commonplace.server.stdio import run

    if not _PREFIX.fullmatch(prefix):
        raise InvalidInput(
            "A prefix may have at most 32 letters, digits, '_' and '-'.",
            hint="For example: mama_.",
            field="prefix",
        )
    registry.checked_name(dialect)
    checks.space(space)
    if subject:
        existing_directory(data)  # without this check a mistyped space would be created
    found = current_project(project)
    served = command.run(
        command.McpOptions(
            dialect=dialect,
            data=None if data is None else str(data),
            database=database_of(data),
            space=space,
            embedding=embedding,
            prefix=prefix,
            subject=subject,
            project=project,
            read_only=read_only,
            everywhere=everywhere,
            in_process=in_process or allow_secrets,
        )
    )  # fmt: skip
    if served is not None:
        raise typer.Exit(served)
    run(
        dialect, data=data, database=database_of(data), space=space, embedding=embedding,
        read_only=read_only, prefix=prefix, subject=subject,
        project=None if everywhere else found, allow_secrets=allow_secrets,
    )  # fmt: skip


audit = typer.Typer(help="List the calls in the audit log, and verify it.")


@audit.command("list")
def list_calls(
    data: Data = None,
    space: Space = "default",
    tool: Annotated[str | None, option("--tool", "Only this tool.")] = None,
    user: Annotated[str | None, option("--user", "Only this user.")] = None,
    failed: Annotated[
        bool | None,
        option("--failed/--succeeded", "Only failed calls, or only successful calls."),
    ] = None,
    since: Annotated[str | None, option("--since WHEN", "Only calls from that time on.")] = None,
    until: Annotated[str | None, option("--until WHEN", "Only calls up to that time.")] = None,
    before: Annotated[int | None, option("--before", "Only entries before this number.")] = None,
    limit: Annotated[int, option("--limit -n N", "Maximum number of entries.")] = 50,
    system: Annotated[bool, option("--system", "Calls that reached no space.")] = False,
    as_json: AsJson = False,
) -> None:
    """List calls, the newest first."""
    from commonplace.engine.history import audit as engine
    from commonplace.engine.model import iso

    with _open_audited_store(data, space, system) as store:
        calls = engine.listing(
            store, tool=tool, caller=user, success=None if failed is None else not failed,
            since=parse_time(since, "since"), until=parse_time(until, "until"),
            before=before, limit=limit,
        )  # fmt: skip
    for call in calls:
        if as_json:
            row = {name: getattr(call, name) for name in engine.Call.__slots__}
            row["at"] = iso(call.at)
            emit_json(row)
        else:
            outcome = "ok" if call.success else call.error
            who = f"{call.caller or '-'} {call.address}".strip()
            tool = ".".join(part for part in (call.dialect, call.tool) if part)
            parts = (outcome, tool, who, f"{call.milliseconds} ms")
            first, *rest = join_into_lines(parts, columns() - 29)
            say(f"{call.num:>6}  {local_time(call.at, seconds=True)}  {first}")
            for line in rest:
                say(f"{'':29}{line}")
    if not calls:
        if not as_json:
            note(
                "No calls found: the audit log has calls of agents, not commands of this terminal."
            )
        raise typer.Exit(1)


@audit.command("verify")
def verify_audit(
    data: Data = None,
    space: Space = "default",
    system: Annotated[bool, option("--system", "Calls that reached no space.")] = False,
    head: Annotated[
        str | None, option("--head", "A head hash printed earlier; it must still be in the chain.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify the hash chain: detects edits, swaps and deletions. Exit code 6 if it is broken.

    If the newest entries were deleted and the stored head was changed to match, only --head
    detects it.
    """
    from commonplace.engine.history import audit as engine

    with _open_audited_store(data, space, system) as store:
        verdict = engine.verify(store, head=head)
    if as_json:
        faults = [{"row": fault.num, "what": fault.what} for fault in verdict.faults]
        told = {"rows": verdict.rows, "head": verdict.head, "faults": faults}
        emit_json({**told, "removed": verdict.removed, "anchor": verdict.anchor})
    else:
        for fault in verdict.faults:
            say(f"row {fault.num}: {fault.what}")
        if verdict.removed:
            say(
                f"rows 1 to {verdict.removed} were removed by 'audit cut' or audit_days;"
                f" verified from anchor {verdict.anchor}"
            )
        state = "broken" if verdict.faults else "intact"
        say(f"{verdict.rows} rows, chain {state}, head {verdict.head or '-'}")
    if verdict.faults:
        raise typer.Exit(6)


@audit.command("cut")
def cut_audit(
    before: Annotated[str, option("--before", "Delete entries written before this date or time.")],
    data: Data = None,
    space: Space = "default",
    system: Annotated[bool, option("--system", "Calls that reached no space.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete the oldest entries permanently; the rest stays verifiable."""
    from commonplace.engine.history import audit as engine

    until = parse_time(before, "before")
    assert until is not None
    with _open_audited_store(data, space, system) as store:
        removed = engine.remove_before(store, until)
    if as_json:
        emit_json({"removed": removed})
    else:
        say(f"{removed:,} rows removed" if removed else "No entry is that old.")


@contextmanager
def _open_audited_store(data: Path | None, space: str, system: bool) -> Iterator[Store]:
    """Open the store with the audit log: the store of a space, or system.db."""
    from commonplace.engine import checks
    from commonplace.engine.library import directory
    from commonplace.errors import NotFound

    if system and not has_system_store(data):
        raise NotFound(
            f"There are no calls in {directory(data)} yet.",
            hint="The first entry is written when a token is created or a request is refused.",
        )
    with open_library(data if system else existing_directory(data)) as opened:
        if system:
            with closing(opened.open_system()) as store:
                yield store
            return
        if checks.space(space) not in opened.spaces():
            raise NotFound(f"There is no space {space!r}.", hint="See 'commonplace spaces'.")
        with opened.lease(space) as found:
            yield found.store


COMMANDS = (serve, open_, mcp)
GROUPS = {"audit": audit}
