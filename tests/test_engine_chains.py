"""Memories that follow one another, and memories that mean nearly the same."""

from __future__ import annotations

from typing import Any

import pytest

from commonplace import Commonplace, Draft, Filters, Memory
from commonplace.engine.binding import engine_call
from commonplace.engine.content import chains
from commonplace.engine.finding.likeness import similar_pairs
from commonplace.errors import Conflict, InvalidInput


def extend(
    memory: Commonplace, tag: str, text: str, reason: str = "", **details: Any
) -> tuple[Memory, Memory | None]:
    draft = Draft(text=text, **details)
    return engine_call(memory, chains.extend, draft, tag, memory.origin, reason)


def number(memory: Commonplace, prefix: str, text: str) -> Memory:
    return engine_call(memory, chains.remember_numbered, Draft(text=text), prefix, memory.origin)


def test_a_chain_grows_at_its_end(memory: Commonplace) -> None:
    first, before = extend(memory, "t", "one", kind="decision", tags=["t"])
    assert before is None
    second, before = extend(memory, "t", "two", kind="decision", tags=["t"], reason="newer")
    assert before is not None
    assert (before.id, before.state) == (first.id, "superseded")
    (link,) = memory.links.of(second.id)
    assert (link.source, link.target, link.kind, link.reason) == (
        second.id, first.id, "supersedes", "newer",
    )  # fmt: skip
    assert memory.history.operations(limit=1)[0].name == "extend"


def test_another_kind_or_tag_is_another_chain(memory: Commonplace) -> None:
    extend(memory, "t", "one", kind="decision", tags=["t"])
    assert extend(memory, "t", "two", kind="note", tags=["t"])[1] is None
    assert extend(memory, "T", "three", kind="decision", tags=["T"])[1] is None
    memory.remember("four", kind="decision", tags=["T"], state="archived")
    assert extend(memory, "T", "five", kind="decision", tags=["T"])[1] is not None


def test_what_cannot_be_stored_leaves_the_chain_as_it_was(memory: Commonplace) -> None:
    first, _ = extend(memory, "t", "one", kind="decision", tags=["t"], ref="r")
    with pytest.raises(Conflict):
        extend(memory, "t", "two", kind="decision", tags=["t"], ref="r")
    with pytest.raises(InvalidInput):
        extend(memory, "t", " ", kind="decision", tags=["t"])
    assert memory.get(first.id).state == "active"


def test_numbers_go_on_behind_the_highest(memory: Commonplace) -> None:
    assert number(memory, "log_", "one").ref == "log_1"
    memory.remember("nine", ref="log_9")
    memory.remember("none", ref="log_9x")
    memory.remember("elsewhere", ref="logs_50")
    assert number(memory, "log_", "ten").ref == "log_10"
    assert number(memory, "log_", "eleven").ref == "log_11"


def test_a_ref_of_hundreds_of_digits_is_not_counted_on_from(memory: Commonplace) -> None:
    """The next would be longer than a ref can be, and could neither be read nor imported."""
    memory.remember("odd", ref="log_" + "9" * 496)
    memory.remember("odd too", ref="log_" + "9" * 19)
    made = number(memory, "log_", "one")
    assert made.ref == "log_1" and memory.get(made.ref) == made
    memory.remember("large", ref="log_" + "9" * 18)
    assert number(memory, "log_", "more").ref == "log_1" + "0" * 18


def test_what_means_the_same_is_alike(real: Commonplace) -> None:
    one = real.remember("We use JWT tokens for the login.")
    other = real.remember("Logins are done with JWT tokens.")
    real.remember("Eat pasta on Tuesday.", kind="dinner")
    ((first, second, likeness),) = engine_call(
        real, similar_pairs, [one.id, other.id], Filters(), least=0.7
    )
    assert {first, second} == {one.id, other.id}
    assert 0.7 < likeness <= 1
    assert engine_call(real, similar_pairs, [one.id], Filters(kinds=["dinner"])) == []
    assert len(engine_call(real, similar_pairs, [one.id], Filters(), least=0.0, limit=1)) == 1


def test_without_vectors_nothing_is_known_to_be_alike(memory: Commonplace) -> None:
    one = memory.remember("The same words.")
    memory.remember("The same words.")
    assert engine_call(memory, similar_pairs, [one.id], Filters()) == []


def test_statements_in_other_scripts_are_compared_by_meaning(real: Commonplace) -> None:
    one = real.remember("세션 인증이 부하에서 실패했다")
    other = real.remember("화요일에는 파스타를 먹는다")
    assert engine_call(real, similar_pairs, [one.id], Filters()) == []
    ((_, found, _),) = engine_call(real, similar_pairs, [one.id], Filters(), least=0.0)
    assert found == other.id
