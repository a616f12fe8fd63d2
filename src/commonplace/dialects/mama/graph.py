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
from commonplace.dialects.mama.presenting import MILLISECONDS, public_id
from commonplace.engine.binding import engine_call
from commonplace.engine.checks import MAX_LIMIT, NAME_CHARS
from commonplace.engine.finding.filters import Filters
from commonplace.engine.finding.likeness import similar_pairs
from commonplace.engine.finding.substrings import FIELDS, Doubles, Matches, locate
from commonplace.engine.model import Link, Memory
from commonplace.platform import lookup

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

MAX_NODES, PAGE = 1_000, 100
MAX_NODE_BYTES, MAX_EDGE_BYTES = 700_000, 1_500_000
"""The maximum sizes of all nodes and of all edges in a response."""
RESPONSE_BYTES = 4_000_000
HEAD_CHARS = 1_000  # how much of the first words of decisions on a topic is searched for
CLUSTERED_DECISIONS = 50
SIMILAR_PER_DECISION = 3
MIN_SIMILARITY = 0.7
SIMILAR_RESULTS, SIMILAR_THRESHOLD = 5, 0.5


def decision_graph(call: Call, *, topic: str, cluster: bool) -> dict[str, Any]:
    """Return the newest decisions, other memories and their edges; `cluster` adds similarity."""
    memory = call.memory
    found, total = (
        _memories_of_topic(memory, topic)
        if topic
        else (_newest_memories(memory), _count_memories(memory))
    )
    kept: dict[str, Memory] = {}
    nodes, size = [], 0
    for each in found:
        node = presenting.memory_to_dict(each, MILLISECONDS)
        (node,) = fitting.fit_items([node], MAX_NODE_BYTES // 2)
        size += len(as_json(node).encode())
        if size > MAX_NODE_BYTES:
            break
        kept[each.id] = each
        nodes.append(node)
    every = list(_edges(memory, kept))
    edges = _edges_that_fit(every)
    similar = list(_similarity_edges(memory, kept)) if cluster else []
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


def _newest_memories(memory: Commonplace) -> Iterator[Memory]:
    """Return live memories and superseded decisions, newest first."""
    live = lookup.all_memories(memory, page=PAGE, without_kinds=[checkpoints.KIND])
    past = lookup.all_memories(memory, page=PAGE, kinds=[decisions.KIND], states=["superseded"])
    return islice(heapq.merge(live, past, key=searching.newest_first_key), MAX_NODES)


def _is_decision(memory: Memory) -> bool:
    return memory.kind == decisions.KIND


def _count_memories(memory: Commonplace) -> int:
    _, live = memory.browse(without_kinds=[checkpoints.KIND], limit=1)
    _, past = memory.browse(kinds=[decisions.KIND], states=["superseded"], limit=1)
    return live + past


def _memories_of_topic(memory: Commonplace, topic: str) -> tuple[Iterable[Memory], int]:
    chain, total = memory.browse(
        kinds=[decisions.KIND], tags_all=[decisions.topic_tag(topic)],
        states=decisions.VISIBLE_STATES, limit=MAX_NODES,
    )  # fmt: skip
    untagged = _untagged_decisions(memory, topic)
    chain = sorted([*chain, *untagged], key=searching.newest_first_key)
    others = {each.id: each for each in _foreign_memories_of_topic(memory, topic)}
    named = [each for each in others.values() if decisions.read(each).topic == topic]
    named.sort(key=searching.newest_first_key)
    return [*chain, *named][:MAX_NODES], total + len(untagged) + len(named)


def _untagged_decisions(memory: Commonplace, topic: str) -> list[Memory]:
    """Return the decisions on a topic whose topic tag another contract has removed."""
    untagged = Filters(
        kinds=[decisions.KIND], tags_none=[decisions.topic_tag(topic)],
        states=decisions.VISIBLE_STATES,
    )  # fmt: skip
    head = decisions.text_head(topic)[:HEAD_CHARS]
    found, _ = engine_call(memory, locate, [head], untagged, _equal_scores, limit=MAX_LIMIT)
    return [each for each, _ in found if decisions.topic_of(each) == topic]


def _equal_scores(located: Matches) -> Doubles:
    return np.zeros(len(located.num))


def _foreign_memories_of_topic(memory: Commonplace, topic: str) -> Iterator[Memory]:
    """Yield memories of other contracts whose title contains the topic, or whose kind equals it."""
    own = [checkpoints.KIND, decisions.KIND]
    if topic.strip() and len(topic) <= NAME_CHARS:
        others = Filters(without_kinds=own)
        titled, _ = engine_call(memory, locate, [topic], others, _title_scores, limit=MAX_NODES)
        yield from (each for each, _ in titled)
        if topic not in own:
            yield from memory.browse(kinds=[topic], limit=MAX_NODES)[0]


def _title_scores(located: Matches) -> Doubles:
    return np.where(located.places[:, 0] == FIELDS.index("title"), 1.0, 0.0)


def _edges(memory: Commonplace, kept: dict[str, Memory]) -> Iterator[dict[str, Any]]:
    leaving: dict[str, list[Link]] = defaultdict(list)
    for link in memory.links.around(*kept, direction="out"):
        leaving[link.source].append(link)
    for each in kept.values():
        for link in leaving[each.id]:
            if link.target in kept:
                yield {
                    "from": public_id(each),
                    "to": public_id(kept[link.target]),
                    "relationship": link.kind,
                    "reason": link.reason,
                }


def _edges_that_fit(edges: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first edges, those of the newest nodes, as many as fit into a response."""
    shown, size = [], 0
    for edge in edges:
        size += len(as_json(edge).encode())
        if size > MAX_EDGE_BYTES:
            break
        shown.append(edge)
    return shown


def _similarity_edges(memory: Commonplace, kept: dict[str, Memory]) -> Iterator[dict[str, Any]]:
    newest = [each.id for each in kept.values() if _is_decision(each)][:CLUSTERED_DECISIONS]
    seen = Filters(kinds=[decisions.KIND], states=decisions.VISIBLE_STATES)
    pairs = engine_call(
        memory, similar_pairs, newest, seen, limit=SIMILAR_PER_DECISION, least=MIN_SIMILARITY
    )
    for one, other, likeness in pairs:
        if one in kept and other in kept:
            yield {
                "from": public_id(kept[one]),
                "to": public_id(kept[other]),
                "relationship": "similar",
                "similarity": round(likeness, 4),
            }


def most_similar_to(memory: Commonplace, one: Memory) -> list[dict[str, Any]]:
    """Return the memories most similar to a memory, without that memory."""
    decision = decisions.read(one)
    query = f"{decision.topic} {decision.decision}"[:2_000]
    found = searching.suggest(
        memory,
        query,
        limit=SIMILAR_RESULTS + 1,
        threshold=SIMILAR_THRESHOLD,
        without_kinds=[checkpoints.KIND],
    )
    names = ("id", "topic", "decision", "similarity", "outcome")
    others = [each for each in found if each.memory.id != one.id]
    return [
        presenting.similar_to_dict(each, MILLISECONDS, *names) for each in others[:SIMILAR_RESULTS]
    ]
