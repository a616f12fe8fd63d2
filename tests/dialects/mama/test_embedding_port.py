"""The embedding port: what the contract's hooks ask there, and who is not answered."""

from __future__ import annotations

import http.client
import json
import math
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from commonplace.dialects.mama import embedding_port
from commonplace.dialects.mama.embedding_port import serving

from .conftest import Kept


@pytest.fixture
def url(builtin_model: Any) -> Iterator[str]:
    with serving("0", Kept(builtin_model)) as port:
        yield f"http://127.0.0.1:{port}"


def test_health_tells_of_the_model(url: str) -> None:
    body = httpx.get(f"{url}/health").json()
    assert body == {
        "status": "ok", "modelLoaded": False, "model": "all-MiniLM-L6-v2", "dim": 384,
        "chatEnabled": False,
    }  # fmt: skip
    httpx.post(f"{url}/embed", json={"text": "hello"})
    assert httpx.get(f"{url}/health").json()["modelLoaded"] is True


def test_a_text_is_embedded(url: str) -> None:
    body = httpx.post(f"{url}/embed", json={"text": "use JWT"}).json()
    assert body.keys() == {"embedding", "dim", "latency"}
    assert (len(body["embedding"]), body["dim"]) == (384, 384)
    assert math.isclose(math.hypot(*body["embedding"]), 1, abs_tol=1e-3)


def test_texts_are_embedded_together(url: str) -> None:
    body = httpx.post(f"{url}/embed/batch", json={"texts": ["one", "two"]}).json()
    assert body.keys() == {"embeddings", "count", "latency"}
    assert body["count"] == len(body["embeddings"]) == 2
    alone = httpx.post(f"{url}/embed", json={"text": "one"}).json()["embedding"]
    assert sum(a * b for a, b in zip(alone, body["embeddings"][0], strict=True)) > 0.999
    assert httpx.post(f"{url}/embed/batch", json={"texts": []}).json()["embeddings"] == []


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/embed", {}, 'Missing or invalid "text" field'),
        ("/embed", {"text": ""}, 'Missing or invalid "text" field'),
        ("/embed", {"text": 5}, 'Missing or invalid "text" field'),
        ("/embed/batch", {}, 'Missing or invalid "texts" array'),
        ("/embed/batch", {"texts": "one"}, 'Missing or invalid "texts" array'),
        ("/embed/batch", {"texts": ["one", None]}, 'Missing or invalid "texts" array'),
        ("/embed/batch", {"texts": ["x"] * 257}, "At most 256 texts are embedded at once"),
        ("/embed", [], "Invalid JSON"),
    ],
)
def test_a_bad_request_is_told_what_is_missing(
    url: str, path: str, body: Any, message: str
) -> None:
    response = httpx.post(url + path, json=body)
    assert (response.status_code, response.json()) == (400, {"error": message})


def test_anything_else_is_not_there(url: str) -> None:
    for method, path in (("GET", "/"), ("GET", "/embed"), ("POST", "/shutdown"), ("POST", "/x")):
        response = httpx.request(method, url + path)
        assert (response.status_code, response.json()) == (404, {"error": "Not found"})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "localhost:evil.example"}, 421),
        ({"host": "127.0.0.1"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_other_hosts_and_pages_are_refused(url: str, headers: dict[str, str], status: int) -> None:
    assert httpx.get(f"{url}/health", headers=headers).status_code == status
    response = httpx.post(f"{url}/embed", json={"text": "x"}, headers=headers)
    assert response.status_code == status


def test_a_body_must_be_json_of_at_most_a_megabyte(url: str) -> None:
    plain = {"content-type": "text/plain"}
    assert httpx.post(f"{url}/embed", content="{}", headers=plain).status_code == 415
    as_json = {"content-type": "application/json"}
    assert httpx.post(f"{url}/embed", content="{", headers=as_json).status_code == 400
    port = int(url.rsplit(":", 1)[1])
    for size, status in ((1_048_577, 413), (1_048_576, 400)):
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.putrequest("POST", "/embed")
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(size))
            connection.endheaders()
            if status == 400:
                connection.send(json.dumps({"texts": ""}).encode().ljust(size))
            assert connection.getresponse().status == status


def test_it_is_reachable_from_this_machine_only(builtin_model: Any) -> None:
    assert embedding_port.HOST == "127.0.0.1"
    server = embedding_port._Server(0, Kept(builtin_model))
    with closing(server.socket):
        assert server.socket.getsockname()[0] == "127.0.0.1"


def test_without_a_model_it_says_so() -> None:
    with serving("0", None) as port:
        url = f"http://127.0.0.1:{port}"
        assert httpx.get(f"{url}/health").json()["model"] is None
        response = httpx.post(f"{url}/embed", json={"text": "x"})
    assert (response.status_code, response.json()) == (
        503, {"error": "There is no embedding provider"},
    )  # fmt: skip


def test_a_port_that_is_taken_or_none_stops_nothing() -> None:
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as taken,
        serving(str(taken.getsockname()[1]), None) as port,
    ):
        assert port is None
    for wrong in ("http", "65536", "-1", "٣"):
        with serving(wrong, None) as port:
            assert port is None
