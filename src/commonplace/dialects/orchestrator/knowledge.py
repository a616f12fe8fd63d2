"""The knowledge graph: facts with the time for which they are valid."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from commonplace.dialects.contract import Call
from commonplace.dialects.orchestrator.answering import LARGE_BYTES, Answer, tool
from commonplace.engine import checks
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content.facts import NoRoom, Role, Room, name_key
from commonplace.engine.model import Fact
from commonplace.errors import InvalidInput, NotFound
from commonplace.platform import lookup

MOST_FACTS = 500
MOST_EVENTS = 100
MAX_ENTITIES = 5_000
MAX_TRIPLES = 50_000
_ROLES: dict[str, Role] = {"both": "any", "outgoing": "subject", "incoming": "object"}


def to_dict(fact: Fact, direction: str = "") -> dict[str, Any]:
    """Return the fields of a triple; an unknown date is an empty string."""
    return {
        "subject": fact.subject,
        "predicate": fact.predicate,
        "object": fact.object,
        "valid_from": date_text(fact.valid_from),
        "valid_to": date_text(fact.valid_to),
        "direction": direction,
        "current": fact.valid_to is None,
    }


def date_text(at: datetime | None) -> str:
    """Format a time as a date, with the time of day unless it is midnight."""
    if at is None:
        return ""
    if (at.hour, at.minute, at.second, at.microsecond) == (0, 0, 0, 0):
        return f"{at:%Y-%m-%d}"
    return at.isoformat().replace("+00:00", "Z")


@tool("read", {"entity": "", "results": [], "count": 0}, response_bytes=LARGE_BYTES)
def memory_kg_query(
    call: Call,
    *,
    entity: Annotated[str, "Of whom or what."],
    as_of: Annotated[str, "Only what was true on this date (YYYY-MM-DD)."] = "",
    direction: Annotated[str, "outgoing, incoming or both."] = "both",
) -> Answer:
    """Query what is known of a person or thing, optionally as of a date."""
    results = facts_about(call.memory, entity, as_of, direction or "both")
    return {"entity": entity, "results": results, "count": len(results)}


def facts_about(
    memory: Commonplace, entity: str, as_of: str = "", direction: str = "both"
) -> list[dict[str, Any]]:
    """Return the facts about a person or thing, newest first."""
    role = _ROLES.get(direction)
    if role is None:
        raise InvalidInput("direction must be outgoing, incoming or both")
    checks.time(as_of or None, "as_of")
    facts = memory.facts.query(entity, role=role, true_at=as_of or None, limit=MOST_FACTS)
    name = name_key(entity)

    def is_subject(fact: Fact) -> bool:
        return fact.subject == entity or name_key(fact.subject) == name

    return [
        to_dict(fact, "outgoing" if role != "object" and is_subject(fact) else "incoming")
        for fact in facts
    ]


def id_of_source(memory: Commonplace, source: str) -> str | None:
    """Return the id of the memory that a source names; None if it is any other text."""
    if not 0 < len(source) <= checks.REF_CHARS:
        return None
    found = lookup.find_memory(memory, source)
    return found.id if found is not None else None


@tool("write", {"triple_id": "", "info": ""}, idempotent=True)
def memory_kg_add(
    call: Call,
    *,
    subject: Annotated[str, "Who or what."],
    predicate: Annotated[str, "The relation, such as works_at."],
    object: Annotated[str, "To whom or what."],
    valid_from: Annotated[str, "Since when it is true (YYYY-MM-DD)."] = "",
    source_closet: Annotated[str, "The drawer that says so."] = "",
) -> Answer:
    """Add a fact to the knowledge graph: subject, predicate, object."""
    attrs = {"source_closet": source_closet} if source_closet else None
    try:
        fact = call.memory.facts.add(
            subject, predicate, object, valid_from=valid_from or None, attrs=attrs,
            memory=id_of_source(call.memory, source_closet), room=Room(MAX_TRIPLES, MAX_ENTITIES),
        )  # fmt: skip
    except NoRoom as error:
        if error.full == "facts":
            message = f"the workspace has {MAX_TRIPLES} triples, the most it may have"
        else:
            message = f"the workspace may have {MAX_ENTITIES} entities, and has {error.counted}"
        raise InvalidInput(message) from None
    return {"triple_id": fact.id, "info": "triple added"}


@tool("write", {"info": ""}, idempotent=True)
def memory_kg_invalidate(
    call: Call,
    *,
    subject: Annotated[str, "Who or what."],
    predicate: Annotated[str, "The relation."],
    object: Annotated[str, "To whom or what."],
    ended: Annotated[str, "Until when it was true (YYYY-MM-DD); today if not given."] = "",
) -> Answer:
    """Mark a fact as no longer true. It stays in the history."""
    at = ended or _default_end(call.memory, subject, predicate, object)
    if not call.memory.facts.close(subject, predicate, object, ended=at):
        raise NotFound("no open triple matched, nothing was invalidated")
    return {"info": "triple invalidated"}


def _default_end(memory: Commonplace, subject: str, predicate: str, object: str) -> datetime:
    """Return the end of a fact that ends today: the start of the day, or now if it began today."""
    at = datetime.now(UTC)
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    facts = memory.facts.query(
        subject, role="subject", predicate=predicate, true_at=at, limit=checks.MAX_LIMIT
    )
    began = [
        fact.valid_from for fact in facts
        if fact.valid_to is None and fact.valid_from and name_key(fact.object) == name_key(object)
    ]  # fmt: skip
    return at if any(each > midnight for each in began) else midnight


@tool("read", {"events": [], "count": 0}, response_bytes=LARGE_BYTES)
def memory_kg_timeline(call: Call, *, entity: Annotated[str, "Only of this one."] = "") -> Answer:
    """List facts by when they began, optionally of one person or thing."""
    events = [
        to_dict(fact) for fact in call.memory.facts.timeline(entity or None, limit=MOST_EVENTS)
    ]
    return {"events": events, "count": len(events)}


@tool(
    "read",
    {"entities": 0, "triples": 0, "current_facts": 0, "expired_facts": 0, "relationship_types": []},
    response_bytes=LARGE_BYTES,
)  # fmt: skip
def memory_kg_stats(call: Call) -> Answer:
    """Get statistics of the knowledge graph: entities, triples, current and expired facts."""
    totals = call.memory.facts.totals()
    return {
        "entities": totals.entities,
        "triples": totals.facts,
        "current_facts": totals.open,
        "expired_facts": totals.facts - totals.open,
        "relationship_types": list(totals.predicates),
    }
