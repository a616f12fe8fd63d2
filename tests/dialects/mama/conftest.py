"""The dialect behind its gate, and behind a real HTTP server."""

from __future__ import annotations

import contextlib
import json
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
from commonplace.access.accounts import Accounts
from commonplace.access.caller import Caller
from commonplace.access.signed import Tokens
from commonplace.access.vault import open_vault
from commonplace.dialects import registry
from commonplace.dialects.contract import Dialect, RequestInfo
from commonplace.dialects.registry import token_formats
from commonplace.embedding.provider import Embedder
from commonplace.engine.library import Library
from commonplace.errors import CommonplaceError
from commonplace.server.gate import Gate
from commonplace.server.http import ApplicationParts, build_application
from commonplace.server.serving import bind
from commonplace.server.settings import Settings
from commonplace.storage.system import open_system

SEED_DECISION = {
    "type": "decision",
    "topic": "auth_strategy",
    "decision": "Use JWT with refresh tokens",
    "reasoning": "Need stateless auth for API scaling. Session-based auth failed under load.",
    "confidence": 0.85,
}
SEED_CHECKPOINT = {
    "type": "checkpoint",
    "summary": "Refactoring auth module. JWT validation working, refresh flow TODO.",
    "next_steps": "1. Implement refresh token rotation\n2. Add token expiration handling\n"
    "3. Update tests",
    "open_files": ["src/auth/jwt.ts", "src/middleware/auth.ts", "tests/auth.test.ts"],
}


class Kept:
    """An embedder that outlives the libraries it is lent to."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.id, self.weights = model.id, model.weights
        self.dimensions, self.local = model.dimensions, model.local
        self.english = model.english

    def embed(self, texts: Any, *, query: bool = False) -> Any:
        return self._model.embed(texts, query=query)

    def close(self) -> None:
        """The next test uses it."""


class Failed(AssertionError):
    """A tool answered with isError."""


@dataclass
class Mama:
    """The dialect's operations, called as whoever it is."""

    gate: Gate
    library: Library
    caller: Caller = Caller()  # noqa: RUF009
    dialect: str = "mama"

    def wire(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The result as it goes over the wire."""
        outcome = self.gate.perform(self.caller, RequestInfo(), self.dialect, name, arguments)
        return outcome.wire

    def call(self, name: str, **arguments: Any) -> Any:
        """What a tool says."""
        wire = self.wire(name, **arguments)
        text = wire["content"][0]["text"]
        if wire.get("isError"):
            raise Failed(text)
        return json.loads(text)

    def failure(self, name: str, **arguments: Any) -> str:
        """The text of a failure."""
        wire = self.wire(name, **arguments)
        assert wire["isError"] is True
        assert [each["type"] for each in wire["content"]] == ["text"]
        text: str = wire["content"][0]["text"]
        return text

    def operation(self, name: str, **arguments: Any) -> Any:
        """What an operation of the routes gives."""
        outcome = self.gate.perform(self.caller, RequestInfo(), self.dialect, name, arguments)
        if isinstance(outcome.error, CommonplaceError):
            raise outcome.error
        return outcome.wire["value"]

    def decide(
        self, topic: str, decision: str, reasoning: str = "It was tried.", **more: Any
    ) -> str:
        """Save a decision; its id."""
        saved = self.call(
            "save", type="decision", topic=topic, decision=decision, reasoning=reasoning, **more
        )
        identity: str = saved["id"]
        return identity

    def found(self, query: str, **more: Any) -> list[dict[str, Any]]:
        """The results of a search."""
        results: list[dict[str, Any]] = self.call("search", query=query, **more)["results"]
        return results

    @property
    def memory(self) -> Commonplace:
        """The caller's space."""
        return Commonplace(space=self.caller.space, library=self.library)


@contextlib.contextmanager
def opened(path: Path, embedder: Embedder | None, prefix: str = "") -> Iterator[Mama]:
    """The dialect and our own over a data directory."""
    library = Library(path, embedder=embedder)
    with contextlib.closing(library), contextlib.closing(open_system(path)) as system:
        dialects: list[Dialect] = [
            registry.load("mama").prefixed(prefix),
            registry.load("commonplace"),
        ]
        yield Mama(Gate(library, system, dialects), library)


@pytest.fixture
def mama(tmp_path: Path, builtin_model: Any) -> Iterator[Mama]:
    """With the built-in model."""
    with opened(tmp_path / "data", Kept(builtin_model)) as made:
        yield made


@pytest.fixture
def wordy(tmp_path: Path) -> Iterator[Mama]:
    """Without a model."""
    with opened(tmp_path / "wordy", None) as made:
        yield made


@pytest.fixture
def ours(mama: Mama) -> Mama:
    """Our own dialect on the same memory."""
    return replace(mama, dialect="commonplace")


@dataclass
class Web:
    """A real server, and a client of it."""

    url: str
    client: httpx.Client
    tokens: Tokens
    library: Library

    def get(self, path: str, **query: Any) -> httpx.Response:
        return self.client.get(self.url + path, params=query)

    def post(self, path: str, body: Any) -> httpx.Response:
        return self.client.post(self.url + path, json=body)

    @property
    def memory(self) -> Commonplace:
        return Commonplace(library=self.library)


@contextlib.contextmanager
def serving(
    path: Path,
    embedder: Embedder | None,
    environ: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[Web]:
    """The whole application on a free port of this machine."""
    with contextlib.ExitStack() as stack:
        library = Library(path, embedder=embedder)
        stack.callback(library.close)
        system = stack.enter_context(contextlib.closing(open_system(path)))
        vault = open_vault(system)
        tokens = stack.enter_context(
            contextlib.closing(Tokens(system, vault, token_formats(), environ=environ or {}))
        )
        accounts = Accounts(system, vault, tokens.credentials)
        socket = stack.enter_context(contextlib.closing(bind("127.0.0.1", 0)))
        chosen = Settings(data=path, port=socket.getsockname()[1], **settings)
        app = build_application(ApplicationParts(chosen, library, system, tokens, accounts, vault))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
        thread.start()
        until = time.monotonic() + 20
        while not server.started:
            assert thread.is_alive() and time.monotonic() < until, "the server did not start"
            time.sleep(0.01)
        try:
            with httpx.Client(timeout=120) as client:
                yield Web(chosen.base_url, client, tokens, library)
        finally:
            server.should_exit = True
            thread.join(20)


@pytest.fixture(scope="module")
def shared_real_web(tmp_path_factory: pytest.TempPathFactory, builtin_model: Any) -> Iterator[Web]:
    """A server that the tests of a file share; `real_web` empties it before each."""
    with serving(tmp_path_factory.mktemp("real-web"), Kept(builtin_model)) as web:
        yield web


@pytest.fixture(scope="module")
def shared_web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """The same without a model."""
    with serving(tmp_path_factory.mktemp("web"), None) as web:
        yield web


@pytest.fixture
def web(shared_web: Web) -> Web:
    """A server without a model, whose memory is empty."""
    return emptied(shared_web)


@pytest.fixture
def real_web(shared_real_web: Web) -> Web:
    """A server with the built-in model, whose memory is empty."""
    return emptied(shared_real_web)


def emptied(web: Web) -> Web:
    """The server without what earlier tests stored."""
    states = ("active", "dying", "archived", "superseded", "dead")
    while found := web.memory.browse(states=states, limit=1000)[0]:
        web.memory.purge(*(each.id for each in found))
    return web
