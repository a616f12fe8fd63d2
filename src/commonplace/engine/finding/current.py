"""The current statement before the outdated one.

Two memories that say the same kind of thing of the same subject differ in a number, a name, a
negation, or in a verb of change ("moved", "no longer"). From this and from how alike they are
follows a probability that the newer one replaces the older. `bench/choosing.py` fits the constants
on labelled pairs (`bench/updates.txt`), of which many replace nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from commonplace.text.analysis import analyse

LONGEST = 600  # longer texts say more than one thing, so nothing is concluded from them
SHORTEST = 2  # a single word states nothing
POOL = 20  # so many of the best results are compared
LEADERS = 5  # a newer statement is looked for to so many of the best results
FIRST = 0.35  # from this probability on, the newer one ranks first
CLAIM = 0.9  # from this one on, it is said to replace the older

# Fitted on the pairs with their questions, on the pairs alone, and on the pairs without vectors.
ASKED = {
    "constant": -10.4, "ratio": 4.9, "alike": 5.6, "shared": 2.7, "lost": 2.5, "changes": 1.5,
    "negated": 2.1, "lost_name": -2.8, "new_name": 1.7, "event": 1.4,
}  # fmt: skip
ALONE = {
    "constant": -6.9, "alike": 7.1, "shared": 2.0, "changes": 1.6, "negated": 2.2,
    "new_name": 0.8, "event": 1.7,
}  # fmt: skip
BY_WORDS = {"constant": -3.2, "shared": 4.5, "changes": 1.6, "negated": 2.0, "event": 1.0}

_CHANGE = re.compile(
    r"\b(?:now|no longer|any ?more|any longer|instead|after all|these days|lately|in future|as of"
    r"|from (?:now|today)|switch(?:ed)?|mov(?:ed|ing)|chang(?:ed|es)|replac(?:ed|es)|bec[ao]me"
    r"|start(?:ed)?|stop(?:ped)?|quit|cancell?ed|left|joined|since|new|again|took over|take over"
    r"|took the place|migrated|upgraded|raised|extended|renewed|gave up|dropped|swapped|sold|bought"
    r"|closed|finally|already|back|ported|retired|transferred|relocated|reset|bumped|grown|grew"
    r"|reached|begun|got|just)\b",
    re.IGNORECASE,
)
_NEGATION = re.compile(
    r"\b(?:not|no|never|none|without|cannot|forbidden|disabled|closed)\b|n['’]t\b", re.IGNORECASE
)
_PAST = re.compile(
    r"\b(?:\w{2,}ed|was|were|had|got|gave|took|made|went|came|left|sold|bought|began|begun|became"
    r"|grew|grown|chose|put|cut|sent|lent|won|lost|met|found|told|said|did|has|have)\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<=[^.!?] )[A-Z]\w+")


@dataclass(frozen=True, slots=True)
class Statement:
    """A text with what is compared of it."""

    text: str
    words: frozenset[str]
    names: frozenset[str]
    negated: bool
    changes: bool
    past: bool

    @classmethod
    def of(cls, text: str) -> Statement:
        """Analyse a text."""
        return cls(
            text,
            frozenset(analyse(text)),
            frozenset(_NAME.findall(text)),
            _NEGATION.search(text) is not None,
            _CHANGE.search(text) is not None,
            _PAST.search(text) is not None,
        )


def replacing(older: Statement, newer: Statement, alike: float | None) -> float:
    """Return how probable it is that a statement replaces an older one.

    `alike` is the cosine of the two; None if one has no vector, so that only words count.
    """
    parts = _differences(older, newer)
    if alike is None:
        return _logistic(BY_WORDS, parts)
    return _logistic(ALONE, {**parts, "alike": alike})


def replacing_asked(
    older: Statement,
    newer: Statement,
    alike: float | None,
    query: str,
    rarities: Mapping[str, float],
    ratio: float,
) -> float:
    """Return the same for a query that both answer.

    `rarities` has the terms of the query, and `ratio` is the newer one's score to the older one's.
    """
    parts = _differences(older, newer)
    lost = sum(r for t, r in rarities.items() if t in older.words and t not in newer.words)
    missed = any(n in older.text and n not in newer.text for n in _NAME.findall(query))
    parts |= {
        "ratio": min(ratio, 1.3),
        "alike": parts["shared"] if alike is None else alike,
        "lost": lost / (sum(rarities.values()) or 1.0),
        "lost_name": float(missed),
    }
    return _logistic(ASKED, parts)


def _differences(older: Statement, newer: Statement) -> dict[str, float]:
    fewer = min(len(older.words), len(newer.words))
    return {
        "shared": len(older.words & newer.words) / fewer if fewer else 0.0,
        "changes": float(newer.changes),
        "negated": float(older.negated != newer.negated),
        "new_name": float(bool(newer.names - older.names)),
        "event": float(newer.past and not older.past),
    }


def _logistic(weights: Mapping[str, float], parts: Mapping[str, float]) -> float:
    total = weights["constant"] + sum(weights.get(name, 0.0) * v for name, v in parts.items())
    return 1 / (1 + math.exp(-total))
