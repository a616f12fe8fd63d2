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


def cpu_of(work: Callable[[], object]) -> float:
    """Seconds of CPU of this process, all threads."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def prepare(data: Path, given: dict[str, Any]) -> list[str]:
    """Store the texts with their vectors; their ids.

    What is embedded in the background would be counted as CPU of the recalls otherwise.
    """
    from commonplace import Commonplace, Draft

    with Commonplace(data) as memory:
        stored = memory.remember_many([Draft(text=text) for text in given["texts"]])
        while waiting_for_vectors(memory):
            time.sleep(0.1)
        return [one.id for one in stored]


def waiting_for_vectors(memory: Any) -> bool:
    """Whether memories are still to be embedded; old trees embed all before they return."""
    return hasattr(memory, "backlog") and memory.backlog()[0] > 0


def measure(data: Path, scratch: Path, given: dict[str, Any]) -> dict[str, float]:
    """CPU seconds of each thing, for one call where there are many."""
    texts, queries, ids = given["texts"], given["queries"], given["ids"]
    took = {"import": cpu_of(lambda: __import__("commonplace").Commonplace)}
    from commonplace import Commonplace, Draft

    def opened() -> Commonplace:
        memory = Commonplace(data)
        memory.get(ids[0])
        return memory

    took["open"] = cpu_of(lambda: opened().close())
    with Commonplace(data) as memory:
        took["first recall"] = cpu_of(lambda: memory.recall(queries[0]))
        for query in queries:  # their vectors are cached from here on
            memory.recall(query)
        took["recall"] = cpu_of(lambda: [memory.recall(q) for q in queries * 3]) / len(queries) / 3
        took["get"] = cpu_of(lambda: [memory.get(one) for one in ids]) / len(ids)
    with Commonplace(scratch / "one", embedding="none") as memory:
        some = texts[: max(len(texts) // 5, 1)]
        took["remember"] = cpu_of(lambda: [memory.remember(text) for text in some]) / len(some)
    with Commonplace(scratch / "many", embedding="none") as memory:
        drafts = [Draft(text=text) for text in texts]
        took["remember_many"] = cpu_of(lambda: memory.remember_many(drafts)) / len(texts)
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
