"""Programs that sign in by OAuth: mcp-remote itself, and the requests of two others replayed.

openclaw-penfield and hermes-penfield are in no registry, so small clients send what they send.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import time_machine
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from clients import programs
from clients.test_real_clients import HANDSHAKE, is_whole, try_out
from server.harness import Running, running
from server.oauth.browsing import Browser

NAME, PASSWORD = "anna", "correct horse battery"
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
_SIGN_IN = re.compile(r"authorize this client by visiting:\s+(http\S+)")


@pytest.fixture(scope="module")
def server(shared_data: Path) -> Iterator[Running]:
    with running(shared_data, require_token=True) as one:
        one.parts.accounts.add(NAME, PASSWORD, ["anna"])
        yield one


async def allow(address: str, url: str, *first: tuple[str, dict[str, str]]) -> Browser:
    """A person opens a page, signs in and allows what it asks for."""
    async with httpx.AsyncClient(timeout=30) as client:
        browser = await Browser(client, address).open(url)
        for button, fields in (*first, ("login", {"name": NAME, "password": PASSWORD})):
            await browser.press(button, **fields)
        return await browser.press("allow")


# --- mcp-remote -----------------------------------------------------------------------------------


async def through_mcp_remote(address: str, folder: Path, *, sign_in: bool) -> dict[str, Any]:
    """What a client finds that starts mcp-remote, which signs in if it has no tokens."""
    program = StdioServerParameters(
        command=programs.node(),
        args=[programs.package("mcp-remote", "dist/proxy.js"), f"{address}/mcp/commonplace"],
        # No browser is on this path, so it prints the address to visit.
        env={
            **programs.environment(), "PATH": str(folder), "BROWSER": "",
            "MCP_REMOTE_CONFIG_DIR": str(folder / "tokens"),
        },
    )  # fmt: skip
    log = folder / "mcp-remote.log"

    async def visit() -> None:
        while (found := _SIGN_IN.search(log.read_text(encoding="utf-8"))) is None:
            await asyncio.sleep(0.05)
        browser = await allow(address, found[1])
        async with httpx.AsyncClient() as client:
            returned = await client.get(browser.sent_to)
        assert returned.status_code == 200, returned.text

    with log.open("w", encoding="utf-8") as errors:
        person = asyncio.create_task(visit()) if sign_in else None
        async with Client(stdio_client(program, errlog=errors), mode="legacy") as client:
            found = await try_out(client)
        if person is not None:
            await person
    assert sign_in == bool(_SIGN_IN.search(log.read_text(encoding="utf-8")))
    return found


def test_mcp_remote_signs_in_and_refreshes_by_itself(server: Running, tmp_path: Path) -> None:
    address = server.settings.base_url
    found = asyncio.run(through_mcp_remote(address, tmp_path, sign_in=True))
    assert is_whole(found, HANDSHAKE)
    with time_machine.travel(time.time() + 7_200):  # its access token has expired
        found = asyncio.run(through_mcp_remote(address, tmp_path, sign_in=False))
    assert is_whole(found, HANDSHAKE)


# --- Penfield's clients ---------------------------------------------------------------------------


@dataclass
class Program:
    """A program that signs in with a device code and keeps its tokens, as hermes-penfield does."""

    address: str
    client_id: str = ""
    tokens: dict[str, Any] = field(default_factory=dict)
    ends: float = 0.0
    refreshes: int = 0

    def post(self, path: str, **how: Any) -> httpx.Response:
        return httpx.post(self.address + path, timeout=30, **how)

    def register(self, **changes: Any) -> httpx.Response:
        body = {
            "redirect_uris": ["http://localhost:0/callback"],
            "grant_types": [DEVICE_CODE, "refresh_token"],
            "token_endpoint_auth_method": "none",
        }
        return self.post("/oauth/register", json={**body, **changes})

    def sign_in(self) -> None:
        registered = self.register()
        assert registered.status_code == 201, registered.text
        self.client_id = registered.json()["client_id"]
        asked = {"client_id": self.client_id, "scope": "read write offline_access"}
        started = self.post("/oauth/device_authorization", data=asked).json()
        page, code = started["verification_uri"], started["user_code"]
        asyncio.run(allow(self.address, page, ("find", {"code": code})))
        self._keep(self._ask(DEVICE_CODE, device_code=started["device_code"]))

    def _ask(self, grant: str, **parameters: str) -> httpx.Response:
        data = {"grant_type": grant, "client_id": self.client_id, **parameters}
        return self.post("/oauth/token", data=data)

    def _keep(self, answer: httpx.Response) -> None:
        assert answer.status_code == 200, answer.text
        self.tokens = answer.json()
        self.ends = time.time() + self.tokens["expires_in"]

    def refresh(self, used: str) -> None:
        self.refreshes += 1
        self._keep(self._ask("refresh_token", refresh_token=used))

    def call(self) -> int:
        headers = {"authorization": f"Bearer {self.tokens['access_token']}"}
        address = f"{self.address}/api/v2/memories"
        return httpx.get(address, headers=headers, timeout=30).status_code


class Openclaw(Program):
    """Refreshes before a call when less than four hours are left, in every call that runs."""

    def two_calls(self) -> list[int]:
        """The statuses of two calls at the same time, neither of which waits for the other."""
        together = threading.Barrier(2)

        def one(_: int) -> int:
            used, due = self.tokens["refresh_token"], self.ends - time.time() < 4 * 3_600
            together.wait(30)
            if due:
                self.refresh(used)
            return self.call()

        with ThreadPoolExecutor(2) as threads:
            return list(threads.map(one, range(2)))


@pytest.fixture
def openclaw(server: Running) -> Openclaw:
    program = Openclaw(server.settings.base_url)
    program.sign_in()
    return program


def test_hermes_registers_with_port_0_and_signs_in_by_a_code(server: Running) -> None:
    program = Program(server.settings.base_url)
    program.sign_in()
    assert program.call() == 200
    program.refresh(program.tokens["refresh_token"])
    assert program.call() == 200


def test_openclaw_does_not_refresh_before_it_has_to(openclaw: Openclaw) -> None:
    assert openclaw.two_calls() == [200, 200]
    assert openclaw.refreshes == 0


def test_openclaw_may_refresh_twice_at_once(openclaw: Openclaw) -> None:
    begun = time.time()
    for day in range(1, 4):
        with time_machine.travel(begun + day * 21 * 3_600):
            assert openclaw.two_calls() == [200, 200]
            assert openclaw.two_calls() == [200, 200]
        assert openclaw.refreshes == 2 * day
