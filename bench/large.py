"""A space of a million memories on either engine: opening, searching, storing, and its memory.

Each engine is measured in a process of its own, so that its memory is counted alone, over a copy
of the same rows. The figures of 10,000 memories stand beside those of the large space.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from bench import corpus as corpora
from bench import postgres, speed
from bench.report import Row, Section, milliseconds, say
from bench.server import environment
from commonplace import Commonplace, Library

SIZE, SMALL = 1_000_000, 10_000
QUERIES = 100
STORES = 200
GIGABYTE = 1 << 30


def measure(plan: speed.Plan) -> Section:
    """Measure both engines with a small and a large space; ratios of stores are to the small."""
    large = plan.largest if plan.largest != speed.Plan().largest else SIZE
    sizes = [min(SMALL, large), large]
    corpus = corpora.make_corpus(large, plan.queries)
    figures: dict[str, dict[int, dict[str, float]]] = {"SQLite": {}, "PostgreSQL": {}}
    for size in sizes:
        store = speed.store_of(size, corpus.first(size))
        with speed._scratch() as folder:
            files = postgres._copied_store(store, folder)
            say(f"SQLite, {size:,} memories")
            figures["SQLite"][size] = _measured_apart(files, "", size)
            say(f"moving {size:,} memories to PostgreSQL")
            embedder = speed._embedder(corpus)
            with postgres._moved_installation(files, embedder) as (openers, _):
                with closing(openers[1]()) as library:
                    place, address = library.path, library.database
                say(f"PostgreSQL, {size:,} memories")
                figures["PostgreSQL"][size] = _measured_apart(place, address or "", size)
    rows = [
        row
        for engine, found in figures.items()
        for row in _rows(f"{engine}, {large:,}", found[large], found[sizes[0]], large == SIZE)
    ]
    return Section("A very large space", rows, [speed.READY_MADE_NOTE, *postgres.NOTES[:1]])


def _measured_apart(data: Path, database: str, size: int) -> dict[str, float]:
    """Measure one engine in a new process."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.large", str(data), database, str(size)],
        stdout=subprocess.PIPE, text=True, check=True, env=environment(),
        cwd=Path(__file__).parents[1],
    )  # fmt: skip
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _rows(name: str, large: dict[str, float], small: dict[str, float], judged: bool) -> list[Row]:
    ratio = large["store"] / small["store"]

    def row(what: str, measured: str, value: float, target: str, ok: bool) -> Row:
        return Row(
            name=f"{name}, {what}", measured=measured, target=target if judged else "",
            ok=ok if judged else None, values={"value": value},
        )  # fmt: skip

    return [
        row("first answer, from its newest memories", milliseconds(large["first"]),
            large["first"], "", True),
        row("opened whole", milliseconds(large["loaded"]), large["loaded"], "≤ 20 s",
            large["loaded"] <= 20),
        row("recall, p50", milliseconds(large["recall"]), large["recall"], "≤ 80 ms",
            large["recall"] <= 0.080),
        row("the process's memory at its peak", f"{large['peak'] / 1e6:,.0f} MB", large["peak"],
            "≤ 1.5 GB", large["peak"] <= 1.5 * GIGABYTE),
        Row(
            name=f"{name}, store, p50",
            measured=milliseconds(large["store"]),
            against=f"at {min(SMALL, int(small['size'])):,}, {milliseconds(small['store'])}",
            ratio=ratio,
            target="≤ 1.5×" if judged else "",
            ok=ratio <= 1.5 if judged else None,
            values=large,
        ),
    ]  # fmt: skip


def _measure_here(data: str, database: str, size: int) -> dict[str, Any]:
    """Open the space in this process, ask until it is loaded whole, then search and store."""
    corpus = corpora.make_corpus(1_000, QUERIES)  # its queries are those of every size
    began = time.perf_counter()
    with closing(
        Library(data, embedder=speed._embedder(corpus), database=database or None)
    ) as library:
        memory = Commonplace(library=library)
        found = memory.recall(corpus.queries[0], minimum=0)
        first = time.perf_counter() - began
        assert size < SIZE or "loading" in (found.degraded or ""), found.degraded
        while found.degraded:
            time.sleep(0.1)
            found = memory.recall(corpus.queries[0], minimum=0)
        loaded = time.perf_counter() - began
        recalls = postgres._recall_seconds([memory] * QUERIES, corpus.queries)
        drafts = [corpus.drafts(at, at + 1) for at in range(STORES)]
        stores = [speed._timed(lambda: memory.remember_many(each)) for each in drafts]  # noqa: B023
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
    return {
        "size": size,
        "first": first,
        "loaded": loaded,
        "recall": statistics.median(recalls),
        "store": statistics.median(stores),
        "peak": peak,
    }


PARTS = {"large": measure}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure_here(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
