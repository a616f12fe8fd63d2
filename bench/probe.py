"""Measures the library of one source tree, through its public interface only.

`python -m bench --against` runs this in a process of its own, with the tree's `src` on PYTHONPATH.
It imports nothing else of the benchmarks, since the tree may be an old one.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the seconds of CPU that a function takes in this process, all threads."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def prepare(data: Path, given: dict[str, Any]) -> list[str]:
    """Store the texts with their vectors; return their ids.

    The vectors are awaited: otherwise embedding in the background would count as CPU of recalls.
    """
    from commonplace import Commonplace, Draft

    with Commonplace(data) as memory:
        stored = memory.remember_many([Draft(text=text) for text in given["texts"]])
        while waiting_for_vectors(memory):
            time.sleep(0.1)
        return [one.id for one in stored]


def waiting_for_vectors(memory: Any) -> bool:
    """Return whether memories wait for vectors; old trees embed before a call returns."""
    return hasattr(memory, "backlog") and memory.backlog()[0] > 0


def measure(data: Path, scratch: Path, given: dict[str, Any]) -> dict[str, float]:
    """Return the CPU seconds of each operation; for repeated ones, of one call."""
    texts, queries, ids = given["texts"], given["queries"], given["ids"]
    took = {"import": cpu_seconds(lambda: __import__("commonplace").Commonplace)}
    from commonplace import Commonplace, Draft

    def opened() -> Commonplace:
        memory = Commonplace(data)
        memory.get(ids[0])
        return memory

    took["open"] = cpu_seconds(lambda: opened().close())
    with Commonplace(data) as memory:
        took["first recall"] = cpu_seconds(lambda: memory.recall(queries[0]))
        for query in queries:  # their vectors are cached from here on
            memory.recall(query)
        took["recall"] = (
            cpu_seconds(lambda: [memory.recall(q) for q in queries * 3]) / len(queries) / 3
        )
        took["get"] = cpu_seconds(lambda: [memory.get(one) for one in ids]) / len(ids)
    with Commonplace(scratch / "one", embedding="none") as memory:
        some = texts[: max(len(texts) // 5, 1)]
        took["remember"] = cpu_seconds(lambda: [memory.remember(text) for text in some]) / len(some)
    with Commonplace(scratch / "many", embedding="none") as memory:
        drafts = [Draft(text=text) for text in texts]
        took["remember_many"] = cpu_seconds(lambda: memory.remember_many(drafts)) / len(texts)
    return took


def main() -> None:
    command, data, *rest = sys.argv[1:]
    given = json.load(sys.stdin)
    if command == "prepare":
        json.dump(prepare(Path(data), given), sys.stdout)
    else:
        json.dump(measure(Path(data), Path(rest[0]), given), sys.stdout)


if __name__ == "__main__":
    main()
