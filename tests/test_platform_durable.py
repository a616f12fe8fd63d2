"""Work in steps of several servers in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from commonplace.engine.library import Library
from commonplace.platform import durable


class Ticks:
    """A kind of work that counts how often it is asked for what is due."""

    def __init__(self) -> None:
        self.count = 0

    def count_steps(self, space: str, identity: str) -> int | None:
        return None

    def step(self, space: str, identity: str, index: int) -> bool:
        return False

    def end(self, space: str, identity: str) -> None:
        pass

    def mark_failed(self, space: str, identity: str) -> None:
        pass

    def unfinished(self, given_up: Callable[[], bool]) -> Iterator[tuple[str, str, int]]:
        return iter(())

    def tick(self) -> None:
        self.count += 1


def ticks(work: Ticks) -> bool:
    before, until = work.count, time.monotonic() + 5
    while work.count == before and time.monotonic() < until:
        time.sleep(0.01)
    return work.count > before


def test_servers_on_one_directory_stop_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "workflows").mkdir()
    one, two, other = Ticks(), Ticks(), Ticks()
    library = Library(tmp_path, embedder=None)
    first = durable.running_workflows(library, "jobs", one)
    second = durable.running_workflows(library, "jobs", two)
    third = durable.running_workflows(library, "workflow", other)
    first.__enter__()
    second.__enter__()
    third.__enter__()
    assert ticks(one) and ticks(other)
    assert two.count == 0, "a job that is due is requested once"
    first.__exit__(None, None, None)
    assert ticks(two) and ticks(other)
    stopped = one.count
    second.__exit__(None, None, None)
    assert ticks(other)
    third.__exit__(None, None, None)
    assert one.count == stopped
    assert not durable._running
    library.close()
