"""Processes that write through the library and say so, and the look at what they left behind.

`python -m reliability.workers RUN '{"…": …}'` does one run and prints what it found as JSON. It
is a process of its own because it forks: nothing but the library may be loaded, and no thread run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from commonplace import Commonplace
from commonplace.engine.binding import lease
from commonplace.engine.content import memories
from commonplace.errors import CommonplaceError, Conflict, StorageFull
from commonplace.storage import database, derived, sqlite, writing
from commonplace.storage.sqlite import store as store_module
from commonplace.storage.tables import LINKS, MEMORIES, OPERATIONS, VERSIONED
from reliability.progress import report_progress

SPACE = "default"
WORDS = (
    "harbour", "lantern", "ledger", "orchard", "compass", "meadow", "granite", "violin", "saffron",
    "kettle", "archive", "thunder", "copper", "willow", "beacon", "marble", "pepper", "canyon",
)  # fmt: skip
Acknowledge = Callable[[dict[str, Any]], None]
Patch = Callable[[Any, str, Any], None]


class HashEmbedder:
    """Vectors made of a text's hash: deterministic, local, and quick."""

    id = "hash-of-text"
    weights = "1"
    dimensions = 384
    local = True

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        rows = np.empty((len(texts), self.dimensions), np.float32)
        for row, text in zip(rows, texts, strict=True):
            seed = hashlib.shake_128(text.encode()).digest(self.dimensions)
            row[:] = np.frombuffer(seed, np.int8)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def close(self) -> None: ...


def open_memory(directory: Path) -> Commonplace:
    """The library as everybody opens it, with vectors that cost nothing."""
    return Commonplace(directory, embedding=HashEmbedder())


def create(directory: Path) -> None:
    """An empty memory, closed again."""
    with open_memory(directory) as place, lease(place):
        pass


def file_of(directory: Path) -> Path:
    """The file that the memory of a directory is in."""
    return directory / "spaces" / f"{SPACE}.db"


def sentence(chance: random.Random) -> str:
    """A short text that no other one equals."""
    return f"{' '.join(chance.choices(WORDS, k=8))} {chance.getrandbits(64):016x}"


def seen(memory: Any) -> dict[str, Any]:
    """What a caller was told about a memory."""
    return {"id": memory.id, "version": memory.version, "text": memory.text, "state": memory.state}


class Hand:
    """One thread's mixed writing: each call that returned is acknowledged with what it returned."""

    def __init__(self, place: Commonplace, chance: random.Random, acknowledge: Acknowledge) -> None:
        self._place = place
        self._chance = chance
        self._acknowledge = acknowledge
        self._own: list[str] = []

    def write(self) -> None:
        """One call of the library, chosen by chance."""
        share = self._chance.random()
        if len(self._own) < 3 or share < 0.5:
            self._remember()
        elif share < 0.7:
            text = sentence(self._chance)
            memory = self._place.revise(self._chance.choice(self._own), text=text)
            self._acknowledge({"memory": seen(memory)})
        elif share < 0.8:
            source, target = self._chance.sample(self._own, 2)
            with contextlib.suppress(Conflict):
                link = self._place.links.add(source, target, "relates_to", reason="by chance")
                self._acknowledge({"link": link.id})
        elif share < 0.9:
            identity = self._own.pop(self._chance.randrange(len(self._own)))
            self._acknowledge({"memory": seen(self._place.forget(identity)[0])})
        else:
            self._pair()

    def _remember(self) -> None:
        memory = self._place.remember(
            sentence(self._chance), title="A note", tags=[self._chance.choice(WORDS)]
        )
        self._own.append(memory.id)
        self._acknowledge({"memory": seen(memory)})

    def _pair(self) -> None:
        """Two memories and their link in one unit: all three are there, or none."""
        token = f"{self._chance.getrandbits(64):016x}"
        with self._place.unit("pair"):
            ends = [
                self._place.remember(f"{sentence(self._chance)} {token}", ref=f"pair/{token}/{end}")
                for end in "ab"
            ]
            link = self._place.links.add(ends[0].id, ends[1].id, "pairs_with")
        self._acknowledge({"memory": seen(ends[0])})
        self._acknowledge({"memory": seen(ends[1])})
        self._acknowledge({"link": link.id})


# The look afterwards


@dataclass
class State:
    """What a file holds, and everything that is wrong with it."""

    forms: dict[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    links: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    operations: int = 0

    def lost(self, acknowledged: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Acknowledgements that the file does not bear out."""
        return [each for each in acknowledged if not self._holds(each)]

    def _holds(self, said: dict[str, Any]) -> bool:
        if "link" in said:
            return said["link"] in self.links
        told = said["memory"]
        return self.forms.get((told["id"], told["version"])) == (told["text"], told["state"])


def inspect(file: Path) -> State:
    """Open a file with the normal code and check every row, and every row's derivations."""
    state = State()
    try:
        store = sqlite.Store(file, SPACE)
        try:
            with store.read() as connection:
                _inspect(connection, state)
        finally:
            store.close()
    except CommonplaceError as error:
        state.problems.append(f"{error.code}: {error}")
    return state


def _inspect(connection: apsw.Connection, state: State) -> None:
    problems = state.problems
    for (found,) in connection.execute("PRAGMA integrity_check"):
        if found != "ok":
            problems.append(f"integrity_check: {found}")
    seq, next_num, *_ = writing.read_head(connection, SPACE)
    state.operations = seq
    _inspect_operations(connection, seq, problems)
    highest = 0
    for table in VERSIONED:
        rows = {row["num"]: row for row in table.fetch(connection, SPACE, "")}
        former: dict[int, list[tuple[int, int]]] = {}
        for row, until, _ in table.versions(connection, SPACE):
            former.setdefault(row["num"], []).append((row["seq"], until))
            if table is MEMORIES:
                state.forms[row["id"], row["seq"]] = (row["text"], row["state"])
            elif table is LINKS:
                state.links.add(row["id"])
        for num, spans in former.items():
            spans.sort()
            ends = [until for _, until in spans]
            begins = [since for since, _ in spans[1:]]
            if num in rows:
                begins.append(rows[num]["seq"])
                if ends != begins:
                    problems.append(f"{table.name} {num}: its versions have a gap")
        highest = max([highest, *rows, *former])
        if any(row["seq"] > seq for row in rows.values()):
            problems.append(f"{table.name}: a row is newer than the change counter")
        if table is MEMORIES:
            state.forms |= {
                (row["id"], row["seq"]): (row["text"], row["state"]) for row in rows.values()
            }
            _inspect_derived(connection, rows, problems)
        elif table is LINKS:
            state.links |= {row["id"] for row in rows.values()}
            _inspect_pairs(connection, problems)
    if highest >= next_num:
        problems.append(f"row {highest} exists, but the next free number is {next_num}")


def _inspect_operations(connection: apsw.Connection, seq: int, problems: list[str]) -> None:
    numbers = []
    for row in connection.execute(OPERATIONS.select_sql + " ORDER BY num", (SPACE,)):
        numbers.append(row[0])
        if not OPERATIONS.matches_hash(row):
            problems.append(f"operation {row[0]} does not match its hash")
    if numbers != list(range(1, seq + 1)):
        problems.append(f"{len(numbers)} operations, but the change counter says {seq}")


def _inspect_pairs(connection: apsw.Connection, problems: list[str]) -> None:
    """Units of two memories and a link are whole."""
    ends = connection.execute(
        "SELECT a.ref, b.id, l.id FROM memories a LEFT JOIN memories b ON b.space = a.space"
        " AND b.ref = substr(a.ref, 1, length(a.ref) - 1) || 'b' LEFT JOIN links l"
        " ON l.space = a.space AND l.source = a.id AND l.target = b.id AND l.kind = 'pairs_with'"
        " WHERE a.ref LIKE 'pair/%/a'"
    ).fetchall()
    problems += [f"{ref} is half" for ref, other, link in ends if other is None or link is None]
    seconds = connection.execute(
        "SELECT count(*) FROM memories WHERE ref LIKE 'pair/%/b'"
    ).fetchone()
    if seconds != (len(ends),):
        problems.append(f"{seconds} second halves of {len(ends)} pairs")


def _inspect_derived(
    connection: apsw.Connection, rows: dict[int, dict[str, Any]], problems: list[str]
) -> None:
    """Terms, passages with vectors, labels and trigrams are there, and are those of the row."""
    terms = dict(connection.execute("SELECT memory, terms FROM lexemes"))
    grams = {num for (num,) in connection.execute("SELECT id FROM grams_docsize")}
    models = {num for (num,) in connection.execute("SELECT num FROM models")}
    labels: dict[int, set[str]] = {}
    for memory, label in connection.execute("SELECT memory, label FROM labels"):
        labels.setdefault(memory, set()).add(label)
    spans: dict[int, list[tuple[int, int]]] = {}
    for memory, ordinal, start, stop, model, vector, total in connection.execute(
        "SELECT memory, ordinal, start, stop, model, vector, sum FROM passages"
        " ORDER BY memory, ordinal"
    ):
        spans.setdefault(memory, []).append((start, stop))
        if model not in models or vector is None:
            problems.append(f"memory {memory}: a passage without a vector")
        elif total != derived.passage_sum(memory, ordinal, start, stop, model, vector):
            problems.append(f"memory {memory}: a passage does not match its sum")
    for num, row in rows.items():
        right = memories.index_entries(row)
        if terms.get(num) != right.terms:
            problems.append(f"memory {num}: its terms are missing or another's")
        if spans.get(num) != [(span.start, span.stop) for span in right.spans]:
            problems.append(f"memory {num}: its passages are missing or another's")
        if labels.get(num, set()) != set(right.labels):
            problems.append(f"memory {num}: its labels are missing or another's")
    for name, found in (("terms", terms), ("passages", spans), ("labels", labels)):
        problems += [f"memory {num}: {name} of no row" for num in found.keys() - rows.keys()]
    problems += [f"memory {num}: trigrams and row differ" for num in grams ^ rows.keys()]


# Mutants: the same code with one promise broken


def commits_without_sync(patch: Patch) -> None:
    """synchronous=NORMAL: a commit is not synced."""
    real = database.connect

    def connect(path: Path, **options: Any) -> apsw.Connection:
        connection = real(path, **options)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    patch(store_module, "connect", connect)


class _Deferred(database.Connection):
    def execute(self, statements: str, *args: Any, **options: Any) -> apsw.Cursor:
        begin = statements == "BEGIN IMMEDIATE"
        return super().execute("BEGIN" if begin else statements, *args, **options)


def begins_deferred(patch: Patch) -> None:
    """BEGIN instead of BEGIN IMMEDIATE: the lock is asked for when it is too late to wait."""
    patch(database, "Connection", _Deferred)


def acknowledges_before_commit(patch: Patch) -> None:
    """A unit returns although the shared commit is still to come."""
    patch(writing.Writer, "_await", lambda *_: None)


def commits_behind_the_callers_back(patch: Patch) -> None:
    """A unit returns at once, and a commit is made for many of them now and then."""
    acknowledges_before_commit(patch)

    def commit_or_leave(self: writing.Writer) -> None:
        batch = self._batch
        if batch is not None and time.monotonic() - batch.begun > 0.02:
            self._commit(batch)

    patch(writing.Writer, "_commit_or_leave", commit_or_leave)


class _Apart(database.Connection):
    """Holds what is derived back until the transaction after the row's."""

    _later: list[tuple[Callable[..., Any], tuple[Any, ...]]]

    def execute(self, statements: str, *args: Any, **options: Any) -> apsw.Cursor:
        if self._postponed(super().execute, statements, args):
            return super().execute("SELECT 1 WHERE FALSE")
        done = super().execute(statements, *args, **options)
        if statements == "BEGIN IMMEDIATE":
            later, self._later = self._later, []
            for run, values in later:
                run(*values)
        return done

    def executemany(self, statements: str, *args: Any, **options: Any) -> apsw.Cursor:
        if self._postponed(super().executemany, statements, args):
            return super().execute("SELECT 1 WHERE FALSE")
        return super().executemany(statements, *args, **options)

    def _postponed(self, run: Callable[..., Any], statements: str, args: tuple[Any, ...]) -> bool:
        if not hasattr(self, "_later"):
            self._later = []
        if statements.startswith(_DERIVED) and self.in_transaction:
            self._later.append((run, (statements, *args)))
            return True
        return False


_DERIVED = tuple(f"INSERT INTO {table} " for table in ("lexemes", "passages", "labels", "grams"))


def writes_derived_rows_apart(patch: Patch) -> None:
    """Terms, vectors, labels and trigrams follow outside the row's transaction."""
    patch(database, "Connection", _Apart)


def ignores_expected_version(patch: Patch) -> None:
    """A revision overwrites what another wrote meanwhile."""
    real = memories.change

    def change(*args: Any, expected: int | None = None, **options: Any) -> Any:
        return real(*args, **options)

    patch(memories, "change", change)


MUTANTS: dict[str, Callable[[Patch], None]] = {
    mutant.__name__: mutant
    for mutant in (
        commits_without_sync,
        begins_deferred,
        acknowledges_before_commit,
        commits_behind_the_callers_back,
        writes_derived_rows_apart,
        ignores_expected_version,
    )
}


# Runs


class Channel:
    """A pipe on which forked workers speak in lines; a line is whole or was never said."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._rest = b""

    def say(self, record: dict[str, Any]) -> None:
        line = json.dumps(record).encode() + b"\n"
        assert len(line) <= select.PIPE_BUF, "a longer write would not be atomic"
        os.write(self._writer, line)

    def hear(self, timeout: float) -> list[dict[str, Any]]:
        """What was said since, waiting for the first word at most so long."""
        if not select.select([self._reader], [], [], max(0.0, timeout))[0]:
            return []
        *lines, self._rest = (self._rest + os.read(self._reader, 1 << 16)).split(b"\n")
        return [json.loads(line) for line in lines]


def fork(work: Callable[[], None]) -> int:
    """Run something in a child that never returns to the caller's code."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def write_until_killed(directory: Path, channel: Channel, threads: int, seed: int) -> None:
    """Several threads, so that commits are shared."""
    place = open_memory(directory)

    def run(number: int) -> None:
        hand = Hand(place, random.Random(f"{seed}/{number}"), channel.say)
        while True:
            try:
                hand.write()
            except Exception as error:
                channel.say({"error": f"{type(error).__name__}: {error}"[:2000]})

    running = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


@dataclass
class KillRun:
    """The figures of a run of killings."""

    acknowledged: int = 0
    kills: int = 0
    lost: int = 0
    torn: int = 0
    in_flight: int = 0
    errors: int = 0
    seconds: float = 0.0
    examples: list[str] = field(default_factory=list)


def kill(
    directory: str,
    *,
    acks: int,
    kills: int,
    at_most: float,
    seed: int = 1,
    workers: int = 4,
    threads: int = 3,
    mutant: str | None = None,
) -> KillRun:
    """Kill writing processes at random moments until both figures are reached, then look."""
    if mutant:
        MUTANTS[mutant](setattr)
    path, chance, channel, run = Path(directory), random.Random(seed), Channel(), KillRun()
    create(path)
    started, said = time.monotonic(), list[dict[str, Any]]()

    def spawn() -> int:
        number = chance.getrandbits(32)
        return fork(lambda: write_until_killed(path, channel, threads, number))

    def end(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        run.kills += 1

    alive = [spawn() for _ in range(workers)]
    due = started
    pace = min(0.2, at_most / 2 / max(1, kills))
    while (len(said) < acks or run.kills + workers < kills) and (
        time.monotonic() - started < at_most
    ):
        said += channel.hear(due - time.monotonic())
        report_progress(run.kills, kills, "kills")
        if time.monotonic() >= due:
            end(alive.pop(chance.randrange(len(alive))))
            alive.append(spawn())
            due = time.monotonic() + chance.uniform(0, 2 * pace)
    for pid in alive:
        end(pid)
    while heard := channel.hear(0):
        said += heard
    errors = [each["error"] for each in said if "error" in each]
    said = [each for each in said if "error" not in each]
    state = inspect(file_of(path))
    lost = state.lost(said)
    run.acknowledged, run.lost, run.errors = len(said), len(lost), len(errors)
    run.torn = len(state.problems)
    run.in_flight = len(state.forms) + len(state.links) - len(said) + run.lost
    run.seconds = round(time.monotonic() - started, 1)
    run.examples = [*errors[:3], *state.problems[:3], *map(str, lost[:3])]
    return run


@dataclass
class SharedRun:
    """The figures of processes that share one file."""

    writes: int = 0
    reads: int = 0
    increments: int = 0
    conflicts: int = 0
    counted: int = 0
    lost: int = 0
    torn: int = 0
    errors: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    examples: list[str] = field(default_factory=list)


def share(
    directory: str,
    *,
    processes: int,
    seconds: float,
    seed: int = 1,
    threads: int = 1,
    mutant: str | None = None,
) -> SharedRun:
    """Many processes read, write and count on one file; every increment that succeeded counts."""
    if mutant:
        MUTANTS[mutant](setattr)
    path, channel, run = Path(directory), Channel(), SharedRun()
    with open_memory(path) as place:
        counter = place.remember("0", title="A counter").id
    until = time.monotonic() + seconds

    def work(number: int) -> None:
        place = open_memory(path)
        running = [
            threading.Thread(target=_share_loop, args=(place, counter, channel, until, (number, n)))
            for n in range(threads)
        ]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        place.close()

    alive = {fork(lambda number=number: work(seed * 1000 + number)) for number in range(processes)}
    said: list[dict[str, Any]] = []
    while alive:
        said += channel.hear(0.05)
        report_progress(seconds - max(0.0, until - time.monotonic()), seconds, "seconds")
        for pid in list(alive):
            if os.waitpid(pid, os.WNOHANG)[0]:
                alive.discard(pid)
    while heard := channel.hear(0):
        said += heard
    state = inspect(file_of(path))
    counts = Counter(key for each in said for key in each)
    acknowledged = [each for each in said if each.keys() & {"memory", "link"}]
    lost = state.lost(acknowledged)
    took = sorted(each["took"] for each in said if "took" in each)
    with open_memory(path) as place:
        run.counted = int(place.get(counter).text)
    run.writes, run.reads = len(acknowledged), counts["read"]
    run.increments, run.conflicts = counts["increment"], counts["conflict"]
    run.lost, run.torn, run.errors = len(lost), len(state.problems), counts["error"]
    if took:
        run.p50_ms = round(took[len(took) // 2] * 1000, 1)
        run.p99_ms = round(took[int(len(took) * 0.99)] * 1000, 1)
    errors = [each["error"] for each in said if "error" in each]
    run.examples = [*errors[:3], *state.problems[:3], *map(str, lost[:3])]
    return run


def _share_loop(
    place: Commonplace, counter: str, channel: Channel, until: float, seed: tuple[int, int]
) -> None:
    chance = random.Random(str(seed))
    hand = Hand(place, chance, channel.say)
    while time.monotonic() < until:
        began = time.monotonic()
        try:
            match chance.choice(("write", "write", "count", "get", "recall")):
                case "write":
                    hand.write()
                    channel.say({"took": time.monotonic() - began})
                case "count":
                    before = place.get(counter, count=False)
                    value = int(before.text) + 1
                    after = place.revise(counter, text=str(value), expected_version=before.version)
                    assert after.text == str(value)
                    channel.say({"increment": value})
                case "get":
                    place.get(counter)
                    channel.say({"read": 1})
                case _:
                    assert place.recall(" ".join(chance.choices(WORDS, k=2)), limit=3) is not None
                    channel.say({"read": 1})
        except Conflict:
            channel.say({"conflict": 1})
        except Exception as error:
            channel.say({"error": f"{type(error).__name__}: {error}"[:2000]})


@dataclass
class FullRun:
    """The figures of disks that filled up while somebody wrote."""

    disks: int = 0
    refused: int = 0
    acknowledged: int = 0
    lost: int = 0
    torn: int = 0
    untyped: int = 0
    slowest_resume: float = 0.0
    examples: list[str] = field(default_factory=list)


def fill(
    directory: Path, run: FullRun, free_space: Callable[[], None], *, seed: int, most: int = 2000
) -> None:
    """Write until the disk is full, read on, get room, write on, and look at what is there."""
    chance = random.Random(seed)
    said: list[dict[str, Any]] = []
    run.disks += 1

    def failed(what: str) -> None:
        run.untyped += 1
        run.examples.append(what[:500])

    place: Commonplace | None = None
    refused = 0
    for _ in range(most):
        try:
            if place is None:
                place = open_memory(directory)
                hand = Hand(place, chance, said.append)
            hand.write()
        except StorageFull as error:
            assert error.code == "STORAGE_FULL"
            refused += 1
            if refused == 3:
                break
        except Exception as error:
            failed(f"while full: {type(error).__name__}: {error}")
            break
    run.refused += refused
    if not refused:
        failed("the disk never filled")
    assert place is not None
    try:
        told = [each["memory"] for each in said if "memory" in each]
        if told:
            place.get(told[-1]["id"], count=False)
            newest = {each["id"]: each for each in told}
            live = [each for each in newest.values() if each["state"] == "active"]
            if live and not place.recall(live[0]["text"], count=False):
                failed("recall found nothing while the disk was full")
    except CommonplaceError as error:
        failed(f"reading while full: {error.code}: {error}")
    free_space()
    began = time.monotonic()
    try:
        for _ in range(3):
            Hand(place, chance, said.append).write()
        run.slowest_resume = max(run.slowest_resume, round(time.monotonic() - began, 3))
    except CommonplaceError as error:
        failed(f"after space returned: {error.code}: {error}")
    place.close()
    state = inspect(file_of(directory))
    lost = state.lost(said)
    run.acknowledged += len(said)
    run.lost += len(lost)
    run.torn += len(state.problems)
    run.examples += [*state.problems[:3], *map(str, lost[:3])]


def fill_tmpfs(directory: str, *, sizes: Sequence[int]) -> FullRun:
    """A small real file system in a mount namespace of this process's own, filled for real."""
    run = FullRun()
    for number, free in enumerate(sizes):
        place = Path(directory) / str(number)
        place.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", place],
            check=True,
        )
        if number % 2:
            create(place)
        filler = place / "filler"
        disk = os.statvfs(place)
        filler.write_bytes(bytes(max(0, disk.f_bavail * disk.f_frsize - free)))
        fill(place, run, filler.unlink, seed=number)
        subprocess.run(["umount", place], check=True)
    return run


def fill_limited(directory: str, *, sizes: Sequence[int]) -> FullRun:
    """Files may only be so large: SQLite meets EFBIG, which is IOERR_WRITE and not FULL."""
    run = FullRun()
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    for number, size in enumerate(sizes):
        place = Path(directory) / str(number)
        place.mkdir()
        create(place)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        fill(
            place,
            run,
            lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard)),
            seed=number,
        )
    return run


RUNS: dict[str, Callable[..., Any]] = {
    run.__name__: run for run in (kill, share, fill_tmpfs, fill_limited)
}


def run_apart(name: str, directory: Path, *, before: Sequence[str] = (), **options: Any) -> Any:
    """Do a run in a process of its own."""
    tests = Path(__file__).parent.parent
    done = subprocess.run(
        [*before, sys.executable, "-m", "reliability.workers", name, str(directory),
         json.dumps(options)],
        cwd=tests, env={**os.environ, "PYTHONPATH": str(tests)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def main() -> None:
    """One run, as the command line says."""
    name, directory, options = sys.argv[1:]
    found = RUNS[name](directory, **json.loads(options))
    sys.stdout.write(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
