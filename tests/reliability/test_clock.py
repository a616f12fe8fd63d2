"""A clock that jumps: order comes from the sequence of changes, never from the clock (R12)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest
import time_machine

from commonplace import Commonplace
from commonplace.engine.binding import engine_call, lease
from commonplace.engine.finding.recall import Weighting
from commonplace.engine.maintenance import upkeep
from commonplace.errors import NotFound
from commonplace.storage import operations
from conftest import WordVectors

START = datetime(2026, 6, 1, 12, tzinfo=UTC)
JUMPS = [
    timedelta(hours=1),
    timedelta(hours=-1),
    timedelta(days=3653),
    timedelta(days=-3653),
]
RECENT = Weighting(recency=0.5, recency_days=30)


@pytest.fixture
def clock() -> time_machine.Coordinates:
    with time_machine.travel(START, tick=True) as coordinates:
        yield coordinates


@pytest.mark.parametrize("jump", JUMPS, ids=str)
def test_changes_keep_their_order_over_a_jump(
    clock: time_machine.Coordinates, memory: Commonplace, jump: timedelta
) -> None:
    memory.remember("First form.", ref="a")
    clock.shift(jump)
    memory.revise("a", text="Second form.")
    clock.shift(jump)
    memory.revise("a", text="Third form.")
    memory.remember("Another one.", ref="b")
    assert [version.memory.text for version in memory.history.versions("a")] == [
        "Third form.",
        "Second form.",
        "First form.",
    ]
    operations = memory.history.operations()
    assert [operation.seq for operation in operations] == [4, 3, 2, 1]
    assert [one.ref for one in memory.browse(order="updated")[0]] == ["b", "a"]
    assert memory.get("a").text == "Third form."


@pytest.mark.parametrize("jump", JUMPS, ids=str)
def test_undo_goes_back_by_order_over_a_jump(
    clock: time_machine.Coordinates, memory: Commonplace, jump: timedelta
) -> None:
    memory.remember("First form.", ref="a")
    clock.shift(jump)
    memory.revise("a", text="Second form.")
    clock.shift(jump)
    memory.undo()
    assert memory.get("a").text == "First form."
    clock.shift(-3 * jump)
    memory.undo()
    with pytest.raises(NotFound):
        memory.get("a")
    memory.remember("The place is free.", ref="a")
    assert memory.library.maintenance.check("default").healthy


@pytest.mark.parametrize("jump", JUMPS, ids=str)
def test_nothing_scores_outside_its_range_whatever_the_clock_says(
    clock: time_machine.Coordinates, memory: Commonplace, jump: timedelta
) -> None:
    memory.remember("The harbour was full of ships.", occurred_at="2030-01-01")
    memory.remember("The harbour is empty.", created_at="2001-01-01")
    clock.shift(jump)
    memory.remember("A harbour again.")
    clock.shift(-2 * jump)
    hits = memory.recall("harbour", weighting=RECENT)
    assert len(hits) == 3
    assert all(0.0 <= hit.score <= 1.0 for hit in hits)
    usage = memory.usage(hits[0].memory.id)
    assert usage.accesses == 1 and usage.last_access is not None
    assert memory.backlog() == (0, 0)


def test_the_past_only_grows_as_one_looks_later(
    clock: time_machine.Coordinates, memory: Commonplace
) -> None:
    """As of a moment is the newest change recorded by then: later moments never show less."""
    moments = []
    for i in range(12):
        clock.shift(timedelta(hours=(7, -5, 11, -9)[i % 4]))
        memory.remember(f"Stored as number {i}.", ref=f"r{i}")
        moments.append(datetime.now(UTC))

    def known(at: datetime) -> set[int]:
        found = set()
        for i in range(12):
            try:
                memory.get(f"r{i}", as_of=at)
                found.add(i)
            except NotFound:
                continue
        return found

    before: set[int] = set()
    for at in sorted(moments):
        seen = known(at + timedelta(minutes=1))
        assert seen == set(range(len(seen))), "what is known is always a beginning of the order"
        assert seen >= before
        before = seen
    assert before == set(range(12))
    newest = memory.recall("stored number", as_of=max(moments) + timedelta(minutes=1), limit=20)
    assert len(newest) == 12


def test_a_past_by_the_clock_alone_would_be_noticed(
    clock: time_machine.Coordinates, memory: Commonplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: as of a moment is the change with the latest time by then."""

    def by_the_clock(connection: apsw.Connection, space: str, at: int) -> int:
        row = connection.execute(
            "SELECT num FROM operations WHERE space = ? AND at <= ? ORDER BY at DESC LIMIT 1",
            (space, at),
        ).fetchone()
        return int(row[0]) if row else 0

    monkeypatch.setattr(operations, "newest_at", by_the_clock)
    with pytest.raises(AssertionError):
        test_the_past_only_grows_as_one_looks_later(clock, memory)


def test_work_claimed_before_a_jump_back_is_not_lost(
    clock: time_machine.Coordinates, tmp_path: Path
) -> None:
    """A process that dies with a claim, and a clock that is then set right by ten years."""
    embedder = WordVectors()
    with Commonplace(tmp_path, embedding="none") as memory:
        memory.remember("Waits for its vector.")
    clock.shift(timedelta(days=3653))
    with Commonplace(tmp_path, embedding=embedder) as memory:
        embedder.gate.clear()
        with lease(memory) as space:
            upkeep.find_work(space)
            space.has_work = False
            upkeep._claim(space)
        embedder.gate.set()
    clock.shift(timedelta(days=-3653))
    with Commonplace(tmp_path, embedding=embedder) as memory:
        clock.shift(timedelta(seconds=upkeep.CLAIM_SECONDS + 1))
        engine_call(memory, upkeep.embed_all, timeout=1.0)
        assert memory.backlog()[0] == 0


def test_work_postponed_before_a_jump_back_is_not_postponed_for_years(
    clock: time_machine.Coordinates, tmp_path: Path
) -> None:
    embedder = WordVectors()
    with Commonplace(tmp_path, embedding="none") as memory:
        memory.remember("Waits for its vector.")
    clock.shift(timedelta(days=3653))
    with Commonplace(tmp_path, embedding=None) as memory, lease(memory) as space:
        space.embedder = embedder
        upkeep.find_work(space)
        upkeep._postpone(space, [1], upkeep.EmbeddingUnavailable("It was down."))
    clock.shift(timedelta(days=-3653))
    with Commonplace(tmp_path, embedding=embedder) as memory:
        clock.shift(timedelta(seconds=601))
        engine_call(memory, upkeep.embed_all, timeout=1.0)
        assert memory.backlog()[0] == 0
