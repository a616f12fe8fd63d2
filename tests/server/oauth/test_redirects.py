"""Where an authorization may be sent: the vectors, the exception for loopback, and an oracle."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.access.oauth.redirects import BadRedirect, find_match, parse_redirect

from .conftest import CALLBACK, World

VECTORS = json.loads((Path(__file__).parent / "redirect_uris.json").read_text(encoding="utf-8"))
REGISTERED = [
    CALLBACK, "http://127.0.0.1/callback", "http://localhost:4321/callback",
    "com.example.app:/callback",
]  # fmt: skip


def test_there_are_enough_vectors() -> None:
    assert len(VECTORS) >= 80


@pytest.mark.anyio
async def test_no_vector_is_redirected_to(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client, redirect_uris=REGISTERED))["client_id"]
        for vector in VECTORS:
            world.oauth.rates["page"]._buckets.clear()
            parameters = world.request(client_id, redirect_uri=vector["uri"])
            response = await client.get(f"/oauth/authorize?{urlencode(parameters)}")
            assert response.status_code == 400, vector
            assert "location" not in response.headers, vector
            assert "refresh" not in response.headers, vector
            assert response.headers["content-type"].startswith("text/html"), vector
            assert "<form" not in response.text, vector
            assert "evil" not in response.text, vector


@pytest.mark.anyio
async def test_what_is_never_acceptable_cannot_be_registered(world: World) -> None:
    async with world.client() as client:
        for vector in VECTORS:
            world.oauth.rates["register"]._buckets.clear()
            world.oauth.rates["all register"]._buckets.clear()
            response = await client.post(
                "/oauth/register", json={"redirect_uris": [CALLBACK, vector["uri"]]}
            )
            assert response.status_code == (201 if vector["registrable"] else 400), vector
            if not vector["registrable"]:
                assert response.json()["error"] == "invalid_redirect_uri", vector


@pytest.mark.parametrize("uri", REGISTERED)
def test_what_is_registered_matches(uri: str) -> None:
    assert find_match(REGISTERED, uri) is not None


@pytest.mark.parametrize("port", ["", ":0", ":1", ":80", ":4321", ":60351", ":65535"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_program_on_this_machine_may_choose_its_port(host: str, port: str) -> None:
    assert find_match(REGISTERED, f"http://{host}{port}/callback") is not None


def test_a_program_that_registers_port_0_chooses_its_port_later() -> None:
    assert parse_redirect("http://localhost:0/callback").port == 0
    assert find_match(["http://localhost:0/callback"], "http://localhost:53682/callback")
    assert not find_match(["http://localhost:0/callback"], "http://localhost:53682/other")


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("https://client.example:0/x", "its port is not a number from 1 to 65535"),
        ("http://localhost:65536/x", "its port is not a number from 0 to 65535"),
        ("http://localhost:00/x", "its port is not a number from 0 to 65535"),
        ("http://localhost:/x", "its port is not a number from 0 to 65535"),
        ("https://client.example:x/x", "its port is not a number from 1 to 65535"),
        ("https://anna@client.example/x", "it has a user name"),
        ("https://CLIENT.example/x", "its host is not in lower case"),
        ("https://[::1/x", "its host has characters that are not allowed in a host name"),
        ("https://a*b.example/x", "its host has characters that are not allowed in a host name"),
        ("https:/x", "it has no host"),
        ("http://client.example/x", "http is only for 127.0.0.1, [::1] and localhost; use https"),
    ],
)
def test_a_refusal_names_its_reason(uri: str, reason: str) -> None:
    with pytest.raises(BadRedirect) as refused:
        parse_redirect(uri)
    assert str(refused.value) == reason


def test_an_answer_is_added_to_the_query() -> None:
    cases = {
        "https://a.example/x": "https://a.example/x?code=c+%26",
        "https://a.example/x?": "https://a.example/x?code=c+%26",
        "https://a.example/x?y=1": "https://a.example/x?y=1&code=c+%26",
        "com.example.app:/x": "com.example.app:/x?code=c+%26",
    }
    for uri, expected in cases.items():
        assert parse_redirect(uri).uri_with({"code": "c &"}) == expected


_PIECES = st.sampled_from(
    [
        "https://",
        "http://",
        "HTTPS",
        "javascript:",
        "//",
        "/",
        "\\",
        "@",
        "#",
        "?",
        "%",
        "%2f",
        "%2e",
        ".",
        "..",
        ":",
        ":443",
        "[::1]",
        "[",
        "]",
        "127.0.0.1",
        "localhost",
        "client.example",
        "evil.example",
        "callback",
        "code=",
        "state=",
        "x",
        "a-b",
        "*",
        "xn--",
        "\t",
        "\n",
        "é",
    ]
)


@given(st.lists(_PIECES, max_size=9).map("".join))
def test_only_the_registered_host_is_ever_matched(uri: str) -> None:
    redirect = find_match(REGISTERED, uri)
    if redirect is None:
        return
    parts = urlsplit(uri)  # another reader of the same text must see the same place
    assert uri == CALLBACK or (
        parts.scheme == "http"
        and parts.hostname in ("127.0.0.1", "localhost")
        and parts.path == "/callback"
        and not parts.query
        and re.fullmatch(r"http://[a-z0-9.]+(:[0-9]+)?/callback", uri)
    )


@given(st.lists(_PIECES, max_size=9).map("".join))
def test_an_accepted_address_is_read_alike_by_another_parser(uri: str) -> None:
    try:
        redirect = parse_redirect(uri)
    except BadRedirect:
        return
    parts = urlsplit(uri)
    assert parts.scheme == redirect.scheme
    assert parts.username is None
    assert parts.fragment == ""
    assert (parts.hostname or "") == redirect.host.strip("[]")
    assert parts.port == redirect.port
    assert parts.path == redirect.path
