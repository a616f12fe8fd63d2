"""How often the database is asked, and what becomes of statements that wait to be sent together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from commonplace import Commonplace
from commonplace.dialects.clawbrain.tools import search_memories
from commonplace.engine.binding import lease
from commonplace.errors import Conflict
from commonplace.storage.postgres.rows import PostgresRows
from conftest import texts

TWICE = "INSERT INTO labels (space, label, memory) VALUES ('team', 'tag:x', 1)"


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The last statement of each round trip."""
    seen: list[str] = []
    send = PostgresRows._send

    def counted(self: PostgresRows, waiting: object, text: str, bindings: object) -> object:
        seen.append(text)
        return send(self, waiting, text, bindings)  # type: ignore[arg-type]

    monkeypatch.setattr(PostgresRows, "_send", counted)
    yield seen


def test_storing_takes_three_round_trips(team: Commonplace, trips: list[str]) -> None:
    team.remember("first")
    trips.clear()
    team.remember("second", tags=["a", "b"])
    assert len(trips) == 3, trips


def test_storing_many_takes_no_more_than_storing_one(team: Commonplace, trips: list[str]) -> None:
    from commonplace.engine.content.memories import Draft

    team.remember("first")
    trips.clear()
    team.remember_many([Draft(text=f"number {at}", tags=["t"]) for at in range(200)])
    assert len(trips) <= 4, trips


def test_recalling_takes_three_round_trips_while_nothing_changes(
    team: Commonplace, trips: list[str]
) -> None:
    for at in range(20):
        team.remember(f"otter number {at}")
    assert len(texts(team.recall("otter", limit=10))) == 10
    trips.clear()
    assert len(texts(team.recall("otter", limit=10))) == 10
    assert len(trips) <= 3, trips


def test_recalling_takes_no_more_if_the_results_have_links(
    team: Commonplace, trips: list[str]
) -> None:
    stored = [team.remember(f"otter number {at}") for at in range(20)]
    for one, other in pairwise(stored):
        team.links.add(one.id, other.id, "related")
    assert len(texts(team.recall("otter", limit=10))) == 10
    trips.clear()
    assert len(texts(team.recall("otter", limit=10))) == 10
    assert len(trips) <= 3, trips


def test_counting_reads_takes_as_many_round_trips_for_many_as_for_one(
    team: Commonplace, trips: list[str]
) -> None:
    stored = [team.remember(f"otter number {at}") for at in range(40)]
    counts = []
    for some in (stored[:1], stored):
        with lease(team) as space:
            trips.clear()
            space.add_reads([one.num for one in some], 1, 1)
            counts.append(len(trips))
    assert counts[0] == counts[1] <= 5, counts


def test_what_fails_in_a_part_fails_there_and_the_unit_goes_on(team: Commonplace) -> None:
    with lease(team) as space, space.store.write("test", {}) as unit:
        unit.connection.execute(TWICE)
        with pytest.raises(Conflict), unit.savepoint():
            unit.connection.execute(TWICE)
        with pytest.raises(ZeroDivisionError), unit.savepoint():
            unit.connection.execute(TWICE)  # which is not sent before the other error
            1 / 0  # noqa: B018
        assert unit.seq == 1
    with lease(team) as space, space.store.read() as rows:
        assert rows.execute("SELECT count(*) FROM labels WHERE space = 'team'").fetchone() == (1,)


def test_a_statement_that_fails_fails_its_unit_and_no_other(team: Commonplace) -> None:
    with lease(team) as space:
        with space.store.maintain() as rows:
            rows.execute(TWICE)
        with pytest.raises(Conflict), space.store.maintain() as rows:
            rows.execute(TWICE)
    team.remember("goes on")
    assert texts(team.browse()) == ["goes on"]


@pytest.mark.parametrize("size", [1, 6, 7, 8, 100])
def test_a_large_query_is_read_in_pieces(
    team: Commonplace, trips: list[str], monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    from commonplace.storage.postgres import rows as module

    monkeypatch.setattr(module, "_ROWS_AT_ONCE", size)
    for number in range(7):
        team.remember(f"number {number}")
    with lease(team) as space, space.store.read() as rows:
        trips.clear()
        for _ in range(2):  # the first query is closed before the next one begins
            found = rows.stream("SELECT num FROM memories WHERE space = ? ORDER BY num", ("team",))
            assert [row[0] for row in found] == sorted(
                row[0] for row in rows.execute("SELECT num FROM memories WHERE space = 'team'")
            )
        assert len(trips) == 2 * (7 // size + 2)


def test_substrings_are_looked_for_in_memory_once_the_texts_were_read(
    team: Commonplace, trips: list[str]
) -> None:
    from commonplace.engine.content.memories import Draft

    rare = [Draft(text="an otter"), Draft(text="a badger")]
    team.remember_many([*rare, *(Draft(text=f"walrus{at} by the sea") for at in range(400))])
    assert search_memories(team, "otter", None, 20)[1] == 1
    trips.clear()
    assert search_memories(team, "badge", None, 20)[1] == 1
    assert not [text for text in trips if "FROM grams" in text]
    assert len(trips) <= 5, trips
    with team.unit("one more"):
        team.remember("two badgers")
        assert search_memories(team, "badger", None, 20)[1] == 2
