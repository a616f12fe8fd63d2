"""The patrol turns scenes into nodes, assigns them to clusters, and ages, merges and revives nodes.

Each step commits in transactions that share the patrol's label, so that undo reverts all of them.
During a call of the language model the patrol holds no lock and no snapshot; it does not overwrite
rows that other callers change in that time.
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
from commonplace.engine import checks
from commonplace.engine.binding import engine_call
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content import memories
from commonplace.engine.finding import likeness as similarities
from commonplace.engine.finding.listing import MemoryColumns, memory_columns
from commonplace.engine.finding.ranking import faded_importance
from commonplace.engine.history.timeline import PATROL
from commonplace.engine.model import Cluster, Memory, Origin, iso
from commonplace.errors import CommonplaceError, Conflict, NotFound
from commonplace.platform import lookup
from commonplace.platform.exclusive import exclusive
from commonplace.storage.database import now
from commonplace.text.snippets import opening

ROOT_NAMES = ("Business", "Private")
DYING_IMPORTANCE = 0.05
"""A node whose remaining importance is at most this becomes dying."""
LARGE_ROOT = 10
"""A root cluster with more active nodes than this is split; other clusters only with a model."""
LARGE_CLUSTER = 40
"""A non-root cluster with more active nodes than this is split even without a model."""
ASK_AGAIN_GROWTH = 1.5
"""The model is asked again how to split a cluster after it has grown by this factor."""
PROMPT_NODES_PER_CLUSTER = 12
"""The maximum number of nodes of each cluster in a prompt for consolidation."""
PROMPT_DATES = 20
"""The maximum number of a node's dates in a prompt."""
SMALL_CLUSTER = 2
"""A cluster with at most so many active nodes is merged into another one."""
MAX_TARGET_NODES = 8
"""The maximum number of active nodes of a cluster into which a small sibling is merged."""
MAX_MARKS = 500
"""The number of newest patrols that are counted; a node that is older than all has faded."""
MOST_CLUSTERS = 150
MAX_CONSIDERED_NODES = 400
PATROL_EVENT = "being.patrol"

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
        """Return the report as the answer of trigger_patrol."""
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
    """Run one patrol. The caller must ensure that a being has only one patrol at a time."""
    report = Report(str(uuid.uuid4()))
    origin = replace(memory.origin, tool="patrol", label=f"{PATROL}:{report.marker_id}")
    one = _Patrol(memory, being, report, origin, thinking)
    if thinking is not None:
        thinking.on_spent = one.record_spending
    last = sight.get_being(memory, being).attrs.get("patrol_marker")
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
    new_node_ids: list[str] = field(default_factory=list)
    """Nodes that this patrol created."""
    new_scenes: list[Scene] = field(default_factory=list)
    trust: str = "inferred"
    """The lowest trust of the scenes; texts derived from them get this trust."""
    touched_clusters: set[str] = field(default_factory=set)
    """The ids of clusters to which nodes were added or from which nodes were removed."""
    since: str | None = None
    """The time of the previous patrol; None before the first."""
    sizes: dict[str, dict[str, int]] | None = None
    """The number of nodes of each cluster by state; None if it must be read again."""

    def step(self, name: str, work: Callable[[], None]) -> None:
        """Run a step. If the step fails, log the error and continue with the next step."""
        try:
            work()
        except Exception as error:
            log.exception("a step of the patrol failed", extra={"step": name})
            self.report.failed.append(name)
            why = error.message if isinstance(error, CommonplaceError) else type(error).__name__
            with contextlib.suppress(CommonplaceError):
                self.memory.events.record(PATROL_EVENT, self.being, {"step": name, "failed": why})

    def unit(self) -> contextlib.AbstractContextManager[None]:
        """Return a transaction with the patrol's label."""
        return self.memory.unit(PATROL, self.origin)

    def record(self, step: str, **details: Any) -> None:
        """Record an event that describes a step."""
        event = {"step": step, "marker": self.report.marker_id, **details}
        self.memory.events.record(PATROL_EVENT, self.being, event)

    def record_spending(self, purpose: str, cost: dict[str, Any]) -> None:
        """Record the cost of a question to the model."""
        with contextlib.suppress(CommonplaceError):
            self.memory.events.record("being.llm", self.being, {"purpose": purpose, **cost})

    def _node_census(self, *states: str) -> MemoryColumns:
        return engine_call(
            self.memory,
            memory_columns,
            sight.own_row_filters(self.being, NODE, states=list(states)),
        )

    def _rows_by_number(self, numbers: Sequence[int]) -> list[Memory]:
        return list(engine_call(self.memory, memories.memories_by_number, numbers))

    def _refresh_clusters(self, clusters: Iterable[str]) -> None:
        for cluster in clusters:
            self.memory.clusters.refresh(cluster)

    def _change(self, node: Memory, **changes: Any) -> Memory | None:
        """Change a row unless another caller has changed it; return None in that case."""
        with contextlib.suppress(Conflict, NotFound):
            return self.memory.revise(node.id, expected_version=node.version, **changes)
        return None

    # Step 1: messages become scenes, and scenes become nodes

    def listen(self, messages: Sequence[Mapping[str, Any]], new: bool) -> None:
        """Store messages, and extract scenes from them if there is a model."""
        if not messages:
            return
        with self.unit():
            stored = history.store_messages(self.memory, self.being, messages, new=new)
            if stored:
                self.record("listen", messages=[line.memory.id for line in stored])
        if self.thinking is None or not stored:
            return
        conversation = [{"role": line.speaker, "content": line.memory.text} for line in stored]
        found = self.thinking.extract(conversation, records.today())
        with self.unit():
            # A scene gets the lowest trust of the messages that it may come from.
            trust = "external" if any(m.memory.trust == "external" for m in stored) else "inferred"
            drafts = [scenes.draft(self.being, s, kind=sight.SCENE, trust=trust) for s in found]
            notes = self.memory.remember_many(drafts)
            if notes:
                self.record("extract", notes=[note.id for note in notes])

    def gather(self) -> None:
        """❶ Turn scenes into nodes, each in the most similar cluster."""
        waiting = notes.waiting_scenes(self.memory, self.being)
        self.report.scenes_created = len(waiting)
        parsed = [(note, _scene_in_note(note)) for note in waiting]
        self._mark_unreadable([note for note, scene in parsed if scene is None])
        valid = [(note, scene) for note, scene in parsed if scene is not None]
        clusters = clusters_of(self.memory, self.being)
        roots = self._root_ids(clusters)
        if not valid:
            return
        subs = [cluster.id for cluster in clusters if not _is_root(cluster)]
        places = self._similar_clusters([note for note, _ in valid], subs)
        unplaced = [scene for (_, scene), place in zip(valid, places, strict=True) if not place]
        chosen = iter(self._choose_roots(unplaced))
        placed: dict[str, list[tuple[Memory, Scene]]] = {}
        for (note, scene), place in zip(valid, places, strict=True):
            placed.setdefault(place or roots[next(chosen)], []).append((note, scene))
        with self.unit():
            for cluster, entries in placed.items():
                self._add_nodes(cluster, entries)
            self.record("gather", nodes=self.new_node_ids)

    def _add_nodes(self, cluster: str, entries: Sequence[tuple[Memory, Scene]]) -> None:
        """Turn scenes into nodes of a cluster; skip scenes that another caller has changed."""
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
        self.new_node_ids += [identity for identity, _ in added]
        self.new_scenes += [scene for _, scene in added]
        for note, _ in entries:
            self.trust = beings.lower_trust(note, self.trust)
        self.report.nodes_created += len(added)
        self.touched_clusters.add(cluster)

    def _mark_unreadable(self, failed: Sequence[Memory]) -> None:
        new = [note for note in failed if not note.text.startswith(scenes.PARSE_FAILED)]
        if not new:
            return
        with self.unit():
            for note in new:
                marked = opening(f"{scenes.PARSE_FAILED} {note.text}", checks.TEXT_CHARS - 1)
                self._change(note, text=marked)
            self.record("unreadable", notes=[note.id for note in new])

    def _root_ids(self, clusters: Sequence[Cluster]) -> dict[str, str]:
        """Return the ids of the root clusters by name; create missing ones."""
        by_name = {cluster.name: cluster.id for cluster in clusters if _is_root(cluster)}
        if len(by_name) == len(ROOT_NAMES):
            return by_name
        with self.unit():
            for name in ROOT_NAMES:
                if name not in by_name:
                    attrs = {"being": self.being, "root": True}
                    by_name[name] = self.memory.clusters.create(name, attrs=attrs).id
        return by_name

    def _similar_clusters(self, notes: Sequence[Memory], subs: Sequence[str]) -> list[str]:
        """Return the most similar cluster for each scene, or an empty string if none is similar."""
        if not subs:
            return [""] * len(notes)
        likeness = engine_call(
            self.memory, similarities.similarities_to_clusters, [note.num for note in notes], subs
        )
        best = likeness.argmax(axis=1)
        places = []
        for row, at, note in zip(likeness, best.tolist(), notes, strict=True):
            if row[at] > grouping.MIN_SIMILARITY:
                places.append(subs[at])
            else:
                places.append("" if row.any() else self._cluster_by_words(note, subs))
        return places

    def _cluster_by_words(self, note: Memory, subs: Sequence[str]) -> str:
        """Return the cluster of the node that shares most words, for a scene without a vector."""
        from commonplace.engine.finding.recall import WORDS_ONLY

        nodes = sight.own_row_filters(self.being, NODE)
        hits = self.memory.recall(
            note.text[:1_000], limit=1, filters=nodes, weighting=WORDS_ONLY, count=False,
            minimum=0,
        )  # fmt: skip
        if not hits or hits[0].similarity <= grouping.MIN_SIMILARITY:
            return ""
        homes = self.memory.clusters.homes(hits[0].memory.id)[hits[0].memory.id]
        return next((home for home in homes if home in subs), "")

    def _choose_roots(self, unplaced: Sequence[Scene]) -> list[str]:
        chosen = None
        if self.thinking is not None and unplaced:
            chosen = self.thinking.classify(unplaced, ROOT_NAMES)
        return chosen or [ROOT_NAMES[0]] * len(unplaced)

    # Steps 2, 3 and 5: the age of nodes

    def count(self) -> None:
        """❷ Count one more session for all active nodes, in the being's row."""
        nodes = self._node_census(*sight.ALL_STATES)
        newest = min(int(nodes.created.max(initial=0)), now())
        # Read under the lock: get_context changes the same row.
        with exclusive(self.memory, PATROL, self.origin):
            being = sight.get_being(self.memory, self.being)
            attrs = dict(being.attrs)
            self.since = attrs.get("patrolled_at")
            attrs["sessions"] = sight.integer_attr(being, "sessions") + 1
            marks = sight.patrol_marks(being)
            attrs["marks_at"] = [*marks, max([newest, *marks[-1:]])][-MAX_MARKS:]
            attrs["patrolled_at"] = iso(datetime.now(UTC))
            attrs["patrol_marker"] = self.report.marker_id
            self.memory.revise(being.id, attrs=attrs)
            self.record("count", session=attrs["sessions"])

    def fade(self) -> None:
        """❸ Nodes that were not recalled for long become dying, unless pinned."""
        nodes = self._node_census("active")
        patrols = self._patrols_since_stored(nodes)
        # Recalls only raise the value, so nodes above the limit without them need not be read.
        doubtful = (nodes.importance * np.exp(-patrols / 30) <= DYING_IMPORTANCE) & ~nodes.pinned
        numbers = nodes.num[doubtful].tolist()
        sessions = dict(zip(numbers, patrols[doubtful].tolist(), strict=True))
        used = engine_call(self.memory, memories.usages, numbers)
        dying = []
        with self.unit():
            for node in self._rows_by_number(numbers):
                count = max(0, int(sessions[node.num]) - sight.integer_attr(node, "away"))
                remaining = faded_importance(node.importance, count, used[node.num].accesses)
                if remaining > DYING_IMPORTANCE or node.pinned or node.state != "active":
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
        nodes = self._node_census("dying", "dead")
        lived = dict(
            zip(nodes.num.tolist(), self._patrols_since_stored(nodes).tolist(), strict=True)
        )
        numbers = sorted(lived.keys() & engine_call(
            self.memory, memories.numbers_read_since, self.since
        ))  # fmt: skip
        if not numbers:
            return
        used = engine_call(self.memory, memories.usages, numbers)
        revived = []
        with self.unit():
            for node in self._rows_by_number(numbers):
                count = sight.integer_attr(node, "session_count", int(lived[node.num]))
                if (
                    faded_importance(node.importance, count, used[node.num].accesses)
                    <= DYING_IMPORTANCE
                ):
                    continue
                attrs = {k: v for k, v in node.attrs.items() if k != "session_count"}
                attrs["away"] = int(lived[node.num]) - count
                if self._change(node, state="active", attrs=attrs):
                    revived.append(node.id)
            if revived:
                self.record("revived", nodes=revived)
        if not revived:
            return
        engine_call(self.memory, memories.count_reads_now, revived, times=2)
        clusters_by_node = self.memory.clusters.homes(*revived)
        clusters = {cluster for ids in clusters_by_node.values() for cluster in ids}
        self.touched_clusters |= clusters
        with self.unit():
            self._refresh_clusters(clusters)

    def _patrols_since_stored(self, nodes: MemoryColumns) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return how many patrols have run since each node was stored, at most MARKS."""
        being = sight.get_being(self.memory, self.being)
        lived = _count_marks_since(sight.patrol_marks(being), nodes.created)
        lived += _count_marks_since(sight.patrol_marks(being, "marks"), nodes.num)
        lived[lived > MAX_MARKS] = MAX_MARKS
        return lived

    # Step 4: consolidation

    def consolidate(self) -> None:
        """❹ With a model, merge fresh and dying nodes with others, or mark dying ones as dead."""
        if self.thinking is None:
            return
        dying = self._node_census("dying").num[:MAX_CONSIDERED_NODES].tolist()
        fading = [node.id for node in self._rows_by_number(dying)]
        clusters_by_node = self.memory.clusters.homes(*self.new_node_ids, *fading)
        batch: list[tuple[str, Memory]] = []
        for cluster in dict.fromkeys(each for ids in clusters_by_node.values() for each in ids):
            members = self.memory.clusters.members(cluster, most=PROMPT_NODES_PER_CLUSTER)
            member_ids = {node.id for node in members}
            fresh_ids = [
                each
                for each in self.new_node_ids
                if cluster in clusters_by_node[each] and each not in member_ids
            ]
            live = filter(None, (lookup.find_live_memory(self.memory, each) for each in fresh_ids))
            nodes = self._sorted_for_model([*members, *live])[:PROMPT_NODES_PER_CLUSTER]
            if len(nodes) < 2:
                self._mark_dead(cluster, [node for node in nodes if node.state == "dying"])
                continue
            if len(batch) + len(nodes) > SHOWN_NODES:
                self._consolidate(batch)
                batch = []
            batch += [(cluster, node) for node in nodes]
        self._consolidate(batch)

    def _consolidate(self, batch: Sequence[tuple[str, Memory]]) -> None:
        """Ask the model about several clusters in one prompt, because each prompt costs money."""
        if not batch or self.thinking is None:
            return
        described = [{**self._node_for_prompt(node), "cluster": cluster} for cluster, node in batch]
        answer = self.thinking.consolidate(described)
        if answer is not None:
            cluster_of = {node.id: cluster for cluster, node in batch}
            self._apply_consolidation(answer, {node.id: node for _, node in batch}, cluster_of)

    def _sorted_for_model(self, nodes: Sequence[Memory]) -> list[Memory]:
        """Return the nodes in the order for prompts: fresh, then dying, then by importance."""
        new = set(self.new_node_ids)
        return sorted(
            nodes,
            key=lambda node: (node.id not in new, node.state != "dying", -node.importance),
        )

    def _node_for_prompt(self, node: Memory) -> dict[str, Any]:
        scene = scene_of(node)
        return {
            "id": node.id,
            "action": scene.action[:400],
            "when": list(scene.dates[-PROMPT_DATES:]),
            "status": node.state,
            "fresh": node.id in self.new_node_ids,
            "importance": node.importance,
        }

    def _mark_dead(self, cluster: str, dying: Sequence[Memory]) -> None:
        if not dying:
            return
        with self.unit():
            dead = [node.id for node in dying if self._change(node, state="dead")]
            self._refresh_clusters([cluster])
            self.record("dead", nodes=dead)
        self.touched_clusters.add(cluster)

    def _apply_consolidation(
        self, answer: Consolidation, nodes: Mapping[str, Memory], cluster_of: Mapping[str, str]
    ) -> None:
        """Apply the model's answer; skip nodes that another caller has changed."""
        with exclusive(self.memory, PATROL, self.origin):
            merged: list[dict[str, Any]] = []
            for merge in answer.merges:
                survivor = nodes[merge.survivor_id]
                absorbed = [nodes[each] for each in merge.absorbed_ids]
                if any(node.pinned for node in absorbed):
                    continue
                if any(cluster_of[node.id] != cluster_of[survivor.id] for node in absorbed):
                    continue
                if not all(self._is_unchanged(node) for node in (survivor, *absorbed)):
                    continue
                self._merge_nodes(survivor, absorbed, merge)
                merged.append({"survivor": survivor.id, "absorbed": merge.absorbed_ids})
            dead = [
                each for each in answer.make_dead
                if not nodes[each].pinned and self._change(nodes[each], state="dead")
            ]  # fmt: skip
            changed = {cluster_of[each["survivor"]] for each in merged} | {
                cluster_of[e] for e in dead
            }
            self._refresh_clusters(changed)
            if changed:
                self.record("consolidate", merged=merged, dead=dead)
        self.touched_clusters |= changed

    def _is_unchanged(self, node: Memory) -> bool:
        current = lookup.find_memory(self.memory, node.id)
        return current is not None and current.version == node.version

    def _merge_nodes(self, survivor: Memory, absorbed: Sequence[Memory], merge: Any) -> None:
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
        changes = scenes.memory_fields(
            self.being, merged, trust=beings.lowest_trust([survivor, *absorbed])
        )
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
        clusters = clusters_of(self.memory, self.being)
        room = MOST_CLUSTERS - len(clusters)
        for cluster in clusters:
            active = sizes.get(cluster.id, {}).get("active", 0)
            if cluster.id not in self.touched_clusters or active <= LARGE_ROOT or room <= 0:
                continue
            mechanical = _is_root(cluster) or active > LARGE_CLUSTER
            if self.thinking is None and not mechanical:
                continue
            if self.thinking is not None and active < ASK_AGAIN_GROWTH * cluster.attrs.get(
                "asked", 0
            ):
                continue  # the model has already found nothing to split
            nodes = self.memory.clusters.members(cluster.id, states=["active"])[
                -MAX_CONSIDERED_NODES:
            ]
            parts = self._parts_by_model(nodes)
            asked = parts is not None
            if parts is None and mechanical:
                parts = self._parts_by_similarity(nodes)
            self.sizes = None  # clusters may have changed during the call of the model
            count = self._create_clusters(cluster, nodes, (parts or [])[:room])
            room -= count
            if asked and not count:
                with self.unit():
                    attrs = {**cluster.attrs, "asked": active}
                    self.memory.clusters.revise(cluster.id, attrs=attrs)

    def _parts_by_model(self, nodes: Sequence[Memory]) -> list[tuple[str, list[Memory]]] | None:
        if self.thinking is None:
            return None
        ranked = self._sorted_for_model(nodes)
        answer = self.thinking.split([self._node_for_prompt(node) for node in ranked])
        if answer is None:
            return None
        by_id = {node.id: node for node in nodes}
        return [(part.name, [by_id[each] for each in part.node_ids]) for part in answer]

    def _parts_by_similarity(self, nodes: Sequence[Memory]) -> list[tuple[str, list[Memory]]]:
        likeness = engine_call(
            self.memory, similarities.similarities_among, [node.num for node in nodes]
        )
        groups = [[nodes[at] for at in group] for group in grouping.greedy_groups(likeness)]
        return [(grouping.cluster_name([scene_of(n) for n in group]), group) for group in groups]

    def _create_clusters(
        self, cluster: Cluster, nodes: Sequence[Memory], parts: Sequence[tuple[str, list[Memory]]]
    ) -> int:
        """Create a cluster for each part; return their number. Two or more stay in a subcluster."""
        parent = cluster.id if _is_root(cluster) else cluster.parent
        remaining = len(nodes)
        new_ids = []
        with self.unit():
            for name, members in parts:
                if not _is_root(cluster) and remaining - len(members) < 2:
                    continue
                new = self.memory.clusters.create(
                    name.strip() or grouping.cluster_name([scene_of(node) for node in members]),
                    parent=parent,
                    attrs={"being": self.being},
                )
                self.memory.clusters.move(cluster.id, new.id, *(node.id for node in members))
                remaining -= len(members)
                new_ids.append(new.id)
            if new_ids:
                self.record("split", cluster=cluster.id, into=new_ids)
        self.touched_clusters |= set(new_ids)
        return len(new_ids)

    def shrink(self) -> None:
        """❼ Move the nodes of small clusters to a similar cluster, or to the parent."""
        sizes = self.memory.clusters.sizes() if self.sizes is None else self.sizes
        clusters = {cluster.id: cluster for cluster in clusters_of(self.memory, self.being)}
        parents = {cluster.parent for cluster in clusters.values()}
        active = {each: sizes.get(each, {}).get("active", 0) for each in clusters}
        for cluster in list(clusters.values()):
            if _is_root(cluster) or active[cluster.id] > SMALL_CLUSTER or cluster.parent is None:
                continue
            siblings = [
                other for other in clusters.values()
                if other.parent == cluster.parent and other.id != cluster.id
                and active[other.id] <= MAX_TARGET_NODES
            ]  # fmt: skip
            target = self._most_similar(cluster, siblings) or clusters[cluster.parent]
            with self.unit():
                if sizes.get(cluster.id):
                    self.memory.clusters.move(cluster.id, target.id)
                if cluster.id not in parents:
                    self.memory.clusters.delete(cluster.id)
                self.record("shrink", cluster=cluster.id, into=target.id)
            active[target.id] += active.pop(cluster.id)
            clusters.pop(cluster.id)

    def _most_similar(self, cluster: Cluster, candidates: Sequence[Cluster]) -> Cluster | None:
        from commonplace.embedding.provider import calibrate, cosines

        embedder = self.memory.library.embedder
        if embedder is None or cluster.centroid is None:
            return None
        mean = np.frombuffer(cluster.centroid, "<f4")
        comparable = [
            each for each in candidates if len(each.centroid or b"") == len(cluster.centroid)
        ]
        if not comparable:
            return None
        means = np.stack([np.frombuffer(each.centroid or b"", "<f4") for each in comparable])
        raw = cosines(embedder.id, mean[None, :], means)[0]
        if calibrate(float(raw.max()), embedder.id, "latin") <= grouping.MIN_SIMILARITY:
            return None
        return comparable[int(raw.argmax())]

    # Step 7

    def reflect(self) -> None:
        """If there is a model, write today's diary entry and the being's thoughts."""
        if self.thinking is None or not self.new_scenes:
            return
        before = records.thoughts(self.memory, self.being)
        day = self.thinking.reflect(self.new_scenes, before)
        if day is None:
            return
        thoughts = "\n".join(f"- {each}" for each in day.reflection)
        with exclusive(self.memory, PATROL, self.origin):
            today = records.today()
            self._write_diary(today, day.diary)
            records.THOUGHTS.put(
                self.memory, self.being, records.REFLECTION_KEY, thoughts, self.trust
            )
            self.record("reflect", diary=today)

    def _write_diary(self, today: str, diary: str) -> None:
        """Replace today's diary text of an earlier patrol; keep the text of the being itself."""
        existing = records.DIARY_DAYS.find(self.memory, self.being, today)
        text = diary
        if existing is not None:
            before = str(existing.attrs.get("patrol") or "")
            if before and before in existing.text:
                text = existing.text.replace(before, diary, 1)
            else:
                text = f"{existing.text}\n\n{diary}"
        extra = {"patrol": diary}
        records.DIARY_DAYS.put(self.memory, self.being, today, text, self.trust, extra)


def _scene_in_note(note: Memory) -> Scene | None:
    """Return the scene of a note, or None if it cannot be read."""
    if "scene" in note.attrs:
        return scenes.stored_scene(note)
    return scenes.parse(note.text.removeprefix(scenes.PARSE_FAILED).strip())


def _is_root(cluster: Cluster) -> bool:
    return bool(cluster.attrs.get("root"))


def _count_marks_since(
    marks: Sequence[int], values: np.ndarray[Any, np.dtype[np.int64]]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return how many of the marks, which are sorted, are not below each of the values."""
    at = np.searchsorted(np.array(marks, np.int64), values, side="left")
    return (len(marks) - at).astype(np.float64)
