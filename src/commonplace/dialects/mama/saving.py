"""Save decisions and checkpoints, and set the outcome of a decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from commonplace.dialects.contract import Call
from commonplace.dialects.mama import checkpoints, decisions, searching
from commonplace.dialects.mama.presenting import public_id
from commonplace.engine import checks
from commonplace.engine.binding import engine_call
from commonplace.engine.content import chains
from commonplace.engine.content.memories import Draft
from commonplace.engine.model import Memory
from commonplace.errors import InvalidInput, NotFound
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusive, exclusively

MIN_SIMILARITY, NEARLY_SAME = 0.7, 0.85
SIMILAR_SHOWN = 3
COOLDOWN = timedelta(minutes=5)
QUERY_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class SavedDecision:
    """A saved decision with similar decisions and advice for its author."""

    memory: Memory
    similar: list[searching.SearchResult] = field(default_factory=list)
    advice: dict[str, Any] = field(default_factory=dict)


def save_decision(
    call: Call, topic: str | None, decision: str | None, reasoning: str | None, confidence: float
) -> SavedDecision:
    """Store a decision, which supersedes the last one of its topic, with its stated links."""
    values = {"topic": topic, "decision": decision, "reasoning": reasoning}
    missing = [name for name, value in values.items() if not (value or "").strip()]
    if missing:
        raise InvalidInput(
            "Decision requires: topic, decision, reasoning.",
            hint=f"Missing: {', '.join(missing)}.", field=missing[0],
        )  # fmt: skip
    stated = decisions.Decision(topic or "", decision or "", reasoning or "")
    checks.text(stated.text, "topic, decision and reasoning")
    query = f"{stated.topic} {stated.decision}"[:QUERY_CHARS]
    found = searching.found_decisions(call.memory, query, SIMILAR_SHOWN)
    similar = [each for each in found if each.similarity >= MIN_SIMILARITY][:SIMILAR_SHOWN]
    tag = decisions.topic_tag(stated.topic)
    _restore_tag(call, stated.topic, tag, [each.memory for each in found])
    on_topic: dict[str, Any] = {
        "kinds": [decisions.KIND], "tags_all": [tag], "states": decisions.VISIBLE_STATES,
        "limit": 1,
    }  # fmt: skip
    newest, earlier = call.memory.browse(**on_topic)
    draft = Draft(
        text=stated.text, kind=decisions.KIND, ref=decisions.new_id(stated.topic),
        tags=decisions.decision_tags(stated.topic), confidence=confidence, attrs=stated.attrs,
        trust="inferred",
    )  # fmt: skip
    reason = f"Newer decision on {stated.topic}"[:500]
    new, old = engine_call(call.memory, chains.extend, draft, tag, call.memory.origin, reason)
    if old is not None and old.id not in [each.id for each in newest]:
        # another caller has saved a decision since the count
        earlier = call.memory.browse(**on_topic)[1] - 1
    _link_references(call, new, stated.reasoning)
    return SavedDecision(new, similar, _advice(new, old, similar, earlier + 1, stated.topic))


def _restore_tag(call: Call, topic: str, tag: str, found: list[Memory]) -> None:
    """Restore the topic tag of found decisions that lost it, so that the next one supersedes them.

    Another contract may have replaced their tags.
    """
    untagged = [
        each.id for each in found if decisions.topic_of(each) == topic and tag not in each.tags
    ]
    if not untagged:
        return
    with exclusive(call.memory, "restore tag"):
        for identity in untagged:
            tags = call.memory.get(identity, count=False).tags
            if len(tags) < checks.MAX_TAGS:
                call.memory.revise(identity, tags=[*tags, tag])


def _link_references(call: Call, new: Memory, reasoning: str) -> None:
    """Add the links that a reasoning states; ignore references to missing decisions."""
    for relation, target in decisions.references(reasoning):
        other = lookup.find_memory(call.memory, target)
        if other is not None and other.id != new.id and decisions.is_visible(other):
            call.memory.links.add(
                new.id, other.id, relation, weight=1.0,
                reason=f"Auto-detected from reasoning: {relation} reference",
            )  # fmt: skip


def _advice(
    new: Memory,
    old: Memory | None,
    similar: Sequence[searching.SearchResult],
    depth: int,
    topic: str,
) -> dict[str, Any]:
    advice: dict[str, Any] = {}
    if similar:
        best = similar[0]
        warned_recently = old is not None and datetime.now(UTC) - old.created_at < COOLDOWN
        if best.similarity >= NEARLY_SAME and not warned_recently:
            said = decisions.read(best.memory).decision[:50]
            advice["warning"] = (
                f'High similarity ({best.similarity:.0%}) with the existing decision "{said}".'
            )
        advice["collaboration_hint"] = (
            "Related decisions exist. Say in the reasoning how this one relates to them:"
            " builds_on: <id>, debates: <id> or synthesizes: [<id>, <id>]."
        )
    if depth > 1:
        advice["reasoning_graph"] = {"topic": topic, "depth": depth, "latest": public_id(new)}
    return advice


def save_checkpoint(
    call: Call, summary: str | None, next_steps: str, open_files: Sequence[str]
) -> Memory:
    """Store a checkpoint under the next number."""
    if summary is None or not summary.strip():
        raise InvalidInput("Checkpoint requires: summary.", field="summary")
    checkpoint = checkpoints.Checkpoint(summary, next_steps, open_files)
    checks.text(checkpoint.text, "summary and next_steps")
    checks.attrs(checkpoint.attrs, "open_files")
    draft = Draft(
        text=checkpoint.text, kind=checkpoints.KIND, attrs=checkpoint.attrs, trust="inferred"
    )
    return engine_call(
        call.memory, chains.remember_numbered, draft, checkpoints.REF_PREFIX, call.memory.origin
    )


@exclusively
def update_outcome(call: Call, id: str, outcome: str, reason: str | None) -> tuple[str, str]:
    """Set the outcome of a decision; return its id and the stored outcome."""
    stored = decisions.OUTCOMES.get(outcome.strip().upper())
    if stored is None:
        raise InvalidInput(
            "outcome must be success, failed or partial.", hint=f"Got {outcome[:60]!r}.",
            field="outcome",
        )  # fmt: skip
    memory = get_decision(call, id)
    attrs = {**memory.attrs, "outcome": stored, "failure_reason": reason}
    if reason is None:
        del attrs["failure_reason"]
    else:
        checks.attrs(attrs, "reason")
    call.memory.revise(
        memory.id, attrs=attrs, tags=decisions.tags_with_outcome(memory.tags, stored)
    )
    return public_id(memory), stored


def get_decision(call: Call, id: str) -> Memory:
    """Return the decision with this id; raise InvalidInput for a memory of another kind."""
    memory = get_visible(call, id)
    if memory.kind != decisions.KIND:
        stored_by = f", stored by {memory.origin.tool}" if memory.origin.tool else ""
        raise InvalidInput(
            f"{id[:80]} is a memory of kind {memory.kind}{stored_by}, not a decision.",
            hint="Only decisions have an outcome. A search with the type 'decision' finds them.",
            field="id",
        )
    return memory


def get_visible(call: Call, id: str) -> Memory:
    """Return a visible memory by its id; raise NotFound if there is none."""
    memory = lookup.find_memory(call.memory, id) if id.strip() and len(id) <= 500 else None
    if memory is None or not decisions.is_visible(memory):
        raise NotFound(f"Decision not found: {id[:200]}", field="id")
    return call.memory.get(memory.id)  # counts as read
