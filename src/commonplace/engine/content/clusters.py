"""Named groups of memories, with a digest and the mean of their vectors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from commonplace.engine import checks
from commonplace.engine.binding import named
from commonplace.engine.content.memories import need_row
from commonplace.engine.history.timeline import need_row_as_of, rows_as_of, seq_at
from commonplace.engine.model import LIVE_STATES, Cluster, Memory, Origin, When
from commonplace.engine.space import OpenSpace
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.storage import members as stored_members
from commonplace.storage.database import new_id
from commonplace.storage.derived import unpack_many
from commonplace.storage.fields import STATES
from commonplace.storage.ports import Rows
from commonplace.storage.tables import CLUSTERS, MEMBERS, MEMORIES, Row
from commonplace.storage.writing import Unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


AT_ONCE = 100  # memories that one statement asks for


def _need(connection: Rows, space: str, identity: str) -> Row:
    checks.text(identity, "cluster", max_chars=checks.REF_CHARS)
    row = CLUSTERS.by_id(connection, space, identity)
    if row is None:
        raise NotFound("There is no such cluster.", field="cluster")
    return row


def _need_as_of(connection: Rows, space: str, identity: str, seq: int) -> Row:
    checks.text(identity, "cluster", max_chars=checks.REF_CHARS)
    for row in rows_as_of(connection, space, CLUSTERS, seq, id=identity):
        return row
    raise NotFound("There was no such cluster at that time.", field="cluster")


class ClusterChanges(TypedDict, total=False):
    """What can be changed of a cluster."""

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
    values = _checked({"name": name, "digest": digest, "attrs": attrs, "parent": parent})
    with space.write("create cluster", origin) as unit:
        if parent is not None:
            _need(unit.connection, space.name, parent)
        seq = unit.seq
        row = CLUSTERS.insert(
            unit,
            {
                **values,
                "id": new_id(),
                "centroid": None,
                "origin": origin.dump(),
                "created_at": unit.at,
            },
        )
        assert row["seq"] == seq
        return Cluster.of(row)


def _checked(changes: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in changes.items():
        if name == "name":
            values[name] = checks.text(value, name, max_chars=checks.NAME_CHARS)
        elif name == "digest":
            values[name] = checks.optional(value, name, max_chars=checks.REASON_CHARS)
        elif name == "attrs":
            values[name] = checks.attrs(value)
        elif name == "parent":
            values[name] = None if value is None else checks.text(value, name)
        else:
            raise InvalidInput(
                f"A cluster's {name} cannot be changed.",
                hint="Only name, digest, parent, attrs.",
                field=name,
            )
    return values


@named(ClusterChanges)
def revise(
    space: OpenSpace,
    identity: str,
    *,
    origin: Origin | None = None,
    **changes: Unpack[ClusterChanges],
) -> Cluster:
    """Change a cluster's name, digest, parent or attrs."""
    values = _checked(changes)
    with space.write("revise cluster", origin) as unit:
        row = _need(unit.connection, space.name, identity)
        above, seen = values.get("parent"), {identity}
        while above is not None:
            if above in seen:
                raise InvalidInput("A cluster cannot lie within itself.", field="parent")
            seen.add(above)
            above = _need(unit.connection, space.name, above)["parent"]
        return Cluster.of(CLUSTERS.replace(unit, row, values))


def delete(space: OpenSpace, identity: str, *, origin: Origin | None = None) -> None:
    """Remove a cluster and its memberships; its memories stay."""
    with space.write("delete cluster", origin) as unit:
        row = _need(unit.connection, space.name, identity)
        if CLUSTERS.first(unit.connection, space.name, parent=identity):
            raise Conflict("The cluster has clusters within it.", hint="Move or delete them first.")
        for member in MEMBERS.where(unit.connection, space.name, cluster=identity):
            MEMBERS.remove(unit, member)
        CLUSTERS.remove(unit, row)


def add(space: OpenSpace, identity: str, *members: str, origin: Origin | None = None) -> int:
    """Put memories into a cluster; return how many were not in it before."""
    with space.write("add to cluster", origin) as unit:
        row = _need(unit.connection, space.name, identity)
        added = 0
        for memory in members:
            found = need_row(unit.connection, space.name, memory)["id"]
            if _membership(unit, identity, found) is None:
                MEMBERS.insert(unit, {"cluster": identity, "memory": found})
                added += 1
        if added:
            _recompute(space, unit, row)
        return added


def remove(space: OpenSpace, identity: str, *members: str, origin: Origin | None = None) -> int:
    """Take memories out of a cluster; return how many were in it."""
    with space.write("remove from cluster", origin) as unit:
        row = _need(unit.connection, space.name, identity)
        removed = 0
        for memory in members:
            found = need_row(unit.connection, space.name, memory)["id"]
            member = _membership(unit, identity, found)
            if member is not None:
                MEMBERS.remove(unit, member)
                removed += 1
        if removed:
            _recompute(space, unit, row)
        return removed


def _membership(unit: Unit, cluster: str, memory: str) -> Row | None:
    return MEMBERS.first(unit.connection, unit.space, cluster=cluster, memory=memory)


def refresh(space: OpenSpace, identity: str, *, origin: Origin | None = None) -> None:
    """Compute a cluster's centroid anew, after its memories changed."""
    with space.write("refresh cluster", origin) as unit:
        _recompute(space, unit, _need(unit.connection, space.name, identity))


def _recompute(space: OpenSpace, unit: Unit, row: Row) -> None:
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
    matrix, scales = unpack_many(b"".join(blobs), space.embedder.dimensions)
    return matrix.astype(np.float32) * scales[:, None]


def get(space: OpenSpace, identity: str, *, as_of: When | None = None) -> Cluster:
    """Return one cluster; or as it was at a moment."""
    with space.store.read() as connection:
        if as_of is None:
            return Cluster.of(_need(connection, space.name, identity))
        seq = seq_at(connection, space.name, as_of)
        return Cluster.of(_need_as_of(connection, space.name, identity, seq))


def listing(space: OpenSpace, *, as_of: When | None = None) -> list[Cluster]:
    """Return all clusters, oldest first."""
    with space.store.read() as connection:
        if as_of is None:
            rows = CLUSTERS.where(connection, space.name, in_order=True)
        else:
            seq = seq_at(connection, space.name, as_of)
            rows = rows_as_of(connection, space.name, CLUSTERS, seq)
        return [Cluster.of(row) for row in rows]


def sizes(space: OpenSpace, *, as_of: When | None = None) -> dict[str, dict[str, int]]:
    """Count the memories of each state in each cluster; an empty cluster is left out."""
    found: dict[str, dict[str, int]] = {}
    with space.store.read() as connection:
        if as_of is not None:
            seq = seq_at(connection, space.name, as_of)
            then = rows_as_of(connection, space.name, MEMORIES, seq)
            states = {row["id"]: row["state"] for row in then}
            for member in rows_as_of(connection, space.name, MEMBERS, seq):
                if member["memory"] in states:
                    counts = found.setdefault(member["cluster"], {})
                    state = states[member["memory"]]
                    counts[state] = counts.get(state, 0) + 1
            return found
        for cluster, state, count in stored_members.counts(connection, space.name):
            found.setdefault(cluster, {})[state] = count
    return found


def homes(space: OpenSpace, *identities: str, as_of: When | None = None) -> dict[str, list[str]]:
    """Return the ids of the clusters that each memory is in, by the memory's id."""
    checks.texts(identities, "identities")
    with space.store.read() as connection:
        if as_of is not None:
            seq = seq_at(connection, space.name, as_of)
            found: dict[str, list[str]] = {memory: [] for memory in identities}
            for row in rows_as_of(connection, space.name, MEMBERS, seq):
                if row["memory"] in found:
                    found[row["memory"]].append(row["cluster"])
            return found
        wanted = list(dict.fromkeys(identities))
        homes: dict[str, list[str]] = {memory: [] for memory in wanted}
        rows = MEMBERS.among(connection, space.name, "memory", wanted)
        for row in sorted(rows, key=lambda row: int(row["num"])):
            homes[row["memory"]].append(row["cluster"])
        return homes


def move(
    space: OpenSpace, source: str, target: str, *members: str, origin: Origin | None = None
) -> int:
    """Move memories from one cluster to another; all of them if none is named."""
    checks.text(source, "source")
    checks.text(target, "target")
    wanted = set(checks.texts(members, "members"))
    with space.write("move between clusters", origin) as unit:
        from_row = _need(unit.connection, space.name, source)
        to_row = _need(unit.connection, space.name, target)
        moved = 0
        for member in MEMBERS.where(unit.connection, space.name, cluster=source):
            if wanted and member["memory"] not in wanted:
                continue
            MEMBERS.remove(unit, member)
            if _membership(unit, target, member["memory"]) is None:
                MEMBERS.insert(unit, {"cluster": target, "memory": member["memory"]})
            moved += 1
        if moved:
            _recompute(space, unit, from_row)
            _recompute(space, unit, to_row)
        return moved


def members(
    space: OpenSpace,
    identity: str,
    *,
    as_of: When | None = None,
    states: Collection[str] = LIVE_STATES,
    most: int | None = None,
) -> list[Memory]:
    """Return a cluster's memories, the live ones or those in other states, as they were added.

    With `most`, at most so many of those that are there now: dying ones first, then the most
    important.
    """
    states = {checks.one_of(each, "states", STATES) for each in checks.listed(states, "states")}
    if most is not None:
        checks.limit(most, "most")
        if as_of is not None:
            raise InvalidInput("most is of now: leave as_of out.", field="most")
    with space.store.read() as connection:
        if as_of is None:
            _need(connection, space.name, identity)
            # What is in another state is not even read: of an old cluster most are dead.
            ids = stored_members.ids(connection, space.name, identity, states, most)
            held = _held(connection, space.name, identity, ids)
            by_id = MEMORIES.by_ids(connection, space.name, [each for each in ids if each in held])
            found = [by_id[each] for each in ids if each in by_id]
        else:
            seq = seq_at(connection, space.name, as_of)
            _need_as_of(connection, space.name, identity, seq)
            then = rows_as_of(connection, space.name, MEMBERS, seq, cluster=identity)
            past = {row["id"]: row for row in rows_as_of(connection, space.name, MEMORIES, seq)}
            found = [past[row["memory"]] for row in then if row["memory"] in past]
        return [Memory.of(row) for row in found if row["state"] in states]


def _held(connection: Rows, space: str, cluster: str, memories: Sequence[str]) -> set[str]:
    """Those of some memories that verified rows say to be in a cluster."""
    rows = MEMBERS.among(connection, space, "memory", memories, cluster=cluster)
    return {row["memory"] for row in rows if row["cluster"] == cluster}


def of_memory(space: OpenSpace, memory: str, *, as_of: When | None = None) -> list[Cluster]:
    """Return the clusters a memory is in, or was in at a moment."""
    with space.store.read() as connection:
        if as_of is not None:
            seq = seq_at(connection, space.name, as_of)
            one = need_row_as_of(connection, space.name, memory, seq)["id"]
            homes = rows_as_of(connection, space.name, MEMBERS, seq, memory=one)
            then = {row["id"]: row for row in rows_as_of(connection, space.name, CLUSTERS, seq)}
            return [Cluster.of(then[row["cluster"]]) for row in homes]
        one = need_row(connection, space.name, memory)["id"]
        return [
            Cluster.of(_need(connection, space.name, row["cluster"]))
            for row in MEMBERS.where(connection, space.name, in_order=True, memory=one)
        ]
