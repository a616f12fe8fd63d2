"""Reflection: the topics, clusters, patterns and relationships of recent memories."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from commonplace.dialects.contract import Call
from commonplace.dialects.penfield.detection import parse_checkpoint
from commonplace.dialects.penfield.failures import check_weights
from commonplace.dialects.penfield.fitting import fit_texts
from commonplace.dialects.penfield.kinds import (
    CHUNK_KIND,
    PROTECTED_TYPES,
    STORED_TYPES,
    filters_of_types,
    is_context,
    type_of,
)
from commonplace.dialects.penfield.memories import checked_dates, get_readable, main_fields
from commonplace.engine.binding import engine_call
from commonplace.engine.finding.filters import Filters
from commonplace.engine.model import Link, Memory
from commonplace.text.stopwords import STOP_WORDS

DEFAULT_MEMORIES = 50
WINDOWS = {"recent": None, "today": 1, "week": 7, "month": 30, "1d": 1, "7d": 7, "30d": 30,
           "90d": 90}  # fmt: skip
MAX_TOPICS = 10
OFTEN_READ = 5
SCALE_HOURS = 168.0
MAX_MEMORIES = 1_000
_WORD = re.compile(r"[^\W\d_]{4,}")
_COMMON_WORDS = """
    memory memories using used uses user users like also need want make made still there their
    would could should about these those
"""
_IGNORED = frozenset().union(_COMMON_WORDS.split(), *STOP_WORDS.values())


@dataclass(frozen=True, slots=True)
class AgedMemory:
    """A memory with its age, its number of reads and its relationships."""

    memory: Memory
    hours: float
    accesses: int
    links: int


def weighted_score(one: AgedMemory, weights: Sequence[float]) -> float:
    """Return the weighted sum of recency, access, importance and relationships."""
    from commonplace.engine.finding.ranking import recency_exponential

    parts = (
        recency_exponential(one.hours, scale_hours=SCALE_HOURS),
        min(1.0, one.accesses / 10),
        one.memory.importance,
        min(1.0, one.links / 5),
    )
    return sum(weight * part for weight, part in zip(weights, parts, strict=True))


def frequent_words(texts: Iterable[str], *, least: int = 4, most: int = MAX_TOPICS) -> list[str]:
    """Return the words that occur in the most texts, most frequent first."""
    counts: Counter[str] = Counter()
    for text in texts:
        words = {word.lower() for word in _WORD.findall(text[:10_000]) if len(word) >= least}
        counts.update(words - _IGNORED)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [word for word, _ in ordered[:most]]


def clusters(aged: Sequence[AgedMemory]) -> list[dict[str, Any]]:
    """Group memories: those of the last day, and those of each type."""
    found = []
    fresh = sum(one.hours <= 24 for one in aged)
    if fresh:
        found.append(("Recent Focus", fresh, "Memories of the last 24 hours"))
    for kind, count in Counter(type_of(one.memory.kind) for one in aged).most_common():
        if count >= 2:
            name = f"{kind.replace('_', ' ').title()} Cluster"
            found.append((name, count, f"{count} memories of type {kind}"))
    return _group_dicts("name", found)


def patterns(aged: Sequence[AgedMemory]) -> list[dict[str, Any]]:
    """Return patterns: memories that are read often, and frequent tags."""
    found = []
    often = sum(one.accesses > OFTEN_READ for one in aged)
    if often:
        said = f"{often} memories were read more than {OFTEN_READ} times"
        found.append(("High Access Frequency", often, said))
    tags = Counter(tag for one in aged for tag in one.memory.tags)
    for tag, count in sorted(tags.items(), key=lambda pair: (-pair[1], pair[0]))[:5]:
        if count >= 3:
            found.append((f"Recurring Tag: {tag}", count, f"{count} memories carry the tag {tag}"))
    return _group_dicts("pattern", found)


def _group_dicts(key: str, found: Iterable[tuple[str, int, str]]) -> list[dict[str, Any]]:
    return [
        {key: name, "memory_count": count, "description": description}
        for name, count, description in found
    ]


def _topic_text(memory: Memory) -> str:
    """Return the text of a memory, or the name and description of a checkpoint."""
    read = parse_checkpoint(memory.text) if is_context(memory) else None
    return memory.text if read is None else f"{memory.title} {read.get('description', '')}"


def analyse(
    call: Call,
    *,
    time_window: str = "recent",
    include_documents: bool = False,
    include_patterns: bool = True,
    include_relationships: bool = True,
    include_clusters: bool = True,
    max_memories: int = DEFAULT_MEMORIES,
    start_date: str | None = None,
    end_date: str | None = None,
    recency_weight: float = 0.4,
    access_weight: float = 0.3,
    importance_weight: float = 0.2,
    relationship_weight: float = 0.1,
) -> dict[str, Any]:
    """POST /analysis/reflect: analyse the memories of a time window, or between two dates."""
    weights = (recency_weight, access_weight, importance_weight, relationship_weight)
    check_weights("recency_weight", *weights)
    now = datetime.now(UTC)
    found = _memories_in_window(call, time_window, start_date, end_date, include_documents, now)
    links = call.memory.links.around(*(memory.id for memory in found))
    aged = _aged_memories(call, found, links, now)
    scored = sorted(
        ((weighted_score(one, weights), one) for one in aged), key=lambda p: (-p[0], p[1].memory.id)
    )
    kept = scored[:max_memories]
    subjects = frequent_words(_topic_text(one.memory) for one in aged)
    count = len(aged) or 1
    return {
        "time_window": time_window,
        "memories": [
            {
                **main_fields(one.memory),
                "access_count": one.accesses,
                "age_hours": round(one.hours, 2),
                "score": round(value, 6),
            }
            for value, one in kept
        ],
        "active_topics": subjects,
        "memory_clusters": clusters(aged) if include_clusters else [],
        "emerging_patterns": patterns(aged) if include_patterns else [],
        "relationship_insights": [
            {"type": kind, "count": number, "description": f"{number} {kind} relationships"}
            for kind, number in Counter(link.kind for link in links).most_common()
        ] if include_relationships else [],
        "statistics": {
            "total_memories_analyzed": len(aged),
            "memories_returned": len(kept),
            "average_age_hours": round(sum(one.hours for one in aged) / count, 2),
            "average_importance": round(sum(one.memory.importance for one in aged) / count, 4),
            "total_access_count": sum(one.accesses for one in aged),
            "unique_topics": len(subjects),
        },
    }  # fmt: skip


def _aged_memories(
    call: Call, found: Sequence[Memory], links: Iterable[Link], now: datetime
) -> list[AgedMemory]:
    related = Counter(end for link in links for end in {link.source, link.target})
    return [
        AgedMemory(
            memory,
            max(0.0, (now - memory.created_at).total_seconds() / 3600),
            call.memory.usage(memory.id).accesses,
            related[memory.id],
        )
        for memory in found
    ]


def _memories_in_window(
    call: Call,
    window: str,
    start: str | None,
    end: str | None,
    documents: bool,
    now: datetime,
) -> list[Memory]:
    since, until = checked_dates(start, end)
    conditions: dict[str, Any] = {
        "without_kinds": PROTECTED_TYPES if documents else (*PROTECTED_TYPES, CHUNK_KIND)
    }
    if since or until:
        conditions |= {"created_since": since, "created_until": until}
        return call.memory.browse(limit=MAX_MEMORIES, **conditions)[0]
    days = WINDOWS[window]
    if days is None:
        return call.memory.browse(limit=DEFAULT_MEMORIES, **conditions)[0]
    if window == "today":
        begun = now.replace(hour=0, minute=0, second=0, microsecond=0)
    else:
        begun = now - timedelta(days=days)
    return call.memory.browse(limit=MAX_MEMORIES, created_since=begun, **conditions)[0]


def reflect(call: Call, **details: Any) -> dict[str, Any]:
    """`reflect`: analyse the memories of a time window."""
    analysis = analyse(call, **details)
    return fit_texts({"success": True, **analysis}, analysis["memories"])


def summarize(
    call: Call,
    *,
    max_memories: int,
    include_relationships: bool,
    memory_ids: Sequence[str] | None = None,
) -> dict[str, Any]:
    """POST /analysis/summarize: summarize given memories, or those of the last 24 hours."""
    if memory_ids:
        found = [get_readable(call, identity) for identity in dict.fromkeys(memory_ids)]
    else:
        since = datetime.now(UTC) - timedelta(hours=24)
        found, _ = call.memory.browse(limit=max_memories, created_since=since,
                                      without_kinds=PROTECTED_TYPES)  # fmt: skip
    found = found[:max_memories]
    if not found:
        return {"summary": "No memories found to summarize.", "memory_count": 0, "topics": [],
                "memory_types": {}, "relationships": []}  # fmt: skip
    types = Counter(type_of(memory.kind) for memory in found)
    subjects = frequent_words((_topic_text(memory) for memory in found[:10]), least=6)
    parts = ", ".join(f"{count} {kind}" for kind, count in types.most_common())
    about = f" Topics: {', '.join(subjects)}." if subjects else ""
    chosen = {memory.id for memory in found}
    links: Counter[str] = Counter()
    if include_relationships:
        links.update(
            link.kind
            for link in call.memory.links.around(*chosen, direction="out")
            if link.target in chosen
        )
    return {
        "summary": f"{len(found)} memories ({parts}).{about}",
        "memory_count": len(found),
        "topics": subjects,
        "memory_types": dict(types),
        "relationships": [{"type": kind, "count": count} for kind, count in links.most_common()],
    }


def insights(call: Call) -> dict[str, Any]:
    """GET /analysis/insights."""
    now = datetime.now(UTC)

    def number(**conditions: Any) -> int:
        return call.memory.browse(limit=1, **conditions)[1]

    # unary plus drops zero counts
    types = +Counter({kind: number(**filters_of_types([kind])) for kind in STORED_TYPES})
    spans = {"24h": 24, "week": 168, "month": 720}
    created = {
        name: number(created_since=now - timedelta(hours=hours), without_kinds=PROTECTED_TYPES)
        for name, hours in spans.items()
    }
    from commonplace.engine.finding.listing import memory_columns

    importance = engine_call(
        call.memory, memory_columns, Filters(without_kinds=PROTECTED_TYPES)
    ).importance
    total = len(importance)
    found = [("Memory Creation Rate", created["week"],
              f"{created['week']} memories in the last week")]  # fmt: skip
    if types:
        kind, count = types.most_common(1)[0]
        said = f"{count} of {total} memories are of type {kind}"
        found.append(("Most Common Type", count, said))
    return {
        "distribution": dict(types.most_common()),
        "statistics": {
            "total_memories": total,
            "average_importance": round(float(importance.mean(dtype=float)), 4) if total else 0.0,
            "created_last_24h": created["24h"],
            "created_last_week": created["week"],
            "created_last_month": created["month"],
        },
        "insights": [
            {"title": title, "value": value, "description": said} for title, value, said in found
        ],
    }
