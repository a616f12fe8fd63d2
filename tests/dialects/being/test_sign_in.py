"""A token by the whole OAuth sign-in, from the first refusal to a real being that answers."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from commonplace.access.oauth.families import challenge_of
from server.oauth.browsing import Browser

from .conftest import Served

pytestmark = pytest.mark.anyio
CALLBACK = "http://127.0.0.1:53999/callback"
VERIFIER = "v" * 43
PASSWORD = "correct horse battery"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def web(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served.base, timeout=30) as client:
        yield client


class Person:
    """Somebody with an account, a space and two beings in it, and a program that wants in."""

    def __init__(self, served: Served, web: httpx.AsyncClient) -> None:
        self.served, self.web = served, web
        self.name = f"p{uuid.uuid4().hex[:12]}"
        served.made.parts.accounts.add(self.name, PASSWORD, [self.name])
        self.beings = [served.being(name, self.name) for name in ("One", "Two")]

    async def discovered(self) -> dict[str, Any]:
        """What the server says of itself to a client that was refused."""
        refused = self.served.call("/mcp", "", "get_context")
        challenge = refused.headers["www-authenticate"]
        about = challenge.partition('resource_metadata="')[2].partition('"')[0]
        resource = (await self.web.get(about)).json()
        issuer = resource["authorization_servers"][0]
        found: dict[str, Any] = (
            await self.web.get(f"{issuer}/.well-known/oauth-authorization-server")
        ).json()
        return {**found, "resource": resource["resource"]}

    async def arrived(self, resource: str = "") -> tuple[Browser, dict[str, str]]:
        """At the consent page, and what the program will exchange the code with."""
        server = await self.discovered()
        asked = {"client_name": "Cowork", "redirect_uris": [CALLBACK], "scope": "being:full"}
        registered = await self.web.post(server["registration_endpoint"], json=asked)
        assert registered.status_code == 201, registered.text
        wanted = {
            "client_id": registered.json()["client_id"],
            "redirect_uri": CALLBACK,
            "resource": resource or server["resource"],
        }
        query = {
            **wanted,
            "response_type": "code",
            "state": "s",
            "scope": "being:full",
            "code_challenge": challenge_of(VERIFIER),
            "code_challenge_method": "S256",
        }
        browser = Browser(self.web, self.served.base)
        await browser.open(f"{server['authorization_endpoint']}?{urlencode(query)}")
        await browser.press("login", name=self.name, password=PASSWORD)
        return browser, {**wanted, "code_verifier": VERIFIER}

    async def exchanged(self, browser: Browser, wanted: dict[str, str]) -> dict[str, Any]:
        assert browser.sent_to.startswith(CALLBACK), browser.page.text
        body = {**wanted, "grant_type": "authorization_code", "code": browser.answer["code"]}
        answer = await self.web.post("/oauth/token", data=body)
        assert answer.status_code == 200, answer.text
        tokens: dict[str, Any] = answer.json()
        return tokens


def being_that_answers(served: Served, path: str, token: str) -> str:
    answer = served.call(path, token, "get_context")
    assert answer.status_code == 200, answer.text
    told: str = json.loads(answer.json()["result"]["content"][0]["text"])["metadata"]["being_id"]
    return told


async def test_a_token_by_sign_in_is_the_being_that_the_person_chose(
    served: Served, web: httpx.AsyncClient
) -> None:
    person = Person(served, web)
    one, two = person.beings
    browser, wanted = await person.arrived()
    await browser.press("allow", subject=two)
    tokens = await person.exchanged(browser, wanted)
    access, refresh = tokens["access_token"], tokens["refresh_token"]
    assert access.startswith("bto_") and refresh.startswith("btr_")
    assert (tokens["scope"], tokens["expires_in"]) == ("being:full", 3600)
    assert being_that_answers(served, "/mcp", access) == two
    stored = served.call("/mcp", access, "update_notes", notes=["by sign-in"]).json()
    assert "by sign-in" in stored["result"]["content"][0]["text"]
    other = served.call(f"/mcp?being_id={one}", access, "get_context")
    assert (other.status_code, other.json()) == (401, {"error": "Unauthorized"})
    renewed = await web.post("/oauth/token", data={
        "grant_type": "refresh_token", "client_id": wanted["client_id"], "refresh_token": refresh,
    })  # fmt: skip
    assert being_that_answers(served, "/mcp", renewed.json()["access_token"]) == two
    assert served.call("/mcp", access, "get_context").status_code == 401, "the old one is over"


async def test_a_path_that_names_a_being_chooses_it(served: Served, web: httpx.AsyncClient) -> None:
    person = Person(served, web)
    path = f"/mcp/{person.beings[0]}"
    browser, wanted = await person.arrived(served.base + path)
    assert person.beings[0] in browser.page.text
    await browser.press("allow")
    tokens = await person.exchanged(browser, wanted)
    assert being_that_answers(served, path, tokens["access_token"]) == person.beings[0]


async def test_a_being_that_is_not_the_persons_cannot_be_chosen(
    served: Served, web: httpx.AsyncClient
) -> None:
    person, somebody = Person(served, web), Person(served, web)
    browser, wanted = await person.arrived()
    for being in (somebody.beings[0], str(uuid.uuid4()), "no-being"):
        await browser.press("allow", subject=being)
        assert browser.sent_to == "" and "no such being" in browser.page.text
    await browser.press("allow", subject=person.beings[0])
    tokens = await person.exchanged(browser, wanted)
    assert being_that_answers(served, "/mcp", tokens["access_token"]) == person.beings[0]
