"""Write what the thin pipe answers itself: src/commonplace/client/static/DIALECT.json.

The real server is asked over pipes, once for each version of the protocol. `--check`
only compares.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from commonplace.access.caller import Caller
from commonplace.client import static_answers
from commonplace.dialects import registry
from commonplace.dialects.contract import Dialect, RequestInfo
from commonplace.engine.library import Library
from commonplace.server.calls import AdmittedRequest, Workers
from commonplace.server.gate import Gate
from commonplace.server.pipes import Pipes
from commonplace.server.protocol import build_server
from commonplace.server.refusals import Refusals

MODERN = "2026-07-28"
META = {
    static_answers.VERSION_META: MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "static", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def send_requests(gate: Gate, dialect: Dialect, *requests: Mapping[str, Any]) -> list[Any]:
    """Send requests on one connection; return their results."""
    to_server, incoming = anyio.create_memory_object_stream[Any](0)
    outgoing, from_server = anyio.create_memory_object_stream[Any](0)
    workers = Workers(gate, 30)
    pipes = Pipes(
        incoming,
        outgoing,
        dialect,
        Refusals(gate, workers),
        AdmittedRequest(Caller(), RequestInfo()),
        30,
    )
    found: list[Any] = []
    async with anyio.create_task_group() as group:
        group.start_soon(pipes.serve, build_server(dialect, workers))
        for number, request in enumerate(requests):
            whole = {"jsonrpc": "2.0", "id": number, **request}
            message = types.jsonrpc_message_adapter.validate_python(whole, by_name=False)
            await to_server.send(SessionMessage(message))
            answer = (await from_server.receive()).message
            written = json.loads(answer.model_dump_json(by_alias=True, exclude_unset=True))
            found.append(written.get("result"))
        await to_server.aclose()
        group.cancel_scope.cancel()
    workers.close()
    return found


async def static_answers_of(gate: Gate, dialect: Dialect) -> dict[str, Any]:
    """Return the answers of a dialect that never change, by protocol version.

    Instead of a list of tools, there may be the name of an earlier version with the same list.
    """
    repeatable = [tool.name for tool in dialect.tools if not tool.stepwise and not tool.open_world]
    if dialect.dynamic_tools is not None or dialect.subject is not None:
        return {"repeatable": repeatable}
    initialize: dict[str, Any] = {}
    tools: dict[str, Any] = {}
    for version in HANDSHAKE_PROTOCOL_VERSIONS:
        params = {
            "protocolVersion": version, "capabilities": {},
            "clientInfo": {"name": "static", "version": "1"},
        }  # fmt: skip
        started, listed = await send_requests(
            gate, dialect, {"method": "initialize", "params": params}, {"method": "tools/list"}
        )
        same = next((each for each, known in tools.items() if known == listed), None)
        initialize[version], tools[version] = started, same or listed
    found, listed = await send_requests(
        gate, dialect, {"method": "server/discover", "params": {"_meta": META}},
        {"method": "tools/list", "params": {"_meta": META}},
    )  # fmt: skip
    tools[MODERN] = listed
    return {
        "initialize": initialize, "discover": {MODERN: found} if found else {}, "tools": tools,
        "repeatable": repeatable,
    }  # fmt: skip


def file_texts() -> dict[Path, str]:
    """Return each file with the text that it should have."""
    found: dict[Path, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        library = Library(folder, embedder=None)
        with contextlib.closing(library), contextlib.closing(library.open_system()) as system:
            for name in [
                each for each in registry.built_in_names() if each in sys.argv
            ] or registry.built_in_names():
                dialect = registry.load(name)
                answers = asyncio.run(static_answers_of(Gate(library, system, [dialect]), dialect))
                text = json.dumps(answers, ensure_ascii=False, indent=1)
                found[Path(static_answers.FOLDER) / f"{name}.json"] = text + "\n"
    return found


def main() -> int:
    """Write the files; with --check, return 1 if one is not up to date."""
    stale = []
    for path, text in file_texts().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path)
            if "--check" not in sys.argv:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    for path in stale:
        sys.stdout.write(f"{path.name}\n")
    return int("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
