"""Clusters: named groups of memories, with a digest and the mean of their vectors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

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
from commonplace.engine.model import LIVE_STATES, Cluster, Memory, Origin, When
from commonplace.errors import Conflict, InvalidInput
from commonplace.storage import members as stored_members
from commonplace.storage.database import new_id
from commonplace.storage.derived import unpack_matrix
from commonplace.storage.fields import STATES
from commonplace.storage.ports import Rows
from commonplace.storage.tables import CLUSTERS, MEMBERS, MEMORIES, Row
from commonplace.storage.writing import Unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def _need_cluster(connection: Rows, space: str, identity: str, seq: int | None = None) -> Row:
    return need_row_by_id(
        connection, space, CLUSTERS, identity, seq, name="cluster", field="cluster"
    )


CHANGEABLE = ("name", "digest", "parent", "attrs")


class ClusterChanges(TypedDict, total=False):
    """The fields of a cluster that can be changed."""

    name: str
    digest: str
    parent: str | None
    attrs: Mapping[str, Any] | None


def create(
    space: OpenSpace,
    name: str,
    *,
    digest: str = "",
    parent: str | None = None,
    attrs: Mapping[str, Any] | None = None,
    origin: Origin | None = None,
) -> Cluster:
    """Create an empty cluster."""
    origin = checks.origin(origin)
    values = checks.columns(CLUSTERS, {"name": name, "digest": digest, "attrs": attrs})
    mask_row(space, values)
    with space.write("create cluster", origin) as unit:
        if parent is not None:
            _need_cluster(unit.connection, space.name, parent)
        row = CLUSTERS.insert(
            unit,
            {
                **values,
                "id": new_id(),
                "parent": parent,
                "centroid": None,
                "origin": origin.dump(),
                "created_at": unit.at,
            },
        )
        return Cluster.of(row)


@keyword_fields(ClusterChanges)
def revise(
    space: OpenSpace,
    identity: str,
    *,
    origin: Origin | None = None,
    **changes: Unpack[ClusterChanges],
) -> Cluster:
    """Change a cluster's name, digest, parent or attrs."""
    values: dict[str, Any] = {**changes}
    parent = values.pop("parent", None)
    values = checks.columns(CLUSTERS, values, only=CHANGEABLE)
    mask_row(space, values)
    if "parent" in changes:
        values["parent"] = None if parent is None else checks.text(parent, "parent")
    with space.write("revise cluster", origin) as unit:
        row = _need_cluster(unit.connection, space.name, identity)
        above, seen = values.get("parent"), {identity}
        while above is not None:
            if above in seen:
                raise InvalidInput("A cluster cannot be inside itself.", field="parent")
            seen.add(above)
            above = _need_cluster(unit.connection, space.name, above)["parent"]
        return Cluster.of(CLUSTERS.replace(unit, row, values))


def delete(space: OpenSpace, identity: str, *, origin: Origin | None = None) -> None:
    """Remove a cluster and its memberships; its memories stay."""
    with space.write("delete cluster", origin) as unit:
        row = _need_cluster(unit.connection, space.name, identity)
        if CLUSTERS.first(unit.connection, space.name, parent=identity):
            raise Conflict(
                "The cluster contains other clusters.", hint="Move or delete them first."
            )
        for member in MEMBERS.where(unit.connection, space.name, cluster=identity):
            MEMBERS.remove(unit, member)
        CLUSTERS.remove(unit, row)


def add(space: OpenSpace, identity: str, *members: str, origin: Origin | None = None) -> int:
    """Put memories into a cluster; return how many were not in it before."""
    return _change_members(space, identity, members, origin, "add to cluster")


def remove(space: OpenSpace, identity: str, *members: str, origin: Origin | None = None) -> int:
    """Take memories out of a cluster; return how many were in it."""
    return _change_members(space, identity, members, origin, "remove from cluster")


def _change_members(
    space: OpenSpace, identity: str, members: Sequence[str], origin: Origin | None, name: str
) -> int:
    with space.write(name, origin) as unit:
        row = _need_cluster(unit.connection, space.name, identity)
        changed = 0
        for memory in members:
            found = need_row(unit.connection, space.name, memory)["id"]
            member = _find_membership(unit, identity, found)
            if name == "add to cluster" and member is None:
                MEMBERS.insert(unit, {"cluster": identity, "memory": found})
                changed += 1
            elif name == "remove from cluster" and member is not None:
                MEMBERS.remove(unit, member)
                changed += 1
        if changed:
            _update_centroid(space, unit, row)
        return changed


def _find_membership(unit: Unit, cluster: str, memory: str) -> Row | None:
    return MEMBERS.first(unit.connection, unit.space, cluster=cluster, memory=memory)


def refresh(space: OpenSpace, identity: str, *, origin: Origin | None = None) -> None:
    """Recompute the centroid of a cluster after its memories have changed."""
    with space.write("refresh cluster", origin) as unit:
        _update_centroid(space, unit, _need_cluster(unit.connection, space.name, identity))


def _update_centroid(space: OpenSpace, unit: Unit, row: Row) -> None:
    vectors = _member_vectors(space, unit.connection, row["id"])
    centroid = None
    if len(vectors):
        import numpy as np

        mean = vectors.mean(axis=0)
        norm = float(np.linalg.norm(mean))
        centroid = (mean / norm).astype("<f4").tobytes() if norm > 0 else None
    if centroid != row["centroid"]:
        CLUSTERS.replace(unit, row, {"centroid": centroid})


def _member_vectors(space: OpenSpace, connection: Rows, identity: str) -> NDArray[np.float32]:
    import numpy as np

    model = space.current_model(connection)
    if model is None or space.embedder is None:
        return np.empty((0, 0), np.float32)
    blobs = stored_members.vectors(connection, space.name, identity, model)
    if not blobs:
        return np.empty((0, 0), np.float32)
    matrix, scales = unpack_matrix(b"".join(blobs), space.embedder.dimensions)
    return matrix.astype(np.float32) * scales[:, None]


def get(space: OpenSpace, identity: str, *, as_of: When | None = None) -> Cluster:
    """Return one cluster; with `as_of`, as it was at that time."""
    with read_as_of(space, as_of) as (connection, seq):
        return Cluster.of(_need_cluster(connection, space.name, identity, seq))


def listing(space: OpenSpace, *, as_of: When | None = None) -> list[Cluster]:
    """Return all clusters, oldest first."""
    with read_as_of(space, as_of) as (connection, seq):
        return [Cluster.of(row) for row in rows_at(connection, space.name, CLUSTERS, seq)]


def sizes(space: OpenSpace, *, as_of: When | None = None) -> dict[str, dict[str, int]]:
    """Count the memories of each state in each cluster; empty clusters are left out."""
    found: dict[str, dict[str, int]] = {}
    with read_as_of(space, as_of) as (connection, seq):
        if seq is None:
            for cluster, state, count in stored_members.counts(connection, space.name):
                found.setdefault(cluster, {})[state] = count
            return found
        then = rows_at(connection, space.name, MEMORIES, seq)
        states = {row["id"]: row["state"] for row in then}
        for member in rows_at(connection, space.name, MEMBERS, seq):
            if member["memory"] in states:
                counts = found.setdefault(member["cluster"], {})
                state = states[member["memory"]]
                counts[state] = counts.get(state, 0) + 1
    return found


def homes(space: OpenSpace, *identities: str, as_of: When | None = None) -> dict[str, list[str]]:
    """Return the ids of the clusters of each memory, by the memory's id."""
    found: dict[str, list[str]] = {memory: [] for memory in checks.texts(identities, "identities")}
    with read_as_of(space, as_of) as (connection, seq):
        if seq is None:
            rows = MEMBERS.among(connection, space.name, "memory", list(found))
            rows.sort(key=lambda row: int(row["num"]))
        else:
            rows = rows_at(connection, space.name, MEMBERS, seq)
        for row in rows:
            if row["memory"] in found:
                found[row["memory"]].append(row["cluster"])
    return found


def move(
    space: OpenSpace, source: str, target: str, *members: str, origin: Origin | None = None
) -> int:
    """Move memories from one cluster to another; return how many.

    If no memory is named, all of them are moved.
    """
    checks.text(source, "source")
    checks.text(target, "target")
    wanted = set(checks.texts(members, "members"))
    with space.write("move between clusters", origin) as unit:
        from_row = _need_cluster(unit.connection, space.name, source)
        to_row = _need_cluster(unit.connection, space.name, target)
        moved = 0
        for member in MEMBERS.where(unit.connection, space.name, cluster=source):
            if wanted and member["memory"] not in wanted:
                continue
            MEMBERS.remove(unit, member)
            if _find_membership(unit, target, member["memory"]) is None:
                MEMBERS.insert(unit, {"cluster": target, "memory": member["memory"]})
            moved += 1
        if moved:
            _update_centroid(space, unit, from_row)
            _update_centroid(space, unit, to_row)
        return moved


def members(
    space: OpenSpace,
    identity: str,
    *,
    as_of: When | None = None,
    states: Collection[str] = LIVE_STATES,
    most: int | None = None,
) -> list[Memory]:
    """Return the memories of a cluster in these states, in the order in which they were added.

    With `most`, return at most that many: dying memories first, then the most important.
    """
    states = {checks.one_of(each, "states", STATES) for each in checks.iterable(states, "states")}
    if most is not None:
        checks.limit(most, "most")
        if as_of is not None:
            raise InvalidInput("'most' cannot be combined with 'as_of'.", field="most")
    with read_as_of(space, as_of) as (connection, seq):
        _need_cluster(connection, space.name, identity, seq)
        if seq is None:
            # Memories in other states are not read: in an old cluster, most memories are dead.
            ids = stored_members.ids(connection, space.name, identity, states, most)
            held = _verified_members(connection, space.name, identity, ids)
            by_id = MEMORIES.by_ids(connection, space.name, [each for each in ids if each in held])
        else:
            then = rows_at(connection, space.name, MEMBERS, seq, cluster=identity)
            ids = [row["memory"] for row in then]
            by_id = {row["id"]: row for row in rows_at(connection, space.name, MEMORIES, seq)}
        found = [by_id[each] for each in ids if each in by_id]
        return [Memory.of(row) for row in found if row["state"] in states]


def _verified_members(
    connection: Rows, space: str, cluster: str, memories: Sequence[str]
) -> set[str]:
    """Return the ids among `memories` that are in a cluster according to verified rows."""
    rows = MEMBERS.among(connection, space, "memory", memories, cluster=cluster)
    return {row["memory"] for row in rows if row["cluster"] == cluster}


def of_memory(space: OpenSpace, memory: str, *, as_of: When | None = None) -> list[Cluster]:
    """Return the clusters a memory is in, or was in at a time."""
    with read_as_of(space, as_of) as (connection, seq):
        one = need_memory(connection, space.name, memory, seq)["id"]
        return [
            Cluster.of(_need_cluster(connection, space.name, row["cluster"], seq))
            for row in rows_at(connection, space.name, MEMBERS, seq, memory=one)
        ]
