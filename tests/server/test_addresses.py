"""T16: only requests that are meant for this server, and that no other site's page sent."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from commonplace.dialects.rest import Rejected
from commonplace.errors import InvalidInput
from commonplace.server import request
from commonplace.server.request import Addresses, HostPort, parse_host, parse_origin
from commonplace.server.settings import Settings
from server.harness import Running, matrix, message, running, vectors

TABLE = vectors("addresses.json")
REFUSED: list[dict[str, Any]] = TABLE["refused"]
ACCEPTED: list[list[list[str]]] = TABLE["accepted"]
ROUTES: dict[str, dict[str, Any]] = matrix("routes")
PATHS = [*(row.get("sample", path) for path, row in ROUTES.items()), "/nothing/here", "/"]

Headers = list[tuple[bytes, bytes]]


def encoded(headers: list[list[str]], port: int) -> Headers:
    """As they come over the wire: bytes, the port put in."""
    return [(name.encode(), value.replace("PORT", str(port)).encode()) for name, value in headers]


async def asked(server: Running, method: str, path: str, headers: Headers) -> tuple[int, Headers]:
    """The answer of the application itself to exactly these headers."""
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(),
        "query_string": b"", "headers": headers, "client": ("127.0.0.1", 1), "root_path": "",
        "scheme": "http", "http_version": "1.1", "server": ("127.0.0.1", server.port),
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(told: Any) -> None:
        sent.append(told)

    await server.door(scope, receive, send)
    return sent[0]["status"], list(sent[0]["headers"])


def over_the_wire(port: int, method: str, path: str, headers: Headers) -> tuple[int, bytes]:
    body = b"{}" if method == "POST" else b""
    head = [f"{method} {path} HTTP/1.1".encode()]
    head += [name + b": " + value for name, value in headers]
    head += [b"connection: close", b"content-type: application/json"]
    head += [b"content-length: " + str(len(body)).encode()]
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(b"\r\n".join(head) + b"\r\n\r\n" + body)
        told = b""
        while part := connection.recv(65_536):
            told += part
    return int(told.split(b" ", 2)[1]), told


def wrongly_let_in(server: Running, paths: Sequence[str] = PATHS) -> list[str]:
    """The vectors that are not answered as they must be, on any route."""

    async def walk() -> list[str]:
        found = []
        for path in paths:
            for vector in REFUSED:
                headers = encoded(vector["headers"], server.port)
                for method in ("GET", "POST", "OPTIONS"):
                    status, answered = await asked(server, method, path, headers)
                    allowed = [name for name, _ in answered if name.startswith(b"access-control-")]
                    if status != vector["status"] or allowed:
                        found.append(f"{method} {path} {vector['headers']}: {status}")
        return found

    return asyncio.run(walk())


def test_there_are_enough_vectors() -> None:
    assert len(REFUSED) >= 60
    assert len({str(vector) for vector in REFUSED}) == len(REFUSED)


def test_every_route_refuses_every_odd_address(server: Running) -> None:
    assert wrongly_let_in(server) == []


def test_the_wire_changes_nothing_about_it(server: Running) -> None:
    for vector in REFUSED:
        headers = encoded(vector["headers"], server.port)
        if any(b"\x00" in value for _, value in headers):
            continue  # h11 hangs up on it
        status, told = over_the_wire(server.port, "POST", "/mcp", headers)
        # Spaces around a value are no part of it; two Hosts are refused before we are asked.
        as_one = all(value == value.strip() for _, value in headers)
        assert status in (400, vector["status"]) or not as_one, (vector, told)
        assert b"access-control" not in told.lower()


@pytest.mark.parametrize("headers", ACCEPTED)
def test_what_is_ours_is_let_in(server: Running, headers: list[list[str]]) -> None:
    for path in ("/health", "/metrics", "/health/details"):
        status, told = over_the_wire(server.port, "GET", path, encoded(headers, server.port))
        assert status == 200, told
        assert b"access-control" not in told.lower()
    status, _ = over_the_wire(server.port, "GET", "/nothing", encoded(headers, server.port))
    assert status == 404


def test_a_preflight_is_never_answered_with_a_permission(server: Running) -> None:
    asks = [["host", "localhost:PORT"], ["access-control-request-method", "POST"]]

    async def walk() -> None:
        for path in PATHS:
            for origin in ("https://claude.ai", "null", "http://localhost:1"):
                headers = encoded([*asks, ["origin", origin]], server.port)
                status, answered = await asked(server, "OPTIONS", path, headers)
                assert status == 403
                assert not [name for name, _ in answered if name.startswith(b"access-control")]

    asyncio.run(walk())


def test_a_comparison_by_prefix_is_found_by_these_vectors(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loose(text: str, default_port: int) -> HostPort | None:
        for name in request.LOOPBACK_NAMES:
            if text.startswith(f"{name}:"):
                return HostPort(name, server.port)
        return parse_host(text, default_port)

    monkeypatch.setattr(request, "parse_host", loose)
    assert wrongly_let_in(server, ["/health"])


@pytest.mark.parametrize(
    ("settings", "host", "origin", "status"),
    [
        ({"public_url": "https://memory.example"}, "memory.example", None, None),
        ({"public_url": "https://memory.example"}, "memory.example:443", None, None),
        ({"public_url": "https://memory.example"}, "memory.example:80", None, 421),
        ({"public_url": "https://memory.example"}, "memory.example.evil.com", None, 421),
        (
            {"public_url": "https://memory.example"},
            "memory.example", "https://memory.example", None,
        ),
        (
            {"public_url": "https://memory.example"},
            "memory.example", "http://memory.example", 403,
        ),
        ({"public_url": "https://memory.example:8443"}, "memory.example:8443", None, None),
        ({"public_url": "https://memory.example:8443"}, "memory.example", None, 421),
        ({"allow_hosts": ("memory.lan:3847",)}, "memory.lan:3847", None, None),
        ({"allow_hosts": ("memory.lan:3847",)}, "memory.lan:3848", None, 421),
        ({"allow_origins": ("http://app.lan",)}, "localhost:3847", "http://app.lan", None),
        ({"allow_origins": ("http://app.lan",)}, "localhost:3847", "http://app.lan:80", None),
        ({"allow_origins": ("http://app.lan",)}, "localhost:3847", "https://app.lan", 403),
        ({"host": "::1"}, "[::1]:3847", None, None),
        ({"host": "[::1]"}, "[::1]:3847", None, None),
        ({"host": "192.0.2.7"}, "192.0.2.7:3847", None, None),
        ({"host": "192.0.2.7"}, "localhost:3847", None, 421),
        ({"host": "0.0.0.0"}, "0.0.0.0:3847", None, 421),
        ({"host": "0.0.0.0"}, "127.0.0.1:3847", None, None),
        ({"host": "::"}, "localhost:3847", "http://localhost:3847", None),
        ({"host": "::"}, "localhost:3848", None, 421),
    ],
)  # fmt: skip
def test_what_is_ours_follows_from_the_settings(
    tmp_path: Path, settings: dict[str, Any], host: str, origin: str | None, status: int | None
) -> None:
    known = Addresses(Settings.load({}, data=tmp_path, **settings))
    headers = [(b"host", host.encode())]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    if status is None:
        known.check(headers)
        return
    with pytest.raises(Rejected) as refused:
        known.check(headers)
    assert refused.value.status == status


@pytest.mark.parametrize(
    ("site", "accepted"),
    [("same-origin", True), ("none", True), ("same-site", False), ("cross-site", False)],
)
def test_a_page_of_another_host_of_the_site_is_another_page(
    tmp_path: Path, site: str, accepted: bool
) -> None:
    known = Addresses(Settings.load({}, data=tmp_path))
    headers = [(b"host", b"localhost:3847"), (b"sec-fetch-site", site.encode())]
    if accepted:
        known.check(headers)
        return
    with pytest.raises(Rejected) as refused:
        known.check(headers)
    assert refused.value.status == 403


@pytest.mark.parametrize("text", ["", "a b", "a:b", "http://x", "[::1", "x/", "*"])
def test_a_setting_that_is_no_address_is_refused_at_the_start(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a host"):
        Addresses(Settings.load({}, data=tmp_path, allow_hosts=(text,)))
    with pytest.raises(InvalidInput, match="is not an origin"):
        Addresses(Settings.load({}, data=tmp_path, allow_origins=(f"{text}/x",)))


def test_ports_are_numbers_and_names_are_compared_without_case() -> None:
    assert parse_host("LocalHost:3847", 80) == HostPort("localhost", 3847)
    assert parse_host("localhost", 80) == HostPort("localhost", 80)
    assert parse_host("localhost:0080", 80) is None
    assert parse_origin("null") is None
    assert parse_origin("https://a.example") == ("https", HostPort("a.example", 443))


def test_what_a_page_of_another_site_posts_has_no_effect(data: Path) -> None:
    with running(data) as server:
        client = server.client()
        for headers in (
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {"sec-fetch-site": "cross-site"},
            {"content-type": "text/plain"},
            {"content-type": "application/x-www-form-urlencoded"},
            {"content-type": "multipart/form-data; boundary=x"},
            {"content-type": ""},
        ):
            answer = client.request("POST", "/mcp", message("remember", {"text": "x"}), headers)
            assert answer.status in (403, 415), headers
        assert client.call("recall", {"query": "x"}).result["memories"] == []


@pytest.mark.parametrize(
    ("address", "told", "comes_from"),
    [
        ("::ffff:10.0.0.5", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.5", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.5", "198.51.100.1, 203.0.113.9, 10.0.0.5", "203.0.113.9"),
        ("::ffff:10.0.0.6", "203.0.113.9", "10.0.0.6"),
        ("2001:db8::7", "203.0.113.9", "2001:db8::7"),
        ("fd00::5", "203.0.113.9", "203.0.113.9"),
    ],
)
def test_a_proxy_is_known_on_a_socket_for_both_kinds_of_addresses(
    address: str, told: str, comes_from: str
) -> None:
    scope = {"client": (address, 1), "headers": [(b"x-forwarded-for", told.encode())]}
    assert request.client_address(scope, ("10.0.0.5", "fd00::5")) == comes_from
