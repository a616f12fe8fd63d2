"""The official MCP client goes the whole way by itself, but for the person who presses buttons."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator

import httpx
import mcp_types as types
import pytest
import uvicorn
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from commonplace.access.credentials import Unauthenticated
from commonplace.access.oauth import routes

from .browsing import Browser
from .conftest import PASSWORD, World

pytestmark = pytest.mark.anyio
PATH = "/mcp/mama"


class Kept:
    """What a client remembers."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.info: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.info = client_info


class Person:
    """Opens the address that the client shows, logs in and allows it."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.visits = 0
        self.answer: dict[str, str] = {}

    async def visit(self, url: str) -> None:
        self.visits += 1
        async with httpx.AsyncClient() as client:
            browser = await Browser(client, self.issuer).open(url)
            await browser.press("login", name="anna", password=PASSWORD)
            await browser.press("allow")
            self.answer = browser.answer

    async def come_back(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(
            code=self.answer["code"], state=self.answer["state"], iss=self.answer["iss"]
        )


def application(world: World) -> Starlette:
    """The authorization server, and a memory behind it with one tool that tells who calls."""

    async def list_tools(*_: object) -> types.ListToolsResult:
        tool = types.Tool(name="whoami", description="Tell.", input_schema={"type": "object"})
        return types.ListToolsResult(tools=[tool])

    async def call_tool(*_: object) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text=callers[-1])])

    callers: list[str] = []
    server: Server[object] = Server("guarded", on_list_tools=list_tools, on_call_tool=call_tool)
    manager = StreamableHTTPSessionManager(server, stateless=True, json_response=True)

    class Guarded:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            headers = dict(scope["headers"])
            token = headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
            resource = world.oauth.resources.resource_url_at(scope["path"])
            try:
                caller = world.credentials.recognise(token, resource=resource)
            except Unauthenticated:
                error = "invalid_token" if token else ""
                header = {
                    "www-authenticate": world.oauth.resources.challenge(scope["path"], error=error)
                }
                await JSONResponse({}, 401, header)(scope, receive, send)
                return
            callers.append(f"{caller.user} in {caller.space}: {' '.join(sorted(caller.scopes))}")
            await manager.asgi_app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    return Starlette(routes=[*routes(world.oauth), Route(PATH, Guarded())], lifespan=lifespan)


@contextlib.asynccontextmanager
async def served(world: World) -> AsyncIterator[None]:
    """The application on a loopback port, which is then the issuer's."""
    listening = socket.create_server(("127.0.0.1", 0))
    world.issuer = f"http://127.0.0.1:{listening.getsockname()[1]}"
    world.__post_init__()
    config = uvicorn.Config(application(world), log_config=None, ws="none", lifespan="on")
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = True
        await running
        listening.close()


async def whoami(world: World, kept: Kept, person: Person, document: str | None) -> str:
    provider = OAuthClientProvider(
        world.issuer + PATH,
        OAuthClientMetadata(
            client_name="Official client", redirect_uris=[AnyUrl("http://127.0.0.1:53682/callback")]
        ),
        kept,
        person.visit,
        person.come_back,
        client_metadata_url=document,
    )
    async with (
        create_mcp_http_client(auth=provider) as http,
        streamable_http_client(world.issuer + PATH, http_client=http) as (incoming, outgoing, *_),
        ClientSession(incoming, outgoing) as session,
    ):
        await session.initialize()
        result = await session.call_tool("whoami", {})
        content = result.content[0]
        assert isinstance(content, types.TextContent)
        return content.text


@pytest.mark.parametrize("document", [None, "https://official.example/oauth/client.json"])
async def test_the_official_client_connects_refreshes_and_starts_again(
    world: World, document: str | None
) -> None:
    if document is not None:
        described = {
            "client_id": document,
            "client_name": "Official client",
            "redirect_uris": ["http://127.0.0.1/callback"],
        }
        world.web.put(document, json.dumps(described).encode())
    async with served(world):
        kept, person = Kept(), Person(world.issuer)
        assert await whoami(world, kept, person, document) == "anna in anna: delete read write"
        assert person.visits == 1
        assert kept.info is not None
        assert kept.tokens is not None
        if document is not None:
            assert kept.info.client_id == document

        first = kept.tokens.access_token  # what it has is used as long as it is good
        assert await whoami(world, kept, person, document)
        assert kept.tokens.access_token == first
        assert person.visits == 1

        world.credentials.revoke_all(owner="anna")  # the connection is ended: a person is asked
        assert await whoami(world, kept, person, document)
        assert person.visits == 2
        assert kept.tokens.access_token != first


async def test_the_official_client_refreshes_by_itself(world: World) -> None:
    async with served(world):
        kept, person = Kept(), Person(world.issuer)
        provider = OAuthClientProvider(
            world.issuer + PATH,
            OAuthClientMetadata(redirect_uris=[AnyUrl("http://127.0.0.1:53682/callback")]),
            kept,
            person.visit,
            person.come_back,
        )
        async with create_mcp_http_client(auth=provider) as http:
            call = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            headers = {"accept": "application/json, text/event-stream"}
            url = world.issuer + PATH
            assert (await http.post(url, json=call, headers=headers)).status_code == 200
            assert kept.tokens is not None
            first = kept.tokens
            provider.context.token_expiry_time = 1.0  # long ago
            assert (await http.post(url, json=call, headers=headers)).status_code == 200
        assert kept.tokens.access_token != first.access_token
        assert kept.tokens.refresh_token != first.refresh_token
        assert person.visits == 1
        assert not world.alive(first.access_token)
