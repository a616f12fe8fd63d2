"""Find facts that contradict or update known facts, by comparing their words."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

MIN_SIMILARITY = 0.6
LEADING_WORDS = 3  # two facts with so many equal first words, except stop words, are an update

_WORD = re.compile(r"[\w']+")
_UPDATE = re.compile(
    r"\b(now|promoted|changed|upgraded|moved|switched|new|former|formerly|previous|previously"
    r"|updated|replaced|no longer|instead)\b|\bwas\b.*\bis\b",
    re.I,
)
_NEGATION = re.compile(r"\b(not|never|no|cannot|can't|won't|without)\b", re.I)
_STOP_WORDS = frozenset(
    ["a", "an", "the", "is", "are", "was", "were", "be", "of", "in", "on", "at", "to", "for", "and"]
)


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A fact of another memory that a new fact updates or contradicts."""

    memory_id: str
    existing_fact: str
    new_fact: str
    kind: Literal["update", "conflict"]


def bullet_facts(text: str) -> list[str]:
    """Return the bullet points of a text, except checkboxes."""
    lines = (line.strip() for line in text.splitlines())
    return [
        line[2:].strip() for line in lines if line.startswith("- ") and not line.startswith("- [")
    ]


def find_contradictions(
    new: Sequence[str], known: Sequence[tuple[str, str]]
) -> list[Contradiction]:
    """Compare new facts with known ones, given as (memory id, fact)."""
    weights = _inverse_frequency([_words(fact) for fact in (*new, *(fact for _, fact in known))])
    vectors = [(identity, fact, _vector(fact, weights)) for identity, fact in known]
    found = []
    for fact in new:
        own = _vector(fact, weights)
        for identity, other, vector in vectors:
            same = _words(fact) == _words(other)
            if not same and _cosine(own, vector) >= MIN_SIMILARITY:
                found.append(Contradiction(identity, other, fact, _contradiction_kind(other, fact)))
    return found


def _contradiction_kind(existing: str, new: str) -> Literal["update", "conflict"]:
    flipped = bool(_NEGATION.search(existing)) != bool(_NEGATION.search(new))
    significant = [
        [word for word in _words(fact) if word not in _STOP_WORDS][:LEADING_WORDS]
        for fact in (existing, new)
    ]
    begins_alike = len(significant[1]) == LEADING_WORDS and significant[0] == significant[1]
    return "update" if _UPDATE.search(new) or flipped or begins_alike else "conflict"


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _inverse_frequency(documents: Sequence[Sequence[str]]) -> dict[str, float]:
    counts = Counter(word for words in documents for word in set(words))
    return {
        word: math.log((1 + len(documents)) / (1 + count)) + 1 for word, count in counts.items()
    }


def _vector(text: str, weights: dict[str, float]) -> dict[str, float]:
    return {word: count * weights[word] for word, count in Counter(_words(text)).items()}


def _cosine(one: dict[str, float], other: dict[str, float]) -> float:
    product = sum(weight * other.get(word, 0.0) for word, weight in one.items())
    sizes = math.sqrt(sum(w * w for w in one.values()) * sum(w * w for w in other.values()))
    return product / sizes if sizes else 0.0
