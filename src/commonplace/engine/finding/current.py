"""Estimate whether a newer statement replaces an older one, so that the current one ranks first.

Two memories that say the same kind of thing about the same subject differ in a number, a name, a
negation, or a verb of change ("moved", "no longer"). The probability that the newer one replaces
the older is computed from these differences and from their similarity. `bench/choosing.py` fits the
constants on labelled pairs (`bench/updates.txt`), of which many replace nothing. `may_replace`
finds the memories that a new statement would replace, before it is stored;
`engine/finding/arranging.py` compares search results.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from commonplace.embedding.provider import cosines
from commonplace.engine import checks
from commonplace.engine.content.projects import Project
from commonplace.engine.finding.ranking import Question
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Memory
from commonplace.storage.index import highest_positions
from commonplace.storage.tables import MEMORIES
from commonplace.text.analysis import analyse

LONGEST = 600  # longer texts say more than one thing, so nothing is concluded from them
SHORTEST = 2  # in words; a single word states nothing
PARALLEL = 0.6  # from this share of common words at both ends on, only a value may differ
DENIED = 0.75  # a negation of a statement has at least this share of its words
POOL = 20  # how many of the best results are compared
LEADERS = 5  # for this many of the best results, a newer statement is searched for
RANK_FIRST = 0.35  # from this probability on, the newer statement ranks first
SHARED_WEIGHT = 0.5  # two statements of the same thing are alike or share words:
LEAST_ALIKE_AND_SHARED = 0.45  # their cosine, and half of the share of common words
RETURN_HINT = 0.7  # from this probability on, `may_replace` returns a memory
COMPARED_MEMORIES = 10  # how many memories `may_replace` compares by words, and how many by meaning
MARK_REPLACED = (
    0.9  # from this probability on, a result is marked as replaced; below, it gets a hint
)
REPORTED_WORDS = 16  # nothing is reported for longer texts; labelled ones have at most 12 words
CACHED_STATEMENTS = (
    4_096  # how many analysed statements are cached, because searches find the same ones again
)

# Weights for the order of two results, fitted on labelled pairs with a query.
ORDER_WEIGHTS = {
    "constant": -6.5, "alike": 8.5, "shared": 3.4, "changes": 2.0, "negated": 4.4, "event": 2.0,
    "name_lost": -3.1, "parallel": -9.5, "new_value": 11.0,
}  # fmt: skip
# Weights for reports: for marks of results (CLAIMED), and for hints with vectors (ALONE) and
# without (BY_WORDS). They were also fitted on lines of conversations, which have names, changes
# and negations, and replace nothing.
MARK_WEIGHTS = {
    "constant": -4.8, "alike": 3.1, "shared": 2.7, "changes": 2.1, "negated": 0.4, "event": 1.8,
    "name_lost": -2.3, "parallel": -2.4, "new_value": 5.6,
}  # fmt: skip
HINT_WEIGHTS = {
    "constant": -5.6, "alike": 4.7, "shared": 1.4, "changes": 2.0, "denied": 2.0,
    "new_name": 1.1, "event": 1.7, "parallel": -2.3, "new_value": 3.9,
}  # fmt: skip
HINT_WEIGHTS_BY_WORDS = {
    "constant": -3.1, "shared": 1.9, "changes": 2.0, "denied": 1.9, "new_name": 0.7,
    "event": 1.6, "parallel": -1.8, "new_value": 4.5,
}  # fmt: skip

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
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Statement:
    """A text, and its parts that are compared."""

    sequence: tuple[str, ...]
    """Its words in order."""
    words: frozenset[str]
    names: frozenset[str]
    negated: bool
    changes: bool
    past: bool
    brief: bool
    """Whether it is short enough for a report, and no question."""

    @staticmethod
    @lru_cache(CACHED_STATEMENTS)
    def of(text: str) -> Statement:
        """Analyse a text."""
        return Statement(
            tuple(_WORD.findall(text.lower())),
            frozenset(analyse(text)),
            names_of(text),
            _NEGATION.search(text) is not None,
            _CHANGE.search(text) is not None,
            _PAST.search(text) is not None,
            is_brief(text),
        )


@dataclass(frozen=True, slots=True)
class Replaceable:
    """A memory that a new statement may replace, and how probable that is."""

    memory: Memory
    probability: float


def may_replace(
    space: OpenSpace, text: str, project: Project | None, *, limit: int, check: bool
) -> list[Replaceable]:
    """Return the memories that a new statement may replace, the most probable first.

    They are found by words, and with `check` also by meaning, which takes an embedding. They are
    hints for an agent or a person, who can then store the text with `supersede`.
    """
    checks.flag(check, "check")
    checks.limit(limit)
    checks.text(text)
    if len(text) > LONGEST or len(text.split()) < SHORTEST or not is_brief(text):
        return []
    new = Statement.of(text)
    vector = Question(space, text).vector(text) if check else None
    with space.view() as (connection, snapshot):
        seen = snapshot.live
        if project is not None:
            seen = seen & snapshot.in_project(project.admits)
        words = snapshot.bm25([(term, 1.0) for term in sorted(new.words)]).bm25
        near = set(highest_positions(words, seen & (words > 0), COMPARED_MEMORIES).tolist())
        if vector is not None:
            meaning = snapshot.cosine(*vector)
            near |= set(
                highest_positions(meaning, seen & snapshot.embedded, COMPARED_MEMORIES).tolist()
            )
        places = sorted(near)
        rows = MEMORIES.by_nums(connection, space.name, snapshot.num[places].tolist())
        alike: dict[int, float] = {}
        if vector is not None and space.embedder is not None and len(snapshot.owner):
            at, has = snapshot.first_vectors(places)
            own = vector[0].astype(np.float32)[None, :]
            values = cosines(space.embedder.id, own, snapshot.vectors[at].astype(np.float32))[0]
            alike = {p: float(v) for p, v, h in zip(places, values, has, strict=True) if h}
    found = []
    for place in places:
        row = rows.get(int(snapshot.num[place]))
        if row is None or len(row["text"]) > LONGEST or row["text"] == text:
            continue
        if not is_brief(row["text"]):
            continue
        chance = replacement_probability(Statement.of(row["text"]), new, alike.get(place))
        if chance >= RETURN_HINT:
            found.append(Replaceable(Memory.of(row), chance))
    return sorted(found, key=lambda each: -each.probability)[:limit]


def is_brief(text: str) -> bool:
    """Return whether a text is short enough for a report, and no question."""
    return "?" not in text and len(_WORD.findall(text.lower())) <= REPORTED_WORDS


def names_of(text: str) -> frozenset[str]:
    """Return the words of a text that are names, by their capitals inside sentences."""
    return frozenset(_NAME.findall(text))


def replacement_probability(older: Statement, newer: Statement, alike: float | None) -> float:
    """Return how probable it is that a statement replaces an older one.

    `alike` is the cosine of the two; None if one has no vector, so that only words count.
    """
    if not (older.brief and newer.brief):
        return 0.0
    parts = _feature_values(older, newer)
    if alike is None:
        return _logistic(HINT_WEIGHTS_BY_WORDS, parts)
    return _logistic(HINT_WEIGHTS, {**parts, "alike": alike})


def replacement_probabilities(
    older: Statement,
    newer: Statement,
    alike: float | None,
    names: Collection[str],
    terms: Collection[str],
) -> tuple[float, float]:
    """Return two probabilities that a result of a query replaces an older one.

    The first one decides the order of the two results, the second one what is reported about them.


    `names` and `terms` are those of the query. The same sentence with another value replaces the
    older one, unless the query names what differs: "The lamp cost 40" and "The rug cost 120" are
    both true. Without vectors, the second probability stays below `MARK_REPLACED`; for long texts
    and questions, it is 0.
    """
    parts = _feature_values(older, newer)
    if any(term in older.words and term not in newer.words for term in terms):
        parts["new_value"] = 0.0
    parts["alike"] = parts["shared"] if alike is None else alike
    if parts["alike"] + SHARED_WEIGHT * parts["shared"] < LEAST_ALIKE_AND_SHARED:
        return 0.0, 0.0
    parts["name_lost"] = float(bool(older.names.difference(names)) and not newer.names)
    reported = _logistic(MARK_WEIGHTS, parts) if older.brief and newer.brief else 0.0
    # Words alone do not tell "heron at large" and "heron at home" from a fact and its update.
    return _logistic(ORDER_WEIGHTS, parts), reported if alike is not None else min(
        reported, MARK_REPLACED - 0.01
    )


def _parallel_share(words: Sequence[str], others: Sequence[str]) -> float:
    """Return the share of words that two texts have in common at their beginning and end."""
    fewer = min(len(words), len(others))
    if not fewer or (words[0] != others[0] and words[-1] != others[-1]):
        return 0.0
    first = next((at for at in range(fewer) if words[at] != others[at]), fewer)
    left = range(1, fewer - first + 1)
    last = next((at - 1 for at in left if words[-at] != others[-at]), fewer - first)
    return (first + last) / max(len(words), len(others))


def _feature_values(older: Statement, newer: Statement) -> dict[str, float]:
    fewer = min(len(older.words), len(newer.words))
    parallel = _parallel_share(older.sequence, newer.sequence)
    shared = len(older.words & newer.words) / fewer if fewer else 0.0
    negated = older.negated != newer.negated
    return {
        "shared": shared,
        "changes": float(newer.changes),
        "negated": float(negated),
        "denied": float(negated and shared >= DENIED),
        "new_name": float(bool(newer.names - older.names)),
        "event": float(newer.past and not older.past),
        "parallel": parallel,
        "new_value": float(parallel >= PARALLEL),
    }


def _logistic(weights: Mapping[str, float], parts: Mapping[str, float]) -> float:
    total = weights["constant"]
    for name, value in parts.items():
        if value:
            total += weights.get(name, 0.0) * value
    return 1 / (1 + math.exp(-total))
