"""A server that restarts itself: the same process, the same port, and nobody is turned away."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

from .conftest import serving


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def test_a_server_restarts_itself_on_the_same_port(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    own = str(Path(sys.executable).with_name("commonplace"))
    command = [own, "serve", "--data", str(tmp_path / "data")]
    command += ["--port", str(port), "--embedding", "none"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ})
    try:
        until = time.monotonic() + 60
        while True:
            try:
                first = httpx.get(url + "/api/dashboard/status", timeout=30).json()["server"]
                break
            except httpx.TransportError:
                assert time.monotonic() < until and process.poll() is None
                time.sleep(0.1)

        answer = httpx.post(url + "/api/restart", timeout=30)
        assert answer.json().keys() == {"success", "message"}

        started = first["started_at"]
        until = time.monotonic() + 60
        while started == first["started_at"]:
            assert time.monotonic() < until
            time.sleep(0.05)
            try:  # a connection that was open is closed; none is refused
                told = httpx.get(url + "/api/dashboard/status", timeout=30)
            except httpx.ConnectError as error:
                raise AssertionError("somebody was turned away") from error
            except httpx.TransportError:
                continue
            started = told.json()["server"]["started_at"]
        assert process.poll() is None, "it is the same process"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def test_a_server_that_cannot_says_so(tmp_path: Path) -> None:
    with serving(tmp_path / "data", None) as web:
        answer = web.client.post(web.url + "/api/restart")
    assert (answer.status_code, answer.json()["code"]) == (501, "NOT_CONFIGURED")
    assert answer.json()["error"] is True
