"""What is derived from the rows can be lost and rebuilt; the rows are never made fewer (R19)."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from commonplace import Commonplace
from commonplace.cli.app import run
from commonplace.engine.binding import engine_call, lease
from commonplace.engine.content import memories
from commonplace.engine.maintenance import upkeep
from commonplace.engine.model import Origin
from commonplace.errors import NotFound, StorageCorrupt
from commonplace.storage.reports import Diagnosis
from commonplace.storage.sqlite import hashed_rows, repair, salvage, swap
from commonplace.storage.sqlite.check import DERIVED
from conftest import WordVectors
from fixtures.full_store import TEXTS, answers, fill

LOSSES = {
    "lexemes emptied": "DELETE FROM lexemes",
    "a term lost": "UPDATE lexemes SET terms = substr(terms, 10) WHERE memory % 5 = 0",
    "terms of another text": "UPDATE lexemes SET terms = (SELECT terms FROM lexemes WHERE memory ="
    " 3), sum = (SELECT sum FROM lexemes WHERE memory = 3) WHERE memory = 4",
    "labels emptied": "DELETE FROM labels",
    "a label renamed": "UPDATE labels SET label = 'tag:x' WHERE label = 'tag:t1' AND memory = 2",
    "labels dropped": "DROP TABLE labels",
    "trigrams emptied": "DELETE FROM grams",
    "trigrams of one memory": "DELETE FROM grams WHERE rowid = 5",
    "trigrams of another text": "DELETE FROM grams WHERE rowid = 5;"
    " INSERT INTO grams (rowid, body) VALUES (5, 'something else entirely')",
    "trigrams of nobody": "INSERT INTO grams (rowid, body) VALUES (99999, 'ghost')",
    "trigrams dropped": "DROP TABLE grams",
    "trigram pages": "UPDATE grams_data SET block = zeroblob(length(block)) WHERE id > 100",
    "passages emptied": "DELETE FROM passages",
    "vectors zeroed": "UPDATE passages SET vector = zeroblob(length(vector))",
    "spans moved": "UPDATE passages SET start = start + 1 WHERE memory = 6",
    "passages dropped": "DROP TABLE passages",
    "everything": "DELETE FROM lexemes; DELETE FROM labels; DELETE FROM passages;"
    " DELETE FROM grams; DELETE FROM counters WHERE 0",
    "an index dropped": "DROP INDEX memories_ref",
}


@pytest.fixture
def full(quick_disk: Path) -> Iterator[Commonplace]:
    with Commonplace(quick_disk / "data", embedding=WordVectors()) as memory:
        fill(memory)
        engine_call(memory, upkeep.embed_all)
        _close(memory)
        yield memory


def _close(memory: Commonplace) -> None:
    """Write what is noted; the thread that tends spaces may have it open for a moment."""
    swap.close_space(memory.library, "default")


def _damage(memory: Commonplace, statements: str) -> None:
    """Change the file behind the engine's back."""
    _close(memory)
    connection = apsw.Connection(str(memory.library.file("default")))
    connection.execute(statements)
    connection.close()


def _hundred(memory: Commonplace) -> list[Any]:
    """What a hundred queries find."""
    words = [word for text in TEXTS for word in text.split() if len(word) > 2]
    found: list[Any] = []
    for i in range(50):
        query = " ".join(words[i : i + 3])
        found.append(memory.recall(query, count=False))
        found.append(memory.find_text(words[i]))
    return found


def _operations(memory: Commonplace) -> int:
    return len(memory.history.operations(limit=1000))


def test_a_sound_space_is_healthy_and_left_alone(full: Commonplace) -> None:
    seen: list[tuple[int, int]] = []
    diagnosis = full.library.maintenance.check("default", progress=lambda *at: seen.append(at))
    assert diagnosis.healthy and diagnosis.findings == []
    assert diagnosis.counts["memories"] == 38 and diagnosis.counts["events"] == 3
    assert seen[-1][0] == seen[-1][1]
    before = full.history.operations(limit=1, upkeep=True)
    repaired = full.library.maintenance.repair("default")
    assert repaired.rebuilt == [] and repaired.as_dict()["after"]["healthy"]
    assert full.history.operations(limit=1, upkeep=True) == before


@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_derived_is_rebuilt_to_identical_answers(full: Commonplace, loss: str) -> None:
    before, hundred, operations = answers(full), _hundred(full), _operations(full)
    rows = _census(full)
    _damage(full, LOSSES[loss])
    ill = full.library.maintenance.check("default")
    assert not ill.healthy, "the doctor saw nothing"
    repaired = full.library.maintenance.repair("default")
    assert repaired.rebuilt
    assert repaired.after.healthy, repaired.after.findings
    engine_call(full, upkeep.embed_all)
    assert _hundred(full) == hundred
    assert _operations(full) == operations
    now = answers(full)
    embedded = {"operations"}  # embedding anew is an operation of its own
    assert [name for name in before if now[name] != before[name] and name not in embedded] == []
    assert _census(full) == rows
    assert full.library.maintenance.check("default").findings == []


def _census(memory: Commonplace) -> dict[str, int]:
    with lease(memory) as space, space.store.read() as connection:
        rows = hashed_rows.take_census(connection, "default").rows
    return {name: count for name, count in rows.items() if name not in ("operations", "head")}


def test_sound_vectors_are_kept_and_only_the_others_asked_for_again(
    full: Commonplace, words: WordVectors
) -> None:
    _damage(
        full,
        "UPDATE passages SET vector = zeroblob(length(vector)) WHERE memory = 3;"
        " DELETE FROM labels; DELETE FROM lexemes",
    )
    embedder = full.library.embedder
    assert isinstance(embedder, WordVectors)
    before = embedder.texts
    full.library.maintenance.repair("default")
    engine_call(full, upkeep.embed_all)
    assert embedder.texts == before + 1


def test_memories_that_wait_for_vectors_are_not_ill(quick_disk: Path) -> None:
    with Commonplace(quick_disk / "waiting", embedding="none") as memory:
        memory.remember("Stored without an embedder.")
    embedder = WordVectors()
    embedder.gate.clear()
    with Commonplace(quick_disk / "waiting", embedding=embedder) as memory:
        assert memory.backlog()[0] == 1
        diagnosis = memory.library.maintenance.check("default")
        embedder.gate.set()
        assert diagnosis.healthy and diagnosis.counts["pending"] == 1
        assert [finding.severity for finding in diagnosis.findings] == ["note"]


def test_a_row_that_does_not_match_its_hash_is_named_and_not_touched(full: Commonplace) -> None:
    _damage(full, "UPDATE memories SET text = 'forged' WHERE ref = 'ref-3'; DELETE FROM grams")
    repaired = full.library.maintenance.repair("default")
    assert "grams" in repaired.rebuilt
    assert not repaired.after.healthy
    assert any("memories num 4" in finding.what for finding in repaired.after.findings)
    with pytest.raises(StorageCorrupt):
        full.get("ref-3")
    with pytest.raises(StorageCorrupt):
        full.find_text("forged")
    assert full.get("ref-4").text.startswith("Заказ")
    connection = apsw.Connection(str(full.library.file("default")))
    assert connection.execute("SELECT text FROM memories WHERE num = 4").fetchone() == ("forged",)
    connection.close()


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("links", "UPDATE links SET reason = 'other' WHERE num = (SELECT min(num) FROM links)"),
        ("versions", "UPDATE versions SET row = replace(row, 'number', 'numbre')"),
        ("operations", "UPDATE operations SET name = 'other' WHERE num = 2"),
        ("operations", "DELETE FROM operations WHERE num = 2"),
        ("events", "UPDATE events SET payload = '{}' WHERE kind = 'audit'"),
        ("contents", "UPDATE contents SET content = x'00' WHERE version = 2"),
        ("messages", "UPDATE messages SET speaker = 'Eve' WHERE position = 3"),
    ],
)
def test_a_changed_row_of_any_table_is_found(full: Commonplace, table: str, change: str) -> None:
    _damage(full, change)
    diagnosis = full.library.maintenance.check("default")
    assert diagnosis.has_damage_in(table), diagnosis.findings


def test_a_damaged_access_counter_is_reset_and_the_others_kept(full: Commonplace) -> None:
    _close(full)
    assert full.usage("ref-2").accesses == 1
    _damage(full, "UPDATE counters SET accesses = 1000 WHERE memory = 2")
    with pytest.raises(StorageCorrupt):
        full.usage("ref-1")
    repaired = full.library.maintenance.repair("default")
    assert repaired.rebuilt == ["counters"] and repaired.after.healthy
    assert full.usage("ref-1").accesses == 0
    assert full.usage("ref-2").accesses == 1


def test_a_damaged_change_counter_is_counted_again(full: Commonplace) -> None:
    before = answers(full)
    _damage(full, "UPDATE head SET seq = 3")
    with pytest.raises(StorageCorrupt):
        full.remember("Nothing can be written now.")
    repaired = full.library.maintenance.repair("default")
    assert repaired.rebuilt == ["head"] and repaired.after.healthy
    assert answers(full) == before
    full.remember("And now it can.")
    assert full.library.maintenance.check("default").healthy


def test_a_fact_of_no_memory_names_none(memory: Commonplace) -> None:
    memory.facts.add("Ann", "likes", "tea")
    assert memory.library.maintenance.check("default").findings == []


def test_links_to_nothing_are_told_but_are_no_damage(full: Commonplace) -> None:
    """What a row names may be gone; the row itself is as it was written."""
    with lease(full) as space, space.write("test", Origin()) as unit:
        row = memories.find_row(unit.connection, "default", "ref-3")
        assert row is not None
        memories.remove_row(unit, row)
    diagnosis = full.library.maintenance.check("default")
    assert diagnosis.healthy
    assert {(f.check, f.severity) for f in diagnosis.findings} == {("orphans", "warning")}


def test_the_same_fault_of_many_rows_is_one_finding(
    full: Commonplace, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a time in which nothing was embedded."""
    _damage(full, "UPDATE passages SET model = NULL, vector = NULL; DELETE FROM outbox")
    _damage(full, "DELETE FROM lexemes")
    diagnosis = full.library.maintenance.check("default")
    (lexemes,) = [finding for finding in diagnosis.findings if finding.check == "lexemes"]
    assert (lexemes.count, len(lexemes.rows), len(set(lexemes.rows))) == (38, 38, 38)
    first, second = lexemes.rows[:2]
    assert str(lexemes).startswith(
        f"Row {first} of memories: its terms are missing. The same is true of 37 more: {second}, "
    )
    assert str(lexemes).count(",") == 4 and str(lexemes).endswith(", ….")
    assert lexemes.as_dict()["count"] == 38
    assert len(diagnosis.findings) < 10
    _close(full)
    data = str(full.library.path)
    assert run(["doctor", "--data", data, "--embedding", "none"]) == 6
    told = capsys.readouterr().out.splitlines()
    assert len([line for line in told if "its terms are missing" in line]) == 1


def test_different_faults_are_listed_up_to_a_hundred() -> None:
    diagnosis = Diagnosis("default")
    for i in range(130):
        diagnosis.add("file", f"SQLite: fault {i}.")
    diagnosis.add("links", "Row {row} is odd.", row="links num 1")
    found = diagnosis.finish().findings
    assert len(found) == 102
    assert str(found[-1]) == "30 more findings of this check."
    assert str(found[-2]) == "Row links num 1 is odd."


def test_a_repair_is_not_what_undo_undoes(full: Commonplace) -> None:
    full.revise("ref-1", text="Changed once.")
    _damage(full, "DELETE FROM lexemes")
    full.library.maintenance.repair("default")
    full.undo()
    assert full.get("ref-1").text.startswith("Ann prefers")


def test_an_open_index_sees_the_repair_at_once(full: Commonplace) -> None:
    assert full.recall("certificate", count=False)
    connection = apsw.Connection(str(full.library.file("default")))
    connection.execute("DELETE FROM lexemes; DELETE FROM grams")
    connection.close()
    full.library.maintenance.repair("default")
    assert "certificate" in full.recall("certificate", count=False)[0].memory.text
    assert full.find_text("certificate")[1] > 0


def test_a_space_that_is_not_there_is_not_made(full: Commonplace) -> None:
    for ask in (full.library.maintenance.check, full.library.maintenance.repair):
        with pytest.raises(NotFound):
            ask("nobody")
    with pytest.raises(NotFound):
        full.library.maintenance.salvage("nobody", full.library.path / "saved")
    assert full.library.spaces() == ["default"]


def test_repair_after_any_flipped_bit_heals_or_refuses_and_never_loses_a_row(
    full: Commonplace, publish: Callable[[str], None]
) -> None:
    _close(full)
    file = full.library.file("default")
    whole, before = file.read_bytes(), _census(full)
    chance = random.Random(19)
    healed = refused = harmless = 0
    places = [chance.randrange(len(whole)) for _ in range(25)]
    places += [chance.randrange(4096) for _ in range(14)] + [4087]  # the schema's own page
    for place in places:
        _close(full)
        for suffix in ("-wal", "-shm"):
            Path(f"{file}{suffix}").unlink(missing_ok=True)
        data = bytearray(whole)
        data[place] ^= 1 << chance.randrange(8) if place != 4087 else 8
        file.write_bytes(data)
        try:
            repaired = full.library.maintenance.repair("default")
        except StorageCorrupt:
            refused += 1
            continue
        if repaired.after.healthy:
            harmless += not repaired.rebuilt
            healed += bool(repaired.rebuilt)
            after = _census(full)
            after["counters"] = before["counters"]  # a damaged one may be reset
            assert after == before
        else:
            refused += 1
    publish(f"40 flips: {harmless} harmless, {healed} healed, {refused} refused")
    assert healed


REPAIRER = """
import sys
sys.path.insert(0, sys.argv[2])
from conftest import WordVectors

from commonplace.engine.library import Library
library = Library(sys.argv[1], embedder=WordVectors())
print("ready", flush=True)
print(library.maintenance.repair("default").after.healthy, flush=True)
"""


def test_a_repair_killed_at_any_moment_leaves_the_old_or_the_new(
    full: Commonplace, publish: Callable[[str], None]
) -> None:
    before, rows = _hundred(full), _census(full)
    tests = Path(__file__).parent.parent
    chance, finished, killed = random.Random(3), 0, 0
    for _ in range(10):
        _damage(full, LOSSES["everything"])
        child = subprocess.Popen(
            [sys.executable, "-c", REPAIRER, str(full.library.path), str(tests)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0.0, 0.25))
        child.send_signal(signal.SIGKILL)
        child.wait()
        finished += child.stdout.read() == "True\n"
        child.stdout.close()
        diagnosis = full.library.maintenance.check("default")
        assert diagnosis.healthy or all(diagnosis.has_damage_in(table) for table in DERIVED)
        killed += not diagnosis.healthy
        assert {name: diagnosis.counts[name] for name in rows} == rows
    publish(f"10 repairs killed: {killed} left the old, {10 - killed} the new")
    full.library.maintenance.repair("default")
    engine_call(full, upkeep.embed_all)
    assert _hundred(full) == before


def test_repair_in_halves_would_be_seen(full: Commonplace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: a rebuild that loses rows is taken back."""
    before = _census(full)

    def careless(connection: apsw.Connection, *_: object) -> dict[str, set[int]]:
        connection.execute("DELETE FROM memories WHERE num % 2 = 0")
        return {"lexemes": set()}

    _damage(full, "DELETE FROM lexemes")
    monkeypatch.setattr(repair, "_rebuild_derived", careless)
    monkeypatch.setattr(salvage, "rewrite", lambda *_: None)
    repaired = full.library.maintenance.repair("default")
    assert not repaired.after.healthy
    assert _census(full) == before
