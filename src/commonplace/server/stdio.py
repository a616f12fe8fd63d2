"""MCP over standard input and output, for one dialect and one space of the local user."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sys
from pathlib import Path
from typing import BinaryIO

from commonplace.access.caller import EVERYTHING, READ_ONLY, Caller
from commonplace.access.vault import open_vault
from commonplace.client.connection import CONTRACT_VARIABLES
from commonplace.dialects import registry
from commonplace.dialects.contract import Dialect, RequestInfo, Setting
from commonplace.embedding.provider import configured_embedder
from commonplace.engine import checks
from commonplace.engine.content.projects import Project
from commonplace.engine.library import Library
from commonplace.platform.loading import without_garbage_collection
from commonplace.server.gate import Gate
from commonplace.server.settings import Settings

CALL_SECONDS = 30.0


def run(
    dialect: str,
    *,
    data: Path | None = None,
    database: str | None = None,
    space: str = "default",
    embedding: str | None = None,
    read_only: bool = False,
    prefix: str = "",
    subject: str = "",
    project: Project | None = None,
    allow_secrets: bool = False,
) -> None:
    """Serve until the client closes standard input, or an interrupt."""
    chosen = registry.load(dialect).prefixed(prefix)
    scopes = READ_ONLY if read_only else EVERYTHING
    caller = Caller(space=checks.space(space), user=_user(), scopes=scopes)
    settings = Settings.load(data=data, database=database, embedding=embedding)
    library = Library(
        data,
        embedder=configured_embedder(settings.embedding),
        database=settings.database or None,
        allow_secrets=allow_secrets or settings.allow_secrets,
        auto_accept=settings.auto_accept,
        embed="later",
    )
    with contextlib.closing(library), contextlib.closing(library.open_system()) as system:
        gate = Gate(library, system, [chosen])
        caller = gate.identify_named(chosen, caller, subject)
        setting = Setting(
            library=library, system=system, space=space, environ=os.environ,
            perform=gate.perform, prefix=prefix, vault=functools.cache(lambda: open_vault(system)),
        )  # fmt: skip
        with (
            chosen.background_work(setting) if chosen.background_work else contextlib.nullcontext()
        ):
            runner = asyncio.Runner()
            ended = runner.run(_serve(gate, caller, chosen, project))
            if ended:
                runner.close()
    if not ended:
        os._exit(0)  # a thread is blocked reading a line and cannot be stopped


async def _serve(gate: Gate, caller: Caller, dialect: Dialect, project: Project | None) -> bool:
    """Serve; return True when the client closes its end, False after a signal."""
    with without_garbage_collection():
        from mcp.server.stdio import stdio_server

        from commonplace.server.calls import Admitted, Workers
        from commonplace.server.pipes import Pipes, lines
        from commonplace.server.protocol import build
        from commonplace.server.refusals import Refusals

    workers = Workers(gate, CALL_SECONDS)
    environ = {name: os.environ[name] for name in CONTRACT_VARIABLES if name in os.environ}
    info = RequestInfo(session=f"stdio-{os.getpid()}", project=project, environ=environ)
    local = Admitted(caller, info)
    server = build(dialect, workers)
    refusals = Refusals(gate, workers)

    async def serve() -> None:
        async with stdio_server(stdin=lines(_standard_input())) as (incoming, outgoing):
            pipes = Pipes(incoming, outgoing, dialect, refusals, local, CALL_SECONDS)
            await pipes.serve(server)

    stop = asyncio.Event()
    if sys.platform != "win32":
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    serving, stopping = asyncio.create_task(serve()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        pass  # Ctrl-C on systems without signal handlers
    finally:
        workers.close()  # waits for running calls
    if not serving.done():
        return False
    stopping.cancel()
    serving.result()
    return True


def _standard_input() -> BinaryIO:
    """Move standard input to a new file descriptor; other code then reads an empty stream."""
    ours, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return os.fdopen(ours, "rb", closefd=False)  # a thread may still be reading it at exit


def _user() -> str:
    return os.environ.get("USER") or os.environ.get("USERNAME") or "local"
