"""The graph in the console: groups of linked memories first, then the memories of one group.

Positions are computed here and kept until the space changes, so that a page that is opened again
shows the same picture.
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
from commonplace.dialects.tool_schemas import TEXT, integer, takes
from commonplace.engine.binding import engine_call, lease
from commonplace.engine.content.links import linked_groups
from commonplace.engine.model import Link, Memory, iso
from commonplace.errors import CommonplaceError, NotFound
from commonplace.storage.writing import read_head

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GROUPS = 500
NODES = 300
LABEL_CHARS = 60
FACTS = 200
KEPT = 64  # so many pictures are cached
TURN = math.pi * (3 - math.sqrt(5))  # the golden angle, by which a spiral fills a disc evenly
ROUNDS = 60
GAP = 0.5  # distance between two discs


class Pictures:
    """A cache of layouts, each for one state of a space; the least recently used is dropped."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._making: dict[tuple[Any, ...], threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """The picture of that key, made if it is not there; by one caller, for whom others wait."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._held:
                    return self._held[key]
            try:
                made = make()
                with self._lock:
                    self._held[key] = made
                    while len(self._held) > self._size:
                        self._held.popitem(last=False)
            finally:
                with self._lock:
                    self._making.pop(key, None)
        return made


_pictures = Pictures(KEPT)


def groups(call: Call, *, kind: str = "") -> dict[str, Any]:
    """The groups of linked memories, each with a place; the largest are in the middle."""
    return dict(_pictures.get((*_state(call), "groups", kind), lambda: _groups(call, kind)))


def groups_soon(call: Call) -> None:
    """Compute the groups in the background: who opens the console may open the graph next."""

    def compute() -> None:
        with contextlib.suppress(CommonplaceError):  # who opens the graph gets the error
            groups(call)

    threading.Thread(target=compute, name="commonplace-graph", daemon=True).start()


def group(call: Call, *, id: str, limit: int, kind: str = "") -> dict[str, Any]:
    """The memories around one, nearest first, with their links and places."""
    key = (*_state(call), "group", id, limit, kind)
    return dict(_pictures.get(key, lambda: _group(call, id, limit, kind)))


def facts(call: Call, *, entity: str = "") -> dict[str, Any]:
    """Facts and when they hold, the newest learned first."""
    found = call.memory.facts.query(entity or None, limit=FACTS)
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


def _state(call: Call) -> tuple[Any, ...]:
    """The space and its newest operation."""
    with lease(call.memory) as space, space.store.read() as rows:
        return str(call.memory.library.path), space.name, read_head(rows, space.name)


def _links(call: Call, kind: str) -> list[Link]:
    return call.memory.links.of(kinds=[kind] if kind else None)


def _groups(call: Call, kind: str) -> dict[str, Any]:
    links, found = engine_call(call.memory, linked_groups, kinds=[kind] if kind else None)
    degrees = Counter([link["source"] for link in links])
    degrees.update([link["target"] for link in links])
    centres = [max(members, key=lambda one: (degrees[one], one)) for members in found[:GROUPS]]
    named = _named(call, centres)
    placed = spiral([len(members) for members in found[:GROUPS]])
    shown = [
        {
            "id": centre, "size": len(members), "label": _label(named.get(centre)),
            "kind": named[centre].kind if centre in named else "", "x": x, "y": y, "r": r,
        }
        for members, centre, (x, y, r) in zip(found, centres, placed, strict=False)
    ]  # fmt: skip
    linked = sum(map(len, found))
    return {
        "groups": shown,
        "left_out": len(found) - len(shown),
        "linked": linked,
        "unlinked": max(0, call.memory.browse(limit=1)[1] - linked),
        "kinds": dict(Counter([link["kind"] for link in links]).most_common(50)),
    }


def _group(call: Call, centre: str, limit: int, kind: str) -> dict[str, Any]:
    links = _links(call, kind)
    near: dict[str, set[str]] = defaultdict(set)
    for link in links:
        near[link.source].add(link.target)
        near[link.target].add(link.source)
    if centre not in near:
        call.memory.get(centre, count=False)  # a memory without links is a group of its own
    reached = nearest(centre, near)
    live = _named(call, reached)
    ordered = [one for one in reached if one in live]
    if not ordered:
        raise NotFound("There is no such memory, or it is hidden.", field="id")
    chosen = ordered[:limit]
    known = {one: number for number, one in enumerate(chosen)}
    drawn = [link for link in links if link.source in known and link.target in known]
    places = springs(len(chosen), [(known[link.source], known[link.target]) for link in drawn])
    return {
        "centre": chosen[0],
        "nodes": [
            {
                "id": one, "label": _label(live[one]), "kind": live[one].kind,
                "links": len(near[one]), "x": round(x, 4), "y": round(y, 4),
            }
            for one, (x, y) in zip(chosen, places, strict=True)
        ],
        "links": [
            {
                "id": link.id, "source": link.source, "target": link.target, "kind": link.kind,
                "weight": link.weight, "reason": link.reason,
            }
            for link in drawn
        ],
        "left_out": len(ordered) - len(chosen),
    }  # fmt: skip


def _named(call: Call, identities: Sequence[str]) -> dict[str, Memory]:
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


def nearest(centre: str, near: Mapping[str, set[str]]) -> list[str]:
    """All that can be reached, nearest first; of the same distance the most linked first."""
    order, seen, waiting = [centre], {centre}, deque([centre])
    while waiting:
        beside = sorted(
            near.get(waiting.popleft(), set()) - seen, key=lambda one: (-len(near[one]), one)
        )
        seen.update(beside)
        order += beside
        waiting.extend(beside)
    return order


def spiral(sizes: Sequence[int]) -> list[tuple[float, float, float]]:
    """Places of discs whose areas are as the sizes, the first in the middle; none overlap."""
    import numpy as np

    radii = 0.6 + np.sqrt(np.array(sizes, dtype=np.float64)) * 0.4
    away = np.sqrt(np.cumsum((2 * radii) ** 2) / math.pi)
    angles = np.arange(len(radii)) * TURN
    places = np.stack([np.cos(angles), np.sin(angles)], axis=1) * (away - away[:1])[:, None]
    wanted = radii[:, None] + radii[None, :] + GAP
    for _ in range(ROUNDS if len(radii) > 1 else 0):  # discs that overlap are pushed apart
        apart = places[:, None, :] - places[None, :, :]
        far = np.sqrt((apart**2).sum(axis=2))
        np.fill_diagonal(far, np.inf)
        missing = np.maximum(wanted - far, 0)
        if not missing.any():
            break
        places += (apart / np.maximum(far, 0.01)[:, :, None] * missing[:, :, None]).sum(axis=1) / 2
    rounded = zip(places.round(3).tolist(), radii.round(3).tolist(), strict=True)
    return [(x, y, r) for (x, y), r in rounded]


def springs(count: int, edges: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
    """Places of nodes: all push each other away, and edges pull together. Always the same."""
    import numpy as np

    start = np.array([
        (math.cos(number * TURN), math.sin(number * TURN)) for number in range(count)
    ])  # fmt: skip
    places = start * np.sqrt(np.arange(count, dtype=np.float64)[:, None] + 0.1)
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    for turn in range(ROUNDS if count > 1 else 0):
        places += _step(places, ends) * (1 - turn / ROUNDS)
    return [(float(x), float(y)) for x, y in places - places.mean(axis=0)]


def _step(places: NDArray[np.float64], ends: NDArray[np.int64]) -> NDArray[np.float64]:
    import numpy as np

    apart = places[:, None, :] - places[None, :, :]
    squared = np.maximum((apart**2).sum(axis=2), 0.01)
    force = (apart / squared[:, :, None]).sum(axis=1)
    if len(ends):
        pull = (places[ends[:, 1]] - places[ends[:, 0]]) * 0.15
        np.add.at(force, ends[:, 0], pull)
        np.add.at(force, ends[:, 1], -pull)
    length = np.maximum(np.sqrt((force**2).sum(axis=1, keepdims=True)), 1e-9)
    moved: NDArray[np.float64] = force / length * np.minimum(length, 1.0)
    return moved


OPERATIONS = (
    Tool(
        name="console_graph", title="Graph", scope="read", handler=groups,
        description="Groups of linked memories, with places for a picture.",
        input=takes(kind=TEXT),
    ),
    Tool(
        name="console_graph_group", title="A part of the graph", scope="read", handler=group,
        description="The memories around one, with their links and places.",
        input=takes(["id"], id=TEXT, kind=TEXT, limit=integer(1, NODES, 150)),
    ),
    Tool(
        name="console_facts", title="Facts", scope="read", handler=facts,
        description="Facts and when they hold.", input=takes(entity=TEXT),
    ),
)  # fmt: skip
ROUTES = (
    Route("GET", "/api/console/graph", "console_graph", summary="Groups of linked memories"),
    Route("GET", "/api/console/graph/{id}", "console_graph_group", summary="One of the groups"),
    Route("GET", "/api/console/facts", "console_facts", summary="Facts and when they hold"),
)
