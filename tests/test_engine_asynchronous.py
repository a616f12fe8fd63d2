"""The asynchronous library: complete, concurrent, and units that belong to a task."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

from commonplace import AsyncCommonplace, Commonplace, NotFound, Project
from commonplace.engine import asynchronous, parts

NOT_AWAITED = {"operation"}  # of a thread; `blocking` has it


def public(of: type) -> set[str]:
    """The public names that a class and its parents define."""
    return {name for one in of.__mro__[:-1] for name in vars(one) if not name.startswith("_")}


def test_every_method_of_the_library_is_there() -> None:
    missing = public(Commonplace) - public(AsyncCommonplace) - NOT_AWAITED
    assert not missing
    for name in ("Artifacts", "Clusters", "Conversations", "Events", "Facts", "History", "Links"):
        own = {each for each in vars(getattr(parts, name)) if not each.startswith("_")}
        assert own == public(getattr(asynchronous, f"Async{name}")), name


def test_it_is_opened_with_the_same_parameters(tmp_path: Path) -> None:
    assert inspect.signature(AsyncCommonplace).parameters == (
        inspect.signature(Commonplace).parameters
    )
    key = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"

    async def run() -> None:
        project = Project("garden")
        async with AsyncCommonplace(
            tmp_path, embedding="none", project=project, allow_secrets=True, embed="later"
        ) as memory:
            stored = await memory.remember(f"the key is {key}")
            assert key in stored.text and "project:garden" in stored.tags
            assert (await memory.within(Project("other")).browse())[1] == 0

    asyncio.run(run())


def test_methods_are_awaited_and_run_side_by_side(tmp_path: Path) -> None:
    async def run() -> list[str]:
        async with AsyncCommonplace(tmp_path, embedding="none") as memory:
            stored = await asyncio.gather(*(memory.remember(f"note {n}") for n in range(20)))
            await memory.links.add(stored[0].id, stored[1].id, "follows")
            linked = await memory.links.of(stored[0].id)
            assert [link.target for link in linked] == [stored[1].id]
            assert (await memory.at("other").browse())[1] == 0
            hits = await memory.recall("note 7", limit=1)
            return [hit.memory.text for hit in hits]

    assert asyncio.run(run()) == ["note 7"]


def test_a_unit_is_one_operation_of_its_task_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncCommonplace(tmp_path, embedding="none") as memory:
            entered = asyncio.Event()

            async def outside() -> str:
                await entered.wait()
                return (await memory.get("one")).text

            other = asyncio.create_task(outside())
            async with memory.unit("both"):
                await memory.remember("first", ref="one")
                async with memory.unit("inner"):
                    await memory.remember("second", ref="two")
                entered.set()
                with pytest.raises(NotFound):
                    await other  # another task does not see what is not stored yet
            names = [each.name for each in await memory.history.operations()]
            assert names == ["both"]
            await memory.undo()
            assert (await memory.browse())[1] == 0

    asyncio.run(run())


def test_a_unit_that_fails_or_is_cancelled_stores_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncCommonplace(tmp_path, embedding="none") as memory:
            with pytest.raises(ValueError, match="no"):
                async with memory.unit("failing"):
                    await memory.remember("first")
                    raise ValueError("no")

            async def slow() -> None:
                async with memory.unit("cancelled"):
                    await memory.remember("second")
                    await asyncio.sleep(60)

            task = asyncio.create_task(slow())
            while not task.done():
                await asyncio.sleep(0.05)
                task.cancel()
            assert task.cancelled()
            assert (await memory.browse())[1] == 0
            await memory.remember("third")  # the write lock is free again

    asyncio.run(run())
