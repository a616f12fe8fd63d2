"""A year of a life without a model: it stays in order, and nothing of it is lost."""

from __future__ import annotations

from typing import Any

from commonplace.dialects.being.scenes import scene_of

from .conftest import Desk
from .lives import check_clusters, nodes, scripted, year

SCENES, PATROLS = 3_000, 400


def test_a_year_without_a_model_stays_in_order_and_loses_nothing(desk: Desk) -> None:
    told: list[str] = []
    pinned = revived = ""
    most = 0
    for patrol, batch in enumerate(year(SCENES, PATROLS)):
        done = desk.live(*batch)
        assert done["status"] == "ok"
        assert done["nodes_created"] == done["scenes_created"] == len(batch)
        told += [each["action"] for each in batch]
        if patrol == 0:
            first = next(node for node in nodes(desk) if node.importance <= 0.5)
            pinned = desk.memory.revise(first.id, pinned=True).id
        if patrol % 40 == 0:
            most = max(most, check_clusters(desk))
        if patrol == 200:
            fading = next(node for node in nodes(desk, "dying"))
            revived = fading.id
            desk.text("recall_memory", node_id=revived)
            desk.text("recall_memory", node_id=revived)
        if patrol == 201:
            assert desk.memory.get(revived, count=False).state == "active"
            assert revived in desk.text("search_memory", query=scene_of(fading).action, limit=30)
    assert most > 2, "no theme was ever found"
    check_clusters(desk)
    assert desk.memory.get(pinned, count=False).state == "active"
    kept = {scene_of(node).action for node in nodes(desk)}
    assert kept == set(told)
    assert len(nodes(desk, "dying")) > SCENES / 2


def test_a_year_with_a_model_stays_in_order_and_loses_nothing(thinker: Desk, model: Any) -> None:
    model.script = scripted
    told: list[str] = []
    pinned = revived = ""
    for patrol, batch in enumerate(year(SCENES, PATROLS)):
        done = thinker.live(*batch)
        assert done["nodes_created"] == len(batch)
        told += [each["action"] for each in batch]
        if patrol == 0:
            first = next(node for node in nodes(thinker) if node.importance <= 0.5)
            pinned = thinker.memory.revise(first.id, pinned=True).id
        if patrol % 40 == 0:
            check_clusters(thinker)
        if patrol == 200:
            gone = next(node for node in nodes(thinker, "dead"))
            revived = gone.id
            thinker.text("recall_memory", node_id=revived)
        if patrol == 201:
            assert thinker.memory.get(revived, count=False).state == "active"
            assert revived in thinker.text("search_memory", query=scene_of(gone).action, limit=30)
    assert check_clusters(thinker) > 4
    assert thinker.memory.get(pinned, count=False).state == "active"
    kept = {scene_of(node).action for node in nodes(thinker)}
    for node in nodes(thinker):
        if not set(told) - kept:
            break
        versions = thinker.memory.history.versions(node.id)
        kept |= {scene_of(version.memory).action for version in versions}
    assert set(told) <= kept
    assert len(nodes(thinker, "dead")) > SCENES / 2
    assert thinker.memo("diary", "get")["message"].startswith("## ")
