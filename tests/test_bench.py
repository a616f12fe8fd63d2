"""The benchmarks run, on little data: their figures mean nothing here, their plumbing does."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench import (  # noqa: E402
    against,
    corpus,
    floors,
    languages,
    locomo,
    peers,
    postgres,
    report,
    slow_disk,
    speed,
)
from bench.__main__ import main  # noqa: E402

from commonplace.text.analysis import analyse  # noqa: E402

HIRAGANA = re.compile(r"[\u3041-\u309f]+$")

TINY = speed.Plan(
    sizes=(300,), queries=5, rounds=1, writes=8, spaces=3, per_space=20, warm_spaces=2, starts=1
)


@pytest.fixture(autouse=True)
def results_in_a_scratch_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (report, speed, locomo):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
        monkeypatch.setattr(module, "CACHE", tmp_path / "cache")


def test_a_small_corpus_is_the_beginning_of_a_larger_one() -> None:
    small, large = corpus.make_corpus(50, 3), corpus.make_corpus(1_200, 3)

    assert list(small.texts) == list(large.texts[:50])
    assert np.array_equal(small.vectors, large.vectors[:50])


def test_without_a_compiler_the_slow_disk_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    section = slow_disk.measure(TINY)
    assert not section.rows
    assert "compiler" in section.notes[0]


def test_every_sync_of_the_slow_disk_is_slow() -> None:
    section = slow_disk.measure(TINY)
    if not section.rows:  # a machine without a compiler: it says so, and the rest is measured
        assert "compiler" in section.notes[0]
        return
    disk = next(row for row in section.rows if row.name.startswith("the disk alone"))
    assert disk.values["p50"] >= slow_disk.SYNC_MICROSECONDS / 1e6
    one = next(row for row in section.rows if row.name == "one thread, p50")
    assert min(one.values["p50"], one.values["floor p50"]) >= slow_disk.SYNC_MICROSECONDS / 1e6


@pytest.mark.parametrize(
    "part", ["store", "bulk", "recall", "clawbrain", "palace", "get", "start", "patrol"]
)
def test_a_part_measures_something_and_its_floor(part: str) -> None:
    section = speed.PARTS[part](TINY)

    assert section.rows
    figures = [value for row in section.rows for value in row.values.values()]
    assert all(value > 0 for value in figures if isinstance(value, float))


def test_bare_inserts_write_what_the_engine_wrote(tmp_path: Path) -> None:
    rows = corpus.make_corpus(5, 1)
    engine = speed.Library(tmp_path / "engine", embedder=speed.ReadyMadeEmbedder(rows.asked))
    speed.Commonplace(library=engine).remember_many(rows.drafts(0, 5))
    engine.close()
    written = floors.written_rows(engine.file("default"), 0, 0)
    bare = floors.BareTables(tmp_path / "bare.db")
    bare.insert(written)
    bare.close()

    assert len(written.tables["memories"]) == 5
    assert floors.written_rows(tmp_path / "bare.db", 0, 0) == written


def test_evidence_is_split_kept_if_it_exists_and_counted_if_not(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([_talk()]))

    conversation = locomo.read_conversations(path)[0]

    assert [question.evidence for question in conversation.questions] == [("D1:1", "D2:1")]
    assert conversation.left_out == ("D9:9", "D8:8")
    assert conversation.lines[1].text == "A red one. [image: a bicycle]"
    assert conversation.session_of == {
        "D1:1": "session 1",
        "D1:2": "session 1",
        "D2:1": "session 2",
    }


def test_a_peer_is_stored_to_and_asked_by_its_own_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "INSTALL_FOLDER", tmp_path)
    (tmp_path / "commonplace").symlink_to(sys.prefix)  # so nothing is installed
    texts = {"1": "Ann: The heron nests by the weir.", "2": "Bob: We ship\non Thursdays."}
    asked = [
        locomo.Question("Where does the heron nest?", 1, ("1",)),
        locomo.Question("On which day do we ship?", 1, ("2",)),
    ]
    rows = peers.measure_peer(peers.PEERS[0], texts, asked, "")
    values = {name: value for row in rows for name, value in row.values.items()}
    assert values["evidence in the first ten"] == 1
    assert all(value > 0 for value in values.values())


def test_the_peers_get_embeddings_of_the_built_in_encoder() -> None:
    with peers.serve_embeddings() as url:
        body = json.dumps({"input": ["a heron", "a weir"], "model": "any"}).encode()
        with urllib.request.urlopen(f"{url}/embeddings", body) as answer:
            data = json.load(answer)["data"]
    assert [len(each["embedding"]) for each in data] == [384, 384]


def test_locomo_is_measured_through_the_public_api(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([_talk()]))

    section = locomo.measure(path)

    best = next(row for row in section.rows if row.name == "turns, categories 1-4: default")
    assert best.values["all"] == 1.0
    lines = (tmp_path / "locomo-questions.jsonl").read_text().splitlines()
    assert len(lines) == len(locomo.WEIGHTINGS)
    assert set(json.loads(lines[0])["ranks"]) == {"D1:1", "D2:1"}


def test_both_engines_answer_alike_and_are_measured_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "ON_DISK", False)
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([_talk()]))
    (row,) = postgres.measure_equality(path).rows
    assert row.ok and row.values["asked"] > 0
    for section in (postgres.measure_times(TINY), postgres.measure_large_space(TINY)):
        assert section.rows
        for each in section.rows:
            assert each.values.keys() == {"sqlite", "postgres"} and min(each.values.values()) > 0
    assert len(postgres.measure_spaces(TINY).rows) == 4


def test_a_missed_target_is_shown_as_missed() -> None:
    row = report.Row(name="slow", measured="9 ms", ratio=9.0, target="≤ 1.5×", ok=False)

    assert "MISSED" in report.format_table([report.Section("Speed", [row])])


def _talk() -> dict[str, object]:
    return {
        "sample_id": "talk-1",
        "conversation": {
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": "I bought a bicycle."},
                {"speaker": "Bob", "dia_id": "D1:2", "text": "A red one.",
                 "blip_caption": "a bicycle"},
            ],
            "session_2_date_time": "9:00 am on 1 June, 2023",
            "session_2": [{"speaker": "Ann", "dia_id": "D2:1", "text": "My bicycle was stolen."}],
        },
        "qa": [
            {"question": "What happened to Ann's bicycle?", "category": 4,
             "evidence": ["D1:1; D2:1", "D9:9"]},
            {"question": "Who else rides?", "category": 1, "evidence": ["D8:8"]},
        ],
    }  # fmt: skip


# --- one commit against another ------------------------------------------------------------------

STEADY = [1.00, 1.02, 0.99, 1.01, 1.00, 0.98, 1.01]


def _compared(now: float, again: float = 1.0, noise: list[float] = STEADY) -> against.Comparison:
    before = [0.010 * each for each in noise]
    return against.compare_times(
        "recall",
        {
            against.BEFORE: before,
            against.NOW: [now * each for each in reversed(before)],
            against.AGAIN: [again * each for each in before[1:] + before[:1]],
        },
    )


@pytest.mark.parametrize(
    ("now", "again", "regression"),
    [
        (1.00, 1.00, False),
        (0.50, 1.00, False),  # faster
        (1.04, 1.00, False),  # within what is allowed
        (1.10, 1.00, True),
        (1.10, 1.15, False),  # the same commit differs as much from itself
        (1.10, 1 / 1.15, False),  # in either direction
        (1.30, 1.15, True),
    ],
)
def test_worse_than_allowed_and_beyond_the_spread_is_a_regression(
    now: float, again: float, regression: bool
) -> None:
    compared = _compared(now, again)
    assert compared.ratio == pytest.approx(now, rel=0.02)
    assert compared.regression is regression
    (row,) = against.comparison_section("abc", [compared]).rows
    assert row.ok is not regression


def test_one_odd_round_neither_makes_a_regression_nor_hides_one() -> None:
    rounds = {side: [1.0] * 7 for side in (against.BEFORE, against.NOW, against.AGAIN)}
    odd = {**rounds, against.NOW: [9.0] + [1.0] * 6}
    assert not against.compare_times("get", odd).regression
    hidden = {**rounds, against.NOW: [1.2] * 7, against.AGAIN: [9.0] + [1.0] * 6}
    assert against.compare_times("get", hidden).regression


def test_fewer_rounds_than_tell_anything_are_refused() -> None:
    with pytest.raises(SystemExit):
        main(["--against", "HEAD", "--rounds", "6"])


def test_another_commit_must_exist() -> None:
    with pytest.raises(SystemExit, match="not a commit"):
        main(["--against", "no-such-commit"])


def test_a_checked_out_commit_is_measured_through_its_public_interface(tmp_path: Path) -> None:
    source = against.check_out(against.commit_of("HEAD"), tmp_path / "source")
    texts, queries = [f"the heron number {n} nests by the weir" for n in range(12)], ["heron weir"]
    tree = against.Tree.prepare(source, tmp_path / "data", texts, queries)
    assert len(tree.given["ids"]) == len(texts)
    took = tree.measure(calls=3)
    assert {name.partition(":")[0] for name in took} == {"library", "HTTP", "mcp"}
    assert all(seconds > 0 for seconds in took.values())
    assert (source / "src/commonplace/__pycache__").exists()  # its code ran, not this one


def test_questions_in_every_language_share_no_word_with_their_statement() -> None:
    known, others = languages.pairs(), languages.chatter()
    assert set(known) == set(others) == {"en", *["ja", "ko", "ru", "de", "es", "zh", "fr", "pt"]}
    for language, own in known.items():
        assert len(own) >= 40
        assert len(set(others[language])) >= 460
        for question, statement in own:
            shared = set(analyse(question)) & set(analyse(statement))
            if language in ("ja", "ko", "zh"):  # single characters and endings are no words
                shared = {each for each in shared if len(each) > 1 and not HIRAGANA.match(each)}
            assert not shared, (question, statement)
