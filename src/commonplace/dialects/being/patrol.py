"""The patrol: scenes become memories, memories find their place, fade, return, and are tidied.

It commits in steps, each a unit of its own that shares the patrol's label, so that all of it is
undone together. Between steps, and while a language model thinks, it holds no lock and no snapshot;
what others changed meanwhile stays as they left it.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from commonplace.dialects.being import beings, grouping, history, notes, records, scenes, sight
from commonplace.dialects.being.recalling import mine
from commonplace.dialects.being.scenes import Scene, scene_of
from commonplace.dialects.being.sight import NODE
from commonplace.dialects.being.thinking import SHOWN_NODES, Consolidation, Thinking
from commonplace.engine.binding import engine_call
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content import memories
from commonplace.engine.finding import likeness as similarities
from commonplace.engine.finding.listing import census
from commonplace.engine.finding.ranking import faded_importance
from commonplace.engine.history.timeline import PATROL
from commonplace.engine.model import LIVE_STATES, Cluster, Memory, Origin, iso
from commonplace.errors import CommonplaceError, Conflict, NotFound
from commonplace.platform.exclusive import exclusive

ROOTS = ("Business", "Private")
FADED = 0.05
LARGE = 10
"""Active nodes beyond which a cluster is split."""
LARGE_GROUP = 40
"""Active nodes beyond which a cluster that is no root is split without a model."""
GROWN = 1.5
"""How much a cluster must have grown before a model is asked again whether it falls apart."""
SHOWN_OF_EACH = 12
SHOWN_DATES = 20
"""A node that took in many others has a date of each: a model needs but the last of them."""
SMALL = 2
ROOMY = 8
MARKS = 500
"""Patrols that are kept apart; a node that lived through more has faded long since."""
MOST_CLUSTERS = 150
CONSIDERED = 400
EVENT = "being.patrol"

log = logging.getLogger(__name__)


@dataclass
class Report:
    """What a patrol did."""

    marker_id: str
    scenes_created: int = 0
    nodes_created: int = 0
    status: str = "ok"
    failed: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """As trigger_patrol answers."""
        return {
            "status": self.status,
            "scenes_created": self.scenes_created,
            "nodes_created": self.nodes_created,
            "marker_id": self.marker_id,
        }


def run(
    memory: Commonplace,
    being: str,
    *,
    thinking: Thinking | None = None,
    messages: Sequence[Mapping[str, Any]] = (),
    marker_id: str | None = None,
) -> Report:
    """One patrol; whoever calls sees to it that there is one at a time."""
    marker = str(uuid.uuid4())
    origin = replace(memory.origin, tool="patrol", label=f"{PATROL}:{marker}")
    one = _Patrol(memory, being, marker, origin, thinking)
    if thinking is not None:
        thinking.spent = one.tell_spending
    known = marker_id is not None and marker_id == sight.find(memory, being).attrs.get(
        "patrol_marker"
    )
    one.step("listen", lambda: one.listen(messages, known))
    one.step("gather", one.gather)
    one.step("count", one.count)
    one.step("fade", one.fade)
    one.step("consolidate", one.consolidate)
    one.step("revive", one.revive)
    one.step("split", one.split)
    one.step("shrink", one.shrink)
    one.step("reflect", one.reflect)
    return one.report


class _Patrol:
    def __init__(
        self,
        memory: Commonplace,
        being: str,
        marker: str,
        origin: Origin,
        thinking: Thinking | None,
    ) -> None:
        self.memory = memory
        self.being = being
        self.origin = origin
        self.thinking = thinking
        self.report = Report(marker)
        self.fresh: list[str] = []
        """Nodes that this patrol made."""
        self.lived: list[Scene] = []
        self.trust = "inferred"
        """The least of what was lived: what is made of it is worth no more."""
        self.touched: set[str] = set()
        """Clusters that got or lost nodes."""
        self.since: str | None = None
        self.sizes: dict[str, dict[str, int]] | None = None
        """How many nodes each cluster has, as long as that holds."""

    def step(self, name: str, work: Callable[[], None]) -> None:
        """One step; if it fails, what it wrote is not there, and the next one still runs."""
        try:
            work()
        except Exception as error:
            log.exception("a step of the patrol failed", extra={"step": name})
            self.report.failed.append(name)
            why = error.message if isinstance(error, CommonplaceError) else type(error).__name__
            with contextlib.suppress(CommonplaceError):
                self.memory.events.record(EVENT, self.being, {"step": name, "failed": why})

    @contextlib.contextmanager
    def unit(self) -> Iterator[None]:
        """What is written together; the label makes it a part of this patrol."""
        with self.memory.unit(PATROL, self.origin):
            yield

    def tell(self, step: str, **details: Any) -> None:
        """A line in the life cycle's log."""
        told = {"step": step, "marker": self.report.marker_id, **details}
        self.memory.events.record(EVENT, self.being, told)

    def tell_spending(self, what: str, told: dict[str, Any]) -> None:
        """What the model cost, whether it answered or not."""
        with contextlib.suppress(CommonplaceError):
            self.memory.events.record("being.llm", self.being, {"purpose": what, **told})

    # ❶ and what comes before it

    def listen(self, messages: Sequence[Mapping[str, Any]], known: bool) -> None:
        """Keep what was said, and tell it as scenes if there is a model for it."""
        if not messages:
            return
        with self.unit():
            kept = history.keep(self.memory, self.being, messages, new=known)
            if kept:
                self.tell("listen", messages=[line.memory.id for line in kept])
        if self.thinking is None or not kept:
            return
        said = [{"role": line.speaker, "content": line.memory.text} for line in kept]
        told = self.thinking.extract(said, records.today())
        with self.unit():
            # What a model makes of a conversation is worth no more than the least of its sources.
            trust = "external" if any(m.memory.trust == "external" for m in kept) else "inferred"
            drafts = [scenes.draft(self.being, s, kind=sight.SCENE, trust=trust) for s in told]
            made = self.memory.remember_many(drafts)
            if made:
                self.tell("extract", notes=[note.id for note in made])

    def gather(self) -> None:
        """❶ Scenes become nodes, each in the cluster that it is most like."""
        waiting = notes.waiting(self.memory, self.being)
        self.report.scenes_created = len(waiting)
        read = [(note, _scene_in(note)) for note in waiting]
        self._mark_unreadable([note for note, scene in read if scene is None])
        told = [(note, scene) for note, scene in read if scene is not None]
        clusters = mine(self.memory, self.being)
        roots = self._roots(clusters)
        if not told:
            return
        subs = [cluster.id for cluster in clusters if not _is_root(cluster)]
        homes = self._places([note for note, _ in told], subs)
        homeless = [scene for (_, scene), home in zip(told, homes, strict=True) if not home]
        chosen = iter(self._root_names(homeless))
        placed: dict[str, list[tuple[Memory, Scene]]] = {}
        for (note, scene), home in zip(told, homes, strict=True):
            placed.setdefault(home or roots[next(chosen)], []).append((note, scene))
        with self.unit():
            for cluster, entries in placed.items():
                self._settle(cluster, entries)
            self.tell("gather", nodes=self.fresh)

    def _settle(self, cluster: str, entries: Sequence[tuple[Memory, Scene]]) -> None:
        """Make scenes nodes of a cluster; what was changed meanwhile waits."""
        added = []
        for note, scene in entries:
            try:
                node = self.memory.revise(
                    note.id, expected_version=note.version, kind=NODE, importance=scene.importance,
                    text=scene.text, attrs={"scene": scene.as_dict()},
                )  # fmt: skip
            except (Conflict, NotFound):
                continue
            added.append((node.id, scene))
        if not added:
            return
        self.memory.clusters.add(cluster, *(identity for identity, _ in added))
        self._add_to_digest(self.memory.clusters.get(cluster), [scene for _, scene in added])
        self.fresh += [identity for identity, _ in added]
        self.lived += [scene for _, scene in added]
        for note, _ in entries:
            self.trust = beings.lower(note, self.trust)
        self.report.nodes_created += len(added)
        self.touched.add(cluster)

    def _mark_unreadable(self, failed: Sequence[Memory]) -> None:
        new = [note for note in failed if not note.text.startswith(scenes.FAILED)]
        if not new:
            return
        with self.unit():
            for note in new:
                with contextlib.suppress(Conflict, NotFound):
                    self.memory.revise(
                        note.id, expected_version=note.version, text=f"{scenes.FAILED} {note.text}"
                    )
            self.tell("unreadable", notes=[note.id for note in new])

    def _roots(self, clusters: Sequence[Cluster]) -> dict[str, str]:
        """The ids of the two halves of a life, made with the first patrol."""
        there = {cluster.name: cluster.id for cluster in clusters if _is_root(cluster)}
        if len(there) == len(ROOTS):
            return there
        with self.unit():
            for name in ROOTS:
                if name not in there:
                    attrs = {"being": self.being, "root": True}
                    there[name] = self.memory.clusters.create(name, attrs=attrs).id
        return there

    def _places(self, told: Sequence[Memory], subs: Sequence[str]) -> list[str]:
        """For each scene the cluster that it is like; nothing where it is like none."""
        if not subs:
            return [""] * len(told)
        likeness = engine_call(
            self.memory, similarities.to_clusters, [note.num for note in told], subs
        )
        best = likeness.argmax(axis=1)
        places = []
        for row, at, note in zip(likeness, best.tolist(), told, strict=True):
            if row[at] > grouping.ALIKE:
                places.append(subs[at])
            else:
                places.append("" if row.any() else self._place_by_words(note, subs))
        return places

    def _place_by_words(self, note: Memory, subs: Sequence[str]) -> str:
        """Where meaning cannot say, the cluster of the node that shares most words."""
        from commonplace.engine.finding.recall import WORDS_ONLY

        nodes = sight.own(self.being, NODE)
        hits = self.memory.recall(
            note.text[:1_000], limit=1, filters=nodes, weighting=WORDS_ONLY, count=False
        )
        if not hits or hits[0].similarity <= grouping.ALIKE:
            return ""
        homes = self.memory.clusters.homes(hits[0].memory.id)[hits[0].memory.id]
        return next((home for home in homes if home in subs), "")

    def _root_names(self, homeless: Sequence[Scene]) -> list[str]:
        chosen = None
        if self.thinking is not None and homeless:
            chosen = self.thinking.classify(homeless, ROOTS)
        return chosen or [ROOTS[0]] * len(homeless)

    def _add_to_digest(self, cluster: Cluster, added: Sequence[Scene]) -> None:
        top = grouping.tops(cluster.attrs.get("tops", []), added)
        if top != cluster.attrs.get("tops"):
            self.memory.clusters.revise(
                cluster.id, digest=grouping.digest_of(top), attrs={**cluster.attrs, "tops": top}
            )

    # ❷ ❸ ❺: how long a node lives

    def count(self) -> None:
        """❷ One more session for every active node: told by the being's row alone."""
        nodes = engine_call(
            self.memory, census, sight.own(self.being, NODE, states=sight.ALL_STATES)
        )
        newest = int(nodes.num[-1]) if len(nodes.num) else 0
        # The look as well: senses that are shown are noted in the same row.
        with exclusive(self.memory, PATROL, self.origin):
            being = sight.find(self.memory, self.being)
            attrs = dict(being.attrs)
            self.since = attrs.get("patrolled_at")
            attrs["sessions"] = sight.number_in(being, "sessions") + 1
            marks = sight.marks_in(being)
            attrs["marks"] = [*marks, max([newest, *marks[-1:]])][-MARKS:]
            attrs["patrolled_at"] = iso(datetime.now(UTC))
            attrs["patrol_marker"] = self.report.marker_id
            self.memory.revise(being.id, attrs=attrs)
            self.tell("count", session=attrs["sessions"])

    def fade(self) -> None:
        """❸ What was not remembered for long is dying; what is pinned is not."""
        marks = self._marks()
        nodes = engine_call(self.memory, census, sight.own(self.being, NODE, states=["active"]))
        lived = _lived(marks, nodes.num)
        # Remembering only prolongs a life: those that would live without it need no closer look.
        doubtful = (nodes.importance * np.exp(-lived / 30) <= FADED) & ~nodes.pinned
        numbers = nodes.num[doubtful].tolist()
        sessions = dict(zip(numbers, lived[doubtful].tolist(), strict=True))
        used = engine_call(self.memory, memories.usages, numbers)
        dying = []
        with self.unit():
            for node in engine_call(self.memory, memories.numbered, numbers):
                count = max(0, int(sessions[node.num]) - sight.number_in(node, "away"))
                left = faded_importance(node.importance, count, used[node.num].accesses)
                if left > FADED or node.pinned or node.state != "active":
                    continue
                attrs = {**node.attrs, "session_count": count}
                if self._change(node, state="dying", attrs=attrs):
                    dying.append(node.id)
            if dying:
                self.tell("dying", nodes=dying)

    def revive(self) -> None:
        """❺ What was remembered although it was fading is active again."""
        if self.since is None:
            return
        gone = engine_call(
            self.memory, census, sight.own(self.being, NODE, states=["dying", "dead"])
        )
        recent = set(engine_call(self.memory, memories.used_since, self.since)) & set(
            gone.num.tolist()
        )
        if not recent:
            return
        numbers = sorted(recent)
        used = engine_call(self.memory, memories.usages, numbers)
        lived = dict(zip(numbers, _lived(self._marks(), np.array(numbers)).tolist(), strict=True))
        revived = []
        with self.unit():
            for node in engine_call(self.memory, memories.numbered, numbers):
                count = sight.number_in(node, "session_count", int(lived[node.num]))
                if faded_importance(node.importance, count, used[node.num].accesses) <= FADED:
                    continue
                attrs = {k: v for k, v in node.attrs.items() if k != "session_count"}
                attrs["away"] = int(lived[node.num]) - count
                if self._change(node, state="active", attrs=attrs):
                    revived.append(node.id)
            if revived:
                self.tell("revived", nodes=revived)
        if not revived:
            return
        engine_call(self.memory, memories.reactivate, revived, times=2)
        homes = self.memory.clusters.homes(*revived)
        self.touched |= {cluster for held in homes.values() for cluster in held}
        with self.unit():
            for cluster in {cluster for held in homes.values() for cluster in held}:
                self.memory.clusters.refresh(cluster)

    def _marks(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array(sight.marks_in(sight.find(self.memory, self.being)), np.int64)

    def _change(self, node: Memory, **changes: Any) -> bool:
        """Change a node if it is still as it was read."""
        try:
            self.memory.revise(node.id, expected_version=node.version, **changes)
        except (Conflict, NotFound):
            return False
        return True

    # ❹ consolidation

    def consolidate(self) -> None:
        """❹ With a model: fresh and dying nodes are merged with what is there, or let go."""
        if self.thinking is None:
            return
        dying = engine_call(self.memory, census, sight.own(self.being, NODE, states=["dying"]))
        fading = [
            node.id
            for node in engine_call(self.memory, memories.numbered, dying.num[:CONSIDERED].tolist())
        ]
        homes = self.memory.clusters.homes(*self.fresh, *fading)
        batch: list[tuple[str, Memory]] = []
        for cluster in dict.fromkeys(each for held in homes.values() for each in held):
            there = self.memory.clusters.members(cluster, most=SHOWN_OF_EACH)
            known = {node.id for node in there}
            made = [each for each in self.fresh if cluster in homes[each] and each not in known]
            nodes = self._shown_first([*there, *self._living(made)])[:SHOWN_OF_EACH]
            if len(nodes) < 2:
                self._let_go(cluster, [node for node in nodes if node.state == "dying"])
                continue
            if len(batch) + len(nodes) > SHOWN_NODES:
                self._consolidate(batch)
                batch = []
            batch += [(cluster, node) for node in nodes]
        self._consolidate(batch)

    def _living(self, identities: Sequence[str]) -> Iterator[Memory]:
        """Nodes by their ids, but for those that somebody has let go of meanwhile."""
        for identity in identities:
            with contextlib.suppress(NotFound):
                node = self.memory.get(identity, count=False)
                if node.state in LIVE_STATES:
                    yield node

    def _consolidate(self, batch: Sequence[tuple[str, Memory]]) -> None:
        """Ask about the nodes of a few clusters at once: each question has its price."""
        if not batch or self.thinking is None:
            return
        shown = [{**self._described(node), "cluster": cluster} for cluster, node in batch]
        answer = self.thinking.consolidate(shown)
        if answer is not None:
            homes = {node.id: cluster for cluster, node in batch}
            self._apply(answer, {node.id: node for _, node in batch}, homes)

    def _shown_first(self, nodes: Sequence[Memory]) -> list[Memory]:
        """Those that it is about, then the most important of the others."""
        new = set(self.fresh)
        return sorted(
            nodes,
            key=lambda node: (node.id not in new, node.state != "dying", -node.importance),
        )

    def _described(self, node: Memory) -> dict[str, Any]:
        scene = scene_of(node)
        return {
            "id": node.id,
            "action": scene.action[:400],
            "when": list(scene.dates[-SHOWN_DATES:]),
            "status": node.state,
            "fresh": node.id in self.fresh,
            "importance": node.importance,
        }

    def _let_go(self, cluster: str, dying: Sequence[Memory]) -> None:
        if not dying:
            return
        with self.unit():
            dead = [node.id for node in dying if self._change(node, state="dead")]
            self.memory.clusters.refresh(cluster)
            self.tell("dead", nodes=dead)
        self.touched.add(cluster)

    def _apply(
        self, answer: Consolidation, nodes: Mapping[str, Memory], homes: Mapping[str, str]
    ) -> None:
        """Do what the model says, as far as nothing it was told of has changed meanwhile."""
        with exclusive(self.memory, PATROL, self.origin):
            merged: list[dict[str, Any]] = []
            for merge in answer.merges:
                survivor = nodes[merge.survivor_id]
                absorbed = [nodes[each] for each in merge.absorbed_ids]
                if any(node.pinned for node in absorbed):
                    continue
                if any(homes[node.id] != homes[survivor.id] for node in absorbed):
                    continue
                if not all(self._unchanged(node) for node in (survivor, *absorbed)):
                    continue
                self._absorb(survivor, absorbed, merge)
                merged.append({"survivor": survivor.id, "absorbed": merge.absorbed_ids})
            dead = [
                each for each in answer.make_dead
                if not nodes[each].pinned and self._change(nodes[each], state="dead")
            ]  # fmt: skip
            changed = {homes[each["survivor"]] for each in merged} | {homes[e] for e in dead}
            for cluster in changed:
                self.memory.clusters.refresh(cluster)
            if changed:
                self.tell("consolidate", merged=merged, dead=dead)
        self.touched |= changed

    def _unchanged(self, node: Memory) -> bool:
        with contextlib.suppress(NotFound):
            return self.memory.get(node.id, count=False).version == node.version
        return False

    def _absorb(self, survivor: Memory, absorbed: Sequence[Memory], merge: Any) -> None:
        scene = scene_of(survivor)
        dated: dict[str, Any] = {}
        for node in absorbed:
            other = scene_of(node)
            dated |= {day: {"date": day, "action": other.action} for day in other.dates}
        dated |= dict(zip(scene.dates, scene.when, strict=True))
        when = tuple(dated.values())
        if merge.merged_when and all(each.get("date") for each in merge.merged_when):
            when = tuple({k: v for k, v in e.items() if k in ("date", "action")}
                         for e in merge.merged_when)  # fmt: skip
        themes = [theme for node in absorbed for theme in scene_of(node).themes]
        told = replace(
            scene,
            action=(merge.merged_action or "").strip() or scene.action,
            feeling=(merge.merged_feeling or "").strip() or scene.feeling,
            when=when,
            themes=tuple(dict.fromkeys([*scene.themes, *themes])),
            importance=min(1.0, survivor.importance + 0.05),
        )
        trust: str = survivor.trust
        for node in absorbed:
            trust = beings.lower(node, trust)
        draft = scenes.draft(self.being, told, kind=NODE, trust=trust)
        self.memory.revise(
            survivor.id, text=draft.text, tags=draft.tags, importance=draft.importance,
            occurred_at=draft.occurred_at, trust=trust,
            attrs={**survivor.attrs, "scene": told.as_dict()},
        )  # fmt: skip
        for node in absorbed:
            self.memory.revise(node.id, state="dead")
            with contextlib.suppress(Conflict):
                self.memory.links.add(survivor.id, node.id, "absorbed", weight=1.0, reason="patrol")

    # ❻ ❼ clusters

    def split(self) -> None:
        """❻ A cluster that has grown large falls into the themes that are in it."""
        sizes = self.sizes = self.memory.clusters.sizes()
        every = mine(self.memory, self.being)
        room = MOST_CLUSTERS - len(every)
        for cluster in every:
            active = sizes.get(cluster.id, {}).get("active", 0)
            if cluster.id not in self.touched or active <= LARGE or room <= 0:
                continue
            mechanical = _is_root(cluster) or active > LARGE_GROUP
            if self.thinking is None and not mechanical:
                continue
            if self.thinking is not None and active < GROWN * cluster.attrs.get("asked", 0):
                continue  # the model has said what it thinks of it
            nodes = self.memory.clusters.members(cluster.id, states=["active"])[-CONSIDERED:]
            parts = self._thought_parts(nodes)
            asked = parts is not None
            if parts is None and mechanical:
                parts = self._mechanical_parts(nodes)
            self.sizes = None  # while a model thought, others may have changed something
            made = self._separate(cluster, nodes, (parts or [])[:room])
            room -= made
            if asked and not made:
                with self.unit():
                    attrs = {**cluster.attrs, "asked": active}
                    self.memory.clusters.revise(cluster.id, attrs=attrs)

    def _thought_parts(self, nodes: Sequence[Memory]) -> list[tuple[str, list[Memory]]] | None:
        if self.thinking is None:
            return None
        ranked = self._shown_first(nodes)
        answer = self.thinking.split([self._described(node) for node in ranked])
        if answer is None:
            return None
        by_id = {node.id: node for node in nodes}
        return [(part.name, [by_id[each] for each in part.node_ids]) for part in answer]

    def _mechanical_parts(self, nodes: Sequence[Memory]) -> list[tuple[str, list[Memory]]]:
        groups = grouping.greedy(
            engine_call(self.memory, similarities.among, [node.num for node in nodes])
        )
        parts = []
        for group in groups:
            members = [nodes[at] for at in group]
            parts.append((grouping.name_of([scene_of(node) for node in members]), members))
        return parts

    def _separate(
        self, cluster: Cluster, nodes: Sequence[Memory], parts: Sequence[tuple[str, list[Memory]]]
    ) -> int:
        """New clusters of the parts, and how many; of one that is no root, some must stay."""
        parent = cluster.id if _is_root(cluster) else cluster.parent
        staying = len(nodes)
        made = []
        with self.unit():
            for name, members in parts:
                if not _is_root(cluster) and staying - len(members) < 2:
                    continue
                told = [scene_of(node) for node in members]
                top = grouping.tops([], told)
                new = self.memory.clusters.create(
                    name.strip() or grouping.name_of(told), digest=grouping.digest_of(top),
                    parent=parent, attrs={"being": self.being, "tops": top},
                )  # fmt: skip
                self.memory.clusters.move(cluster.id, new.id, *(node.id for node in members))
                staying -= len(members)
                made.append(new.id)
            if made:
                self.tell("split", cluster=cluster.id, into=made)
        self.touched |= set(made)
        return len(made)

    def shrink(self) -> None:
        """❼ A cluster that has become small joins one that it is like, or its parent."""
        sizes = self.memory.clusters.sizes() if self.sizes is None else self.sizes
        every = {cluster.id: cluster for cluster in mine(self.memory, self.being)}
        parents = {cluster.parent for cluster in every.values()}
        active = {each: sizes.get(each, {}).get("active", 0) for each in every}
        for cluster in list(every.values()):
            if _is_root(cluster) or active[cluster.id] > SMALL or cluster.parent is None:
                continue
            siblings = [
                other for other in every.values()
                if other.parent == cluster.parent and other.id != cluster.id
                and active[other.id] <= ROOMY
            ]  # fmt: skip
            target = self._likest(cluster, siblings) or every[cluster.parent]
            with self.unit():
                if sizes.get(cluster.id):
                    self.memory.clusters.move(cluster.id, target.id)
                    told = [Scene(action=str(a), importance=float(i))
                            for i, a in cluster.attrs.get("tops", [])]  # fmt: skip
                    self._add_to_digest(self.memory.clusters.get(target.id), told)
                if cluster.id not in parents:
                    self.memory.clusters.delete(cluster.id)
                self.tell("shrink", cluster=cluster.id, into=target.id)
            active[target.id] += active.pop(cluster.id)
            every.pop(cluster.id)

    def _likest(self, cluster: Cluster, others: Sequence[Cluster]) -> Cluster | None:
        from commonplace.embedding.provider import calibrated

        embedder = self.memory.library.embedder
        held = [each for each in others if each.centroid is not None]
        if embedder is None or cluster.centroid is None or not held:
            return None
        mean = np.frombuffer(cluster.centroid, "<f4")
        held = [each for each in held if len(each.centroid or b"") == len(cluster.centroid)]
        raw = [float(np.frombuffer(each.centroid or b"", "<f4") @ mean) for each in held]
        if not raw or calibrated(max(raw), embedder.id, "latin") <= grouping.ALIKE:
            return None
        return held[raw.index(max(raw))]

    # Step 7

    def reflect(self) -> None:
        """With a model: the day's diary, and what the being thinks now."""
        if self.thinking is None or not self.lived:
            return
        before = records.thoughts(self.memory, self.being)
        day = self.thinking.reflect(self.lived, before)
        if day is None:
            return
        told = "\n".join(f"- {each}" for each in day.reflection)
        with exclusive(self.memory, PATROL, self.origin):
            today = records.today()
            self._tell_the_day(today, day.diary)
            records.THOUGHTS.put(self.memory, self.being, records.THINK, told, self.trust)
            self.tell("reflect", diary=today)

    def _tell_the_day(self, today: str, diary: str) -> None:
        """Over what a patrol told of the day before; what the being wrote itself stays."""
        there = records.DIARY_DAYS.find(self.memory, self.being, today)
        whole = diary
        if there is not None:
            before = str(there.attrs.get("patrol") or "")
            if before and before in there.text:
                whole = there.text.replace(before, diary, 1)
            else:
                whole = f"{there.text}\n\n{diary}"
        extra = {"patrol": diary}
        records.DIARY_DAYS.put(self.memory, self.being, today, whole, self.trust, extra)


def _scene_in(note: Memory) -> Scene | None:
    """The scene that a note tells, if it can be read."""
    if "scene" in note.attrs:
        return scenes.from_dict(note.attrs["scene"])
    return scenes.parse(note.text.removeprefix(scenes.FAILED).strip())


def _is_root(cluster: Cluster) -> bool:
    return bool(cluster.attrs.get("root"))


def _lived(
    marks: np.ndarray[Any, np.dtype[np.int64]], numbers: np.ndarray[Any, np.dtype[np.int64]]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Through how many patrols rows have lived: each mark is the newest row that it counted."""
    return (len(marks) - np.searchsorted(marks, numbers, side="left")).astype(np.float64)
