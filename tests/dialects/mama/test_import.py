"""Taking over an original database: read-only, once, with ids, times and relations."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from commonplace.dialects.contract import Setting
from commonplace.dialects.mama import decisions, importing
from commonplace.dialects.mama.running import background_work
from commonplace.engine.model import iso
from commonplace.storage.system import open_system

from .conftest import Mama
from .original_database import NOON, OriginalDatabase, build
from .test_chains import check_chains


@pytest.fixture
def original(tmp_path: Path) -> Iterator[OriginalDatabase]:
    """A database that a MAMA has open."""
    (tmp_path / "claude").mkdir()
    with contextlib.closing(build(tmp_path / "claude" / "mama-memory.db")) as made:
        yield made


def start(mama: Mama, path: Path | str, space: str | None = None) -> None:
    """Start and stop what runs beside the dialect."""
    environ = {"MAMA_DB_PATH": str(path)}
    with contextlib.closing(open_system(mama.library.path)) as system:
        setting = Setting(library=mama.library, system=system, space=space, environ=environ)
        with background_work(setting):
            pass


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file of a folder: what it holds, and when it was written."""
    return {
        file.name: (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns)
        for file in folder.iterdir()
    }


def edges(mama: Mama) -> set[tuple[str, str, str]]:
    drawn = mama.operation("http_graph")["edges"]
    return {(edge["from"], edge["relationship"], edge["to"]) for edge in drawn}


def test_decisions_come_with_ids_times_and_outcomes(
    wordy: Mama, original: OriginalDatabase
) -> None:
    start(wordy, original.path)
    nodes = {node["id"]: node for node in wordy.operation("http_graph")["nodes"]}
    assert nodes["decision_auth_strategy_1732530000_abc"] == {
        "id": "decision_auth_strategy_1732530000_abc",
        "topic": "auth_strategy",
        "decision": "Use JWT with refresh tokens",
        "reasoning": "Need stateless auth for API scaling. Session-based auth failed.",
        "outcome": "SUCCESS",
        "confidence": 0.85,
        "created_at": NOON,
    }
    failed = nodes["decision_caching_1_aaaa"]
    assert (failed["outcome"], failed["failure_reason"]) == ("FAILED", "Too complex")
    told_in_seconds = nodes["decision_auth_v2_3_cccc"]
    assert told_in_seconds["created_at"] == 1_732_530_003_000
    assert told_in_seconds["confidence"] == 0.5
    stored = wordy.memory.get("decision_auth_strategy_1732530000_abc")
    assert (stored.trust, stored.origin.tool) == ("inferred", "import")
    assert stored.attrs["evidence"] == '["a.log"]'
    assert iso(stored.created_at) == "2024-11-25T10:20:00Z"


def test_edges_come_with_reasons_and_weights_and_proposals_do_not(
    wordy: Mama, original: OriginalDatabase
) -> None:
    start(wordy, original.path)
    assert edges(wordy) == {
        ("decision_caching_2_bbbb", "supersedes", "decision_caching_1_aaaa"),
        ("decision_auth_v2_3_cccc", "builds_on", "decision_auth_strategy_1732530000_abc"),
        ("decision_auth_v2_3_cccc", "refines", "decision_caching_2_bbbb"),
    }
    (link,) = wordy.memory.links.of(kinds=["builds_on"])
    assert (link.reason, link.weight) == ("Social login", 0.5)
    assert wordy.memory.get("decision_caching_1_aaaa").state == "superseded"
    assert wordy.memory.get("decision_caching_2_bbbb").state == "active"


def test_checkpoints_come_with_their_numbers(wordy: Mama, original: OriginalDatabase) -> None:
    start(wordy, original.path)
    loaded = wordy.call("load_checkpoint")["checkpoint"]
    assert loaded == {
        "id": 3, "summary": "JWT done.", "next_steps": "Refresh flow",
        "open_files": ["src/auth/jwt.ts"], "timestamp": NOON // 1000,
    }  # fmt: skip
    listed = wordy.operation("http_checkpoints")["checkpoints"]
    assert [(each["id"], each["status"]) for each in listed] == [(7, "archived"), (3, "active")]
    assert wordy.memory.get("checkpoint_3").attrs["recent_conversation"] == [{"role": "user"}]
    assert wordy.call("save", type="checkpoint", summary="Next.")["id"] == "checkpoint_8"


def test_nothing_of_the_original_is_touched(wordy: Mama, original: OriginalDatabase) -> None:
    folder = original.path.parent
    before = contents(folder)
    assert before.keys() == {f"mama-memory.db{end}" for end in ("", "-wal", "-shm")}
    assert original.path.stat().st_size < (folder / "mama-memory.db-wal").stat().st_size
    folder.chmod(0o500)
    try:
        start(wordy, original.path)
    finally:
        folder.chmod(0o700)
    assert contents(folder) == before
    assert len(wordy.operation("http_graph")["nodes"]) == 4


def test_a_database_with_another_journal_is_read_too(wordy: Mama, tmp_path: Path) -> None:
    made = OriginalDatabase(tmp_path / "plain.db", wal=False)
    made.decide("decision_a", "a")
    made.close()
    start(wordy, made.path)
    assert [node["id"] for node in wordy.operation("http_graph")["nodes"]] == ["decision_a"]


def test_a_second_start_imports_nothing_twice(wordy: Mama, original: OriginalDatabase) -> None:
    start(wordy, original.path)
    operations = len(wordy.memory.history.operations(limit=1000))
    before = edges(wordy)
    start(wordy, original.path)
    assert len(wordy.memory.history.operations(limit=1000)) == operations
    os.utime(original.path)  # it looks changed, and is not
    start(wordy, original.path)
    assert edges(wordy) == before
    assert len(wordy.operation("http_graph")["nodes"]) == 4
    assert wordy.operation("http_checkpoints")["count"] == 2


def test_rows_added_since_are_added(wordy: Mama, original: OriginalDatabase) -> None:
    start(wordy, original.path)
    original.decide("decision_caching_3_cccc", "caching", "No cache", created_at=NOON + 9000,
                    supersedes="decision_caching_2_bbbb")  # fmt: skip
    original.add("checkpoints", id=8, timestamp=NOON + 9000, summary="Cache removed.")
    start(wordy, original.path)
    assert ("decision_caching_3_cccc", "supersedes", "decision_caching_2_bbbb") in edges(wordy)
    assert wordy.memory.get("decision_caching_2_bbbb").state == "superseded"
    assert wordy.call("load_checkpoint")["checkpoint"]["id"] == 8
    assert check_chains(wordy.memory) == 2


def test_checkpoints_that_both_sides_gave_one_number_are_both_kept(
    wordy: Mama, original: OriginalDatabase
) -> None:
    start(wordy, original.path)
    assert wordy.call("save", type="checkpoint", summary="Mine.")["id"] == "checkpoint_8"
    original.add("checkpoints", id=8, timestamp=NOON + 9000, summary="Cache removed.")
    start(wordy, original.path)
    os.utime(original.path)  # it looks changed, and is not
    start(wordy, original.path)

    listed = wordy.operation("http_checkpoints")["checkpoints"]
    summaries = [each["summary"] for each in listed if each["status"] == "active"]
    assert summaries == ["Mine.", "Cache removed.", "JWT done."]
    assert wordy.call("save", type="checkpoint", summary="Next.")["id"] == "checkpoint_9"


def test_a_topic_that_both_sides_went_on_with_stays_one_chain(
    wordy: Mama, original: OriginalDatabase
) -> None:
    start(wordy, original.path)
    mine = wordy.decide("caching", "Cache in the browser")
    original.decide("decision_caching_3_cccc", "caching", "No cache", created_at=NOON + 9000,
                    supersedes="decision_caching_2_bbbb")  # fmt: skip
    start(wordy, original.path)
    assert check_chains(wordy.memory) == 3
    live, _ = wordy.memory.browse(kinds=["decision"])
    heads = [each.ref for each in live if decisions.topic_of(each) == "caching"]
    assert heads == [mine]
    later = wordy.decide("caching", "Both")
    assert (later, "supersedes", mine) in edges(wordy)


def test_a_fork_of_the_original_becomes_one_chain(wordy: Mama, tmp_path: Path) -> None:
    made = OriginalDatabase(tmp_path / "forked.db")
    made.decide("decision_1", "t")
    made.decide("decision_2", "t", created_at=NOON + 1, supersedes="decision_1")
    made.decide("decision_3", "t", created_at=NOON + 2, supersedes="decision_1")
    made.decide("decision_4", "t", created_at=NOON + 3)
    made.decide("decision_5", "u", superseded_by="decision_gone")
    made.add("decision_edges", from_id="decision_1", to_id="decision_3", relationship="supersedes")
    start(wordy, made.path)
    made.close()
    assert check_chains(wordy.memory) == 3
    live, _ = wordy.memory.browse(kinds=["decision"])
    assert {each.ref for each in live} == {"decision_4", "decision_5"}


def test_what_was_changed_here_is_not_changed_back(wordy: Mama, original: OriginalDatabase) -> None:
    start(wordy, original.path)
    wordy.call("update", id="decision_caching_2_bbbb", outcome="failed", reason="Here.")
    original.decide("decision_new", "new")
    start(wordy, original.path)
    assert wordy.memory.get("decision_caching_2_bbbb").attrs["outcome"] == "FAILED"


def test_rows_that_cannot_be_kept_are_left_out_alone(wordy: Mama, tmp_path: Path) -> None:
    made = OriginalDatabase(tmp_path / "odd.db")
    made.decide("decision_1", "t", "with a \0 in it")
    made.decide("decision_2", "", "", reasoning=None)
    made.decide("d" * 501, "t")
    made.decide("decision_3", "t", confidence=7, created_at=-5, reasoning=None)
    made.add("checkpoints", timestamp=1, summary=" ")
    made.add("checkpoints", timestamp=NOON, summary="ok", open_files="no JSON")
    report = importing.import_database(wordy.memory, made.path)
    made.close()
    assert (report.decisions, report.checkpoints, report.skipped) == (1, 1, 4)
    (node,) = wordy.operation("http_graph")["nodes"]
    assert (node["id"], node["confidence"], node["reasoning"]) == ("decision_3", 0.5, "")


def test_an_older_database_without_later_columns_is_read(wordy: Mama, tmp_path: Path) -> None:
    made = OriginalDatabase(tmp_path / "old.db")
    made.connection.executescript(
        "DROP TABLE decisions; DROP TABLE checkpoints; DROP TABLE decision_edges;"
        "CREATE TABLE decisions (id TEXT PRIMARY KEY, topic TEXT, decision TEXT);"
        "INSERT INTO decisions VALUES ('decision_old', 'old', 'Keep it.');"
    )
    start(wordy, made.path)
    made.close()
    assert [node["decision"] for node in wordy.operation("http_graph")["nodes"]] == ["Keep it."]


def test_a_file_that_is_no_database_stops_nothing(
    wordy: Mama, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("commonplace.storage.sqlite.foreign.PAUSE_SECONDS", 0)
    start(wordy, tmp_path / "missing.db")
    (tmp_path / "text.db").write_text("This is a letter. " * 100)
    start(wordy, tmp_path / "text.db")
    assert "was not imported" in caplog.text
    assert wordy.call("search")["count"] == 0


def test_it_is_imported_into_the_space_that_is_served(
    wordy: Mama, original: OriginalDatabase
) -> None:
    start(wordy, original.path, space="mine")
    assert wordy.memory.browse()[1] == 0
    assert wordy.memory.at("mine").browse(kinds=["decision"])[1] == 3


def test_a_thousand_rows_are_imported_and_found(wordy: Mama, tmp_path: Path) -> None:
    made = OriginalDatabase(tmp_path / "large.db")
    rows = [
        {"id": f"decision_{n}", "topic": f"topic_{n % 100}", "decision": f"Choice {n}",
         "reasoning": "Because.", "created_at": NOON + n,
         "supersedes": f"decision_{n - 100}" if n >= 100 else None}
        for n in range(1000)
    ]  # fmt: skip
    made.add_all("decisions", *rows)
    start(wordy, made.path)
    made.close()
    assert check_chains(wordy.memory) == 900
    topics = Counter(decisions.topic_of(each) for each in wordy.memory.browse(limit=1000)[0])
    assert len(topics) == 100
    assert set(topics.values()) == {1}
    assert wordy.found("topic_7", limit=5)[0]["id"] == "decision_907"


def test_a_path_that_names_no_file_is_told_and_stops_nothing(
    mama: Mama, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        start(mama, tmp_path / "nowhere.db")
    assert "MAMA_DB_PATH names no file" in caplog.text
