"""Decisions: the fields in a memory's text, the id, and the references in the reasoning.

The text contains the labelled fields. The attrs contain the topic and the length of the decision,
so that each field is restored verbatim. Outcome and topic are also tags, for other dialects.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from commonplace.engine.checks import MAX_TAGS, TAG_CHARS
from commonplace.engine.model import LIVE_STATES, Memory

KIND = "decision"
VISIBLE_STATES = ("active", "dying", "superseded")
"""The states of decisions that are shown; superseded ones are the history of their topic."""

OUTCOMES = {"SUCCESS": "SUCCESS", "FAILED": "FAILED", "FAILURE": "FAILED", "PARTIAL": "PARTIAL"}
TOPIC_TAG, OUTCOME_TAG = "topic:", "outcome:"
SLUG_CHARS = 50
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"

_EDGE = re.compile(r"\*{0,2}\b(builds_on|debates|synthesizes)\*{0,2}\s{0,9}:\s{0,9}", re.IGNORECASE)
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TARGET = re.compile(rf"[\s*`\[]{{0,9}}(?P<id>decision_[A-Za-z0-9_-]{{1,400}}|{_UUID})[`*]{{0,3}}")
_COMMA = re.compile(r"\s{0,9},")
MAX_REFERENCES = 100


@dataclass(frozen=True, slots=True)
class Decision:
    """The fields of a decision."""

    topic: str
    decision: str
    reasoning: str

    @property
    def text(self) -> str:
        """The text that is stored, searched and embedded."""
        return f"{text_head(self.topic)}{self.decision}{_REASONING}{self.reasoning}"

    @property
    def attrs(self) -> dict[str, Any]:
        """The attrs from which `read` restores the fields."""
        return {"topic": self.topic, "decision_chars": len(self.decision)}


_REASONING = "\nReasoning: "


def text_head(topic: str) -> str:
    """Return the beginning of the text of every decision on a topic."""
    return f"Topic: {topic}\nDecision: "


def is_visible(memory: Memory) -> bool:
    """Return whether a memory is shown: it is live, or a superseded decision."""
    return memory.state in (VISIBLE_STATES if memory.kind == KIND else LIVE_STATES)


def topic_of(memory: Memory) -> str | None:
    """Return the topic of a decision, or None if another contract stored it."""
    topic, chars = memory.attrs.get("topic"), memory.attrs.get("decision_chars")
    complete = memory.kind == KIND and isinstance(topic, str) and isinstance(chars, int)
    return str(topic) if complete else None


def read(memory: Memory) -> Decision:
    """Return the decision of a memory; for another contract, the whole text is the decision."""
    topic = topic_of(memory)
    if topic is None:
        return Decision(memory.title or memory.kind, memory.text, "")
    head, text = text_head(topic), memory.text
    end = len(head) + memory.attrs["decision_chars"]
    if text.startswith(head) and text.startswith(_REASONING, end):
        return Decision(topic, text[len(head) : end], text[end + len(_REASONING) :])
    return Decision(topic, text, "")  # the stored text was changed


def public_id(memory: Memory) -> str:
    """Return the contract's id of a memory other than a checkpoint."""
    if memory.kind == KIND and memory.ref is not None and memory.ref.startswith("decision_"):
        return memory.ref
    return memory.id


def new_id(topic: str) -> str:
    """Return a new id: decision_<slug>_<milliseconds>_<four digits of base 36>."""
    slug = re.sub(r"[^a-z0-9_]", "", re.sub(r"\s+", "_", topic.strip().lower()))[:SLUG_CHARS]
    salt = "".join(secrets.choice(_BASE36) for _ in range(4))
    return f"decision_{slug or 'topic'}_{time.time_ns() // 1_000_000}_{salt}"


def topic_tag(topic: str) -> str:
    """Return the tag of all decisions with exactly this topic."""
    whole = TOPIC_TAG + topic
    if len(whole) <= TAG_CHARS:
        return whole
    return f"{whole[:60]}…{hashlib.sha256(topic.encode()).hexdigest()[:32]}"


def decision_tags(topic: str, outcome: str | None = None) -> list[str]:
    """Return the tags of a decision."""
    return [topic_tag(topic), *([OUTCOME_TAG + outcome.lower()] if outcome else [])]


def tags_with_outcome(before: Iterable[str], outcome: str) -> list[str]:
    """Return the tags with the outcome tag replaced, if there is room for it.

    Other contracts can give a memory as many tags as it may have. The outcome is an attr, too.
    """
    others = [tag for tag in before if not tag.startswith(OUTCOME_TAG)]
    return others if len(others) >= MAX_TAGS else [*others, OUTCOME_TAG + outcome.lower()]


def references(reasoning: str) -> list[tuple[str, str]]:
    """Return the (relation, id) of each distinct reference in a reasoning, in order."""
    found: dict[tuple[str, str], None] = {}
    for edge in _EDGE.finditer(reasoning):
        relation = edge[1].lower()
        target = _TARGET.match(reasoning, edge.end())
        while target is not None and len(found) < MAX_REFERENCES:
            found[relation, target["id"].rstrip("-")] = None
            comma = _COMMA.match(reasoning, target.end()) if relation == "synthesizes" else None
            target = _TARGET.match(reasoning, comma.end()) if comma else None
    return list(found)


def outcome_of(attrs: Mapping[str, Any]) -> str | None:
    """Return the outcome, or None if there is none."""
    outcome = attrs.get("outcome")
    return outcome if outcome in OUTCOMES.values() else None
