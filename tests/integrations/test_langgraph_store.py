"""LangGraph's store: its own in-memory store and ours give the same results."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from commonplace import Commonplace
from commonplace.integrations.langgraph_store import CommonplaceStore

USERS = ("users", "alice")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Commonplace]:
    with Commonplace(tmp_path, embedding="none") as opened:
        yield opened


def filled(store: BaseStore) -> BaseStore:
    """A store with items in several namespaces, one updated and one deleted."""
    store.put(USERS, "food", {"text": "Alice likes Thai food", "score": 4, "tags": ["a", "b"]})
    store.put(USERS, "work", {"text": "Alice builds bridges", "score": 5, "on": {"city": "Bern"}})
    store.put(("users", "bob"), "food", {"text": "Bob likes soup", "score": 1.5})
    store.put(("docs", "public", "v1"), "readme", {"text": "How to begin", "score": 4})
    store.put(("docs", "draft", "v2"), "readme", {"text": "How to go on", "score": "7"})
    store.put(USERS, "food", {"text": "Alice likes Thai and Indian food", "score": 4})
    store.put(USERS, "gone", {"text": "never"})
    store.delete(USERS, "gone")
    return store


def shown(result: Any) -> Any:
    """A result without its times."""
    if isinstance(result, list):
        return [shown(each) for each in result]
    if hasattr(result, "value"):
        return (result.namespace, result.key, result.value)
    return result


OPERATIONS: list[Any] = [
    GetOp(USERS, "food"),
    GetOp(USERS, "gone"),
    GetOp(("users",), "food"),
    SearchOp(()),
    SearchOp(("users",)),
    SearchOp(USERS, limit=1),
    SearchOp(USERS, limit=1, offset=1),
    SearchOp(("user",)),
    SearchOp((), filter={"score": 4}),
    SearchOp((), filter={"score": {"$gte": 4}}),
    SearchOp((), filter={"score": {"$gt": 1, "$lt": 5}}),
    SearchOp((), filter={"score": {"$ne": 4}}),
    SearchOp((), filter={"on": {"city": "Bern"}}),
    SearchOp((), filter={"score": {"$eq": 5}}),
    SearchOp((), filter={"missing": "x"}),
    ListNamespacesOp(),
    ListNamespacesOp(limit=2, offset=1),
    ListNamespacesOp(max_depth=1),
    ListNamespacesOp((MatchCondition("prefix", ("docs",)),)),
    ListNamespacesOp((MatchCondition("prefix", ("docs", "*", "v1")),)),
    ListNamespacesOp((MatchCondition("suffix", ("v2",)),), max_depth=2),
    ListNamespacesOp((MatchCondition("prefix", ("docs",)), MatchCondition("suffix", ("v1",)))),
]


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
def test_every_operation_gives_what_the_in_memory_store_gives(
    memory: Commonplace, number: int
) -> None:
    theirs, ours = filled(InMemoryStore()), filled(CommonplaceStore(memory))
    (expected,) = theirs.batch([OPERATIONS[number]])
    (found,) = ours.batch([OPERATIONS[number]])
    ordered = not isinstance(OPERATIONS[number], SearchOp) or OPERATIONS[number].limit == 1
    if ordered:
        assert shown(found) == shown(expected)
    else:
        assert sorted(map(repr, shown(found))) == sorted(map(repr, shown(expected)))


def test_a_query_ranks_by_words_and_meaning(memory: Commonplace) -> None:
    store = filled(CommonplaceStore(memory))
    found = store.search(("users",), query="Thai food")
    assert found[0].key == "food"
    assert found[0].namespace == USERS
    assert found[0].score is not None


def test_what_is_not_indexed_is_found_without_a_score(memory: Commonplace) -> None:
    store = CommonplaceStore(memory)
    store.put(USERS, "hidden", {"text": "secret soup"}, index=False)
    store.put(USERS, "part", {"text": "other", "note": "soup of the day"}, index=["note"])
    found = store.search(USERS, query="soup")
    assert [(each.key, each.score is None) for each in found] == [("part", False), ("hidden", True)]


def test_a_batch_reads_what_was_there_before_it_and_is_one_operation(memory: Commonplace) -> None:
    store = CommonplaceStore(memory)
    results = store.batch(
        [PutOp(USERS, "a", {"n": 1}), GetOp(USERS, "a"), PutOp(USERS, "b", {"n": 2})]
    )
    assert results == [None, None, None]
    memory.undo()
    assert store.search(USERS) == []


def test_an_item_keeps_its_creation_time_when_it_is_changed(memory: Commonplace) -> None:
    store = CommonplaceStore(memory)
    store.put(USERS, "a", {"n": 1})
    first = store.get(USERS, "a")
    store.put(USERS, "a", {"n": 2})
    second = store.get(USERS, "a")
    assert first is not None and second is not None
    assert second.created_at == first.created_at < second.updated_at
    assert second.value == {"n": 2}
    store.delete(USERS, "a")
    store.put(USERS, "a", {"n": 3})
    again = store.get(USERS, "a")
    assert again is not None and again.value == {"n": 3}


def test_writers_at_the_same_time_put_one_item(memory: Commonplace) -> None:
    store = CommonplaceStore(memory)
    with ThreadPoolExecutor(6) as threads:
        for i in range(20):
            together = Barrier(6)

            def put(number: int, key: str = f"k{i}", together: Barrier = together) -> None:
                together.wait()
                store.put(USERS, key, {"n": number})

            list(threads.map(put, range(6)))
    assert sorted(item.key for item in store.search(USERS, limit=100)) == sorted(
        f"k{i}" for i in range(20)
    )


def test_long_names_and_bad_namespaces(memory: Commonplace) -> None:
    store = CommonplaceStore(memory)
    long = ("x" * 600, "y" * 600)
    store.put(long, "k" * 2_000, {"n": 1})
    assert [item.key for item in store.search(long)] == ["k" * 2_000]
    assert store.list_namespaces() == [long]
    with pytest.raises(InvalidNamespaceError):
        store.put((), "a", {"n": 1})


def test_the_asynchronous_methods(memory: Commonplace) -> None:
    store = CommonplaceStore(memory)

    async def session() -> Any:
        await store.aput(USERS, "a", {"text": "soup"})
        found = await store.asearch(USERS, query="soup")
        await store.adelete(USERS, "a")
        return [item.key for item in found], await store.aget(USERS, "a")

    assert asyncio.run(session()) == (["a"], None)
