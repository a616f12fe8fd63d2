"""Compaction: merge episodes of a day, promote their facts to entities, prune old memories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from commonplace.dialects.clawbrain import contradictions, documents, locations, records
from commonplace.dialects.clawbrain import strategy as strategies
from commonplace.dialects.clawbrain.locations import Location
from commonplace.dialects.clawbrain.strategy import Strategy
from commonplace.engine import checks
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content import credit
from commonplace.engine.model import TRUSTS, Memory, Origin
from commonplace.platform.exclusive import exclusive

MAX_PROMOTED_CREDIT = 0.69  # of an episode after promotion; below the default threshold
MIN_FACT_CHARS = 10  # shorter bullet points are not promoted
MAX_TAGS = checks.MAX_TAGS
INTERVALS = {
    "consolidate": timedelta(days=1), "promote": timedelta(days=2), "prune": timedelta(days=7)
}  # fmt: skip
"""The interval of each automatic step, if the strategy enables them."""
SCHEDULED_RUN = "clawbrain-schedule"
UPKEEP = Origin(client="commonplace", tool="clawbrain_upkeep")


@dataclass(slots=True)
class CompactionReport:
    """The result of a compaction."""

    consolidated: int = 0
    promoted: int = 0
    pruned: int = 0
    details: list[str] = field(default_factory=list)


def compact(
    memory: Commonplace,
    chosen: Strategy,
    used_paths: set[str],
    steps: Collection[str] = tuple(INTERVALS),
) -> CompactionReport:
    """Run the steps consolidate, promote and prune, in this order, in the current transaction."""
    run = _Compaction(memory, chosen, used_paths)
    for step, work in (
        ("consolidate", run.consolidate), ("promote", run.promote), ("prune", run.prune)
    ):  # fmt: skip
        if step in steps:
            work()
    return run.report


def compact_if_due(
    memory: Commonplace, chosen: Strategy, used_paths: set[str], at: datetime | None = None
) -> CompactionReport | None:
    """Run the steps that are due; return None if no step is due."""
    moment = at or datetime.now(UTC)
    with exclusive(memory, "compact", UPKEEP):
        due = []
        for step, every in INTERVALS.items():
            last = records.last_time(memory, step, SCHEDULED_RUN)
            if last is None or moment - last >= every:
                due.append(step)
        if not due:
            return None
        report = compact(memory, chosen, used_paths, due)
        for step in due:
            memory.events.record(SCHEDULED_RUN, step, {}, origin=UPKEEP)
    return report


def may_be_pruned(one: Memory, score: float, chosen: Strategy, at: datetime) -> bool:
    """Return whether a memory is old, has low credit, and is not exempt from pruning."""
    location = locations.of_memory(one)
    old = at - documents.created_at(one) > timedelta(days=chosen.prune_min_age_days)
    return (
        location is not None
        and old
        and score < chosen.prune_threshold
        and not one.pinned
        and not strategies.is_exempt(chosen, location.kind, location.category)
    )


def overlap_share(one: set[str], other: set[str]) -> float:
    """Return the fraction of the smaller set that is also in the other set."""
    smaller = min(len(one), len(other))
    return len(one & other) / smaller if smaller else 0.0


def episode_groups(episodes: Sequence[Memory], threshold: float) -> list[list[Memory]]:
    """Return groups of two or more episodes.

    The tags of each episode overlap with those of its group by more than `threshold`.
    """
    groups: list[tuple[set[str], list[Memory]]] = []
    for episode in episodes:
        tags = set(episode.tags)
        for gathered, members in groups:
            share = overlap_share(gathered, tags)
            if share > threshold or (share == threshold == 1.0):
                gathered |= tags
                members.append(episode)
                break
        else:
            groups.append((tags, [episode]))
    return [members for _, members in groups if len(members) > 1]


def log_decay(memory: Commonplace) -> None:
    """Record the decay of credits once a day; the decay itself is computed when reading."""
    if _count_unlogged_decay(memory):
        # Another server may record the decay at the same time.
        with exclusive(memory, "decay", UPKEEP):
            if total := _count_unlogged_decay(memory):
                records.log_action(
                    memory, "decay", [], f"The credits of {total} memories decayed by one day."
                )


def _count_unlogged_decay(memory: Commonplace) -> int:
    """Return the number of memories whose loss of credit is not recorded yet."""
    at = datetime.now(UTC)
    last = records.last_time(memory, "decay")
    if last is not None and at - last < timedelta(days=1):
        return 0
    oldest, total = memory.browse(kinds=locations.KINDS, order="oldest", limit=1)
    return total if oldest and at - oldest[0].created_at >= timedelta(days=1) else 0


class _Compaction:
    def __init__(self, memory: Commonplace, chosen: Strategy, used_paths: set[str]) -> None:
        self.report = CompactionReport()
        self._memory = memory
        self._strategy = chosen
        self._used_paths = used_paths
        self._rule = credit.Rule(chosen.alpha, chosen.decay_rate)
        # Read all memories before the first write; after it, this transaction cannot use the index.
        self._live = {one.id: one for one in records.live_memories(memory)}
        self._ids = {records.public_id(one) for one in self._live.values()}

    def _memories_of(self, kind: str) -> list[Memory]:
        return [one for one in self._live.values() if one.kind == kind]

    def _score(self, one: Memory) -> float:
        return credit.credit_of(one, self._rule)

    def consolidate(self) -> None:
        """Merge episodes of one day that share tags, except pinned ones."""
        days: dict[date, list[Memory]] = defaultdict(list)
        for episode in self._memories_of("episode"):
            if not episode.pinned and episode.tags:
                days[documents.created_at(episode).date()].append(episode)
        for day, episodes in sorted(days.items()):
            for group in episode_groups(episodes, self._strategy.consolidation_tag_overlap):
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
        location = self._unused_location(
            Location("episode", f"{day:%Y-%m}", f"{first[:180]}-merged")
        )
        tags = list(dict.fromkeys(tag for one in members for tag in one.tags))[:MAX_TAGS]
        merged = records.store(
            self._memory, location, content, tags=tags,
            score=min(1.0, sum(self._score(one) for one in members)),
            trust=max((one.trust for one in members), key=TRUSTS.index),
            created_at=datetime.combine(day, time(12), UTC),
            more={
                "merged": [records.public_id(one) for one in members],
                "updated": documents.stamp(datetime.now(UTC)),
            },
        )  # fmt: skip
        for one in members:
            self._archive(one)
        self._live[merged.id] = merged
        self._ids.add(location.id)
        self.report.consolidated += 1
        self._log(
            "consolidate", [*(records.public_id(one) for one in members), location.id],
            f"Merged {len(members)} episodes from {day.isoformat()} into '{location.name}'",
        )  # fmt: skip

    def _unused_location(self, location: Location) -> Location:
        number, free = 1, location
        while free.id in self._ids:
            number += 1
            free = Location(location.kind, location.category, f"{location.name}-{number}")
        return free

    def promote(self) -> None:
        """Copy the facts of episodes with high credit to an entity."""
        entities = {one.attrs["name"]: one for one in self._memories_of("entity")}
        names = [one.attrs["name"] for one in self._memories_of("entity")]
        for episode in self._memories_of("episode"):
            score = self._score(episode)
            if score <= self._strategy.promotion_threshold or episode.attrs.get("promoted"):
                continue
            facts = [
                fact for fact in contradictions.bullet_facts(episode.text) if is_promotable(fact)
            ]
            if not facts:
                continue
            named = [tag for tag in episode.tags if names.count(tag) == 1]
            own = f"promoted-{episode.attrs['name']}"[: locations.NAME_CHARS].rstrip("-")
            target = entities.get(named[0] if len(named) == 1 else own)
            if target is not None and len(named) != 1 and target.attrs["category"] != "projects":
                target = None
            entity = self._add_facts(
                facts, target, Location("entity", "projects", own), score, episode
            )
            if entity is None:
                continue
            entities[entity.attrs["name"]] = self._live[entity.id] = entity
            self._live[episode.id] = records.set_credit(
                self._memory, episode, min(score, MAX_PROMOTED_CREDIT), attrs={"promoted": True}
            )
            self.report.promoted += 1
            where = f"{entity.attrs['category']}/{entity.attrs['name']}"
            what = "fact" if len(facts) == 1 else f"{len(facts)} facts"
            self._log(
                "promote", [records.public_id(episode), records.public_id(entity)],
                f"Promoted {what} from episode to entity '{where}'",
            )  # fmt: skip

    def _add_facts(
        self,
        facts: Sequence[str],
        target: Memory | None,
        own: Location,
        score: float,
        episode: Memory,
    ) -> Memory | None:
        lines = [f"- {fact}" for fact in dict.fromkeys(facts)]
        gain = self._strategy.promotion_transfer * score
        if target is None:
            content = f"# {own.name}\n\n" + "\n".join(lines)
            score = min(1.0, records.INITIAL_CREDIT + gain)
            return records.store(
                self._memory, own, content, tags=["promoted"], score=score, trust=episode.trust
            )
        existing = {line.strip() for line in target.text.splitlines()}
        missing = [line for line in lines if line not in existing]
        text = target.text.rstrip() + "\n" + "\n".join(missing) if missing else target.text
        if len(text) > checks.TEXT_CHARS:
            return None
        changes: dict[str, Any] = {"text": text} if missing else {}
        if missing:
            changes["attrs"] = {"updated": documents.stamp(datetime.now(UTC))}
            if TRUSTS.index(episode.trust) > TRUSTS.index(target.trust):
                changes["trust"] = episode.trust
        return records.set_credit(self._memory, target, self._score(target) + gain, **changes)

    def prune(self) -> None:
        """Archive old memories with low credit."""
        at = datetime.now(UTC)
        for one in list(self._live.values()):
            score = self._score(one)
            if not may_be_pruned(one, score, self._strategy, at):
                continue
            self._archive(one)
            self.report.pruned += 1
            name = f"{one.kind}-{one.attrs['category']}/{one.attrs['name']}"
            self._log("prune", [records.public_id(one)], f"Archived '{name}' (score: {score:.2f})")

    def _archive(self, one: Memory) -> None:
        records.archive(self._memory, one, self._used_paths)
        del self._live[one.id]

    def _log(self, action: str, targets: Sequence[str], details: str) -> None:
        records.log_action(self._memory, action, targets, details)
        self.report.details.append(details)


def is_promotable(fact: str) -> bool:
    """Return whether a fact can be promoted: it is not short, a question or a task."""
    return (
        len(fact) > MIN_FACT_CHARS
        and "?" not in fact
        and "TODO" not in fact
        and not fact.startswith("Action:")
    )
