"""A server that does nothing but work in steps, for tests that stop or kill it.

`python worker.py ADDRESS DATA NAME` says on standard output what it does. The work of a space has
three steps; each stores the memory "step N by NAME" unless there is one of that step.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

from commonplace import Commonplace
from commonplace.engine.library import Library
from commonplace.platform import durable
from commonplace.platform.exclusive import exclusive
from commonplace.storage.locking import LockLost

STEPS = 3


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201


class Work:
    """Three steps, of which the second takes as long as the memory `slow` says."""

    def __init__(self, library: Library, name: str) -> None:
        self._library = library
        self._name = name

    def count_steps(self, space: str, identity: str) -> int | None:
        return STEPS if self._library.exists(space) else None

    def step(self, space: str, identity: str, index: int) -> bool:
        memory = Commonplace(space=space, library=self._library)
        say("step", index)
        if index == 1:
            for each in memory.browse()[0]:
                if each.text.startswith("slow "):
                    time.sleep(float(each.text.split()[1]))
        try:
            with exclusive(memory, "step"):
                done = [
                    each for each in memory.browse()[0] if each.text.startswith(f"step {index} ")
                ]
                if not done:
                    memory.remember(f"step {index} by {self._name}")
        except LockLost:
            say("refused", index)
            raise
        say("stored", index)
        return True

    def end(self, space: str, identity: str) -> None:
        say("end")

    def mark_failed(self, space: str, identity: str) -> None:
        say("failed")

    def unfinished(self, given_up: Callable[[], bool]) -> Iterator[tuple[str, str, int]]:
        memory = Commonplace(space="team", library=self._library)
        found = [each.text for each in memory.browse()[0]]
        if "asked" in found and not any(text.startswith(f"step {STEPS - 1}") for text in found):
            yield "team", "job~one", 0

    def tick(self) -> None:
        pass


if __name__ == "__main__":
    address, data, name = sys.argv[1:]
    library = Library(data, embedder=None, database=address)
    with durable.running_workflows(library, "job", Work(library, name)):
        say("ready")
        sys.stdin.read()
    library.close()
