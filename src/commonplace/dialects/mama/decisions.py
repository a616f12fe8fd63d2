"""A decision: its fields in a memory's text, its id, and the references of its reasoning.

The text has the fields with their labels. Topic and lengths are in the attrs, so that each field is
read back verbatim. Outcome and topic are also tags, for other readers.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from commonplace.engine.checks import TAG_CHARS
from commonplace.engine.model import LIVE_STATES, Memory

KIND = "decision"
STATES = ("active", "dying", "superseded")
"""A superseded decision is still shown, as a part of its topic's history."""

OUTCOMES = {"SUCCESS": "SUCCESS", "FAILED": "FAILED", "FAILURE": "FAILED", "PARTIAL": "PARTIAL"}
TOPIC_TAG, OUTCOME_TAG = "topic:", "outcome:"
SLUG_CHARS = 50
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

_EDGE = re.compile(r"\*{0,2}\b(builds_on|debates|synthesizes)\*{0,2}\s{0,9}:\s{0,9}", re.IGNORECASE)
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TARGET = re.compile(rf"[\s*`\[]{{0,9}}(?P<id>decision_[A-Za-z0-9_-]{{1,400}}|{_UUID})[`*]{{0,3}}")
_COMMA = re.compile(r"\s{0,9},")
REFERENCES = 100


@dataclass(frozen=True, slots=True)
class Decision:
    """The fields of a decision."""

    topic: str
    decision: str
    reasoning: str

    @property
    def text(self) -> str:
        """The text as it is stored, searched and embedded."""
        return f"{_head(self.topic)}{self.decision}{_REASONING}{self.reasoning}"

    @property
    def lengths(self) -> dict[str, Any]:
        """The attrs that say where the parts of a decision end in the stored text."""
        return {"topic": self.topic, "decision_chars": len(self.decision)}


_REASONING = "\nReasoning: "


def _head(topic: str) -> str:
    return f"Topic: {topic}\nDecision: "


def is_visible(memory: Memory) -> bool:
    """Whether this contract shows a memory: a live one, or a decision that was superseded."""
    return memory.state in (STATES if memory.kind == KIND else LIVE_STATES)


def topic_of(memory: Memory) -> str | None:
    """The topic of a decision; None for one that another contract stored."""
    topic, chars = memory.attrs.get("topic"), memory.attrs.get("decision_chars")
    complete = memory.kind == KIND and isinstance(topic, str) and isinstance(chars, int)
    return str(topic) if complete else None


def read(memory: Memory) -> Decision:
    """A memory as a decision; of other memories the whole text is the decision."""
    topic = topic_of(memory)
    if topic is None:
        return Decision(memory.title or memory.kind, memory.text, "")
    head, text = _head(topic), memory.text
    end = len(head) + memory.attrs["decision_chars"]
    if text.startswith(head) and text.startswith(_REASONING, end):
        return Decision(topic, text[len(head) : end], text[end + len(_REASONING) :])
    return Decision(topic, text, "")  # the text was rewritten


def identity(memory: Memory) -> str:
    """The id that this contract shows for a memory that is no checkpoint."""
    if memory.kind == KIND and memory.ref is not None and memory.ref.startswith("decision_"):
        return memory.ref
    return memory.id


def new_identity(topic: str) -> str:
    """decision_<slug>_<milliseconds>_<four digits of base 36>."""
    slug = re.sub(r"[^a-z0-9_]", "", re.sub(r"\s+", "_", topic.strip().lower()))[:SLUG_CHARS]
    salt = "".join(secrets.choice(_DIGITS) for _ in range(4))
    return f"decision_{slug or 'topic'}_{time.time_ns() // 1_000_000}_{salt}"


def topic_tag(topic: str) -> str:
    """The tag that all decisions of exactly this topic carry."""
    whole = TOPIC_TAG + topic
    if len(whole) <= TAG_CHARS:
        return whole
    return f"{whole[:60]}…{hashlib.sha256(topic.encode()).hexdigest()[:32]}"


def tags(topic: str, outcome: str | None = None) -> list[str]:
    """The tags of a decision."""
    return [topic_tag(topic), *([OUTCOME_TAG + outcome.lower()] if outcome else [])]


def retagged(before: Iterable[str], outcome: str) -> list[str]:
    """Tags with another outcome; all other tags stay."""
    return [
        *(tag for tag in before if not tag.startswith(OUTCOME_TAG)),
        OUTCOME_TAG + outcome.lower(),
    ]


def references(reasoning: str) -> list[tuple[str, str]]:
    """The (relation, id) of every reference in a reasoning, each once, in their order."""
    found: dict[tuple[str, str], None] = {}
    for edge in _EDGE.finditer(reasoning):
        relation = edge[1].lower()
        target = _TARGET.match(reasoning, edge.end())
        while target is not None and len(found) < REFERENCES:
            found[relation, target["id"].rstrip("-")] = None
            comma = _COMMA.match(reasoning, target.end()) if relation == "synthesizes" else None
            target = _TARGET.match(reasoning, comma.end()) if comma else None
    return list(found)


def outcome_of(attrs: Mapping[str, Any]) -> str | None:
    """The outcome, if there is one."""
    outcome = attrs.get("outcome")
    return outcome if outcome in OUTCOMES.values() else None
