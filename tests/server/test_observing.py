"""What an operator sees: enough to run it, and nothing of what is remembered or secret."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commonplace.access.caller import request_id
from commonplace.server.observing import JsonLines, TextLines
from server.harness import MCP, NEW, OLD, Running, lab, message, registered, running

TEXT, SECRET = "zqtextzq", "zqsecretzq"


@pytest.fixture(scope="module")
def server(shared_data: Path) -> Iterator[Running]:
    with registered(lab()), running(shared_data, call_seconds=0.3) as one:
        yield one


def everything(server: Running, token: str) -> None:
    """The canaries through every input there is."""
    client = server.client(token)
    secrets = {
        "authorization": f"Bearer {token}", "cookie": SECRET, "x-llm-api-key": SECRET,
        "idempotency-key": SECRET, "user-agent": SECRET, "mcp-session-id": SECRET,
        "referer": f"https://x/?token={SECRET}", "x-forwarded-for": SECRET,
    }  # fmt: skip
    for era in (OLD, NEW):
        for tool, arguments in (
            ("remember", {"text": TEXT, "title": TEXT, "tags": [TEXT], "kind": TEXT}),
            ("recall", {"query": TEXT}),
            ("read", {"id": TEXT}),
            ("context", {"about": TEXT}),
            ("checkpoint", {"summary": TEXT, "next": [TEXT]}),
            ("revise", {"id": TEXT, "odd": TEXT}),
            (TEXT, {TEXT: TEXT}),
        ):
            client.call(tool, arguments, era=era, headers=secrets)
            client.call(tool, arguments, era=era, meta_key=SECRET)
    for tool in ("break", "nap"):
        client.call(tool, {"text": TEXT, "seconds": 0.5}, path="/mcp/lab")
        client.call(tool, {"text": TEXT, **({"seconds": 0.5} if tool == "nap" else {})},
                    path="/mcp/lab", headers=secrets)  # fmt: skip
    for body in (
        TEXT.encode(),
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": TEXT}).encode(),
        json.dumps({"jsonrpc": "2.0", "id": TEXT, "method": 5, TEXT: TEXT}).encode(),
    ):
        client.request("POST", f"{MCP}?token={SECRET}&{TEXT}={TEXT}", body, secrets)
    client.request("GET", f"/{TEXT}/{SECRET}?{SECRET}", headers=secrets)
    client.request("ODD", "/health", headers=secrets)
    if token != SECRET:
        older = server.older(token)
        older.call("remember", {"text": TEXT})
        older.send({"jsonrpc": "2.0", "id": 1, "method": TEXT, "params": {TEXT: TEXT}})
        older._posts.request("POST", older.endpoint, json.dumps({TEXT: TEXT}).encode())
        older._posts.request("POST", f"{older.endpoint}{SECRET}", message(TEXT, {}))
        older.close()


def test_no_log_line_and_no_metric_holds_a_text_or_a_secret(server: Running) -> None:
    token = server.token("observed", user="ann")
    everything(server, token)
    everything(server, SECRET)
    told = server.log.getvalue()
    metrics = server.client().request("GET", "/metrics").body.decode()
    assert "request" in told and "commonplace_calls_total" in metrics
    for canary in (TEXT, SECRET, token, token[5:25]):
        for place, text in (("log", told), ("metrics", metrics)):
            lines = [line for line in text.splitlines() if canary in line]
            assert lines == [], (place, lines[:3])


def test_labels_are_a_fixed_number_whatever_is_asked(server: Running) -> None:
    client = server.client()

    def series() -> int:
        return len(client.request("GET", "/metrics").body.splitlines())

    client.request("ODD", "/nothing")
    client.call("no_such_tool", {})
    series()
    before = series()
    for number in range(50):
        client.request(f"ODD{number}", "/nothing")
        client.request("GET", f"/nothing/{number}")
        client.request("GET", f"/mcp/being-{number}/x")
        client.call(f"no_such_tool_{number}", {})
    assert series() - before <= 8


def test_calls_and_refusals_are_counted(server: Running) -> None:
    def counted(line: str) -> float:
        metrics = server.client().request("GET", "/metrics").body.decode()
        found = [float(one.rpartition(" ")[2]) for one in metrics.splitlines() if line in one]
        return found[0] if found else 0.0

    ok = 'commonplace_calls_total{dialect="commonplace",outcome="ok",tool="remember"}'
    no = 'commonplace_refused_total{reason="scope"}'
    before = counted(ok), counted(no)
    server.client().call("remember", {"text": "x"})
    server.client(server.token("counted", {"read"})).call("remember", {"text": "x"})
    assert (counted(ok), counted(no)) == (before[0] + 1, before[1] + 1)


def record(text: str, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("commonplace.x", logging.INFO, "f.py", 1, text, (), None)
    made.__dict__.update(extra)
    return made


def test_a_line_is_one_line() -> None:
    odd = record("event\nforged", address="x\ny", status=200)
    (line,) = JsonLines().format(odd).splitlines()
    told = json.loads(line)
    assert (told["event"], told["address"], told["level"]) == ("event\nforged", "x\ny", "info")
    assert told["at"].endswith("Z")
    (line,) = TextLines().format(odd).splitlines()
    assert "\\n" in line and "status=200" in line


def test_a_line_knows_its_request() -> None:
    token = request_id.set("r-1")
    try:
        assert json.loads(JsonLines().format(record("x")))["request"] == "r-1"
        assert "request=r-2" in TextLines().format(record("x", request="r-2"))
    finally:
        request_id.reset(token)


@pytest.mark.parametrize("form", [JsonLines, TextLines])
def test_a_fault_is_told_by_where_and_what_sort_but_not_by_its_words(form: Any) -> None:
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as cause:
            raise ValueError(f"bad {TEXT}") from cause
    except ValueError:
        made = record("failed")
        made.exc_info = sys.exc_info()
    told = form().format(made)
    assert "ValueError" in told and "KeyError" in told and "test_observing.py" in told
    assert TEXT not in told.replace("TEXT", "") and SECRET not in told
