"""PostgreSQL beside SQLite: the same rows, moved; equal answers, and ratios of their times.

The server is the one of the tests, on this machine, so there is no network between the two.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench import locomo, speed
from bench.embedders import Remembering
from bench.report import CACHE, Row, Section, milliseconds, say
from commonplace import Commonplace, Library
from commonplace.embedding.provider import Embedder, open_embedder
from commonplace.storage import moving

SIZE = 10_000


@contextlib.contextmanager
def _database() -> Iterator[str]:
    """The address of an empty database on a server of its own."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import postgres_engine
    from commonplace.storage.postgres import administration

    server = postgres_engine.start()
    try:
        administration.prepare(server.admin(), "commonplace")
        yield server.admin().replace("//admin@", "//commonplace@")
    finally:
        server.stop()


@contextlib.contextmanager
def _moved(source: Path, embedder: Embedder) -> Iterator[tuple[Library, Library]]:
    """The installation in a directory as files, and the same rows in a database."""
    with _database() as address, tempfile.TemporaryDirectory(prefix="commonplace-bench-") as data:
        files = Library(source, embedder=embedder)
        database = Library(data, embedder=embedder, database=address)
        try:
            moving.move(files, database)
            yield files, database
        finally:
            database.close()
            files.close()


def equality(path: Path, *, conversations: int | None = None) -> Section:
    """Ask both engines every question of LoCoMo; compare ids, order and scores."""
    data = locomo.read(path)[:conversations]
    model = open_embedder("builtin")
    assert model is not None
    embedder = Remembering(model, CACHE)
    with tempfile.TemporaryDirectory(prefix="commonplace-bench-") as folder:
        library = Library(folder, embedder=embedder)
        for conversation in data:
            locomo.store(library, conversation)
        library.close()
        asked = different = 0
        with _moved(Path(folder), embedder) as engines:
            for conversation in data:
                say(f"both engines answer {conversation.name}")
                for question in conversation.questions:
                    answers = [
                        _answer(library, conversation.name.lower(), question.text)
                        for library in engines
                    ]
                    asked += 1
                    different += answers[0] != answers[1]
    row = Row(
        name="questions whose ids, order or scores differ",
        measured=str(different),
        against=f"of {asked:,}",
        target="0",
        ok=different == 0,
        values={"asked": asked, "different": different},
    )
    return Section("PostgreSQL and SQLite, answers on LoCoMo", [row])


def _answer(library: Library, space: str, question: str) -> list[tuple[str, float]]:
    memory = Commonplace(space=space, library=library)
    hits = memory.recall(question, limit=locomo.TOP, count=False)
    return [(hit.memory.id, hit.score) for hit in hits]


def times(plan: speed.Plan) -> Section:
    """Store and recall on both engines in turn, on the same rows."""
    size = min(SIZE, plan.largest)
    corpus = plan.corpus
    with tempfile.TemporaryDirectory(prefix="commonplace-bench-") as folder:
        with Commonplace(folder, embedding=speed._embedder(corpus)) as memory:
            speed._fill(memory, corpus, 0, size)
        with _moved(Path(folder), speed._embedder(corpus)) as engines:
            memories = [Commonplace(library=library) for library in engines]
            cold = [_cpu(partial(each.recall, corpus.queries[0])) for each in memories]
            queries = [query for _ in range(plan.rounds) for query in corpus.queries]
            recalls = _in_turn(memories, Commonplace.recall, queries)
            drafts = [corpus.drafts(size + at, size + at + 1) for at in range(plan.writes)]
            stores = _in_turn(memories, Commonplace.remember_many, drafts)
    return Section(
        f"PostgreSQL against SQLite, {size:,} memories",
        [
            _row("store, p50", [median(each) for each in stores], 2.0),
            _row("recall, p50", [median(each) for each in recalls], 2.0),
            _row("first recall, index from cold, CPU of the client", cold, 1.6),
        ],
        ["the database is on the same machine, with its files in memory"],
    )


def _in_turn(
    memories: list[Commonplace], act: Callable[[Commonplace, Any], object], given: list[Any]
) -> list[list[float]]:
    """The seconds of each act, on one engine after the other."""
    taken: list[list[float]] = [[], []]
    for each in given:
        for memory, seconds in zip(memories, taken, strict=True):
            begun = time.perf_counter()
            act(memory, each)
            seconds.append(time.perf_counter() - begun)
    return taken


def _cpu(act: Callable[[], object]) -> float:
    begun = time.process_time()
    act()
    return time.process_time() - begun


def _row(name: str, measured: list[float], most: float) -> Row:
    files, database = measured
    ratio = database / files
    return Row(
        name=name,
        measured=milliseconds(database),
        against=f"SQLite, {milliseconds(files)}",
        ratio=ratio,
        target=f"≤ {most:g}",
        ok=ratio <= most,
        values={"sqlite": files, "postgres": database},
    )
