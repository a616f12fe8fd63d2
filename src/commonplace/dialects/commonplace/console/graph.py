"""The graph page of the console: groups of linked memories, and the memories of one group.

Positions are computed here and cached until the space changes, so that the same graph is always
drawn in the same way.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from commonplace.dialects.contract import Call, Tool
from commonplace.dialects.rest import Route
from commonplace.dialects.tool_schemas import TEXT, input_schema, integer
from commonplace.engine.binding import engine_call, lease
from commonplace.engine.content.links import linked_groups
from commonplace.engine.model import Link, Memory, iso
from commonplace.errors import CommonplaceError, NotFound
from commonplace.storage.writing import read_head

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_GROUPS = 500
MAX_NODES = 300
LABEL_CHARS = 60
MAX_FACTS = 200
CACHED_LAYOUTS = 64  # maximum number of cached layouts
# Points on a spiral with this angle fill a disc evenly.
GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))
LAYOUT_ROUNDS = 60
DISC_GAP = 0.5  # distance between two discs


class LayoutCache:
    """A cache of layouts, each for one state of a space; the least recently used is dropped."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._layouts: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._key_locks: dict[tuple[Any, ...], threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Return the cached layout, or compute it; concurrent callers wait for the first one."""
        with self._lock:
            if key in self._layouts:
                self._layouts.move_to_end(key)
                return self._layouts[key]
            lock = self._key_locks.setdefault(key, threading.Lock())
        with lock:
            with self._lock:
                if key in self._layouts:
                    return self._layouts[key]
            try:
                layout = make()
                with self._lock:
                    self._layouts[key] = layout
                    while len(self._layouts) > self._size:
                        self._layouts.popitem(last=False)
            finally:
                with self._lock:
                    self._key_locks.pop(key, None)
        return layout


_cache = LayoutCache(CACHED_LAYOUTS)


def groups(call: Call, *, kind: str = "") -> dict[str, Any]:
    """Return the groups of linked memories with their positions; the largest are in the centre."""
    return dict(
        _cache.get((*_cache_key(call), "groups", kind), lambda: _compute_groups(call, kind))
    )


def compute_groups_soon(call: Call) -> None:
    """Compute the groups in the background, because the user may open the graph next."""

    def compute() -> None:
        with contextlib.suppress(CommonplaceError):  # the request for the graph reports the error
            groups(call)

    threading.Thread(target=compute, name="commonplace-graph", daemon=True).start()


def group(call: Call, *, id: str, limit: int, kind: str = "") -> dict[str, Any]:
    """Return the memories linked to one memory, nearest first, with links and positions."""
    key = (*_cache_key(call), "group", id, limit, kind)
    return dict(_cache.get(key, lambda: _compute_group(call, id, limit, kind)))


def facts(call: Call, *, entity: str = "") -> dict[str, Any]:
    """Return facts with the time for which they are valid, newest first."""
    found = call.memory.facts.query(entity or None, limit=MAX_FACTS)
    return {
        "facts": [
            {
                "id": one.id, "subject": one.subject, "predicate": one.predicate,
                "object": one.object, "valid_from": iso(one.valid_from),
                "valid_to": iso(one.valid_to), "memory": one.memory,
            }
            for one in found
        ]
    }  # fmt: skip


def _cache_key(call: Call) -> tuple[Any, ...]:
    """Return the cache key of a space: its name and its newest operation."""
    with lease(call.memory) as space, space.store.read() as rows:
        return str(call.memory.library.path), space.name, read_head(rows, space.name)


def _links_of_kind(call: Call, kind: str) -> list[Link]:
    return call.memory.links.of(kinds=[kind] if kind else None)


def _compute_groups(call: Call, kind: str) -> dict[str, Any]:
    links, found = engine_call(call.memory, linked_groups, kinds=[kind] if kind else None)
    degrees = Counter([link["source"] for link in links])
    degrees.update([link["target"] for link in links])
    centres = [max(members, key=lambda one: (degrees[one], one)) for members in found[:MAX_GROUPS]]
    memories = _memories_by_id(call, centres)
    positions = spiral_layout([len(members) for members in found[:MAX_GROUPS]])
    entries = [
        {
            "id": centre, "size": len(members), "label": _label(memories.get(centre)),
            "kind": memories[centre].kind if centre in memories else "", "x": x, "y": y, "r": r,
        }
        for members, centre, (x, y, r) in zip(found, centres, positions, strict=False)
    ]  # fmt: skip
    linked = sum(map(len, found))
    return {
        "groups": entries,
        "left_out": len(found) - len(entries),
        "linked": linked,
        "unlinked": max(0, call.memory.browse(limit=1)[1] - linked),
        "kinds": dict(Counter([link["kind"] for link in links]).most_common(50)),
    }


def _compute_group(call: Call, centre: str, limit: int, kind: str) -> dict[str, Any]:
    links = _links_of_kind(call, kind)
    neighbours: dict[str, set[str]] = defaultdict(set)
    for link in links:
        neighbours[link.source].add(link.target)
        neighbours[link.target].add(link.source)
    if centre not in neighbours:
        call.memory.get(centre, count=False)  # a memory without links is a group of its own
    reached = linked_by_distance(centre, neighbours)
    live = _memories_by_id(call, reached)
    ordered = [one for one in reached if one in live]
    if not ordered:
        raise NotFound("There is no live memory with this id.", field="id")
    chosen = ordered[:limit]
    numbers = {one: number for number, one in enumerate(chosen)}
    shown_links = [link for link in links if link.source in numbers and link.target in numbers]
    places = spring_layout(
        len(chosen), [(numbers[link.source], numbers[link.target]) for link in shown_links]
    )
    return {
        "centre": chosen[0],
        "nodes": [
            {
                "id": one, "label": _label(live[one]), "kind": live[one].kind,
                "links": len(neighbours[one]), "x": round(x, 4), "y": round(y, 4),
            }
            for one, (x, y) in zip(chosen, places, strict=True)
        ],
        "links": [
            {
                "id": link.id, "source": link.source, "target": link.target, "kind": link.kind,
                "weight": link.weight, "reason": link.reason,
            }
            for link in shown_links
        ],
        "left_out": len(ordered) - len(chosen),
    }  # fmt: skip


def _memories_by_id(call: Call, identities: Sequence[str]) -> dict[str, Memory]:
    found: dict[str, Memory] = {}
    for start in range(0, len(identities), 1_000):
        part = identities[start : start + 1_000]
        memories, _ = call.memory.browse(ids=part, limit=1_000)
        found |= {one.id: one for one in memories}
    return found


def _label(memory: Memory | None) -> str:
    if memory is None:
        return ""
    text = " ".join((memory.title or memory.text[:400]).split())
    return text if len(text) <= LABEL_CHARS else text[: LABEL_CHARS - 1].rstrip() + "…"


def linked_by_distance(centre: str, neighbours: Mapping[str, set[str]]) -> list[str]:
    """Return all linked memories, nearest first; at equal distance, the most linked first."""
    order, seen, queue = [centre], {centre}, deque([centre])
    while queue:
        next_ids = sorted(
            neighbours.get(queue.popleft(), set()) - seen,
            key=lambda one: (-len(neighbours[one]), one),
        )
        seen.update(next_ids)
        order += next_ids
        queue.extend(next_ids)
    return order


def spiral_layout(sizes: Sequence[int]) -> list[tuple[float, float, float]]:
    """Return (x, y, radius) of discs that do not overlap; the first is in the centre."""
    import numpy as np

    radii = 0.6 + np.sqrt(np.array(sizes, dtype=np.float64)) * 0.4
    distances = np.sqrt(np.cumsum((2 * radii) ** 2) / math.pi)
    angles = np.arange(len(radii)) * GOLDEN_ANGLE
    places = (
        np.stack([np.cos(angles), np.sin(angles)], axis=1) * (distances - distances[:1])[:, None]
    )
    least_distance = radii[:, None] + radii[None, :] + DISC_GAP
    for _ in range(LAYOUT_ROUNDS if len(radii) > 1 else 0):  # push overlapping discs apart
        offsets = places[:, None, :] - places[None, :, :]
        actual_distance = np.sqrt((offsets**2).sum(axis=2))
        np.fill_diagonal(actual_distance, np.inf)
        missing = np.maximum(least_distance - actual_distance, 0)
        if not missing.any():
            break
        places += (
            offsets / np.maximum(actual_distance, 0.01)[:, :, None] * missing[:, :, None]
        ).sum(axis=1) / 2
    rounded = zip(places.round(3).tolist(), radii.round(3).tolist(), strict=True)
    return [(x, y, r) for (x, y), r in rounded]


def spring_layout(count: int, edges: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
    """Return node positions of a force-directed layout; equal graphs get equal positions."""
    import numpy as np

    start = np.array([
        (math.cos(number * GOLDEN_ANGLE), math.sin(number * GOLDEN_ANGLE))
        for number in range(count)
    ])  # fmt: skip
    places = start * np.sqrt(np.arange(count, dtype=np.float64)[:, None] + 0.1)
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    for turn in range(LAYOUT_ROUNDS if count > 1 else 0):
        places += _force_step(places, ends) * (1 - turn / LAYOUT_ROUNDS)
    return [(float(x), float(y)) for x, y in places - places.mean(axis=0)]


def _force_step(places: NDArray[np.float64], ends: NDArray[np.int64]) -> NDArray[np.float64]:
    import numpy as np

    offsets = places[:, None, :] - places[None, :, :]
    squared = np.maximum((offsets**2).sum(axis=2), 0.01)
    force = (offsets / squared[:, :, None]).sum(axis=1)
    if len(ends):
        pull = (places[ends[:, 1]] - places[ends[:, 0]]) * 0.15
        np.add.at(force, ends[:, 0], pull)
        np.add.at(force, ends[:, 1], -pull)
    length = np.maximum(np.sqrt((force**2).sum(axis=1, keepdims=True)), 1e-9)
    displacement: NDArray[np.float64] = force / length * np.minimum(length, 1.0)
    return displacement


OPERATIONS = (
    Tool(
        name="console_graph", title="Graph", scope="read", handler=groups,
        description="List the groups of linked memories with their positions.",
        input=input_schema(kind=TEXT),
    ),
    Tool(
        name="console_graph_group", title="A part of the graph", scope="read", handler=group,
        description="Show the memories linked to one memory, with links and positions.",
        input=input_schema(["id"], id=TEXT, kind=TEXT, limit=integer(1, MAX_NODES, 150)),
    ),
    Tool(
        name="console_facts", title="Facts", scope="read", handler=facts,
        description="List facts with the time for which they are valid.",
        input=input_schema(entity=TEXT),
    ),
)  # fmt: skip
ROUTES = (
    Route("GET", "/api/console/graph", "console_graph", summary="Groups of linked memories"),
    Route(
        "GET", "/api/console/graph/{id}", "console_graph_group", summary="One group of the graph"
    ),
    Route("GET", "/api/console/facts", "console_facts", summary="List facts"),
)
