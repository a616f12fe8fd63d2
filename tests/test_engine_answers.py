"""Kept answers: found again for a day, by their key alone, and never when they have rotted."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import time_machine

from commonplace import Commonplace
from commonplace.engine.binding import lease
from commonplace.engine.history import answers
from commonplace.storage.sqlite import Store

KEY, OTHER = b"k" * 32, b"o" * 32
DAY = 86_400


@pytest.fixture
def store(memory: Commonplace) -> Iterator[Store]:
    with lease(memory) as space:
        yield space.store


def test_an_answer_is_found_by_its_key(store: Store) -> None:
    assert answers.find(store, KEY) is None
    answers.keep(store, KEY, '{"id":1}')
    assert answers.find(store, KEY) == '{"id":1}'
    assert answers.find(store, OTHER) is None


def test_a_second_answer_under_a_key_is_the_first(store: Store) -> None:
    answers.keep(store, KEY, "first")
    with pytest.raises(answers.AlreadyAnswered) as told:
        answers.keep(store, KEY, "second")
    assert told.value.result == "first"
    assert answers.find(store, KEY) == "first"


@pytest.mark.parametrize(("seconds", "kept"), [(DAY - 1, True), (DAY + 1, False)])
def test_an_answer_is_kept_for_a_day(store: Store, seconds: int, kept: bool) -> None:
    with time_machine.travel(1_800_000_000, tick=False) as clock:
        answers.keep(store, KEY, "first")
        clock.shift(seconds)
        assert (answers.find(store, KEY) == "first") == kept
        if not kept:
            answers.keep(store, KEY, "second")
            assert answers.find(store, KEY) == "second"


def test_old_answers_are_cleared_away(store: Store) -> None:
    with time_machine.travel(1_800_000_000, tick=False) as clock:
        answers.keep(store, KEY, "first")
        clock.shift(DAY + 1)
        answers.keep(store, OTHER, "second")
    with store.read() as connection:
        assert connection.execute("SELECT count(*) FROM answers").fetchone() == (1,)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE answers SET result = 'forged'",
        "UPDATE answers SET at = at + 1",
        "UPDATE answers SET sum = zeroblob(32)",
    ],
)
def test_a_rotten_answer_is_not_given(store: Store, change: str) -> None:
    answers.keep(store, KEY, "first")
    with store.maintain() as connection:
        connection.execute(change)
    assert answers.find(store, KEY) is None
    answers.keep(store, KEY, "again")
    assert answers.find(store, KEY) == "again"


def test_an_answer_goes_with_its_unit(memory: Commonplace, store: Store) -> None:
    with pytest.raises(ZeroDivisionError), memory.unit("test"):
        memory.remember("never")
        answers.keep(store, KEY, "never")
        raise ZeroDivisionError
    assert answers.find(store, KEY) is None


def test_of_many_at_once_one_is_stored(memory: Commonplace, store: Store) -> None:
    outcomes: list[str] = []

    def act(number: int) -> None:
        try:
            with memory.unit("test"):
                memory.remember(f"by {number}")
                answers.keep(store, KEY, str(number))
            outcomes.append(f"stored {number}")
        except answers.AlreadyAnswered as told:
            outcomes.append(f"was {told.result}")

    threads = [threading.Thread(target=act, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (stored,) = [one for one in outcomes if one.startswith("stored")]
    assert outcomes.count("was " + stored.removeprefix("stored ")) == 15
    assert memory.browse()[1] == 1
