from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from commonplace import Commonplace, Origin
from commonplace.engine.content import links
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.storage.tables import MEMORIES
from conftest import texts


def web(memory: Commonplace, *edges: tuple[str, str, float], kind: str = "knows") -> dict[str, str]:
    """Memories named by letters, linked as told: letter → id."""
    with memory.unit("web"):
        names = sorted({end for edge in edges for end in edge[:2]})
        ids = {name: memory.remember(name).id for name in names}
        for source, target, weight in edges:
            memory.links.add(ids[source], ids[target], kind, weight=weight)
    return ids


def shown(memory: Commonplace, nodes: tuple[str, ...]) -> str:
    return "".join(memory.get(node, count=False).text for node in nodes)


def test_a_link_comes_back_with_every_field(memory: Commonplace) -> None:
    ids = web(memory, ("a", "b", 0.5))
    whence = Origin(user="ann")
    link = memory.links.add(
        ids["b"], ids["a"], "builds_on", weight=0.9, reason="why", attrs={"x": [1]}, origin=whence
    )
    assert memory.links.get(link.id) == link
    assert (link.source, link.target, link.kind) == (ids["b"], ids["a"], "builds_on")
    assert (link.weight, link.reason, link.attrs, link.origin) == (0.9, "why", {"x": [1]}, whence)


def test_links_may_be_named_by_ref_and_keep_ids(memory: Commonplace) -> None:
    one, two = memory.remember("one", ref="r1"), memory.remember("two", ref="r2")
    link = memory.links.add("r1", "r2", "knows")
    assert (link.source, link.target) == (one.id, two.id)


def test_the_same_link_again_is_a_conflict_and_another_kind_or_way_is_not(
    memory: Commonplace,
) -> None:
    ids = web(memory, ("a", "b", 0.5))
    with pytest.raises(Conflict):
        memory.links.add(ids["a"], ids["b"], "knows")
    memory.links.add(ids["b"], ids["a"], "knows")
    memory.links.add(ids["a"], ids["b"], "likes")
    assert len(memory.links.of()) == 3
    with pytest.raises(InvalidInput):
        memory.links.add(ids["a"], ids["a"], "knows")


@pytest.mark.parametrize(
    "bad",
    [{"kind": "Knows It"}, {"weight": 1.1}, {"weight": "x"}, {"reason": "r" * 10_001},
     {"reason": "\ud800"}, {"attrs": []}],
)  # fmt: skip
def test_a_bad_link_is_refused(memory: Commonplace, bad: dict[str, Any]) -> None:
    ids = web(memory, ("a", "b", 0.5))
    with pytest.raises(InvalidInput):
        memory.links.add(ids["b"], ids["a"], **{"kind": "knows", **bad})
    assert len(memory.links.of()) == 1


def test_a_link_s_weight_reason_and_attrs_can_change_and_its_ends_cannot(
    memory: Commonplace,
) -> None:
    ids = web(memory, ("a", "b", 0.5))
    link = memory.links.of()[0]
    revised = memory.links.revise(link.id, weight=0.1, reason="new", attrs={"a": 1})
    assert (revised.weight, revised.reason, revised.attrs) == (0.1, "new", {"a": 1})
    for bad in ({"source": ids["b"]}, {"kind": "other"}, {"weight": 2}):
        with pytest.raises(InvalidInput):
            memory.links.revise(link.id, **bad)
    memory.links.remove(link.id)
    for call in (memory.links.get, memory.links.remove, memory.links.revise):
        with pytest.raises(NotFound):
            call(link.id)


def test_neighbours_come_strongest_first_by_direction_kind_and_weight(memory: Commonplace) -> None:
    ids = web(memory, ("a", "b", 0.2), ("a", "c", 0.9), ("d", "a", 0.5))
    memory.links.add(ids["a"], ids["d"], "likes", weight=0.4)
    near = memory.links.neighbours(ids["a"])
    assert [(each.memory.text, each.outward) for each in near] == [
        ("c", True), ("d", False), ("d", True), ("b", True),
    ]  # fmt: skip
    assert texts(memory.links.neighbours(ids["a"], direction="out")) == ["c", "d", "b"]
    assert texts(memory.links.neighbours(ids["a"], direction="in")) == ["d"]
    assert texts(memory.links.neighbours(ids["a"], kinds=["likes"])) == ["d"]
    assert texts(memory.links.neighbours(ids["a"], weight=0.5)) == ["c", "d"]
    assert texts(memory.links.neighbours(ids["a"], kinds=[])) == []
    memory.forget(ids["c"])
    assert texts(memory.links.neighbours(ids["a"], direction="out")) == ["d", "b"]
    with pytest.raises(InvalidInput):
        memory.links.neighbours(ids["a"], direction="sideways")  # type: ignore[arg-type]


def test_a_walk_finds_simple_paths_with_scores_nearest_and_strongest_first(
    memory: Commonplace,
) -> None:
    ids = web(memory, ("a", "b", 0.8), ("b", "c", 0.5), ("a", "c", 0.4), ("c", "a", 1.0))
    walk = memory.links.traverse(ids["a"], direction="out")
    found = [(shown(memory, path.nodes), round(path.score, 6)) for path in walk.paths]
    # A weight of .8 over one link scores .4, as Penfield's sample shows: weights · .5^depth.
    assert found == [("ab", 0.4), ("ac", 0.2), ("abc", 0.1)]
    assert walk.complete
    assert {memory.get(node).text for node in walk.visited} == {"a", "b", "c"}
    assert walk.paths[2].depth == 2
    assert [link.weight for link in walk.paths[2].links] == [0.8, 0.5]
    backwards = memory.links.traverse(ids["a"], direction="in", decay=1.0)
    assert [shown(memory, path.nodes) for path in backwards.paths] == ["ac", "acb"]
    assert [path.score for path in backwards.paths] == [1.0, 0.5]


def test_a_walk_is_bounded_by_depth_paths_weight_and_kind(memory: Commonplace) -> None:
    chain = "abcdefghijklm"
    ids = web(memory, *((a, b, 1.0) for a, b in pairwise(chain)))
    assert len(memory.links.traverse(ids["a"]).paths) == 3
    assert len(memory.links.traverse(ids["a"], depth=10).paths) == 10
    assert len(memory.links.traverse(ids["g"], depth=10).paths) == 12
    three = memory.links.traverse(ids["a"], depth=10, max_paths=3)
    assert (len(three.paths), three.complete) == (3, False)
    exact = memory.links.traverse(ids["a"], depth=3, max_paths=3)
    assert (len(exact.paths), exact.complete) == (3, True)
    assert memory.links.traverse(ids["a"], weight=1.0).paths
    assert memory.links.traverse(ids["a"], kinds=["likes"]).paths == []
    assert memory.links.traverse(ids["a"], kinds=["likes"]).visited == [ids["a"]]
    for bad in ({"depth": 0}, {"depth": 11}, {"max_paths": 0}, {"max_paths": 1_001}, {"decay": 2}):
        with pytest.raises(InvalidInput):
            memory.links.traverse(ids["a"], **bad)


def test_a_walk_ends_soon_even_where_everything_is_linked(memory: Commonplace) -> None:
    names = "abcdefghijklmno"
    ids = web(memory, *((x, y, 1.0) for x in names for y in names if x < y))
    walk = memory.links.traverse(ids["a"], depth=10)
    assert len(walk.paths) <= 1_000
    assert not walk.complete
    for path in walk.paths:
        assert len(set(path.nodes)) == len(path.nodes), "no memory twice"


def test_a_walk_as_of_a_time_reads_the_former_rows_once(
    memory: Commonplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "abcdefghij"
    ids = web(memory, *((x, y, 0.5) for x, y in pairwise(names)), ("j", "a", 0.7))
    walks = [memory.links.traverse(ids["c"], depth=9, direction=way) for way in links.DIRECTIONS]  # type: ignore[arg-type]
    then = datetime.now(UTC)
    memory.forget(ids["e"])
    memory.links.add(ids["a"], ids["e"], "knows")
    read: list[object] = []
    rows_at = links.rows_at

    def counted(connection: Any, space: str, table: Any, *more: Any, **having: Any) -> Any:
        read.append(table)
        return rows_at(connection, space, table, *more, **having)

    monkeypatch.setattr(links, "rows_at", counted)
    for way, walk in zip(links.DIRECTIONS, walks, strict=True):
        read.clear()
        assert memory.links.traverse(ids["c"], depth=9, direction=way, as_of=then) == walk  # type: ignore[arg-type]
        assert read.count(MEMORIES) == 1, "not once for each memory on the way"


def test_a_walk_does_not_pass_through_what_is_forgotten(memory: Commonplace) -> None:
    ids = web(memory, ("a", "b", 1.0), ("b", "c", 1.0))
    memory.forget(ids["b"])
    assert memory.links.traverse(ids["a"]).paths == []
    memory.restore(ids["b"])
    assert len(memory.links.traverse(ids["a"]).paths) == 2


def test_components_are_groups_of_linked_memories_largest_first(memory: Commonplace) -> None:
    ids = web(memory, ("a", "b", 1), ("c", "b", 1), ("d", "e", 1))
    memory.remember("alone")
    groups = memory.links.components()
    assert [{memory.get(each).text for each in group} for group in groups] == [
        {"a", "b", "c"}, {"d", "e"},
    ]  # fmt: skip
    assert memory.links.components(kinds=["likes"]) == []
    memory.forget(ids["e"])
    assert [len(group) for group in memory.links.components()] == [3, 1]


def test_a_purge_takes_the_links_along(memory: Commonplace) -> None:
    ids = web(memory, ("a", "b", 1), ("c", "b", 1))
    memory.purge(ids["b"])
    assert memory.links.of() == []
    assert memory.links.components() == []


def test_links_around_several_memories_come_once_and_the_oldest_first(memory: Commonplace) -> None:
    ids = web(memory, ("a", "b", 0.5), ("b", "c", 0.9), ("c", "d", 0.1))
    memory.links.add(ids["d"], ids["a"], "likes")

    def around(*names: str, **conditions: Any) -> list[str]:
        found = memory.links.around(*(ids.get(name, name) for name in names), **conditions)
        return [shown(memory, (link.source, link.target)) for link in found]

    assert around("a", "b") == ["ab", "bc", "da"]
    assert around("b", "a", "b") == ["ab", "bc", "da"]
    assert around("a", "b", direction="out") == ["ab", "bc"]
    assert around("a", "b", direction="in") == ["ab", "da"]
    assert around("a", kinds=["likes"]) == ["da"]
    assert around("nobody") == around() == []
    with pytest.raises(InvalidInput):
        memory.links.around(ids["a"], direction="up")  # type: ignore[arg-type]


def test_links_around_more_memories_than_a_statement_asks_for(memory: Commonplace) -> None:
    names = [f"n{number:03}" for number in range(250)]
    ids = web(memory, *((one, other, 0.5) for one, other in pairwise(names)))
    assert memory.links.around(*ids.values()) == memory.links.of()
