"""Many memories at a glance: their standing, and how alike they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commonplace.embedding.provider import calibrated, knows_script
from commonplace.engine.finding.filters import Filters
from commonplace.engine.library import OpenSpace
from commonplace.storage.index import STATES, Snapshot
from commonplace.storage.ports import Rows
from commonplace.storage.tables import CLUSTERS, MEMORIES
from commonplace.text.analysis import analyse
from commonplace.text.scripts import dominant_script

Matrix = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Census:
    """One entry a memory in each array, in the order of their numbers."""

    num: NDArray[np.int64]
    importance: NDArray[np.float32]
    pinned: NDArray[np.bool_]
    state: tuple[str, ...]


def census(space: OpenSpace, filters: Filters) -> Census:
    """Return columns of every memory that passes the filters, without reading its row."""
    with space.view() as (connection, snapshot):
        at = np.flatnonzero(filters.mask(snapshot, connection, space.name))
        at = at[np.argsort(snapshot.num[at])]
        return Census(
            snapshot.num[at],
            snapshot.importance[at],
            snapshot.pinned[at],
            tuple(STATES[code] for code in snapshot.state[at].tolist()),
        )


def among(space: OpenSpace, nums: Sequence[int]) -> Matrix:
    """How alike memories are to each other: by meaning, or by words where that is not known."""
    with space.view() as (connection, snapshot):
        texts, vectors, has = _texts_and_vectors(space, connection, snapshot, nums)
    likeness = _calibrated(space, vectors @ vectors.T, texts)
    known = np.array([_knows(space, text) for text in texts], np.bool_) & has
    if not known.all():
        words = [frozenset(analyse(text)) for text in texts]
        for i, j in np.argwhere(~(known[:, None] & known[None, :])):
            likeness[i, j] = _shared(words[i], words[j])
    return likeness


def to_clusters(space: OpenSpace, nums: Sequence[int], clusters: Sequence[str]) -> Matrix:
    """How alike memories are to clusters; 0 where meaning cannot say."""
    with space.view() as (connection, snapshot):
        texts, vectors, has = _texts_and_vectors(space, connection, snapshot, nums)
        centroids = np.zeros((len(clusters), vectors.shape[1]), np.float32)
        for i, cluster in enumerate(clusters):
            row = CLUSTERS.by_id(connection, space.name, cluster)
            if row is not None and row["centroid"] is not None:
                centroid = np.frombuffer(row["centroid"], "<f4")
                if len(centroid) == vectors.shape[1]:  # else it is of another model
                    centroids[i] = centroid
    likeness = _calibrated(space, vectors @ centroids.T, texts)
    known = np.array([_knows(space, text) for text in texts], np.bool_) & has
    likeness[~known] = 0
    likeness[:, ~centroids.any(axis=1)] = 0
    return likeness


def _texts_and_vectors(
    space: OpenSpace, connection: Rows, snapshot: Snapshot, nums: Sequence[int]
) -> tuple[list[str], Matrix, NDArray[np.bool_]]:
    """Texts and vectors of memories, and whether each has a vector."""
    rows = MEMORIES.by_nums(connection, space.name, nums)
    return [rows[num]["text"] if num in rows else "" for num in nums], *_vectors(snapshot, nums)


def _vectors(snapshot: Snapshot, nums: Sequence[int]) -> tuple[Matrix, NDArray[np.bool_]]:
    """The first passage's vector of each memory, of length 1, and whether it has one."""
    found = np.zeros((len(nums), snapshot.vectors.shape[1] if snapshot.vectors.ndim > 1 else 0))
    has = np.zeros(len(nums), np.bool_)
    if not len(snapshot.owner) or not len(nums):
        return found.astype(np.float32), has
    first = np.flatnonzero(np.diff(snapshot.owner, prepend=-1))
    first = first[snapshot.alive[snapshot.owner[first]]]
    owners = snapshot.num[snapshot.owner[first]]
    order = np.argsort(owners)
    place = np.minimum(np.searchsorted(owners[order], nums), len(order) - 1) if len(order) else None
    if place is None:
        return found.astype(np.float32), has
    passage = first[order[place]]
    has = owners[order[place]] == np.asarray(nums)
    found[has] = snapshot.vectors[passage[has]].astype(np.float32)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return (found / np.where(lengths == 0, 1, lengths)).astype(np.float32), has


def _knows(space: OpenSpace, text: str) -> bool:
    return space.embedder is not None and knows_script(space.embedder.id, dominant_script(text))


def _calibrated(space: OpenSpace, cosines: Matrix, texts: Sequence[str]) -> Matrix:
    if space.embedder is None or not cosines.size:
        return np.zeros_like(cosines)
    scripts = [dominant_script(text) for text in texts]
    result = np.empty_like(cosines)
    for script in set(scripts):
        rows = [i for i, each in enumerate(scripts) if each == script]
        result[rows] = calibrated(cosines[rows], space.embedder.id, script)
    return result


def _shared(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of the words of the text with fewer that the other has too."""
    least = min(len(one), len(other))
    return len(one & other) / least if least else 0.0
