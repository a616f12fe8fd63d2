"""Links between memories, and traversal of the graph that they form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypedDict, Unpack

from commonplace.engine import checks
from commonplace.engine.binding import keyword_fields
from commonplace.engine.content.memories import need_row
from commonplace.engine.content.write_policy import mask_row
from commonplace.engine.history.timeline import (
    need_memory,
    need_row_by_id,
    read_as_of,
    rows_at,
)
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import LIVE_STATES, Link, Memory, Origin, When
from commonplace.errors import Conflict, InvalidInput
from commonplace.storage import links as stored_links
from commonplace.storage import memories as stored_memories
from commonplace.storage.database import new_id
from commonplace.storage.ports import Rows
from commonplace.storage.tables import LINKS, MEMORIES, Row
from commonplace.storage.writing import Unit

Direction = Literal["out", "in", "any"]
DIRECTIONS = ("out", "in", "any")
SUPERSEDES = "supersedes"
MAX_DEPTH = 10
MAX_PATHS = 1_000
MAX_STEPS = 20_000
_ENDS_BY_DIRECTION = {"out": ("source",), "in": ("target",), "any": ("source", "target")}


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A memory one link away from another one, with that link."""

    memory: Memory
    link: Link
    outward: bool


@dataclass(frozen=True, slots=True)
class Path:
    """A path along links that visits no memory twice."""

    nodes: tuple[str, ...]
    links: tuple[Link, ...]
    score: float

    @property
    def depth(self) -> int:
        """The number of links in the path."""
        return len(self.links)


@dataclass(frozen=True, slots=True)
class Walk:
    """The result of a bounded traversal, nearest and strongest first."""

    paths: list[Path]
    visited: list[str]
    complete: bool
    """False if a limit was reached before every path was followed."""


def put_link(
    unit: Unit, source: str, target: str, origin: Origin, values: Mapping[str, Any]
) -> Row:
    """Insert a link with checked values in an open unit."""
    if stored_links.exists(unit.connection, unit.space, source, target, values["kind"]):
        raise Conflict(
            f"These two memories already have a link of kind {values['kind']}.",
            hint="Revise the existing link, or remove it first.",
        )
    return LINKS.insert(
        unit,
        {
            **values,
            "id": new_id(),
            "source": source,
            "target": target,
            "origin": origin.dump(),
            "created_at": unit.at,
        },
    )


def put_supersedes(unit: Unit, new: str, old: str, origin: Origin, reason: str) -> None:
    """Link a memory to the older one that it supersedes."""
    values = {"kind": SUPERSEDES, "weight": 1.0, "reason": reason, "attrs": "{}"}
    put_link(unit, new, old, origin, values)


CHANGEABLE = ("weight", "reason", "attrs")


class LinkChanges(TypedDict, total=False):
    """The fields of a link that can be changed."""

    weight: float
    reason: str
    attrs: Mapping[str, Any] | None


def link(
    space: OpenSpace,
    source: str,
    target: str,
    kind: str,
    *,
    weight: float = 0.5,
    reason: str = "",
    attrs: Mapping[str, Any] | None = None,
    origin: Origin | None = None,
) -> Link:
    """Link two memories; raise Conflict if they have a link of this kind already."""
    origin = checks.origin(origin)
    given = {"kind": kind, "weight": weight, "reason": reason, "attrs": attrs}
    values = checks.columns(LINKS, given)
    mask_row(space, values)
    with space.write("link", origin) as unit:
        one = need_row(unit.connection, space.name, source)
        other = need_row(unit.connection, space.name, target)
        if one["num"] == other["num"]:
            raise InvalidInput(
                "A memory cannot be linked to itself.", hint="Name two memories.", field="target"
            )
        return Link.of(put_link(unit, one["id"], other["id"], origin, values))


def _need_link(connection: Rows, space: str, identity: str, seq: int | None = None) -> Row:
    return need_row_by_id(connection, space, LINKS, identity, seq, name="link")


def get_link(space: OpenSpace, identity: str, *, as_of: When | None = None) -> Link:
    """Return one link by its id; with `as_of`, as it was at that time."""
    with read_as_of(space, as_of) as (connection, seq):
        return Link.of(_need_link(connection, space.name, identity, seq))


@keyword_fields(LinkChanges)
def revise_link(
    space: OpenSpace,
    identity: str,
    *,
    origin: Origin | None = None,
    **changes: Unpack[LinkChanges],
) -> Link:
    """Change a link's weight, reason or attrs."""
    values = checks.columns(LINKS, changes, only=CHANGEABLE)
    mask_row(space, values)
    with space.write("revise link", origin) as unit:
        return Link.of(
            LINKS.replace(unit, _need_link(unit.connection, space.name, identity), values)
        )


def unlink(space: OpenSpace, identity: str, *, origin: Origin | None = None) -> None:
    """Remove a link; `as_of` still shows it."""
    with space.write("unlink", origin) as unit:
        LINKS.remove(unit, _need_link(unit.connection, space.name, identity))


def links(
    space: OpenSpace,
    identity: str | None = None,
    *,
    direction: Direction = "any",
    kinds: Collection[str] | None = None,
    as_of: When | None = None,
) -> list[Link]:
    """Return the links of one memory; without an id, all links."""
    checks.one_of(direction, "direction", DIRECTIONS)
    with read_as_of(space, as_of) as (connection, seq):
        one = None
        if identity is not None:
            one = str(need_memory(connection, space.name, identity, seq)["id"])
        edges = _SelectedLinks(connection, space.name, kinds, seq)
        if one is None:
            return edges.all_links
        return [each for each, _ in edges.links_of(one, direction)]


def links_around(
    space: OpenSpace,
    *identities: str,
    direction: Direction = "any",
    kinds: Collection[str] | None = None,
    as_of: When | None = None,
) -> list[Link]:
    """Return the links of several memories, given by their ids; each link once, oldest first."""
    checks.texts(identities, "identities")
    checks.one_of(direction, "direction", DIRECTIONS)
    with read_as_of(space, as_of) as (connection, seq):
        return _SelectedLinks(connection, space.name, kinds, seq).links_of_any(
            identities, direction
        )


class _SelectedLinks:
    """Links of some kinds with at least some weight, now or after an operation."""

    def __init__(
        self,
        connection: Rows,
        space: str,
        kinds: Collection[str] | None,
        seq: int | None,
        weight: float = 0.0,
    ) -> None:
        self._connection = connection
        self._space = space
        self._kinds = checks.names(kinds, "kinds")
        self._weight = weight
        self._seq = seq

    def _links(self, rows: Iterable[Row]) -> list[Link]:
        return [Link.of(row) for row in rows if self._is_selected(row)]

    def _is_selected(self, row: Row) -> bool:
        right_kind = self._kinds is None or row["kind"] in self._kinds
        return right_kind and row["weight"] >= self._weight

    @cached_property
    def all_links(self) -> list[Link]:
        """Return all links, oldest first."""
        return [Link.of(row) for row in self.rows()]

    @cached_property
    def _by_end(self) -> Mapping[str, Mapping[str, list[int]]]:
        """The places of links in `all_links`, by the memory at each of their ends."""
        found: dict[str, defaultdict[str, list[int]]] = {
            "source": defaultdict(list), "target": defaultdict(list)
        }  # fmt: skip
        for at, each in enumerate(self.all_links):
            found["source"][each.source].append(at)
            found["target"][each.target].append(at)
        return found

    def rows(self) -> list[Row]:
        """Return the rows of all links, oldest first."""
        return [row for row in rows_at(self._connection, self._space, LINKS, self._seq)
                if self._is_selected(row)]  # fmt: skip

    def links_of(self, node: str, direction: Direction) -> list[tuple[Link, bool]]:
        """Return pairs of a link and whether it leads away from the node, strongest first."""
        found = [(each, each.source == node) for each in self.links_of_any([node], direction)]
        return sorted(found, key=lambda pair: (-pair[0].weight, not pair[1]))

    def links_of_any(self, nodes: Sequence[str], direction: Direction) -> list[Link]:
        """Return the links of any of the nodes, each once, oldest first."""
        ends = _ENDS_BY_DIRECTION[direction]
        wanted = list(dict.fromkeys(nodes))
        if self._seq is not None:
            by_end = [self._by_end[end] for end in ends]
            places = {at for each in by_end for node in wanted for at in each.get(node, ())}
            return [self.all_links[at] for at in sorted(places)]
        found: dict[int, Row] = {}
        for end in ends:
            rows = LINKS.among(self._connection, self._space, end, wanted)
            found.update((row["num"], row) for row in rows)
        return self._links(found[num] for num in sorted(found))


def neighbours(
    space: OpenSpace,
    identity: str,
    *,
    direction: Direction = "any",
    kinds: Collection[str] | None = None,
    weight: float = 0.0,
    as_of: When | None = None,
) -> list[Neighbour]:
    """Return live memories one link away, strongest first.

    `weight` is the least weight of a link to follow.
    """
    checks.share(weight, "weight")
    checks.one_of(direction, "direction", DIRECTIONS)
    with read_as_of(space, as_of) as (connection, seq):
        start = str(need_memory(connection, space.name, identity, seq)["id"])
        edges = _SelectedLinks(connection, space.name, kinds, seq, weight)
        pairs = edges.links_of(start, direction)
        ends = [each.target if outward else each.source for each, outward in pairs]
        live = _live_memories(connection, space.name, ends, seq)
        return [
            Neighbour(live[end], each, outward)
            for (each, outward), end in zip(pairs, ends, strict=True)
            if end in live
        ]


def _live_memories(
    connection: Rows, space: str, ids: Iterable[str], seq: int | None
) -> dict[str, Memory]:
    """Return the live memories among these ids, by id; with `seq`, as of that operation."""
    wanted = dict.fromkeys(ids)
    if seq is None:
        rows = MEMORIES.among(connection, space, "id", list(wanted))
    else:
        rows = [row for row in rows_at(connection, space, MEMORIES, seq) if row["id"] in wanted]
    return {row["id"]: Memory.of(row) for row in rows if row["state"] in LIVE_STATES}


def _live_ids_at(connection: Rows, space: str, seq: int) -> set[str]:
    """Return the ids of all memories that were live after an operation."""
    rows = rows_at(connection, space, MEMORIES, seq)
    return {row["id"] for row in rows if row["state"] in LIVE_STATES}


def traverse(
    space: OpenSpace,
    identity: str,
    *,
    depth: int = 3,
    direction: Direction = "any",
    kinds: Collection[str] | None = None,
    weight: float = 0.0,
    decay: float = 0.5,
    max_paths: int = MAX_PATHS,
    as_of: When | None = None,
) -> Walk:
    """Follow simple paths from a memory, nearest and strongest first.

    The score of a path is the product of the weights of its links and of `decay` for each link.
    """
    checks.share(weight, "weight")
    checks.share(decay, "decay")
    checks.limit(depth, "depth", MAX_DEPTH)
    checks.limit(max_paths, "max_paths", MAX_PATHS)
    checks.one_of(direction, "direction", DIRECTIONS)
    with read_as_of(space, as_of) as (connection, seq):
        start = str(need_memory(connection, space.name, identity, seq)["id"])
        edges = _SelectedLinks(connection, space.name, kinds, seq, weight)
        around: dict[str, list[tuple[Link, bool]]] = {}
        # All former rows are read at once: finding a few of them takes as long.
        then = None if seq is None else _live_ids_at(connection, space.name, seq)
        live: dict[str, bool] = {start: True}
        paths: list[Path] = []
        level = [Path((start,), (), 1.0)]
        steps, complete = 0, True
        while level and complete and level[0].depth < depth:
            following: list[Path] = []
            for path in level:
                here = path.nodes[-1]
                if here not in around:
                    around[here] = edges.links_of(here, direction)
                    ends = {e.target if out else e.source for e, out in around[here]} - live.keys()
                    known: Collection[str] = (
                        _live_memories(connection, space.name, ends, None) if then is None else then
                    )
                    live.update((end, end in known) for end in ends)
                for each, outward in around[here]:
                    steps += 1
                    end = each.target if outward else each.source
                    if not live[end] or end in path.nodes:
                        continue
                    if steps > MAX_STEPS or len(paths) + len(following) == max_paths:
                        complete = False
                        break
                    score = path.score * each.weight * decay
                    following.append(Path((*path.nodes, end), (*path.links, each), score))
                if not complete:
                    break
            paths += sorted(following, key=lambda path: -path.score)
            level = following
        visited = list(dict.fromkeys(node for path in paths for node in path.nodes)) or [start]
        return Walk(paths, visited, complete)


def components(
    space: OpenSpace, *, kinds: Collection[str] | None = None, as_of: When | None = None
) -> list[list[str]]:
    """Return groups of linked memories, largest first; memories without links are left out."""
    return linked_groups(space, kinds=kinds, as_of=as_of)[1]


def linked_groups(
    space: OpenSpace, *, kinds: Collection[str] | None = None, as_of: When | None = None
) -> tuple[list[Row], list[list[str]]]:
    """Return the rows of all links and the `components` they form, from one query."""
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        while parent.setdefault(node, node) != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    with read_as_of(space, as_of) as (connection, seq):
        links = _SelectedLinks(connection, space.name, kinds, seq).rows()
        for each in links:
            parent[root(each["source"])] = root(each["target"])
        if seq is None:
            live: Collection[str] = stored_memories.ids_in_states(
                connection, space.name, LIVE_STATES
            )
        else:
            live = _live_memories(connection, space.name, parent, seq)
    groups: dict[str, list[str]] = defaultdict(list)
    for node in sorted(parent):
        if node in live:
            groups[root(node)].append(node)
    return links, sorted(groups.values(), key=lambda group: (-len(group), group))
