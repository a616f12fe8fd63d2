"""The whole way: discovery, registration, login, consent, tokens, for each client that we know."""

from __future__ import annotations

import json
import time
from urllib.parse import urlencode

import pytest
import time_machine

from commonplace.engine.history import audit

from .conftest import CALLBACK, PASSWORD, VERIFIER, World

pytestmark = pytest.mark.anyio

# What the hosted clients and the well-known programs send, as their documents say.
CLIENTS = {
    "Claude": (
        "https://claude.ai/oauth/mcp-oauth-client-metadata",
        ["https://claude.ai/api/mcp/auth_callback"],
        "https://claude.ai/api/mcp/auth_callback",
        {},
    ),
    "Claude at claude.com": (
        "https://claude.com/oauth/mcp-oauth-client-metadata",
        ["https://claude.com/api/mcp/auth_callback"],
        "https://claude.com/api/mcp/auth_callback",
        {},
    ),
    "Claude Code": (
        "https://claude.ai/oauth/claude-code-client-metadata",
        ["http://localhost/callback", "http://127.0.0.1/callback"],
        "http://localhost:60351/callback",
        {},
    ),
    "ChatGPT": (
        "https://chatgpt.com/oauth/client.json",
        ["https://chatgpt.com/connector_platform_oauth_redirect"],
        "https://chatgpt.com/connector_platform_oauth_redirect",
        {
            "token_endpoint_auth_method": "private_key_jwt",
            "token_endpoint_auth_methods_supported": ["none", "private_key_jwt"],
            "token_endpoint_auth_signing_alg": "RS256",
            "jwks_uri": "https://chatgpt.com/oauth/jwks.json",
        },
    ),
    "ChatGPT's own connector": (
        "https://chatgpt.com/oauth/kDmjx77UnKOM/client.json",
        ["https://chatgpt.com/connector/oauth/kDmjx77UnKOM"],
        "https://chatgpt.com/connector/oauth/kDmjx77UnKOM",
        {
            "token_endpoint_auth_method": "private_key_jwt",
            "token_endpoint_auth_methods_supported": ["none", "private_key_jwt"],
        },
    ),
    "Cursor": (
        "https://cursor.com/oauth/client.json",
        ["cursor://anysphere.cursor-mcp/oauth/callback"],
        "cursor://anysphere.cursor-mcp/oauth/callback",
        {},
    ),
}


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("way", ["registered", "document"])
async def test_each_known_client_connects(world: World, name: str, way: str) -> None:
    document_url, redirect_uris, used, more = CLIENTS[name]
    described = {
        "client_name": name,
        "redirect_uris": redirect_uris,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    async with world.client() as client:
        if way == "registered":
            # A program on this machine registers the port that it listens on.
            registered = await client.post(
                "/oauth/register", json={**described, "redirect_uris": [used]}
            )
            client_id = registered.json()["client_id"]
            assert "client_secret" not in registered.json()
        else:
            client_id = document_url
            body = json.dumps({**described, **more, "client_id": document_url})
            world.web.put(document_url, body.encode())
        parameters = world.request(
            client_id, redirect_uri=used, scope=" offline_access", prompt="consent"
        )
        browser = await world.log_in(client, parameters)
        assert name in browser.page.text
        await browser.press("allow")
        assert browser.response is not None
        assert browser.response.status_code == 303  # a callback is fetched, not posted to
        assert browser.sent_to.startswith(used + "?")
        assert browser.answer["state"] == parameters["state"]
        assert browser.answer["iss"] == world.issuer
        answer = await client.post(
            "/oauth/token",
            data=world.exchange(client_id, browser.answer["code"], redirect_uri=used),
        )
        assert answer.status_code == 200, answer.text
        tokens = answer.json()
        assert world.alive(tokens["access_token"])
        again = await client.post(
            "/oauth/token",
            data={
                "grant_type": "refresh_token",
                "client_id": client_id,
                "refresh_token": tokens["refresh_token"],
            },
        )
        assert again.status_code == 200, again.text
        assert world.alive(again.json()["access_token"])
        assert not world.alive(tokens["access_token"])


async def test_the_token_says_what_was_allowed_and_nothing_more(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        tokens = await world.tokens(client, client_id)
    assert set(tokens) == {"access_token", "token_type", "expires_in", "scope", "refresh_token"}
    assert tokens["token_type"] == "Bearer"
    assert tokens["expires_in"] == 3600
    assert tokens["scope"] == "read write"
    credential = world.credentials.find(tokens["access_token"])
    assert tokens["access_token"].startswith("cpo_")
    assert credential.scopes == {"read", "write"}
    assert credential.dialects == frozenset({"mama"})
    assert (credential.user, credential.space) == ("anna", "anna")
    assert credential.resource == f"{world.issuer}/mcp/mama"
    assert credential.client == client_id
    assert not world.alive(tokens["access_token"], "/mcp/penfield")


async def test_a_person_can_allow_less_than_was_asked(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        browser = await world.log_in(client, world.request(client_id, scope=None))
        await browser.press("allow", scope__delete="UNTICKED", scope__write="UNTICKED")
        code = browser.answer["code"]
        answer = await client.post("/oauth/token", data=world.exchange(client_id, code))
    assert answer.json()["scope"] == "read"
    assert world.credentials.find(answer.json()["access_token"]).scopes == {"read"}


async def test_who_owns_several_spaces_chooses_one(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        browser = await world.log_in(client, world.request(client_id), "bert")
        assert [i["value"] for i in browser.page.inputs if i["name"] == "space"] == ["bert", "work"]
        await browser.press("allow", space="anna")
        assert "Choose one of your spaces." in browser.page.text
        await browser.press("allow", space="work")
        data = world.exchange(client_id, browser.answer["code"])
        answer = await client.post("/oauth/token", data=data)
    assert world.credentials.find(answer.json()["access_token"]).space == "work"


async def test_a_token_for_a_being_is_bound_to_it(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        resource = f"{world.issuer}/mcp"
        parameters = world.request(client_id, resource=resource, scope="being:full")
        browser = await world.log_in(client, parameters)
        await browser.press("allow", subject="../x")
        assert "Say which being" in browser.page.text
        await browser.press("allow", subject="aria-1")
        data = world.exchange(client_id, browser.answer["code"], resource=resource)
        tokens = (await client.post("/oauth/token", data=data)).json()
        assert tokens["access_token"].startswith("bto_")
        assert tokens["refresh_token"].startswith("btr_")
        credential = world.credentials.find(tokens["access_token"])
        assert (credential.subject, credential.dialects) == ("aria-1", frozenset({"being"}))


async def test_a_being_in_the_resource_is_the_one(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        resource = f"{world.issuer}/mcp/aria-2"
        parameters = world.request(client_id, resource=resource, scope=None)
        browser = await world.log_in(client, parameters)
        assert "As the being aria-2" in browser.page.text
        await browser.press("allow", subject="another")
        data = world.exchange(client_id, browser.answer["code"], resource=resource)
        tokens = (await client.post("/oauth/token", data=data)).json()
    assert world.credentials.find(tokens["access_token"]).subject == "aria-2"


async def test_who_says_no_is_taken_at_their_word(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        browser = await world.log_in(client, world.request(client_id))
        await browser.press("deny")
        assert browser.answer["error"] == "access_denied"
        assert browser.answer["state"] == world.request(client_id)["state"]
        assert browser.answer["iss"] == world.issuer
        assert "code" not in browser.answer


async def test_cancelling_the_login_tells_the_client(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        browser = world.browser(client)
        await browser.open(f"/oauth/authorize?{urlencode(world.request(client_id))}")
        await browser.press("leave")
        assert browser.answer["error"] == "access_denied"


@pytest.mark.parametrize("method", ["client_secret_post", "client_secret_basic"])
async def test_a_client_with_a_secret_has_to_know_it(world: World, method: str) -> None:
    async with world.client() as client:
        registered = await world.register(client, token_endpoint_auth_method=method)
        client_id, secret = registered["client_id"], registered["client_secret"]
        assert registered["client_secret_expires_at"] == 0
        code = await world.code(client, world.request(client_id))
        data = world.exchange(client_id, code)
        for wrong in (
            await client.post("/oauth/token", data=data),
            await client.post("/oauth/token", data={**data, "client_secret": secret[:-1]}),
            await client.post("/oauth/token", data=data, auth=(client_id, "wrong")),
        ):
            assert wrong.status_code == 401
            assert wrong.json()["error"] == "invalid_client"
        if method == "client_secret_post":
            right = await client.post("/oauth/token", data={**data, "client_secret": secret})
        else:
            assert wrong.headers["www-authenticate"].startswith("Basic")
            del data["client_id"]
            right = await client.post("/oauth/token", data=data, auth=(client_id, secret))
        assert right.status_code == 200, right.text


async def test_no_secret_is_stored_anywhere(world: World) -> None:
    async with world.client() as client:
        registered = await world.register(client, token_endpoint_auth_method="client_secret_post")
        client_id = registered["client_id"]
        browser = await world.log_in(client, world.request(client_id))
        cookie = client.cookies["__Host-commonplace_login"]
        await browser.press("allow")
        data = world.exchange(client_id, browser.answer["code"])
        secret = registered["client_secret"]
        tokens = (await client.post("/oauth/token", data={**data, "client_secret": secret})).json()
    kept = b"".join(path.read_bytes() for path in world.data.glob("system.db*"))
    assert client_id.encode() in kept
    for text in (
        secret, browser.answer["code"], tokens["access_token"], tokens["refresh_token"], cookie,
        PASSWORD, VERIFIER,
    ):  # fmt: skip
        assert text.encode() not in kept
        assert text[8:24].encode() not in kept


async def test_a_client_without_refresh_tokens_gets_none(world: World) -> None:
    async with world.client() as client:
        registered = await world.register(client, grant_types=["authorization_code"])
        tokens = await world.tokens(client, registered["client_id"])
    assert "refresh_token" not in tokens


async def test_a_connection_can_be_seen_and_ended(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        tokens = await world.tokens(client, client_id)
        families = world.oauth.families.listing("anna")
        assert [(f.client_name, f.space) for f in families] == [("Test client", "anna")]
        assert world.oauth.families.listing("bert") == []
        with world.store.maintain() as rows:
            world.oauth.families.revoke_in_transaction(rows, families[0].id)
        assert world.oauth.families.listing() == []
        assert not world.alive(tokens["access_token"])
        refresh = {
            "grant_type": "refresh_token",
            "client_id": client_id,
            "refresh_token": tokens["refresh_token"],
        }
        assert (await client.post("/oauth/token", data=refresh)).json()["error"] == "invalid_grant"


async def test_a_redirect_keeps_its_own_query(world: World) -> None:
    async with world.client() as client:
        uri = CALLBACK + "?tenant=a%20b"
        client_id = (await world.register(client, redirect_uris=[uri]))["client_id"]
        browser = await world.log_in(client, world.request(client_id, redirect_uri=uri))
        await browser.press("allow")
        assert browser.sent_to.startswith(uri + "&code=")


async def test_what_happens_here_is_written_down(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        browser = world.browser(client)
        await browser.open(f"/oauth/authorize?{urlencode(world.request(client_id))}")
        await browser.press("login", name="anna", password="not the password")
        tokens = await world.tokens(client, client_id)
        refresh = {
            "grant_type": "refresh_token",
            "client_id": client_id,
            "refresh_token": tokens["refresh_token"],
        }
        assert (await client.post("/oauth/token", data=refresh)).status_code == 200
        with time_machine.travel(time.time() + 61):
            assert (await client.post("/oauth/token", data=refresh)).status_code == 400
    rows = [(row.tool, row.success, row.error[:13]) for row in audit.listing(world.store)][::-1]
    assert rows == [
        ("register", True, ""),
        ("log in", False, "wrong name or"),
        ("log in", True, ""),
        ("allow", True, ""),
        ("token", True, ""),
        ("token", True, ""),
        ("token", False, "invalid_grant"),
    ]
    assert audit.verify(world.store).faults == ()
    allowed = audit.listing(world.store, tool="allow")[0]
    assert (allowed.caller, allowed.client) == ("anna", client_id)
    assert allowed.arguments["scopes"] == ["read", "write"]


@pytest.mark.parametrize("path", ["/mcp/penfield", "/api/v2", "/mcp/mama", "/mcp/commonplace"])
@pytest.mark.parametrize("scope", ["read write", "read write offline_access", None])
async def test_penfield_gives_a_refresh_token_only_to_who_asks_for_offline_access(
    world: World, path: str, scope: str | None
) -> None:
    resource = world.issuer + path
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        code = await world.code(client, world.request(client_id, resource=resource, scope=scope))
        given = world.exchange(client_id, code, resource=resource)
        tokens = (await client.post("/oauth/token", data=given)).json()
    assert world.alive(tokens["access_token"], path)
    penfield = path in ("/mcp/penfield", "/api/v2")
    # Who names no scope asks for all that the resource names.
    asked = scope is None or "offline_access" in scope
    assert ("refresh_token" in tokens) is (asked or not penfield)
    assert ("offline_access" in tokens["scope"]) is (asked and (penfield or scope is not None))
