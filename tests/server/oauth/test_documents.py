"""Clients that are a web address."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from commonplace.access.oauth.clients import (
    MOST_CACHED_DOCUMENTS,
    ClientDocuments,
    parse_client_document,
    seconds_to_cache,
)
from commonplace.access.oauth.errors import OAuthError
from commonplace.platform.fetching import Fetcher

from .conftest import Documents as Web
from .conftest import World
from .tls import site

pytestmark = pytest.mark.anyio

URL = "https://client.example/oauth/client.json"
GOOD: dict[str, Any] = {
    "client_id": URL,
    "client_name": "Client",
    "redirect_uris": ["https://client.example/callback"],
}

BAD: dict[str, dict[str, Any]] = {
    "no id": {"client_id": None},
    "another id": {"client_id": URL + "?"},
    "an id in other letters": {"client_id": URL.replace("client.json", "Client.json")},
    "a secret": {"client_secret": "x"},
    "a secret's end": {"client_secret_expires_at": 0},
    "a method with a secret": {"token_endpoint_auth_method": "client_secret_post"},
    "only a signature": {"token_endpoint_auth_method": "private_key_jwt"},
    "only signatures": {
        "token_endpoint_auth_method": "private_key_jwt",
        "token_endpoint_auth_methods_supported": ["private_key_jwt"],
    },
    "no redirects": {"redirect_uris": []},
    "redirects that are a text": {"redirect_uris": "https://client.example/callback"},
    "a bad redirect": {"redirect_uris": ["javascript:alert(1)"]},
    "another grant": {"grant_types": ["client_credentials"]},
    "another response": {"response_types": ["token"]},
    "a name that is none": {"client_name": {"x": 1}},
}


@pytest.mark.parametrize("name", BAD)
def test_a_document_that_is_not_right_is_refused(name: str) -> None:
    document = {k: v for k, v in {**GOOD, **BAD[name]}.items() if v is not None}
    with pytest.raises(OAuthError):
        parse_client_document(URL, document)


@pytest.mark.parametrize("document", [None, [], "x", 1])
def test_a_document_that_is_no_object_is_refused(document: object) -> None:
    with pytest.raises(OAuthError):
        parse_client_document(URL, document)


def test_a_good_document_is_a_client_without_a_secret() -> None:
    client = parse_client_document(URL, {**GOOD, "logo_uri": "https://x.example/logo.png"})
    assert (client.id, client.name, client.host) == (URL, "Client", "client.example")
    assert client.secret is None
    assert client.may_refresh


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 3600),
        ({"cache-control": "max-age=600"}, 600),
        ({"cache-control": "public, max-age=7200"}, 7200),
        ({"cache-control": "s-maxage=9, max-age=7200", "age": "200"}, 7000),
        ({"cache-control": "max-age=1"}, 60),
        ({"cache-control": "max-age=99999999"}, 86_400),
        ({"cache-control": "no-store"}, 60),
        ({"cache-control": "no-cache, max-age=900"}, 60),
        ({"cache-control": "max-age=900", "age": "x"}, 900),
        ({"cache-control": "nonsense"}, 3600),
    ],
)
def test_a_document_is_kept_as_its_headers_say(headers: dict[str, str], seconds: float) -> None:
    assert seconds_to_cache(headers) == seconds


async def test_a_document_is_fetched_once_while_it_is_fresh() -> None:
    web, clock = Web(), [0.0]
    web.put(URL, json.dumps(GOOD).encode(), cache_control="max-age=600")
    documents = ClientDocuments(web, lambda: clock[0])
    found = await asyncio.gather(*(documents.find(URL) for _ in range(5)))
    assert len({id(client) for client in found}) == 1
    clock[0] = 599
    await documents.find(URL)
    assert web.fetches == [URL]
    clock[0] = 601
    await documents.find(URL)
    assert web.fetches == [URL, URL]


async def test_a_failure_is_kept_for_a_moment() -> None:
    web, clock = Web(), [0.0]
    documents = ClientDocuments(web, lambda: clock[0])
    for _ in range(3):
        with pytest.raises(OAuthError):
            await documents.find(URL)
    assert web.fetches == [URL]
    web.put(URL, json.dumps(GOOD).encode())
    clock[0] = 31
    assert (await documents.find(URL)).name == "Client"


async def test_only_so_many_documents_are_kept() -> None:
    web = Web()
    documents = ClientDocuments(web)
    for number in range(MOST_CACHED_DOCUMENTS + 50):
        with pytest.raises(OAuthError):
            await documents.find(f"{URL}?{number}")
    assert len(documents._cache) == MOST_CACHED_DOCUMENTS


async def test_lookups_are_limited(world: World) -> None:
    async with world.client() as client:
        answers = [
            await client.get("/oauth/authorize", params={"client_id": f"{URL}?{number}"})
            for number in range(40)
        ]
    assert [answer.status_code for answer in answers].count(429) >= 25
    assert len(world.web.fetches) <= 12
    assert int(answers[-1].headers["retry-after"]) > 0


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"<html>", {"content_type": "text/html"}),
        (b"{", {}),
        (b"\xff", {}),
        (json.dumps({**GOOD, "x": "y" * 5000}).encode(), {}),
        (json.dumps(GOOD).encode(), {"status": "404 Not Found"}),
        (b"", {"status": "302 Found", "location": "/oauth/other.json"}),
        (b"[" * 4000, {}),
    ],
)
async def test_an_answer_that_is_no_document_is_refused(
    tmp_path: Path, body: bytes, headers: dict[str, str]
) -> None:
    async with site(tmp_path, "client.example") as there:
        url = f"https://client.example:{there.port}/oauth/client.json"
        there.put("/oauth/client.json", body, **headers)
        there.put("/oauth/other.json", json.dumps({**GOOD, "client_id": url}).encode())
        with pytest.raises(OAuthError):
            await documents_at(there).find(url)
        assert there.hits == ["/oauth/client.json"]


async def test_a_document_is_read_from_a_real_server(tmp_path: Path) -> None:
    async with site(tmp_path, "client.example") as there:
        url = f"https://client.example:{there.port}/oauth/client.json"
        body = json.dumps({**GOOD, "client_id": url}).encode()
        there.put("/oauth/client.json", body, content_type="application/json; charset=utf-8")
        client = await documents_at(there).find(url)
        assert (client.id, client.host) == (url, f"client.example:{there.port}")


def documents_at(there: Any) -> ClientDocuments:
    async def resolver(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    allow = [("127.0.0.1", there.port)]
    return ClientDocuments(Fetcher(allow=allow, resolver=resolver, tls=there.tls))
