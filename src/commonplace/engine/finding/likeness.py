"""Similarity in meaning of memories and texts, calibrated to 0 to 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from commonplace.embedding.provider import calibrate, cosines, knows_script
from commonplace.engine import checks
from commonplace.engine.content.memories import need_row
from commonplace.engine.finding.filters import Filters
from commonplace.engine.library import OpenSpace
from commonplace.storage.index import Snapshot, highest_positions
from commonplace.storage.ports import Rows
from commonplace.storage.tables import CLUSTERS, MEMORIES
from commonplace.text.analysis import analyse
from commonplace.text.scripts import dominant_script

Matrix = NDArray[np.float32]


def similarity(space: OpenSpace, text: str, others: Sequence[str]) -> list[float]:
    """Compare a text with other texts, by words if no model supports its script."""
    for each in (text, *others):
        checks.text(each, "text")
    if _supports_script(space, text) and space.embedder is not None and others:
        vectors = space.embedder.embed([text, *others])
        raw = cosines(space.embedder.id, vectors[:1], vectors[1:])[0]
        likeness = calibrate(raw, space.embedder.id, dominant_script(text))
        return [float(value) for value in likeness]
    words = set(analyse(text))
    found = []
    for other in others:
        theirs = set(analyse(other))
        found.append(len(words & theirs) / len(words | theirs) if words | theirs else 0.0)
    return found


def similarities_among(space: OpenSpace, nums: Sequence[int]) -> Matrix:
    """Compare memories with each other, by words where there is no vector or no known script."""
    with space.view() as (connection, snapshot):
        texts, vectors, known = _texts_and_vectors(space, connection, snapshot, nums)
    likeness = _calibrated_similarities(space, vectors, vectors, texts)
    if not known.all():
        words = [frozenset(analyse(text)) for text in texts]
        for i, j in np.argwhere(~(known[:, None] & known[None, :])):
            fewer = min(len(words[i]), len(words[j]))
            likeness[i, j] = len(words[i] & words[j]) / fewer if fewer else 0.0
    return likeness


def similarities_to_clusters(
    space: OpenSpace, nums: Sequence[int], clusters: Sequence[str]
) -> Matrix:
    """Compare memories with the centroids of clusters; 0 where a vector is missing."""
    with space.view() as (connection, snapshot):
        texts, vectors, known = _texts_and_vectors(space, connection, snapshot, nums)
        centroids = np.zeros((len(clusters), vectors.shape[1]), np.float32)
        for i, cluster in enumerate(clusters):
            row = CLUSTERS.by_id(connection, space.name, cluster)
            if row is not None and row["centroid"] is not None:
                centroid = np.frombuffer(row["centroid"], "<f4")
                # A centroid of another size was made by another model.
                if len(centroid) == vectors.shape[1]:
                    centroids[i] = centroid
    likeness = _calibrated_similarities(space, vectors, centroids, texts)
    likeness[~known] = 0
    likeness[:, ~centroids.any(axis=1)] = 0
    return likeness


def similar_pairs(
    space: OpenSpace,
    identities: Sequence[str],
    filters: Filters,
    *,
    limit: int = 3,
    least: float = 0.7,
) -> list[tuple[str, str, float]]:
    """Return (memory, similar memory, similarity) for similarities above `least`.

    Each pair is returned once, the most similar first.
    """
    found: dict[tuple[str, str], float] = {}
    embedder = space.embedder
    with space.view() as (connection, snapshot):
        rows = [need_row(connection, space.name, identity) for identity in identities]
        if embedder is None:
            return []
        mask = filters.mask(snapshot, connection, space.name) & snapshot.embedded
        for row in rows:
            here = np.flatnonzero(snapshot.alive & (snapshot.num == row["num"]))
            passages = np.flatnonzero(np.isin(snapshot.owner, here))
            if not len(passages) or not _supports_script(space, row["text"]):
                continue
            cosine = np.zeros(snapshot.size, np.float32)
            for passage in passages.tolist():
                own = snapshot.cosine(snapshot.vectors[passage], float(snapshot.scales[passage]))
                np.maximum(cosine, own, out=cosine)
            top = highest_positions(cosine, mask & (snapshot.num != row["num"]), limit)
            likeness = calibrate(cosine[top], embedder.id, dominant_script(row["text"]))
            nums = snapshot.num[top].tolist()
            others = MEMORIES.by_nums(connection, space.name, nums)
            for num, value in zip(nums, likeness.tolist(), strict=True):
                pair = (row["id"], others[num]["id"])
                if value > least and pair[::-1] not in found:
                    found[pair] = value
    ranked = sorted(found.items(), key=lambda item: -item[1])
    return [(one, other, value) for (one, other), value in ranked]


def _texts_and_vectors(
    space: OpenSpace, connection: Rows, snapshot: Snapshot, nums: Sequence[int]
) -> tuple[list[str], Matrix, NDArray[np.bool_]]:
    """Return texts and vectors, and whether each memory has a vector and a supported script."""
    rows = MEMORIES.by_nums(connection, space.name, nums)
    texts = [rows[num]["text"] if num in rows else "" for num in nums]
    vectors, has = _first_vectors(snapshot, nums)
    return (
        texts,
        vectors,
        np.array([_supports_script(space, text) for text in texts], np.bool_) & has,
    )


def _first_vectors(snapshot: Snapshot, nums: Sequence[int]) -> tuple[Matrix, NDArray[np.bool_]]:
    """Return the vector of each memory's first passage, and whether it has one."""
    found = np.zeros((len(nums), sum(part.dimensions for part in snapshot.parts)))
    has = np.zeros(len(nums), np.bool_)
    first = np.flatnonzero(np.diff(snapshot.owner, prepend=-1))
    first = first[snapshot.alive[snapshot.owner[first]]]
    if not len(first) or not len(nums):
        return found.astype(np.float32), has
    owners = snapshot.num[snapshot.owner[first]]
    order = np.argsort(owners)
    at = order[np.minimum(np.searchsorted(owners[order], nums), len(order) - 1)]
    has = owners[at] == np.asarray(nums)
    found[has] = snapshot.vectors[first[at[has]]]
    return found.astype(np.float32), has


def _supports_script(space: OpenSpace, text: str) -> bool:
    return space.embedder is not None and knows_script(space.embedder.id, dominant_script(text))


def _calibrated_similarities(
    space: OpenSpace, vectors: Matrix, others: Matrix, texts: Sequence[str]
) -> Matrix:
    """Compare vectors of texts with other vectors; return calibrated similarities."""
    result = np.zeros((len(vectors), len(others)), np.float32)
    if space.embedder is None or not result.size or not vectors.shape[1]:
        return result
    raw = cosines(space.embedder.id, vectors, others)
    scripts = [dominant_script(text) for text in texts]
    for script in set(scripts):
        rows = [i for i, each in enumerate(scripts) if each == script]
        result[rows] = calibrate(raw[rows], space.embedder.id, script)
    return result
