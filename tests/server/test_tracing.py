"""Spans leave the server when asked for, and carry no memory and no secret."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from commonplace.server.tracing import tracing
from server.harness import Running


class _Collector(http.server.BaseHTTPRequestHandler):
    received: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.received.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    received: list[tuple[str, bytes]] = []
    handler = type("Collector", (_Collector,), {"received": received})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", received
    server.shutdown()
    thread.join()
    server.server_close()


def _serve(data: Path, **environ: str) -> tuple[subprocess.Popen[str], str]:
    started = subprocess.Popen(
        [sys.executable, "-m", "commonplace.cli", "serve", "--data", str(data), "--port", "0",
         "--embedding", "none"],
        env={**os.environ, **environ}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert started.stdout is not None
    said = started.stdout.readline()
    address = re.search(r"http://\S+", said)
    assert address, said + (started.stderr.read() if started.stderr else "")
    return started, address[0]


def _remember(base: str, text: str) -> None:
    message = {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "remember", "arguments": {"text": text}},
    }  # fmt: skip
    request = urllib.request.Request(
        f"{base}/mcp/commonplace",
        json.dumps(message).encode(),
        {"content-type": "application/json", "accept": "application/json, text/event-stream"},
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        assert json.load(response)["result"]["isError"] is False


def _stop(started: subprocess.Popen[str]) -> None:
    started.send_signal(signal.SIGTERM)
    assert started.wait(20) == 0
    for stream in (started.stdout, started.stderr):
        assert stream is not None
        stream.close()


def test_a_call_becomes_a_span_without_what_was_said(
    tmp_path: Path, collector: tuple[str, list[tuple[str, bytes]]]
) -> None:
    endpoint, received = collector
    started, base = _serve(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    try:
        _remember(base, "the canary sings at dawn")
    finally:
        _stop(started)
    assert {path for path, _ in received} == {"/v1/traces"}
    sent = b"".join(body for _, body in received)
    assert b"tools/call remember" in sent and b"commonplace" in sent
    assert b"canary" not in sent


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"OTEL_SERVICE_NAME": "memory"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "$collector", "OTEL_SDK_DISABLED": "true"},
    ],
)
def test_nothing_is_sent_unless_asked_for(
    server: Running,
    collector: tuple[str, list[tuple[str, bytes]]],
    asked: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoint, received = collector
    for name, value in asked.items():
        monkeypatch.setenv(name, value.replace("$collector", endpoint))
    with tracing(os.environ) as on:
        _remember(f"http://127.0.0.1:{server.port}", "quiet")
    assert (on, received) == (False, [])
