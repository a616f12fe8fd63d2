"""R20: every write goes through the store's gate; and what the gate promises to those who share it.

Every statement of every connection is watched while everything the library can do is done once.
A statement that changes something must run inside a unit of work, a maintenance of the writer, the
making or the preparation of a file, or the making of a copy. A read snapshot cannot write at all.
"""

from __future__ import annotations

import ast
import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import commonplace
from commonplace import Commonplace, Draft, Filters
from commonplace.engine.binding import engine_call, lease
from commonplace.engine.content import chains, memories
from commonplace.engine.content.conversations import Line
from commonplace.engine.content.projects import Project
from commonplace.engine.finding import likeness, listing, substrings
from commonplace.engine.maintenance import file_copies, upkeep
from commonplace.engine.maintenance.file_copies import FileState
from commonplace.engine.parts import Part
from commonplace.errors import CommonplaceError, Conflict, StorageFull, StorageUnavailable
from commonplace.storage import database, writing
from commonplace.storage.sqlite import Store, store
from commonplace.storage.writing import Writer
from reliability import workers
from reliability.faulty_vfs import FailingSync, mounted
from reliability.workers import file_of, inspect, open_memory

SOURCE = Path(commonplace.__file__).parent

# Who may open a connection, and why.
OPENERS = {
    "storage/database.py": "the gate itself",
    "storage/sqlite/swap.py": "a file that is to be replaced, to keep everybody else out of it",
    "storage/sqlite/check.py": "an empty database in memory, to compare the tables with",
    "storage/sqlite/salvage.py": "a damaged file, to read what can still be read of it",
    "storage/sqlite/readonly.py": "a file that cannot be written, or a copy of it, to read it",
    "storage/sqlite/foreign.py": "a temporary copy of another program's database, to read it",
}


# SQLite counts these as writing: taking the lock, and asking for the journal mode.
HARMLESS = ("BEGIN", 'pragma "journal_mode"')


class Gate:
    """Knows for each thread whether it may write, and what was written where it may not."""

    def __init__(self) -> None:
        self._mine = threading.local()
        self.written = 0
        self.violations: list[str] = []
        self.statements: list[str] = []

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        self._mine.depth = getattr(self._mine, "depth", 0) + 1
        try:
            yield
        finally:
            self._mine.depth -= 1

    def seen(self, cursor: apsw.Cursor, statement: str, bindings: object) -> bool:
        self.statements.append(statement)
        if not cursor.is_readonly and not statement.startswith(HARMLESS):
            self.written += 1
            if not getattr(self._mine, "depth", 0):
                self.violations.append(statement)
        return True


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Watches every connection that is opened from now on."""
    watch = Gate()

    def opened(connection: apsw.Connection) -> None:
        connection.exec_trace = watch.seen

    def through_block(real: Callable[..., Any]) -> Callable[..., Any]:
        @contextlib.contextmanager
        def inside(*args: Any) -> Iterator[Any]:
            with watch.open(), real(*args) as value:
                yield value

        return inside

    def through_call(real: Callable[..., Any]) -> Callable[..., Any]:
        def inside(*args: Any, **options: Any) -> Any:
            with watch.open():
                return real(*args, **options)

        return inside

    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, opened])
    monkeypatch.setattr(Writer, "unit", through_block(Writer.unit))
    monkeypatch.setattr(Writer, "between_units", through_block(Writer.between_units))
    monkeypatch.setattr(Writer, "close", through_call(Writer.close))
    monkeypatch.setattr(Store, "_migrate", through_call(Store._migrate))
    monkeypatch.setattr(store, "create", through_call(database.create))
    monkeypatch.setattr(store, "copy_database", through_call(database.copy_database))
    return watch


def use_everything(place: Commonplace) -> None:
    """Each thing the library can do, once."""
    first = place.remember("The harbour closes at nine.", tags=["harbour"], ref="one")
    drafts = [Draft(text="The lantern is lit at six."), Draft(text="Third.")]
    second, third = place.remember_many(drafts)
    place.get(first.id)
    place.get(first.id, as_of="2099-01-01T00:00:00Z")
    place.usage(first.id)
    first = place.revise(first.id, text="The harbour closes at ten.", expected_version=None)
    external = place.remember("They say so.", trust="external")
    place.promote(external.id, "inferred")
    place.supersede(third.id, "Third, again.", reason="a test")
    place.forget(second.id)
    place.restore(second.id)
    place.recall("harbour lantern")
    place.recall("harbour", as_of="2099-01-01T00:00:00Z")
    place.recall_for_prompt("harbour lantern")
    place.may_replace("The harbour lantern is lit")
    place.within(Project("harbour")).remember("The harbour has a crane")
    place.browse(order="importance")
    place.find_text("harbour")
    every = Filters()
    engine_call(place, substrings.locate, ["harbour"], every, lambda located: located.credit)
    engine_call(place, memories.count_by_attrs, ["file"], ["note"])
    engine_call(place, likeness.similarity, "a harbour", ["a port"])
    engine_call(place, likeness.similar_pairs, [first.id], every)
    numbers = engine_call(place, listing.memory_columns, every).num.tolist()
    engine_call(place, memories.memories_by_number, numbers)
    engine_call(place, memories.usages, numbers)
    engine_call(place, memories.count_reads_now, [first.id], times=2)
    engine_call(place, memories.numbers_read_since, "2026-01-01")
    engine_call(place, likeness.similarities_among, numbers)
    engine_call(place, upkeep.embed_all, timeout=1)
    place.backlog()
    place.tags()
    engine_call(place, upkeep.waiting_for_vectors, [first.id])
    with place.unit("several"):
        place.remember("In a unit.")
        place.recall("unit")
    place.undo()
    place.history.operations()
    place.history.versions(first.id)
    place.at("elsewhere").remember("In another space.")

    link = place.links.add(first.id, second.id, "relates_to")
    place.links.get(link.id)
    place.links.revise(link.id, weight=0.9)
    place.links.of(first.id)
    place.links.around(first.id)
    place.links.neighbours(first.id)
    place.links.traverse(first.id)
    place.links.components()
    place.links.remove(link.id)

    for text in ("Moor in the north.", "Moor in the south."):
        draft = Draft(text=text, kind="decision", tags=["topic:port"])
        engine_call(place, chains.extend, draft, "topic:port", place.origin, "")
    engine_call(place, chains.remember_numbered, Draft(text="A calm night."), "log_", place.origin)

    fact = place.facts.add("Ada", "lives in", "London", memory=first.id)
    place.facts.query("Ada")
    place.facts.timeline("Ada")
    place.facts.totals()
    place.facts.close("Ada", "lives in", "London")
    place.facts.retract(fact.id)

    cluster = place.clusters.create("Port")
    place.clusters.get(cluster.id)
    place.clusters.all()
    place.clusters.revise(cluster.id, digest="About the port.")
    place.clusters.add(cluster.id, first.id, second.id)
    place.clusters.refresh(cluster.id)
    place.clusters.members(cluster.id)
    place.clusters.of(first.id)
    place.clusters.remove(cluster.id, second.id)
    place.clusters.sizes()
    place.clusters.homes(first.id)
    harbour = place.clusters.create("Harbour")
    place.clusters.move(cluster.id, harbour.id)
    place.clusters.delete(harbour.id)
    place.clusters.delete(cluster.id)

    artifact = place.artifacts.create("# Port", path="/port.md")
    place.artifacts.update(artifact.id, "# Harbour", expected_version=1)
    place.artifacts.get("/port.md")
    place.artifacts.read(artifact.id)
    place.artifacts.versions(artifact.id)
    place.artifacts.all()
    place.artifacts.review(artifact.id, "approved")
    place.artifacts.reviews(artifact.id)
    place.artifacts.delete(artifact.id)

    said = place.conversations.add(
        "talk", Line(speaker="Ada", text="Is it open?", session="monday")
    )
    place.conversations.history("talk")
    place.conversations.find("talk", "harbour")
    place.conversations.of(said[0].memory.id)
    place.conversations.window(said[0].memory.id)
    place.conversations.names()
    place.recall_sessions("open")

    place.events.record("seen", first.id, {"quote": "a harbour"})
    place.events.all()
    place.events.count()

    engine_call(place, file_copies.newest_seq)
    engine_call(place, file_copies.outdated_copies, "a-directory", ["note"])
    (one,) = engine_call(place, memories.memories_by_number, [first.num])
    copy = FileState(one.num, "one.md", 1, 2, 3, b"4", b"5", one.version)
    engine_call(place, file_copies.record_files, "a-directory", [copy], gone=[second.num])
    engine_call(place, file_copies.recorded_files, "a-directory")
    place.purge(external.id)


def public_methods(place: Commonplace) -> set[str]:
    """What a caller can call, by dotted name."""
    parts = {
        name: part
        for name, part in vars(place).items()
        if isinstance(part, Part) and not name.startswith("_")
    }
    return {
        f"{prefix}{name}"
        for prefix, owner in [("", type(place)), *((f"{n}.", type(p)) for n, p in parts.items())]
        for name, value in vars(owner).items()
        if not name.startswith("_") and callable(value)
    } - {"close"}


def called_in(function: Callable[..., None]) -> set[str]:
    """The dotted names that a function calls on its first argument."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    found = next(n for n in tree.body if getattr(n, "name", "") == function.__name__)
    dotted = (ast.unparse(n.func) for n in ast.walk(found) if isinstance(n, ast.Call))
    return {name.removeprefix("place.") for name in dotted if name.startswith("place.")}


def test_nothing_is_written_outside_the_gate(
    tmp_path: Path, gate: Gate, publish: Callable[[str], None]
) -> None:
    with open_memory(tmp_path) as place:
        use_everything(place)
        everything = public_methods(place)
    missing = everything - called_in(use_everything)
    assert not missing, f"use_everything() must call these too: {sorted(missing)}"
    publish(f"{len(everything)} calls, {gate.written} writing statements, all inside the gate")
    assert gate.written > 100
    assert gate.violations == []


def test_a_write_outside_the_gate_is_detected(tmp_path: Path, gate: Gate) -> None:
    with open_memory(tmp_path) as place:
        place.remember("Properly stored.")
        with contextlib.closing(apsw.Connection(str(file_of(tmp_path)))) as connection:
            connection.execute("DELETE FROM memories")
    assert gate.violations == ["DELETE FROM memories"]


def test_a_read_snapshot_cannot_write(tmp_path: Path) -> None:
    """Without this, the write would be rolled back with the snapshot, and nobody told."""
    with open_memory(tmp_path) as place, lease(place) as space:
        kept = place.remember("It stays.")
        for _ in range(2):  # the connection that opened the file, and one made for reading
            with (
                space.store.read(),
                pytest.raises(StorageUnavailable),
                space.store.read() as connection,
            ):
                connection.execute("DELETE FROM memories")
        with pytest.raises(StorageUnavailable), space.store.read() as connection:
            connection.execute("DELETE FROM memories")
        assert place.get(kept.id).text == "It stays."


def openers(source: str) -> bool:
    """Whether a module opens a database itself."""
    calls = (n.func for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call))
    names = {"apsw.Connection", "Connection", "sqlite3.connect"}
    return any(ast.unparse(call) in names for call in calls)


def test_connections_are_opened_in_few_places() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if openers(path.read_text(encoding="utf-8"))
    }
    assert found == OPENERS.keys(), "open connections through storage/database.py"
    assert openers("import apsw\napsw.Connection('x')")
    assert openers("import sqlite3\nwith sqlite3.connect('x') as c: pass")


# What those who share a commit may rely on


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.001)


@contextlib.contextmanager
def patient_batches() -> Iterator[None]:
    """Let a batch wait for its units; one older than BATCH_SECONDS would commit without them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "BATCH_SECONDS", 60)
        yield


class Together:
    """Units that certainly share one commit: the first holds the turn until all others wait."""

    def __init__(self, place: Commonplace, count: int) -> None:
        self._place = place
        self._count = count
        self.returned: list[int] = []
        self.errors: dict[int, CommonplaceError] = {}

    def run(self, body: Callable[[int], None] = lambda number: None) -> None:
        with patient_batches(), lease(self._place) as space:
            writer = space.store._writer
            begun = threading.Event()

            def unit(number: int) -> None:
                try:
                    with self._place.unit("together"):
                        self._place.remember(f"Unit {number}.", ref=f"unit/{number}")
                        if number == 0:
                            begun.set()
                            wait_until(lambda: writer._waiting == self._count - 1)
                        body(number)
                    self.returned.append(number)
                except CommonplaceError as error:
                    self.errors[number] = error

            threads = [threading.Thread(target=unit, args=(n,)) for n in range(self._count)]
            threads[0].start()
            assert begun.wait(10)
            for thread in threads[1:]:
                thread.start()
            for thread in threads:
                thread.join(30)

    def stored(self) -> set[int]:
        found = [memory.ref or "" for memory in self._place.browse(limit=1000)[0]]
        return {int(ref.removeprefix("unit/")) for ref in found if ref.startswith("unit/")}


def test_thirty_two_writers_at_once_are_all_stored(
    tmp_path: Path, gate: Gate, publish: Callable[[str], None]
) -> None:
    said: list[dict[str, Any]] = []
    with open_memory(tmp_path) as place:
        hands = [workers.Hand(place, random.Random(n), said.append) for n in range(32)]

        def run(hand: workers.Hand) -> None:
            for _ in range(10):
                hand.write()

        threads = [threading.Thread(target=run, args=(hand,)) for hand in hands]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    state = inspect(file_of(tmp_path))
    assert len(said) >= 320
    assert (state.problems, state.lost(said)) == ([], [])
    publish(f"{state.operations} units in {gate.statements.count('COMMIT')} commits")


def test_units_that_wait_for_each_other_share_a_commit(tmp_path: Path, gate: Gate) -> None:
    with open_memory(tmp_path) as place, lease(place):
        before = gate.statements.count("COMMIT")
        together = Together(place, 8)
        together.run()
        assert gate.statements.count("COMMIT") == before + 1
        assert together.stored() == set(together.returned) == set(range(8))


def test_a_unit_that_fails_in_a_shared_commit_fails_alone(tmp_path: Path, gate: Gate) -> None:
    def body(number: int) -> None:
        if number in (2, 5):
            raise Conflict("This one is not to be.")

    with open_memory(tmp_path) as place, lease(place):
        before = gate.statements.count("COMMIT")
        together = Together(place, 8)
        together.run(body)
        assert gate.statements.count("COMMIT") == before + 1
        assert together.errors.keys() == {2, 5}
        assert together.stored() == set(together.returned) == {0, 1, 3, 4, 6, 7}
    assert inspect(file_of(tmp_path)).problems == []


def test_a_statement_that_fails_in_a_shared_commit_fails_alone(tmp_path: Path) -> None:
    with open_memory(tmp_path) as place, lease(place) as space:

        def body(number: int) -> None:
            if number == 3:
                with space.store.maintain() as connection:
                    connection.execute("INSERT INTO models SELECT * FROM models")
                    connection.execute("INSERT INTO head SELECT * FROM head")
                    connection.execute("INSERT INTO outbox (num) VALUES (1)")

        together = Together(place, 6)
        together.run(body)
        assert together.errors.keys() == {3}
        assert isinstance(together.errors[3], Conflict)
        assert together.stored() == {0, 1, 2, 4, 5}
    assert inspect(file_of(tmp_path)).problems == []


def remember_together(place: Commonplace, refs: list[str]) -> dict[int, str]:
    """One memory for each ref, in one shared commit; what each caller was told."""
    told: dict[int, str] = {}

    def remember(number: int, ref: str) -> None:
        try:
            place.remember(f"Memory {number}.", ref=ref)
            told[number] = "stored"
        except CommonplaceError as error:
            told[number] = error.code

    with patient_batches(), lease(place) as space:
        writer = space.store._writer
        threads = [threading.Thread(target=remember, args=each) for each in enumerate(refs)]
        with writer._lock:  # until all of them wait
            for count, thread in enumerate(threads, 1):
                thread.start()
                wait_until(lambda count=count: writer._waiting == count)
        for thread in threads:
            thread.join(30)
    return told


def test_a_memory_that_is_refused_among_others_is_refused_alone(tmp_path: Path, gate: Gate) -> None:
    with open_memory(tmp_path) as place:
        place.remember("There already.", ref="taken")
        before = gate.statements.count("COMMIT")
        told = remember_together(place, ["a", "taken", "b", "c", "b", "d"])
        assert gate.statements.count("COMMIT") - before <= 2
        assert [told[n] for n in range(6)] == [
            "stored", "CONFLICT", "stored", "stored", "CONFLICT", "stored"
        ]  # fmt: skip
        assert {m.ref for m in place.browse()[0]} == {"taken", "a", "b", "c", "d"}
    assert inspect(file_of(tmp_path)).problems == []


def test_memories_whose_shared_commit_fails_are_all_refused(quick_disk: Path) -> None:
    disk = FailingSync()
    with mounted(disk), open_memory(quick_disk) as place, lease(place):
        disk.fail_after(0)
        told = remember_together(place, ["a", "b", "c", "d"])
        assert disk.failures == 1
        assert list(told.values()) == ["STORAGE_UNAVAILABLE"] * 4
        assert place.browse()[1] == 0
        assert place.remember("It goes on.").version == 1
    assert inspect(file_of(quick_disk)).problems == []


def test_a_shared_commit_that_fails_is_told_to_all_and_stores_nothing(quick_disk: Path) -> None:
    disk = FailingSync()
    with mounted(disk), open_memory(quick_disk) as place, lease(place):
        disk.fail_after(0)
        together = Together(place, 6)
        together.run()
        assert disk.failures == 1
        assert together.errors.keys() == set(range(6))
        assert all(isinstance(e, StorageUnavailable) for e in together.errors.values())
        assert together.stored() == set()
        place.remember("It goes on.")
    assert inspect(file_of(quick_disk)).problems == []


def test_closing_while_others_write_leaves_nobody_waiting(quick_disk: Path) -> None:
    for attempt in range(10):
        said: list[dict[str, Any]] = []
        errors: list[Exception] = []
        place = open_memory(quick_disk / str(attempt))
        busy = threading.Event()

        def run(number: int, place: Commonplace, said: list[dict[str, Any]]) -> None:
            hand = workers.Hand(place, random.Random(number), said.append)
            try:
                while True:
                    hand.write()
                    busy.set()  # noqa: B023
            except Exception as error:
                errors.append(error)  # noqa: B023

        threads = [
            threading.Thread(target=run, args=(n, place, said), daemon=True) for n in range(8)
        ]
        for thread in threads:
            thread.start()
        assert busy.wait(10)
        place.close()
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads), "a writer waits for ever"
        assert {type(error) for error in errors} == {StorageUnavailable}
        state = inspect(file_of(quick_disk / str(attempt)))
        assert (state.problems, state.lost(said)) == ([], [])


def returned_before_commit(place: Commonplace, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many units of a shared commit had returned when it was about to be made."""
    early: list[int] = []
    together = Together(place, 6)
    real = Writer._commit

    def commit(self: Writer, batch: Any) -> None:
        # Whoever does not wait for the commit returns while we wait here.
        with contextlib.suppress(AssertionError):
            wait_until(lambda: len(together.returned) > 0, seconds=0.3)
        early.append(len(together.returned))
        real(self, batch)

    monkeypatch.setattr(Writer, "_commit", commit)
    together.run()
    return max(early)


def test_no_unit_returns_before_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_memory(tmp_path) as place, lease(place):
        assert returned_before_commit(place, monkeypatch) == 0


def test_a_unit_that_returns_before_its_commit_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_memory(tmp_path) as place, lease(place):
        workers.acknowledges_before_commit(monkeypatch.setattr)
        assert returned_before_commit(place, monkeypatch) > 0


def lock_is_free_after_a_failed_unit(directory: Path) -> bool:
    """Whether another process may write after a unit failed."""
    with open_memory(directory) as place, lease(place):
        with pytest.raises(Conflict), place.unit("failing"):
            place.remember("It will not be.")
            raise Conflict("Not to be.")
        with contextlib.closing(apsw.Connection(str(file_of(directory)))) as other:
            try:
                other.execute("BEGIN IMMEDIATE; ROLLBACK")
            except apsw.BusyError:
                return False
            return True


def test_a_failed_unit_does_not_keep_the_lock(tmp_path: Path) -> None:
    assert lock_is_free_after_a_failed_unit(tmp_path)


def test_a_lock_kept_by_a_failed_unit_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Writer, "_commit_or_leave", lambda self: None)
        assert not lock_is_free_after_a_failed_unit(tmp_path)


def test_a_unit_that_lost_its_transaction_does_not_go_on_in_pieces(quick_disk: Path) -> None:
    """After SQLite ended the transaction, nothing more of the unit may be stored by itself."""
    with open_memory(quick_disk) as place, lease(place) as space:
        with pytest.raises(CommonplaceError), place.unit("broken"):
            place.remember("First half.")
            unit = space.store.open_unit
            assert unit is not None
            unit.connection.execute("ROLLBACK")  # as SQLite does on a full disk
            with contextlib.suppress(StorageFull, StorageUnavailable):
                place.remember("Second half.")
        assert place.browse()[1] == 0
        place.remember("It goes on.")
    assert inspect(file_of(quick_disk)).problems == []
