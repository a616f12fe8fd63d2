"""MCP over standard input and output: one dialect, one space, the person at this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from commonplace.dialects.contract import (
    EVERYTHING,
    READ_ONLY,
    Caller,
    Circumstances,
    Dialect,
    Setting,
)
from commonplace.embedding.provider import open_embedder
from commonplace.engine import checks
from commonplace.engine.library import Library
from commonplace.server import served
from commonplace.server.gate import Gate
from commonplace.storage.system import open_system

CALL_SECONDS = 30.0


def run(
    dialect: str,
    *,
    data: Path | None = None,
    space: str = "default",
    embedding: str = "builtin",
    read_only: bool = False,
    prefix: str = "",
) -> None:
    """Serve until the client closes its end, or an interrupt."""
    chosen = served.load(dialect).prefixed(prefix)
    scopes = READ_ONLY if read_only else EVERYTHING
    caller = Caller(space=checks.space(space), user=_user(), scopes=scopes)
    library = Library(data, embedder=open_embedder(embedding))
    with contextlib.closing(library), contextlib.closing(open_system(library.path)) as system:
        gate = Gate(library, system, [chosen])
        setting = Setting(library=library, system=system, space=space, environ=os.environ)
        with chosen.running(setting) if chosen.running else contextlib.nullcontext():
            asyncio.run(_serve(gate, caller, chosen))


async def _serve(gate: Gate, caller: Caller, dialect: Dialect) -> None:
    from mcp.server.stdio import stdio_server

    from commonplace.server.protocol import Admitted, Workers, build

    workers = Workers(gate, CALL_SECONDS)
    local = Admitted(caller, Circumstances(session=f"stdio-{os.getpid()}"))
    server = build(dialect, gate, workers, local)
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    if task is not None and sys.platform != "win32":
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
    except asyncio.CancelledError:
        pass  # asked to stop: what runs is finished below
    finally:
        workers.close()


def _user() -> str:
    return os.environ.get("USER") or os.environ.get("USERNAME") or "local"
