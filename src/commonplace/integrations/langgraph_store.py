"""A LangGraph `BaseStore` whose items are memories.

>>> from commonplace import Commonplace
>>> from commonplace.integrations.langgraph_store import CommonplaceStore
>>> store = CommonplaceStore(Commonplace("~/.commonplace"))
>>> store.put(("users", "alice"), "food", {"text": "Alice likes Thai food"})
>>> store.search(("users",), query="what does Alice eat?")

The searchable text of an item consists of the fields of its value, or of the fields in `index`.
All writes of a batch are one transaction and one operation for undo.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    get_text_at_path,
    tokenize_path,
)

from commonplace import Commonplace, Memory, NotFound

KIND = "langgraph_item"
NAMESPACE_TAG = "langgraph:"
NOT_INDEXED_TAG = "langgraph-not-indexed"
PAGE_SIZE = 1_000
LIVE_STATES = ("active", "dying")

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda held, wanted: bool(held == wanted),
    "$ne": lambda held, wanted: bool(held != wanted),
    "$gt": lambda held, wanted: float(held) > float(wanted),
    "$gte": lambda held, wanted: float(held) >= float(wanted),
    "$lt": lambda held, wanted: float(held) < float(wanted),
    "$lte": lambda held, wanted: float(held) <= float(wanted),
}


class CommonplaceStore(BaseStore):
    """LangGraph's long-term memory, stored in Commonplace."""

    __slots__ = ("memory",)

    def __init__(self, memory: Commonplace) -> None:
        super().__init__()
        self.memory = memory

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations; reads see the state before the batch's writes."""
        listed = list(ops)
        results: list[Result] = []
        writes: dict[tuple[tuple[str, ...], str], PutOp] = {}
        for op in listed:
            if isinstance(op, GetOp):
                results.append(self._get(op))
            elif isinstance(op, SearchOp):
                results.append(list(self._search(op)))
            elif isinstance(op, ListNamespacesOp):
                results.append(self._list_namespaces(op))
            elif isinstance(op, PutOp):
                writes[op.namespace, op.key] = op
                results.append(None)
            else:
                raise TypeError(f"Unknown operation: {type(op).__name__}")
        if writes:
            # A nested unit takes the write lock at once, so that no other write comes between.
            with self.memory.unit("langgraph batch"), self.memory.unit("langgraph batch"):
                for op in writes.values():
                    self._put(op)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _get(self, op: GetOp) -> Item | None:
        found = self._memory_at(op.namespace, op.key)
        if found is None or found.state not in LIVE_STATES:
            return None
        return Item(**_item_fields(self.memory.get(found.id)))

    def _memory_at(self, namespace: tuple[str, ...], key: str) -> Memory | None:
        try:
            return self.memory.get(_item_ref(namespace, key), count=False)
        except NotFound:
            return None

    def _put(self, op: PutOp) -> None:
        former = self._memory_at(op.namespace, op.key)
        if op.value is None:
            if former is not None and former.state in LIVE_STATES:
                self.memory.forget(former.id)
            return
        text = _searchable_text(op.value, op.index)
        details: dict[str, Any] = {
            "tags": [*_namespace_tags(op.namespace), *([] if text else [NOT_INDEXED_TAG])],
            "attrs": {"namespace": list(op.namespace), "key": op.key, "value": op.value},
            "title": op.key[:1_000],
        }
        text = text or json.dumps(op.value, ensure_ascii=False)
        if former is None:
            self.memory.remember(
                text, kind=KIND, ref=_item_ref(op.namespace, op.key), trust="inferred", **details
            )
        else:
            self.memory.revise(former.id, text, state="active", **details)

    def _search(self, op: SearchOp) -> Iterator[SearchItem]:
        wanted: dict[str, Any] = {"kinds": [KIND]}
        if op.namespace_prefix:
            wanted["tags_all"] = [_namespace_tag(op.namespace_prefix)]
        pairs = self._ranked_memories(op.query, wanted) if op.query else self._all_memories(wanted)
        matching = ((memory, score) for memory, score in pairs if _passes_filter(memory, op.filter))
        for number, (memory, score) in enumerate(matching):
            if number >= op.offset + op.limit:
                return
            if number >= op.offset:
                yield SearchItem(**_item_fields(memory), score=score)

    def _ranked_memories(
        self, query: str, wanted: dict[str, Any]
    ) -> Iterator[tuple[Memory, float | None]]:
        hits = self.memory.recall(query, limit=PAGE_SIZE, tags_none=[NOT_INDEXED_TAG], **wanted)
        yield from ((hit.memory, hit.score) for hit in hits)
        found = {hit.memory.id for hit in hits}
        yield from ((each, None) for each, _ in self._all_memories(wanted) if each.id not in found)

    def _all_memories(self, wanted: dict[str, Any]) -> Iterator[tuple[Memory, float | None]]:
        offset = 0
        while True:
            found, count = self.memory.browse(
                order="oldest", limit=PAGE_SIZE, offset=offset, **wanted
            )
            yield from ((each, None) for each in found)
            offset += len(found)
            if not found or offset >= count:
                return

    def _list_namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        held = {
            tuple(memory.attrs["namespace"]) for memory, _ in self._all_memories({"kinds": [KIND]})
        }
        conditions = op.match_conditions or ()
        found = [each for each in held if all(_matches_condition(one, each) for one in conditions)]
        if op.max_depth is not None:
            found = list({each[: op.max_depth] for each in found})
        return sorted(found)[op.offset : op.offset + op.limit]


def _item_ref(namespace: Sequence[str], key: str) -> str:
    named = json.dumps([*namespace, key], ensure_ascii=False)
    return "langgraph:" + (named if len(named) <= 400 else _digest(named))


def _namespace_tag(namespace: Sequence[str]) -> str:
    named = json.dumps(list(namespace), ensure_ascii=False)
    return NAMESPACE_TAG + (named if len(named) <= 80 else _digest(named))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _namespace_tags(namespace: Sequence[str]) -> list[str]:
    """Return a tag for the namespace and for each of its prefixes."""
    return [_namespace_tag(namespace[:size]) for size in range(1, len(namespace) + 1)]


def _searchable_text(value: Mapping[str, Any], index: bool | Sequence[str] | None) -> str:
    """Return the searchable text of an item; empty if queries must not find the item."""
    if index is False:
        return ""
    if index is None or index is True:
        return "\n".join(_strings(value))
    found = (get_text_at_path(value, tokenize_path(path)) for path in index)
    return "\n".join(each for texts in found for each in texts)


def _strings(value: Any) -> Iterator[str]:
    """Yield the texts and numbers in a value, however deeply they are nested."""
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each)
    elif isinstance(value, str) and value.strip():
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _item_fields(memory: Memory) -> dict[str, Any]:
    return {
        "value": dict(memory.attrs["value"]),
        "key": memory.attrs["key"],
        "namespace": tuple(memory.attrs["namespace"]),
        "created_at": memory.created_at,
        "updated_at": memory.updated_at,
    }


def _passes_filter(memory: Memory, wanted: Mapping[str, Any] | None) -> bool:
    value = memory.attrs["value"]
    return all(_matches_filter(value.get(key), each) for key, each in (wanted or {}).items())


def _matches_filter(held: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(key.startswith("$") for key in wanted):
            return all(_apply_operator(held, operator, value) for operator, value in wanted.items())
        return isinstance(held, Mapping) and all(
            _matches_filter(held.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(held, list | tuple)
            and len(held) == len(wanted)
            and all(map(_matches_filter, held, wanted))
        )
    return bool(held == wanted)


def _apply_operator(held: Any, operator: str, wanted: Any) -> bool:
    if operator not in _COMPARISONS:
        raise ValueError(f"Unsupported operator: {operator}")
    return _COMPARISONS[operator](held, wanted)


def _matches_condition(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    prefix = condition.match_type == "prefix"
    part = namespace[: len(path)] if prefix else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", held) for held, wanted in zip(part, path, strict=True))
