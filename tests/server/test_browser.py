"""A browser signs in: the cookie, the CSRF token, and what neither lets through."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from commonplace.access.browser import (
    COOKIE,
    MOST_FORM_FIELDS,
    SESSION_SECONDS,
    BrowserSessions,
    csrf_token,
)
from commonplace.access.caller import FULL_SCOPES
from commonplace.access.credentials import SECOND, Grant, Unauthenticated
from commonplace.engine.commonplace import Commonplace
from commonplace.server.calls import ADMITTED
from commonplace.server.request import INLINE_BYTES, own_host_names
from server.harness import MCP, Answer, Client, Running, message, running

PASSWORD = "several words make a good one"
BEINGS = "/v1/beings"
"""A route that lists with GET and creates with POST."""


@pytest.fixture(scope="module")
def server(shared_data: Path) -> Iterator[Running]:
    with running(shared_data, require_token=True) as one:
        one.parts.accounts.add("anna", PASSWORD, ["anna", "team"])
        one.parts.accounts.add("bert", PASSWORD, ["bert"])
        yield one


@pytest.fixture
def anna(server: Running) -> Client:
    return session(server, "anna")


def session(server: Running, user: str, space: str = "", lifetime: float = 60) -> Client:
    """A browser with a session as signing in makes it, without the time that a password takes."""
    grant = Grant(user=user, space=space or user, lifetime=lifetime)
    cookie, _ = sessions_of(server).begin(grant)
    client = server.client()
    client.headers = {
        **origin_of(server),
        "cookie": f"{COOKIE}={cookie}",
        "x-csrf-token": csrf_token(cookie),
    }
    return client


def sessions_of(server: Running) -> BrowserSessions:
    return BrowserSessions(server.parts.tokens, server.settings.base_url)


def origin_of(server: Running) -> dict[str, str]:
    return {"origin": server.settings.base_url}


def create(client: Client, **headers: str) -> Answer:
    return client.request("POST", BEINGS, {"name": "Aria"}, headers)


def listed(client: Client) -> Answer:
    return client.request("GET", BEINGS)


@contextlib.contextmanager
def without(client: Client, name: str) -> Iterator[None]:
    """Without one of the client's headers."""
    taken = client.headers.pop(name)
    try:
        yield
    finally:
        client.headers[name] = taken


# Signing in and out


def test_the_cookie_lets_its_account_in(server: Running) -> None:
    anna = server.signed_in(server.client(), name="anna", password=PASSWORD)
    before = len(listed(anna).json)
    assert create(anna).status == 201
    assert len(listed(anna).json) == before + 1
    call = server.calls("anna")[1]
    assert (call.caller, call.success) == ("anna", True)
    stored = server.parts.tokens.credentials.get(call.credential)
    assert (stored.sort, stored.user, stored.space, stored.scopes) == (
        "session", "anna", "anna", FULL_SCOPES,
    )  # fmt: skip


def test_the_cookie_is_kept_from_scripts_and_other_sites(server: Running) -> None:
    fields = {"name": "anna", "password": PASSWORD}
    answer = server.client().request("POST", "/sign-in", fields, origin_of(server))
    (morsel,) = SimpleCookie(answer.header("set-cookie")).values()
    assert morsel.key == COOKIE
    assert (morsel["httponly"], morsel["samesite"].lower(), morsel["path"]) == (True, "strict", "/")
    assert (morsel["secure"], morsel["domain"]) == ("", "")
    assert morsel["max-age"] == str(SESSION_SECONDS)
    assert morsel.value not in answer.body.decode()
    assert answer.header("cache-control") == "no-store"


def test_under_https_the_cookie_is_bound_to_the_host(data: Path) -> None:
    with running(data) as server:
        server.parts.accounts.add("anna", PASSWORD, ["anna"])
    with running(data, public_url="https://memory.example") as server:
        fields = {"name": "anna", "password": PASSWORD}
        sent = {"host": "memory.example", "origin": "https://memory.example"}
        answer = server.client().request("POST", "/sign-in", fields, sent)
        (morsel,) = SimpleCookie(answer.header("set-cookie")).values()
        assert morsel.key == f"__Host-{COOKIE}"
        assert (morsel["secure"], morsel["httponly"], morsel["domain"]) == (True, True, "")
        csrf = {"x-csrf-token": answer.json["csrf_token"]}
        known = {**sent, "cookie": f"{morsel.key}={morsel.value}", **csrf}
        assert create(server.client(), **known).status == 201
        # The same value under the name that another port of the host could set.
        other = {**known, "cookie": f"{COOKIE}={morsel.value}"}
        assert create(server.client(), **other).status == 401
        assert create(server.client(), **{**known, "origin": "http://memory.example"}).status == 403


def test_people_sign_in_to_a_server_for_the_network_without_https(data: Path) -> None:
    """At every address that the server has, though no OAuth can be offered there."""
    with running(data) as server:
        server.parts.accounts.add("anna", PASSWORD, ["anna"])
        token = server.token(space="anna")
    with running(data, host="0.0.0.0") as server:
        assert server.client().request("GET", BEINGS).status == 401
        for name in own_host_names(server.settings):
            place = f"{name}:{server.settings.port}"
            sent = {"host": place, "origin": f"http://{place}"}
            for fields in ({"name": "anna", "password": PASSWORD}, {"token": token}):
                answer = server.client().request("POST", "/sign-in", fields, sent)
                assert (answer.status, answer.json["space"]) == (200, "anna")
                (morsel,) = SimpleCookie(answer.header("set-cookie")).values()
                assert (morsel["httponly"], morsel["samesite"].lower()) == (True, "strict")
                assert morsel["secure"] == ""
                known = {**sent, "cookie": f"{morsel.key}={morsel.value}"}
                assert create(server.client(), **known).status == 403  # without the CSRF token
                known["x-csrf-token"] = answer.json["csrf_token"]
                assert create(server.client(), **known).status == 201
                strange = {**known, "origin": "http://elsewhere.example"}
                assert create(server.client(), **strange).status == 403
        wrong = {"name": "anna", "password": "another"}
        assert server.client().request("POST", "/sign-in", wrong, sent).status == 401
        metadata = server.client().request("GET", "/.well-known/oauth-authorization-server")
        assert metadata.status != 200


def test_the_session_says_who_is_signed_in(server: Running, anna: Client) -> None:
    shown = anna.request("GET", "/session").json
    assert shown == {
        "signed_in": True, "user": "anna", "space": "anna", "scopes": ["read", "write", "delete"],
        "expires_at": shown["expires_at"], "csrf_token": anna.headers["x-csrf-token"],
    }  # fmt: skip
    assert server.client().request("GET", "/session").json == {"signed_in": False}


def test_signing_out_ends_the_session(server: Running, anna: Client) -> None:
    assert anna.request("GET", "/sign-out").status == 405
    for missing in ("x-csrf-token", "origin"):
        with without(anna, missing):
            assert anna.request("POST", "/sign-out").status == 403
    assert listed(anna).status == 200
    answer = anna.request("POST", "/sign-out")
    assert answer.status == 204
    newest = server.calls("system")[0]
    assert (newest.tool, newest.caller) == ("sign out", "anna")
    assert "Max-Age=0" in (answer.header("set-cookie") or "")
    assert listed(anna).status == 401
    assert anna.request("GET", "/session").json == {"signed_in": False}


def test_a_form_carries_the_csrf_token_in_a_field(anna: Client) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    csrf = anna.headers["x-csrf-token"]
    with without(anna, "x-csrf-token"):
        for fields in ({}, {"csrf_token": ""}, {"csrf_token": csrf[:-1]}, {"other": csrf}):
            body = urlencode(fields).encode()
            assert anna.request("POST", "/sign-out", body, form).status == 403
            assert listed(anna).status == 200
        good = urlencode({"csrf_token": csrf}).encode()
        assert anna.request("POST", BEINGS, good, form).status == 415  # REST takes JSON only
        assert anna.request("POST", "/sign-out", good, form).status == 204


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({f"f{n}": "x" for n in range(MOST_FORM_FIELDS - 1)}, 204),
        ({f"f{n}": "x" for n in range(MOST_FORM_FIELDS)}, 403),
        ({"x": "y" * (INLINE_BYTES - 78)}, 204),
        ({"x": "y" * (INLINE_BYTES - 77)}, 413),
    ],
    ids=["most fields", "too many fields", "largest", "too large"],
)
def test_a_form_has_limits(anna: Client, more: dict[str, str], status: int) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    body = urlencode({"csrf_token": anna.headers["x-csrf-token"], **more}).encode()
    with without(anna, "x-csrf-token"):
        assert anna.request("POST", "/sign-out", body, form).status == status


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({}, "missing"),
        ({"origin": "null"}, "null"),
        ({"origin": "https://evil.example"}, "another site"),
        ({"origin": "http://127.0.0.1:1"}, "another port"),
        ({"sec-fetch-site": "cross-site"}, "cross-site"),
    ],
)
def test_no_other_page_signs_anybody_in(server: Running, headers: Any, why: str) -> None:
    fields = {"name": "anna", "password": PASSWORD}
    if "sec-fetch-site" in headers:
        headers = {**headers, **origin_of(server)}
    answer = server.client().request("POST", "/sign-in", fields, headers)
    assert answer.status == 403, why
    assert answer.header("set-cookie") is None


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "anna", "password": "not this one"},
        {"name": "anna"},
        {"name": "nobody", "password": PASSWORD},
        {"token": "cpt_nonsense"},
        {"token": ""},
        {},
    ],
)
def test_nobody_is_signed_in_by_a_wrong_secret(server: Running, fields: dict[str, str]) -> None:
    address = {**origin_of(server)}
    answer = server.client().request("POST", "/sign-in", fields, address)
    assert (answer.status, answer.header("set-cookie")) == (401, None)
    assert answer.json["error"]["code"] == "UNAUTHORIZED"


@pytest.mark.parametrize("body", [[], "x", {"name": 1, "password": PASSWORD}, b"{", b"\xff"])
def test_what_is_no_sign_in_is_refused(server: Running, body: Any) -> None:
    answer = server.client().request("POST", "/sign-in", body, origin_of(server))
    assert (answer.status, answer.header("set-cookie")) == (400, None)


def test_guessing_a_password_is_slowed_down(data: Path) -> None:
    with running(data, require_token=True) as server:
        server.parts.accounts.add("anna", PASSWORD, ["anna"])
        client, origin = server.client(), origin_of(server)
        wrong, right = (
            {"name": "anna", "password": "x" * 20},
            {"name": "anna", "password": PASSWORD},
        )
        tried = [client.request("POST", "/sign-in", wrong, origin).status for _ in range(7)]
        assert tried == [401] * 6 + [429]
        answer = client.request("POST", "/sign-in", right, origin)
        assert answer.status == 429 and int(answer.header("retry-after") or 0) > 0
        assert answer.header("set-cookie") is None
        assert [call.success for call in server.calls("system") if call.tool == "log in"] == (
            [False] * 8
        )


def test_a_sign_in_that_fails_for_another_reason_is_not_audited_as_a_success(data: Path) -> None:
    with running(data, require_token=True) as server:
        server.parts.accounts.add("anna", PASSWORD, ["anna"])
        with server.parts.system.maintain() as rows:
            rows.execute("UPDATE users SET spaces = '[\"other\"]'")
        fields = {"name": "anna", "password": PASSWORD}
        answer = server.client().request("POST", "/sign-in", fields, origin_of(server))
        assert (answer.status, answer.json["error"]["code"]) == (503, "STORAGE_CORRUPT")
        (call,) = [each for each in server.calls("system") if each.tool == "log in"]
        assert (call.success, call.error) == (False, "STORAGE_CORRUPT")


# What a change needs


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("csrf", ["missing", "empty", "wrong", "of another session", "the cookie"])
def test_a_change_needs_the_sessions_csrf_token(
    server: Running, anna: Client, method: str, csrf: str
) -> None:
    other = session(server, "anna")
    tokens = {
        "empty": "",
        "wrong": "0" * 64,
        "of another session": other.headers["x-csrf-token"],
        "the cookie": anna.headers["cookie"].partition("=")[2],
    }
    sent = {} if csrf == "missing" else {"x-csrf-token": tokens[csrf]}
    before = listed(anna).json
    with without(anna, "x-csrf-token"):
        answer = anna.request(method, BEINGS, {"name": "Eve"}, sent)
    assert answer.status == 403, answer.body
    refused = server.calls("anna")[0]
    assert listed(anna).json == before
    assert (refused.caller, refused.success) == ("anna", False)
    assert refused.error.startswith("CSRF_REFUSED")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "https://127.0.0.1:{port}"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_a_change_from_another_page_is_refused(anna: Client, headers: dict[str, str]) -> None:
    sent = {name: value.format(port=anna.port) for name, value in headers.items()}
    assert create(anna, **sent).status == 403
    with without(anna, "origin"):
        assert create(anna).status == 403
    assert create(anna).status == 201


def test_an_origin_that_may_use_tokens_may_not_use_the_cookie(data: Path) -> None:
    friend = "https://friend.example"
    with running(data, require_token=True, allow_origins=(friend,)) as server:
        token = server.token("anna")
        client = server.signed_in(server.client(), token=token)
        assert create(server.client(token), origin=friend).status == 201
        assert create(client, origin=friend).status == 403
        assert create(client).status == 201


def test_get_never_has_the_right_to_change(server: Running, anna: Client) -> None:
    async def rights(request: Request) -> JSONResponse:
        return JSONResponse(sorted(request.scope[ADMITTED].caller.scopes))

    server.door._app.routes.append(Route("/probe", rights, methods=["GET", "POST"]))
    try:
        assert anna.request("GET", "/probe").json == ["read"]
        assert anna.request("POST", "/probe").json == ["delete", "read", "write"]
    finally:
        server.door._app.routes.pop()


# Where and in which form the cookie is accepted


def test_the_cookie_is_not_accepted_by_mcp(anna: Client) -> None:
    for path in (MCP, "/mcp", "/mcp/v1"):
        answer = anna.request("POST", path, message("remember", {"text": "x"}))
        assert answer.status == 401, path


def test_a_cookie_is_no_token_and_a_token_no_cookie(server: Running, anna: Client) -> None:
    cookie = anna.headers["cookie"].partition("=")[2]
    assert server.client(cookie).request("GET", BEINGS).status == 401
    with pytest.raises(Unauthenticated):
        server.parts.tokens.credentials.recognise(cookie)
    token = server.token("anna")
    client = server.client()
    client.headers = {**origin_of(server), "cookie": f"{COOKIE}={token}"}
    assert listed(client).status == 401


def test_a_token_is_looked_at_before_the_cookie(server: Running, anna: Client) -> None:
    assert anna.request("GET", BEINGS, None, {"authorization": "Bearer cpt_x"}).status == 401
    token = server.token("bert", {"read"})
    shown = anna.request("GET", "/health/details", None, {"authorization": f"Bearer {token}"})
    assert shown.status == 403


def test_of_two_cookies_neither_is_accepted(server: Running, anna: Client) -> None:
    other = session(server, "bert")
    both = f"{anna.headers['cookie']}; {other.headers['cookie']}"
    assert anna.request("GET", BEINGS, None, {"cookie": both}).status == 401


def test_a_stale_cookie_does_not_lock_out_the_person_at_this_machine(data: Path) -> None:
    with running(data) as server:
        client = server.client()
        client.headers = {"cookie": f"{COOKIE}=cps_{'x' * 43}"}
        assert listed(client).status == 200


# How a session ends


def test_an_expired_session_lets_nobody_in(server: Running) -> None:
    client = session(server, "anna", lifetime=0.5)
    assert listed(client).status == 200
    time.sleep(0.55)
    assert listed(client).status == 401
    assert create(client).status == 401
    assert client.request("GET", "/session").json == {"signed_in": False}


def test_a_revoked_session_lets_nobody_in(server: Running, anna: Client) -> None:
    assert listed(anna).status == 200
    server.parts.tokens.credentials.revoke(server.calls("anna")[0].credential)
    assert listed(anna).status == 401
    assert create(anna).status == 401


def test_signing_in_never_takes_over_a_cookie(server: Running, anna: Client) -> None:
    planted = f"cps_{'a' * 43}"
    fields = {"name": "anna", "password": PASSWORD}
    client = server.client()
    client.headers = {**origin_of(server), "cookie": f"{COOKIE}={planted}"}
    answer = client.request("POST", "/sign-in", fields)
    assert answer.status == 200 and planted not in (answer.header("set-cookie") or "")
    assert listed(client).status == 401
    # Who signs in again gets another cookie, and the one before it ends.
    again = anna.request("POST", "/sign-in", fields)
    assert anna.headers["cookie"] not in (again.header("set-cookie") or "")
    assert listed(anna).status == 401


def test_a_session_ends_with_its_account(data: Path) -> None:
    with running(data, require_token=True) as server:
        accounts = server.parts.accounts
        accounts.add("anna", PASSWORD, ["anna"])
        client = server.signed_in(server.client(), name="anna", password=PASSWORD)
        accounts.change_password("anna", f"{PASSWORD} 2")
        assert listed(client).status == 401
        client = server.signed_in(server.client(), name="anna", password=f"{PASSWORD} 2")
        assert listed(client).status == 200
        accounts.remove("anna")
        assert listed(client).status == 401
        fields = {"name": "anna", "password": f"{PASSWORD} 2"}
        answer = server.client().request("POST", "/sign-in", fields, origin_of(server))
        assert answer.status == 401


def test_a_session_by_token_allows_what_the_token_does_and_ends_with_it(server: Running) -> None:
    credentials = server.parts.tokens.credentials
    issued = credentials.create(Grant(space="anna", scopes=frozenset({"read"}), lifetime=60))
    client = server.signed_in(server.client(), token=issued.token)
    assert client.request("GET", "/session").json["scopes"] == ["read"]
    assert listed(client).status == 200
    assert create(client).status == 403
    (session,) = [one for one in credentials.listing() if one.client == issued.credential.id]
    assert session.expires_at is not None and issued.credential.expires_at is not None
    assert session.expires_at <= issued.credential.expires_at + 10 * SECOND
    credentials.revoke(issued.credential.id)
    assert listed(client).status == 401


def test_a_token_for_one_resource_signs_nobody_in(server: Running) -> None:
    grant = Grant(space="anna", resource=f"{server.settings.base_url}/mcp", oauth=True)
    token = server.parts.tokens.credentials.create(grant).token
    answer = server.client().request("POST", "/sign-in", {"token": token}, origin_of(server))
    assert answer.status == 401


# Spaces


def test_a_session_is_for_one_space(server: Running, anna: Client) -> None:
    bert, team = session(server, "bert"), session(server, "anna", "team")
    hers = create(anna).json["id"]
    there = f"{BEINGS}/{hers}"
    assert anna.request("GET", there).status == 200
    for other in (bert, team):
        assert hers not in listed(other).body.decode()
        for sent in ({}, {"x-space": "anna"}):
            assert other.request("GET", f"{there}?space=anna", None, sent).status == 404
        assert other.request("DELETE", there).status == 404
    # Neither does the CSRF token of one open the other's session.
    mixed = {**bert.headers, "x-csrf-token": anna.headers["x-csrf-token"]}
    assert server.client().request("POST", BEINGS, {"name": "x"}, mixed).status == 403
    assert anna.request("GET", there).status == 200


def test_the_space_is_chosen_when_signing_in(server: Running) -> None:
    fields = {"name": "anna", "password": PASSWORD, "space": "team"}
    anna = server.signed_in(server.client(), **fields)
    assert anna.request("GET", "/session").json["space"] == "team"


def test_nobody_signs_in_to_a_space_that_is_not_theirs(server: Running) -> None:
    Commonplace(library=server.parts.library, space="bert").remember("of Bert")
    fields = {"name": "anna", "password": PASSWORD, "space": "bert"}
    answer = server.client().request("POST", "/sign-in", fields, origin_of(server))
    assert (answer.status, answer.header("set-cookie")) == (400, None)
