"""A being to talk to: in process through the gate, or over a whole server."""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from commonplace import Commonplace
from commonplace.access.caller import READ_ONLY_SCOPES, Caller
from commonplace.access.credentials import Grant
from commonplace.access.vault import open_vault
from commonplace.dialects.being import beings, running
from commonplace.dialects.being.dialect import DIALECT
from commonplace.dialects.contract import RequestInfo, Setting
from commonplace.engine.library import Library
from commonplace.server.gate import Gate, Outcome
from commonplace.server.serving import OpenServer, open_server, uvicorn_config
from commonplace.server.settings import Settings
from commonplace.storage.system import open_system
from conftest import WordVectors, wait_until


@dataclass
class Desk:
    """The gate of a data directory, and the being that calls it."""

    library: Library
    gate: Gate
    memory: Commonplace
    being: str
    caller: Caller

    def outcome(self, tool: str, headers: Mapping[str, str] | None = None, **given: Any) -> Outcome:
        request_info = RequestInfo(request="test", headers=headers or {})
        return self.gate.perform(self.caller, request_info, "being", tool, given)

    def text(self, tool: str, headers: Mapping[str, str] | None = None, **given: Any) -> str:
        """The one text item of a result that is no error."""
        wire = self.outcome(tool, headers, **given).wire
        assert not wire["isError"], wire
        assert [item["type"] for item in wire["content"]] == ["text"]
        said: str = wire["content"][0]["text"]
        return said

    def json(self, tool: str, headers: Mapping[str, str] | None = None, **given: Any) -> Any:
        return json.loads(self.text(tool, headers, **given))

    def memo(self, target: str, action: str, **given: Any) -> Any:
        return self.json("update_memory", target=target, action=action, **given)

    def other(self, name: str) -> Desk:
        """Another being of the same owner."""
        being = beings.create(self.memory, name).id
        return replace(self, being=being, caller=replace(self.caller, subject=being))

    def reader(self) -> Desk:
        return replace(self, caller=replace(self.caller, scopes=READ_ONLY_SCOPES))

    def idle(self) -> None:
        """Until no patrol is on its way."""
        wait_until(running.runtime_of(self.library).is_idle, 60)

    def live(self, *scenes: dict[str, Any]) -> dict[str, Any]:
        """Scenes, and a patrol that takes them."""
        for first in range(0, len(scenes), 9):
            self.text("update_notes", scenes=list(scenes[first : first + 9]))
        done: dict[str, Any] = self.json("trigger_patrol", messages=[])
        return done


def scene(action: str, day: str = "2026-04-14", **more: Any) -> dict[str, Any]:
    return {"action": action, "actors": ["Mika"], "when": [day], **more}


@contextlib.contextmanager
def open_desk(
    path: Path, embedder: Any, environ: Mapping[str, str] | None = None
) -> Iterator[Desk]:
    library = Library(path, embedder=embedder)
    with contextlib.closing(library), contextlib.closing(open_system(library.path)) as system:
        gate = Gate(library, system, [DIALECT])
        memory = Commonplace(library=library)
        being = beings.create(memory, "Aria").id
        setting = Setting(
            library=library,
            system=system,
            environ=environ or {},
            vault=lambda: open_vault(system, {}),
        )
        with running.background_work(setting):
            yield Desk(library, gate, memory, being, Caller(subject=being))


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: years of patrols need no real disk."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="commonplace-", dir=memory) as made:
        yield Path(made)


@pytest.fixture
def desk(in_memory: Path) -> Iterator[Desk]:
    """A being whose memory is searched by quick deterministic vectors."""
    with open_desk(in_memory / "data", WordVectors()) as made:
        yield made


@pytest.fixture
def wordy(tmp_path: Path) -> Iterator[Desk]:
    """A being without anything that knows meanings."""
    with open_desk(tmp_path / "data", None) as made:
        yield made


@dataclass
class Served:
    """A whole server on loopback."""

    base: str
    made: OpenServer

    def token(self, being: str = "", space: str = "default", read_only: bool = False) -> str:
        grant = Grant(
            space=space,
            subject=being,
            dialects=frozenset({"being"}),
            **({"scopes": READ_ONLY_SCOPES} if read_only else {}),
        )
        return self.made.parts.tokens.credentials.create(grant).token

    def bto(self, being: str) -> str:
        grant = Grant(
            subject=being, dialects=frozenset({"being"}), oauth=True, resource=f"{self.base}/mcp"
        )
        return self.made.parts.tokens.credentials.create(grant).token

    def being(self, name: str = "Aria", space: str = "default") -> str:
        return beings.create(Commonplace(space=space, library=self.made.parts.library), name).id

    def request(
        self, method: str, path: str, token: str = "", body: Any = None, **headers: str
    ) -> httpx.Response:
        if token:
            headers["authorization"] = f"Bearer {token}"
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        with httpx.Client(base_url=self.base, timeout=30) as client:
            return client.request(method, path, json=body, headers=headers)

    def rpc(self, path: str, token: str, method: str, **params: Any) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.send(path, token, body)

    def send(self, path: str, token: str, body: Any, **headers: str) -> httpx.Response:
        return self.request(
            "POST",
            path,
            token,
            body,
            accept="application/json, text/event-stream",
            mcp_protocol_version="2025-11-25",
            **headers,
        )

    def call(self, path: str, token: str, tool: str, **arguments: Any) -> httpx.Response:
        return self.rpc(path, token, "tools/call", name=tool, arguments=arguments)


@contextlib.contextmanager
def serving(
    data: Path, environ: Mapping[str, str] | None = None, **options: Any
) -> Iterator[Served]:
    """A server of a data directory, while the block runs."""
    settings = Settings.load(
        environ or {}, data=data, port=0, embedding="none", require_token=True, **options
    )
    with open_server(settings) as made:
        server = uvicorn.Server(uvicorn_config(made.app))
        server.config.load()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [made.listening]})
        thread.start()
        until = time.monotonic() + 30
        while not server.started:
            assert time.monotonic() < until
            time.sleep(0.02)
        try:
            yield Served(made.settings.base_url, made)
        finally:
            server.should_exit = True
            thread.join(20)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests that need the wire; each makes its own beings and spaces."""
    with serving(tmp_path_factory.mktemp("served")) as made:
        yield made


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A model service of our own."""
    from commonplace.platform import llm

    from .model_server import model_server

    llm._breaker.cache_clear()
    monkeypatch.setattr(llm, "PAUSE_SECONDS", 0.01)
    with model_server() as made:
        yield made


@pytest.fixture
def thinker(in_memory: Path, model: Any) -> Iterator[Desk]:
    """A being whose owner has kept a key to the model service."""
    with open_desk(in_memory / "data", WordVectors(), model.environ()) as made:
        running.runtime_of(made.library).keys().put("default", "sk-ant-kept-by-owner")
        yield made
