"""Detect the type and the importance of a text by rules over words; the first match wins."""

from __future__ import annotations

import json
import re

_I = re.IGNORECASE


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), _I)


_CORRECTION = _any_of(
    r"\bcorrection\b\s*:", r"\b(?:was|were|is) (?:wrong|incorrect|mistaken)\b", r"\bactually\b",
    r"\bprevious(?:ly)?\b.{0,80}\b(?:incorrect|wrong|mistaken)\b",
    r"\bnot true (?:any ?more|after all)", r"\berratum\b",
)  # fmt: skip
_TASK = _any_of(
    r"\bto-?do\b", r"\bfollow(?:ing)?[- ]up\b", r"\bneeds? to\b", r"\bnext steps?\b", r"\bremind",
    r"\baction items?\b", r"\bdeadline\b", r"\bdue by\b",
)  # fmt: skip
_REFERENCE = _any_of(
    r"\bhttps?://\S", r"\bwww\.\S+\.\S", r"\bRFC ?\d{2,5}\b", r"\bdocs?\s*:", r"\bdoi:\s*10\.",
    r"\bISBN\b", r"\barXiv:\s*\d", r"\bchapter \d+\b", r"\b[A-Z][\w-]+ et al\.", r"\bsee also\b",
    r"\([A-Z][\w-]+,? (?:19|20)\d\d\)",
)  # fmt: skip
_STRATEGY = _any_of(
    r"\bwhen(?:ever)?\b[^.!?\n]{3,120}, (?:always |then |first |never )?"
    r"(?:use|do|try|check|run|ask|start|avoid|prefer|call|write|keep|make|stop|read|test|take"
    r"|choose|add|remove|split|verify)\b",
    r"\bprefer(?:red)? (?:the |an? )?(?:\w+ )?approach\b",
    r"(?<!\bwas )(?<!\bwere )(?<!\bis )(?<!\bare )(?<!\bhas )(?<!\bhave )(?<!\bhad )"
    r"\b(?:always|never) (?!(?:been|had|was|were|is|the|a|seen|heard)\b)[a-z]{2,}",
    r"\bstrateg(?:y|ies|ic)\b", r"\brule of thumb\b", r"\bbest practice\b", r"\bplaybook\b",
)  # fmt: skip
_INSIGHT = _any_of(
    r"\binsight\b", r"\bpatterns?\b", r"\bcorrelat", r"\breali[sz]", r"\bleads? to\b",
    r"\btends? to\b", r"\bturns? out\b", r"\bthe reason (?:is|was|why)\b", r"\broot cause\b",
)  # fmt: skip
_RELATIONSHIP = _any_of(
    r"\buser (?:prefers|likes|dislikes|trusts|appreciates|works with)\b", r"\btrust\b",
    r"\brapport\b", r"\bworks (?:closely )?with\b", r"\breports to\b", r"\bcolleagues? of\b",
    r"\bmarried to\b", r"\bfriends? (?:of|with)\b",
)  # fmt: skip
_CONVERSATION = _any_of(
    r"\bdiscuss(?:ed|ion)\b", r"\buser (?:said|confirmed|wants|asked|mentioned|told)\b",
    r"\bwe (?:talked|spoke|agreed|chatted)\b", r"\bagreed\b", r"\btold me\b",
    r"\bin our (?:call|chat)\b",
)  # fmt: skip

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (_CORRECTION, "correction"),
    (_TASK, "task"),
    (_REFERENCE, "reference"),
    (_STRATEGY, "strategy"),
    (_INSIGHT, "insight"),
    (_RELATIONSHIP, "relationship"),
    (_CONVERSATION, "conversation"),
)
# A bracket at the start, such as [Decision], states the type.
_TYPES_BY_HINT = {
    "fact": "fact", "note": "fact", "decision": "insight", "insight": "insight",
    "pattern": "insight", "lesson": "insight", "conversation": "conversation",
    "meeting": "conversation", "chat": "conversation", "correction": "correction",
    "fix": "correction", "reference": "reference", "source": "reference", "link": "reference",
    "task": "task", "todo": "task", "next": "task", "relationship": "relationship",
    "person": "relationship", "strategy": "strategy", "rule": "strategy", "approach": "strategy",
}  # fmt: skip
_HINT = re.compile(r"\s*\[([A-Za-z]{2,20})\]")
_SEARCHED_CHARS = 20_000

_BASE_IMPORTANCE = {
    "correction": 0.8, "insight": 0.7, "strategy": 0.7, "relationship": 0.65, "task": 0.6,
    "reference": 0.5, "fact": 0.5, "conversation": 0.45, "checkpoint": 0.9,
}  # fmt: skip
_WEIGHTY = _any_of(
    r"\bcritical", r"\bimportant", r"\bdecision\b", r"\bdecided\b", r"\bmust\b", r"\bnever\b",
    r"\broot cause\b",
)  # fmt: skip
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{2,}")
_LONG, _SHORT = 400, 40


def parse_checkpoint(content: str) -> dict[str, object] | None:
    """Return the checkpoint in a content, a JSON object with `checkpoint_name`, or None."""
    if not content.lstrip().startswith("{") or '"checkpoint_name"' not in content:
        return None
    try:
        read = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if isinstance(read, dict) and isinstance(read.get("checkpoint_name"), str):
        return read
    return None


def detect_type(content: str) -> str:
    """Return the type of a text; protected types are never returned."""
    if parse_checkpoint(content) is not None:
        return "checkpoint"
    hint = _HINT.match(content)
    if hint is not None and (meant := _TYPES_BY_HINT.get(hint[1].lower())):
        return meant
    seen = content[:_SEARCHED_CHARS]
    for pattern, meant in _RULES:
        if pattern.search(seen):
            return meant
    return "fact"


def rate_importance(content: str, memory_type: str) -> float:
    """Estimate the importance of a text from its type and its words, from .1 to .95."""
    value = _BASE_IMPORTANCE.get(memory_type, 0.5)
    seen = content[:_SEARCHED_CHARS]
    if _WEIGHTY.search(seen):
        value += 0.1
    if len(content) > _LONG or any(sign.isdigit() for sign in seen) or _NAME.search(seen):
        value += 0.05
    if len(content) < _SHORT:
        value -= 0.15
    return round(min(0.95, max(0.1, value)), 4)
