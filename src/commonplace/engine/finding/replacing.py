"""What a new statement may replace, found before it is stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commonplace.embedding.provider import cosines
from commonplace.engine import checks
from commonplace.engine.finding.current import LONGEST, SHORTEST, Statement, replacing
from commonplace.engine.finding.filters import Filters
from commonplace.engine.finding.ranking import WORDS_ONLY, Question, highest, lexical
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Memory
from commonplace.storage.tables import MEMORIES

HINT = 0.7  # less probable replacements are not returned
LOOKED_AT = 10


@dataclass(frozen=True, slots=True)
class Replaceable:
    """A memory that a new statement may replace, and how probable that is."""

    memory: Memory
    probability: float


def may_replace(
    space: OpenSpace, text: str, filters: Filters, *, limit: int, check: bool
) -> list[Replaceable]:
    """Return the memories that a new statement may replace, the most probable first.

    They are found by words, and by meaning too if `check` is True, which takes an embedding. These
    are hints for an agent or a person, who can then store the text with `supersede`.
    """
    checks.flag(check, "check")
    checks.limit(limit)
    checks.text(text)
    if len(text) > LONGEST or len(text.split()) < SHORTEST:
        return []
    new = Statement.of(text)
    if not new.brief:
        return []
    asked = Question(space, text)
    vector = asked.vector(text) if check else None
    with space.view() as (connection, snapshot):
        seen = filters.mask(snapshot, connection, space.name)
        words = lexical(snapshot, sorted(new.words), WORDS_ONLY)[0]
        near = set(highest(words, seen & (words > 0), LOOKED_AT).tolist())
        if vector is not None:
            meaning = snapshot.cosine(*vector)
            near |= set(highest(meaning, seen & snapshot.embedded, LOOKED_AT).tolist())
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
        chance = replacing(Statement.of(row["text"]), new, alike.get(place))
        if chance >= HINT:
            found.append(Replaceable(Memory.of(row), chance))
    return sorted(found, key=lambda each: -each.probability)[:limit]
