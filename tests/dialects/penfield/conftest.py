"""The dialect in process through its gate, and the whole server over a real port."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from commonplace import Commonplace
from commonplace.access.accounts import Accounts
from commonplace.access.caller import Caller, Scope
from commonplace.access.credentials import Grant
from commonplace.access.signed import Tokens
from commonplace.access.vault import open_vault
from commonplace.dialects import registry
from commonplace.dialects.contract import RequestInfo
from commonplace.dialects.registry import token_formats
from commonplace.embedding.builtin import BuiltIn
from commonplace.engine.library import Library
from commonplace.server import http
from commonplace.server.gate import Gate, Outcome
from commonplace.server.serving import bind, uvicorn_config
from commonplace.server.settings import Settings
from commonplace.storage.system import open_system
from conftest import WordVectors, _Kept


class Tools:
    """The tools and operations as a caller of the gate has them."""

    def __init__(self, gate: Gate, library: Library, caller: Caller | None = None) -> None:
        self._gate = gate
        self.library = library
        self.caller = caller or Caller()
        self.memory = Commonplace(library=library, space=self.caller.space)

    def outcome(self, name: str, /, **arguments: Any) -> Outcome:
        return self._gate.perform(self.caller, RequestInfo(), "penfield", name, arguments)

    def __call__(self, name: str, /, **arguments: Any) -> Any:
        """The value of a call that must go well."""
        outcome = self.outcome(name, **arguments)
        assert outcome.error is None, outcome.wire
        wire = outcome.wire
        return wire["structuredContent"] if "structuredContent" in wire else wire["value"]

    def fails(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """What a call says that must not go well."""
        outcome = self.outcome(name, **arguments)
        assert outcome.error is not None, outcome.wire
        assert outcome.wire["isError"] is True
        body: dict[str, Any] = outcome.wire["structuredContent"]
        return body

    def as_(self, *scopes: Scope, space: str = "default") -> Tools:
        """The same tools for another caller."""
        caller = replace(self.caller, scopes=frozenset(scopes), space=space)
        return Tools(self._gate, self.library, caller)


@contextlib.contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder in memory where there is one: what is tested here is not the disk."""
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, prefix="penfield-") as folder:
        yield Path(folder)


@pytest.fixture
def tools() -> Iterator[Tools]:
    """An empty space with a quick deterministic embedder, as the person at this machine."""
    with quick_folder() as folder, opened(folder / "data", WordVectors()) as found:
        yield found


@pytest.fixture
def wordless() -> Iterator[Tools]:
    """The same without any embedder."""
    with quick_folder() as folder, opened(folder / "data", None) as found:
        yield found


@pytest.fixture
def real_tools(builtin_model: BuiltIn) -> Iterator[Tools]:
    """The same with the model inside the package."""
    with quick_folder() as folder, opened(folder / "data", _Kept(builtin_model)) as found:
        yield found


@contextlib.contextmanager
def opened(path: Path, embedder: Any) -> Iterator[Tools]:
    library = Library(path, embedder=embedder)
    with contextlib.closing(library), contextlib.closing(open_system(library.path)) as system:
        yield Tools(Gate(library, system, [registry.load("penfield")]), library)


@dataclass
class Server:
    """A server on a port of this machine."""

    url: str
    parts: http.ApplicationParts

    def client(self, token: str | None = None) -> httpx.Client:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=f"{self.url}/api/v2", headers=headers, timeout=120)

    def key(self, *scopes: Scope, space: str = "default", user: str = "ann") -> str:
        grant = Grant(
            space=space, user=user, scopes=frozenset(scopes), dialects=frozenset({"penfield"})
        )
        return self.parts.tokens.credentials.create(grant).token


@contextlib.contextmanager
def running(path: Path, **settings: Any) -> Iterator[Server]:
    """The whole application on a free port."""
    with contextlib.ExitStack() as stack:
        library = Library(path, embedder=WordVectors())
        stack.callback(library.close)
        system = stack.enter_context(contextlib.closing(open_system(library.path)))
        vault = open_vault(system)
        tokens = stack.enter_context(
            contextlib.closing(Tokens(system, vault, token_formats(), environ={}))
        )
        accounts = Accounts(system, vault, tokens.credentials)
        listening = stack.enter_context(contextlib.closing(bind("127.0.0.1", 0)))
        port = listening.getsockname()[1]
        chosen = Settings(data=library.path, port=port, **settings)
        parts = http.ApplicationParts(chosen, library, system, tokens, accounts, vault)
        server = uvicorn.Server(uvicorn_config(http.build_application(parts)))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        until = time.monotonic() + 20
        while not server.started:
            assert time.monotonic() < until, "the server did not start"
            time.sleep(0.02)
        try:
            yield Server(f"http://127.0.0.1:{port}", parts)
        finally:
            server.should_exit = True
            thread.join(20)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One server for the tests of a file; each uses a space of its own."""
    with pytest.MonkeyPatch.context() as patch, quick_folder() as folder:
        patch.setenv("COMMONPLACE_PENFIELD_RATE", "1000000")
        with running(folder / "data", rate=10_000.0, burst=100_000) as found:
            yield found


_spaces = iter(range(1, 1_000_000))


@pytest.fixture
def rest(server: Server) -> Iterator[httpx.Client]:
    """REST with an API key for an empty space."""
    key = server.key("read", "write", "delete", space=f"space{next(_spaces)}")
    with server.client(key) as client:
        yield client
