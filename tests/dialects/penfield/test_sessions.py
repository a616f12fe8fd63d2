"""Signing in over REST: keys, access tokens, refresh tokens that work once."""

from __future__ import annotations

import base64
import json

import httpx

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
    assert told == {
        "valid": True, "tenant_id": "pf_signed", "user_id": "ann", "scopes": ["read", "write"],
        "expires_at": None,
    }  # fmt: skip


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
    failure(refresh(server, session["refresh_token"]), 401, "AUTH_TOKEN_INVALID")
    failure(refresh(server, renewed["refresh_token"]), 401, "AUTH_TOKEN_INVALID")


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
        for wrong in ("", "nonsense", "cpo_nonsense", server.key("read")):
            body = {"refresh_token": wrong}
            failure(client.post("/auth/refresh", json=body), 401, "AUTH_TOKEN_INVALID")
        huge = client.post("/auth/refresh", json={"refresh_token": "x" * 20_000})
        failure(huge, 413, "VAL_VALIDATION_FAILED")


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
