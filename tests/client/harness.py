"""A client over `commonplace mcp`, and the server in the background that answers it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from commonplace.client import connection

PROGRAM = [sys.executable, "-m", "commonplace.cli"]
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "tests", "version": "1"},
}


class Agent:
    """An MCP client that starts `commonplace mcp` and sends it lines."""

    def __init__(
        self, data: Path, *words: str, environ: Mapping[str, str] | None = None, greet: bool = True,
        cwd: Path | None = None,
    ) -> None:  # fmt: skip
        if "--embedding" not in words:
            words = ("--embedding", "none", *words)
        self.process = subprocess.Popen(
            [*PROGRAM, "mcp", "--data", str(data), *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **(environ or {})}, cwd=cwd,
        )  # fmt: skip
        self._number = 0
        self._said: str | None = None
        if greet:
            self.first = self.ask("initialize", HELLO)
            self.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def tell(self, message: Any) -> None:
        assert self.process.stdin is not None
        line = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(self.end()[1])
        return json.loads(line)

    def ask(self, method: str, params: Any = None) -> Any:
        self._number += 1
        whole = {"jsonrpc": "2.0", "id": self._number, "method": method}
        self.tell(whole if params is None else {**whole, "params": params})
        answer = self.hear()
        assert answer["id"] == self._number
        return answer

    def call(self, tool: str, **arguments: Any) -> Any:
        answer = self.ask("tools/call", {"name": tool, "arguments": arguments})
        if "error" in answer:
            raise RuntimeError(answer["error"]["message"])
        result = answer["result"]
        if result.get("isError"):
            raise RuntimeError(result["content"][0]["text"])
        return result.get("structuredContent", result)

    def end(self) -> tuple[int, str]:
        """Close the input; the exit code, and what went to standard error."""
        with contextlib.suppress(OSError, ValueError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        code = self.process.wait(120)
        if self._said is not None:
            return code, self._said
        assert self.process.stdout is not None and self.process.stderr is not None
        self.process.stdout.close()
        self._said = self.process.stderr.read().decode()
        self.process.stderr.close()
        return code, self._said

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.end()


def place_of(data: Path) -> connection.Place:
    return connection.place_of(str(data))


def server_of(data: Path) -> dict[str, Any] | None:
    """The status of the server that runs; None if none does."""
    return connection.ask(place_of(data), {"kind": "status"})


def kill_server(data: Path) -> int:
    """Kill the server that holds the lock; its process id."""
    pid = int(Path(place_of(data).lock_file).read_text())
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return pid


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.02)
