"""T19: calls of one credential that are slow, or wait for something outside, stall nobody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commonplace.dialects.contract import Dialect, Tool
from commonplace.server.calls import OUTSIDE_THREADS, THREADS
from server.harness import Running, lab, registered, running, wait_until

MANY = 70
SHARES = {"local": THREADS * 3 // 8, "outside": OUTSIDE_THREADS * 3 // 8}


class Gatekeeper:
    """Lets calls wait until the test lets them go, and counts them."""

    def __init__(self) -> None:
        self._free = threading.Event()
        self._lock = threading.Lock()
        self.waiting = self.ended = 0

    def wait(self, call: Any) -> dict[str, Any]:
        with self._lock:
            self.waiting += 1
        self._free.wait(60)
        with self._lock:
            self.ended += 1
        return {"subject": call.caller.space}

    def let_go(self) -> None:
        self._free.set()


def slow(keeper: Gatekeeper) -> Dialect:
    """A dialect with a tool that waits here, and one that waits for something outside."""
    told = {"title": "Test", "description": "Only in tests.", "input": {"type": "object"}}
    tools = (
        Tool(name="local", scope="read", handler=keeper.wait, **told),
        Tool(name="outside", scope="read", handler=keeper.wait, stepwise=True, **told),
    )
    return replace(lab(), tools=tools)


@pytest.fixture
def keeper() -> Iterator[Gatekeeper]:
    made = Gatekeeper()
    yield made
    made.let_go()


def flood(server: Running, token: str, tool: str) -> list[threading.Thread]:
    """Many calls of a tool at the same time, each on a connection of its own."""
    threads = [
        threading.Thread(
            target=server.client(token).call, args=(tool,), kwargs={"path": "/mcp/lab"}
        )
        for _ in range(MANY)
    ]
    for thread in threads:
        thread.start()
    return threads


@pytest.mark.parametrize("tool", SHARES)
def test_calls_over_a_share_wait_and_hold_up_nobody_else(
    data: Path, keeper: Gatekeeper, tool: str
) -> None:
    with registered(slow(keeper)), running(data, call_seconds=60) as server:
        threads = flood(server, server.token("flooded"), tool)
        wait_until(lambda: keeper.waiting == SHARES[tool])
        other = server.client(server.token("other"))
        stored = other.call("remember", {"text": "A kettle"}).result
        assert other.call("recall", {"query": "kettle"}).result["memories"][0]["id"] == stored["id"]
        same_space = server.client(server.token("flooded"))
        assert same_space.call("recall", {"query": "kettle"}).result["memories"] == []
        assert (keeper.waiting, keeper.ended) == (SHARES[tool], 0)  # the others have no thread
        keeper.let_go()
        for thread in threads:
            thread.join(60)
        assert (keeper.waiting, keeper.ended) == (MANY, MANY)
        assert len(server.calls("flooded", tool=tool)) == MANY


def test_what_waits_outside_leaves_the_same_credential_its_other_calls(
    data: Path, keeper: Gatekeeper
) -> None:
    with registered(slow(keeper)), running(data) as server:
        token = server.token()
        threads = flood(server, token, "outside")
        wait_until(lambda: keeper.waiting == SHARES["outside"])
        assert server.client(token).call("remember", {"text": "A kettle"}).result["id"]
        assert keeper.ended == 0
        keeper.let_go()
        for thread in threads:
            thread.join(60)


def test_a_call_that_is_given_up_before_it_begins_has_no_effect_and_is_audited(
    data: Path, keeper: Gatekeeper
) -> None:
    with registered(slow(keeper)), running(data, call_seconds=0.5) as server:
        threads = flood(server, server.token("flooded"), "local")
        for thread in threads:
            thread.join(60)
        calls = server.calls("flooded", tool="local")
        assert len(calls) == MANY - keeper.waiting == MANY - SHARES["local"]
        assert {call.error.partition(":")[0] for call in calls} == {"TIMEOUT"}
        keeper.let_go()
        wait_until(lambda: len(server.calls("flooded", tool="local")) == MANY)
        assert keeper.waiting == SHARES["local"]
