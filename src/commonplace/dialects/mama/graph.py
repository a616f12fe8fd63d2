"""The graph of decisions and other memories: nodes and edges."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from commonplace.dialects.contract import Call, as_json
from commonplace.dialects.mama import checkpoints, decisions, fitting, presenting, searching
from commonplace.dialects.mama.presenting import MILLISECONDS, identity
from commonplace.engine.binding import engine_call
from commonplace.engine.checks import NAME_CHARS
from commonplace.engine.finding.filters import Filters
from commonplace.engine.finding.likeness import similar_pairs
from commonplace.engine.finding.substrings import FIELDS, Doubles, Matches, locate
from commonplace.engine.model import Link, Memory
from commonplace.platform import lookup

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

NODES, PAGE = 1_000, 100
BYTES, EDGE_BYTES = 700_000, 1_500_000
"""The maximum sizes of all nodes and of all edges in a response."""
RESPONSE_BYTES = 4_000_000
CLUSTERED = 50
SIMILAR_EACH = 3
SIMILAR = 0.7
ALIKE, ALIKE_LEAST = 5, 0.5


def decision_graph(call: Call, *, topic: str, cluster: bool) -> dict[str, Any]:
    """Return the newest decisions, other memories and their edges; `cluster` adds similarity."""
    memory = call.memory
    found, total = _of_topic(memory, topic) if topic else (_newest(memory), _count(memory))
    kept: dict[str, Memory] = {}
    nodes, size = [], 0
    for each in found:
        node = presenting.fields(each, MILLISECONDS)
        if not _is_decision(each):
            node["kind"] = each.kind
        (node,) = fitting.fitted([node], BYTES // 2)
        size += len(as_json(node).encode())
        if size > BYTES:
            break
        kept[each.id] = each
        nodes.append(node)
    every = list(_edges(memory, kept))
    edges = _fitting(every)
    similar = list(_similar(memory, kept)) if cluster else []
    meta: dict[str, Any] = {
        "total_nodes": total,
        "total_edges": len(every),
        "similarity_edges": len(similar),
        "topics": sorted({node["topic"] for node in nodes}),
    }
    if len(nodes) < total:
        meta["shown_nodes"] = len(nodes)
    if len(edges) < len(every):
        meta["shown_edges"] = len(edges)
    return {"nodes": nodes, "edges": edges, "similarityEdges": similar, "meta": meta}


def _newest(memory: Commonplace) -> Iterator[Memory]:
    """Return live memories and superseded decisions, newest first."""
    live = lookup.all_memories(memory, page=PAGE, without_kinds=[checkpoints.KIND])
    past = lookup.all_memories(memory, page=PAGE, kinds=[decisions.KIND], states=["superseded"])
    return islice(heapq.merge(live, past, key=searching.newest_first), NODES)


def _is_decision(memory: Memory) -> bool:
    return memory.kind == decisions.KIND


def _count(memory: Commonplace) -> int:
    _, live = memory.browse(without_kinds=[checkpoints.KIND], limit=1)
    _, past = memory.browse(kinds=[decisions.KIND], states=["superseded"], limit=1)
    return live + past


def _of_topic(memory: Commonplace, topic: str) -> tuple[Iterable[Memory], int]:
    chain, total = memory.browse(
        kinds=[decisions.KIND], tags_all=[decisions.topic_tag(topic)], states=decisions.STATES,
        limit=NODES,
    )  # fmt: skip
    others = {each.id: each for each in _by_topic_name(memory, topic)}
    named = [each for each in others.values() if decisions.read(each).topic == topic]
    named.sort(key=searching.newest_first)
    return [*chain, *named][:NODES], total + len(named)


def _by_topic_name(memory: Commonplace, topic: str) -> Iterator[Memory]:
    """Yield memories of other contracts whose title contains the topic, or whose kind equals it."""
    own = [checkpoints.KIND, decisions.KIND]
    if topic.strip() and len(topic) <= NAME_CHARS:
        others = Filters(without_kinds=own)
        titled, _ = engine_call(memory, locate, [topic], others, _by_title, limit=NODES)
        yield from (each for each, _ in titled)
        if topic not in own:
            yield from memory.browse(kinds=[topic], limit=NODES)[0]


def _by_title(located: Matches) -> Doubles:
    return np.where(located.places[:, 0] == FIELDS.index("title"), 1.0, 0.0)


def _edges(memory: Commonplace, kept: dict[str, Memory]) -> Iterator[dict[str, Any]]:
    leaving: dict[str, list[Link]] = defaultdict(list)
    for link in memory.links.around(*kept, direction="out"):
        leaving[link.source].append(link)
    for each in kept.values():
        for link in leaving[each.id]:
            if link.target in kept:
                yield {
                    "from": identity(each),
                    "to": identity(kept[link.target]),
                    "relationship": link.kind,
                    "reason": link.reason,
                }


def _fitting(edges: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first edges, those of the newest nodes, as many as fit into a response."""
    shown, size = [], 0
    for edge in edges:
        size += len(as_json(edge).encode())
        if size > EDGE_BYTES:
            break
        shown.append(edge)
    return shown


def _similar(memory: Commonplace, kept: dict[str, Memory]) -> Iterator[dict[str, Any]]:
    newest = [each.id for each in kept.values() if _is_decision(each)][:CLUSTERED]
    seen = Filters(kinds=[decisions.KIND], states=decisions.STATES)
    pairs = engine_call(memory, similar_pairs, newest, seen, limit=SIMILAR_EACH, least=SIMILAR)
    for one, other, likeness in pairs:
        if one in kept and other in kept:
            yield {
                "from": identity(kept[one]),
                "to": identity(kept[other]),
                "relationship": "similar",
                "similarity": round(likeness, 4),
            }


def similar_to(memory: Commonplace, one: Memory) -> list[dict[str, Any]]:
    """Return the memories most similar to a memory, without that memory."""
    decision = decisions.read(one)
    query = f"{decision.topic} {decision.decision}"[:2_000]
    found = searching.suggest(
        memory, query, limit=ALIKE + 1, threshold=ALIKE_LEAST, without_kinds=[checkpoints.KIND]
    )
    names = ("id", "topic", "decision", "similarity", "outcome")
    others = [each for each in found if each.memory.id != one.id]
    return [presenting.similar(each, MILLISECONDS, *names) for each in others[:ALIKE]]
