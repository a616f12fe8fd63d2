"""The seven tools of the contract, implemented with the engine."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np

from commonplace.dialects.clawbrain import (
    contradictions,
    documents,
    keeping,
    lifecycle,
    places,
    records,
    strategy,
)
from commonplace.dialects.clawbrain.keeping import Kept
from commonplace.dialects.clawbrain.places import ARCHIVE, KINDS, Place
from commonplace.dialects.contract import Call, Tool, Wire, json_text
from commonplace.dialects.tool_schemas import FLAG, TEXT, array, nullable, takes, text
from commonplace.engine import checks
from commonplace.engine.binding import engine_call
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content import credit
from commonplace.engine.finding.filters import Filters
from commonplace.engine.finding.ranking import credit_weighted
from commonplace.engine.finding.substrings import FIELDS, Doubles, Located, TextField, locate
from commonplace.engine.model import Memory
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, NotFound
from commonplace.platform.exclusive import exclusive, exclusively
from commonplace.storage.database import now

SHOWN_AS: dict[str, str] = {
    "*": "entity",
    "checkpoint": "episode",
    "diary": "episode",
    "drawer": "episode",
    "message": "episode",
    "scene": "episode",
    "session": "episode",
}
"""How memories of other dialects are shown: lasting things as entities, happenings as episodes."""
RELEVANCE = {"title": 1.0, "tag": 0.8, "text": 0.5}
SNIPPET_CHARS = 180
MOST_RESULTS = 20
MOST_REPORTED = 100
QUERY_CHARS = 10_000
WORDS = 32  # words of a query that are searched for one by one
FACTS = 20  # changed facts that are compared
PEERS = 100  # memories that each changed fact is compared with


def succeed(tool: Tool, value: Any) -> Wire:
    """The contract's result: indented JSON."""
    del tool
    text = json_text(value, indent=2)
    return {"content": [{"type": "text", "text": text}], "isError": False}


def fail(tool: Tool, error: CommonplaceError) -> Wire:
    """The contract's failure: a message."""
    del tool
    return {"content": [{"type": "text", "text": str(error)}], "isError": True}


@exclusively
def store(
    call: Call,
    *,
    type: str,
    name: str,
    content: str,
    tags: Sequence[str],
    pinned: bool,
    category: str | None = None,
) -> dict[str, Any]:
    """A new entity or episode."""
    if type == "episode":
        category = f"{datetime.now(UTC):%Y-%m}"
    elif not category:
        raise InvalidInput("category is required when type is entity", field="category")
    place = places.checked(type, category, name)
    checks.text(content, "content")
    with contextlib.suppress(NotFound):
        records.find(call.memory, place.id)
        raise _exists(place)
    kept = keeping.kept(call)
    if kept is not None and kept.directory.exists(place.path):
        raise _exists(place)
    records.store(call.memory, place, content, tags=tags, pinned=pinned)
    return {"id": place.id, "path": place.path, "created": True}


def _exists(place: Place) -> Conflict:
    return Conflict(
        f"A memory already exists at {place.path}.",
        hint=f"Use memory_update with id {place.id} to change it.",
        field="name",
    )


def retrieve(call: Call, *, id: str) -> dict[str, Any]:
    """Return one memory, and count the retrieval."""
    memory = records.find(call.memory, id)
    credit.record_turn(call.memory, keeping.session(call), [memory.id])
    # after the first write, so that the count is part of the same unit
    call.memory.get(memory.id, count=True)
    usage = call.memory.usage(memory.id)
    place = places.of_memory(memory)
    score = records.score(memory, credit.rule(call.memory))
    return {
        "id": records.identity(memory),
        "type": _type(memory),
        "category": place.category if place else memory.kind,
        "name": _name(memory),
        "content": memory.text,
        "tags": list(memory.tags),
        "credit_score": round(score, 4),
        "access_count": usage.accesses,
        "created_at": documents.created(memory),
        "last_accessed": documents.stamp(usage.last_access or memory.created_at),
        "pinned": memory.pinned,
    }


def search(call: Call, *, query: str, limit: int, type: str | None = None) -> dict[str, Any]:
    """Memories with the query in their name, tags or content, by relevance and credit."""
    most = max(1, min(MOST_RESULTS, limit))
    found, total = seek(call.memory, query, type, most)
    rule = credit.rule(call.memory)
    results = []
    for memory, where in found:
        relevance, score = _relevance(where), records.score(memory, rule)
        results.append(
            {
                "id": records.identity(memory),
                "name": _name(memory),
                "type": _type(memory),
                "snippet": snippet(memory.text),
                "credit_score": round(score, 4),
                "relevance_score": round(relevance, 4),
                "combined_score": round(credit_weighted(relevance, score), 4),
            }
        )
    credit.record_turn(call.memory, keeping.session(call), [memory.id for memory, _ in found])
    return {"results": results, "total_matches": total}


def seek(
    memory: Commonplace, query: str, type: str | None, most: int
) -> tuple[list[tuple[Memory, tuple[TextField, ...]]], int]:
    """The best matches with the fields that match, and the number of all matches.

    They match the whole query; if nothing does, or it is too long for that, all its words.
    """
    asked = checks.optional(query, "query", max_chars=QUERY_CHARS).strip()
    words = list(dict.fromkeys(word[: checks.NAME_CHARS] for word in asked.split()))[:WORDS]
    if not words:
        return [], 0
    rate, at = credit.rule(memory).decay_rate, now()

    def combined(located: Located) -> Doubles:
        score = credit.decayed_credits(located.credit, located.credited, rate, at)
        return credit_weighted(_relevances(located), score)

    filters = Filters(**_conditions(type))
    if len(asked) <= checks.NAME_CHARS:
        found, total = engine_call(memory, locate, [asked], filters, combined, limit=most)
        if total or len(words) == 1:
            return found, total
    return engine_call(memory, locate, words, filters, combined, limit=most)


def _relevance(where: Sequence[TextField]) -> float:
    return sum(RELEVANCE[place] for place in where) / len(where)


def _relevances(located: Located) -> Doubles:
    """The relevances of many memories, with the same rounding as `_relevance`."""
    worth = np.array([RELEVANCE[place] for place in FIELDS])
    each = located.places.T
    return sum((worth[places] for places in each), np.zeros(each.shape[1])) / len(each)


def _conditions(type: str | None) -> dict[str, Any]:
    """The filters for a type: it covers kinds of other dialects, too."""
    episodes = [kind for kind, shown in SHOWN_AS.items() if shown == "episode"]
    if type == "episode":
        return {"kinds": ["episode", *episodes]}
    return {"without_kinds": ["episode", *episodes]} if type == "entity" else {}


def snippet(text: str) -> str:
    """The beginning of a text, after its heading."""
    text = text.strip()
    first, _, rest = text.partition("\n")
    shown = rest.lstrip() if first.startswith("#") and rest.strip() else text
    return shown[:SNIPPET_CHARS]


def update(call: Call, *, id: str, content: str) -> dict[str, Any]:
    """Replace a memory's content; everything else stays."""
    memory, place = _own(call, id)
    checks.text(content, "content")
    # Searching takes long, so it is done before the lock is taken.
    found = _contradictions(call, memory, place, content) if place.kind == "entity" else []
    with exclusive(call.memory, "memory_update"):
        memory, place = _own(call, id)
        before = documents.updated(memory)
        attrs = {**memory.attrs, "updated": documents.stamp(datetime.now(UTC))}
        call.memory.revise(memory.id, text=content, attrs=attrs)
        for one in found:
            said = {
                "other": one.memory_id, "existing_fact": one.existing_fact,
                "new_fact": one.new_fact, "kind": one.kind,
                "resolution": "unresolved" if one.kind == "conflict" else "kept_b",
            }  # fmt: skip
            call.memory.events.record("contradiction", memory.id, said)
    answer: dict[str, Any] = {"id": place.id, "updated": True, "previous_updated_at": before}
    if place.kind == "entity":
        answer["contradictions"] = [asdict(one) for one in found]
    return answer


def _contradictions(
    call: Call, memory: Memory, place: Place, content: str
) -> list[contradictions.Contradiction]:
    """Facts of other entities in the category that the new facts contradict."""
    old = set(contradictions.facts(memory.text))
    new = [fact for fact in contradictions.facts(content) if fact not in old][:FACTS]
    peers: dict[str, Memory] = {}
    for fact in new:
        hits = call.memory.recall(fact[:1_000], kinds=["entity"], limit=PEERS, count=False)
        peers |= {hit.memory.id: hit.memory for hit in hits if hit.memory.id != memory.id}
    known = []
    for peer in peers.values():
        other = places.of_memory(peer)
        if other is not None and other.category == place.category:
            known += [(other.id, fact) for fact in contradictions.facts(peer.text)]
    return contradictions.find(new, known)


@exclusively
def delete(call: Call, *, id: str) -> dict[str, Any]:
    """Archive a memory."""
    memory, place = _own(call, id)
    if memory.pinned:
        raise Conflict(
            f"{place.id} is pinned and cannot be archived.",
            hint="Set pinned to false in its file first.", field="id",
        )  # fmt: skip
    path = records.archive(call.memory, memory, _taken(keeping.kept(call), [place]))
    return {"id": place.id, "archived": True, "archive_path": path}


def _taken(kept: Kept | None, wanted: Sequence[Place] = ()) -> set[str]:
    """Paths in the archive that are in use."""
    if kept is None:
        return set()
    archived = {ARCHIVE + place.path for place in wanted}
    return kept.mirror.taken() | {path for path in archived if kept.directory.exists(path)}


def report(call: Call, *, top_n: int) -> dict[str, Any]:
    """Statistics of credits."""
    kept = keeping.kept(call)
    chosen = strategy.read(kept.directory if kept else None)
    rule, at = credit.rule(call.memory), datetime.now(UTC)
    scored = [(records.score(one, rule), one) for one in records.live(call.memory)]
    most = max(1, min(MOST_REPORTED, top_n))
    best = sorted(scored, key=lambda each: (-each[0], each[1].num))
    worst = sorted(scored, key=lambda each: (each[0], each[1].num))
    average = sum(score for score, _ in scored) / len(scored) if scored else 0.0

    def shown(score: float, one: Memory) -> dict[str, Any]:
        return {
            "id": records.identity(one),
            "name": one.attrs["name"],
            "score": round(score, 4),
            "access_count": call.memory.usage(one.id).accesses,
        }

    return {
        "total_memories": len(scored),
        "avg_score": round(average, 4),
        "top": [shown(*each) for each in best[:most]],
        "bottom": [shown(*each) for each in worst[:most]],
        "prune_candidates": sum(
            lifecycle.may_be_pruned(one, score, chosen, at) for score, one in scored
        ),
        "last_consolidation": records.last(call.memory, "consolidate"),
        "last_pruning": records.last(call.memory, "prune"),
    }


@exclusively
def compact(call: Call) -> dict[str, Any]:
    """Consolidate, promote, prune."""
    kept = keeping.kept(call)
    chosen = strategy.read(kept.directory if kept else None)
    done = lifecycle.compact(call.memory, chosen, _taken(kept))
    done.details += chosen.problems
    if kept is not None:
        kept.stale = True
        done.details += kept.left_alone()
    return asdict(done)


def _own(call: Call, identity: str) -> tuple[Memory, Place]:
    """A memory that this dialect may change, and its place."""
    memory = records.find(call.memory, identity)
    place = places.of_memory(memory)
    if place is None:
        raise InvalidInput(
            f"{memory.id} is a memory of kind {memory.kind}, which was not stored here.",
            hint="Change it with the tools of the contract that stored it, or with 'revise' of"
            " the dialect commonplace.",
            field="id",
        )
    return memory, place


def _type(memory: Memory) -> str:
    return memory.kind if memory.kind in KINDS else SHOWN_AS.get(memory.kind, SHOWN_AS["*"])


def _name(memory: Memory) -> str:
    place = places.of_memory(memory)
    return place.name if place else memory.title or memory.id


_ID = text("Such as entity-people-alice-chen.", minLength=1)

TOOLS = (
    Tool(
        name="memory_store",
        title="Store a memory",
        description="Create a new memory entry (entity or episode).",
        scope="write",
        handler=store,
        input=takes(
            ["type", "name", "content"],
            type={
                "enum": list(KINDS),
                "description": "entity for durable facts, episode for interaction summaries.",
            },
            category=nullable(
                text("For entities: people, projects, preferences. Ignored for episodes.")
            ),
            name=text("Kebab-case identifier, such as alice-chen."),
            content=text("Markdown, without frontmatter."),
            tags=array(
                TEXT, default=[],
                description="Lowercase, hyphenated. For consolidation and search.",
            ),
            pinned={**FLAG, "default": False, "description": "If true, never pruned."},
        ),
    ),
    Tool(
        name="memory_retrieve",
        title="Retrieve a memory",
        description="Get a specific memory by ID.",
        scope="read",
        handler=retrieve,
        input=takes(["id"], id=_ID),
    ),
    Tool(
        name="memory_search",
        title="Search memories",
        description="Search all memories by name, tags and content, weighted by credit.",
        scope="read",
        handler=search,
        input=takes(
            ["query"],
            query=TEXT,
            type={"enum": [*KINDS, None], "default": None, "description": "null for all types."},
            limit={"type": "integer", "default": 5, "description": "Max results, at most 20."},
        ),
    ),
    Tool(
        name="memory_update",
        title="Update a memory",
        description="Update an existing memory's content.",
        scope="write",
        handler=update,
        input=takes(["id", "content"], id=_ID, content=TEXT),
    ),
    Tool(
        name="memory_delete",
        title="Archive a memory",
        description="Archive a memory (soft delete: moves it to archive/).",
        scope="delete",
        handler=delete,
        input=takes(["id"], id=_ID),
        destructive=True,
    ),
    Tool(
        name="credit_report",
        title="Credit report",
        description="Show memory credit statistics.",
        scope="read",
        handler=report,
        input=takes(
            top_n={"type": "integer", "default": 10, "description": "1 to 100 of each end."}
        ),
    ),
    Tool(
        name="memory_compact",
        title="Compact memories",
        description="Trigger immediate consolidation and pruning.",
        scope="delete",
        handler=compact,
        input=takes(),
        destructive=True,
    ),
)  # fmt: skip
