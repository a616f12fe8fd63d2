"""Memories that follow one another, and memories that mean nearly the same."""

from __future__ import annotations

import pytest

from commonplace import Commonplace
from commonplace.errors import Conflict, InvalidInput


def test_a_chain_grows_at_its_end(memory: Commonplace) -> None:
    first, before = memory.chains.extend("t", "one", kind="decision", tags=["t"])
    assert before is None
    second, before = memory.chains.extend("t", "two", kind="decision", tags=["t"], reason="newer")
    assert before is not None
    assert (before.id, before.state) == (first.id, "superseded")
    (link,) = memory.links.of(second.id)
    assert (link.source, link.target, link.kind, link.reason) == (
        second.id, first.id, "supersedes", "newer",
    )  # fmt: skip
    assert memory.history.operations(limit=1)[0].name == "extend"


def test_another_kind_or_tag_is_another_chain(memory: Commonplace) -> None:
    memory.chains.extend("t", "one", kind="decision", tags=["t"])
    assert memory.chains.extend("t", "two", kind="note", tags=["t"])[1] is None
    assert memory.chains.extend("T", "three", kind="decision", tags=["T"])[1] is None
    memory.remember("four", kind="decision", tags=["T"], state="archived")
    assert memory.chains.extend("T", "five", kind="decision", tags=["T"])[1] is not None


def test_what_cannot_be_stored_leaves_the_chain_as_it_was(memory: Commonplace) -> None:
    first, _ = memory.chains.extend("t", "one", kind="decision", tags=["t"], ref="r")
    with pytest.raises(Conflict):
        memory.chains.extend("t", "two", kind="decision", tags=["t"], ref="r")
    with pytest.raises(InvalidInput):
        memory.chains.extend("t", " ", kind="decision", tags=["t"])
    assert memory.get(first.id).state == "active"


def test_numbers_go_on_behind_the_highest(memory: Commonplace) -> None:
    assert memory.chains.number("log_", "one").ref == "log_1"
    memory.remember("nine", ref="log_9")
    memory.remember("none", ref="log_9x")
    memory.remember("elsewhere", ref="logs_50")
    assert memory.chains.number("log_", "ten").ref == "log_10"
    assert memory.chains.number("log_", "eleven").ref == "log_11"


def test_a_ref_of_hundreds_of_digits_is_not_counted_on_from(memory: Commonplace) -> None:
    """The next would be longer than a ref can be, and could neither be read nor imported."""
    memory.remember("odd", ref="log_" + "9" * 496)
    memory.remember("odd too", ref="log_" + "9" * 19)
    made = memory.chains.number("log_", "one")
    assert made.ref == "log_1" and memory.get(made.ref) == made
    memory.remember("large", ref="log_" + "9" * 18)
    assert memory.chains.number("log_", "more").ref == "log_1" + "0" * 18


def test_what_means_the_same_is_alike(real: Commonplace) -> None:
    one = real.remember("We use JWT tokens for the login.")
    other = real.remember("Logins are done with JWT tokens.")
    real.remember("Eat pasta on Tuesday.", kind="dinner")
    ((first, second, likeness),) = real.alike(one.id, other.id, least=0.7)
    assert {first, second} == {one.id, other.id}
    assert 0.7 < likeness <= 1
    assert real.alike(one.id, kinds=["dinner"]) == []
    assert len(real.alike(one.id, least=0.0, limit=1)) == 1


def test_without_vectors_nothing_is_known_to_be_alike(memory: Commonplace) -> None:
    one = memory.remember("The same words.")
    memory.remember("The same words.")
    assert memory.alike(one.id) == []


def test_scripts_the_model_does_not_know_are_not_compared(real: Commonplace) -> None:
    one = real.remember("세션 인증이 부하에서 실패했다")
    real.remember("화요일에는 파스타를 먹는다")
    assert real.alike(one.id, least=0.0) == []
