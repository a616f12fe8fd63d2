"""Signing in over REST: keys, access tokens, refresh tokens that work once."""

from __future__ import annotations

import base64
import json
import threading
import time
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
import time_machine

from commonplace.access.credentials import Grant, Unauthenticated
from commonplace.access.sessions import Sessions
from commonplace.access.signed import Tokens
from commonplace.access.vault import open_vault
from commonplace.dialects.registry import token_formats
from commonplace.storage.system import open_system
from penfield.conftest import Server
from penfield.test_rest import data, failure, store


def sign_in(server: Server, *scopes: str, space: str) -> tuple[str, dict[str, str]]:
    key = server.key(*(scopes or ("read", "write")), space=space)  # type: ignore[arg-type]
    with server.client(key) as client:
        return key, data(client.post("/auth/token"))


def refresh(server: Server, token: str) -> httpx.Response:
    with server.client() as client:
        return client.post("/auth/refresh", json={"refresh_token": token})


def test_a_key_is_exchanged_for_tokens_that_end(server: Server) -> None:
    key, session = sign_in(server, space="signed")
    assert key.startswith("tm_signed_ak_")
    assert session.keys() == {
        "access_token", "token_type", "expires_in", "tenant_id", "refresh_token",
    }  # fmt: skip
    assert (session["token_type"], session["expires_in"]) == ("Bearer", 259_200)
    assert session["tenant_id"] == "pf_signed"
    claims = session["access_token"].split(".")[1]
    read = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert read.keys() >= {"sub", "tenant_id", "scopes", "exp", "iat", "jti"}
    with server.client(session["access_token"]) as client:
        store(client, "by an access token")
        told = data(client.get("/auth/verify"))
    ends = datetime.fromisoformat(told.pop("expires_at"))
    assert ends.timestamp() == read["exp"]
    assert told == {
        "valid": True, "tenant_id": "pf_signed", "user_id": "ann", "scopes": ["read", "write"],
    }  # fmt: skip


def test_verify_tells_when_the_credential_ends(server: Server) -> None:
    with server.client(server.key("read", space="lasting")) as client:
        assert data(client.get("/auth/verify"))["expires_at"] is None
    with server.client() as client:  # the person at this machine
        assert data(client.get("/auth/verify"))["expires_at"] is None
    key = ending(server, 7_200)
    before = time.time()
    with server.client(key) as client:
        told = data(client.get("/auth/verify"))["expires_at"]
        session = data(client.post("/auth/token"))
    assert told.endswith("Z") and 7_100 < datetime.fromisoformat(told).timestamp() - before < 7_300
    # What is made with it ends with it, whatever the token itself says.
    with server.client(session["access_token"]) as client:
        assert data(client.get("/auth/verify"))["expires_at"] == told


def ending(server: Server, seconds: float, space: str = "ending") -> str:
    grant = Grant(space=space, user="ann", dialects=frozenset({"penfield"}), lifetime=seconds)
    return server.parts.tokens.credentials.create(grant).token


def test_an_expired_token_is_told_from_a_wrong_one(server: Server) -> None:
    key = ending(server, 60)
    lasting, session = sign_in(server, space="ended")
    revoked, revoked_session = sign_in(server, space="ended-too")
    credentials = server.parts.tokens.credentials
    credentials.revoke(credentials.find(revoked).id)
    with time_machine.travel(time.time() + 300_000):
        for token in (key, session["access_token"]):
            with server.client(token) as client:
                refused = client.get("/memories")
                told = failure(refused, 401, "AUTH_TOKEN_EXPIRED")
                assert "expired" in told["message"]
                assert 'error="invalid_token"' in refused.headers["www-authenticate"]
        head, claims, signature = session["access_token"].split(".")
        forged = f"{head}.{claims}.{signature[:-4]}AAAA"
        for wrong in (key[:-8] + "AAAAAAAA", forged, revoked, revoked_session["access_token"]):
            with server.client(wrong) as client:
                failure(client.get("/memories"), 401, "AUTH_TOKEN_INVALID")
        with server.client(lasting) as client:
            data(client.get("/memories"))
        elsewhere = {"authorization": f"Bearer {key}"}  # other contracts tell nobody why
        generic = httpx.get(f"{server.url}/health/details", headers=elsewhere).json()
        assert generic["error"]["code"] == "UNAUTHORIZED"
    with time_machine.travel(time.time() + 40 * 86_400):
        failure(refresh(server, session["refresh_token"]), 401, "AUTH_TOKEN_EXPIRED")


class _Fields(HTMLParser):
    """What a form of ours carries along."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "input" and values.get("type") in ("hidden", "checkbox"):
            self.found[str(values["name"])] = values.get("value") or ""


def test_a_program_that_shows_a_code_uses_rest(server: Server) -> None:
    server.parts.accounts.add("dora", "correct horse battery", ["dora"])
    grant = "urn:ietf:params:oauth:grant-type:device_code"
    with httpx.Client(base_url=server.url, timeout=30) as program:
        found = program.get("/.well-known/oauth-authorization-server").json()
        asked = {"client_name": "Terminal", "grant_types": [grant, "refresh_token"]}
        client_id = program.post(found["registration_endpoint"], json=asked).json()["client_id"]
        begin = {"client_id": client_id, "scope": "read write offline_access"}
        started = program.post(found["device_authorization_endpoint"], data=begin).json()
        poll = {
            "grant_type": grant, "client_id": client_id, "device_code": started["device_code"],
        }  # fmt: skip
        pending = program.post(found["token_endpoint"], data=poll)
        assert (pending.status_code, pending.json()["error"]) == (400, "authorization_pending")
        with httpx.Client(base_url=server.url, timeout=30, follow_redirects=True) as browser:
            page = browser.get(started["verification_uri_complete"])
            for pressed in (
                {"action": "find", "code": started["user_code"]},
                {"action": "login", "name": "dora", "password": "correct horse battery"},
                {"action": "allow"},
            ):
                fields = _Fields(page.text).found
                page = browser.post("/oauth/device", data={**fields, **pressed})
                assert page.status_code == 200, page.text
            assert "The device is connected" in page.text
        tokens = program.post(found["token_endpoint"], data=poll).json()
    with server.client(tokens["access_token"]) as client:
        kept = store(client, "by a terminal")
        assert data(client.get(f"/memories/{kept['id']}"))["content"] == "by a terminal"
        told = data(client.get("/auth/verify"))
        assert (told["tenant_id"], told["user_id"]) == ("pf_dora", "dora")
        assert datetime.fromisoformat(told["expires_at"]).timestamp() > time.time() + 3_000
        failure(client.post("/auth/token"), 401, "AUTH_INVALID_CREDENTIALS")
    mcp = httpx.post(f"{server.url}/mcp/penfield", json={},
                     headers={"authorization": f"Bearer {tokens['access_token']}"})  # fmt: skip
    assert mcp.status_code == 401  # what was allowed is REST, and nothing else


def test_an_access_token_has_no_more_scope_than_its_key(server: Server) -> None:
    _, session = sign_in(server, "read", space="signed-read")
    with server.client(session["access_token"]) as client:
        response = client.post("/memories", json={"content": "x"})
    failure(response, 403, "AUTH_INSUFFICIENT_PERMISSIONS")


def test_only_a_key_opens_a_session(server: Server) -> None:
    _, session = sign_in(server, space="signed-once")
    with server.client(session["access_token"]) as client:
        failure(client.post("/auth/token"), 401, "AUTH_INVALID_CREDENTIALS")
    with server.client() as client:  # the person at this machine has no key
        failure(client.post("/auth/token"), 401, "AUTH_INVALID_CREDENTIALS")
    with server.client("tm_default_ak_wrong") as client:
        failure(client.post("/auth/token"), 401, "AUTH_INVALID_CREDENTIALS")
        failure(client.get("/auth/verify"), 401, "AUTH_TOKEN_INVALID")


def test_a_refresh_token_opens_nothing_but_the_next_session(server: Server) -> None:
    _, session = sign_in(server, space="signed-refresh")
    with server.client(session["refresh_token"]) as client:
        failure(client.get("/memories"), 401, "AUTH_TOKEN_INVALID")
        assert client.post("/auth/token").status_code == 401
    renewed = data(refresh(server, session["refresh_token"]))
    assert renewed["refresh_token"] != session["refresh_token"]
    with server.client(renewed["access_token"]) as client:
        data(client.get("/memories"))


def test_a_refresh_token_seen_twice_ends_its_family(server: Server) -> None:
    _, session = sign_in(server, space="signed-twice")
    renewed = data(refresh(server, session["refresh_token"]))
    with time_machine.travel(time.time() + 61):
        failure(refresh(server, session["refresh_token"]), 401, "AUTH_TOKEN_INVALID")
        failure(refresh(server, renewed["refresh_token"]), 401, "AUTH_TOKEN_INVALID")


def test_for_a_minute_a_used_refresh_token_gives_another_pair(server: Server) -> None:
    _, session = sign_in(server, space="signed-siblings")
    pairs = [data(refresh(server, session["refresh_token"]))]
    with time_machine.travel(time.time() + 55):
        pairs.append(data(refresh(server, session["refresh_token"])))
    assert len({pair["refresh_token"] for pair in pairs}) == 2
    for each in pairs:
        with server.client(each["access_token"]) as client:
            data(client.get("/memories"))
    newest = data(refresh(server, pairs[1]["refresh_token"]))
    with server.client(newest["access_token"]) as client:
        data(client.get("/memories"))
        # The first of the siblings has ended; its use shows that two hold tokens of this family.
        failure(refresh(server, pairs[0]["refresh_token"]), 401, "AUTH_TOKEN_INVALID")
        failure(client.get("/memories"), 401, "AUTH_TOKEN_INVALID")


def test_a_used_refresh_token_gives_nothing_once_its_family_has_ended(server: Server) -> None:
    _, session = sign_in(server, space="signed-gone")
    renewed = data(refresh(server, session["refresh_token"]))
    credentials = server.parts.tokens.credentials
    credentials.revoke(credentials.find(renewed["refresh_token"]).id)
    for each in (session, renewed):
        failure(refresh(server, each["refresh_token"]), 401, "AUTH_TOKEN_INVALID")


def test_the_access_tokens_of_a_family_end_with_it(server: Server) -> None:
    key, session = sign_in(server, space="signed-family")
    with server.client(key) as client:
        other = data(client.post("/auth/token"))
    renewed = data(refresh(server, session["refresh_token"]))
    for each in (session, renewed, other):  # an earlier access token lives on after a renewal
        with server.client(each["access_token"]) as client:
            data(client.get("/memories"))
    with time_machine.travel(time.time() + 61):
        failure(refresh(server, session["refresh_token"]), 401, "AUTH_TOKEN_INVALID")
    for each in (session, renewed):
        with server.client(each["access_token"]) as client:
            failure(client.get("/memories"), 401, "AUTH_TOKEN_INVALID")
    for token in (other["access_token"], key):  # another sign-in is another family
        with server.client(token) as client:
            data(client.get("/memories"))
    data(refresh(server, other["refresh_token"]))


def test_a_revoked_refresh_token_ends_the_access_tokens_issued_with_it(server: Server) -> None:
    _, session = sign_in(server, space="signed-unrefreshed")
    credentials = server.parts.tokens.credentials
    credentials.revoke(credentials.find(session["refresh_token"]).id)
    with server.client(session["access_token"]) as client:
        failure(client.get("/memories"), 401, "AUTH_TOKEN_INVALID")


def test_an_access_token_is_good_at_every_moment_of_a_renewal(server: Server) -> None:
    _, session = sign_in(server, space="signed-meanwhile")
    ended = threading.Event()
    refused: list[int] = []

    def read() -> None:
        with server.client(session["access_token"]) as client:
            while not ended.is_set():
                if (status := client.get("/auth/verify").status_code) != 200:
                    refused.append(status)

    reader = threading.Thread(target=read)
    reader.start()
    token = session["refresh_token"]
    for _ in range(20):
        token = data(refresh(server, token))["refresh_token"]
    ended.set()
    reader.join()
    assert refused == []


def test_of_two_renewals_both_get_a_pair_and_later_one_is_refused(tmp_path: Path) -> None:
    system = open_system(tmp_path)
    sides = [Tokens(system, open_vault(system), token_formats(), environ={}) for _ in range(2)]
    key = sides[0].credentials.create(Grant(dialects=frozenset({"penfield"}))).token
    session = Sessions(sides[0], "penfield").open(key)
    used = sides[1].credentials.find(session.refresh_token)  # the other one has looked already
    Sessions(sides[0], "penfield").renew(session.refresh_token)
    sides[1].credentials.replace(used.id, Grant(family=used.family))
    alive = [row for row in sides[0].credentials.listing() if row.family and not row.revoked_at]
    assert len(alive) == 2
    with time_machine.travel(time.time() + 61), pytest.raises(Unauthenticated):
        sides[1].credentials.replace(used.id, Grant(family=used.family))
    for side in sides:
        side.close()
    system.close()


def test_a_revoked_key_ends_everything_that_came_of_it(server: Server) -> None:
    key, session = sign_in(server, space="signed-revoked")
    credentials = server.parts.tokens.credentials
    credentials.revoke(credentials.find(key).id)
    with server.client(session["access_token"]) as client:
        failure(client.get("/memories"), 401, "AUTH_TOKEN_INVALID")
    failure(refresh(server, session["refresh_token"]), 401, "AUTH_TOKEN_INVALID")


def test_a_refresh_needs_a_token_and_is_small(server: Server) -> None:
    with server.client() as client:
        failure(client.post("/auth/refresh", json={}), 422, "VAL_FIELD_REQUIRED")
        wrong_type = client.post("/auth/refresh", json={"refresh_token": 5})
        assert "must be text" in failure(wrong_type, 422, "VAL_FIELD_INVALID")["message"]
        for wrong in ("", "nonsense", "cpo_nonsense", server.key("read")):
            body = {"refresh_token": wrong}
            failure(client.post("/auth/refresh", json=body), 401, "AUTH_TOKEN_INVALID")
        huge = client.post("/auth/refresh", json={"refresh_token": "x" * 20_000})
        failure(huge, 413, "VAL_FIELD_TOO_LONG")


def test_no_token_is_written_into_the_audit(server: Server) -> None:
    key, session = sign_in(server, space="signed-audit")
    renewed = data(refresh(server, session["refresh_token"]))
    with server.parts.library.lease("signed-audit") as space, space.store.read() as connection:
        rows = connection.execute("SELECT tool, arguments, result FROM audit").fetchall()
    assert [row[0] for row in rows] == ["open_session", "renew_session"]
    written = json.dumps(rows)
    for secret in (key, *session.values(), *renewed.values()):
        if isinstance(secret, str) and len(secret) > 20:
            assert secret not in written
