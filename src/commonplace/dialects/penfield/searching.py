"""Hybrid search with the contract's weights, search by meaning, and citations for ChatGPT."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from commonplace.dialects.contract import Call
from commonplace.dialects.penfield import fusion
from commonplace.dialects.penfield.failures import (
    UnknownValue,
    check_weights,
    require_text,
    stamp,
)
from commonplace.dialects.penfield.fitting import fit_texts
from commonplace.dialects.penfield.fusion import RECALL_WEIGHTS, SEMANTIC_WEIGHTS, Ranks, Weights
from commonplace.dialects.penfield.kinds import (
    CHUNK_KIND,
    SOURCE_TYPES,
    TYPES,
    UPLOAD_SOURCE,
    source_type_of,
    type_of,
)
from commonplace.dialects.penfield.memories import get_readable, metadata_of, search_filters
from commonplace.dialects.penfield.schemas import CONTENT_CHARS
from commonplace.engine.binding import engine_call
from commonplace.engine.content import memories
from commonplace.engine.finding.filters import Filters
from commonplace.engine.model import Link, Memory
from commonplace.platform import lookup
from commonplace.text.snippets import snippet

SNIPPET_CHARS = 200
CANDIDATES = 100
MOST_CANDIDATES = 1_000
GRAPH_PATHS = 200
NEIGHBOURS = 2
CHUNK_REF = "penfield:chunk:"
DOCUMENT_PATH = "penfield:document:"  # not a valid path of an artifact


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The options of a hybrid search."""

    query: str
    limit: int
    weights: Weights = RECALL_WEIGHTS
    filters: Filters = field(default_factory=Filters)
    source_types: Sequence[str] = ()
    rrf_k: int = fusion.RRF_K
    expand: bool = True
    depth: int = 2
    seed_limit: int = 10
    min_score: float = 0.0


@dataclass(slots=True)
class SearchResult:
    """A search result: a memory with its ranks and scores."""

    memory: Memory
    ranks: Ranks
    base: float = 0.0
    graph_value: float = 0.0
    score: float = 0.0


@dataclass(slots=True)
class Results:
    """The results of a search, best first."""

    found: list[SearchResult]
    bm25_count: int
    vector_count: int
    graph_count: int
    degraded: str
    seeds: list[str]
    edges: dict[str, Link]


def run_hybrid_search(call: Call, search: Search, *, count: bool = True) -> Results:
    """Search memories by words, meaning and links."""
    from commonplace.engine.finding.recall import Weighting

    weights = search.weights
    words, meaning = weights.bm25, weights.vector
    if words + meaning <= 0:  # only links count, but they start from results by words and meaning
        words = meaning = 0.5
    wanted = max(CANDIDATES, 3 * search.limit, search.seed_limit)
    hits = call.memory.recall(
        require_text(search.query, "query"),
        limit=MOST_CANDIDATES if search.source_types else min(wanted, MOST_CANDIDATES),
        filters=search.filters,
        weighting=Weighting(
            lexical=words, dense=meaning, coverage=0.0, neighbours=0.0,
            session_words=0.0, speaker=0.0, graph=0.0, fusion="ranks", rank_k=search.rrf_k,
        ),
        count=False,
        minimum=0,
    )  # fmt: skip
    pool: dict[str, SearchResult] = {}
    # Without an embedder, or if the model does not know the script, only words count.
    has_meaning = any(hit.why.dense_rank is not None for hit in hits)
    for hit in hits:
        near = hit.why.dense_rank if hit.why.similarity >= fusion.MIN_SIMILARITY else None
        ranks = Ranks(hit.why.lexical_rank, near, hit.why.similarity)
        if ranks.bm25 is not None or near is not None:
            base = fusion.fused_score(ranks, weights, search.rrf_k, meaning=has_meaning)
            pool[hit.memory.id] = SearchResult(hit.memory, ranks, base)
    bm25_count = sum(one.ranks.bm25 is not None for one in pool.values())
    vector_count = sum(one.ranks.vector is not None for one in pool.values())
    seeds, edges = _add_linked(call, search, pool) if search.expand else ([], {})
    graph = fusion.ranks_by_value(
        {key: one.graph_value for key, one in pool.items() if one.graph_value}
    )
    found = []
    for key, one in pool.items():
        one.score = fusion.final_score(
            one.base, graph.get(key), weights.graph, one.memory.importance, search.rrf_k
        )
        from_source = not search.source_types or source_type_of(one.memory) in search.source_types
        if one.score > 0 and one.score >= search.min_score and from_source:
            found.append(one)
    found.sort(key=lambda one: (-one.score, -one.memory.importance, one.memory.id))
    found = found[: search.limit]
    if count:
        for one in found:
            call.memory.get(one.memory.id)  # counts as read
    return Results(found, bm25_count, vector_count, len(graph), hits.degraded, seeds, edges)


def _add_linked(
    call: Call, search: Search, pool: dict[str, SearchResult]
) -> tuple[list[str], dict[str, Link]]:
    """Rate the memories that are linked to the best results, and add missing ones to the pool.

    Return the ids of the results from which links were followed, and these links.
    """
    scores = {
        key: one.base or fusion.fused_score(one.ranks, Weights(0.5, 0.5, 0.0))
        for key, one in pool.items()
    }
    places = fusion.ranks_by_value(scores)
    seeds = sorted(places, key=lambda key: places[key])[: search.seed_limit]
    edges: dict[str, Link] = {}
    for seed in seeds if search.weights.graph else ():
        walk = call.memory.links.traverse(seed, depth=search.depth, max_paths=GRAPH_PATHS)
        for path in walk.paths:
            end = path.nodes[-1]
            if end not in pool:
                memory = call.memory.get(end, count=False)
                if not search.filters.admits(memory):
                    continue
                pool[end] = SearchResult(memory, Ranks(None, None, 0.0))
            edges |= {link.id: link for link in path.links}
            # The engine halves the weight at every step, the contract from the second step on.
            value = scores[seed] * path.score * 2
            pool[end].graph_value = max(pool[end].graph_value, value)
    return seeds, edges


# --- formats ------------------------------------------------------------------------------------


def _hybrid_result_to_dict(
    call: Call, one: SearchResult, query: str, neighbours: int
) -> dict[str, Any]:
    """Return the fields of a result of hybrid search."""
    memory = one.memory
    links = call.memory.links.of(memory.id)
    breakdown = {
        "final_score": round(one.score, 6),
        "bm25_score": round(fusion.reciprocal_score(one.ranks.bm25), 6),
        "vector_score": round(one.ranks.similarity, 6),
        "graph_score": round(one.graph_value, 6),
        "rank_bm25": one.ranks.bm25,
        "rank_vector": one.ranks.vector,
    }
    shown = _result_fields(call, memory, query, one.score, breakdown, neighbours)
    shown["metadata"] |= {
        "highlight": snippet(memory.text, query, 80),
        "graph_context": {
            "relationships": [
                {"to_id": link.target if link.source == memory.id else link.source,
                 "type": link.kind, "strength": link.weight}
                for link in links[:20]
            ],
            "relationship_count": len(links),
        },
    }  # fmt: skip
    return shown


def _result_fields(
    call: Call, memory: Memory, query: str, score: float, breakdown: dict[str, Any], neighbours: int
) -> dict[str, Any]:
    """Return the common fields of a result; a chunk gets `neighbours` chunks on each side."""
    return {
        "id": memory.id,
        "content": snippet(memory.text, query, CONTENT_CHARS),
        "snippet": snippet(memory.text, query, SNIPPET_CHARS),
        "score": round(score, 6),
        "score_breakdown": breakdown,
        "metadata": {"memory_type": type_of(memory.kind), "importance": memory.importance},
        "tags": list(memory.tags),
        "source_type": source_type_of(memory),
        "trust": memory.trust,
        "created_at": stamp(memory.created_at),
        **(chunk_context(call, memory, neighbours) if memory.kind == CHUNK_KIND else {}),
    }


def chunk_context(call: Call, memory: Memory, neighbours: int) -> dict[str, Any]:
    """Return the text of a chunk together with the texts of the chunks before and after it."""
    attrs = memory.attrs
    document, index, total = attrs.get("document"), attrs.get("chunk"), attrs.get("chunks")
    if not isinstance(document, str) or not isinstance(index, int) or not isinstance(total, int):
        return {}
    text, reached = "", -1
    for at in range(max(0, index - neighbours), min(total, index + neighbours + 1)):
        one = (
            memory
            if at == index
            else lookup.find_memory(call.memory, f"{CHUNK_REF}{document}:{at}")
        )
        if one is None:
            continue
        start, stop = int(one.attrs.get("start", 0)), int(one.attrs.get("stop", 0))
        if reached < 0 or start >= reached:
            text += ("\n" if text else "") + one.text
        else:
            text += one.text[reached - start :]
        reached = stop
    return {"content_with_context": text, "chunk_index": index, "total_chunks": total}


def _search_response(call: Call, search: Search, neighbours: int) -> dict[str, Any]:
    """Run a hybrid search; return its results, with the neighbours of chunks."""
    began = time.perf_counter()
    results = run_hybrid_search(call, search)
    query, weights = search.query, search.weights
    shown = [_hybrid_result_to_dict(call, one, query, neighbours) for one in results.found]
    nodes = list(dict.fromkeys([
        *results.seeds,
        *(end for link in results.edges.values() for end in (link.source, link.target)),
    ]))  # fmt: skip
    data: dict[str, Any] = {
        "items": shown,
        "query": query,
        "analyzed_query": {
            "original": query,
            "search_type": "hybrid",
            "weights": {
                "bm25": weights.bm25, "vector": weights.vector, "graph": weights.graph,
            },
            "graph_expansion_enabled": search.expand,
        },
        "search_metadata": {
            "search_method": "weighted_reciprocal_rank_fusion",
            "results_count": len(shown),
            "stats": {
                "search_time_ms": round((time.perf_counter() - began) * 1000, 3),
                "bm25_count": results.bm25_count,
                "vector_count": results.vector_count,
                "graph_count": results.graph_count,
            },
            "knowledge_cloud": {
                "nodes": nodes,
                "edges": [
                    {"from_id": link.source, "to_id": link.target, "type": link.kind,
                     "strength": link.weight}
                    for link in results.edges.values()
                ],
                "stats": {
                    "seed_count": len(results.seeds),
                    "cloud_count": len(nodes),
                    "edge_count": len(results.edges),
                },
            },
        },
    }  # fmt: skip
    if results.degraded:
        data["degraded"] = results.degraded
    return data


def citation_title(memory: Memory) -> str:
    """Return the title, or the first line of the text; at most 80 characters."""
    return (memory.title or memory.text.strip().partition("\n")[0].strip())[:80]


def citation_url(identity: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the URL with which a memory is cited, below the server's public URL if it has one."""
    environ = os.environ if environ is None else environ
    base = environ.get("COMMONPLACE_PUBLIC_URL", "").rstrip("/")
    return f"{base}/api/v2/memories/{identity}" if base else f"commonplace://memories/{identity}"


# --- tools --------------------------------------------------------------------------------------


def recall(
    call: Call,
    *,
    query: str,
    limit: int,
    source_type: str | None = None,
    tags: Sequence[str] | None = None,
    start_date: str | None = None,
    end_date: str | None = None,
) -> dict[str, Any]:
    """`recall`: search memories for context (hybrid search)."""
    seen = search_filters(tags=tags, since=start_date, until=end_date, source=source_type)
    whole = _search_response(call, Search(query=query, limit=limit, filters=seen), NEIGHBOURS)
    # This field is for programs, not for a model's context.
    del whole["search_metadata"]["knowledge_cloud"]
    return fit_texts({"success": True, **whole}, whole["items"])


def search(call: Call, *, query: str, limit: int) -> dict[str, Any]:
    """`search`: search by meaning, and return citations."""
    results = run_hybrid_search(call, Search(query=query, limit=limit, weights=SEMANTIC_WEIGHTS))
    return {
        "results": [
            {
                "id": one.memory.id,
                "title": citation_title(one.memory),
                "url": citation_url(one.memory.id),
                "text": snippet(one.memory.text, query, 500),
            }
            for one in results.found
        ]
    }


def fetch(call: Call, *, id: str) -> dict[str, Any]:
    """`fetch`: return one memory as a document that can be cited."""
    memory = get_readable(call, id, count=True)
    usage = call.memory.usage(memory.id)
    return {
        "id": memory.id,
        "title": citation_title(memory),
        "text": memory.text,
        "url": citation_url(memory.id),
        "metadata": {
            **metadata_of(memory),
            "memory_type": type_of(memory.kind),
            "importance": memory.importance,
            "confidence": memory.confidence,
            "tags": list(memory.tags),
            "source_type": source_type_of(memory),
            "trust": memory.trust,
            "access_count": usage.accesses,
            "created_at": stamp(memory.created_at),
            "updated_at": stamp(memory.updated_at),
        },
    }


# --- endpoints ----------------------------------------------------------------------------------


def hybrid_search(
    call: Call,
    *,
    query: str,
    limit: int,
    bm25_weight: float,
    vector_weight: float,
    graph_weight: float,
    enable_graph_expansion: bool,
    graph_max_depth: int,
    graph_seed_limit: int,
    rrf_k: int,
    include_neighbors: int,
    memory_types: Sequence[str] | None = None,
    source_types: Sequence[str] | None = None,
    importance_threshold: float | None = None,
    min_score_threshold: float | None = None,
    tags: str | None = None,
    start_date: str | None = None,
    end_date: str | None = None,
) -> dict[str, Any]:
    """POST /search/hybrid."""
    check_weights("bm25_weight", bm25_weight, vector_weight, graph_weight)
    source, source_types = _source_filters(call, source_types or ())
    seen = search_filters(
        types=memory_types, tags=tags, importance=importance_threshold, since=start_date,
        until=end_date, source=source,
    )  # fmt: skip
    search = Search(
        query=query, limit=limit, weights=Weights(bm25_weight, vector_weight, graph_weight),
        filters=seen, source_types=source_types, rrf_k=rrf_k, expand=enable_graph_expansion,
        depth=graph_max_depth, seed_limit=graph_seed_limit, min_score=min_score_threshold or 0.0,
    )  # fmt: skip
    return _search_response(call, search, include_neighbors)


def _source_filters(call: Call, requested: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """Return the source to filter by before ranking, and the source types to filter by after.

    `document` means document_upload, and `memory` means all other source types.
    """
    wanted = {UPLOAD_SOURCE if name == "document" else name for name in requested}
    others = wanted - {"memory", *SOURCE_TYPES}
    if others:
        tally = engine_call(call.memory, memories.count_by_attrs, ["source_type"], TYPES)
        stored = {name for (name,) in tally}
        if unknown := sorted(others - stored):
            raise UnknownValue(
                f"There is no source type '{unknown[0]}'.",
                hint="Use memory, document, or the source type of a stored memory.",
                field="source_types",
                details={
                    "field": "source_types",
                    "allowed": ["memory", "document", *SOURCE_TYPES, *sorted(stored)],
                },
            )
    if wanted == {UPLOAD_SOURCE}:
        return "document", ()
    if "memory" in wanted:
        return (None if UPLOAD_SOURCE in wanted else "memory"), ()
    return None, sorted(wanted)


def vector_search(
    call: Call,
    *,
    query: str,
    limit: int,
    include_neighbors: int,
    filters: Mapping[str, Any] | None = None,
    tags: str | None = None,
) -> dict[str, Any]:
    """POST /search/vector: search by meaning only."""
    from commonplace.engine.finding.recall import NEAREST_FIRST

    began = time.perf_counter()
    options = filters or {}
    seen = search_filters(
        types=options.get("memory_types"), tags=tags, importance=options.get("min_importance"),
        user=options.get("user_id"),
    )  # fmt: skip
    hits = call.memory.recall(
        require_text(query, "query"), limit=limit, weighting=NEAREST_FIRST, filters=seen, minimum=0
    )
    items = []
    for hit in hits:
        breakdown = {"vector_similarity": round(hit.similarity, 6)}
        items.append(
            _result_fields(call, hit.memory, query, hit.similarity, breakdown, include_neighbors)
        )
    data: dict[str, Any] = {
        "items": items,
        "query": query,
        "search_metadata": {
            "search_method": "vector",
            "results_count": len(items),
            "stats": {"search_time_ms": round((time.perf_counter() - began) * 1000, 3)},
        },
    }
    if hits.degraded:
        data["degraded"] = hits.degraded
    return data


def search_stats(call: Call) -> dict[str, Any]:
    """GET /search/stats."""
    newest, total = call.memory.browse(limit=1, order="updated")
    documents = len(call.memory.artifacts.all(prefix=DOCUMENT_PATH))
    unembedded, _ = call.memory.backlog()
    has_vectors = call.memory.library.embedder is not None
    covered = (1.0 if not total else max(0.0, 1 - unembedded / total)) if has_vectors else 0.0
    return {
        "total_memories": total,
        "total_documents": documents,
        "total_relationships": len(call.memory.links.of()),
        "embedding_coverage": round(covered, 4),
        "last_indexed": stamp(newest[0].updated_at) if newest else None,
    }
