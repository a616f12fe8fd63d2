"""T19: how large, how deep, how often, how long: each limit one below, at it, and one above."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from commonplace.access.rates import MOST_BUCKETS, RateLimiter
from commonplace.dialects.rest import Rejected
from commonplace.server import connections, door, gate, request
from commonplace.server.calls import MOST_CALLS
from commonplace.server.request import MOST_CONTAINERS, MOST_DEPTH, check_nesting
from server import harness
from server.harness import HELD, Running, cli, lab, message, registered, running, wait_until

BODY = 20_000
LAB = "/mcp/lab"


@pytest.fixture(scope="module")
def limited(shared_data: Path) -> Iterator[Running]:
    """A server with small limits and tools that reach them."""
    with registered(lab()), running(shared_data, body_bytes=BODY, call_seconds=0.4) as one:
        yield one


def padded(size: int) -> bytes:
    """A call that stores something, of exactly so many bytes."""
    empty = len(json.dumps(message("remember", {"text": ""})))
    body = json.dumps(message("remember", {"text": "x" * (size - empty)})).encode()
    assert len(body) == size
    return body


@pytest.mark.parametrize(("size", "status"), [(BODY - 1, 200), (BODY, 200), (BODY + 1, 413)])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_has_a_size(limited: Running, size: int, status: int, chunked: bool) -> None:
    body = padded(size)
    headers = {"transfer-encoding": "chunked"} if chunked else {}
    sent = b"%x\r\n%s\r\n0\r\n\r\n" % (size, body) if chunked else body
    client = limited.client()
    answer = client.request("POST", "/mcp", sent, headers)
    client.close()
    assert answer.status == status
    if status == 413:
        assert answer.json["error"]["code"] == "TOO_LARGE"


def nested(levels: int) -> bytes:
    """A message whose JSON is so many levels deep."""
    inner = "[" * (levels - 1) + "]" * (levels - 1)
    return b'{"jsonrpc":"2.0","id":1,"method":"ping","x":' + inner.encode() + b"}"


@pytest.mark.parametrize(
    ("levels", "ok"), [(MOST_DEPTH - 1, True), (MOST_DEPTH, True), (MOST_DEPTH + 1, False)]
)
def test_json_has_a_depth(limited: Running, levels: int, ok: bool) -> None:
    answer = limited.client().request("POST", "/mcp", nested(levels))
    assert (b"TOO_DEEP" not in answer.body) == ok
    assert answer.status == (200 if ok else 400)


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("", 0),
        ("[]", 1),
        ("[[],[]]", 2),
        ('{"a":{"b":[1]}}', 3),
        ('"[[[["', 0),
        (r'"\"[[["', 0),
        (r'["\\", [ ]]', 2),
        ('["[", "]]]]", [', 2),
        ("]]]][", 1),
        ('"[[[', 0),
    ],
)
def test_depth_counts_brackets_outside_strings(text: str, levels: int) -> None:
    deep = MOST_DEPTH - levels  # what is around it
    check_nesting(b"[" * deep + text.encode())
    if levels and not text.startswith("]"):
        with pytest.raises(Rejected, match="levels deep"):
            check_nesting(b"[" * (deep + 1) + text.encode())


@pytest.mark.parametrize("count", [MOST_CONTAINERS - 1, MOST_CONTAINERS, MOST_CONTAINERS + 1])
@pytest.mark.parametrize("kind", ["[]", "{}", '"[["', '{"[":1}'])
def test_json_has_so_many_arrays_and_objects(count: int, kind: str) -> None:
    inner = count - 1 if kind[0] != '"' else 10 * count
    body = b"[" + ",".join([kind] * inner).encode() + b"]"
    if count <= MOST_CONTAINERS or kind[0] == '"':
        check_nesting(body)
        return
    with pytest.raises(Rejected, match="arrays and objects"):
        check_nesting(body)


@pytest.mark.parametrize(
    "hostile",
    [
        lambda n: b"[" * 65 + b'"' + b'\\"' * (n // 2),
        lambda n: b'"' * n,
        lambda n: b"[" * n,
        lambda n: b"[" * 65 + b'"' + b"\\" * n,
        lambda n: b'["' * (n // 2),
    ],
)
def test_the_work_for_a_hostile_text_grows_with_its_length_only(
    hostile: Callable[[int], bytes],
) -> None:
    def work(size: int) -> float:
        body = hostile(size)
        costs = []
        for _ in range(3):
            begun = time.process_time()
            with contextlib.suppress(Rejected):
                check_nesting(body)
            costs.append(time.process_time() - begun)
        return min(costs)

    # Sixteen times the length: quadratic work would be 256 times as much.
    assert work(400_000) < 100 * max(work(25_000), 0.001)


def test_a_batch_has_a_length(limited: Running) -> None:
    reader = limited.client(limited.token("batches", {"read"}))
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "remember"}}
    for count, status in ((MOST_CALLS - 1, 403), (MOST_CALLS, 403), (MOST_CALLS + 1, 413)):
        assert reader.request("POST", "/mcp", [call] * count).status == status
    assert len(limited.calls("batches")) == (MOST_CALLS - 1) + MOST_CALLS + 1


@pytest.mark.parametrize(
    ("size", "ok"),
    [
        (gate.RESPONSE_BYTES - 1, True),
        (gate.RESPONSE_BYTES, True),
        (gate.RESPONSE_BYTES + 1, False),
    ],
)
def test_an_answer_has_a_size_and_one_that_is_too_large_has_no_effect(
    limited: Running, size: int, ok: bool
) -> None:
    client = limited.client(path=LAB)
    text = f"large {size}"
    answer = client.call("large", {"size": size, "text": text})
    assert answer.json["result"]["isError"] is not ok
    if not ok:
        assert answer.error.startswith("RESPONSE_TOO_LARGE")
    found = client.call("recall", {"query": text}, path="/mcp").result["memories"]
    assert (text in [one["text"] for one in found]) == ok


def test_a_call_that_takes_too_long_has_no_effect_and_one_row(limited: Running) -> None:
    client = limited.client(limited.token("naps", user="sleeper"), LAB)
    in_time = client.call("nap", {"seconds": 0.1, "text": "stored"})
    assert in_time.result["id"]
    begun = time.monotonic()
    late = client.call("nap", {"seconds": 0.9, "text": "never stored"})
    assert time.monotonic() - begun < 0.85
    assert late.error.startswith("TIMEOUT")
    wait_until(lambda: len(limited.calls("naps")) == 2)
    time.sleep(0.3)
    slow, quick = sorted(limited.calls("naps"), key=lambda call: call.success)
    assert (quick.tool, quick.success, slow.tool, slow.success) == ("nap", True, "nap", False)
    assert slow.error.startswith("TIMEOUT") and slow.milliseconds >= 400
    found = client.call("recall", {"query": "stored"}, path="/mcp").result["memories"]
    assert [one["text"] for one in found] == ["stored"]


@pytest.mark.usefixtures("limited")  # which has the tools
def test_slow_calls_do_not_hold_up_others(data: Path) -> None:
    with running(data) as server:
        slow = [
            threading.Thread(target=server.client(path=LAB).call, args=("hold",))
            for _ in range(HELD.parties - 1)
        ]
        for thread in slow:
            thread.start()
        try:
            assert server.client().call("recall", {"query": "x"}).result["memories"] == []
            assert all(thread.is_alive() for thread in slow)
        finally:
            HELD.wait(30)
            for thread in slow:
                thread.join()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "application/json"}, 200),
        ({"content-type": "application/json; charset=utf-8"}, 200),
        ({"content-encoding": "identity"}, 200),
        ({"content-type": "text/json"}, 415),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/jsonx"}, 415),
        ({"content-type": "multipart/form-data"}, 415),
        ({"content-type": ""}, 415),
        ({"content-encoding": "gzip"}, 415),
        ({"content-encoding": "br"}, 415),
        ({"content-encoding": "identity, gzip"}, 415),
    ],
)
def test_a_body_is_plain_json(limited: Running, headers: dict[str, str], status: int) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert limited.client().request("POST", "/mcp", body, headers).status == status


def test_a_chunked_body_without_a_type_is_refused(limited: Running) -> None:
    body = json.dumps(message("remember", {"text": "untyped"})).encode()
    raw = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    head = f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{limited.port}\r\n"
    head += "accept: application/json, text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", limited.port), 5) as connection:
        connection.sendall(head.encode() + raw)
        assert connection.recv(100).startswith(b"HTTP/1.1 415")


def opened(server: Running, raw: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), 10)
    connection.sendall(raw)
    return connection


def test_a_slow_body_is_not_waited_for(limited: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "BODY_SECONDS", 0.1)
    head = f"POST /mcp HTTP/1.1\r\nhost: localhost:{limited.port}\r\n"
    head += "content-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    with opened(limited, head.encode()) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/oauth/token", "application/x-www-form-urlencoded"),
        ("/oauth/register", "application/json"),
        ("/sign-in", "application/json"),
        ("/api/v2/auth/refresh", "application/json"),
    ],
)
def test_a_slow_body_is_not_waited_for_where_anybody_may_send_one(
    limited: Running, monkeypatch: pytest.MonkeyPatch, path: str, kind: str
) -> None:
    monkeypatch.setattr(request, "BODY_SECONDS", 0.1)
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{limited.port}\r\n"
    head += f"origin: http://127.0.0.1:{limited.port}\r\n"
    head += f"content-type: {kind}\r\ncontent-length: 100\r\n\r\n{{"
    with opened(limited, head.encode()) as connection:
        assert connection.recv(100)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 408")


@pytest.mark.parametrize("levels", [MOST_DEPTH - 1, MOST_DEPTH, MOST_DEPTH + 1])
def test_json_has_a_depth_where_anybody_may_send_it(limited: Running, levels: int) -> None:
    answer = limited.client().request("POST", "/api/v2/auth/refresh", nested(levels))
    assert (b"levels deep" in answer.body) == (levels > MOST_DEPTH)


@pytest.mark.parametrize("served", [0, 2])
def test_a_slow_head_is_not_waited_for(
    limited: Running, monkeypatch: pytest.MonkeyPatch, served: int
) -> None:
    begins = [b"G" if served else b""]  # an idle connection may stay open
    begins += [b"GET /hea", b"GET /health HTTP/1.1\r\nx-slow: "]
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    whole = f"GET /health HTTP/1.1\r\nhost: localhost:{limited.port}\r\n\r\n".encode()

    def answered(connection: socket.socket) -> None:
        told = b""
        while not told.endswith(b"}"):
            told += connection.recv(10_000)
        assert told.startswith(b"HTTP/1.1 200")

    with contextlib.ExitStack() as stack:
        waiting = {}
        for raw in begins:
            first = whole if served else raw
            waiting[raw] = stack.enter_context(opened(limited, first))
            if served:
                answered(waiting[raw])
        for number in range(served):
            time.sleep(0.3)  # longer than a head may take
            for raw, connection in waiting.items():
                last = number + 1 == served
                connection.sendall(raw if last else whole)
                if not last:
                    answered(connection)
        begun = time.monotonic()
        for connection in waiting.values():
            while connection.recv(10_000):
                pass
        assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    "headers",
    [
        [("x-large", "x" * 1_000_000)],
        [(f"x-{number}", "y" * 50) for number in range(20_000)],
        [("authorization", "Bearer " + "z" * 1_000_000)],
    ],
)
def test_huge_headers_are_refused(limited: Running, headers: list[tuple[str, str]]) -> None:
    head = f"GET /health HTTP/1.1\r\nhost: localhost:{limited.port}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers)
    connection = socket.create_connection(("127.0.0.1", limited.port), 10)
    try:
        connection.sendall(head.encode() + b"\r\n")
        told = connection.recv(1000)
    except ConnectionError:
        told = b""  # it hung up before it had read everything
    connection.close()
    assert told == b"" or told.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))
    assert limited.client().request("GET", "/health").status == 200


@pytest.fixture
def slow_refill(data: Path) -> Iterator[Running]:
    with running(data, rate=1, burst=6) as one:
        yield one


def test_an_address_may_ask_so_often_and_is_told_when_again(slow_refill: Running) -> None:
    client = slow_refill.client()
    answers = [client.request("GET", "/health") for _ in range(8)]
    assert [answer.status for answer in answers] == [200] * 6 + [429] * 2
    assert answers[-1].header("retry-after") == "1"
    assert answers[-1].json["error"]["code"] == "RATE_LIMITED"
    time.sleep(1.1)
    assert client.request("GET", "/health").status == 200


def test_a_credential_may_ask_so_often_from_wherever(data: Path) -> None:
    with running(data, rate=0.5, burst=5) as server:
        first, second = server.token("one"), server.token("two")

        def ask(token: str, address: str) -> int:
            """As from another machine."""
            import asyncio

            sent: list[Any] = []
            scope = {
                "type": "http", "method": "GET", "path": "/metrics", "raw_path": b"/metrics",
                "query_string": b"", "client": (address, 1), "root_path": "", "scheme": "http",
                "http_version": "1.1", "server": ("127.0.0.1", server.port),
                "headers": [
                    (b"host", f"localhost:{server.port}".encode()),
                    (b"authorization", f"Bearer {token}".encode()),
                ],
            }  # fmt: skip

            async def receive() -> Any:
                return {"type": "http.request", "body": b"", "more_body": False}

            async def send(told: Any) -> None:
                sent.append(told)

            asyncio.run(server.door(scope, receive, send))
            return int(sent[0]["status"])

        statuses = [ask(first, f"192.0.2.{number}") for number in range(6)]
        assert statuses == [200] * 5 + [429]
        assert ask(second, "192.0.2.99") == 200


def test_all_of_an_ipv6_network_counts_as_one_sender(data: Path) -> None:
    made = cli("token", "create", "--dialect", "commonplace", "--data", str(data))
    token = made.stdout.strip()
    with running(data, rate=0.01, burst=3, proxies=("127.0.0.1",)) as server:
        client = server.client(token)

        def ask(address: str) -> int:
            return client.request("GET", "/health", headers={"x-forwarded-for": address}).status

        assert [ask(f"2001:db8:0:1::{number}") for number in range(4)] == [200] * 3 + [429]
        assert ask("2001:db8:0:2::1") == 200
        assert ask("::ffff:192.0.2.1") == 200


def test_where_anybody_may_ask_the_rate_of_a_contract_counts_by_the_address_behind_a_proxy(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "_unhurried", lambda _, settings: settings)
    monkeypatch.setenv("COMMONPLACE_PENFIELD_RATE", "2")
    cli("token", "create", "--dialect", "penfield", "--data", str(data))
    with running(data, proxies=("127.0.0.1",)) as server:

        def ask(address: str) -> int:
            client, headers = server.client(), {"x-forwarded-for": address}
            return client.request("POST", "/api/v2/auth/refresh", {}, headers).status

        assert [ask("192.0.2.1") for _ in range(3)][2] == 429
        assert ask("192.0.2.2") != 429


def test_wrong_tokens_are_slowed_down_and_right_ones_are_not(data: Path) -> None:
    with running(data) as server:
        right = server.client(server.token("right"))
        wrong = server.client("cpt_wrong")
        statuses = [
            wrong.request("GET", "/metrics").status for _ in range(door.FAILURES_A_MINUTE + 3)
        ]
        assert statuses == [401] * door.FAILURES_A_MINUTE + [429] * 3
        assert right.request("GET", "/metrics").status == 200
        refused = server.calls("system")[::-1][door.FAILURES_A_MINUTE :]
        assert [call.error.partition(":")[0] for call in refused[:1]] == ["RATE_LIMITED"]


def test_buckets_hold_a_burst_and_are_refilled() -> None:
    now = 0.0
    rates = RateLimiter(2.0, 4, clock=lambda: now)
    assert [rates.take("a") for _ in range(5)] == [0, 0, 0, 0, 1]
    assert rates.take("b") == 0
    now = 0.49
    assert rates.take("a") == 1
    now = 0.5
    assert (rates.seconds_to_wait("a"), rates.take("a"), rates.take("a")) == (0, 0, 1)
    now = 1_000.0
    assert [rates.take("a") for _ in range(5)] == [0, 0, 0, 0, 1]
    assert RateLimiter(0.1, 1, clock=lambda: now).seconds_to_wait("new") == 0


def test_there_are_only_so_many_buckets() -> None:
    rates = RateLimiter(1.0, 1, clock=lambda: 0.0)
    for number in range(MOST_BUCKETS + 10):
        rates.take(str(number))
    assert len(rates._buckets) == MOST_BUCKETS
