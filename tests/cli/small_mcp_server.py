"""A small MCP server for the tests of `connect --check`, which can also misbehave.

small_mcp_server.py good|hang|exit|garbage|chatty|failing|reader|other
small_mcp_server.py http PORT [TOKEN]
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations


def made(behaviour: str) -> MCPServer:
    server = MCPServer("small", version="1.2.3")
    if behaviour in ("reader", "other"):

        @server.tool(annotations=ToolAnnotations(read_only_hint=behaviour == "reader"))
        def look() -> str:
            return "looked around"

        return server

    @server.tool()
    def context() -> str:
        if behaviour == "failing":
            raise RuntimeError("the memory is on fire")
        return f"nothing is known yet; {os.environ.get('SMALL', 'no')} {' '.join(sys.argv[2:])}"

    return server


def guarded(app: Any, token: str) -> Any:
    async def guard(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "http" and headers.get(b"authorization") != f"Bearer {token}".encode():
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"no"})
            return
        await app(scope, receive, send)

    return guard


def main(behaviour: str, *rest: str) -> None:
    if behaviour == "exit":
        sys.exit("no such luck")
    if behaviour == "hang":
        time.sleep(600)
    if behaviour == "garbage":
        while True:
            print("Hello! I am starting up.", flush=True)  # noqa: T201
            time.sleep(0.05)
    if behaviour == "chatty":
        print("Hello! I am starting up.", flush=True)  # noqa: T201
    server = made(behaviour)
    if behaviour != "http":
        server.run()
        return
    import uvicorn

    app: Any = server.streamable_http_app(streamable_http_path="/mcp/commonplace")
    if len(rest) > 1:
        app = guarded(app, rest[1])
    uvicorn.run(app, host="127.0.0.1", port=int(rest[0]), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
