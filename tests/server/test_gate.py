"""The gate by itself: the one table, the one unit of work, and who a call is for."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commonplace.access.caller import Caller, NotPermitted
from commonplace.access.signed import Tokens
from commonplace.access.vault import open_vault
from commonplace.dialects import registry
from commonplace.dialects.contract import RequestInfo
from commonplace.dialects.registry import token_formats
from commonplace.engine.history import audit
from commonplace.engine.library import Library
from commonplace.errors import NotFound
from commonplace.server.gate import CallState, Gate, not_permitted
from commonplace.storage.system import open_system
from server.harness import cli, lab

HERE = RequestInfo(request="r1", client="tests", session="s1", address="192.0.2.1")


@pytest.fixture
def gate(data: Path) -> Iterator[Gate]:
    library = Library(data, embedder=None)
    with closing(library), closing(open_system(data)) as system:
        yield Gate(library, system, [registry.load("commonplace"), lab()])


def calls(gate: Gate, space: str = "default") -> list[audit.Call]:
    with gate._memory.library.lease(space) as opened:
        return audit.listing(opened.store)


def test_what_is_not_in_the_table_does_not_run(gate: Gate) -> None:
    for dialect, name in (
        ("commonplace", "nap"),
        ("lab", "remember"),
        ("", "remember"),
        ("x", "y"),
    ):
        with pytest.raises(NotFound):
            gate.perform(Caller(), HERE, dialect, name, {})
        decision = gate.decide(Caller(), dialect, name)
        assert decision.operation is None and isinstance(decision.refusal, NotFound)
    assert len(calls(gate)) == 4


def test_a_call_writes_into_its_callers_space_and_no_other(gate: Gate) -> None:
    for space in ("ann", "bob"):
        gate.perform(Caller(space=space), HERE, "commonplace", "remember", {"text": space})
    for space in ("ann", "bob"):
        memory = gate._memory.at(space)
        assert [one.text for one in memory.browse()[0]] == [space]
        (call,) = calls(gate, space)
        assert (call.request, call.client, call.session) == ("r1", "tests", "s1")
        assert call.address == "192.0.2.1"


def test_a_stored_memory_says_who_stored_it(gate: Gate) -> None:
    gate.perform(Caller(user="ann"), HERE, "commonplace", "remember", {"text": "x"})
    (memory,) = gate._memory.browse()[0]
    origin = memory.origin
    assert (origin.user, origin.client, origin.tool, origin.session) == (
        "ann", "tests", "remember", "s1",
    )  # fmt: skip


def test_a_call_is_one_operation_whatever_it_does(gate: Gate) -> None:
    for text in ("one", "two"):
        gate.perform(Caller(), HERE, "commonplace", "remember", {"text": text})
    ids = [memory.id for memory in gate._memory.browse()[0]]
    before = len(gate._memory.history.operations())
    gate.perform(Caller(), HERE, "commonplace", "feedback", {"ids": ids, "useful": True})
    assert len(gate._memory.history.operations()) == before + 1


def test_a_tool_that_fails_half_way_leaves_nothing(gate: Gate) -> None:
    outcome = gate.perform(Caller(), HERE, "lab", "break", {"text": "half"})
    assert outcome.error is not None and outcome.error.code == "INTERNAL_ERROR"
    assert "half" not in str(outcome.wire)
    assert "r1" in str(outcome.wire)
    assert gate._memory.browse()[1] == 0
    (call,) = calls(gate)
    assert (call.success, call.operation) == (False, 0)


@pytest.mark.parametrize("scopes", [frozenset(), frozenset({"read"}), frozenset({"admin"})])
def test_a_refusal_names_what_is_needed(gate: Gate, scopes: Any) -> None:
    with pytest.raises(NotPermitted, match="needs the scope 'write'"):
        gate.perform(Caller(scopes=scopes), HERE, "commonplace", "remember", {"text": "x"})
    assert gate._memory.browse()[1] == 0


@pytest.mark.parametrize("scopes", [frozenset(), frozenset({"read", "write"})])
def test_a_refusal_names_the_dialect_that_a_credential_is_not_for(gate: Gate, scopes: Any) -> None:
    elsewhere = Caller(scopes=scopes, dialects=frozenset({"penfield", "mama"}))
    with pytest.raises(NotPermitted) as refused:
        gate.perform(elsewhere, HERE, "commonplace", "remember", {"text": "x"})
    assert str(refused.value) == (
        "The credential is only for mama and penfield, but remember belongs to commonplace."
        " Create a credential for commonplace: 'commonplace token create --dialect commonplace'."
    )
    (call,) = calls(gate)
    assert not call.success and "is only for mama" in call.error


@pytest.mark.parametrize("caller", [Caller(scopes=frozenset()), Caller(dialects=frozenset({"x"}))])
@pytest.mark.parametrize("dialect", ["commonplace", "orchestrator"])
def test_the_token_that_a_refusal_advises_is_let_through(
    data: Path, caller: Caller, dialect: str
) -> None:
    tools = [registry.load(dialect).tools[0], *registry.load(dialect).operations]
    for tool in {tool.scope: tool for tool in tools}.values():
        told = str(not_permitted(caller, dialect, tool))
        advised = re.search("'commonplace (token create [^']+)'", told)
        assert advised
        made = cli(*advised[1].split(), "--space", "default", "--expires", "1h", "--json",
                   "--data", str(data))  # fmt: skip
        with closing(open_system(data)) as system:
            tokens = Tokens(system, open_vault(system), token_formats())
            found = tokens.credentials.get(json.loads(made.stdout)["id"]).caller
            tokens.close()
        assert tool.scope in found.scopes and dialect in (found.dialects or ())


def test_who_may_see_a_tool_may_use_it(gate: Gate) -> None:
    dialect = registry.load("commonplace")
    for scope in ("read", "write", "delete", "admin"):
        caller = Caller(scopes=frozenset({scope}))  # type: ignore[arg-type]
        seen = {tool.name for tool in gate.visible_tools(caller, dialect)}
        shown = [tool for tool in dialect.tools if not tool.hidden]
        assert seen == {tool.name for tool in shown if tool.scope == scope}
    elsewhere = Caller(dialects=frozenset({"mama"}))
    assert gate.visible_tools(elsewhere, dialect) == []


def test_a_call_ends_or_is_given_up_but_never_both() -> None:
    def race(state: CallState) -> list[bool]:
        won: list[bool] = []
        racing = [
            threading.Thread(target=lambda move=move: won.append(move()))
            for move in (state.commit, state.cancel)
        ]
        for thread in racing:
            thread.start()
        for thread in racing:
            thread.join()
        return won

    for _ in range(300):
        assert sorted(race(CallState())) == [False, True]


def test_a_call_that_was_given_up_has_no_effect(gate: Gate) -> None:
    state = CallState()
    assert state.cancel()
    outcome = gate.perform(Caller(), HERE, "commonplace", "remember", {"text": "late"}, state)
    assert outcome.error is not None and outcome.error.code == "TIMEOUT"
    assert gate._memory.browse()[1] == 0
    (call,) = calls(gate)
    assert not call.success


def test_a_key_is_nothing_without_its_caller_and_arguments(gate: Gate) -> None:
    keyed = replace(HERE, idempotency_key="k")
    for caller in (Caller(credential="a"), Caller(credential="b"), Caller(credential="a")):
        for text in ("one", "two"):
            gate.perform(caller, keyed, "commonplace", "remember", {"text": text})
    assert gate._memory.browse()[1] == 4


def test_a_retry_is_the_same_call_in_whatever_order_its_arguments_come(gate: Gate) -> None:
    keyed = replace(HERE, idempotency_key="k")
    given = {"text": "one", "tags": ["a", "b"], "kind": "note"}
    first = gate.perform(Caller(), keyed, "commonplace", "remember", given)
    again = gate.perform(Caller(), keyed, "commonplace", "remember", dict(reversed(given.items())))
    assert again.wire == first.wire
    assert gate._memory.browse()[1] == 1
    other = {**given, "tags": ["b", "a"]}  # the order of a list says something
    assert gate.perform(Caller(), keyed, "commonplace", "remember", other).wire != first.wire
