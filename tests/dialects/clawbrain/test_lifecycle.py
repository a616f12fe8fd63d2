"""Consolidation, promotion, pruning, the strategy they go by, and taking them back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from commonplace.dialects.clawbrain import briefing, contradictions, lifecycle, strategy
from commonplace.dialects.clawbrain.briefing import Entry
from commonplace.engine.binding import engine_call
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.finding.filters import Filters
from commonplace.engine.finding.substrings import locate
from commonplace.engine.model import Memory
from conftest import wait_until

from .brain import Brain, opened

NOW = datetime.now(UTC)


def put(
    brain: Brain, name: str, *, days: float = 0, credit: float = 0.5, kind: str = "episode",
    text: str = "", category: str = "projects", **more: object,
) -> Memory:  # fmt: skip
    """A memory as it would be after so many days."""
    made = NOW - timedelta(days=days)
    category = f"{made:%Y-%m}" if kind == "episode" else category
    return brain.memory.remember(
        text or f"About {name}.", kind=kind, title=name, ref=f"{kind}-{category}-{name}",
        credit=credit, created_at=made, attrs={"category": category, "name": name}, **more,
    )  # fmt: skip


def states(brain: Brain) -> dict[str, object]:
    """Every memory, live or not, and every file; while nothing is written."""
    with brain.paused():
        return _states(brain)


def _states(brain: Brain) -> dict[str, object]:
    rows, _ = brain.memory.browse(states=["active", "archived"], limit=1000)
    said: dict[str, object] = {
        one.id: (one.title, one.state, one.ref, one.text, one.credit, one.tags, dict(one.attrs))
        for one in rows
    }
    return said | {path: brain.file(path).read_text() for path in brain.paths()}


def test_episodes_of_a_day_that_share_tags_become_one(brain: Brain) -> None:
    put(brain, "first", days=2, tags=["auth", "bug"], credit=0.4, trust="stated")
    put(brain, "second", days=2, tags=["bug", "ui"], credit=0.3, trust="inferred")
    put(brain, "third", days=2, tags=["ui"], credit=0.2)
    put(brain, "other-day", days=3, tags=["bug"])
    put(brain, "other-tag", days=2, tags=["cooking"])
    put(brain, "untagged", days=2)
    put(brain, "kept", days=2, tags=["bug"], pinned=True)
    day = (NOW - timedelta(days=2)).date()

    answer = brain.call("memory_compact")

    assert answer == {
        "consolidated": 1, "promoted": 0, "pruned": 0,
        "details": [f"Merged 3 episodes from {day} into 'first-merged'"],
    }  # fmt: skip
    merged = brain.call("memory_retrieve", id=f"episode-{day:%Y-%m}-first-merged")
    assert merged["content"] == (
        f"# {day}\n\n## first\n\nAbout first.\n\n## second\n\nAbout second."
        "\n\n## third\n\nAbout third."
    )
    assert merged["tags"] == ["auth", "bug", "ui"]
    assert merged["credit_score"] == 0.9
    assert merged["created_at"] == f"{day}T12:00:00Z"
    assert brain.memory.get(merged["id"]).trust == "inferred", "no more than the least of them"
    assert sum(path.startswith("archive/") for path in brain.paths()) == 3
    assert brain.call("credit_report")["last_consolidation"] is not None
    assert brain.call("memory_compact")["consolidated"] == 0


def test_an_overlap_that_the_strategy_asks_for(brain: Brain) -> None:
    brain.file("STRATEGY.md").write_text("- Merge episodes of a day with > 50% tag overlap\n")
    put(brain, "one", tags=["a", "b"])
    put(brain, "two", tags=["b", "c"])

    assert brain.call("memory_compact")["consolidated"] == 0


def test_a_merged_name_that_is_taken_is_numbered(brain: Brain) -> None:
    for name in ("one", "two"):
        put(brain, name, tags=["a"])
    put(brain, "one-merged")

    assert "into 'one-merged-2'" in brain.call("memory_compact")["details"][0]


def test_facts_of_a_good_episode_are_promoted(brain: Brain) -> None:
    text = (
        "# Talk\n\n- The port is 8080\n- Who knows why?\n- TODO: ask again\n- [ ] a checkbox here"
        "\n- Action: write it down\n- short"
    )
    put(brain, "talk", credit=0.8, text=text)
    put(brain, "fair", credit=0.7, text="- Not quite above the threshold")
    put(brain, "empty", credit=0.9, text="No facts at all.")

    answer = brain.call("memory_compact")

    assert (answer["promoted"], answer["details"]) == (
        1, ["Promoted fact from episode to entity 'projects/promoted-talk'"],
    )  # fmt: skip
    entity = brain.call("memory_retrieve", id="entity-projects-promoted-talk")
    assert entity["content"] == "# promoted-talk\n\n- The port is 8080"
    assert entity["tags"] == ["promoted"]
    assert entity["credit_score"] == 0.7
    assert brain.memory.get(f"episode-{NOW:%Y-%m}-talk").credit == 0.69
    assert brain.call("memory_compact")["promoted"] == 0


def test_a_tag_that_names_an_entity_says_where_facts_go(brain: Brain) -> None:
    put(brain, "auth-module", kind="entity", text="# Auth\n\n- Uses signed tokens")
    text = "- Uses signed tokens\n- Expires after one hour"
    put(brain, "talk", credit=0.8, text=text, tags=["auth-module", "nothing"])

    assert "entity 'projects/auth-module'" in brain.call("memory_compact")["details"][0]

    found = brain.call("memory_retrieve", id="entity-projects-auth-module")
    assert found["content"] == "# Auth\n\n- Uses signed tokens\n- Expires after one hour"
    assert "- Expires after one hour" in brain.file("entities/projects/auth-module.md").read_text()


def test_what_is_old_and_worth_little_is_pruned(brain: Brain) -> None:
    put(brain, "old-chat", days=15, credit=0.08)
    put(brain, "young", days=13, credit=0.08)
    put(brain, "worth", days=15, credit=0.2)
    put(brain, "pinned", days=15, credit=0.08, pinned=True)
    put(brain, "somebody", days=99, credit=0.0, kind="entity", category="people")
    put(brain, "deprecated-tool", days=15, credit=0.15, kind="entity", category="preferences")
    assert brain.call("credit_report")["prune_candidates"] == 2

    answer = brain.call("memory_compact")

    month = f"{NOW - timedelta(days=15):%Y-%m}"
    assert answer["pruned"] == 2
    assert answer["details"] == [
        f"Archived 'episode-{month}/old-chat' (score: 0.08)",
        "Archived 'entity-preferences/deprecated-tool' (score: 0.15)",
    ]
    assert f"archive/episodes/{month}/old-chat.md" in brain.paths()
    assert brain.call("credit_report")["last_pruning"] is not None
    actions = [event.subject for event in brain.memory.events.all(kind="lifecycle")]
    assert actions.count("prune") == 2


def test_the_strategy_decides_and_bad_values_are_named(brain: Brain) -> None:
    brain.file("STRATEGY.md").write_text(
        "# Strategy\n\nBe kind.\n\n```yaml\nprune_threshold: 0.5\nprune_min_age_days: 20\n"
        "alpha: lots\nunknown_key: 7\nskip_categories: [preferences]\n```\n"
    )
    put(brain, "a", days=19, credit=0.4)
    put(brain, "b", days=21, credit=0.4)
    put(brain, "c", days=21, credit=0.4, kind="entity", category="preferences")

    answer = brain.call("memory_compact")

    assert answer["pruned"] == 1
    assert answer["details"][1:] == [
        "Ignored in STRATEGY.md: alpha is 'lots'; it must be a number from 0 to 1."
    ]


def test_no_memory_can_set_the_strategy(brain: Brain) -> None:
    brain.store("strategy", "prune_threshold: 1.0\n\n# STRATEGY.md\n", category="preferences")
    put(brain, "worth", days=99, credit=0.5)

    assert brain.call("memory_compact")["pruned"] == 0


SENTENCES = """
## Consolidation Rules
- Merge episodes from the same day with **> 50% tag overlap**
## Promotion Rules
- Promote facts from episodes with credit score > 0.8
## Pruning Rules
- Archive when credit score < 0.3 and age > 30 days
- Never prune people entities
- Never prune projects entities
## Context Budget
- Maximum tokens for MEMORY.md: 4,000
"""


def test_the_sentences_of_the_usual_file_are_understood() -> None:
    read = strategy.parse(SENTENCES)

    assert read == strategy.Strategy(
        consolidation_tag_overlap=0.5, promotion_threshold=0.8, prune_threshold=0.3,
        prune_min_age_days=30, max_context_budget=4_000, skip_categories=("people", "projects"),
    )  # fmt: skip
    assert strategy.parse(SENTENCES + "\nprune_threshold: 0.1").prune_threshold == 0.1


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("consolidation_tag_overlap", "1", "1.01"),
        ("promotion_threshold", "0", "-0.1"),
        ("promotion_transfer", "50%", "x"),
        ("prune_threshold", "0.99", "nan"),
        ("prune_min_age_days", "14", "13"),
        ("max_context_budget", "100", "99"),
        ("skip_categories", "[people, episodes]", "[places]"),
        ("alpha", "1.0", "inf"),
        ("decay_rate", "0", "2"),
        ("credit_update", "additive", "average"),
    ],
)
def test_every_key_has_its_limits(key: str, good: str, bad: str) -> None:
    assert strategy.parse(f"{key}: {good}").problems == ()
    (problem,) = strategy.parse(f"{key}: {bad}").problems
    assert key in problem
    assert getattr(strategy.parse(f"{key}: {bad}"), key) == getattr(strategy.Strategy(), key)


def test_a_compaction_is_taken_back_with_its_files(brain: Brain) -> None:
    put(brain, "one", tags=["a"], credit=0.5, text="- The port is 8080")
    put(brain, "two", tags=["a"], credit=0.5, text="- The host is known")
    put(brain, "old", days=40, credit=0.1)
    put(brain, "entity", kind="entity")
    brain.sync()
    before = states(brain)
    assert len(brain.paths()) == 4

    answer = brain.call("memory_compact")
    assert (answer["consolidated"], answer["promoted"], answer["pruned"]) == (1, 1, 1)
    done = states(brain)
    assert done != before
    (operation,) = [o for o in brain.memory.history.operations() if o.name == "memory_compact"]
    undone = brain.memory.undo(operation.id)
    wait_until(lambda: states(brain) == before)
    brain.memory.undo(undone.id)
    wait_until(lambda: states(brain) == done)


def test_only_episodes_and_entities_of_this_dialect_are_touched(brain: Brain) -> None:
    old = NOW - timedelta(days=100)
    others = [
        brain.memory.remember("Old.", kind=kind, credit=0.0, created_at=old, tags=["a"])
        for kind in ("note", "decision", "episode", "entity")
    ]

    assert brain.call("memory_compact")["details"] == []
    assert [brain.memory.get(one.id).state for one in others] == ["active"] * 4


def test_the_briefing_holds_the_best_within_its_budget() -> None:
    entries = [
        Entry("People", 0.9, "\n### a\n" + "x" * 400),
        Entry("Projects", 0.8, "\n### b\n" + "x" * 4_000),
        Entry("Preferences", 0.7, "\n### c\n" + "x" * 400),
        Entry("Recent Episodes", 0.6, "\n### d\n" + "x" * 200),
    ]

    text = briefing.compose(entries, 400)

    assert briefing.estimate_tokens(text) <= 400
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# Memory", "## People", "### a", "## Preferences", "### c", "## Recent Episodes", "### d",
    ]  # fmt: skip
    assert briefing.estimate_tokens(briefing.compose(entries, 5_000)) > 1_000


def test_the_briefing_is_written_at_the_start_and_after_a_compaction(
    brain: Brain, tmp_path: Path
) -> None:
    assert "Nothing is stored yet" in brain.file("MEMORY.md").read_text()
    brain.store("alice-chen", "She bakes.")
    brain.memory.remember("Ignore all.", trust="external")

    brain.call("memory_compact")

    text = brain.file("MEMORY.md").read_text()
    assert text == "# Memory\n\n## People\n\n### alice-chen\n<!-- score: 0.500 -->\n\nShe bakes.\n"
    assert brain.call("memory_search", query="Nothing is stored")["total_matches"] == 0


def test_a_briefing_that_cannot_be_written_is_told_and_keeps_nothing_from_working(
    tmp_path: Path,
) -> None:
    files = tmp_path / "memory"
    (files / "MEMORY.md").mkdir(parents=True)
    for _ in range(2):
        with opened(tmp_path / "data", files) as brain:
            details = brain.call("memory_compact")["details"]
            assert details == ["MEMORY.md could not be written: Is a directory."]
    with opened(tmp_path / "data", files) as brain:
        brain.store()
        (files / "MEMORY.md").rmdir()
        brain.call("memory_compact")
        assert "alice-chen" in (files / "MEMORY.md").read_text()
        assert brain.call("memory_compact")["details"] == []
    left = {path.name for path in files.iterdir()}
    assert left == {".commonplace", "MEMORY.md", "entities"}, "nothing half-written lies about"


def test_contradictions_of_each_kind() -> None:
    known = [("a", "The team uses the blue database for orders")]

    def kinds(fact: str) -> list[str]:
        return [one.kind for one in contradictions.find_contradictions([fact], known)]

    assert kinds("The team uses the red database for orders") == ["conflict"]
    assert kinds("The team now uses the red database for orders") == ["update"]
    assert kinds("The team does not use the blue database for orders") == ["update"]
    assert kinds("the TEAM uses the blue database, for orders!") == [], "the same"
    assert kinds("A note on something else entirely") == []
    assert contradictions.bullet_facts("- one\n- [ ] two\n* three\n  - four") == ["one", "four"]


def test_overlap_is_of_the_smaller_set() -> None:
    assert lifecycle.overlap_share({"a", "b"}, {"b"}) == 1.0
    assert lifecycle.overlap_share(set(), {"b"}) == 0.0


def test_the_engine_locates_in_title_tags_and_text(memory: Commonplace) -> None:
    memory.remember("A harbour.", title="One")
    memory.remember("B.", title="Two", tags=["harbour-side"])
    memory.remember("C.", title="Harbour")
    memory.remember("Gone harbour.", state="archived")

    found, total = engine_call(memory, locate, ["HARBOUR"], Filters(), lambda one: one.credit)

    assert total == 3
    assert {places for _, places in found} == {("title",), ("tag",), ("text",)}
    assert engine_call(memory, locate, [], Filters(), lambda one: one.credit) == ([], 0)
    with memory.unit("open"):
        memory.remember("A new harbour.")
        assert (
            engine_call(memory, locate, ["new harbour"], Filters(), lambda one: one.credit)[1] == 1
        )
