"""The wings and rooms of the palace, computed from the number of drawers in each room."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from commonplace.errors import NotFound

MAX_ROOMS = 50
TOP_TUNNELS = 10
EXCLUDED_ROOMS = ("", "general")


@dataclass
class Room:
    """A room name, with all wings that have such a room."""

    name: str
    wings: set[str] = field(default_factory=set)
    halls: set[str] = field(default_factory=set)
    count: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the room as a dict, for lists of tunnels."""
        return {
            "room": self.name,
            "wings": sorted(self.wings),
            "halls": sorted(self.halls),
            "count": self.count,
        }


RoomCounts = Iterable[tuple[tuple[str, str, str], int]]
"""Pairs of ((wing, room, hall), number of drawers)."""


def wing_totals(counts: RoomCounts) -> list[dict[str, Any]]:
    """Return the wings, sorted by the number of drawers."""
    found: dict[str, int] = defaultdict(int)
    for (wing, _, _), count in counts:
        found[wing] += count
    return [{"wing": wing, "count": n} for wing, n in sorted(found.items(), key=_most_first_key)]


def room_totals(counts: RoomCounts, wing: str = "") -> list[dict[str, Any]]:
    """Return the rooms of one wing or of all wings, sorted by the number of drawers."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    for (where, room, _), count in counts:
        if wing in ("", where):
            found[where, room] += count
    ordered = sorted(found.items(), key=_most_first_key)
    return [{"wing": where, "room": room, "count": n} for (where, room), n in ordered]


def _most_first_key(item: tuple[Any, int]) -> tuple[int, Any]:
    return -item[1], item[0]


def rooms_by_name(counts: RoomCounts) -> dict[str, Room]:
    """Return the rooms by name, without unnamed and general rooms."""
    rooms: dict[str, Room] = {}
    for (wing, name, hall), count in counts:
        if name in EXCLUDED_ROOMS:
            continue
        room = rooms.setdefault(name, Room(name))
        room.wings.add(wing)
        room.count += count
        if hall:
            room.halls.add(hall)
    return rooms


def rooms_within_hops(rooms: dict[str, Room], start: str, hops: int) -> list[dict[str, Any]]:
    """Return the rooms within some hops; a hop leads to a room in the same wing."""
    if start not in rooms:
        raise NotFound(f'graph: room "{start}" not found')
    of_wing: dict[str, list[str]] = defaultdict(list)
    for room in rooms.values():
        for wing in room.wings:
            of_wing[wing].append(room.name)
    reached: dict[str, tuple[int, set[str]]] = {start: (0, set())}
    queue = deque([start])
    while queue:
        current = queue.popleft()
        hop = reached[current][0] + 1
        if hop > hops:
            continue
        for wing in rooms[current].wings:
            for name in of_wing.pop(wing, ()):  # later hops through a wing add nothing
                if name not in reached:
                    reached[name] = (hop, set())
                    queue.append(name)
                if reached[name][0] == hop:
                    reached[name][1].add(wing)
    ordered = sorted(reached.items(), key=lambda at: (at[1][0], -rooms[at[0]].count, at[0]))
    return [
        {**rooms[name].as_dict(), "hop": hop, "connected_via": sorted(via)}
        for name, (hop, via) in ordered[:MAX_ROOMS]
    ]


def tunnel_rooms(rooms: dict[str, Room], *wings: str) -> list[Room]:
    """Return the rooms that exist in at least two wings, and in all given wings."""
    wanted = {wing for wing in wings if wing}
    found = [room for room in rooms.values() if len(room.wings) > 1 and wanted <= room.wings]
    return sorted(found, key=lambda room: (-room.count, room.name))


def map_statistics(rooms: dict[str, Room]) -> dict[str, Any]:
    """Return the numbers of rooms, tunnels and edges."""
    per_wing: dict[str, int] = defaultdict(int)
    for room in rooms.values():
        for wing in room.wings:
            per_wing[wing] += 1
    joining = tunnel_rooms(rooms)
    widest = sorted(joining, key=lambda room: (-len(room.wings), -room.count, room.name))
    return {
        "total_rooms": len(rooms),
        "tunnel_rooms": len(joining),
        "total_edges": sum(len(room.wings) * (len(room.wings) - 1) // 2 for room in joining),
        "rooms_per_wing": dict(sorted(per_wing.items())),
        "top_tunnels": [room.as_dict() for room in widest[:TOP_TUNNELS]],
    }
