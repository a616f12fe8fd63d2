"""Every tool with the contract's own examples, every documented error, every limit."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from commonplace import Commonplace, Draft, Memory
from commonplace.dialects.clawbrain.dialect import DIALECT
from commonplace.engine.binding import lease
from commonplace.engine.finding.substring_cache import TextCache
from commonplace.server.gate import RESPONSE_BYTES

from .brain import Brain, Refused

ALICE = "# Alice Chen\n\n- ML engineer at the lab, focuses on vision transformers"
MONTH = f"{datetime.now(UTC):%Y-%m}"


def test_the_server_is_named_as_the_contract_says() -> None:
    assert (DIALECT.server, DIALECT.version) == ("clawbrain", "0.1.0")
    assert [tool.name for tool in DIALECT.tools] == [
        "memory_store", "memory_retrieve", "memory_search", "memory_update", "memory_delete",
        "credit_report", "memory_compact",
    ]  # fmt: skip


def test_an_entity_is_stored_as_a_file_with_frontmatter(brain: Brain) -> None:
    stored = brain.call(
        "memory_store", type="entity", category="people", name="alice-chen", content=ALICE,
        tags=["colleague", "ml-team"], pinned=False,
    )  # fmt: skip

    assert stored == {
        "id": "entity-people-alice-chen", "path": "entities/people/alice-chen.md", "created": True,
    }  # fmt: skip
    lines = brain.file(stored["path"]).read_text().split("\n")
    now = brain.call("memory_retrieve", id=stored["id"])["created_at"]
    assert lines[:10] == [
        "---", "id: entity-people-alice-chen", "type: entity", "category: people",
        'tags: ["colleague", "ml-team"]', f"created: {now}", f"updated: {now}", "pinned: false",
        "---", "",
    ]  # fmt: skip
    assert "\n".join(lines[10:]) == ALICE + "\n"
    assert brain.file(stored["path"]).stat().st_mode & 0o777 == 0o600


def test_an_episode_is_put_by_its_month_whatever_its_category(brain: Brain) -> None:
    stored = brain.call(
        "memory_store", type="episode", category="people", name="nanobrain-setup", content="Done."
    )

    assert stored["id"] == f"episode-{MONTH}-nanobrain-setup"
    assert stored["path"] == f"episodes/{MONTH}/nanobrain-setup.md"
    assert brain.call("memory_retrieve", id=stored["id"])["category"] == MONTH


def test_results_are_json_laid_out_for_people(brain: Brain) -> None:
    text = brain.text("memory_store", type="episode", name="one", content="é")

    assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False)


def test_storing_what_exists_suggests_an_update(brain: Brain) -> None:
    brain.store()

    with pytest.raises(Refused, match=r"entities/people/alice-chen\.md.*memory_update"):
        brain.store(content="Another.")
    assert brain.call("memory_retrieve", id="entity-people-alice-chen")["content"] == "# Alice"


def test_storing_where_a_file_of_somebody_else_lies_is_refused(brain: Brain) -> None:
    brain.store("bob")
    brain.file("entities/people/alice-chen.md").write_text("my own notes")

    with pytest.raises(Refused, match="already exists"):
        brain.store()
    assert brain.file("entities/people/alice-chen.md").read_text() == "my own notes"


def test_an_entity_needs_a_category(brain: Brain) -> None:
    for category in (None, ""):
        with pytest.raises(Refused, match="category is required when type is entity"):
            brain.call("memory_store", type="entity", category=category, name="x", content="y")
    with pytest.raises(Refused, match="category is required when type is entity"):
        brain.call("memory_store", type="entity", name="x", content="y")


def test_other_categories_are_refused(brain: Brain) -> None:
    for category in ("places", "../people", "People", "people/x", ".", "people\n"):
        with pytest.raises(Refused, match="people, projects, preferences"):
            brain.store(category=category)
    assert brain.paths() == []


NAMES = [
    "", ".", "..", "../x", "../../etc/passwd", "/etc/passwd", "a/b", "a\\b", "Alice", "alice_chen",
    "alice--chen", "-a", "a-", "a.md", "a b", "a\n", "é", "a\x1f", "a" * 201, ".a",
]  # fmt: skip


def test_a_name_that_is_not_kebab_case_is_refused(brain: Brain) -> None:
    with pytest.raises(Refused, match="kebab-case"):
        brain.store("..")
    before = sorted(brain.files.parent.rglob("*"))
    for name in NAMES:
        with pytest.raises(Refused, match="kebab-case"):
            brain.store(name)
    assert sorted(brain.files.parent.rglob("*")) == before


def test_the_longest_name_is_accepted(brain: Brain) -> None:
    brain.store("a" * 200)

    assert brain.paths() == [f"entities/people/{'a' * 200}.md"]


WRONG: list[tuple[dict[str, object], str]] = [
    ({"type": "fact", "name": "x", "content": "y"}, "type"),
    ({"name": "x", "content": "y"}, "type"),
    ({"type": "episode", "content": "y"}, "name"),
    ({"type": "episode", "name": "x"}, "content"),
    ({"type": "episode", "name": "x", "content": ""}, "content"),
    ({"type": "episode", "name": "x", "content": "y", "tags": "a"}, "tags"),
    ({"type": "episode", "name": "x", "content": "y", "tags": [""]}, "tags"),
    ({"type": "episode", "name": "x", "content": "y", "pinned": "yes"}, "pinned"),
]


def test_wrong_arguments_are_told(brain: Brain) -> None:
    for arguments, says in WRONG:
        with pytest.raises(Refused, match=says):
            brain.call("memory_store", **arguments)
    assert brain.paths() == []


def test_retrieving_counts_and_shows_every_field(brain: Brain) -> None:
    identity = brain.store(content=ALICE, tags=["colleague", "ml-team"])
    brain.call("memory_retrieve", id=identity)

    found = brain.call("memory_retrieve", id=identity)

    assert list(found) == [
        "id", "type", "category", "name", "content", "tags", "credit_score", "access_count",
        "created_at", "last_accessed", "pinned",
    ]  # fmt: skip
    assert found | {"created_at": "", "last_accessed": ""} == {
        "id": identity, "type": "entity", "category": "people", "name": "alice-chen",
        "content": ALICE, "tags": ["colleague", "ml-team"], "credit_score": 0.5,
        "access_count": 2, "created_at": "", "last_accessed": "", "pinned": False,
    }  # fmt: skip
    assert found["created_at"] <= found["last_accessed"]


def test_what_is_not_there_is_not_found(brain: Brain) -> None:
    for identity in ("entity-people-nobody", "../x", "%", "a'b"):
        for tool, more in (("retrieve", {}), ("update", {"content": "x"}), ("delete", {})):
            with pytest.raises(Refused, match="There is no memory"):
                brain.call(f"memory_{tool}", id=identity, **more)
    for identity in ("", "x" * 600):
        with pytest.raises(Refused, match="id"):
            brain.call("memory_retrieve", id=identity)


def test_search_weighs_relevance_and_credit(brain: Brain) -> None:
    brain.store("vision", "A plan.")
    brain.store("alice-chen", ALICE, tags=["vision-team"])
    brain.store("bob", "# Bob\n\nKnows of vision.")

    found = brain.call("memory_search", query="VISION")

    shown = [
        (each["name"], each["relevance_score"], each["combined_score"]) for each in found["results"]
    ]
    assert shown == [("vision", 1.0, 0.7), ("alice-chen", 0.8, 0.62), ("bob", 0.5, 0.5)]
    assert found["total_matches"] == 3
    assert list(found["results"][1]) == [
        "id", "name", "type", "snippet", "credit_score", "relevance_score", "combined_score",
    ]  # fmt: skip
    assert found["results"][1]["snippet"].startswith("- ML engineer at the lab")


def test_search_filters_by_type_and_sees_all_without(brain: Brain) -> None:
    brain.store("harbour", "One.")
    brain.store("harbour", "Two.", type="episode")

    def types(**more: object) -> set[str]:
        return {r["type"] for r in brain.call("memory_search", query="harbour", **more)["results"]}

    assert types() == types(type=None) == {"entity", "episode"}
    assert types(type="entity") == {"entity"}
    assert types(type="episode") == {"episode"}
    with pytest.raises(Refused, match="type"):
        types(type="note")


def test_the_limit_is_clamped_and_the_total_is_not(brain: Brain) -> None:
    brain.memory.remember_many([Draft(text=f"Harbour {n}.") for n in range(22)])

    for limit, shown in ((-3, 1), (0, 1), (1, 1), (19, 19), (20, 20), (21, 20), (99, 20)):
        found = brain.call("memory_search", query="harbour", limit=limit)
        assert (len(found["results"]), found["total_matches"]) == (shown, 22)
    assert len(brain.call("memory_search", query="harbour")["results"]) == 5


def test_words_are_looked_for_one_by_one_when_the_whole_is_not_found(brain: Brain) -> None:
    brain.store("alice-chen", "She leads the vision team.")
    brain.store("bob", "He leads nothing.")

    found = brain.call("memory_search", query="vision alice")

    assert [(r["name"], r["relevance_score"]) for r in found["results"]] == [("alice-chen", 0.75)]


def test_a_query_longer_than_a_needle_is_looked_for_by_its_words(brain: Brain) -> None:
    """A whole paragraph, as an agent pastes it to see whether it is stored."""
    told = "\n".join(f"- the lab has vision transformers on row {i % 7}" for i in range(200))
    brain.call("memory_store", type="entity", category="projects", name="lab", content=told)

    for chars in (499, 500, 501, 5_000):
        found = brain.call("memory_search", query=told[:chars])
        assert [one["id"] for one in found["results"]] == ["entity-projects-lab"], chars
    assert brain.call("memory_search", query=f"lab {'x' * 501}")["results"] == []
    assert brain.call("memory_search", query="x" * 10_000)["results"] == []
    brain.call(
        "memory_store", type="episode", name="tokyo", content="会議室は三階にあります。" * 90
    )
    found = brain.call("memory_search", query="会議室は三階にあります。" * 80)
    assert [one["name"] for one in found["results"]] == ["tokyo"], "a script without blanks"
    with pytest.raises(Refused, match="'query' has 10,001 characters; at most 10,000"):
        brain.call("memory_search", query="x" * 10_001)


def test_a_search_for_nothing_finds_nothing(brain: Brain) -> None:
    brain.store("bob", "He leads.")

    for query in ("", "   ", "\n", "nowhere", "%", "*", '"', "a AND b"):
        assert brain.call("memory_search", query=query) == {"results": [], "total_matches": 0}
    assert brain.memory.events.all(kind="turn") == []


def test_short_and_odd_needles_are_found_as_they_stand(brain: Brain) -> None:
    brain.store("one", "5 % of ß, \U0001f980 and 'quotes\"")

    for needle in ("%", "ß", "\U0001f980", "'quotes\"", "of"):
        assert brain.call("memory_search", query=needle)["total_matches"] == 1, needle


def test_a_new_memory_was_updated_when_it_was_created(
    brain: Brain, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember = Commonplace.remember

    def remember_slowly(self: Commonplace, text: str, **details: Any) -> Memory:
        time.sleep(1.1)
        return remember(self, text, **details)

    monkeypatch.setattr(Commonplace, "remember", remember_slowly)
    identity = brain.store()
    created = brain.call("memory_retrieve", id=identity)["created_at"]
    file = brain.file("entities/people/alice-chen.md")
    assert f"created: {created}\nupdated: {created}\n" in file.read_text()
    file.write_text(file.read_text().replace(f"created: {created}", "created: 2026-01-01"))
    updated = brain.call("memory_update", id=identity, content="# Alice Chen")
    assert updated["previous_updated_at"] == created


def test_an_update_keeps_the_frontmatter_and_tells_the_former_time(brain: Brain) -> None:
    identity = brain.store(content=ALICE, tags=["colleague, senior"], pinned=True)
    path = brain.file("entities/people/alice-chen.md")
    path.write_text(path.read_text().replace("updated: 2", "updated: 1"))

    answer = brain.call("memory_update", id=identity, content="# Alice Chen\n\n- promoted")

    assert answer["id"] == identity
    assert answer["updated"] is True
    assert answer["previous_updated_at"].startswith("1")
    text = path.read_text()
    assert 'tags: ["colleague, senior"]' in text
    assert "pinned: true" in text
    assert "updated: 2" in text
    assert text.endswith("---\n\n# Alice Chen\n\n- promoted\n")


def test_an_update_tells_what_other_entities_of_the_category_say_otherwise(brain: Brain) -> None:
    brain.store("team", "# Team\n\n- Alice Chen works on the vision team in Berlin")
    brain.store("plan", "- Alice Chen works on the vision team in Paris", category="projects")
    identity = brain.store("alice-chen", "# Alice Chen")

    answer = brain.call(
        "memory_update", id=identity, content="- Alice Chen works on the speech team in Berlin"
    )
    again = brain.call("memory_update", id=identity, content="- Unrelated to anything here")

    assert answer["contradictions"] == [
        {
            "memory_id": "entity-people-team",
            "existing_fact": "Alice Chen works on the vision team in Berlin",
            "new_fact": "Alice Chen works on the speech team in Berlin",
            "kind": "update",
        }
    ]
    assert again["contradictions"] == []
    (event,) = brain.memory.events.all(kind="contradiction")
    assert event.payload is not None
    assert event.payload["resolution"] == "kept_b"
    episode = brain.store("talk", "x", type="episode")
    assert "contradictions" not in brain.call("memory_update", id=episode, content="- y")


def test_deleting_moves_the_file_to_the_archive(brain: Brain) -> None:
    identity = brain.store("old-style", category="preferences")

    answer = brain.call("memory_delete", id=identity)

    assert answer == {
        "id": "entity-preferences-old-style", "archived": True,
        "archive_path": "archive/entities/preferences/old-style.md",
    }  # fmt: skip
    assert brain.paths() == ["archive/entities/preferences/old-style.md"]
    assert brain.call("memory_search", query="Alice")["total_matches"] == 0
    assert brain.call("credit_report")["total_memories"] == 0
    with pytest.raises(Refused, match="There is no memory"):
        brain.call("memory_retrieve", id=identity)


def test_a_name_can_be_used_again_and_archived_again(brain: Brain) -> None:
    for content in ("First.", "Second."):
        identity = brain.store(content=content)
        answer = brain.call("memory_delete", id=identity)

    assert answer["archive_path"].startswith("archive/entities/people/alice-chen-2")
    assert [brain.file(path).read_text().split()[-1] for path in brain.paths()] == [
        "Second.", "First.",
    ]  # fmt: skip


def test_what_is_pinned_cannot_be_archived(brain: Brain) -> None:
    identity = brain.store(pinned=True)

    with pytest.raises(Refused, match="pinned"):
        brain.call("memory_delete", id=identity)
    assert brain.paths() == ["entities/people/alice-chen.md"]


def test_the_report_shows_both_ends(brain: Brain) -> None:
    for name, credit in (("low", 0.1), ("middle", 0.5), ("high", 0.9)):
        memory = brain.memory.get(brain.store(name), count=False)
        brain.memory.revise(memory.id, credit=credit)
    brain.call("memory_retrieve", id="entity-people-high")

    report = brain.call("credit_report", top_n=2)

    assert list(report) == [
        "total_memories", "avg_score", "top", "bottom", "prune_candidates", "last_consolidation",
        "last_pruning",
    ]  # fmt: skip
    assert (report["total_memories"], report["avg_score"]) == (3, 0.5)
    assert report["top"][0] == {
        "id": "entity-people-high", "name": "high", "score": 0.9, "access_count": 1,
    }  # fmt: skip
    assert [each["name"] for each in report["top"]] == ["high", "middle"]
    assert [each["name"] for each in report["bottom"]] == ["low", "middle"]
    assert report["prune_candidates"] == 0
    assert report["last_consolidation"] is report["last_pruning"] is None


def test_the_number_reported_is_clamped(brain: Brain) -> None:
    attrs = [{"category": "people", "name": f"n{n}"} for n in range(102)]
    rows = [
        Draft(text="x", kind="entity", ref=f"entity-people-n{n}", attrs=each)
        for n, each in enumerate(attrs)
    ]
    brain.memory.remember_many(rows)

    for top_n, shown in ((-1, 1), (0, 1), (1, 1), (99, 99), (100, 100), (101, 100), (10**6, 100)):
        report = brain.call("credit_report", top_n=top_n)
        assert len(report["top"]) == len(report["bottom"]) == shown
    assert len(brain.call("credit_report")["top"]) == 10


def test_an_empty_report(brain: Brain) -> None:
    report = brain.call("credit_report")

    assert (report["total_memories"], report["avg_score"], report["top"]) == (0, 0.0, [])


def test_memories_of_other_dialects_are_found_and_read_but_not_changed(brain: Brain) -> None:
    other = brain.memory.remember("The harbour closes at nine.", kind="decision", title="Harbour")
    happened = brain.memory.remember("A harbour talk.", kind="diary")

    found = brain.call("memory_search", query="harbour")["results"]
    read = brain.call("memory_retrieve", id=other.id)

    assert {(r["id"], r["type"]) for r in found} == {(other.id, "entity"), (happened.id, "episode")}
    assert (read["type"], read["category"], read["name"]) == ("entity", "decision", "Harbour")
    for tool, more in (("memory_update", {"content": "x"}), ("memory_delete", {})):
        with pytest.raises(Refused, match="kind decision"):
            brain.call(tool, id=other.id, **more)
    assert brain.paths() == []
    assert brain.call("credit_report")["total_memories"] == 0


def test_an_entity_that_another_dialect_stored_becomes_no_file(brain: Brain) -> None:
    hostile = {"category": "people", "name": "../../escaped", "archived_as": "../../escaped.md"}
    brain.memory.remember("No place.", kind="entity", attrs=hostile)
    brain.memory.remember(
        "Forged.", kind="entity", state="archived",
        attrs={"category": "people", "name": "x", "archived_as": "../../escaped.md",
               "frontmatter": ["---", "", "id: forged"], "updated": "2026\npinned: true"},
    )  # fmt: skip
    brain.sync()

    assert brain.paths() == ["archive/entities/people/x.md"]
    text = brain.file("archive/entities/people/x.md").read_text()
    assert text.count("pinned:") == text.count("id:") == 1
    assert not list(brain.files.parent.rglob("escaped*"))


ODD = [
    "---\nid: forged\n---\n\nNot frontmatter.",
    "a\n---\nb\n\n---\n",
    "line\r\nline\r\n",
    "\U0001f980 crab \u202e odd \u200b",
    "  leading and trailing  \n\n",
    "x" * 1_000_000,
]


def test_odd_content_is_kept_byte_for_byte(brain: Brain) -> None:
    for number, content in enumerate(ODD):
        identity = brain.store(f"odd-{number}", content)
        brain.sync()

        assert brain.call("memory_retrieve", id=identity)["content"] == content
        written = brain.file(f"entities/people/odd-{number}.md").read_bytes().decode()
        assert written.split("---\n\n", 1)[1] == content.strip() + "\n"
    assert brain.problems == {}


def test_a_content_beyond_the_longest_is_refused(brain: Brain) -> None:
    assert RESPONSE_BYTES > 1_000_000
    with pytest.raises(Refused, match=r"content.*1,000,000"):
        brain.store("long", "x" * 1_000_001)
    assert brain.paths() == []


def test_what_one_search_read_the_next_one_finds_in_memory(brain: Brain) -> None:
    for name in ("one", "two"):
        brain.store(name, "A harbour.")

    assert brain.call("memory_search", query="harbour")["total_matches"] == 2

    with lease(brain.memory) as space:
        assert len(space.cache(TextCache).now.num) == 2


def test_the_longest_content_is_returned_whole(brain: Brain) -> None:
    long = '"о"\n' * 250_000
    identity = brain.store(content=long)
    assert brain.call("memory_retrieve", id=identity)["content"] == long
