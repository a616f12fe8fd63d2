"""Which memories mean nearly the same, told from the vectors that are stored with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commonplace.embedding.calibration import calibrated, knows_script
from commonplace.engine.filters import Filters
from commonplace.engine.memories import need_row
from commonplace.engine.opened import OpenSpace
from commonplace.engine.scoring import highest
from commonplace.storage.tables import MEMORIES
from commonplace.text.scripts import dominant_script


def alike(
    space: OpenSpace, identities: Sequence[str], filters: Filters, *, limit: int, least: float
) -> list[tuple[str, str, float]]:
    """(memory, one like it, calibrated likeness above `least`), each pair once, best first."""
    found: dict[tuple[str, str], float] = {}
    embedder = space.embedder
    with space.view() as (connection, snapshot):
        asked = [need_row(connection, space.name, identity) for identity in identities]
        if embedder is None:
            return []
        mask = filters.mask(snapshot, connection, space.name) & snapshot.embedded
        for row in asked:
            script = dominant_script(row["text"])
            here = np.flatnonzero(snapshot.alive & (snapshot.num == row["num"]))
            passages = np.flatnonzero(np.isin(snapshot.owner, here))
            if not len(passages) or not knows_script(embedder.id, script):
                continue
            cosine = np.zeros(snapshot.size, np.float32)
            for at in passages.tolist():
                leg = snapshot.cosine(snapshot.vectors[at], float(snapshot.scales[at]))
                np.maximum(cosine, leg, out=cosine)
            others = mask.copy()
            others[here] = False
            top = highest(cosine, others, limit)
            likeness = calibrated(cosine[top], embedder.id, script)
            rows = MEMORIES.by_nums(connection, space.name, snapshot.num[top].tolist())
            for num, value in zip(snapshot.num[top].tolist(), likeness.tolist(), strict=True):
                pair = (row["id"], rows[num]["id"])
                if value > least and pair[::-1] not in found:
                    found[pair] = value
    ranked = sorted(found.items(), key=lambda item: -item[1])
    return [(one, other, value) for (one, other), value in ranked]
