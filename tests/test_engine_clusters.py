from __future__ import annotations

import time
from datetime import UTC, datetime

import numpy as np
import pytest

from commonplace import Commonplace
from commonplace.errors import Conflict, InvalidInput, NotFound
from conftest import WordVectors, texts


def test_a_cluster_is_a_named_group_with_a_digest(memory: Commonplace) -> None:
    parent = memory.clusters.create("Private")
    cluster = memory.clusters.create(
        "Trips", digest="Where we went", parent=parent.id, attrs={"a": 1}
    )
    assert memory.clusters.get(cluster.id) == cluster
    assert (cluster.digest, cluster.parent, cluster.attrs) == ("Where we went", parent.id, {"a": 1})
    assert memory.clusters.all() == [parent, cluster]
    revised = memory.clusters.revise(cluster.id, name="Journeys", digest="", parent=None)
    assert (revised.name, revised.digest, revised.parent) == ("Journeys", "", None)


def test_memories_are_put_in_and_taken_out_once(memory: Commonplace) -> None:
    cluster = memory.clusters.create("c").id
    one, two = memory.remember("one", ref="r"), memory.remember("two")
    assert memory.clusters.add(cluster, "r", two.id) == 2
    assert memory.clusters.add(cluster, one.id, two.id) == 0
    assert texts(memory.clusters.members(cluster)) == ["one", "two"]
    assert [each.id for each in memory.clusters.of("r")] == [cluster]
    memory.forget(two.id)
    assert texts(memory.clusters.members(cluster)) == ["one"], "only live ones are shown"
    assert memory.clusters.remove(cluster, one.id) == 1
    assert memory.clusters.remove(cluster, one.id) == 0
    memory.restore(two.id)
    assert texts(memory.clusters.members(cluster)) == ["two"]


def test_deleting_a_cluster_leaves_its_memories(memory: Commonplace) -> None:
    outer = memory.clusters.create("outer").id
    inner = memory.clusters.create("inner", parent=outer).id
    one = memory.remember("one")
    memory.clusters.add(inner, one.id)
    with pytest.raises(Conflict):
        memory.clusters.delete(outer)
    memory.clusters.delete(inner)
    memory.clusters.delete(outer)
    assert memory.clusters.all() == memory.clusters.of(one.id) == []
    assert texts(memory.browse()) == ["one"]
    with pytest.raises(NotFound):
        memory.clusters.members(inner)


def test_a_cluster_cannot_lie_within_itself(memory: Commonplace) -> None:
    a = memory.clusters.create("a").id
    b = memory.clusters.create("b", parent=a).id
    c = memory.clusters.create("c", parent=b).id
    for parent in (a, b, c):
        with pytest.raises(InvalidInput):
            memory.clusters.revise(a, parent=parent)
    memory.clusters.revise(c, parent=a)


def test_bad_clusters_are_refused(memory: Commonplace) -> None:
    for bad in ({"name": ""}, {"name": "n" * 501}, {"name": "c", "digest": "\ud800"}):
        with pytest.raises(InvalidInput):
            memory.clusters.create(**bad)
    with pytest.raises(NotFound):
        memory.clusters.create("c", parent="no such")
    cluster = memory.clusters.create("c").id
    with pytest.raises(InvalidInput):
        memory.clusters.revise(cluster, centroid=b"")
    with pytest.raises(NotFound):
        memory.clusters.add(cluster, memory.remember("x").id, "no such")
    assert memory.clusters.members(cluster) == []


def test_membership_is_seen_as_it_was(memory: Commonplace) -> None:
    cluster = memory.clusters.create("c").id
    one = memory.remember("one")
    memory.clusters.add(cluster, one.id)
    time.sleep(0.002)
    then = datetime.now(UTC)
    time.sleep(0.002)
    memory.revise(one.id, text="changed")
    memory.clusters.delete(cluster)
    assert texts(memory.clusters.members(cluster, as_of=then)) == ["one"]
    assert [each.name for each in memory.clusters.all(as_of=then)] == ["c"]
    assert [each.name for each in memory.clusters.all()] == []


def centroid(memory: Commonplace, cluster: str) -> np.ndarray:
    packed = memory.clusters.get(cluster).centroid
    assert packed is not None
    return np.frombuffer(packed, "<f4")


def test_the_centroid_is_the_direction_of_the_members_mean(
    vectored: Commonplace, words: WordVectors
) -> None:
    memory = vectored
    cluster = memory.clusters.create("c").id
    assert memory.clusters.get(cluster).centroid is None
    one, two = memory.remember("red apples"), memory.remember("green pears")
    memory.clusters.add(cluster, one.id, two.id)
    mean = words.embed(["red apples", "green pears"], query=True).mean(axis=0)
    assert centroid(memory, cluster) @ (mean / np.linalg.norm(mean)) == pytest.approx(1, abs=1e-3)
    assert np.linalg.norm(centroid(memory, cluster)) == pytest.approx(1, abs=1e-5)
    memory.clusters.remove(cluster, two.id)
    alone = words.embed(["red apples"], query=True)[0]
    assert centroid(memory, cluster) @ alone == pytest.approx(1, abs=1e-3)
    memory.revise(one.id, text="blue plums")
    memory.clusters.refresh(cluster)
    now = words.embed(["blue plums"], query=True)[0]
    assert centroid(memory, cluster) @ now == pytest.approx(1, abs=1e-3)
    before = memory.history.operations()
    memory.clusters.refresh(cluster)
    assert memory.history.operations() == before, "nothing to change"
    memory.clusters.remove(cluster, one.id)
    assert memory.clusters.get(cluster).centroid is None


def test_some_members_can_be_asked_for_the_dying_first_then_the_important(
    memory: Commonplace,
) -> None:
    cluster = memory.clusters.create("many").id
    for text, importance in (("low", 0.1), ("high", 0.9), ("middle", 0.5), ("gone", 1.0)):
        memory.clusters.add(cluster, memory.remember(text, importance=importance).id)
    memory.forget(memory.clusters.members(cluster)[-1].id)
    assert texts(memory.clusters.members(cluster, most=2)) == ["high", "middle"]
    memory.revise(memory.clusters.members(cluster)[0].id, state="dying")
    assert texts(memory.clusters.members(cluster, most=2)) == ["low", "high"]
    assert texts(memory.clusters.members(cluster, most=1, states=["active"])) == ["high"]
    assert texts(memory.clusters.members(cluster, most=10)) == ["low", "high", "middle"]
    assert texts(memory.clusters.members(cluster)) == ["low", "high", "middle"], "as they came"
    for wrong in (0, -1, True, "2"):
        with pytest.raises(InvalidInput):
            memory.clusters.members(cluster, most=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        memory.clusters.members(cluster, most=1, as_of="2026-01-01")
