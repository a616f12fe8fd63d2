"""Requests that are one mutation away from a good flow: each fails, and says what is wrong."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import urlencode

import pytest
import time_machine

from commonplace.access.oauth.families import challenge_of

from .conftest import CALLBACK, VERIFIER, World

pytestmark = pytest.mark.anyio

# Of the request for authorization, shown on a page: the client or its address are not known good.
PAGES: dict[str, dict[str, str | None]] = {
    "no client": {"client_id": None},
    "an unknown client": {"client_id": "cid_00000000-0000-4000-8000-000000000000"},
    "an empty client": {"client_id": ""},
    "a client that is too long": {"client_id": "c" * 5000},
    "a client with http": {"client_id": "http://client.example/client.json"},
    "a document that is not there": {"client_id": "https://gone.example/client.json"},
    "a document without a path": {"client_id": "https://client.example/"},
    "a document with a fragment": {"client_id": "https://client.example/c.json#x"},
    "a document with a user": {"client_id": "https://u@client.example/c.json"},
    "a document with dots": {"client_id": "https://client.example/a/../c.json"},
    "a document on loopback": {"client_id": "https://127.0.0.1/c.json"},
    "no redirect": {"redirect_uri": None},
    "another redirect": {"redirect_uri": "https://client.example/other"},
    "a redirect elsewhere": {"redirect_uri": "https://evil.example/callback"},
}

# Of the request for authorization, told to the client.
SENT_BACK: dict[str, tuple[dict[str, str | None], str]] = {
    "no response type": ({"response_type": None}, "invalid_request"),
    "the implicit flow": ({"response_type": "token"}, "unsupported_response_type"),
    "a hybrid flow": ({"response_type": "code token"}, "unsupported_response_type"),
    "another response mode": ({"response_mode": "fragment"}, "invalid_request"),
    "no challenge": ({"code_challenge": None}, "invalid_request"),
    "no challenge at all": (
        {"code_challenge": None, "code_challenge_method": None},
        "invalid_request",
    ),
    "no challenge method": ({"code_challenge_method": None}, "invalid_request"),
    "a plain challenge": (
        {"code_challenge": VERIFIER, "code_challenge_method": "plain"},
        "invalid_request",
    ),
    "a method in lower case": ({"code_challenge_method": "s256"}, "invalid_request"),
    "a short challenge": ({"code_challenge": "a" * 42}, "invalid_request"),
    "a padded challenge": ({"code_challenge": challenge_of(VERIFIER) + "="}, "invalid_request"),
    "no resource": ({"resource": None}, "invalid_target"),
    "another server's resource": (
        {"resource": "https://other.example/mcp/mama"},
        "invalid_target",
    ),
    "a resource with a slash more": (
        {"resource": "https://memory.example/mcp/mama/"},
        "invalid_target",
    ),
    "a resource that is not there": (
        {"resource": "https://memory.example/mcp/mama/x"},
        "invalid_target",
    ),
    "a resource with a query": (
        {"resource": "https://memory.example/mcp/mama?x=1"},
        "invalid_target",
    ),
    "a resource on a like host": (
        {"resource": "https://memory.example.evil.example/mcp/mama"},
        "invalid_target",
    ),
    "the server itself": ({"resource": "https://memory.example"}, "invalid_target"),
    "an unknown scope": ({"scope": "read everything"}, "invalid_scope"),
    "another resource's scope": ({"scope": "being:full"}, "invalid_scope"),
    "a request object": ({"request": "eyJ"}, "request_not_supported"),
    "a request object elsewhere": (
        {"request_uri": "https://x.example/"},
        "request_uri_not_supported",
    ),
    "no person": ({"prompt": "none"}, "interaction_required"),
}

# Of the request for tokens.
EXCHANGES: dict[str, tuple[dict[str, str | None], int, str]] = {
    "no grant type": ({"grant_type": None}, 400, "invalid_request"),
    "another grant type": ({"grant_type": "password"}, 400, "unsupported_grant_type"),
    "client credentials": ({"grant_type": "client_credentials"}, 400, "unsupported_grant_type"),
    "no client": ({"client_id": None}, 400, "invalid_request"),
    "an unknown client": ({"client_id": "cid_x"}, 401, "invalid_client"),
    "a client by document": ({"client_id": "https://x.example/c.json"}, 400, "invalid_grant"),
    "a secret that there is not": ({"client_secret": "csc_x"}, 401, "invalid_client"),
    "no code": ({"code": None}, 400, "invalid_request"),
    "another code": ({"code": "cpc_" + "x" * 43}, 400, "invalid_grant"),
    "a code that is cut off": ({"code": "cpc_"}, 400, "invalid_grant"),
    "no redirect": ({"redirect_uri": None}, 400, "invalid_request"),
    "another redirect": ({"redirect_uri": CALLBACK + "/"}, 400, "invalid_grant"),
    "no verifier": ({"code_verifier": None}, 400, "invalid_request"),
    "another verifier": ({"code_verifier": "w" * 43}, 400, "invalid_grant"),
    "the challenge as verifier": ({"code_verifier": challenge_of(VERIFIER)}, 400, "invalid_grant"),
    "a short verifier": ({"code_verifier": "v" * 42}, 400, "invalid_request"),
    "a long verifier": ({"code_verifier": "v" * 129}, 400, "invalid_request"),
    "a verifier with other characters": ({"code_verifier": "v" * 43 + "+"}, 400, "invalid_request"),
    "another resource": (
        {"resource": "https://memory.example/mcp/penfield"},
        400,
        "invalid_target",
    ),
}


def test_there_are_enough_mutations() -> None:
    assert len(PAGES) + len(SENT_BACK) + len(EXCHANGES) >= 40


@pytest.mark.parametrize("name", PAGES)
async def test_a_bad_client_or_redirect_is_shown_and_never_followed(
    world: World, name: str
) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        parameters = world.request(client_id, **PAGES[name])
        response = await client.get(f"/oauth/authorize?{urlencode(parameters)}")
    assert response.status_code == 400
    assert "location" not in response.headers
    assert "Authorization failed" in response.text
    assert "<form" not in response.text
    assert_plain(response.text)


@pytest.mark.parametrize("name", SENT_BACK)
async def test_another_mistake_is_told_to_the_client(world: World, name: str) -> None:
    changes, error = SENT_BACK[name]
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        parameters = world.request(client_id, **changes)
        browser = await world.browser(client).open(f"/oauth/authorize?{urlencode(parameters)}")
    assert browser.sent_to.startswith(CALLBACK + "?")
    assert browser.answer["error"] == error
    assert browser.answer["state"] == parameters["state"]
    assert browser.answer["iss"] == world.issuer
    assert "code" not in browser.answer
    assert_plain(browser.answer["error_description"])


@pytest.mark.parametrize("name", EXCHANGES)
async def test_a_broken_exchange_gives_no_token(world: World, name: str) -> None:
    changes, status, error = EXCHANGES[name]
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        code = await world.code(client, world.request(client_id))
        response = await client.post(
            "/oauth/token", data=world.exchange(client_id, code, **changes)
        )
        assert_refused(response, status, error)
    assert world.credentials.listing() == []


@pytest.mark.parametrize("name", ["client_id", "redirect_uri", "state", "scope", "code_challenge"])
async def test_a_parameter_that_is_there_twice_is_refused(world: World, name: str) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        query = urlencode(world.request(client_id))
        response = await client.get(f"/oauth/authorize?{query}&{name}=x")
        assert response.status_code == 400
        assert "location" not in response.headers


async def test_two_resources_are_refused(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        query = urlencode(world.request(client_id))
        more = urlencode({"resource": f"{world.issuer}/mcp/penfield"})
        browser = await world.browser(client).open(f"/oauth/authorize?{query}&{more}")
        assert browser.answer["error"] == "invalid_target"


async def test_a_code_is_for_the_client_that_asked(world: World) -> None:
    async with world.client() as client:
        first = (await world.register(client))["client_id"]
        other = (await world.register(client))["client_id"]
        code = await world.code(client, world.request(first))
        response = await client.post("/oauth/token", data=world.exchange(other, code))
        assert_refused(response, 400, "invalid_grant")
        # Somebody else has it: it is not good for the right client any more either.
        response = await client.post("/oauth/token", data=world.exchange(first, code))
        assert_refused(response, 400, "invalid_grant")


async def test_a_code_lives_for_a_minute(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        with time_machine.travel("2027-01-01T00:00:00Z", tick=False) as clock:
            code = await world.code(client, world.request(client_id))
            clock.shift(60)
            response = await client.post("/oauth/token", data=world.exchange(client_id, code))
            assert_refused(response, 400, "invalid_grant")
            code = await world.code(client, world.request(client_id))
            clock.shift(59)
            response = await client.post("/oauth/token", data=world.exchange(client_id, code))
            assert response.status_code == 200


async def test_a_second_use_of_a_code_ends_what_the_first_one_gave(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        code = await world.code(client, world.request(client_id))
        data = world.exchange(client_id, code)
        tokens = (await client.post("/oauth/token", data=data)).json()
        assert world.alive(tokens["access_token"])
        assert_refused(await client.post("/oauth/token", data=data), 400, "invalid_grant")
        assert not world.alive(tokens["access_token"])
        assert_refused(await refresh(client, client_id, tokens), 400, "invalid_grant")


BODIES: dict[str, tuple[dict[str, Any], int]] = {
    "JSON": ({"json": {"grant_type": "authorization_code"}}, 400),
    "multipart": ({"files": {"grant_type": (None, "authorization_code")}}, 400),
    "no type": ({"content": b"grant_type=authorization_code"}, 400),
    "not text": (
        {
            "content": b"grant_type=\xff\xfe",
            "headers": {"content-type": "application/x-www-form-urlencoded"},
        },
        400,
    ),
    "broken escapes": (
        {
            "content": b"grant_type=%ff%fe",
            "headers": {"content-type": "application/x-www-form-urlencoded"},
        },
        400,
    ),
    "too large": ({"data": {"grant_type": "x" * 20_000}}, 413),
    "too many": ({"data": {f"p{n}": "x" for n in range(100)}}, 400),
    "compressed": (
        {
            "content": b"x",
            "headers": {
                "content-type": "application/x-www-form-urlencoded",
                "content-encoding": "gzip",
            },
        },
        400,
    ),
    "twice": (
        {
            "content": b"grant_type=refresh_token&grant_type=authorization_code",
            "headers": {"content-type": "application/x-www-form-urlencoded"},
        },
        400,
    ),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("path", ["/oauth/token", "/oauth/revoke"])
async def test_a_body_that_is_not_one_plain_form_is_refused(
    world: World, name: str, path: str
) -> None:
    given, status = BODIES[name]
    async with world.client() as client:
        assert_refused(await client.post(path, **given), status, "invalid_request")


async def test_a_client_authenticates_in_one_way(world: World) -> None:
    async with world.client() as client:
        registered = await world.register(client, token_endpoint_auth_method="client_secret_basic")
        client_id, secret = registered["client_id"], registered["client_secret"]
        data = {**world.exchange(client_id, "x"), "client_secret": secret}
        both = await client.post("/oauth/token", data=data, auth=(client_id, secret))
        assert_refused(both, 400, "invalid_request")
        data = world.exchange("cid_other", "x")
        two = await client.post("/oauth/token", data=data, auth=(client_id, secret))
        assert_refused(two, 400, "invalid_request")
        for header in ("Bearer x", "Basic", "Basic !", "Basic " + base64.b64encode(b"x").decode()):
            response = await client.post(
                "/oauth/token", data=data, headers={"authorization": header}
            )
            assert_refused(response, 401, "invalid_client")


async def refresh(client: Any, client_id: str, tokens: dict[str, Any], **more: str) -> Any:
    data = {
        "grant_type": "refresh_token",
        "client_id": client_id,
        "refresh_token": tokens["refresh_token"],
        **more,
    }
    return await client.post("/oauth/token", data=data)


def assert_refused(response: Any, status: int, error: str) -> None:
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error", "error_description"}
    assert body["error"] == error
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["content-type"] == "application/json"
    assert_plain(body["error_description"])


def assert_plain(text: str) -> None:
    for leak in ("Traceback", "sqlite", "apsw", 'File "', "/work", "/tmp", ".py", ".db"):
        assert leak not in text
