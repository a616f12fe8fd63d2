"""The least that the SDK's low-level server can be: one tool that gives back its text.

`python bench/echo.py stdio`, or `python bench/echo.py http`, which prints its address. It imports
nothing but the SDK and what serves it, so that a comparison with it is one with the SDK alone.
"""

from __future__ import annotations

import sys
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def _list(
    _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    tool = types.Tool(name="echo", description="Gives the text back.", input_schema=SCHEMA)
    return types.ListToolsResult(tools=[tool])


async def _call(
    _: ServerRequestContext[Any], params: types.CallToolRequestParams
) -> types.CallToolResult:
    text = str((params.arguments or {})["text"])
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


def over_stdio(server: Server[Any]) -> None:
    """Serve the process that started this one."""
    import asyncio

    from mcp.server.stdio import stdio_server

    async def serve() -> None:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    asyncio.run(serve())


def over_http(server: Server[Any]) -> None:
    """Serve on a free port, with the same options as Commonplace."""
    import contextlib
    import socket
    from collections.abc import AsyncIterator

    import uvicorn
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.applications import Starlette
    from starlette.routing import Route

    manager = StreamableHTTPSessionManager(server, stateless=True, json_response=True)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    app = Starlette(routes=[Route("/mcp", manager.asgi_app)], lifespan=lifespan)
    listening = socket.create_server(("127.0.0.1", 0))
    # Without it each answer, which is sent in two parts, waits 40 ms for the client's system.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(f"listening on http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, timeout_keep_alive=75
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    echo: Server[Any] = Server("echo", on_list_tools=_list, on_call_tool=_call)
    (over_stdio if sys.argv[1:] == ["stdio"] else over_http)(echo)
