"""What the tests share: memories on disk, and embedders that cost little."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import loop_guard
import postgres_engine
import postgres_selection
from commonplace import Commonplace
from commonplace.engine import library
from commonplace.storage import system
from commonplace.text.analysis import analyse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from commonplace.embedding.builtin import BuiltIn


# Servers that tests start in the background listen in a directory of this run, and end with it.
RUNTIME = tempfile.mkdtemp(prefix="cp-", dir="/tmp" if os.name == "posix" else None)
os.environ["XDG_RUNTIME_DIR"] = RUNTIME
os.environ["COMMONPLACE_IDLE_SECONDS"] = "3"
# Some clients pass on nothing but PATH and HOME. By its last entry, their servers are found too.
os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), RUNTIME])

# Shells ignore Ctrl-C in what they start in the background; some tests send it to programs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

loop_guard.watch()
loop_guard.watch_postgres()
# Processes that tests start are watched too: they load `guarded/sitecustomize.py`.
_GUARDED = str(Path(__file__).parent / "guarded")
# Servers of tests do not open the port that MAMA's have by default: several run at once.
os.environ.setdefault("MAMA_EMBEDDING_PORT", "")
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, (_GUARDED, os.environ.get("PYTHONPATH", "")))
)

# The tests run inside a repository; what they store belongs to no project, unless they say so.
os.environ["COMMONPLACE_PROJECT"] = "-"


if postgres_engine.ON_POSTGRES:
    from commonplace.cli import options
    from commonplace.server import serving

    for each in (library, system, options, serving):
        postgres_engine.use(each)
    if os.environ.get("COMMONPLACE_TEST_WITHOUT_SPACE"):
        postgres_engine.forget_space()


@pytest.fixture(autouse=True, scope="session")
def database_server() -> None:
    """The server of PostgreSQL, before a test starts a process that must find it."""
    if postgres_engine.ON_POSTGRES:
        postgres_engine.server()


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """The engine that the tests run on; what a test has stored is gone when it ends."""
    if not postgres_engine.ON_POSTGRES or "tmp_path" not in request.fixturenames:
        yield postgres_engine.ENGINE
        return
    folder = request.getfixturevalue("tmp_path")
    yield postgres_engine.ENGINE
    postgres_engine.forget(folder)


@pytest.fixture(autouse=True)
def no_database_on_the_loop() -> Iterator[None]:
    """Fail a test in which a database was used in the thread of an event loop."""
    yield
    stacks, loop_guard.found[:] = list(loop_guard.found), []
    assert not stacks, f"{len(stacks)} uses of a database on the event loop, one:\n{stacks[0]}"


@pytest.fixture(autouse=True, scope="module")
def no_server_is_left() -> Iterator[None]:
    """End the servers that tests of a module have started in the background."""
    yield
    kill_background_servers()


def kill_background_servers() -> None:
    for pid in background_servers():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def background_servers() -> list[int]:
    """The servers that this run has started in the background, on systems with /proc."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            if b"\0commonplace.server.background\0" in command and (
                RUNTIME.encode() in (entry / "environ").read_bytes()
            ):
                found.append(int(entry.name))
    return found


def pytest_unconfigure() -> None:
    """End the servers that are left, and remove the directory of their sockets."""
    kill_background_servers()
    shutil.rmtree(RUNTIME, ignore_errors=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What was found when the last server of a module stopped fails the run."""
    if loop_guard.found:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        sys.stderr.write(f"a database was used on the event loop:\n{loop_guard.found[0]}")


# Distributions in folders of the tests, found as if they were installed: dialects of their own.
sys.path += map(str, sorted(Path(__file__).parent.glob("dialects/*/plugin")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On PostgreSQL, leave out what is listed with its reason in `postgres_selection.py`."""
    if not postgres_engine.ON_POSTGRES:
        return
    left_out = [item for item in items if postgres_selection.reason(item.nodeid)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """What is loaded stays, so that whoever looks for garbage need not go through it each time."""
    gc.collect()
    gc.freeze()


class WordVectors:
    """A deterministic local embedder: a text is the sum of directions given by its words.

    `meanings` maps words to a common one, so that texts without a word in common can be near.
    """

    local = True
    dimensions = 64

    def __init__(self, weights: str = "first", meanings: dict[str, str] | None = None) -> None:
        self.id = "word-vectors"
        self.weights = weights
        self.meanings = meanings or {}
        self.texts = 0
        self._directions: dict[str, NDArray[np.float32]] = {}
        self.gate = threading.Event()
        self.gate.set()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        if not query:
            self.gate.wait(30)
            self.texts += len(texts)
        return np.stack([self._vector(text) for text in texts])

    def _vector(self, text: str) -> NDArray[np.float32]:
        total = np.zeros(self.dimensions, np.float32)
        for word in analyse(text) or ["nothing"]:
            total += self._direction(self.meanings.get(word, word))
        return np.asarray(total / np.linalg.norm(total), np.float32)

    def _direction(self, word: str) -> NDArray[np.float32]:
        known = self._directions.get(word)
        if known is None:
            seed = hashlib.sha256(f"{self.weights}:{word}".encode()).digest()
            numbers = np.random.default_rng(int.from_bytes(seed[:8]))
            known = numbers.standard_normal(self.dimensions).astype(np.float32)
            self._directions[word] = known
        return known

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Commonplace]:
    """An empty space that is searched by words alone."""
    with Commonplace(tmp_path / "data", embedding="none") as opened:
        yield opened


@pytest.fixture(scope="session")
def builtin_model() -> BuiltIn:
    """The model inside the package, loaded once."""
    from commonplace.embedding.builtin import BuiltIn

    return BuiltIn()


class _Kept:
    """An embedder that outlives the libraries it is lent to."""

    def __init__(self, model: BuiltIn) -> None:
        self._model = model
        self.id, self.weights = model.id, model.weights
        self.dimensions, self.local = model.dimensions, model.local
        self.count_tokens = model.count_tokens

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        return self._model.embed(texts, query=query)

    def close(self) -> None:
        """The next test uses it."""


@pytest.fixture
def real(tmp_path: Path, builtin_model: BuiltIn) -> Iterator[Commonplace]:
    """An empty space with the built-in model."""
    with Commonplace(tmp_path / "real", embedding=_Kept(builtin_model)) as opened:
        yield opened


@pytest.fixture
def words() -> WordVectors:
    """A quick deterministic embedder."""
    return WordVectors()


@pytest.fixture
def vectored(tmp_path: Path, words: WordVectors) -> Iterator[Commonplace]:
    """An empty space with the quick deterministic embedder."""
    with Commonplace(tmp_path / "vectored", embedding=words) as opened:
        yield opened


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Look again and again; fail when it never comes true."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.02)


def texts(found: object) -> list[str]:
    """The texts of hits, memories, or a page of them."""
    items = found[0] if isinstance(found, tuple) else found
    return [getattr(item, "memory", item).text for item in items]  # type: ignore[attr-defined]
