"""What a type checker says of calls of the library.

`mypy` checks this file; it is never run. A line with `type: ignore` must be an error: mypy reports
an ignore that is not needed.
"""

from __future__ import annotations

from typing import assert_type

from commonplace import AsyncCommonplace, Commonplace, Fact, Hits, Link, Memory, NotFound


def right(memory: Commonplace) -> None:
    assert_type(
        memory.remember("text", kind="note", tags=["a"], source="https://x.example"), Memory
    )
    assert_type(memory.revise("id", "text", expected_version=1, pinned=True), Memory)
    assert_type(memory.supersede("id", "text", reason="newer", kind="decision"), Memory)
    assert_type(memory.recall("query", limit=3, kinds=["note"], as_of="2026-01-01"), Hits)
    assert_type(memory.browse(order="oldest", tags_any=["a"]), tuple[list[Memory], int])
    assert_type(memory.links.add("a", "b", "cites", weight=0.5), Link)
    assert_type(memory.links.revise("id", reason="why"), Link)
    assert_type(memory.facts.query("Alice", true_at="2026-01-01"), list[Fact])
    try:
        memory.get("id")
    except NotFound as error:
        assert_type(error.hint, str)


def wrong(memory: Commonplace) -> None:
    memory.remember("text", knd="note")  # type: ignore[call-arg]
    memory.remember("text", tags=3)  # type: ignore[arg-type]
    memory.revise("id", "text", created_at="2026-01-01")  # type: ignore[call-arg]
    memory.supersede("id", "text", because="newer")  # type: ignore[call-arg]
    memory.recall("query", kind="note")  # type: ignore[call-arg]
    memory.recall("query", limit="3")  # type: ignore[arg-type]
    memory.browse(sort="oldest")  # type: ignore[call-arg]
    memory.links.add("a", "b", "cites", wait=0.5)  # type: ignore[call-arg]
    memory.links.revise("id", kind="other")  # type: ignore[call-arg]
    memory.facts.query("Alice", as_of="2026-01-01")  # type: ignore[call-arg]


async def right_awaited(memory: AsyncCommonplace) -> None:
    assert_type(await memory.remember("text", kind="note", tags=["a"]), Memory)
    assert_type(await memory.recall("query", limit=3, kinds=["note"]), Hits)
    assert_type(await memory.links.add("a", "b", "cites", weight=0.5), Link)
    async with memory.unit("both"):
        await memory.facts.query("Alice")


async def wrong_awaited(memory: AsyncCommonplace) -> None:
    await memory.remember("text", knd="note")  # type: ignore[call-arg]
    await memory.links.add("a", "b", "cites", wait=0.5)  # type: ignore[call-arg]
