"""PostgreSQL beside SQLite: the same rows, moved; equal answers, and ratios of their times.

The server is the one of the tests, on this machine, so there is no network between the two.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench import locomo, speed
from bench.corpus import Corpus
from bench.embedders import CachedEmbedder
from bench.report import CACHE, Row, Section, milliseconds, resident_bytes, say
from commonplace import Commonplace, Library
from commonplace.dialects.clawbrain.tools import search_memories
from commonplace.embedding.provider import Embedder, open_embedder
from commonplace.storage import moving

if TYPE_CHECKING:
    from postgres_server import PostgresServer

SIZE = 10_000
THREADS = 16
ON_DISK = True
"""Whether the database lies on the disk of /tmp, where a sync takes as long as SQLite's."""
NOTES = ("the database is on the same machine, on the same disk", speed.READY_MADE_NOTE)


@contextlib.contextmanager
def _database() -> Iterator[tuple[str, PostgresServer]]:
    """Start a server with an empty database; yield the URL and the server."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import postgres_engine
    from commonplace.storage.postgres import administration

    server = postgres_engine.start(on_disk=ON_DISK)
    try:
        administration.set_up(server.admin(), "commonplace")
        yield server.admin().replace("//admin@", "//commonplace@"), server
    finally:
        server.stop()


@contextlib.contextmanager
def _moved_installation(
    source: Path, embedder: Embedder
) -> Iterator[tuple[list[Callable[[], Library]], PostgresServer]]:
    """Move an installation to a database; yield functions that open the files and the database."""
    with (
        _database() as (address, server),
        tempfile.TemporaryDirectory(prefix="commonplace-bench-") as data,
    ):
        openers: list[Callable[[], Library]] = [
            partial(Library, source, embedder=embedder),
            partial(Library, data, embedder=embedder, database=address),
        ]
        with contextlib.closing(openers[0]()) as files, contextlib.closing(openers[1]()) as rows:
            moving.move(files, rows)
        server.ask("VACUUM ANALYZE")  # as the server does by itself, some time later
        yield openers, server


def measure_equality(path: Path, *, conversations: int | None = None) -> Section:
    """Ask both engines every question of LoCoMo; compare ids, order and scores."""
    data = locomo.read_conversations(path)[:conversations]
    model = open_embedder("builtin")
    assert model is not None
    embedder = CachedEmbedder(model, CACHE)
    with tempfile.TemporaryDirectory(prefix="commonplace-bench-") as folder:
        library = Library(folder, embedder=embedder)
        for conversation in data:
            locomo.store_conversation(library, conversation)
        library.close()
        asked = different = 0
        with (
            _moved_installation(Path(folder), embedder) as (openers, _),
            _opened_libraries(openers) as engines,
        ):
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


@contextlib.contextmanager
def _opened_libraries(openers: list[Callable[[], Library]]) -> Iterator[list[Library]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(opener())) for opener in openers]


def measure_times(plan: speed.Plan) -> Section:
    """Store and search on both engines in turn, on the same rows."""
    size = min(SIZE, plan.largest)
    corpus = plan.corpus.first(size)
    embedder = speed._embedder(plan.corpus)
    with (
        speed._scratch() as folder,
        _moved_installation(_copied_store(speed.store_of(size, corpus), folder), embedder) as (
            openers,
            _,
        ),
        _opened_libraries(openers) as engines,
    ):
        memories = [Commonplace(library=library) for library in engines]
        for memory in memories:
            memory.recall(corpus.queries[0])
        say(f"both engines store and search, {size:,} memories")
        queries = [query for _ in range(plan.rounds) for query in corpus.queries]
        recalls = _seconds_in_turn(memories, Commonplace.recall, queries)
        substrings = {
            name: _seconds_in_turn(memories, _substring, [*islice(cycle(needles), plan.queries)])
            for name, needles in speed._needles(corpus).items()
        }
        drafts = [corpus.drafts(at, at + 1) for at in range(plan.writes)]
        stores = _seconds_in_turn(memories, Commonplace.remember_many, drafts)
        rates = [
            [_writes_per_second(memory, corpus, plan.writes) for memory in memories]
            for _ in range(3)
        ]
    rows = [
        _row("store, p50", [median(each) for each in stores], 2.0),
        _row("recall, p50", [median(each) for each in recalls], 2.0),
    ]
    rows += [
        _row(f"substring search, {name}, p50", [median(each) for each in taken], 3.0)
        for name, taken in substrings.items()
    ]
    rows.append(_rates_row([median(each) for each in zip(*rates, strict=True)]))
    return Section(f"PostgreSQL against SQLite, {size:,} memories", rows, NOTES)


def measure_large_space(plan: speed.Plan) -> Section:
    """The CPU of searching a large space, and of loading its index, with that of the server."""
    size = plan.largest
    corpus = plan.corpus.first(size)
    embedder = speed._embedder(plan.corpus)
    with (
        speed._scratch() as folder,
        _moved_installation(_copied_store(speed.store_of(size, corpus), folder), embedder) as (
            openers,
            server,
        ),
    ):
        say(f"both engines search {size:,} memories")
        cold: list[list[float]] = [[], []]
        for number in range(3):
            for opener, taken in zip(openers, cold, strict=True):
                with contextlib.closing(opener()) as library:
                    memory = Commonplace(library=library)
                    taken.append(
                        _cpu_seconds(server, partial(memory.recall, corpus.queries[number]))
                    )
        warm: list[list[float]] = [[], []]
        with _opened_libraries(openers) as engines:
            for library in engines:
                Commonplace(library=library).recall(corpus.queries[0])
            for _ in range(plan.rounds):
                for library, taken in zip(engines, warm, strict=True):
                    act = partial(_ask, Commonplace(library=library), corpus.queries)
                    taken.append(_cpu_seconds(server, act) / len(corpus.queries))
    return Section(
        f"PostgreSQL against SQLite, {size:,} memories",
        [
            _row("recall, CPU", [median(each) for each in warm], 1.3),
            _row("first recall, index from cold, CPU", [median(each) for each in cold], 1.3),
        ],
        [*NOTES, "CPU of this process and of the database's"],
    )


def measure_spaces(plan: speed.Plan) -> Section:
    """Recall in turn over many spaces of one database, against one that is warm."""
    names = [f"space-{number}" for number in range(plan.spaces)]
    corpus = plan.corpus
    with (
        _database() as (address, _),
        tempfile.TemporaryDirectory(prefix="commonplace-bench-") as data,
    ):
        opener = partial(Library, data, embedder=speed._embedder(corpus), database=address)
        with contextlib.closing(opener()) as library:
            for number, name in enumerate(names):
                if number % 100 == 0:
                    say(f"storing {plan.per_space:,} memories in each space, {number:,} done")
                start = number * plan.per_space % len(corpus)
                memory = Commonplace(space=name, library=library)
                speed._fill(memory, corpus, start, min(start + plan.per_space, len(corpus)))
                library.drop(name)
        before = resident_bytes()
        with contextlib.closing(opener()) as library:
            memories = [Commonplace(space=name, library=library) for name in names]
            say(f"recall in turn over {len(names):,} spaces")
            cold = _recall_seconds(memories, corpus.queries)
            held = resident_bytes() - before
            lone = [memories[-1]] * 200
            alone = _recall_seconds(lone, corpus.queries)
            few = memories[-plan.warm_spaces :]
            again = _recall_seconds(few * 5, corpus.queries)[len(few) :]
            every = _recall_seconds(memories, corpus.queries)
    floor = median(alone)
    rows = [
        Row(
            name=f"{len(names):,} × {plan.per_space:,}, {name}, p50",
            measured=milliseconds(median(taken)),
            against=f"one warm space {milliseconds(floor)}",
            ratio=median(taken) / floor,
            target=f"≤ {most:g}" if most else "",
            ok=median(taken) / floor <= most if most else None,
            values={"p50": median(taken), "floor p50": floor},
        )
        for name, taken, most in (
            ("first time", cold, None),
            ("in turn over all of them", every, 1.5),
            (f"in turn over the last {len(few)}", again, 1.5),
        )
    ]
    used = f"{held / speed.MEGABYTE:,.0f} MB"
    rows.append(
        Row(name="memory for the open spaces", measured=used, target="≤ 2 GB",
            ok=held <= 2 << 30, values={"bytes": held})
    )  # fmt: skip
    return Section("PostgreSQL, recall in turn over many spaces", rows, NOTES)


def _copied_store(source: Path, folder: Path) -> Path:
    """Copy a store that is kept between runs, so that it stays unchanged."""
    return Path(shutil.copytree(source, folder / "store"))


def _substring(memory: Commonplace, needle: str) -> object:
    return search_memories(memory, needle, None, 5)


def _ask(memory: Commonplace, queries: Sequence[str]) -> None:
    for query in queries:
        memory.recall(query, minimum=0)


def _recall_seconds(memories: list[Commonplace], queries: Sequence[str]) -> list[float]:
    """Return the seconds of one recall in each space, one after the other."""
    return [
        speed._timed(partial(memory.recall, query))
        for memory, query in zip(memories, cycle(queries), strict=False)
    ]


def _writes_per_second(memory: Commonplace, corpus: Corpus, count: int) -> float:
    """Return how many writes per second many threads make."""
    drafts = [corpus.drafts(at, at + 1) for at in range(count)]
    with ThreadPoolExecutor(THREADS) as pool:
        begun = time.perf_counter()
        for done in [pool.submit(memory.remember_many, each) for each in drafts]:
            done.result()
        return count / (time.perf_counter() - begun)


def _seconds_in_turn(
    memories: list[Commonplace], act: Callable[[Commonplace, Any], object], given: list[Any]
) -> list[list[float]]:
    """Return the seconds of each call on each engine, called in turn."""
    taken: list[list[float]] = [[], []]
    for each in given:
        for memory, seconds in zip(memories, taken, strict=True):
            seconds.append(speed._timed(partial(act, memory, each)))
    return taken


def _cpu_seconds(server: PostgresServer, act: Callable[[], object]) -> float:
    begun = time.process_time() + server.cpu()
    act()
    return time.process_time() + server.cpu() - begun


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


def _rates_row(measured: list[float]) -> Row:
    files, database = measured
    return Row(
        name=f"{THREADS} threads storing",
        measured=f"{database:,.0f}/s",
        against=f"SQLite, {files:,.0f}/s",
        ratio=database / files,
        target="≥ 0.7",
        ok=database / files >= 0.7,
        values={"sqlite": files, "postgres": database},
    )


PARTS = {
    "postgres": measure_times,
    "postgres-large": measure_large_space,
    "postgres-spaces": measure_spaces,
}
