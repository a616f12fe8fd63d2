"""Drawers: verbatim text at an address, a wing and a room. Each is a memory of the space."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from commonplace.dialects.orchestrator.answering import stamp
from commonplace.dialects.orchestrator.classifier import classify
from commonplace.engine import checks
from commonplace.engine.binding import engine_call
from commonplace.engine.content import memories
from commonplace.engine.model import LIVE_STATES, Memory
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusive
from commonplace.text.snippets import opening

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.finding.recall import Hit, Hits

DRAWER, DIARY, IDENTITY = "drawer", "diary", "identity"
OWN = (DRAWER, DIARY)
SCALE = 5.0  # the palace counts importance to 5, the engine to 1
USUAL = 3.0
CONTENT_CHARS = 10_000
IDENTITY_CHARS = 2_000
NAME_CHARS = 200
MOST_DRAWERS = 10_000
WRITTEN_BEFORE = "failed to write diary entry: this entry was written before"
LEAST_CHARS = 10
NEIGHBOURS = 5
NEAR = 0.7
REINFORCED = 0.5
IDENTITY_REF = "palace:identity"
ELSEWHERE = "shared"
"""The wing in which memories of other dialects are shown, each in the room of its kind."""

# How a memory of another dialect's kind is shown.
KINDS: Mapping[str, str] = {
    "decision": "decision",
    "preference": "preference",
    "checkpoint": "milestone",
    "fact": "fact",
    "task": "task",
    "diary": "diary",
    "*": "general",
}
_FILLER = frozenset(  # those of fewer letters are too short anyway
    {"thanks a lot", "thank you so much", "thank you very much", "sounds good", "good morning",
     "good night", "good evening", "good afternoon", "no problem", "you're welcome", "of course",
     "see you later", "sounds good to me", "that's great", "very nice", "makes sense"}
)  # fmt: skip


def is_noise(content: str) -> bool:
    """Whether a text is too short or too trivial to keep."""
    said = content.strip()
    return len(said) < LEAST_CHARS or said.lower().strip(" .!?,") in _FILLER


def drawer_id(wing: str, room: str, content: str) -> str:
    """The id that an address and a text give."""
    return f"drawer_{wing}_{room}_{hashlib.sha256(content.encode()).hexdigest()[:16]}"


def address_tags(wing: str, room: str) -> list[str]:
    """What finds the drawers of a wing or a room."""
    return [wing_tag(wing), room_tag(room)]


def wing_tag(wing: str) -> str:
    return _tag("wing", wing)


def room_tag(room: str) -> str:
    return _tag("room", room)


def _tag(sort: str, name: str) -> str:
    tag = f"{sort}:{name}"
    if len(tag) > 100:  # longer than a tag may be
        tag = f"{sort}:{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    return tag


def wing_of_agent(name: str) -> str:
    """The wing in which an agent's diary lies."""
    return "wing_" + name.strip().lower().replace(" ", "_").replace("'", "")


def counts(memory: Commonplace) -> list[tuple[tuple[str, str, str], int]]:
    """((wing, room, hall), how many drawers)."""
    found = engine_call(memory, memories.tally, ["wing", "room", "hall"], OWN)
    return [((wing, room, hall), count) for (wing, room, hall), count in found.items()]


def presented(found: Memory, similarity: float) -> dict[str, Any]:
    """A drawer, or another dialect's memory in the shape of one."""
    attrs = found.attrs
    own = found.kind in OWN
    return {
        "id": found.ref if own and found.ref else found.id,
        "wing": attrs.get("wing", "") if own else ELSEWHERE,
        "room": attrs.get("room", "") if own else found.kind,
        "content": opening(found.text, CONTENT_CHARS),
        "memory_type": attrs.get("memory_type", "general")
        if own
        else KINDS.get(found.kind, KINDS["*"]),
        "importance": round(found.importance * SCALE, 4),
        "similarity": round(similarity, 4),
        "filed_at": stamp(found.created_at),
    }


def search(
    memory: Commonplace, query: str, *, limit: int, wing: str = "", room: str = ""
) -> list[dict[str, Any]]:
    """The nearest in meaning of all live memories, or of those of a wing or room."""
    tags = ([wing_tag(wing)] if wing else []) + ([room_tag(room)] if room else [])
    conditions: dict[str, Any] = {"tags_all": tags}
    if tags:
        conditions["kinds"] = OWN
    hits = [*by_meaning(memory, query, limit=limit, **conditions)]
    if wing == ELSEWHERE:
        hits += _elsewhere(memory, query, limit, room)
        hits.sort(key=lambda hit: -hit.similarity)
    return [presented(hit.memory, hit.similarity) for hit in hits[:limit]]


def _elsewhere(memory: Commonplace, query: str, limit: int, room: str) -> Sequence[Hit]:
    """What other dialects stored, or what of it is of the kind that a room shows."""
    if not room:
        return by_meaning(memory, query, limit=limit, without_kinds=OWN)
    try:
        kind = checks.kind(room)
    except InvalidInput:  # no kind, and so no such room
        return []
    return [] if kind in OWN else by_meaning(memory, query, limit=limit, kinds=[kind])


def by_meaning(memory: Commonplace, query: str, *, limit: int, **conditions: Any) -> Hits:
    """The nearest in meaning; by words where there is no model, or none that knows the script."""
    from commonplace.engine.finding.recall import MEANING_ONLY

    hits = memory.recall(query, limit=limit, weighting=MEANING_ONLY, **conditions)
    if hits.degraded or not hits:
        hits = memory.recall(query, limit=limit, **conditions)
    return hits


def duplicates(memory: Commonplace, content: str, threshold: float) -> list[dict[str, Any]]:
    """Drawers in any state that say the same."""
    states = (*LIVE_STATES, "archived", "superseded", "dead")
    near = by_meaning(
        memory, content, limit=NEIGHBOURS, kinds=OWN, states=states, count=False
    )  # fmt: skip
    return [presented(hit.memory, hit.similarity) for hit in near if hit.similarity >= threshold]


def put(memory: Commonplace, wing: str, room: str, content: str, **about: str) -> tuple[str, str]:
    """Store a drawer, once; (its id, its type). Its neighbours matter more from now on."""
    for name, value in (("wing", wing), ("room", room)):
        if len(value) > NAME_CHARS:
            raise InvalidInput(f"{name} exceeds max length of {NAME_CHARS}")
    if len(content) > CONTENT_CHARS:
        raise InvalidInput(f"content exceeds max length of {CONTENT_CHARS}")
    if is_noise(content):
        raise InvalidInput("content too short or trivial to store")
    identity = drawer_id(wing, room, content)
    there = lookup.find(memory, identity)
    if there is not None:
        if there.state not in LIVE_STATES:
            _check_room(memory)
            memory.restore(there.id)
        return identity, str(there.attrs.get("memory_type", "general"))
    _check_room(memory)
    sorts = classify(content)
    memory_type = sorts[0].memory_type if sorts else "general"
    importance = max([USUAL, *(SCALE * sort.confidence for sort in sorts)])
    near = by_meaning(memory, content, limit=NEIGHBOURS, kinds=OWN, count=False)
    try:
        store(memory, identity, wing, room, content, DRAWER, importance, memory_type, about)
    except Conflict:  # somebody stored it since we looked
        return identity, memory_type
    _check_room(memory, MOST_DRAWERS + 1)
    for hit in near:
        if hit.similarity > NEAR:
            stands = memory.get(hit.memory.id, count=False)
            raised = min(1.0, stands.importance + REINFORCED / SCALE)
            memory.revise(hit.memory.id, importance=raised)
    return identity, memory_type


def write_diary(memory: Commonplace, agent: str, entry: str, topic: str) -> str:
    """Store an entry of an agent's diary; its id. The same text twice is a Conflict."""
    if len(entry) > CONTENT_CHARS:
        raise InvalidInput(f"entry exceeds max length of {CONTENT_CHARS}")
    if len(agent) > NAME_CHARS or len(topic) > NAME_CHARS:
        raise InvalidInput(f"agent_name and topic may have {NAME_CHARS} characters")
    wing = wing_of_agent(agent)
    identity = drawer_id(wing, DIARY, entry)
    if lookup.find(memory, identity) is not None:
        raise Conflict(WRITTEN_BEFORE)
    _check_room(memory)
    about = {"hall": topic, "added_by": agent}
    try:
        store(memory, identity, wing, DIARY, entry, DIARY, USUAL, DIARY, about)
    except Conflict:  # somebody wrote it since we looked
        raise Conflict(WRITTEN_BEFORE) from None
    _check_room(memory, MOST_DRAWERS + 1)
    return identity


def read_diary(memory: Commonplace, agent: str, last: int) -> Sequence[Memory]:
    """An agent's entries, newest first."""
    tags = address_tags(wing_of_agent(agent), DIARY)
    return memory.browse(kinds=[DIARY], tags_all=tags, limit=last)[0]


def store(
    memory: Commonplace,
    identity: str,
    wing: str,
    room: str,
    content: str,
    kind: str,
    importance: float,
    memory_type: str,
    about: Mapping[str, str],
    **details: Any,
) -> Memory:
    """A drawer as a memory."""
    told = {name: value for name, value in about.items() if value}
    return memory.remember(
        content,
        kind=kind,
        ref=identity,
        tags=address_tags(wing, room),
        importance=min(1.0, importance / SCALE),
        trust="inferred",
        attrs={"wing": wing, "room": room, "memory_type": memory_type, **told},
        **details,
    )


def _check_room(memory: Commonplace, too_many: int = 0) -> None:
    """Refuse a drawer too many: before it is stored, and once more when nobody else can store."""
    if sum(engine_call(memory, memories.tally, [], OWN).values()) >= (too_many or MOST_DRAWERS):
        raise InvalidInput(f"the workspace has {MOST_DRAWERS} drawers, the most it may have")


def delete(memory: Commonplace, identity: str) -> None:
    """Put a drawer out of sight; 'commonplace restore' brings it back."""
    found = lookup.find(memory, identity)
    if found is None or (found.kind in OWN and found.state not in LIVE_STATES):
        raise NotFound("drawer not found")
    if found.kind not in OWN:
        raise Conflict(f"this is a {found.kind} that another dialect keeps; change it there")
    memory.forget(found.id)


def identity_of(memory: Commonplace) -> str:
    """Who the workspace is: layer 0."""
    found = lookup.find(memory, IDENTITY_REF)
    return found.text if found is not None and found.state in LIVE_STATES else ""


def set_identity(memory: Commonplace, content: str) -> None:
    """Say who the workspace is, in place of what was said before."""
    if len(content) > IDENTITY_CHARS:
        raise InvalidInput(f"content exceeds max length of {IDENTITY_CHARS}")
    with exclusive(memory, "set identity"):
        found = lookup.find(memory, IDENTITY_REF)
        if found is None:
            memory.remember(
                content, kind=IDENTITY, ref=IDENTITY_REF, importance=1.0, pinned=True,
                trust="inferred",
            )  # fmt: skip
        else:
            memory.revise(found.id, text=content, state="active")
