"""Other memories beside this one: the same texts and questions of LoCoMo, each by its own server.

Each is installed into a directory of its own, `build/peers` or BENCH_PEERS. Those that need an
embedding model get the same one, all-MiniLM-L6-v2, from an endpoint on loopback, since nothing can
be downloaded while it is measured; Commonplace has it inside.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench import locomo
from bench.report import Row, Section, milliseconds, say, share
from bench.server import HERE, connected_stdio, node_program, scratch_directory
from commonplace.embedding.builtin import BuiltIn

TEXTS, QUESTIONS, TOP = 1_000, 200, 10
MARK_CHARS = 60  # characters of a text by which it is known again in an answer
INSTALL_FOLDER = Path(os.environ.get("BENCH_PEERS", HERE.parent / "build" / "peers"))
PYTHON = os.environ.get("BENCH_PYTHON", sys.executable)
"""The Python of the others. Its SQLite must load extensions, which mcp-memory-service needs."""
MODEL = "all-MiniLM-L6-v2"
Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Peer:
    """How another memory is installed, started, written to and asked."""

    name: str
    packages: tuple[str, ...]
    command: Callable[[Path, Path, str], Sequence[str]]
    """From its own directory, one for its data, and the address of the embeddings."""
    store: Callable[[str, int], Call]
    search: Callable[[str], Call]
    variables: Callable[[Path, str], dict[str, str]] = lambda _data, _url: {}
    node: bool = False

    @property
    def place(self) -> Path:
        """The directory in which it is installed."""
        return INSTALL_FOLDER / self.name


PEERS = (
    Peer(
        "commonplace",
        (str(HERE.parent),),
        lambda here, data, _: [
            f"{here}/bin/commonplace", "mcp", "--in-process", "--data", f"{data}",
        ],
        lambda text, _: ("remember", {"text": text}),
        lambda query: ("recall", {"query": query, "limit": TOP, "minimum": 0}),
    ),
    Peer(
        "server-memory",
        ("@modelcontextprotocol/server-memory@2026.8.31",),
        lambda here, _data, _url: [
            node_program(),
            f"{here}/node_modules/@modelcontextprotocol/server-memory/dist/index.js",
        ],
        lambda text, number: (
            "create_entities",
            {"entities": [{"name": f"{number}", "entityType": "turn", "observations": [text]}]},
        ),
        lambda query: ("search_nodes", {"query": query}),
        lambda data, _url: {"MEMORY_FILE_PATH": f"{data}/memory.jsonl"},
        node=True,
    ),
    Peer(
        "mem0ai",
        ("mem0ai==2.2.1",),
        lambda here, data, url: [f"{here}/bin/python", f"{HERE}/mem0_server.py", f"{data}", url],
        lambda text, _: ("add", {"text": text}),
        lambda query: ("search", {"query": query, "limit": TOP}),
        lambda data, _url: {"HOME": f"{data}", "MEM0_TELEMETRY": "False"},
    ),
    Peer(
        "mcp-memory-service",
        ("mcp-memory-service==12.2.0",),
        lambda here, _data, _url: [f"{here}/bin/memory", "server"],
        # with a conversation it stores texts that resemble others, too
        lambda text, _: ("memory_store", {"content": text, "conversation_id": "bench"}),
        lambda query: ("memory_search", {"query": query, "limit": TOP, "mode": "hybrid"}),
        lambda data, url: {
            "HOME": f"{data}", "MCP_MEMORY_STORAGE_BACKEND": "sqlite_vec",
            "MCP_MEMORY_SQLITE_PATH": f"{data}/memory.db", "MCP_MEMORY_BASE_DIR": f"{data}",
            "MCP_EXTERNAL_EMBEDDING_URL": f"{url}/embeddings",
            "MCP_EXTERNAL_EMBEDDING_MODEL": MODEL,
        },
    ),
    Peer(
        "mempalace",
        ("mempalace==3.11.0",),
        lambda here, _data, _url: [f"{here}/bin/mempalace-mcp"],
        lambda text, _: (
            "mempalace_add_drawer", {"wing": "bench", "room": "chats", "content": text},
        ),
        lambda query: ("mempalace_search", {"query": query[:250], "limit": TOP}),
        lambda data, url: {
            "HOME": f"{data}", "MEMPALACE_PALACE_PATH": f"{data}/palace",
            "MEMPALACE_EMBEDDING_MODEL": "openai-compat",
            "MEMPALACE_EMBEDDING_API_URL": url.removesuffix("/v1"),
            "MEMPALACE_EMBEDDING_API_MODEL": MODEL,
        },
    ),
)  # fmt: skip


@contextlib.contextmanager
def serve_embeddings() -> Iterator[str]:
    """Serve an OpenAI-compatible endpoint with the English encoder; yield its URL."""
    encoder = BuiltIn().english
    encoder.embed(["load it"])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            given = asked["input"]
            vectors = encoder.embed([given] if isinstance(given, str) else given)
            data = [
                {"object": "embedding", "index": at, "embedding": [float(x) for x in vector]}
                for at, vector in enumerate(vectors)
            ]
            usage = {"prompt_tokens": 1, "total_tokens": 1}
            body = {"object": "list", "model": MODEL, "data": data, "usage": usage}
            sent = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


def _install(peer: Peer) -> None:
    if peer.place.exists():
        return
    say(f"installing {peer.name}")
    if peer.node:
        peer.place.mkdir(parents=True)
        subprocess.run(["npm", "install", "--silent", *peer.packages], cwd=peer.place, check=True)
        return
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(peer.place)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", f"{peer.place}/bin/python", "install", "-q"]
    subprocess.run([*pip, *peer.packages], check=True)


def _megabytes(place: Path) -> float:
    """The packages that were installed, without pip, which a virtual environment may have."""
    unwanted = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
    roots = [*place.glob("lib/python*/site-packages/*"), *place.glob("node_modules/*")]
    kept = [root for root in roots if not root.name.startswith(unwanted)]
    files = (file for root in kept for file in ([root] if root.is_file() else root.rglob("*")))
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def _resident(pid: int) -> float:
    """Megabytes of memory of a process and of those that it has started."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,rss="], capture_output=True, text=True, check=True
    ).stdout
    rows = [[int(each) for each in line.split()] for line in listed.splitlines()]
    family = {pid}
    for one, parent, _ in sorted(rows):
        if parent in family:
            family.add(one)
    return sum(size for one, _, size in rows if one in family) / 1e3


def _chosen_texts_and_questions(path: Path) -> tuple[dict[str, str], list[locomo.Question]]:
    """Return the first texts of the data by their names, and questions that they answer."""
    texts: dict[str, str] = {}
    asked: list[locomo.Question] = []
    for number, conversation in enumerate(locomo.read_conversations(path)):
        for line in conversation.lines[: TEXTS - len(texts)]:
            texts[f"{number} {line.ref}"] = f"{line.speaker}: {line.text}"
        for question in conversation.questions:
            wanted = tuple(f"{number} {each}" for each in question.evidence)
            if question.category != locomo.ADVERSARIAL and all(each in texts for each in wanted):
                asked.append(locomo.Question(question.text, question.category, wanted))
    step = max(1, len(asked) // QUESTIONS)
    return texts, asked[::step][:QUESTIONS]


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = call()
    return time.perf_counter() - begun, result


def _flat_text(answer: Any) -> str:
    """Return all texts of an answer on one line, with nested JSON decoded."""
    if isinstance(answer, str):
        with contextlib.suppress(ValueError):
            inner = json.loads(answer)
            if not isinstance(inner, str):
                return _flat_text(inner)
        return " ".join(answer.split())
    if isinstance(answer, dict):
        return " ".join(map(_flat_text, answer.values()))
    return " ".join(map(_flat_text, answer)) if isinstance(answer, list) else ""


def measure_peer(
    peer: Peer, texts: dict[str, str], asked: Sequence[locomo.Question], url: str
) -> list[Row]:
    _install(peer)
    with scratch_directory() as data:
        command = peer.command(peer.place, data, url)
        variables = peer.variables(data, url)
        begun = time.perf_counter()
        with connected_stdio(command, **variables) as server:
            started = time.perf_counter() - begun
            first, _ = _timed(lambda: server.call(*peer.search("warm up")))
            say(f"{peer.name}: storing {len(texts):,} texts")
            begun = time.perf_counter()
            storing = [
                _timed(lambda t=text, n=number: server.call(*peer.store(t, n)))[0]  # type: ignore[misc]
                for number, text in enumerate(texts.values())
            ]
            while "degraded" in json.dumps(server.call(*peer.search(asked[0].text))):
                time.sleep(0.1)  # ours acknowledges before it embeds, and says what is missing
            whole = time.perf_counter() - begun
            say(f"{peer.name}: asking {len(asked)} questions")
            searching, found = [], []
            for question in asked:
                took, answer = _timed(lambda q=question.text: server.call(*peer.search(q)))  # type: ignore[misc]
                searching.append(took)
                told = _flat_text(answer)
                marks = [" ".join(texts[each].split())[:MARK_CHARS] for each in question.evidence]
                found.append(sum(mark in told for mark in marks) / len(marks))
            resident = _resident(server.process.pid)
    values = {
        "evidence in the first ten": statistics.mean(found),
        "search, p50": statistics.median(searching),
        "store, p50": statistics.median(storing),
        "all stored and searchable, s": whole,
        "start to the first answer, s": started + first,
        "memory, MB": resident,
        "installed, MB": _megabytes(peer.place),
    }
    shown: dict[str, Callable[[float], str]] = {
        "evidence in the first ten": share,
        "search, p50": milliseconds,
        "store, p50": milliseconds,
    }
    return [
        Row(
            name=f"{peer.name}: {name}",
            measured=shown.get(name, "{:.1f}".format)(value),
            values={name: value},
        )
        for name, value in values.items()
    ]


def measure(path: Path) -> Section:
    """Measure every peer that can be installed here, one after the other."""
    texts, asked = _chosen_texts_and_questions(path)
    rows: list[Row] = []
    with serve_embeddings() as url:
        for peer in PEERS:
            measured = measure_peer(peer, texts, asked, url)
            say("; ".join(f"{row.name} {row.measured}" for row in measured))
            rows += measured
    notes = [
        f"{len(texts):,} turns of LoCoMo in one store, {len(asked)} questions, wall clock, one call"
        f" at a time, after a load of {os.getloadavg()[0]:.1f}",
        f"each by its MCP server over stdio, mem0 by its library; their model is {MODEL} from an"
        " endpoint on loopback, whose memory and installed size are not counted",
        "server-memory has no model: it finds what contains the question's words as they stand",
    ]
    return Section("Other memories", rows, notes)
