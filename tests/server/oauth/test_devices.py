"""Devices that show a code (RFC 8628): asking, typing it in, waiting, and every way it ends."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest
import time_machine

from commonplace.access.oauth import MacRows
from commonplace.access.oauth.devices import (
    CODE_ALPHABET,
    DEVICE_SECONDS,
    POLL_SECONDS,
    SLOW_DOWN_SECONDS,
    DeviceRequest,
    Devices,
    normalise_user_code,
)
from commonplace.access.oauth.errors import OAuthError
from commonplace.access.oauth.resources import DEVICE_CODE
from commonplace.access.oauth.server import form_token, new_cookie
from commonplace.engine.history import audit

from .browsing import Browser
from .conftest import CALLBACK, PASSWORD, World
from .test_broken_requests import assert_refused, refresh

pytestmark = pytest.mark.anyio
REST = "/api/v2"


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock(world: World) -> Clock:
    found = Clock()
    world.oauth.devices = Devices(
        world.store, MacRows(world.vault), world.oauth.families, clock=found
    )
    return found


async def on_device(world: World, client: httpx.AsyncClient, **changes: Any) -> str:
    """The id of a client as Penfield's own programs register themselves."""
    body = {
        "client_name": "Terminal",
        "redirect_uris": ["http://localhost:8080/callback"],
        "grant_types": [DEVICE_CODE, "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "scope": "read write offline_access",
    }
    response = await client.post("/oauth/register", json={**body, **changes})
    assert response.status_code == 201, response.text
    return str(response.json()["client_id"])


async def ask(client: httpx.AsyncClient, client_id: str, /, **changes: str) -> httpx.Response:
    data = {"client_id": client_id, "scope": "read write offline_access", **changes}
    return await client.post("/oauth/device_authorization", data=data)


async def start(client: httpx.AsyncClient, client_id: str, **changes: str) -> dict[str, Any]:
    response = await ask(client, client_id, **changes)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


async def poll(
    client: httpx.AsyncClient, client_id: str, started: dict[str, Any], /, **changes: str
) -> httpx.Response:
    data = {
        "grant_type": DEVICE_CODE,
        "client_id": client_id,
        "device_code": started["device_code"],
        **changes,
    }
    return await client.post("/oauth/token", data=data)


async def to_consent(world: World, client: httpx.AsyncClient, code: str) -> Browser:
    browser = await world.browser(client).open("/oauth/device")
    await browser.press("find", code=code)
    await browser.press("login", name="anna", password=PASSWORD)
    assert "allow" in browser.page.buttons, browser.page.text
    return browser


async def test_a_device_is_connected_as_penfields_programs_do_it(world: World) -> None:
    async with world.client() as client:
        found = (await client.get("/.well-known/oauth-authorization-server")).json()
        assert found["device_authorization_endpoint"] == (
            world.issuer + "/oauth/device_authorization"
        )
        assert DEVICE_CODE in found["grant_types_supported"]
        client_id = await on_device(world, client)
        started = await start(client, client_id)
        assert started.keys() == {
            "device_code", "user_code", "verification_uri", "verification_uri_complete",
            "expires_in", "interval",
        }  # fmt: skip
        assert re.fullmatch(rf"[{CODE_ALPHABET}]{{4}}-[{CODE_ALPHABET}]{{4}}", started["user_code"])
        assert (started["expires_in"], started["interval"]) == (900, 5)
        assert started["verification_uri"] == f"{world.issuer}/oauth/device"
        assert started["verification_uri_complete"].endswith(f"?user_code={started['user_code']}")
        assert_refused(await poll(client, client_id, started), 400, "authorization_pending")

        async with world.client("203.0.113.9") as elsewhere:  # the person's own browser
            browser = await world.browser(elsewhere).open(started["verification_uri_complete"])
            assert browser.page.fields["code"] == started["user_code"]
            await browser.press("find")
            assert "“Terminal” wants to connect" in browser.page.text
            await browser.press("login", name="anna", password=PASSWORD)
            text = browser.page.text
            assert "through Penfield's REST interface" in text
            assert (
                f"only if you have just started this yourself and it shows {started['user_code']}"
                in text
            )
            assert "change or delete those that are there" in text
            await browser.press("allow")
            assert "The device is connected" in browser.page.text
            assert not browser.page.buttons
            assert not elsewhere.cookies  # one answer, and the login is over

        answer = await poll(client, client_id, started)
        assert answer.status_code == 200, answer.text
        tokens = answer.json()
        assert tokens["token_type"] == "Bearer"
        assert tokens["scope"] == "read write offline_access"
        assert world.alive(tokens["access_token"], REST)
        assert not world.alive(tokens["access_token"], "/mcp/penfield")
        caller = world.credentials.recognise(tokens["access_token"])
        assert (caller.user, caller.space) == ("anna", "anna")
        assert caller.dialects == {"penfield"}
        assert caller.scopes == {"read", "write"}
        again = await refresh(client, client_id, tokens)
        assert world.alive(again.json()["access_token"], REST)


async def test_a_device_that_does_not_ask_for_offline_access_gets_no_refresh_token(
    world: World,
) -> None:
    async with world.client() as client:
        client_id = await on_device(world, client)
        started = await start(client, client_id, scope="read write")
        await (await to_consent(world, client, started["user_code"])).press("allow")
        tokens = (await poll(client, client_id, started)).json()
    assert world.alive(tokens["access_token"], REST)
    assert "refresh_token" not in tokens


async def test_another_resource_can_be_asked_for(world: World) -> None:
    mama = f"{world.issuer}/mcp/mama"
    async with world.client() as client:
        client_id = await on_device(world, client)
        started = await start(client, client_id, resource=mama, scope="read")
        assert_refused(
            await poll(client, client_id, started, resource=world.issuer + REST),
            400,
            "invalid_target",
        )
        await (await to_consent(world, client, started["user_code"])).press("allow")
        tokens = (await poll(client, client_id, started, resource=mama)).json()
        assert world.alive(tokens["access_token"])
        assert tokens["scope"] == "read"


async def test_a_person_may_allow_less_and_choose_the_space(world: World) -> None:
    async with world.client() as client:
        client_id = await on_device(world, client)
        started = await start(client, client_id)
        browser = await world.browser(client).open("/oauth/device")
        await browser.press("find", code=started["user_code"].lower().replace("-", " "))
        await browser.press("login", name="bert", password=PASSWORD)
        await browser.press("allow", scope__write="UNTICKED", space="nobody's")
        assert "Choose one of your spaces" in browser.page.text
        assert_refused(await poll(client, client_id, started), 400, "authorization_pending")
        await browser.press("allow", scope__write="UNTICKED", space="work")
        tokens = (await poll(client, client_id, started)).json()
        caller = world.credentials.recognise(tokens["access_token"])
        assert (caller.space, caller.scopes) == ("work", {"read"})


async def test_who_says_no_is_taken_at_their_word(world: World) -> None:
    async with world.client() as client:
        client_id = await on_device(world, client)
        started = await start(client, client_id)
        browser = await to_consent(world, client, started["user_code"])
        await browser.press("deny")
        assert "was not allowed to connect" in browser.page.text
        for _ in range(2):
            assert_refused(await poll(client, client_id, started), 400, "access_denied")
        left = await start(client, client_id)
        browser = await world.browser(client).open("/oauth/device")
        await browser.press("find", code=left["user_code"])
        await browser.press("leave")
        assert_refused(await poll(client, client_id, left), 400, "access_denied")
        browser = await world.browser(client).open("/oauth/device")
        await browser.press("find", code=left["user_code"])
        assert "No device shows that code" in browser.page.text


async def test_not_you_logs_out_and_asks_again(world: World) -> None:
    async with world.client() as client:
        started = await start(client, await on_device(world, client))
        browser = await to_consent(world, client, started["user_code"])
        await browser.press("switch")
        assert "login" in browser.page.buttons
        await browser.press("login", name="bert", password=PASSWORD)
        assert "Logged in as bert" in browser.page.text


async def test_who_asks_too_often_has_to_slow_down(world: World, clock: Clock) -> None:
    async with world.client() as client:
        client_id = await on_device(world, client)
        started, other = await start(client, client_id), await start(client, client_id)

        async def asked_after(seconds: float) -> str:
            clock.at += seconds
            return str((await poll(client, client_id, started)).json()["error"])

        assert await asked_after(0) == "authorization_pending"
        assert await asked_after(POLL_SECONDS) == "authorization_pending"
        assert await asked_after(POLL_SECONDS - 1) == "slow_down"
        assert await asked_after(POLL_SECONDS) == "slow_down"  # it is ten by then
        assert await asked_after(POLL_SECONDS + 2 * SLOW_DOWN_SECONDS) == "authorization_pending"
        assert_refused(await poll(client, client_id, other), 400, "authorization_pending")
        await (await to_consent(world, client, started["user_code"])).press("allow")
        answer = await poll(client, client_id, started)  # early, and nothing to wait for
        assert answer.status_code == 200


async def test_a_device_waits_for_fifteen_minutes(world: World) -> None:
    async with world.client() as client:
        with time_machine.travel("2027-01-01T00:00:00Z", tick=False) as time:
            client_id = await on_device(world, client)
            started = await start(client, client_id)
            time.shift(DEVICE_SECONDS - 1)
            assert_refused(await poll(client, client_id, started), 400, "authorization_pending")
            browser = await to_consent(world, client, started["user_code"])
            time.shift(1)
            assert_refused(await poll(client, client_id, started), 400, "expired_token")
            await browser.press("allow")
            assert "No device shows that code" in browser.page.text
            assert browser.response is not None and browser.response.status_code == 400
            assert_refused(await poll(client, client_id, started), 400, "expired_token")
            time.shift(2 * 86_400)
            await start(client, client_id)
            assert_refused(await poll(client, client_id, started), 400, "invalid_grant")
        with world.store.read() as connection:
            assert connection.execute("SELECT count(*) FROM oauth_devices").fetchone() == (1,)
    assert world.oauth.families.listing() == []


async def test_a_device_code_used_twice_ends_the_connection(world: World) -> None:
    async with world.client() as client:
        client_id = await on_device(world, client)
        started = await start(client, client_id)
        await (await to_consent(world, client, started["user_code"])).press("allow")
        tokens = (await poll(client, client_id, started)).json()
        assert world.alive(tokens["access_token"], REST)
        assert_refused(await poll(client, client_id, started), 400, "invalid_grant")
        assert not world.alive(tokens["access_token"], REST)
        assert_refused(await refresh(client, client_id, tokens), 400, "invalid_grant")


async def test_of_many_at_once_one_gets_tokens(world: World) -> None:
    async with world.client() as client:
        client_id = await on_device(world, client)
        started = await start(client, client_id)
        await (await to_consent(world, client, started["user_code"])).press("allow")
        answers = await asyncio.gather(*(poll(client, client_id, started) for _ in range(6)))
        assert sorted(answer.status_code for answer in answers) == [200] + [400] * 5


async def test_a_person_who_is_removed_meanwhile_gives_nothing(world: World) -> None:
    async with world.client() as client:
        client_id = await on_device(world, client)
        started = await start(client, client_id)
        await (await to_consent(world, client, started["user_code"])).press("allow")
        world.accounts.remove("anna")
        assert_refused(await poll(client, client_id, started), 400, "invalid_grant")


BAD_ASKING = {
    "no client": ({"client_id": ""}, 400, "invalid_request"),
    "an unknown client": ({"client_id": "cid_nobody"}, 401, "invalid_client"),
    "an unknown scope": ({"scope": "read everything"}, 400, "invalid_scope"),
    "scopes that allow nothing": ({"scope": "profile"}, 400, "invalid_scope"),
    "no such resource": ({"resource": "https://memory.example/x"}, 400, "invalid_target"),
    "a part of a resource": (
        {"resource": "https://memory.example/api/v2/memories"}, 400, "invalid_target",
    ),
    "a secret it does not have": ({"client_secret": "x"}, 401, "invalid_client"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_ASKING)
async def test_a_bad_request_starts_nothing(world: World, name: str) -> None:
    changes, status, error = BAD_ASKING[name]
    async with world.client() as client:
        client_id = await on_device(world, client)
        assert_refused(await ask(client, client_id, **changes), status, error)
    with world.store.read() as connection:
        assert connection.execute("SELECT count(*) FROM oauth_devices").fetchone() == (0,)


async def test_penfields_other_scopes_are_taken_and_allow_nothing(world: World) -> None:
    async with world.client() as client:
        client_id = await on_device(world, client)
        started = await start(client, client_id, scope="read profile openid")
        await (await to_consent(world, client, started["user_code"])).press("allow")
        tokens = (await poll(client, client_id, started)).json()
        assert tokens["scope"] == "read"
        assert world.credentials.recognise(tokens["access_token"]).scopes == {"read"}


async def test_the_redirects_of_a_device_do_not_matter(world: World) -> None:
    async with world.client() as client:
        for redirects in (["http://localhost:0/callback"], ["nonsense"], [], "no list", [7]):
            body = {
                "redirect_uris": redirects,
                "grant_types": [DEVICE_CODE, "refresh_token"],
                "token_endpoint_auth_method": "none",
            }
            registered = await client.post("/oauth/register", json=body)
            assert registered.status_code == 201, registered.text
            assert registered.json()["redirect_uris"] == []
            started = await start(client, registered.json()["client_id"])
            assert started["user_code"]
            usual = {**body, "grant_types": ["authorization_code"], "redirect_uris": ["nonsense"]}
            refused = await client.post("/oauth/register", json=usual)
            assert_refused(refused, 400, "invalid_redirect_uri")


async def test_each_client_keeps_to_what_it_registered_for(world: World) -> None:
    async with world.client() as client:
        usual = (await world.register(client))["client_id"]
        assert_refused(await ask(client, usual), 400, "unauthorized_client")
        device = await on_device(world, client, redirect_uris=[CALLBACK])
        browser = world.browser(client)
        query = httpx.QueryParams(world.request(device))
        await browser.open(f"/oauth/authorize?{query}")
        assert "is not registered for redirects" in browser.page.text
        both = await on_device(
            world, client, redirect_uris=[CALLBACK],
            grant_types=["authorization_code", "refresh_token", DEVICE_CODE],
        )  # fmt: skip
        await start(client, both)
        await world.tokens(client, both)
        nowhere = await client.post(
            "/oauth/register", json={"client_name": "TV", "grant_types": [DEVICE_CODE]}
        )
        assert nowhere.json()["redirect_uris"] == []
        assert nowhere.json()["response_types"] == []
        started = await start(client, nowhere.json()["client_id"])
        await (await to_consent(world, client, started["user_code"])).press("allow")
        tokens = (await poll(client, nowhere.json()["client_id"], started)).json()
        assert "refresh_token" not in tokens


async def test_a_device_code_is_for_the_client_that_got_it(world: World) -> None:
    async with world.client() as client:
        mine, other = await on_device(world, client), await on_device(world, client)
        started = await start(client, mine)
        assert_refused(await poll(client, other, started), 400, "invalid_grant")
        made_up = {"device_code": "cpd_" + "x" * 43}
        assert_refused(await poll(client, mine, made_up), 400, "invalid_grant")
        assert_refused(await poll(client, mine, {"device_code": ""}), 400, "invalid_request")
        secret = await world.register(
            client, grant_types=[DEVICE_CODE], token_endpoint_auth_method="client_secret_post"
        )
        assert_refused(await ask(client, secret["client_id"]), 401, "invalid_client")
        await start(client, secret["client_id"], client_secret=secret["client_secret"])


async def test_only_so_many_devices_wait(world: World) -> None:
    few = Devices(world.store, MacRows(world.vault), world.oauth.families, most=2)
    device = DeviceRequest("cid_x", f"{world.issuer}{REST}", ("read",))
    with time_machine.travel("2027-01-01T00:00:00Z", tick=False) as time:
        codes = [few.begin(device).user_code for _ in range(2)]
        with pytest.raises(OAuthError) as full:
            few.begin(device)
        assert (full.value.status, full.value.error) == (503, "temporarily_unavailable")
        assert few.deny(codes[0])
        assert not few.deny(codes[0])
        few.begin(device)
        time.shift(DEVICE_SECONDS)
        few.begin(device)


async def test_one_address_starts_only_so_many(world: World) -> None:
    async with world.client() as client:
        client_id = await on_device(world, client)
        statuses = [(await ask(client, client_id)).status_code for _ in range(22)]
        assert statuses == [200] * 20 + [429] * 2
    async with world.client("198.51.100.8") as client:
        assert (await ask(client, client_id)).status_code == 200


async def test_codes_cannot_be_found_by_trying(world: World) -> None:
    async with world.client() as client:
        started = await start(client, await on_device(world, client))
        browser = await world.browser(client).open("/oauth/device")
        tried = []
        for _ in range(22):
            await browser.press("find", code="BBBB-BBBB")
            assert browser.response is not None
            tried.append(browser.response.status_code)
            if tried[-1] == 429:
                break
        assert tried == [404] * 20 + [429]
        assert int(browser.response.headers["retry-after"]) > 0
        # Nor past the page, by who makes up a cookie and the form for it.
        cookie = new_cookie()
        client.cookies.set("__Host-commonplace_login", cookie, domain="memory.example")
        code = started["user_code"]
        data = {"request": code, "action": "leave", "token": form_token(cookie, "login", code)}
        assert (await client.post("/oauth/device", data=data)).status_code == 429
        empty = {"action": "leave", "token": form_token(cookie, "login", "")}
        assert (await client.post("/oauth/device", data=empty)).status_code == 429


async def test_the_pages_take_nothing_from_elsewhere(world: World) -> None:
    async with world.client() as client:
        started = await start(client, await on_device(world, client))
        browser = await world.browser(client).open("/oauth/device")
        fields = {**browser.page.fields, "code": started["user_code"], "action": "find"}
        for wrong in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            answer = await client.post("/oauth/device", data=fields, headers=wrong)
            assert answer.status_code == 403
        for change in ({"token": "0" * 64}, {"action": "allow"}, {"action": "nothing"}):
            answer = await client.post("/oauth/device", data={**fields, **change})
            assert answer.status_code == 403
        client.cookies.clear()
        assert (await client.post("/oauth/device", data=fields)).status_code == 403
        shown = await client.get("/oauth/device?user_code=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
        assert "<script" not in shown.text
        policy = shown.headers["content-security-policy"]
        assert "form-action 'self'" in policy and "frame-ancestors 'none'" in policy
        assert (await client.get("/oauth/device?user_code=a&user_code=b")).status_code == 400
        browser = await to_consent(world, client, started["user_code"])
        assert browser.response is not None
        assert browser.response.headers["content-security-policy"].endswith("form-action 'self'")


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("BCDF-GHJK", "BCDF-GHJK"), ("bcdfghjk", "BCDF-GHJK"), (" bcdf - ghjk ", "BCDF-GHJK"),
        ("BCDF-GHJ", ""), ("BCDF-GHJKL", ""), ("BCDF-GHJA", ""), ("BCDF_GHJK", ""), ("", ""),
        ("BCDF-GHJK1", ""), ("ＢＣＤＦ-ＧＨＪＫ", ""),
    ],
)  # fmt: skip
def test_a_code_is_read_however_it_is_typed(typed: str, shown: str) -> None:
    assert normalise_user_code(typed) == shown


async def test_what_is_no_code_is_said(world: World) -> None:
    async with world.client() as client:
        browser = await world.browser(client).open("/oauth/device")
        await browser.press("find", code="hello")
        assert "eight letters" in browser.page.text
        assert browser.page.fields["code"] == "hello"


async def test_deciding_is_written_down_and_waiting_is_not(world: World) -> None:
    async with world.client() as client:
        client_id = await on_device(world, client)
        started, other = await start(client, client_id), await start(client, client_id)
        for _ in range(5):
            await poll(client, client_id, started)
        await (await to_consent(world, client, started["user_code"])).press("allow")
        tokens = (await poll(client, client_id, started)).json()
        await (await to_consent(world, client, other["user_code"])).press("deny")
        await poll(client, client_id, other)
    rows = [(row.tool, row.success) for row in audit.listing(world.store)][::-1]
    assert rows == [
        ("register", True), ("device", True), ("device", True),
        ("log in", True), ("allow", True), ("token", True),
        ("log in", True), ("deny", True), ("token", False),
    ]  # fmt: skip
    assert audit.verify(world.store).faults == ()
    denied = audit.listing(world.store, tool="deny")[0]
    assert (denied.caller, denied.client) == ("anna", client_id)
    kept = b"".join(path.read_bytes() for path in world.data.glob("system.db*"))
    for secret in (started["device_code"], started["user_code"], tokens["access_token"]):
        assert secret.encode() not in kept


async def test_a_row_that_was_changed_is_not_believed(world: World) -> None:
    async with world.client() as client:
        client_id = await on_device(world, client)
        started = await start(client, client_id)
        with world.store.maintain() as connection:
            connection.execute("UPDATE oauth_devices SET scopes = '[\"read\"]'")
        assert_refused(await poll(client, client_id, started), 400, "invalid_grant")
        browser = await world.browser(client).open("/oauth/device")
        await browser.press("find", code=started["user_code"])
        assert "No device shows that code" in browser.page.text
