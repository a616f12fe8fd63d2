"""Speed, as ratios against floors measured in the same run on the same rows and queries."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import apsw
import numpy as np

import commonplace
from bench import corpus as corpora
from bench import embedders, floors, knowledge, patrol
from bench.corpus import Corpus
from bench.embedders import DIMENSIONS, ReadyMadeEmbedder
from bench.report import (
    CACHE,
    RESULTS,
    Row,
    Section,
    milliseconds,
    resident_bytes,
    say,
)
from commonplace import Commonplace, Library
from commonplace.dialects.clawbrain.tools import search_memories
from commonplace.dialects.orchestrator import drawers
from commonplace.engine.binding import lease
from commonplace.engine.finding.recall import MEANING_ONLY
from commonplace.storage.derived import quantise, unpack_matrix

CHUNK = 1_000
THREADS = 32
MEGABYTE = 1024 * 1024
READY_MADE_NOTE = "vectors are ready-made: embedding is not measured"


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    sizes: tuple[int, ...] = (1_000, 10_000, 100_000)
    queries: int = 100
    rounds: int = 3
    writes: int = 400
    spaces: int = 1_000
    per_space: int = 1_000
    warm_spaces: int = 50
    starts: int = 5

    @property
    def largest(self) -> int:
        """The size that the targets speak of."""
        return max(self.sizes)

    @cached_property
    def corpus(self) -> Corpus:
        """The rows and queries of every part."""
        say(f"making {self.largest:,} texts and vectors")
        return corpora.make_corpus(max(self.largest, self.per_space), self.queries)


QUICK_PLAN = Plan(sizes=(1_000, 10_000), queries=50, rounds=2, writes=150, spaces=200, starts=3)


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _percentiles(taken: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile."""
    return statistics.median(taken), float(np.percentile(taken, 99))


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A directory on the disk the project lies on: /tmp may be memory, which makes fsync free."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tmp-", dir=RESULTS) as directory:
        yield Path(directory)


def _embedder(corpus: Corpus) -> ReadyMadeEmbedder:
    return ReadyMadeEmbedder(corpus.asked)


# --- stores that are kept between runs ---------------------------------------------------------


@cache
def _fingerprint() -> str:
    """Return a digest of the sources that determine the content of a store's file."""
    root = Path(commonplace.__file__).parent
    files = [
        *sorted((root / "storage").glob("*.py")),
        *sorted((root / "text").glob("*.py")),
        root / "engine" / "content" / "memories.py",
        Path(corpora.__file__),
        Path(embedders.__file__),
    ]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def _cached_store(name: str, build: Callable[[Path], None]) -> Path:
    """Return a data directory of the cache, built if the present code has not built it yet."""
    place = CACHE / "stores" / f"{name}-{_fingerprint()}"
    if not place.exists():
        for old in place.parent.glob(f"{name}-*"):
            shutil.rmtree(old)
        half = place.with_name(place.name + ".part")
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        build(half)
        half.rename(place)
    return place


def _fill(memory: Commonplace, corpus: Corpus, start: int, stop: int) -> None:
    for first in range(start, stop, CHUNK):
        memory.remember_many(corpus.drafts(first, min(first + CHUNK, stop)))


def store_of(size: int, corpus: Corpus) -> Path:
    """Return a data directory with the corpus in its default space."""

    def build(directory: Path) -> None:
        say(f"storing {size:,} memories, once")
        library = Library(directory, embedder=_embedder(corpus))
        _fill(Commonplace(library=library), corpus, 0, size)
        library.close()

    return _cached_store(f"one-{size}", build)


def _fill_spaces(directory: Path, names: Sequence[str], corpus: Corpus, per_space: int) -> None:
    library = Library(directory, embedder=_embedder(corpus))
    for name in names:
        start = int(name.rpartition("-")[2]) * per_space % len(corpus)
        _fill(Commonplace(space=name, library=library), corpus, start, start + per_space)
        library.drop(name)
    library.close()


def spaces_of(plan: Plan) -> tuple[Path, list[str]]:
    """Return a data directory of many spaces, and their names."""
    names = [f"space-{number}" for number in range(plan.spaces)]

    def build(directory: Path) -> None:
        say(f"storing {plan.spaces:,} spaces of {plan.per_space:,}, once; this takes minutes")
        context = multiprocessing.get_context("spawn")
        workers = [
            context.Process(
                target=_fill_spaces, args=(directory, names[part::2], plan.corpus, plan.per_space)
            )
            for part in range(2)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
            if worker.exitcode:
                raise RuntimeError("A worker that fills spaces failed.")

    return _cached_store(f"many-{plan.spaces}x{plan.per_space}", build), names


# --- writing -----------------------------------------------------------------------------------


def measure_durable_store(plan: Plan) -> Section:
    """One write at a time, and many threads at once, against one bare commit per write."""
    corpus, count = plan.corpus, plan.writes
    with _scratch() as directory:
        library = Library(directory, embedder=_embedder(corpus))
        memory = Commonplace(library=library)
        memory.remember_many(corpus.drafts(0, 1))
        say(f"durable store, {count} writes alone")
        path = library.file("default")
        alone, bare, one_by_one = [], [], []
        beside = floors.BareTables(directory / "beside.db")
        for at in range(1, count + 1):  # in turn, so that both meet the same disk
            drafts = corpus.drafts(at, at + 1)
            alone.append(_timed(lambda: memory.remember_many(drafts)))  # noqa: B023
            rows = floors.written_rows(path, at, at)
            bare.append(_timed(lambda: beside.insert(rows)))  # noqa: B023
            one_by_one.append(rows)
        beside.close()
        say(f"durable store, {THREADS} threads")
        rates, bare_rates, most, synced = [], [], [], []
        tables = floors.BareTables(directory / "bare.db")
        shared = floors.BareTables(directory / "shared.db")
        for part in range(4):
            some = one_by_one[part * count // 4 : (part + 1) * count // 4]
            taken = [_timed(lambda: tables.insert(rows)) for rows in some]  # noqa: B023
            bare_rates.append(len(taken) / sum(taken))
            rates.append(_parallel_writes_per_second(memory, corpus, count))
            parts = [some[at : at + THREADS] for at in range(0, len(some), THREADS)]
            groups = [floors.joined_rows(part) for part in parts]
            most.append(len(some) / sum(_timed(lambda: shared.insert(g)) for g in groups))  # noqa: B023
            synced += floors.fsync_seconds(directory / "fsync", 50)
        tables.close()
        shared.close()
        library.close()
    floor = statistics.median(bare)
    middle, slow = _percentiles(alone)
    rate, bare_rate = statistics.median(rates), statistics.median(bare_rates)
    bound = statistics.median(most)
    table = [
        Row(
            name="one thread, p50",
            measured=milliseconds(middle),
            against=f"one bare commit {milliseconds(floor)}",
            ratio=middle / floor,
            values={"p50": middle, "p99": slow, "floor p50": floor},
        ),
        Row(name="one thread, p99", measured=milliseconds(slow)),
        Row(
            name=f"{THREADS} threads",
            measured=f"{rate:,.0f}/s",
            against=f"one bare commit per write {bare_rate:,.0f}/s",
            ratio=rate / bare_rate,
            target="≥ 10×",
            ok=rate / bare_rate >= 10,
            values={"rate": rate, "floor rate": bare_rate, "rates": rates},
        ),
        Row(
            name=f"the most there is to win here: {THREADS} bare writes to a commit",
            measured=f"{bound:,.0f}/s",
            against=f"one bare commit per write {bare_rate:,.0f}/s",
            ratio=bound / bare_rate,
            values={"rate": bound, "floor rate": bare_rate, "rates": most},
        ),
        Row(
            name=f"{THREADS} threads, against the engine's own single thread",
            measured=f"{rate:,.0f}/s",
            against=f"one thread {1 / middle:,.0f}/s",
            ratio=rate * middle,
            values={"rate": rate, "one thread": 1 / middle},
        ),
        Row(
            name="the disk alone: 4 KB and fsync, p50",
            measured=milliseconds(statistics.median(synced)),
            values={"p50": statistics.median(synced)},
        ),
    ]
    return Section(
        "Durable store", table, [READY_MADE_NOTE, "the floor writes the same rows and indexes"]
    )


def _parallel_writes_per_second(memory: Commonplace, corpus: Corpus, writes: int) -> float:
    """Return how many writes per second many threads make, each waiting for the disk."""
    each = max(2, writes * 4 // THREADS)
    drafts = [corpus.drafts(at, at + 1) for at in range(THREADS * each)]
    ready = threading.Barrier(THREADS + 1)

    def work(mine: Sequence[Any]) -> None:
        ready.wait()
        for draft in mine:
            memory.remember_many(draft)

    threads = [threading.Thread(target=work, args=(drafts[n::THREADS],)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return len(drafts) / (time.perf_counter() - began)


def measure_bulk_import(plan: Plan) -> Section:
    """Chunks of a thousand with vectors, against bare inserts of the very same rows."""
    corpus, size = plan.corpus, plan.largest
    engine, bare = [], []
    with _scratch() as directory:
        library = Library(directory, embedder=_embedder(corpus))
        memory = Commonplace(library=library)
        tables = floors.BareTables(directory / "bare.db")
        for number, first in enumerate(range(0, size, CHUNK)):
            if number % 20 == 0:
                say(f"bulk import, {first:,} of {size:,}")
            drafts = corpus.drafts(first, min(first + CHUNK, size))
            engine.append(_timed(lambda: memory.remember_many(drafts)))  # noqa: B023
            rows = floors.written_rows(library.file("default"), number, first)
            bare.append(_timed(lambda: tables.insert(rows)))  # noqa: B023
        tables.close()
        library.close()
    rate, floor = size / sum(engine), size / sum(bare)
    row = Row(
        name=f"{size:,} in chunks of {CHUNK:,}",
        measured=f"{rate:,.0f}/s",
        against=f"bare inserts {floor:,.0f}/s",
        ratio=rate / floor,
        target="≥ 0.5×",
        ok=rate / floor >= 0.5,
        values={"rate": rate, "floor rate": floor, "chunks": engine, "floor chunks": bare},
    )
    return Section(
        "Bulk import", [row], [READY_MADE_NOTE, "the floor's rows are prepared beforehand"]
    )


# --- finding -----------------------------------------------------------------------------------


def measure_recall(plan: Plan) -> Section:
    """Recall against a bare full-text query and a bare scan, query by query."""
    rows = []
    for size in plan.sizes:
        rows += _recall_at(plan, size)
    notes = [
        "the query's vector is ready-made",
        "floor: FTS5 over the same analysed text, the ten best of any term, plus an int8 scan with"
        " its ten best; the sum of both for each query",
    ]
    return Section("Recall, one space", rows, notes)


def _recall_at(plan: Plan, size: int) -> list[Row]:
    corpus = plan.corpus.first(size)
    place = store_of(size, corpus)
    say(f"recall among {size:,}")
    terms = floors.terms_of(corpus.queries)
    packed = _int8_queries(corpus)
    engine, words, scans = [], [], []
    with _scratch() as directory:
        full_text = floors.BareFullText(directory / "words.db", corpus)
        scan = floors.BareScan(corpus)
        library = Library(place, embedder=_embedder(corpus))
        memory = Commonplace(library=library)
        for query in corpus.queries[:5]:
            memory.recall(query, minimum=0)
        for _, query in itertools.product(range(plan.rounds), corpus.queries):
            engine.append(_timed(lambda: memory.recall(query, minimum=0)))  # noqa: B023
            words.append(_timed(lambda: full_text.ask(terms[query])))  # noqa: B023
            scans.append(_timed(lambda: scan.ask(packed[query][0])))  # noqa: B023
        full_text.close()
        library.close()
    both = [a + b for a, b in zip(words, scans, strict=True)]
    (middle, slow), floor = _percentiles(engine), statistics.median(both)
    judged = size == 100_000
    return [
        Row(
            name=f"{size:,}, p50",
            measured=milliseconds(middle),
            against=f"FTS5 {milliseconds(statistics.median(words))}"
            f" + scan {milliseconds(statistics.median(scans))} = {milliseconds(floor)}",
            ratio=middle / floor,
            target="≤ 1.5×" if judged else "",
            ok=middle / floor <= 1.5 if judged else None,
            values={
                "p50": middle,
                "p99": slow,
                "fts5 p50": statistics.median(words),
                "scan p50": statistics.median(scans),
                "floor p50": floor,
            },
        ),
        Row(
            name=f"{size:,}, p99",
            measured=milliseconds(slow),
            against=f"{milliseconds(_percentiles(both)[1])}",
            ratio=slow / _percentiles(both)[1],
            values={"p99": slow, "floor p99": _percentiles(both)[1]},
        ),
    ]


def _int8_queries(corpus: Corpus) -> dict[str, tuple[Any, float]]:
    """Each query's vector as the engine packs it."""
    matrix, scales = unpack_matrix(b"".join(quantise(corpus.query_vectors)), DIMENSIONS)
    return {query: (matrix[at], float(scales[at])) for at, query in enumerate(corpus.queries)}


def measure_clawbrain(plan: Plan) -> Section:
    """ClawBrain's substring search against the engine's own recall, query by query."""
    size = min(10_000, plan.largest)
    corpus = plan.corpus.first(size)
    place = store_of(size, corpus)
    say(f"substring search among {size:,}")
    library = Library(place, embedder=_embedder(corpus))
    memory = Commonplace(library=library)
    needles = _needles(corpus)
    for query in corpus.queries:  # once before, so that neither pays for loading
        memory.recall(query, minimum=0)
    for each in needles.values():
        search_memories(memory, each[0], None, 5)
    engine: list[float] = []
    taken: dict[str, list[float]] = {name: [] for name in needles}
    for _, query in itertools.product(range(plan.rounds), corpus.queries):
        engine.append(_timed(lambda: memory.recall(query, limit=5, minimum=0)))  # noqa: B023
        for name, each in needles.items():
            needle = each[len(taken[name]) % len(each)]
            taken[name].append(_timed(lambda: search_memories(memory, needle, None, 5)))  # noqa: B023
    library.close()
    floor = statistics.median(engine)
    judged = size == 10_000
    rows = [
        Row(
            name=f"{size:,}, {name}, p50",
            measured=milliseconds(statistics.median(each)),
            against=f"recall {milliseconds(floor)}",
            ratio=statistics.median(each) / floor,
            target="≤ 2×" if judged else "",
            ok=statistics.median(each) / floor <= 2 if judged else None,
            values={"p50": statistics.median(each), "recall p50": floor},
        )
        for name, each in taken.items()
    ]
    return Section("ClawBrain search", rows, ["the turn that a search writes is not measured"])


def _needles(corpus: Corpus) -> dict[str, list[str]]:
    """What is looked for, from the rare to what every memory holds."""
    common = [word for word in corpora.FUNCTION_WORDS if len(word) > 1]
    letters = sorted(
        "abcdefghijklmnopqrstuvwxyz",
        key=lambda letter: -sum(letter in text.lower() for text in corpus.texts),
    )
    return {
        "a rare word": [max(query.split(), key=len) for query in corpus.queries],
        "several rare words": list(corpus.queries),
        "a word that most hold": common,
        "several words that most hold": [
            " ".join(each) for each in itertools.permutations(common, 3)
        ],
        "two words side by side": [" ".join(each) for each in itertools.permutations(common, 2)],
        "a letter that all hold": letters[:5],
    }


def measure_palace(plan: Plan) -> Section:
    """The orchestrator's search against recall, and its knowledge graph against bare SQL."""
    size = plan.largest
    corpus = plan.corpus.first(size)
    place = store_of(size, corpus)
    say(f"the palace's search among {size:,}")
    library = Library(place, embedder=_embedder(corpus))
    memory = Commonplace(library=library)
    search, engine = [], []
    for query in corpus.queries:  # once before, so that neither pays for loading
        memory.recall(query, limit=5, minimum=0)
        drawers.search(memory, query, limit=5)
    for _, query in itertools.product(range(plan.rounds), corpus.queries):
        engine.append(_timed(lambda: memory.recall(query, limit=5, minimum=0)))  # noqa: B023
        search.append(_timed(lambda: drawers.search(memory, query, limit=5)))  # noqa: B023
    library.close()
    triples = min(50_000, size)
    known, notes = knowledge.measure(triples, plan.queries)
    floor = statistics.median(engine)
    rows = [
        Row(
            name=f"{size:,}, memory_search, p50",
            measured=milliseconds(statistics.median(search)),
            against=f"recall {milliseconds(floor)}",
            ratio=statistics.median(search) / floor,
            target="≤ 1.3×" if size == 100_000 else "",
            ok=statistics.median(search) / floor <= 1.3 if size == 100_000 else None,
            values={"p50": statistics.median(search), "recall p50": floor},
        ),
        *known,
    ]
    return Section("Memory Palace", rows, ["memory_search without the gate", *notes])


def measure_vectors(plan: Plan) -> Section:
    """The vector leg alone against sqlite-vec."""
    size = plan.largest
    corpus = plan.corpus.first(size)
    place = store_of(size, corpus)
    say(f"vector leg among {size:,}")
    packed = _int8_queries(corpus)
    leg, whole, other = [], [], []
    with _scratch() as directory:
        floor = floors.SqliteVec(directory / "vec.db", corpus)
        library = Library(place, embedder=_embedder(corpus))
        memory = Commonplace(library=library)
        memory.recall(corpus.queries[0], weighting=MEANING_ONLY)
        with lease(memory) as space, space.view() as (_, snapshot):
            for query in corpus.queries[: max(20, plan.queries // 2)]:
                vector = corpus.asked[query]
                leg.append(_timed(lambda: snapshot.cosine(*packed[query])))  # noqa: B023
                other.append(_timed(lambda: floor.ask(vector)))  # noqa: B023
        for query in corpus.queries[: max(20, plan.queries // 2)]:
            whole.append(
                _timed(lambda: memory.recall(query, weighting=MEANING_ONLY))  # noqa: B023
            )
        floor.close()
        library.close()
    fast, slow = statistics.median(leg), statistics.median(other)
    by_meaning = statistics.median(whole)
    judged = size == 100_000
    rows = [
        Row(
            name=f"{size:,}, the leg",
            measured=milliseconds(fast),
            against=f"sqlite-vec {milliseconds(slow)}",
            ratio=slow / fast,
            target="≥ 10× faster" if judged else "",
            ok=slow / fast >= 10 if judged else None,
            values={"p50": fast, "floor p50": slow},
        ),
        Row(
            name=f"{size:,}, a whole recall by meaning",
            measured=milliseconds(by_meaning),
            against=f"sqlite-vec {milliseconds(slow)}",
            ratio=slow / by_meaning,
            values={"p50": by_meaning, "floor p50": slow},
        ),
    ]
    note = (
        f"sqlite-vec: vec0 with float[{DIMENSIONS}], k = 10, through apsw; ratio: how much faster"
    )
    return Section("Vector leg", rows, [READY_MADE_NOTE, note])


def measure_get(plan: Plan) -> Section:
    """A memory by its id against a bare SELECT."""
    size = plan.largest
    corpus = plan.corpus.first(size)
    place = store_of(size, corpus)
    say("get by id")
    library = Library(place, embedder=_embedder(corpus))
    memory = Commonplace(library=library)
    bare = apsw.Connection(str(library.file("default")), flags=apsw.SQLITE_OPEN_READONLY)
    ids = [row[0] for row in bare.execute("SELECT id FROM memories ORDER BY id LIMIT ?", (1_000,))]
    select = "SELECT * FROM memories WHERE space = 'default' AND id = ?"
    engine, floor = [], []
    for identity in ids:
        engine.append(_timed(lambda: memory.get(identity)))  # noqa: B023
        floor.append(_timed(lambda: bare.execute(select, (identity,)).fetchone()))  # noqa: B023
    bare.close()
    library.close()
    (middle, slow), least = _percentiles(engine), statistics.median(floor)
    row = Row(
        name=f"among {size:,}, p50",
        measured=milliseconds(middle),
        against=f"bare SELECT {milliseconds(least)}",
        ratio=middle / least,
        values={"p50": middle, "p99": slow, "floor p50": least},
    )
    late = Row(name=f"among {size:,}, p99", measured=milliseconds(slow))
    return Section("Get by id", [row, late], ["the engine also checks the row's hash and counts"])


def measure_spaces(plan: Plan) -> Section:
    """Recall in turn over more spaces than are kept open, and over fewer."""
    place, names = spaces_of(plan)
    corpus = plan.corpus
    lone_place = store_of(plan.per_space, corpus.first(plan.per_space))
    say(f"recall in turn over {plan.spaces:,} spaces")
    before = resident_bytes()
    library = Library(place, embedder=_embedder(corpus))
    lone_library = Library(lone_place, embedder=_embedder(corpus))
    lone = Commonplace(library=lone_library)
    asked = itertools.cycle(corpus.queries)
    for query in corpus.queries[:20]:
        lone.recall(query, minimum=0)
    each = [Commonplace(space=name, library=library) for name in names]
    cold, beside_cold, warm, beside_warm = [], [], [], []
    for memory in each:
        query = next(asked)
        cold.append(_timed(lambda: memory.recall(query, minimum=0)))  # noqa: B023
        beside_cold.append(_timed(lambda: lone.recall(query, minimum=0)))  # noqa: B023
    held = resident_bytes() - before
    few = each[-plan.warm_spaces :]
    for memory in few:
        memory.recall(corpus.queries[0])
    for turn in range(5):
        for memory in few:
            query = next(asked)
            warm.append(_timed(lambda: memory.recall(query, minimum=0)))  # noqa: B023
            beside_warm.append(_timed(lambda: lone.recall(query, minimum=0)))  # noqa: B023
        if turn == 0:
            warm.clear()
            beside_warm.clear()
    library.close()
    lone_library.close()
    rows = []
    for name, taken, beside, most in (
        ("cold", cold, beside_cold, 12.0),
        ("warm", warm, beside_warm, 1.3),
    ):
        (middle, slow), floor = _percentiles(taken), statistics.median(beside)
        count = plan.spaces if name == "cold" else plan.warm_spaces
        rows.append(
            Row(
                name=f"{count:,} × {plan.per_space:,} {name}, p50",
                measured=milliseconds(middle),
                against=f"a lone warm space {milliseconds(floor)}",
                ratio=middle / floor,
                target=f"≤ {most:g}×",
                ok=middle / floor <= most,
                values={"p50": middle, "p99": slow, "floor p50": floor},
            )
        )
        rows.append(
            Row(
                name=f"{count:,} × {plan.per_space:,} {name}, p99",
                measured=milliseconds(slow),
            )
        )
    rows.append(
        Row(
            name="memory held for the open spaces",
            measured=f"{held / MEGABYTE:,.0f} MB",
            values={"bytes": held},
        )
    )
    notes = [
        "the query's vector is ready-made",
        "cold: not open here; the system may have the file cached",
    ]
    if plan.spaces != Plan.spaces:
        notes.append(f"{plan.spaces:,} spaces, not {Plan.spaces:,}")
    return Section("Recall in turn over many spaces", rows, notes)


# --- starting ----------------------------------------------------------------------------------

_START = """
import json, os, sys, time
begun = time.process_time()
sum(range(3_000_000))
counted, begun = time.process_time() - begun, time.process_time()
from commonplace import Commonplace
imported = time.process_time()
wall = time.perf_counter()
memory = Commonplace(sys.argv[1])
with memory.library.lease(memory.name):
    pass
opened, opened_wall = time.process_time(), time.perf_counter()
hits = memory.recall(sys.argv[2], minimum=0)
recalled, recalled_wall = time.process_time(), time.perf_counter()
assert len(hits) == 10 and not hits.degraded, hits.degraded
memory.recall(sys.argv[2] + " again", minimum=0)
pages = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
print(json.dumps({
    "import": imported - begun, "open": opened_wall - wall, "open cpu": opened - imported,
    "first recall wall": recalled_wall - opened_wall, "first recall cpu": recalled - opened,
    "process cpu": recalled - counted, "resident": pages, "counting": counted,
}))
sys.stdout.flush()
os._exit(0)  # what closing costs is not asked here
"""


def measure_start(plan: Plan) -> Section:
    """A fresh process: what importing, opening and the first recall cost."""
    size = plan.largest
    corpus = plan.corpus.first(size)
    place = store_of(size, corpus)
    runs: list[dict[str, float]] = []
    # With compiled bytecode, as an installation leaves it.
    installed = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    warm = [
        sys.executable,
        "-c",
        "import commonplace.engine.finding.recall, commonplace.engine.commonplace",
    ]
    subprocess.run(warm, env=installed, check=True)
    for number in range(plan.starts):
        say(f"cold start {number + 1} of {plan.starts}")
        command = [sys.executable, "-c", _START, str(place), corpus.queries[number]]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=installed)
        runs.append(json.loads(done.stdout))
    at = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    best = {name: min(run[name] for run in runs) for name in runs[0]}
    vectors_held = size * (DIMENSIONS + 4)
    rows = [
        Row(
            name="from commonplace import Commonplace, CPU",
            measured=milliseconds(at["import"]),
            against=f"best {milliseconds(best['import'])}",
            target="≤ 150 ms",
            ok=at["import"] <= 0.150,
            values={"seconds": at["import"]},
        ),
        Row(
            name=f"opening a store of {size:,}",
            measured=milliseconds(at["open"]),
            against=f"best {milliseconds(best['open'])}, CPU {milliseconds(at['open cpu'])}",
            target="≤ 50 ms",
            ok=at["open"] <= 0.050,
            values={"seconds": at["open"], "cpu": at["open cpu"]},
        ),
        Row(
            name="first recall with the model, CPU of the process so far",
            measured=milliseconds(at["process cpu"]),
            against=f"best {milliseconds(best['process cpu'])}, of it the recall"
            f" {milliseconds(best['first recall cpu'])}",
            target="≤ 2 s",
            ok=at["process cpu"] <= 2.0,
            values=at,
        ),
        Row(
            name="memory of that process",
            measured=f"{at['resident'] / MEGABYTE:,.0f} MB",
            against=f"the vectors alone {vectors_held / MEGABYTE:,.0f} MB",
            values={"bytes": at["resident"], "vectors": vectors_held},
        ),
    ]
    notes = [
        "the built-in model embeds the query",
        f"a busy machine inflates CPU times too: adding up 3,000,000 numbers took"
        f" {milliseconds(at['counting'])}, at best {milliseconds(best['counting'])}",
    ]
    return Section(f"Cold start, {size:,} memories", rows, notes)


PARTS: dict[str, Callable[[Plan], Section]] = {
    "store": measure_durable_store,
    "bulk": measure_bulk_import,
    "recall": measure_recall,
    "clawbrain": measure_clawbrain,
    "palace": measure_palace,
    "vectors": measure_vectors,
    "get": measure_get,
    "spaces": measure_spaces,
    "start": measure_start,
    "patrol": patrol.measure,
}
