"""Checkpoints: the state of work in progress, with the related memories."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from commonplace.dialects.contract import Call, as_json
from commonplace.dialects.penfield import personality
from commonplace.dialects.penfield.detection import parse_checkpoint
from commonplace.dialects.penfield.failures import Missing, require_text, stamp
from commonplace.dialects.penfield.fitting import fit_texts
from commonplace.dialects.penfield.kinds import PROTECTED_TYPES, is_context
from commonplace.dialects.penfield.memories import (
    AWAKENING,
    CHECKPOINT_IMPORTANCE,
    CONTEXT_REF,
    check_not_reserved,
    create,
    get_readable,
    is_reserved,
    main_fields,
    name_taken_error,
)
from commonplace.dialects.penfield.searching import Search, run_hybrid_search
from commonplace.engine.finding.filters import Filters
from commonplace.engine.model import LIVE_STATES, Memory
from commonplace.errors import CommonplaceError, NotFound
from commonplace.platform import lookup

SEARCHED_CHARS = 200  # maximum length of the query for related memories, from the description
MAX_RELATED, MIN_SCORE = 30, 0.25
RECENT_MEMORIES = 20
PHRASE_RESULTS = 10

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_BY_ID = re.compile(rf"\bmemory_id:\s*({_UUID})\b", re.IGNORECASE)
_BY_PHRASE = re.compile(r"""\bmemory:\s*(?:'([^'\n]{1,300})'|"([^"\n]{1,300})")""", re.IGNORECASE)
_IS_ID = re.compile(_UUID, re.IGNORECASE)


def references(description: str) -> tuple[list[str], list[str]]:
    """Return the distinct (ids, phrases) to which a description refers, in order."""
    ids = [found.lower() for found in _BY_ID.findall(description)]
    phrases = [one or other for one, other in _BY_PHRASE.findall(description)]
    said = [phrase.strip() for phrase in phrases if phrase.strip()]
    return list(dict.fromkeys(ids)), list(dict.fromkeys(said))


def save_context(call: Call, *, name: str, description: str | None = None) -> dict[str, Any]:
    """`save_context`: store a checkpoint under an unused name."""
    described = description or ""
    require_text(name, "name")
    check_not_reserved(name, "name")
    if find_context(call, name) is not None:
        raise name_taken_error(name)
    ids, phrases = references(described)
    resolved: list[str] = []
    unresolved: list[str] = []
    for identity in ids:
        (unresolved if _current_version(call, identity) is None else resolved).append(identity)
    for phrase in phrases:
        match = find_by_phrase(call, phrase)
        if match is None:
            unresolved.append(phrase)
        else:
            resolved.append(match.id)
    count = len(ids) + len(phrases)
    related = _related_ids(call, described[:SEARCHED_CHARS].strip() or name)
    attached = list(dict.fromkeys([*resolved, *related]))
    content = {
        "checkpoint_name": name,
        "description": described,
        "memory_count": len(attached),
        "memory_ids": attached,
        "referenced_memories": list(dict.fromkeys(resolved)),
    }
    saved = create(
        call,
        content=as_json(content),
        memory_type="checkpoint",
        importance=CHECKPOINT_IMPORTANCE,
        tags=["checkpoint", "context", name],
    )
    answer: dict[str, Any] = {
        "success": True,
        "message": f"Context '{name}' saved",
        "context_id": saved.id,
        "memories_included": len(attached),
        "name": name,
        "references_extracted": count,
        "references_resolved": count - len(unresolved),
    }
    if unresolved:
        answer["unresolved_references"] = unresolved
        answer["hint"] = "Use 'memory_id: UUID' to refer to a memory; that always resolves."
    return answer


def _related_ids(call: Call, query: str) -> list[str]:
    """Return the ids of memories that match a query, or of the newest if the search fails."""
    filters = Filters(without_kinds=PROTECTED_TYPES)
    try:
        search = Search(query=query, limit=MAX_RELATED, min_score=MIN_SCORE, filters=filters)
        return [one.memory.id for one in run_hybrid_search(call, search, count=False).found]
    except CommonplaceError:
        recent, _ = call.memory.browse(filters=filters, limit=RECENT_MEMORIES)
        return [memory.id for memory in recent]


def find_by_phrase(call: Call, phrase: str) -> Memory | None:
    """Return the best match that contains a phrase, or else any memory that contains it."""
    wanted = phrase.casefold()
    filters = Filters(without_kinds=PROTECTED_TYPES)
    search = Search(query=phrase, limit=PHRASE_RESULTS, filters=filters)
    for one in run_hybrid_search(call, search, count=False).found:
        if wanted in one.memory.text.casefold():
            return one.memory
    found, _ = call.memory.find_text(phrase, limit=1, filters=filters)
    return found[0] if found else None


def find_context(call: Call, name: str) -> Memory | None:
    """Return the live checkpoint with exactly this name, or None."""
    memory = lookup.find_live_memory(call.memory, f"{CONTEXT_REF}{name}")
    return memory if memory is not None and is_context(memory) else None


def restore_context(call: Call, *, name: str, limit: int) -> dict[str, Any]:
    """`restore_context`: return a checkpoint by name or id, or the personality briefing."""
    if is_reserved(name):
        return {
            "success": True,
            "context_id": AWAKENING,
            "name": AWAKENING,
            "description": personality.briefing(call),
            "memories": [],
            "memories_restored": 0,
        }
    context = find_context(call, name)
    if context is None and _IS_ID.fullmatch(name):
        with contextlib.suppress(NotFound):
            context = get_readable(call, name)
    if context is None or not is_context(context):
        raise Missing(f"Context '{name[:200]}' not found", hint="See list_contexts.", field="name")
    call.memory.get(context.id)  # counts as read
    found: dict[str, Memory] = {}
    for identity in attached_ids(context):
        if len(found) == limit:
            break
        memory = _current_version(call, identity)
        if memory is not None:
            found.setdefault(memory.id, memory)
    names = ("id", "content", "memory_type", "created_at")
    memories = [{name: main_fields(memory)[name] for name in names} for memory in found.values()]
    answer = {
        "success": True,
        "context_id": context.id,
        "name": context.attrs["checkpoint_name"],
        "description": description_of(context),
        "memories": memories,
        "memories_restored": len(memories),
    }
    return fit_texts(answer, memories)


def _current_version(call: Call, identity: str) -> Memory | None:
    """Return the memory with this id or its replacement, or None if it was deleted."""
    met: set[str] = set()
    while identity not in met:
        met.add(identity)
        try:
            memory = get_readable(call, identity)
        except NotFound:
            return None
        if memory.state in LIVE_STATES:
            return memory
        followed = call.memory.links.of(memory.id, direction="in", kinds=["supersedes"])
        identity = followed[0].source if followed else memory.id
    return None


def attached_ids(context: Memory) -> list[str]:
    """Return the ids of the memories attached to a checkpoint."""
    ids = context.attrs.get("memory_ids")
    found = ids if isinstance(ids, list) else []
    return [one for one in found if isinstance(one, str) and _IS_ID.fullmatch(one)]


def description_of(context: Memory) -> str:
    """Return the description of a checkpoint."""
    described = (parse_checkpoint(context.text) or {}).get("description")
    return described if isinstance(described, str) else ""


def list_contexts(
    call: Call,
    *,
    limit: int,
    offset: int,
    include_descriptions: bool,
    name_pattern: str | None = None,
) -> dict[str, Any]:
    """`list_contexts`: list checkpoints, newest first."""
    wanted = (name_pattern or "").casefold()
    found = [
        memory
        for memory in lookup.all_memories(call.memory, kinds=["checkpoint"])
        if is_context(memory) and wanted in str(memory.attrs["checkpoint_name"]).casefold()
    ]
    contexts = []
    for memory in found[offset : offset + limit]:
        shown: dict[str, Any] = {"id": memory.id, "name": memory.attrs["checkpoint_name"]}
        if include_descriptions:
            shown["description"] = description_of(memory)
        shown["memory_count"] = len(attached_ids(memory))
        shown["created"] = stamp(memory.created_at)
        contexts.append(shown)
    answer = {
        "success": True,
        "total": len(found),
        "limit": limit,
        "offset": offset,
        "has_more": offset + limit < len(found),
        "contexts": contexts,
    }
    return fit_texts(answer, contexts)
