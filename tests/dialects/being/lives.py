"""A life to test with: scenes of a few dozen topics, some of which come back and some never."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from commonplace.dialects.being import sight
from commonplace.dialects.being.beings import clusters_of
from commonplace.engine.model import Memory

from .conftest import Desk, scene

TOPICS = [
    ("garden", "tomato soil spade compost watering"),
    ("orchestra", "violin rehearsal conductor score concert"),
    ("harbour", "boat rope tide anchor sail"),
    ("kitchen", "bread oven flour yeast crust"),
    ("office", "meeting budget invoice client deadline"),
    ("mountain", "ridge summit boots weather hut"),
    ("family", "grandmother birthday cake letter visit"),
    ("school", "exam teacher homework classroom chalk"),
    ("health", "doctor knee bandage rest medicine"),
    ("robots", "sensor motor firmware solder battery"),
    ("chess", "opening bishop gambit tournament clock"),
    ("painting", "canvas brush varnish easel pigment"),
]


def year(scenes: int, patrols: int, seed: int = 7) -> Iterator[list[dict[str, Any]]]:
    """The scenes of each patrol."""
    dice = random.Random(seed)
    told = 0
    for patrol in range(patrols):
        due = (patrol + 1) * scenes // patrols
        batch = []
        while told < due:
            name, words = dice.choice(TOPICS)
            picked = dice.sample(words.split(), 3)
            if told % 10 == 0:  # something that is like nothing else
                picked = [f"{w}{told}" for w in ("zork", "blim", "quax")]
                name = f"odd{told}"
            day = f"2026-{1 + patrol * 12 // patrols:02d}-{1 + told % 28:02d}"
            batch.append(
                scene(f"{name} {' '.join(picked)} number{told}", day, themes=[name],
                      importance=round(dice.choice([0.2, 0.5, 0.8, 1.0]), 1))
            )  # fmt: skip
            told += 1
        yield batch


def nodes(desk: Desk, *states: str) -> list[Memory]:
    every = states or ("active", "dying", "dead", "superseded")
    return list(
        sight.readable_rows(
            desk.memory, sight.own_row_filters(desk.being, sight.NODE, states=every)
        )
    )


def check_clusters(desk: Desk) -> int:
    """Between 2 and 200, none empty, no node that could be found without one."""
    clusters = clusters_of(desk.memory, desk.being)
    assert 2 <= len(clusters) <= 200
    sizes = desk.memory.clusters.sizes()
    parents = {cluster.parent for cluster in clusters}
    for cluster in clusters:
        if not cluster.attrs.get("root"):
            assert sizes.get(cluster.id) or cluster.id in parents, f"{cluster.name} is empty"
    there = nodes(desk, "active", "dying", "dead")
    homes = desk.memory.clusters.homes(*(node.id for node in there))
    assert all(len(held) == 1 for held in homes.values())
    return len(clusters)


PRIVATE = ("garden", "kitchen", "family", "health", "painting", "odd")


def scripted(what: str, shown: Any) -> Any:
    """A model that does sensible things by rule."""
    if what == "classify":
        private = [any(each.startswith(p) for p in PRIVATE) for each in shown]
        return {"roots": ["Private" if each else "Business" for each in private]}
    if what == "consolidate":
        return _consolidated(shown)
    if what == "split":
        themes: dict[str, list[str]] = {}
        for node in shown:
            themes.setdefault(node["action"].split()[0], []).append(node["id"])
        whole = len(themes) == 1
        return {"splits": [] if whole else [{"name": n, "node_ids": i} for n, i in themes.items()]}
    if what == "reflect":
        return {"diary": f"Lived {len(shown['scenes'])} scenes.", "reflection": ["I go on."]}
    return {"scenes": []}


def _consolidated(shown: list[dict[str, Any]]) -> Any:
    """Dying nodes go into an active one of their topic, or go."""
    hosts: dict[tuple[str, str], str] = {}
    for node in shown:
        if node["status"] == "active":
            hosts.setdefault((node["cluster"], node["action"].split()[0]), node["id"])
    merges: dict[str, dict[str, Any]] = {}
    dead = []
    for node in shown:
        if node["status"] == "dying":
            host = hosts.get((node["cluster"], node["action"].split()[0]))
            if host is None:
                dead.append(node["id"])
            else:
                merge = merges.setdefault(host, {"survivor_id": host, "absorbed_ids": []})
                merge["absorbed_ids"].append(node["id"])
    return {"merges": list(merges.values()), "make_dead": dead}
