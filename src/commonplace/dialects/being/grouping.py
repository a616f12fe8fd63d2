"""Groups of similar nodes, and the names of clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from commonplace.dialects.being.beings import UNNAMED
from commonplace.dialects.being.scenes import Scene

MIN_SIMILARITY = 0.45  # similar nodes, and nodes and clusters, have a greater similarity
MIN_GROUP_SIZE = 3  # the number of nodes in the smallest group


def greedy_groups(likeness: NDArray[np.float32]) -> list[list[int]]:
    """Return disjoint groups of at least three nodes, largest first.

    All nodes of a group are similar to one of them.
    """
    alike = likeness > MIN_SIMILARITY
    np.fill_diagonal(alike, True)
    free = np.ones(len(alike), np.bool_)
    groups: list[list[int]] = []
    while True:
        counts = np.where(free, (alike & free[None, :]).sum(axis=1), 0)
        leader = int(counts.argmax()) if len(counts) else 0
        if not len(counts) or counts[leader] < MIN_GROUP_SIZE:
            return groups
        members = np.flatnonzero(alike[leader] & free)
        free[members] = False
        groups.append([int(each) for each in members])


def cluster_name(scenes: Sequence[Scene]) -> str:
    """Return a name for a cluster: the most frequent theme."""
    themes = Counter(theme for scene in scenes for theme in scene.themes)
    theme, count = max(themes.items(), key=lambda each: (each[1], each[0]), default=("", 0))
    return theme[:100] if count > 1 else UNNAMED
