"""The seven tools of the contract, and the operation of its REST route."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np

from commonplace.dialects.clawbrain import (
    contradictions,
    documents,
    file_sync,
    lifecycle,
    locations,
    records,
    strategy,
)
from commonplace.dialects.clawbrain.file_sync import SpaceFiles
from commonplace.dialects.clawbrain.locations import ARCHIVE, KINDS, Location
from commonplace.dialects.contract import Call, Tool, Wire, json_text
from commonplace.dialects.tool_schemas import FLAG, TEXT, array, input_schema, nullable, text
from commonplace.engine import checks
from commonplace.engine.binding import engine_call
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content import credit
from commonplace.engine.finding.filters import Filters
from commonplace.engine.finding.ranking import credit_weighted
from commonplace.engine.finding.substrings import FIELDS, Doubles, Matches, TextField, locate
from commonplace.engine.model import Memory
from commonplace.errors import CommonplaceError, Conflict, InvalidInput
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
"""The type under which memories of other dialects are shown; entity by default."""
RELEVANCE = {"title": 1.0, "tag": 0.8, "text": 0.5}
SNIPPET_CHARS = 180
MAX_RESULTS = 20
MAX_REPORTED = 100
QUERY_CHARS = 10_000
MAX_WORDS = 32  # maximum number of words of a query that are searched one by one
MAX_NEW_FACTS = 20  # maximum number of new facts that are checked for contradictions
MAX_PEERS = 100  # maximum number of memories with which each fact is compared
READ_BYTES = 8 * checks.TEXT_CHARS
"""The maximum size of a response with one whole text, escaped twice, or with all details."""


def format_result(tool: Tool, value: Any) -> Wire:
    """Return the contract's result: indented JSON as text."""
    del tool
    text = json_text(value, indent=2)
    return {"content": [{"type": "text", "text": text}], "isError": False}


def format_error(tool: Tool, error: CommonplaceError) -> Wire:
    """Return the contract's error result: the message as text."""
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
    """Store a new entity or episode."""
    if type == "episode":
        category = f"{datetime.now(UTC):%Y-%m}"
    elif not category:
        raise InvalidInput("category is required when type is entity", field="category")
    location = locations.check(type, category, name)
    checks.text(content, "content")
    if records.find_at(call.memory, location) is not None:
        raise Conflict(
            f"A memory already exists at {location.path}.",
            hint=f"Use memory_update with id {location.id} to change it.",
            field="name",
        )
    files = file_sync.space_files(call)
    if files is not None and files.directory.exists(location.path):
        raise Conflict(
            f"A file already exists at {location.path}, and it is not read as a memory.",
            hint="Correct the file, then use memory_update. memory_compact says what is wrong.",
            field="name",
        )
    records.store(call.memory, location, content, tags=tags, pinned=pinned)
    return {"id": location.id, "path": location.path, "created": True}


def retrieve(call: Call, *, id: str) -> dict[str, Any]:
    """Return one memory, and count the access."""
    memory = records.find(call.memory, id)
    credit.record_turn(call.memory, file_sync.session_of(call), [memory.id])
    call.memory.get(memory.id, count=True)  # read after the first write, in the same transaction
    usage = call.memory.usage(memory.id)
    location = locations.of_memory(memory)
    score = credit.credit_of(memory, credit.read_rule(call.memory))
    return {
        "id": records.public_id(memory),
        "type": _shown_type(memory),
        "category": location.category if location else memory.kind,
        "name": _shown_name(memory),
        "content": memory.text,
        "tags": list(memory.tags),
        "credit_score": round(score, 4),
        "access_count": usage.accesses,
        "created_at": documents.created_stamp(memory),
        "last_accessed": documents.stamp(usage.last_access or memory.created_at),
        "pinned": memory.pinned,
    }


def search(call: Call, *, query: str, limit: int, type: str | None = None) -> dict[str, Any]:
    """Search name, tags and content for the query; rank by relevance and credit."""
    most = max(1, min(MAX_RESULTS, limit))
    found, total = search_memories(call.memory, query, type, most)
    rule = credit.read_rule(call.memory)
    results = []
    for memory, where in found:
        relevance, score = _relevance(where), credit.credit_of(memory, rule)
        results.append(
            {
                "id": records.public_id(memory),
                "name": _shown_name(memory),
                "type": _shown_type(memory),
                "snippet": snippet(memory.text),
                "credit_score": round(score, 4),
                "relevance_score": round(relevance, 4),
                "combined_score": round(credit_weighted(relevance, score), 4),
            }
        )
    credit.record_turn(call.memory, file_sync.session_of(call), [memory.id for memory, _ in found])
    return {"results": results, "total_matches": total}


def search_memories(
    memory: Commonplace, query: str, type: str | None, most: int
) -> tuple[list[tuple[Memory, tuple[TextField, ...]]], int]:
    """Return the best matches with their matching fields, and the total.

    A match contains the whole query. If there is none or the query is long, a match contains all
    words of the query.
    """
    asked = checks.optional_text(query, "query", max_chars=QUERY_CHARS).strip()
    words = list(dict.fromkeys(word[: checks.NAME_CHARS] for word in asked.split()))[:MAX_WORDS]
    if not words:
        return [], 0
    rate, at = credit.read_rule(memory).decay_rate, now()

    def combined(located: Matches) -> Doubles:
        score = credit.decayed_credits(located.credit, located.credited, rate, at)
        return credit_weighted(_relevances(located), score)

    filters = Filters(**_kind_filter(type))
    if len(asked) <= checks.NAME_CHARS:
        found, total = engine_call(memory, locate, [asked], filters, combined, limit=most)
        if total or len(words) == 1:
            return found, total
    return engine_call(memory, locate, words, filters, combined, limit=most)


def _relevance(where: Sequence[TextField]) -> float:
    return sum(RELEVANCE[location] for location in where) / len(where)


def _relevances(located: Matches) -> Doubles:
    """Return `_relevance` of many memories, with the same rounding."""
    worth = np.array([RELEVANCE[location] for location in FIELDS])
    each = located.places.T
    return sum((worth[locations] for locations in each), np.zeros(each.shape[1])) / len(each)


def _kind_filter(type: str | None) -> dict[str, Any]:
    """Return the filter for all kinds, of all dialects, that are shown as this type."""
    episodes = [kind for kind, shown in SHOWN_AS.items() if shown == "episode"]
    if type == "episode":
        return {"kinds": ["episode", *episodes]}
    return {"without_kinds": ["episode", *episodes]} if type == "entity" else {}


def snippet(text: str) -> str:
    """Return the beginning of a text without its heading."""
    text = text.strip()
    first, _, rest = text.partition("\n")
    shown = rest.lstrip() if first.startswith("#") and rest.strip() else text
    return shown[:SNIPPET_CHARS]


def update(call: Call, *, id: str, content: str) -> dict[str, Any]:
    """Replace the content of a memory."""
    memory, location = _own_memory(call, id)
    checks.text(content, "content")
    # The search is slow, so it runs before the lock is taken.
    found = _contradictions(call, memory, location, content) if location.kind == "entity" else []
    with exclusive(call.memory, "memory_update"):
        memory, location = _own_memory(call, id)
        before = documents.updated_stamp(memory)
        attrs = {**memory.attrs, "updated": documents.stamp(datetime.now(UTC))}
        call.memory.revise(memory.id, text=content, attrs=attrs)
        for one in found:
            contradiction = {
                "other": one.memory_id, "existing_fact": one.existing_fact,
                "new_fact": one.new_fact, "kind": one.kind,
                "resolution": "unresolved" if one.kind == "conflict" else "kept_b",
            }  # fmt: skip
            call.memory.events.record("contradiction", memory.id, contradiction)
    answer: dict[str, Any] = {"id": location.id, "updated": True, "previous_updated_at": before}
    if location.kind == "entity":
        answer["contradictions"] = [asdict(one) for one in found]
    return answer


def _contradictions(
    call: Call, memory: Memory, location: Location, content: str
) -> list[contradictions.Contradiction]:
    """Return the facts of other entities of the category that new facts contradict or update."""
    old = set(contradictions.bullet_facts(memory.text))
    new = [fact for fact in contradictions.bullet_facts(content) if fact not in old][:MAX_NEW_FACTS]
    peers: dict[str, Memory] = {}
    for fact in new:
        hits = call.memory.recall(
            fact[:1_000], kinds=["entity"], limit=MAX_PEERS, count=False, minimum=0
        )
        peers |= {hit.memory.id: hit.memory for hit in hits if hit.memory.id != memory.id}
    known = []
    for peer in peers.values():
        other = locations.of_memory(peer)
        if other is not None and other.category == location.category:
            known += [(other.id, fact) for fact in contradictions.bullet_facts(peer.text)]
    return contradictions.find_contradictions(new, known)


@exclusively
def delete(call: Call, *, id: str) -> dict[str, Any]:
    """Archive a memory."""
    memory, location = _own_memory(call, id)
    if memory.pinned:
        raise Conflict(
            f"{location.id} is pinned and cannot be archived.",
            hint="Set pinned to false in its file first.", field="id",
        )  # fmt: skip
    path = records.archive(
        call.memory, memory, _used_archive_paths(file_sync.space_files(call), [location])
    )
    return {"id": location.id, "archived": True, "archive_path": path}


def _used_archive_paths(files: SpaceFiles | None, wanted: Sequence[Location] = ()) -> set[str]:
    """Return the archive paths at which a file already exists."""
    if files is None:
        return set()
    archived = {ARCHIVE + location.path for location in wanted}
    return files.mirror.used_paths() | {path for path in archived if files.directory.exists(path)}


def report(call: Call, *, top_n: int) -> dict[str, Any]:
    """Return statistics of the credits of all memories."""
    files = file_sync.space_files(call)
    chosen = strategy.read(files.directory if files else None)
    rule, at = credit.read_rule(call.memory), datetime.now(UTC)
    scored = [(credit.credit_of(one, rule), one) for one in records.live_memories(call.memory)]
    most = max(1, min(MAX_REPORTED, top_n))
    best = sorted(scored, key=lambda each: (-each[0], each[1].num))
    worst = sorted(scored, key=lambda each: (each[0], each[1].num))
    average = sum(score for score, _ in scored) / len(scored) if scored else 0.0

    def to_dict(score: float, one: Memory) -> dict[str, Any]:
        return {
            "id": records.public_id(one),
            "name": one.attrs["name"],
            "score": round(score, 4),
            "access_count": call.memory.usage(one.id).accesses,
        }

    return {
        "total_memories": len(scored),
        "avg_score": round(average, 4),
        "top": [to_dict(*each) for each in best[:most]],
        "bottom": [to_dict(*each) for each in worst[:most]],
        "prune_candidates": sum(
            lifecycle.may_be_pruned(one, score, chosen, at) for score, one in scored
        ),
        "last_consolidation": _last_stamp(call, "consolidate"),
        "last_pruning": _last_stamp(call, "prune"),
    }


@exclusively
def compact(call: Call) -> dict[str, Any]:
    """Run a compaction."""
    files = file_sync.space_files(call)
    chosen = strategy.read(files.directory if files else None)
    done = lifecycle.compact(call.memory, chosen, _used_archive_paths(files))
    done.details += chosen.problems
    if files is not None:
        files.briefing_stale = True
        done.details += files.problems()
    return asdict(done)


def _own_memory(call: Call, identity: str) -> tuple[Memory, Location]:
    """Return a memory of this dialect and its location; raise InvalidInput for other memories."""
    memory = records.find(call.memory, identity)
    location = locations.of_memory(memory)
    if location is None:
        raise InvalidInput(
            f"{memory.id} is a memory of kind {memory.kind}, which another dialect stored.",
            hint="Change it with the tools of that dialect, or with 'revise' of the dialect"
            " commonplace.",
            field="id",
        )
    return memory, location


def _shown_type(memory: Memory) -> str:
    return memory.kind if memory.kind in KINDS else SHOWN_AS.get(memory.kind, SHOWN_AS["*"])


def _shown_name(memory: Memory) -> str:
    location = locations.of_memory(memory)
    return location.name if location else memory.title or memory.id


def _last_stamp(call: Call, action: str) -> str | None:
    at = records.last_time(call.memory, action)
    return None if at is None else documents.stamp(at)


@exclusively
def record_outcome(call: Call, *, signal: str, session: str | None = None) -> dict[str, Any]:
    """Rate the newest unrated turn of a session, or of all sessions."""
    judged = credit.apply_outcome_to_turn(call.memory, signal, session)
    return {
        "signal": signal,
        "judged": [
            {
                "id": records.public_id(one.memory),
                "before": round(one.before, 4),
                "after": round(one.after, 4),
            }
            for one in judged
        ],
    }


_ID = text("Such as entity-people-alice-chen.", minLength=1)

TOOLS = (
    Tool(
        name="memory_store",
        title="Store a memory",
        description="Create a new memory entry (entity or episode).",
        scope="write",
        handler=store,
        input=input_schema(
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
        response_bytes=READ_BYTES,
        input=input_schema(["id"], id=_ID),
    ),
    Tool(
        name="memory_search",
        title="Search memories",
        description="Search all memories by name, tags and content, weighted by credit.",
        scope="read",
        handler=search,
        input=input_schema(
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
        input=input_schema(["id", "content"], id=_ID, content=TEXT),
    ),
    Tool(
        name="memory_delete",
        title="Archive a memory",
        description="Archive a memory (soft delete: moves it to archive/).",
        scope="delete",
        handler=delete,
        input=input_schema(["id"], id=_ID),
        destructive=True,
    ),
    Tool(
        name="credit_report",
        title="Credit report",
        description="Show memory credit statistics.",
        scope="read",
        handler=report,
        input=input_schema(
            top_n={"type": "integer", "default": 10, "description": "1 to 100 of each end."}
        ),
    ),
    Tool(
        name="memory_compact",
        title="Compact memories",
        description="Trigger immediate consolidation and pruning.",
        scope="delete",
        handler=compact,
        response_bytes=READ_BYTES,
        input=input_schema(),
        destructive=True,
    ),
)  # fmt: skip

OPERATIONS = (
    Tool(
        name="record_outcome",
        title="Record an outcome",
        description="Rate the last turn; its memories gain or lose credit.",
        scope="write",
        handler=record_outcome,
        input=input_schema(
            ["signal"],
            signal={"enum": list(credit.SIGNALS)},
            session=nullable({**TEXT, "minLength": 1, "maxLength": checks.NAME_CHARS}),
        ),
    ),
)
