"""Calls of our own dialect at the same moment: each is decided by what is there when it writes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commonplace import Commonplace
from commonplace.access.caller import Caller
from commonplace.dialects import registry
from commonplace.dialects.contract import RequestInfo
from commonplace.engine.library import Library
from commonplace.server.gate import Gate
from commonplace.storage.system import open_system
from racing import overtaken

Perform = Callable[..., Any]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Commonplace]:
    with contextlib.closing(Library(tmp_path / "data", embedder=None)) as library:
        yield Commonplace(library=library)


@pytest.fixture
def perform(memory: Commonplace) -> Iterator[Perform]:
    with contextlib.closing(open_system(memory.library.path)) as system:
        gate = Gate(memory.library, system, [registry.load("commonplace")])

        def call(tool: str, **arguments: Any) -> Any:
            wire = gate.perform(Caller(), RequestInfo(), "commonplace", tool, arguments).wire
            return wire.get("structuredContent", wire["content"][0]["text"])

        yield call


def test_a_credit_that_two_judge_at_once_moves_twice(memory: Commonplace, perform: Perform) -> None:
    one = memory.remember("The quay is icy", credit=0.5).id
    helped = partial(perform, "feedback", ids=[one], useful=True)
    with overtaken(memory, helped) as waiting:
        perform("feedback", ids=[one], useful=True)
    assert waiting.result()["credits"] == {one: 0.595}


def test_a_checkpoint_is_finished_once(memory: Commonplace, perform: Perform) -> None:
    perform("checkpoint", summary="Half way")
    with overtaken(memory, partial(perform, "checkpoint", done=True)) as waiting:
        perform("checkpoint", done=True)
    assert "There is no open checkpoint." in waiting.result()
