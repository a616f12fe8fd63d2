"""The patrol: it turns scenes into nodes, assigns them to clusters, ages, merges and revives them.

Each step commits in units that share the patrol's label, so that undo reverts all of them. While a
language model is asked, no lock and no snapshot is held; rows that others changed meanwhile keep
their changes.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from commonplace.dialects.being import beings, grouping, history, notes, records, scenes, sight
from commonplace.dialects.being.beings import clusters_of
from commonplace.dialects.being.scenes import Scene, scene_of
from commonplace.dialects.being.sight import NODE
from commonplace.dialects.being.thinking import SHOWN_NODES, Consolidation, Thinking
from commonplace.engine.binding import engine_call
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content import memories
from commonplace.engine.finding import likeness as similarities
from commonplace.engine.finding.listing import Census, census
from commonplace.engine.finding.ranking import faded_importance
from commonplace.engine.history.timeline import PATROL
from commonplace.engine.model import Cluster, Memory, Origin, iso
from commonplace.errors import CommonplaceError, Conflict, NotFound
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusive

ROOTS = ("Business", "Private")
FADED = 0.05
LARGE = 10
"""A cluster with more active nodes is split."""
LARGE_GROUP = 40
"""A cluster below the roots with more active nodes is split without a model."""
GROWN = 1.5
"""The growth of a cluster after which a model is asked again how to split it."""
SHOWN_OF_EACH = 12
SHOWN_DATES = 20
"""How many of a node's dates the model gets."""
SMALL = 2
ROOMY = 8
MARKS = 500
"""How many patrols are counted; a node that lived through more has faded."""
MOST_CLUSTERS = 150
CONSIDERED = 400
EVENT = "being.patrol"

log = logging.getLogger(__name__)


@dataclass
class Report:
    """The result of a patrol."""

    marker_id: str
    scenes_created: int = 0
    nodes_created: int = 0
    status: str = "ok"
    failed: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The answer of trigger_patrol."""
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
    """Run one patrol; the caller makes sure that a being has one at a time."""
    report = Report(str(uuid.uuid4()))
    origin = replace(memory.origin, tool="patrol", label=f"{PATROL}:{report.marker_id}")
    one = _Patrol(memory, being, report, origin, thinking)
    if thinking is not None:
        thinking.spent = one.record_spending
    last = sight.find(memory, being).attrs.get("patrol_marker")
    one.step("listen", lambda: one.listen(messages, marker_id is not None and marker_id == last))
    for name in STEPS:
        one.step(name, getattr(one, name))
    return report


STEPS = ("gather", "count", "fade", "consolidate", "revive", "split", "shrink", "reflect")


@dataclass
class _Patrol:
    memory: Commonplace
    being: str
    report: Report
    origin: Origin
    thinking: Thinking | None
    fresh: list[str] = field(default_factory=list)
    """Nodes that this patrol created."""
    lived: list[Scene] = field(default_factory=list)
    trust: str = "inferred"
    """The least trust of the scenes, for text that is made of them."""
    touched: set[str] = field(default_factory=set)
    """Clusters that got or lost nodes."""
    since: str | None = None
    """When the last patrol was."""
    sizes: dict[str, dict[str, int]] | None = None
    """The number of nodes of each cluster by state, while it is known."""

    def step(self, name: str, work: Callable[[], None]) -> None:
        """Run a step; if it fails, its writes are rolled back and the next step still runs."""
        try:
            work()
        except Exception as error:
            log.exception("a step of the patrol failed", extra={"step": name})
            self.report.failed.append(name)
            why = error.message if isinstance(error, CommonplaceError) else type(error).__name__
            with contextlib.suppress(CommonplaceError):
                self.memory.events.record(EVENT, self.being, {"step": name, "failed": why})

    def unit(self) -> contextlib.AbstractContextManager[None]:
        """A unit of work with the patrol's label."""
        return self.memory.unit(PATROL, self.origin)

    def record(self, step: str, **details: Any) -> None:
        """Record an event of a step."""
        event = {"step": step, "marker": self.report.marker_id, **details}
        self.memory.events.record(EVENT, self.being, event)

    def record_spending(self, what: str, cost: dict[str, Any]) -> None:
        """Record the cost of a question to the model."""
        with contextlib.suppress(CommonplaceError):
            self.memory.events.record("being.llm", self.being, {"purpose": what, **cost})

    def _census(self, *states: str) -> Census:
        return engine_call(
            self.memory, census, sight.own_rows(self.being, NODE, states=list(states))
        )

    def _numbered(self, numbers: Sequence[int]) -> list[Memory]:
        return list(engine_call(self.memory, memories.numbered, numbers))

    def _refresh(self, clusters: Iterable[str]) -> None:
        for cluster in clusters:
            self.memory.clusters.refresh(cluster)

    def _change(self, node: Memory, **changes: Any) -> Memory | None:
        """Change a row if it is still as it was read; None if it is not."""
        with contextlib.suppress(Conflict, NotFound):
            return self.memory.revise(node.id, expected_version=node.version, **changes)
        return None

    # Step 1: messages become scenes, and scenes become nodes

    def listen(self, messages: Sequence[Mapping[str, Any]], known: bool) -> None:
        """Store messages, and extract scenes from them if there is a model."""
        if not messages:
            return
        with self.unit():
            kept = history.keep(self.memory, self.being, messages, new=known)
            if kept:
                self.record("listen", messages=[line.memory.id for line in kept])
        if self.thinking is None or not kept:
            return
        said = [{"role": line.speaker, "content": line.memory.text} for line in kept]
        found = self.thinking.extract(said, records.today())
        with self.unit():
            # A scene gets the lowest trust of the messages that it may come from.
            trust = "external" if any(m.memory.trust == "external" for m in kept) else "inferred"
            drafts = [scenes.draft(self.being, s, kind=sight.SCENE, trust=trust) for s in found]
            made = self.memory.remember_many(drafts)
            if made:
                self.record("extract", notes=[note.id for note in made])

    def gather(self) -> None:
        """❶ Turn scenes into nodes, each in the most similar cluster."""
        waiting = notes.waiting_scenes(self.memory, self.being)
        self.report.scenes_created = len(waiting)
        read = [(note, _scene_of(note)) for note in waiting]
        self._mark_unreadable([note for note, scene in read if scene is None])
        valid = [(note, scene) for note, scene in read if scene is not None]
        clusters = clusters_of(self.memory, self.being)
        roots = self._roots(clusters)
        if not valid:
            return
        subs = [cluster.id for cluster in clusters if not _is_root(cluster)]
        homes = self._places([note for note, _ in valid], subs)
        homeless = [scene for (_, scene), home in zip(valid, homes, strict=True) if not home]
        chosen = iter(self._root_names(homeless))
        placed: dict[str, list[tuple[Memory, Scene]]] = {}
        for (note, scene), home in zip(valid, homes, strict=True):
            placed.setdefault(home or roots[next(chosen)], []).append((note, scene))
        with self.unit():
            for cluster, entries in placed.items():
                self._add_nodes(cluster, entries)
            self.record("gather", nodes=self.fresh)

    def _add_nodes(self, cluster: str, entries: Sequence[tuple[Memory, Scene]]) -> None:
        """Turn scenes into nodes of a cluster; scenes that were changed meanwhile wait."""
        added = []
        for note, scene in entries:
            node = self._change(
                note, kind=NODE, importance=scene.importance, text=scene.text,
                attrs={"scene": scene.as_dict()},
            )  # fmt: skip
            if node is not None:
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
                self._change(note, text=f"{scenes.FAILED} {note.text}")
            self.record("unreadable", notes=[note.id for note in new])

    def _roots(self, clusters: Sequence[Cluster]) -> dict[str, str]:
        """The ids of the root clusters, which the first patrol creates."""
        there = {cluster.name: cluster.id for cluster in clusters if _is_root(cluster)}
        if len(there) == len(ROOTS):
            return there
        with self.unit():
            for name in ROOTS:
                if name not in there:
                    attrs = {"being": self.being, "root": True}
                    there[name] = self.memory.clusters.create(name, attrs=attrs).id
        return there

    def _places(self, notes: Sequence[Memory], subs: Sequence[str]) -> list[str]:
        """For each scene the most similar cluster; empty if none is similar."""
        if not subs:
            return [""] * len(notes)
        likeness = engine_call(
            self.memory, similarities.to_clusters, [note.num for note in notes], subs
        )
        best = likeness.argmax(axis=1)
        places = []
        for row, at, note in zip(likeness, best.tolist(), notes, strict=True):
            if row[at] > grouping.ALIKE:
                places.append(subs[at])
            else:
                places.append("" if row.any() else self._place_by_words(note, subs))
        return places

    def _place_by_words(self, note: Memory, subs: Sequence[str]) -> str:
        """Without vectors, the cluster of the node that shares most words."""
        from commonplace.engine.finding.recall import WORDS_ONLY

        nodes = sight.own_rows(self.being, NODE)
        hits = self.memory.recall(
            note.text[:1_000], limit=1, filters=nodes, weighting=WORDS_ONLY, count=False,
            minimum=0,
        )  # fmt: skip
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
        top = grouping.most_important_actions(cluster.attrs.get("tops", []), added)
        if top != cluster.attrs.get("tops"):
            self.memory.clusters.revise(
                cluster.id, digest=grouping.digest_of(top), attrs={**cluster.attrs, "tops": top}
            )

    # Steps 2, 3 and 5: nodes age, are kept alive by recalls, and die

    def count(self) -> None:
        """❷ Count one more session for all active nodes, in the being's row."""
        nodes = self._census(*sight.ALL_STATES)
        newest = int(nodes.num[-1]) if len(nodes.num) else 0
        # Read under the lock: get_context changes the same row.
        with exclusive(self.memory, PATROL, self.origin):
            being = sight.find(self.memory, self.being)
            attrs = dict(being.attrs)
            self.since = attrs.get("patrolled_at")
            attrs["sessions"] = sight.number_of(being, "sessions") + 1
            marks = sight.marks_of(being)
            attrs["marks"] = [*marks, max([newest, *marks[-1:]])][-MARKS:]
            attrs["patrolled_at"] = iso(datetime.now(UTC))
            attrs["patrol_marker"] = self.report.marker_id
            self.memory.revise(being.id, attrs=attrs)
            self.record("count", session=attrs["sessions"])

    def fade(self) -> None:
        """❸ Nodes that were not recalled for long become dying, unless pinned."""
        nodes = self._census("active")
        lived = _patrols_lived(self._marks(), nodes.num)
        # Recalls only prolong a life: nodes that live without them need not be read.
        doubtful = (nodes.importance * np.exp(-lived / 30) <= FADED) & ~nodes.pinned
        numbers = nodes.num[doubtful].tolist()
        sessions = dict(zip(numbers, lived[doubtful].tolist(), strict=True))
        used = engine_call(self.memory, memories.usages, numbers)
        dying = []
        with self.unit():
            for node in self._numbered(numbers):
                count = max(0, int(sessions[node.num]) - sight.number_of(node, "away"))
                left = faded_importance(node.importance, count, used[node.num].accesses)
                if left > FADED or node.pinned or node.state != "active":
                    continue
                attrs = {**node.attrs, "session_count": count}
                if self._change(node, state="dying", attrs=attrs):
                    dying.append(node.id)
            if dying:
                self.record("dying", nodes=dying)

    def revive(self) -> None:
        """❺ Dying and dead nodes that were recalled become active again."""
        if self.since is None:
            return
        gone = set(self._census("dying", "dead").num.tolist())
        numbers = sorted(gone.intersection(engine_call(
            self.memory, memories.used_since, self.since
        )))  # fmt: skip
        if not numbers:
            return
        used = engine_call(self.memory, memories.usages, numbers)
        lived = dict(
            zip(numbers, _patrols_lived(self._marks(), np.array(numbers)).tolist(), strict=True)
        )
        revived = []
        with self.unit():
            for node in self._numbered(numbers):
                count = sight.number_of(node, "session_count", int(lived[node.num]))
                if faded_importance(node.importance, count, used[node.num].accesses) <= FADED:
                    continue
                attrs = {k: v for k, v in node.attrs.items() if k != "session_count"}
                attrs["away"] = int(lived[node.num]) - count
                if self._change(node, state="active", attrs=attrs):
                    revived.append(node.id)
            if revived:
                self.record("revived", nodes=revived)
        if not revived:
            return
        engine_call(self.memory, memories.reactivate, revived, times=2)
        homes = self.memory.clusters.homes(*revived)
        clusters = {cluster for held in homes.values() for cluster in held}
        self.touched |= clusters
        with self.unit():
            self._refresh(clusters)

    def _marks(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array(sight.marks_of(sight.find(self.memory, self.being)), np.int64)

    # Step 4: consolidation

    def consolidate(self) -> None:
        """❹ With a model: merge fresh and dying nodes with others, or make dying ones dead."""
        if self.thinking is None:
            return
        dying = self._census("dying").num[:CONSIDERED].tolist()
        fading = [node.id for node in self._numbered(dying)]
        homes = self.memory.clusters.homes(*self.fresh, *fading)
        batch: list[tuple[str, Memory]] = []
        for cluster in dict.fromkeys(each for held in homes.values() for each in held):
            there = self.memory.clusters.members(cluster, most=SHOWN_OF_EACH)
            known = {node.id for node in there}
            made = [each for each in self.fresh if cluster in homes[each] and each not in known]
            live = filter(None, (lookup.find_live(self.memory, each) for each in made))
            nodes = self._sorted_for_model([*there, *live])[:SHOWN_OF_EACH]
            if len(nodes) < 2:
                self._mark_dead(cluster, [node for node in nodes if node.state == "dying"])
                continue
            if len(batch) + len(nodes) > SHOWN_NODES:
                self._consolidate(batch)
                batch = []
            batch += [(cluster, node) for node in nodes]
        self._consolidate(batch)

    def _consolidate(self, batch: Sequence[tuple[str, Memory]]) -> None:
        """Ask about the nodes of several clusters at once, since each question costs money."""
        if not batch or self.thinking is None:
            return
        shown = [{**self._described(node), "cluster": cluster} for cluster, node in batch]
        answer = self.thinking.consolidate(shown)
        if answer is not None:
            homes = {node.id: cluster for cluster, node in batch}
            self._apply(answer, {node.id: node for _, node in batch}, homes)

    def _sorted_for_model(self, nodes: Sequence[Memory]) -> list[Memory]:
        """The nodes in the order in which the model gets them: fresh, dying, then by importance."""
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

    def _mark_dead(self, cluster: str, dying: Sequence[Memory]) -> None:
        if not dying:
            return
        with self.unit():
            dead = [node.id for node in dying if self._change(node, state="dead")]
            self._refresh([cluster])
            self.record("dead", nodes=dead)
        self.touched.add(cluster)

    def _apply(
        self, answer: Consolidation, nodes: Mapping[str, Memory], homes: Mapping[str, str]
    ) -> None:
        """Apply the model's answer to the nodes that have not changed meanwhile."""
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
            self._refresh(changed)
            if changed:
                self.record("consolidate", merged=merged, dead=dead)
        self.touched |= changed

    def _unchanged(self, node: Memory) -> bool:
        there = lookup.find(self.memory, node.id)
        return there is not None and there.version == node.version

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
        merged = replace(
            scene,
            action=(merge.merged_action or "").strip() or scene.action,
            feeling=(merge.merged_feeling or "").strip() or scene.feeling,
            when=when,
            themes=tuple(dict.fromkeys([*scene.themes, *themes])),
            importance=min(1.0, survivor.importance + 0.05),
        )
        changes = scenes.changes(self.being, merged, trust=beings.lowest([survivor, *absorbed]))
        changes["attrs"] = {**survivor.attrs, **changes["attrs"]}
        self.memory.revise(survivor.id, **changes)
        for node in absorbed:
            self.memory.revise(node.id, state="dead")
            with contextlib.suppress(Conflict):
                self.memory.links.add(survivor.id, node.id, "absorbed", weight=1.0, reason="patrol")

    # Steps 6 and 7: clusters

    def split(self) -> None:
        """❻ Split clusters that have grown large."""
        sizes = self.sizes = self.memory.clusters.sizes()
        every = clusters_of(self.memory, self.being)
        room = MOST_CLUSTERS - len(every)
        for cluster in every:
            active = sizes.get(cluster.id, {}).get("active", 0)
            if cluster.id not in self.touched or active <= LARGE or room <= 0:
                continue
            mechanical = _is_root(cluster) or active > LARGE_GROUP
            if self.thinking is None and not mechanical:
                continue
            if self.thinking is not None and active < GROWN * cluster.attrs.get("asked", 0):
                continue  # the model was asked, and found nothing to split
            nodes = self.memory.clusters.members(cluster.id, states=["active"])[-CONSIDERED:]
            parts = self._parts_by_model(nodes)
            asked = parts is not None
            if parts is None and mechanical:
                parts = self._mechanical_parts(nodes)
            self.sizes = None  # others may have changed clusters while the model was asked
            made = self._separate(cluster, nodes, (parts or [])[:room])
            room -= made
            if asked and not made:
                with self.unit():
                    attrs = {**cluster.attrs, "asked": active}
                    self.memory.clusters.revise(cluster.id, attrs=attrs)

    def _parts_by_model(self, nodes: Sequence[Memory]) -> list[tuple[str, list[Memory]]] | None:
        if self.thinking is None:
            return None
        ranked = self._sorted_for_model(nodes)
        answer = self.thinking.split([self._described(node) for node in ranked])
        if answer is None:
            return None
        by_id = {node.id: node for node in nodes}
        return [(part.name, [by_id[each] for each in part.node_ids]) for part in answer]

    def _mechanical_parts(self, nodes: Sequence[Memory]) -> list[tuple[str, list[Memory]]]:
        likeness = engine_call(self.memory, similarities.among, [node.num for node in nodes])
        groups = [[nodes[at] for at in group] for group in grouping.greedy(likeness)]
        return [(grouping.name_of([scene_of(n) for n in group]), group) for group in groups]

    def _separate(
        self, cluster: Cluster, nodes: Sequence[Memory], parts: Sequence[tuple[str, list[Memory]]]
    ) -> int:
        """Make clusters of the parts; return their number. Non-root clusters keep two nodes."""
        parent = cluster.id if _is_root(cluster) else cluster.parent
        staying = len(nodes)
        made = []
        with self.unit():
            for name, members in parts:
                if not _is_root(cluster) and staying - len(members) < 2:
                    continue
                gathered = [scene_of(node) for node in members]
                top = grouping.most_important_actions([], gathered)
                new = self.memory.clusters.create(
                    name.strip() or grouping.name_of(gathered), digest=grouping.digest_of(top),
                    parent=parent, attrs={"being": self.being, "tops": top},
                )  # fmt: skip
                self.memory.clusters.move(cluster.id, new.id, *(node.id for node in members))
                staying -= len(members)
                made.append(new.id)
            if made:
                self.record("split", cluster=cluster.id, into=made)
        self.touched |= set(made)
        return len(made)

    def shrink(self) -> None:
        """❼ Move the nodes of small clusters to a similar cluster, or to the parent."""
        sizes = self.memory.clusters.sizes() if self.sizes is None else self.sizes
        every = {cluster.id: cluster for cluster in clusters_of(self.memory, self.being)}
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
            target = self._most_similar(cluster, siblings) or every[cluster.parent]
            with self.unit():
                if sizes.get(cluster.id):
                    self.memory.clusters.move(cluster.id, target.id)
                    moved = [Scene(action=str(a), importance=float(i))
                             for i, a in cluster.attrs.get("tops", [])]  # fmt: skip
                    self._add_to_digest(self.memory.clusters.get(target.id), moved)
                if cluster.id not in parents:
                    self.memory.clusters.delete(cluster.id)
                self.record("shrink", cluster=cluster.id, into=target.id)
            active[target.id] += active.pop(cluster.id)
            every.pop(cluster.id)

    def _most_similar(self, cluster: Cluster, others: Sequence[Cluster]) -> Cluster | None:
        from commonplace.embedding.provider import calibrated, cosines

        embedder = self.memory.library.embedder
        if embedder is None or cluster.centroid is None:
            return None
        mean = np.frombuffer(cluster.centroid, "<f4")
        held = [each for each in others if len(each.centroid or b"") == len(cluster.centroid)]
        if not held:
            return None
        means = np.stack([np.frombuffer(each.centroid or b"", "<f4") for each in held])
        raw = cosines(embedder.id, mean[None, :], means)[0]
        if calibrated(float(raw.max()), embedder.id, "latin") <= grouping.ALIKE:
            return None
        return held[int(raw.argmax())]

    # Step 7

    def reflect(self) -> None:
        """With a model: write today's diary and the being's thoughts."""
        if self.thinking is None or not self.lived:
            return
        before = records.thoughts(self.memory, self.being)
        day = self.thinking.reflect(self.lived, before)
        if day is None:
            return
        thoughts = "\n".join(f"- {each}" for each in day.reflection)
        with exclusive(self.memory, PATROL, self.origin):
            today = records.today()
            self._write_diary(today, day.diary)
            records.THOUGHTS.put(self.memory, self.being, records.THINK, thoughts, self.trust)
            self.record("reflect", diary=today)

    def _write_diary(self, today: str, diary: str) -> None:
        """Replace what an earlier patrol wrote today; the being's own text stays."""
        there = records.DIARY_DAYS.find(self.memory, self.being, today)
        text = diary
        if there is not None:
            before = str(there.attrs.get("patrol") or "")
            if before and before in there.text:
                text = there.text.replace(before, diary, 1)
            else:
                text = f"{there.text}\n\n{diary}"
        extra = {"patrol": diary}
        records.DIARY_DAYS.put(self.memory, self.being, today, text, self.trust, extra)


def _scene_of(note: Memory) -> Scene | None:
    """The scene of a note; None if it cannot be read."""
    if "scene" in note.attrs:
        return scenes.from_dict(note.attrs["scene"])
    return scenes.parse(note.text.removeprefix(scenes.FAILED).strip())


def _is_root(cluster: Cluster) -> bool:
    return bool(cluster.attrs.get("root"))


def _patrols_lived(
    marks: np.ndarray[Any, np.dtype[np.int64]], numbers: np.ndarray[Any, np.dtype[np.int64]]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How many patrols rows have lived through; a mark is the newest row at a patrol."""
    return (len(marks) - np.searchsorted(marks, numbers, side="left")).astype(np.float64)
