"""A whole authorization server on a data directory of its own, and people and clients to use it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from starlette.applications import Starlette

from commonplace.access.accounts import Accounts, ScryptCost
from commonplace.access.credentials import Credentials
from commonplace.access.oauth import OAuth, routes
from commonplace.access.oauth.families import challenge_of
from commonplace.access.vault import Vault, open_vault
from commonplace.dialects import registry
from commonplace.dialects.registry import token_formats
from commonplace.platform.fetching import Fetcher, FetchRefused, FetchResponse
from commonplace.storage.sqlite import Store
from commonplace.storage.system import open_system

from .browsing import Browser

ISSUER = "https://memory.example"
CALLBACK = "https://client.example/callback"
VERIFIER = "v" * 43 + "-._~"
PASSWORD = "correct horse battery"


class Documents(Fetcher):
    """The web, as far as the tests need it: documents by address."""

    def __init__(self) -> None:
        super().__init__()
        self.documents: dict[str, FetchResponse] = {}
        self.fetches: list[str] = []

    def put(self, url: str, body: bytes, **headers: str) -> None:
        kept = {"content-type": "application/json"}
        kept |= {k.replace("_", "-"): v for k, v in headers.items()}
        self.documents[url] = FetchResponse(url, 200, kept, body)

    async def fetch(self, url: str, **_: Any) -> FetchResponse:
        self.fetches.append(url)
        if url not in self.documents:
            raise FetchRefused("The host name does not resolve.")
        return self.documents[url]


@dataclass
class World:
    """The server under test, with what it stands on."""

    data: Path
    store: Store
    vault: Vault
    credentials: Credentials
    accounts: Accounts
    web: Documents = field(default_factory=Documents)
    issuer: str = ISSUER
    oauth: OAuth = field(init=False)
    app: Starlette = field(init=False)

    def __post_init__(self) -> None:
        self.oauth = OAuth(
            self.store,
            self.credentials,
            self.accounts,
            vault=self.vault,
            issuer=self.issuer,
            resources=registry.resources_by_path(registry.load_all().values(), "commonplace"),
            fetcher=self.web,
        )
        self.app = Starlette(routes=routes(self.oauth))

    @contextlib.asynccontextmanager
    async def client(self, address: str = "198.51.100.7") -> AsyncIterator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(self.app, client=(address, 50_000))
        async with httpx.AsyncClient(transport=transport, base_url=self.issuer) as client:
            yield client

    def browser(self, client: httpx.AsyncClient) -> Browser:
        return Browser(client, self.issuer)

    async def register(self, client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
        body = {"client_name": "Test client", "redirect_uris": [CALLBACK], **changes}
        response = await client.post("/oauth/register", json=body)
        assert response.status_code == 201, response.text
        registered: dict[str, Any] = response.json()
        return registered

    def request(self, client_id: str, /, **changes: str | None) -> dict[str, str]:
        """The parameters of a request for authorization that is good but for the changes."""
        good: dict[str, str | None] = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": CALLBACK,
            "state": "st+ate/ü=&",
            "code_challenge": challenge_of(VERIFIER),
            "code_challenge_method": "S256",
            "resource": f"{self.issuer}/mcp/mama",
            "scope": "read write",
        }
        return {k: v for k, v in {**good, **changes}.items() if v is not None}

    async def log_in(
        self, client: httpx.AsyncClient, parameters: Mapping[str, str], name: str = "anna"
    ) -> Browser:
        """A browser that has come to the consent page."""
        browser = self.browser(client)
        await browser.open(f"/oauth/authorize?{urlencode(parameters)}")
        await browser.press("login", name=name, password=PASSWORD)
        assert "allow" in browser.page.buttons, browser.page.text
        return browser

    async def code(self, client: httpx.AsyncClient, parameters: Mapping[str, str]) -> str:
        browser = await self.log_in(client, parameters)
        await browser.press("allow")
        return browser.answer["code"]

    def exchange(self, client_id: str, code: str, /, **changes: str | None) -> dict[str, str]:
        """The parameters of a request for tokens that is good but for the changes."""
        good: dict[str, str | None] = {
            "grant_type": "authorization_code",
            "client_id": client_id,
            "code": code,
            "redirect_uri": CALLBACK,
            "code_verifier": VERIFIER,
            "resource": f"{self.issuer}/mcp/mama",
        }
        return {k: v for k, v in {**good, **changes}.items() if v is not None}

    async def tokens(self, client: httpx.AsyncClient, client_id: str) -> dict[str, Any]:
        code = await self.code(client, self.request(client_id))
        response = await client.post("/oauth/token", data=self.exchange(client_id, code))
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return body

    def alive(self, token: str, path: str = "/mcp/mama") -> bool:
        try:
            self.credentials.recognise(token, resource=self.issuer + path)
        except Exception:
            return False
        return True


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with contextlib.closing(open_system(tmp_path)) as store:
        vault = open_vault(store, {})
        credentials = Credentials(store, vault, token_formats())
        accounts = Accounts(store, vault, credentials, cost=ScryptCost(n=16, r=1, p=1))
        accounts.add("anna", PASSWORD, ["anna"])
        accounts.add("bert", PASSWORD, ["bert", "work"])
        yield World(tmp_path, store, vault, credentials, accounts)
        credentials.close()
