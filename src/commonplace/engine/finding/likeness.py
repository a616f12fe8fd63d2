"""Which memories mean nearly the same, told from the vectors that are stored with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from commonplace.embedding.provider import calibrated, knows_script
from commonplace.engine.content.memories import need_row
from commonplace.engine.finding.filters import Filters
from commonplace.engine.finding.scoring import highest
from commonplace.engine.library import OpenSpace
from commonplace.storage.index import Snapshot
from commonplace.storage.tables import MEMORIES
from commonplace.text.scripts import dominant_script


def alike(
    space: OpenSpace,
    identities: Sequence[str],
    filters: Filters,
    *,
    limit: int = 3,
    least: float = 0.7,
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
            own = _standing(snapshot, row["num"])
            if own is None or not knows_script(embedder.id, script):
                continue
            cosine = np.zeros(snapshot.size, np.float32)
            for vector, scale in zip(*own, strict=True):
                leg = snapshot.cosine(vector, float(scale))
                np.maximum(cosine, leg, out=cosine)
            top = highest(cosine, mask & (snapshot.num != row["num"]), limit)
            likeness = calibrated(cosine[top], embedder.id, script)
            rows = MEMORIES.by_nums(connection, space.name, snapshot.num[top].tolist())
            for num, value in zip(snapshot.num[top].tolist(), likeness.tolist(), strict=True):
                pair = (row["id"], rows[num]["id"])
                if value > least and pair[::-1] not in found:
                    found[pair] = value
    ranked = sorted(found.items(), key=lambda item: -item[1])
    return [(one, other, value) for (one, other), value in ranked]


def _standing(snapshot: Snapshot, num: int) -> tuple[NDArray[np.int8], NDArray[np.float32]] | None:
    """A memory's vectors and their scales, one a passage."""
    here = np.flatnonzero(snapshot.alive & (snapshot.num == num))
    passages = np.flatnonzero(np.isin(snapshot.owner, here))
    return (snapshot.vectors[passages], snapshot.scales[passages]) if len(passages) else None
