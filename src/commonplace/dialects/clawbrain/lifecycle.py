"""Compaction: merge a day's episodes, promote those with high credit, prune old ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from commonplace.dialects.clawbrain import contradictions, documents, places, records
from commonplace.dialects.clawbrain import strategy as strategies
from commonplace.dialects.clawbrain.places import Place
from commonplace.dialects.clawbrain.strategy import Strategy
from commonplace.engine import checks
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content import credit
from commonplace.engine.model import TRUSTS, Memory, Origin
from commonplace.platform.exclusive import exclusive

PROMOTED_AT_MOST = 0.69  # below the threshold, so that a promoted episode is not promoted again
FACT_CHARS = 10  # shorter texts are not facts
TAGS = checks.TAGS
EVERY = {
    "consolidate": timedelta(days=1), "promote": timedelta(days=2), "prune": timedelta(days=7)
}  # fmt: skip
"""How often each step runs by itself, where the strategy asks for that."""
RAN = "clawbrain-schedule"
UPKEEP = Origin(client="commonplace", tool="clawbrain_upkeep")


@dataclass(slots=True)
class Report:
    """What a compaction did."""

    consolidated: int = 0
    promoted: int = 0
    pruned: int = 0
    details: list[str] = field(default_factory=list)


def compact(
    memory: Commonplace, chosen: Strategy, taken: set[str], steps: Collection[str] = tuple(EVERY)
) -> Report:
    """Consolidate, promote, prune, in this order; all of it one operation that can be undone."""
    run = _Run(memory, chosen, taken)
    for step, work in (
        ("consolidate", run.consolidate), ("promote", run.promote), ("prune", run.prune)
    ):  # fmt: skip
        if step in steps:
            work()
    return run.report


def compact_what_is_due(
    memory: Commonplace, chosen: Strategy, taken: set[str], at: datetime | None = None
) -> Report | None:
    """Run the compaction steps that are due; None if there are none."""
    moment = at or datetime.now(UTC)
    with exclusive(memory, "compact", UPKEEP):
        due = []
        for step, every in EVERY.items():
            last = memory.events.all(kind=RAN, subject=step, newest=True, limit=1)
            if not last or moment - last[0].at >= every:
                due.append(step)
        if not due:
            return None
        report = compact(memory, chosen, taken, due)
        for step in due:
            memory.events.record(RAN, step, {}, origin=UPKEEP)
    return report


def may_be_pruned(one: Memory, score: float, chosen: Strategy, at: datetime) -> bool:
    """Whether a memory is old, has little credit, and is not protected."""
    place = places.of_memory(one)
    old = at - documents.created_at(one) > timedelta(days=chosen.prune_min_age_days)
    return (
        place is not None
        and old
        and score < chosen.prune_threshold
        and not one.pinned
        and not strategies.spares(chosen, place.kind, place.category)
    )


def overlap(one: set[str], other: set[str]) -> float:
    """The share of the smaller set of tags that the other set contains."""
    smaller = min(len(one), len(other))
    return len(one & other) / smaller if smaller else 0.0


def clusters(episodes: Sequence[Memory], threshold: float) -> list[list[Memory]]:
    """Group memories by overlapping tags; groups have at least two."""
    groups: list[tuple[set[str], list[Memory]]] = []
    for episode in episodes:
        tags = set(episode.tags)
        for gathered, members in groups:
            share = overlap(gathered, tags)
            if share > threshold or (share == threshold == 1.0):
                gathered |= tags
                members.append(episode)
                break
        else:
            groups.append((tags, [episode]))
    return [members for _, members in groups if len(members) > 1]


def note_decay(memory: Commonplace) -> None:
    """Log once a day that credits decayed; their decay is computed when they are read."""
    at = datetime.now(UTC)
    newest = memory.events.all(kind=records.LIFECYCLE, subject="decay", newest=True, limit=1)
    if newest and at - newest[0].at < timedelta(days=1):
        return
    oldest, total = memory.browse(kinds=places.KINDS, order="oldest", limit=1)
    if oldest and at - oldest[0].created_at >= timedelta(days=1):
        records.log(memory, "decay", [], f"The credits of {total} memories faded by a day.")


class _Run:
    def __init__(self, memory: Commonplace, chosen: Strategy, taken: set[str]) -> None:
        self.report = Report()
        self._memory = memory
        self._strategy = chosen
        self._taken = taken
        self._rule = credit.Rule(chosen.alpha, chosen.decay_rate)
        # Read everything before the first write, while the shared index can be used.
        self._live = {one.id: one for one in records.live(memory)}
        self._ids = {records.identity(one) for one in self._live.values()}

    def _of(self, kind: str) -> list[Memory]:
        return [one for one in self._live.values() if one.kind == kind]

    def _score(self, one: Memory) -> float:
        return records.score(one, self._rule)

    def consolidate(self) -> None:
        """Merge episodes of one day that share tags; pinned ones are not changed."""
        days: dict[date, list[Memory]] = defaultdict(list)
        for episode in self._of("episode"):
            if not episode.pinned and episode.tags:
                days[documents.created_at(episode).date()].append(episode)
        for day, episodes in sorted(days.items()):
            for group in clusters(episodes, self._strategy.consolidation_tag_overlap):
                self._merge(day, group)

    def _merge(self, day: date, group: Sequence[Memory]) -> None:
        content = f"# {day.isoformat()}"
        members: list[Memory] = []
        for one in group:
            section = f"\n\n## {one.attrs['name']}\n\n{one.text.strip()}"
            if len(content) + len(section) <= checks.TEXT_CHARS:
                content += section
                members.append(one)
        if len(members) < 2:
            return
        first = str(members[0].attrs["name"]).split("-merged")[0]
        place = self._free(Place("episode", f"{day:%Y-%m}", f"{first[:180]}-merged"))
        tags = list(dict.fromkeys(tag for one in members for tag in one.tags))[:TAGS]
        merged = records.store(
            self._memory, place, content, tags=tags,
            score=min(1.0, sum(self._score(one) for one in members)),
            trust=max((one.trust for one in members), key=TRUSTS.index),
            created_at=datetime.combine(day, time(12), UTC),
            more={"merged": [records.identity(one) for one in members]},
        )  # fmt: skip
        for one in members:
            self._archive(one)
        self._live[merged.id] = merged
        self._ids.add(place.id)
        self.report.consolidated += 1
        self._say(
            "consolidate", [*(records.identity(one) for one in members), place.id],
            f"Merged {len(members)} episodes from {day.isoformat()} into '{place.name}'",
        )  # fmt: skip

    def _free(self, place: Place) -> Place:
        number, free = 1, place
        while free.id in self._ids:
            number += 1
            free = Place(place.kind, place.category, f"{place.name}-{number}")
        return free

    def promote(self) -> None:
        """Add the facts of episodes with high credit to an entity."""
        entities = {one.attrs["name"]: one for one in self._of("entity")}
        names = [one.attrs["name"] for one in self._of("entity")]
        for episode in self._of("episode"):
            score = self._score(episode)
            if score <= self._strategy.promotion_threshold or episode.attrs.get("promoted"):
                continue
            facts = [fact for fact in contradictions.facts(episode.text) if lasting(fact)]
            if not facts:
                continue
            named = [tag for tag in episode.tags if names.count(tag) == 1]
            own = f"promoted-{episode.attrs['name']}"[: places.NAME_CHARS].rstrip("-")
            target = entities.get(named[0] if len(named) == 1 else own)
            if target is not None and len(named) != 1 and target.attrs["category"] != "projects":
                target = None
            entity = self._give(facts, target, Place("entity", "projects", own), score, episode)
            if entity is None:
                continue
            entities[entity.attrs["name"]] = self._live[entity.id] = entity
            self._live[episode.id] = records.rescore(
                self._memory, episode, min(score, PROMOTED_AT_MOST), attrs={"promoted": True}
            )
            self.report.promoted += 1
            where = f"{entity.attrs['category']}/{entity.attrs['name']}"
            what = "fact" if len(facts) == 1 else f"{len(facts)} facts"
            self._say(
                "promote", [records.identity(episode), records.identity(entity)],
                f"Promoted {what} from episode to entity '{where}'",
            )  # fmt: skip

    def _give(
        self, facts: Sequence[str], target: Memory | None, own: Place, score: float, giver: Memory
    ) -> Memory | None:
        lines = [f"- {fact}" for fact in dict.fromkeys(facts)]
        gain = self._strategy.promotion_transfer * score
        if target is None:
            content = f"# {own.name}\n\n" + "\n".join(lines)
            score = min(1.0, records.INITIAL + gain)
            return records.store(
                self._memory, own, content, tags=["promoted"], score=score, trust=giver.trust
            )
        held = {line.strip() for line in target.text.splitlines()}
        missing = [line for line in lines if line not in held]
        text = target.text.rstrip() + "\n" + "\n".join(missing) if missing else target.text
        if len(text) > checks.TEXT_CHARS:
            return None
        changes: dict[str, Any] = {"text": text} if missing else {}
        if missing:
            changes["attrs"] = {"updated": documents.stamp(datetime.now(UTC))}
            if TRUSTS.index(giver.trust) > TRUSTS.index(target.trust):
                changes["trust"] = giver.trust
        return records.rescore(self._memory, target, self._score(target) + gain, **changes)

    def prune(self) -> None:
        """Archive old memories with little credit."""
        at = datetime.now(UTC)
        for one in list(self._live.values()):
            score = self._score(one)
            if not may_be_pruned(one, score, self._strategy, at):
                continue
            self._archive(one)
            self.report.pruned += 1
            name = f"{one.kind}-{one.attrs['category']}/{one.attrs['name']}"
            self._say("prune", [records.identity(one)], f"Archived '{name}' (score: {score:.2f})")

    def _archive(self, one: Memory) -> None:
        records.archive(self._memory, one, self._taken)
        del self._live[one.id]

    def _say(self, action: str, targets: Sequence[str], details: str) -> None:
        records.log(self._memory, action, targets, details)
        self.report.details.append(details)


def lasting(fact: str) -> bool:
    """Whether a fact is likely to stay true: neither a question nor a task."""
    return (
        len(fact) > FACT_CHARS
        and "?" not in fact
        and "TODO" not in fact
        and not fact.startswith("Action:")
    )
