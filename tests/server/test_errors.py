"""T40: whatever is sent, an answer has one shape and tells nothing of what is inside."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.harness import (
    MCP,
    NEW,
    OLD,
    Answer,
    Running,
    headers_of,
    lab,
    matrix,
    message,
    registered,
    running,
)

ROUTES: dict[str, dict[str, Any]] = matrix("routes")
TELLING = re.compile(
    rb"Traceback|File \"|\.py\b|(?i:sqlite|apsw)|/home/|/root/|/tmp/|/dev/shm|/usr/|site-packages"
    rb"|SELECT |INSERT |starlette|uvicorn|anyio|KeyError|TypeError|AttributeError"
)


@pytest.fixture(scope="module")
def server(shared_data: Path) -> Iterator[Running]:
    with registered(lab()), running(shared_data) as one:
        yield one


def check(answer: Answer, sent: Any = None) -> None:
    assert answer.status < 500, (sent, answer.body)
    assert not TELLING.search(answer.body), (sent, answer.body)
    assert len(answer.header("x-request-id") or "") >= 1


def bodies() -> Iterator[bytes]:
    """Everything that is not quite a call."""
    chance = random.Random(1)
    right = json.dumps(message("remember", {"text": "x", "tags": ["a"]})).encode()
    yield from (b"", b" ", b"null", b"true", b"0", b'""', b"[]", b"{}", b"[{}]", b"[null]", b"{")
    yield from (
        b"\xff\xfe",
        b"\x00",
        b"\xef\xbb\xbf{}",
        b"NaN",
        b"1e999",
        b"-",
        b"[1,]",
        b"{'a':1}",
    )
    yield right.decode().encode("utf-16")
    yield right[:-1]
    yield right + right
    for field, values in {
        "jsonrpc": [None, "1.0", 2, ""],
        "id": [None, {}, [], 1.5, "", "x" * 10_000, True, 2**63, -1],
        "method": [None, "", "tools", "tools/call/x", 5, "__proto__", "initialize", "x" * 10_000],
        "params": [None, [], "x", 5, {"name": None}, {"arguments": {}}, {"name": "remember"},
                   {"name": "remember", "arguments": []}, {"name": "remember", "arguments": "x"},
                   {"name": ["remember"], "arguments": {}}, {"name": "x" * 10_000},
                   {"name": "../../etc/passwd"}, {"name": "remember", "_meta": 5},
                   {"name": "remember", "_meta": {"progressToken": {}}}],
    }.items():  # fmt: skip
        for value in values:
            yield json.dumps({**json.loads(right), field: value}).encode()
    odd: list[Any] = [
        None, True, 0, -1, 1.5, 10**400, "", "x" * 5_000, "\x00", "\ufffe", "'; DROP TABLE x;--",
        '" OR 1=1', "NEAR(a b)", "a AND (b", "*", "%", "_", "{}", [], [[]], {}, {"$ne": 1}, [None],
        "../../../etc/passwd", "file:///etc/passwd", "${jndi:ldap://x}", "{{7*7}}", "\u202e", "🙂",
    ]  # fmt: skip
    for tool, names in {
        "remember": ["text", "tags", "kind", "importance", "occurred_at", "trust", "replaces"],
        "recall": ["query", "limit", "kinds", "since", "as_of", "why"],
        "read": ["id", "as_of", "history"],
        "revise": ["id", "version", "undo"],
        "forget": ["ids"],
        "connect": ["source", "weight", "kind"],
        "explore": ["id", "depth"],
        "feedback": ["ids", "useful"],
        "checkpoint": ["summary", "next"],
        "context": ["about"],
    }.items():
        base = {"remember": {"text": "x"}, "recall": {"query": "x"}}.get(tool, {"id": "x"})
        for name in names:
            for value in chance.sample(odd, 6):
                yield json.dumps(message(tool, {**base, name: value})).encode()
    for _ in range(60):
        torn = bytearray(right)
        for _ in range(chance.randrange(1, 6)):
            torn[chance.randrange(len(torn))] = chance.randrange(256)
        yield bytes(torn)


@pytest.mark.parametrize("era", [OLD, NEW])
def test_nothing_that_is_sent_to_a_dialect_tells_what_is_inside(server: Running, era: str) -> None:
    client = server.client(server.token("corpus"))
    for body in bodies():
        check(client.request("POST", MCP, body, headers_of(era, "tools/call", "remember")), body)


def test_nothing_that_is_sent_to_the_older_transport_either(server: Running) -> None:
    older = server.older(server.token("older"))
    for number, body in enumerate(bodies()):
        if number % 12 == 0:
            check(older._posts.request("POST", older.endpoint, body), body)
    assert older.send(message("recall", {"query": "x"}, identity="after")).status == 202
    older.close()


@pytest.mark.parametrize("path", [*ROUTES, "/", "/nothing", "/mcp/a/b", "//", "/%00", "/..%2f"])
def test_no_route_and_no_method_tells_what_is_inside(server: Running, path: str) -> None:
    sample = ROUTES.get(path, {}).get("sample", path)
    # A token that is not known is one header more; the rest of the way in has been walked by then.
    for client in (server.client(), server.direct("cpt_wrong")):
        server.door._failures._buckets.clear()
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "ODD"):
            for query in ("", "?session_id=x", f"?session_id={'0' * 32}", "?x[]=%00&x=%ff"):
                body = b"{" if method in ("POST", "PUT", "PATCH") else None
                answer = client.request(method, sample + query, body, {"last-event-id": "1"})
                server.door._failures._buckets.clear()
                check(answer, (method, sample + query))


def test_what_we_answer_ourselves_has_one_shape(server: Running) -> None:
    client = server.client()
    for answer, code in (
        (client.request("GET", "/nothing"), "NOT_FOUND"),
        (client.request("POST", "/health", {}), "METHOD_NOT_ALLOWED"),
        (client.request("GET", "/health", headers={"host": "evil.com"}), "ADDRESS"),
        (client.request("POST", "/mcp", b"x", {"content-type": "text/plain"}), "CONTENT_TYPE"),
        (server.client("x").request("GET", "/metrics"), "UNAUTHORIZED"),
    ):
        told = answer.json["error"]
        assert told["code"] == code and told["message"].endswith((".", "'."))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("abc-123", True), ("a" * 64, True), ("a" * 65, False), ("", False), ("a b", False),
        ("<script>", False), ("a;b", False), ("é", False),
    ],
)  # fmt: skip
def test_a_request_has_an_id(server: Running, given: str, kept: bool) -> None:
    for path in ("/health", "/nothing", "/metrics"):
        answer = server.client().request("GET", path, headers={"x-request-id": given.encode()})
        told = answer.header("x-request-id")
        assert (told == given) == kept
        assert told and re.fullmatch(r"[A-Za-z0-9._-]{1,64}", told)
    first, second = (server.client().request("GET", "/health").header("x-request-id") for _ in "12")
    assert first != second


def test_a_fault_of_ours_is_told_by_its_request_alone(server: Running) -> None:
    client = server.client(server.token("faults"), "/mcp/lab")
    answer = client.call("break", {"text": "zqsecret"}, headers={"x-request-id": "find-me"})
    check(answer)
    assert answer.error.startswith("INTERNAL_ERROR") and "find-me" in answer.error
    assert "zqsecret" not in answer.body.decode()
    assert "find-me" in server.log.getvalue()


@pytest.mark.parametrize("damage", ["garbage", "directory", "truncated"])
def test_a_damaged_file_is_told_without_its_name(data: Path, damage: str) -> None:
    with running(data) as server:
        file = server.file("broken")
        file.parent.mkdir(parents=True, exist_ok=True)
        if damage == "directory":
            file.mkdir()
        else:
            file.write_bytes(
                b"not a database at all " * 500 if damage == "garbage" else b"SQLite f"
            )
        client = server.client(server.token("broken"))
        for tool, arguments in (("remember", {"text": "x"}), ("recall", {"query": "x"})):
            answer = client.call(tool, arguments)
            assert not TELLING.search(answer.body), answer.body
            assert "error" in answer.body.decode().lower()
        assert server.client(server.token("whole")).call("remember", {"text": "x"}).result


def test_a_server_that_cannot_write_down_a_refusal_still_refuses(data: Path) -> None:
    with running(data) as server:
        server.file("broken").parent.mkdir(parents=True, exist_ok=True)
        server.file("broken").write_bytes(b"not a database at all " * 500)
        reader = server.client(server.token("broken", {"read"}))
        for answer in (
            reader.call("remember", {"text": "x"}),
            reader.call("no_such_tool", {}),
            reader.request("GET", "/metrics"),
        ):
            assert not TELLING.search(answer.body), answer.body
            assert answer.status in (200, 403, 500, 503)
