"""The pages: what they show, what protects them, and who gets past them."""

from __future__ import annotations

import re
import threading
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import time_machine

from commonplace.access.accounts import Account
from commonplace.access.oauth.clients import clean_name
from commonplace.access.oauth.logins import Lockout

from .browsing import Browser, read
from .conftest import CALLBACK, PASSWORD, World

pytestmark = pytest.mark.anyio
COOKIE = "__Host-commonplace_login"
FORM = {"content-type": "application/x-www-form-urlencoded"}


async def login_page(world: World, client: httpx.AsyncClient, **changes: Any) -> Browser:
    client_id = (await world.register(client, **changes))["client_id"]
    uri = changes.get("redirect_uris", [CALLBACK])[0]
    query = urlencode(world.request(client_id, redirect_uri=uri))
    return await world.browser(client).open(f"/oauth/authorize?{query}")


async def consent_page(world: World, client: httpx.AsyncClient, **changes: Any) -> Browser:
    browser = await login_page(world, client, **changes)
    return await browser.press("login", name="anna", password=PASSWORD)


async def post(client: httpx.AsyncClient, fields: dict[str, str], **headers: str) -> httpx.Response:
    sent = {**FORM, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return await client.post("/oauth/authorize", content=urlencode(fields), headers=sent)


def shown(browser: Browser) -> httpx.Response:
    assert browser.response is not None
    return browser.response


async def test_no_page_can_be_framed_scripted_or_kept(world: World) -> None:
    async with world.client() as client:
        login, consent = await login_page(world, client), await consent_page(world, client)
        refusal = await world.browser(client).open("/oauth/authorize")
        for browser in (login, consent, refusal):
            response = shown(browser)
            policy = dict(
                part.strip().split(" ", 1)
                for part in response.headers["content-security-policy"].split(";")
            )
            assert policy["default-src"] == "'none'"
            assert policy["frame-ancestors"] == "'none'"
            assert policy["base-uri"] == "'none'"
            assert policy["style-src"] == "'self'"
            assert "script-src" not in policy
            assert response.headers["x-frame-options"] == "DENY"
            assert response.headers["cache-control"] == "no-store"
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["referrer-policy"] == "same-origin"
            assert not re.search(r"<script|\son\w+=|javascript:|style=", response.text, re.I)
            assert not re.search(r"(src|href)=[\"'](?!/oauth/)", response.text)


async def test_a_form_may_lead_to_us_and_to_the_client_only(world: World) -> None:
    async with world.client() as client:
        policies = {
            uri: shown(await login_page(world, client, redirect_uris=[uri]))
            .headers["content-security-policy"]
            .partition("form-action ")[2]
            for uri in (CALLBACK, "http://localhost:4/x", "http://[::1]:4/x", "cursor://x/y")
        }
        assert policies[CALLBACK] == "'self' https:"
        assert policies["http://localhost:4/x"] == "'self' http://localhost:* http://127.0.0.1:*"
        assert policies["http://[::1]:4/x"] == "'self' http:"
        assert policies["cursor://x/y"] == "'self' cursor:"


async def test_the_cookie_is_kept_to_this_site(world: World) -> None:
    async with world.client() as client:
        browser = await login_page(world, client)
        first = shown(browser).headers["set-cookie"]
        for part in ("HttpOnly", "SameSite=strict", "Secure", "Path=/", "Max-Age=600"):
            assert part in first
        assert first.startswith(COOKIE + "=")
        assert "domain" not in first.lower()
        before = client.cookies[COOKIE]
        await browser.press("login", name="anna", password=PASSWORD)
        assert client.cookies[COOKIE] != before  # one that was planted before is of no use


async def test_over_plain_http_the_cookie_has_another_name(world: World) -> None:
    world.issuer = "http://127.0.0.1:3847"
    world.__post_init__()
    async with world.client() as client:
        cookie = shown(await login_page(world, client)).headers["set-cookie"]
    assert cookie.startswith("commonplace_login=")
    assert "Secure" not in cookie


async def test_every_field_has_a_label(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        being = world.request(client_id, resource=f"{world.issuer}/mcp", scope=None)
        several = world.request(client_id, scope=None)
        pages = [shown(await login_page(world, client))]
        for parameters in (being, several):
            browser = await world.log_in(client, parameters, "bert")
            pages.append(shown(browser))
            await browser.press("deny")
    for response in pages:
        page = read(response.text)
        for field in page.inputs:
            if field.get("type") != "hidden":
                assert field.get("id", field["name"]) in page.labels, field
        assert '<html lang="en">' in response.text
        assert "<h1>" in response.text


async def test_the_page_says_who_asks_and_for_what(world: World) -> None:
    async with world.client() as client:
        text = (await consent_page(world, client)).page.text
    assert "“Test client” wants to connect to your memory through MAMA." in text
    assert "nobody has checked it" in text
    assert "Search and read everything in the space" in text
    assert "Store new memories" in text
    assert "Delete memories" not in text  # was not asked for
    assert "In your space anna only." in text
    assert "sent to client.example" in text
    assert "Logged in as anna" in text


async def test_a_program_on_this_machine_is_told_apart(world: World) -> None:
    async with world.client() as client:
        browser = await consent_page(world, client, redirect_uris=["http://127.0.0.1:7/x"])
    assert "a program on this computer" in browser.page.text
    assert "only if you have just started this" in browser.page.text


NAMES = {
    "<script>alert(1)</script>": "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>': '"><img src=x onerror=alert(1)>',
    "'; DROP TABLE clients": "'; DROP TABLE clients",
    "a\u202eevil\u2066": "a evil",
    "two\r\nlines\u2028three": "two lines three",
    "zero\u200bwidth\ufeff": "zero width",
    "\0nul\x1b[31m": "nul [31m",
    "x" * 500: "x" * 80,
    "": "client.example",
    " \u3000 ": "client.example",
}


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_is_only_ever_text(world: World, name: str) -> None:
    async with world.client() as client:
        browser = await consent_page(world, client, client_name=name)
    assert f"“{NAMES[name]}”" in browser.page.text
    assert "<script" not in shown(browser).text
    assert "<img" not in shown(browser).text


def test_a_clean_name_stays_as_it_is() -> None:
    for name in ("Claude", "日本語 クライアント", "Ünïcode & Söhne (v2)"):
        assert clean_name(name) == name


async def test_what_a_person_typed_is_shown_as_text(world: World) -> None:
    async with world.client() as client:
        browser = await login_page(world, client)
        await browser.press("login", name='"><script>x</script>', password="wrong password")
        assert "<script" not in shown(browser).text
        assert browser.page.fields["name"] == '"><script>x</script>'
        assert "wrong password" not in shown(browser).text


# Forged forms


async def test_a_forged_form_does_nothing(world: World) -> None:
    async with world.client() as client:
        browser = await consent_page(world, client)
        good = {**browser.page.fields, "action": "allow"}
        wrong: dict[str, tuple[dict[str, str], dict[str, str]]] = {
            "no token": ({**good, "token": ""}, {}),
            "another token": ({**good, "token": "0" * 64}, {}),
            "a token that is not ascii": ({**good, "token": "é"}, {}),
            "another request": ({**good, "request": good["request"] + "&x=1"}, {}),
            "no request": ({**good, "request": ""}, {}),
            "an unknown button": ({**good, "action": "give"}, {}),
            "no button": ({**good, "action": ""}, {}),
            "the login's button": ({**good, "action": "login", "name": "bert"}, {}),
            "another origin": (good, {"origin": "https://evil.example"}),
            "no origin at all": (good, {"origin": "null"}),
            "another scheme": (good, {"origin": "http://memory.example"}),
            "another port": (good, {"origin": "https://memory.example:8443"}),
            "another site": (good, {"sec_fetch_site": "cross-site"}),
            "another host of the site": (good, {"sec_fetch_site": "same-site"}),
        }
        for name, (fields, headers) in wrong.items():
            response = await post(client, fields, **headers)
            assert response.status_code == 403, name
            assert "location" not in response.headers, name
        saved = client.cookies[COOKIE]
        for cookie in ("", "x", saved[:-1] + ("A" if saved[-1] != "A" else "B")):
            client.cookies.set(COOKIE, cookie, domain="memory.example")
            client.cookies.clear()
            response = await post(client, good, cookie=f"{COOKIE}={cookie}")
            assert response.status_code == 403, cookie
        assert world.oauth.families.listing() == []
        right = await post(client, good, cookie=f"{COOKIE}={saved}")
        assert right.status_code == 303


async def test_a_form_must_be_a_form(world: World) -> None:
    async with world.client() as client:
        browser = await consent_page(world, client)
        fields = {**browser.page.fields, "action": "allow"}
        for given in ({"json": fields}, {"files": {k: (None, v) for k, v in fields.items()}}):
            response = await client.post("/oauth/authorize", **given)
            assert response.status_code == 400
            assert "location" not in response.headers


async def test_a_token_of_one_request_is_not_good_for_another(world: World) -> None:
    async with world.client() as client:
        first = await consent_page(world, client)
        evil = (await world.register(client, redirect_uris=["https://evil.example/x"]))["client_id"]
        query = urlencode(world.request(evil, redirect_uri="https://evil.example/x"))
        response = await post(client, {**first.page.fields, "action": "allow", "request": query})
        assert response.status_code == 403


async def test_a_login_lasts_ten_minutes_and_one_answer(world: World) -> None:
    with time_machine.travel("2027-01-01T00:00:00Z", tick=False) as clock:
        async with world.client() as client:
            browser = await consent_page(world, client)
            fields = {**browser.page.fields, "action": "allow"}
            cookie = client.cookies[COOKIE]
            clock.shift(601)
            late = await post(client, fields, cookie=f"{COOKIE}={cookie}")
            assert "Log in again" in late.text
        async with world.client() as client:
            browser = await consent_page(world, client)
            fields, cookie = browser.page.fields, client.cookies[COOKIE]
            await browser.press("allow")
            assert COOKIE not in client.cookies
            again = await post(client, {**fields, "action": "allow"}, cookie=f"{COOKIE}={cookie}")
            assert "Log in again" in again.text


async def test_who_is_not_who_logged_in_can_change_that(world: World) -> None:
    async with world.client() as client:
        browser = await consent_page(world, client)
        await browser.press("switch")
        assert browser.page.buttons == ["login", "leave"]
        await browser.press("login", name="bert", password=PASSWORD)
        assert "Logged in as bert" in browser.page.text


async def test_nothing_can_be_allowed_without_a_choice(world: World) -> None:
    async with world.client() as client:
        browser = await consent_page(world, client)
        await browser.press("allow", scope__read="UNTICKED", scope__write="UNTICKED")
        assert "Allow at least one permission" in browser.page.text
        await browser.press("allow", scope__admin="yes", scope__delete="yes")
        assert browser.answer["code"]
    with world.store.read() as connection:
        row = connection.execute("SELECT scopes FROM oauth_families").fetchall()
    assert row == [('["read", "write"]',)]  # what was not asked for cannot be added


# Guessing


async def test_a_wrong_password_and_an_unknown_name_look_alike(world: World) -> None:
    async with world.client() as client:
        browser = await login_page(world, client)
        texts = []
        for name in ("anna", "nobody"):
            await browser.press("login", name=name, password="wrong password")
            assert shown(browser).status_code == 403
            texts.append(browser.page.text)
        assert texts[0] == texts[1]
        assert "The name or the password is not right." in texts[0]


async def test_passwords_are_looked_at_outside_the_event_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    verify = world.accounts.verify

    def watched(name: str, password: str) -> Account | None:
        threads.append(threading.current_thread())
        return verify(name, password)

    monkeypatch.setattr(world.accounts, "verify", watched)
    async with world.client() as client:
        await (await login_page(world, client)).press("login", name="nobody", password="x")
        await consent_page(world, client)
    assert len(threads) == 2  # for somebody who is not there, too
    assert threading.main_thread() not in threads


async def test_guessing_is_locked_out(world: World) -> None:
    async with world.client() as client:
        browser = await login_page(world, client)
        for _ in range(6):
            await browser.press("login", name="anna", password="wrong password")
            assert shown(browser).status_code == 403
        await browser.press("login", name="anna", password=PASSWORD)
        assert shown(browser).status_code == 429
        assert int(shown(browser).headers["retry-after"]) > 0
        assert "Too many tries" in browser.page.text
    async with world.client("198.51.100.99") as client:  # the right person, elsewhere
        assert "allow" in (await consent_page(world, client)).page.buttons


def test_locks_grow_and_are_forgotten() -> None:
    clock = [0.0]
    lockout = Lockout(lambda: clock[0])
    for _ in range(6):
        assert lockout.count_attempt("anna", "a") == 0
    waits = []
    for _ in range(8):
        wait = lockout.count_attempt("anna", "a")
        waits.append(wait)
        clock[0] += wait
        assert lockout.count_attempt("anna", "a") == 0
    assert waits[:3] == [31, 61, 121]
    assert waits[-1] == 901
    clock[0] += 3601
    assert lockout.count_attempt("anna", "a") == 0


def test_one_address_cannot_try_many_names() -> None:
    lockout = Lockout(lambda: 0.0)
    waits = [lockout.count_attempt(f"name {number}", "a") for number in range(40)]
    assert waits[:21] == [0] * 21
    assert all(waits[21:])


def test_many_addresses_cannot_try_one_name_for_ever() -> None:
    lockout = Lockout(lambda: 0.0)
    waits = [lockout.count_attempt("anna", f"address {number}") for number in range(200)]
    assert waits.count(0) == 101


def test_success_forgets_the_tries_before_it() -> None:
    lockout = Lockout(lambda: 0.0)
    for _ in range(5):
        lockout.count_attempt("anna", "a")
    lockout.record_success("anna", "a")
    assert [lockout.count_attempt("anna", "a") for _ in range(6)] == [0] * 6


def test_a_flood_of_names_does_not_grow_without_end() -> None:
    lockout = Lockout(lambda: 0.0)
    for number in range(60_000):
        lockout.count_attempt(f"{number}", f"{number}")
    assert len(lockout._counts) <= 50_000


async def test_visits_are_limited(world: World) -> None:
    async with world.client() as client:
        statuses = [(await client.get("/oauth/authorize")).status_code for _ in range(140)]
    assert statuses[0] == 400
    assert statuses[-1] == 429


async def test_a_fault_shows_nothing_of_its_cause(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("/secret/path/system.db")

    monkeypatch.setattr(world.oauth.clients, "find", broken)
    async with world.client() as client:
        page = await client.get("/oauth/authorize", params={"client_id": "x"})
        assert page.status_code == 500
        token = await client.post("/oauth/token", data={"client_id": "x", "grant_type": "x"})
        assert token.status_code == 500
        assert token.json()["error"] == "server_error"
        for text in (page.text, token.text):
            assert "secret" not in text
            assert "Traceback" not in text
