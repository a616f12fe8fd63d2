"""Making one node of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commonplace.dialects.being import scenes, sight
from commonplace.dialects.being.beings import lower
from commonplace.dialects.being.scenes import Scene, scene_of
from commonplace.dialects.being.sight import NODE, being_of
from commonplace.dialects.contract import Call
from commonplace.engine.model import LIVE_STATES, Memory
from commonplace.errors import InvalidInput, NotFound
from commonplace.platform.exclusive import exclusive

MOST = 100


def merge_nodes(call: Call, *, node_ids: str, summary: str, feeling: str | None = None) -> str:
    """One node that says what several said; they stay, superseded, as what it was made of."""
    being = being_of(call)
    wanted = list(dict.fromkeys(each.strip() for each in node_ids.split(",") if each.strip()))
    if len(wanted) > MOST:
        return f"error: at most {MOST} nodes can be merged at once; nothing was changed."
    with exclusive(call.memory, "merge nodes"):
        return _merge(call, being, wanted, summary.strip(), feeling or "")


def _merge(call: Call, being: str, wanted: Sequence[str], summary: str, feeling: str) -> str:
    found: dict[str, Memory] = {}
    elsewhere = []
    for identity in wanted:
        try:
            node = call.memory.get(identity, count=False)
        except (NotFound, InvalidInput):
            continue
        if sight.is_own(being, node, NODE) and node.state in (*LIVE_STATES, "dead"):
            found[node.id] = node
        elif node.kind != NODE and sight.findable(call.memory, being).admits(node):
            elsewhere.append(node)
    if elsewhere:
        lives = ", ".join(f"{each.id} is a {each.kind}" for each in elsewhere)
        return f"error: only this being's nodes can be merged; {lives} of another dialect."
    if len(found) < 2:
        return f"error: {len(found)} of these nodes exist; two or more are needed to merge."
    if not summary:
        return "error: summary is empty; say what the merged node tells."
    new = merged(call.memory, being, list(found.values()), summary, feeling)
    return f"{len(found)} nodes merged. new id: {new.id}"


def merged(memory: Any, being: str, nodes: Sequence[Memory], summary: str, feeling: str) -> Memory:
    """The new node, in the cluster of the first; in one unit with all that it takes."""
    told = [scene_of(node) for node in nodes]
    scene = Scene(
        action=summary,
        actors=tuple(dict.fromkeys(actor for each in told for actor in each.actors)),
        when=tuple(dict.fromkeys(day for each in told for day in each.dates)),
        feeling=feeling,
        themes=tuple(dict.fromkeys(theme for each in told for theme in each.themes)),
        importance=max(node.importance for node in nodes),
    )
    trust = nodes[0].trust
    for node in nodes[1:]:
        trust = lower(node, trust)  # type: ignore[assignment]
    draft = scenes.draft(being, scene, kind=NODE, trust=trust, merged=[n.id for n in nodes])
    with memory.unit("merge nodes"):
        (new,) = memory.remember_many([draft])
        if any(node.pinned for node in nodes):
            memory.revise(new.id, pinned=True)
        homes = memory.clusters.homes(*(node.id for node in nodes))
        for node in nodes:
            memory.revise(node.id, state="superseded")
            memory.links.add(new.id, node.id, "supersedes", weight=1.0, reason="merged")
        for cluster in dict.fromkeys(each for held in homes.values() for each in held):
            memory.clusters.remove(cluster, *(n for n, held in homes.items() if cluster in held))
        if first := next((held[0] for held in homes.values() if held), None):
            memory.clusters.add(first, new.id)
    return new  # type: ignore[no-any-return]
