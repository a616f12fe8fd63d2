"""A workspace to call tools in: in process, and over HTTP with the contract's token."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from commonplace import Commonplace
from commonplace.access.caller import FULL_SCOPES, Caller
from commonplace.dialects import registry
from commonplace.dialects.contract import RequestInfo
from commonplace.engine.library import Library
from commonplace.server.gate import Gate
from commonplace.server.serving import OpenServer, open_server, uvicorn_config
from commonplace.server.settings import Settings
from commonplace.storage.system import open_system
from conftest import WordVectors


@dataclass(frozen=True)
class Result:
    """What a tool answered."""

    wire: Mapping[str, Any]

    @property
    def value(self) -> dict[str, Any]:
        assert not self.wire["isError"], self.text
        value: dict[str, Any] = self.wire["structuredContent"]
        assert json.loads(self.text) == value  # the text is the same JSON
        return value

    @property
    def text(self) -> str:
        text: str = self.wire["content"][0]["text"]
        return text

    @property
    def error(self) -> str:
        assert self.wire["isError"], self.text
        return self.text


@dataclass
class Workspace:
    """One workspace behind the gate."""

    gate: Gate
    library: Library
    caller: Caller = field(
        default_factory=lambda: Caller(
            space="acme",
            user="anna",
            scopes=FULL_SCOPES,
            credential="a token",
            dialects=frozenset({"orchestrator"}),
        )
    )
    request_info: RequestInfo = field(default_factory=RequestInfo)

    def call(self, tool: str, /, **arguments: Any) -> Result:
        dialect = "orchestrator"
        return Result(
            self.gate.perform(self.caller, self.request_info, dialect, tool, arguments).wire
        )

    def value(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        return self.call(tool, **arguments).value

    def do(self, operation: str, /, **arguments: Any) -> Any:
        """An operation that a REST route performs."""
        outcome = self.gate.perform(
            self.caller, self.request_info, "orchestrator", operation, arguments
        )
        if outcome.error is not None:
            raise outcome.error
        return outcome.wire["value"]

    def at(self, space: str) -> Workspace:
        """Another workspace of the same server."""
        caller = Caller(
            space=space,
            user=self.caller.user,
            scopes=FULL_SCOPES,
            credential="a token",
            dialects=self.caller.dialects,
        )
        return Workspace(self.gate, self.library, caller)

    def as_agent(self, slug: str, conversation: str = "") -> Workspace:
        """The same workspace, called by one of its agents."""
        headers = {"x-conversation-id": conversation} if conversation else {}
        request_info = RequestInfo(session=f"{conversation or 'c'}:{slug}", headers=headers)
        return Workspace(self.gate, self.library, self.caller, request_info)

    @property
    def memory(self) -> Commonplace:
        return Commonplace(space=self.caller.space, library=self.library)


@contextlib.contextmanager
def opened(path: Path, embedder: Any) -> Iterator[Workspace]:
    library = Library(path, embedder=embedder)
    with contextlib.closing(library), contextlib.closing(open_system(path)) as system:
        yield Workspace(Gate(library, system, [registry.load("orchestrator")]), library)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace whose meaning is in its words."""
    with opened(tmp_path / "data", WordVectors()) as made:
        yield made


@dataclass
class Server:
    """A real server on a port of its own."""

    made: OpenServer
    url: str

    def token(self, user: str = "anna", workspace: str = "acme", **options: Any) -> str:
        return self.made.parts.tokens.hmac["orchestrator"].issue(user, workspace, **options).token

    def client(self, token: str | None = None, **headers: str) -> httpx.Client:
        given = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers={**given, **headers}, timeout=30)

    def call(self, token: str, tool: str, /, arguments: dict[str, Any], **headers: str) -> Result:
        """A tool over the wire, by hand."""
        body = {
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        }  # fmt: skip
        accept = {"accept": "application/json, text/event-stream"}
        with self.client(token, **accept, **headers) as client:
            answer = client.post("/mcp/v1", json=body)
        assert answer.status_code == 200, answer.text
        return Result(answer.json()["result"])


@contextlib.contextmanager
def served_at(data: Path, **options: Any) -> Iterator[Server]:
    settings = Settings.load(
        {}, data=data, port=0, embedding="none", require_token=True, rate=10_000.0, **options
    )
    with open_server(settings) as made:
        server = uvicorn.Server(uvicorn_config(made.app))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [made.listening]})
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        try:
            yield Server(made, made.settings.base_url)
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with served_at(tmp_path / "served") as made:
        yield made
