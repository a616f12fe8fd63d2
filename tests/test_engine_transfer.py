"""Exports and imports: nothing lost, nothing doubled, nothing overwritten."""

from __future__ import annotations

import hashlib
import json
import os
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commonplace import Commonplace, Draft, Line, Origin
from commonplace.engine.binding import lease
from commonplace.engine.transfer import exporting
from commonplace.engine.transfer.importing import import_file
from commonplace.engine.transfer.reading import ImportReport
from commonplace.errors import Conflict, InvalidInput, NotFound, UnsupportedVersion


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Commonplace]:
    with Commonplace(tmp_path / "other", embedding="none") as opened:
        yield opened


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Callable[[], Commonplace]]:
    opened: list[Commonplace] = []

    def make() -> Commonplace:
        opened.append(Commonplace(tmp_path / f"fresh-{len(opened)}", embedding="none"))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def live(memory: Commonplace) -> None:
    """A bit of everything: corrections, removals, undos, links, talk, documents."""
    origin = Origin(user="ana", client="test", tool="t", session="s", url="https://example.org")
    a = memory.remember("Alice likes tea", tags=["people", "ティー"], origin=origin, importance=0.7)
    b = memory.remember("Quarter plan", ref="plan", title="Plan", attrs={"n": [1, 2.5, None, "é"]})
    memory.revise(a.id, text="Alice likes coffee", trust="inferred")
    memory.revise(a.id, pinned=True)
    memory.supersede(b.id, "Better plan", ref="plan", reason="new numbers")
    gone = memory.links.add(a.id, b.id, "relates", weight=0.3, reason="both dull")
    memory.links.remove(gone.id)
    kept = memory.links.add(a.id, b.id, "relates")
    memory.links.revise(kept.id, weight=0.9)
    memory.conversations.add(
        "talk",
        Line(speaker="Ana", text="Where is the zebra?", at="2026-05-31T10:00:00Z", session="s1"),
        Line(speaker="Bo", text="At the well 🦓", session="s1"),
    )
    memory.conversations.add("talk", Line(speaker="Ana", text="never said"))
    memory.undo()
    memory.facts.add("Alice", "drinks", "tea", valid_from="2025-01-01", memory=a.id)
    memory.facts.close("Alice", "drinks", "tea", ended="2026-01-01")
    wrong = memory.facts.add("Alice", "drinks", "mud")
    memory.facts.retract(wrong.id)
    top = memory.clusters.create("drinks", digest="what people drink")
    memory.clusters.create("hot ones", parent=top.id)
    memory.clusters.add(top.id, a.id, b.id)
    memory.clusters.remove(top.id, b.id)
    memory.artifacts.create("# Plan", path="/plan.md", title="Plan")
    memory.artifacts.update("/plan.md", b"\xff\xfe\x00binary")
    memory.artifacts.review("/plan.md", "approved", reviewer="Bo", comments="fine")
    memory.artifacts.delete("/plan.md")
    memory.artifacts.create("again", path="/plan.md")
    memory.forget(b.id)
    with memory.unit("events"):
        memory.events.record("credit", a.id, {"delta": 1})
        memory.events.record("credit", a.id, {"delta": 1})
    memory.remember("old state", state="dead", created_at="1999-12-31T23:59:59.000001Z")


def exported(memory: Commonplace) -> str:
    lines: list[str] = []
    with lease(memory) as space:
        exporting.export_space(space, lines.append)
    return "".join(lines)


def bring(memory: Commonplace, path: Path, **options: Any) -> ImportReport:
    with lease(memory) as space:
        return import_file(space, path, **options)


def digest(memory: Commonplace) -> str:
    with lease(memory) as space:
        return exporting.digest(space)


def sealed(lines: list[str]) -> str:
    """Lines with an end line that fits them."""
    body = "".join(line + "\n" for line in lines)
    end = {"type": "end", "lines": len(lines), "counts": {},
           "sha256": hashlib.sha256(body.encode()).hexdigest()}  # fmt: skip
    return body + json.dumps(end) + "\n"


@pytest.fixture
def story(memory: Commonplace, tmp_path: Path) -> Path:
    live(memory)
    path = tmp_path / "story.jsonl"
    path.write_text(exported(memory), encoding="utf-8")
    return path


def test_a_trusted_export_comes_back_exactly(
    memory: Commonplace, other: Commonplace, story: Path
) -> None:
    report = bring(other, story, trust_file=True)
    assert (report.conflicts, report.skipped, report.unchanged) == (0, 0, 0)
    assert digest(other) == digest(memory)
    theirs, ours = exported(other).splitlines(), exported(memory).splitlines()
    assert len(json.loads(theirs[-1])["counts"]) == len(json.loads(ours[-1])["counts"])


def test_an_import_can_be_searched_and_looked_at(other: Commonplace, story: Path) -> None:
    bring(other, story)
    assert other.recall("who asked about the zebra?")[0].memory.text == "Where is the zebra?"
    assert other.recall("Ana")[0].memory.text == "Where is the zebra?"  # found by its speaker
    assert [m.text for m in other.find_text("likes coffee")[0]] == ["Alice likes coffee"]
    alice = other.find_text("likes coffee")[0][0]
    assert [v.memory.text for v in other.history.versions(alice.id)][-1] == "Alice likes tea"
    assert other.get("plan").text == "Better plan"
    assert [line.position for line in other.conversations.history("talk")] == [0, 1]
    assert other.artifacts.read("/plan.md")[1].content == b"again"
    assert [c.name for c in other.clusters.all()] == ["drinks", "hot ones"]


def test_the_same_file_twice_changes_nothing(other: Commonplace, story: Path) -> None:
    first = bring(other, story)
    before, operations = digest(other), other.history.operations()
    again = bring(other, story)
    assert (again.added, again.conflicts, again.skipped) == (0, 0, 0)
    assert again.unchanged == first.added
    assert again.operations == []
    assert digest(other) == before
    assert other.history.operations() == operations


def test_importing_into_its_own_store_changes_nothing(memory: Commonplace, story: Path) -> None:
    before = digest(memory)
    report = bring(memory, story)
    assert (report.added, report.conflicts, report.skipped) == (0, 0, 0)
    assert digest(memory) == before


def test_what_happened_since_the_last_import_is_added(
    memory: Commonplace, other: Commonplace, story: Path
) -> None:
    bring(other, story, trust_file=True)
    alice = memory.find_text("likes coffee")[0][0]
    memory.revise(alice.id, text="Alice likes water")
    memory.remember("A later thought")
    story.write_text(exported(memory), encoding="utf-8")
    report = bring(other, story, trust_file=True)
    assert (report.added, report.conflicts) == (2, 0)
    assert digest(other) == digest(memory)


def test_what_was_changed_on_both_sides_is_a_conflict_and_stays(
    memory: Commonplace, other: Commonplace, story: Path
) -> None:
    bring(other, story)
    alice = other.find_text("likes coffee")[0][0]
    other.revise(alice.id, text="Alice likes beer")
    memory.revise(alice.id, text="Alice likes water")
    story.write_text(exported(memory), encoding="utf-8")
    report = bring(other, story)
    assert report.conflicts == 1
    assert "line" in report.problems[0].where
    assert other.get(alice.id).text == "Alice likes beer"


def test_a_past_that_parted_earlier_is_not_gone_on_from(
    memory: Commonplace, other: Commonplace, tmp_path: Path
) -> None:
    path = tmp_path / "x.jsonl"
    note = memory.remember("first")
    path.write_text(exported(memory), encoding="utf-8")
    bring(other, path)
    other.revise(note.id, text="their second")
    memory.revise(note.id, text="our second")
    memory.revise(note.id, text="our third")
    path.write_text(exported(memory), encoding="utf-8")
    assert bring(other, path).conflicts == 2
    assert other.get(note.id).text == "their second"


def test_a_name_that_changed_hands_in_one_operation_is_carried_over(
    memory: Commonplace, other: Commonplace, tmp_path: Path
) -> None:
    old, new = memory.remember("old"), memory.remember("new", ref="name")
    with memory.unit("hand over"):
        memory.revise(new.id, ref=None)
        memory.revise(old.id, ref="name")
    path = tmp_path / "x.jsonl"
    path.write_text(exported(memory), encoding="utf-8")
    assert bring(other, path, trust_file=True).conflicts == 0
    assert other.get("name").text == "old"
    assert digest(other) == digest(memory)


def test_a_line_cut_from_its_memory_is_still_found_by_its_speaker(
    memory: Commonplace, other: Commonplace, tmp_path: Path
) -> None:
    memory.conversations.add("talk", Line(speaker="Zenobia", text="The well is dry"))
    lines = exported(memory).splitlines(keepends=True)
    path = tmp_path / "x.jsonl"
    path.write_text("".join(lines[:3]), encoding="utf-8")
    assert bring(other, path, partial=True).counts == {"memory": 1}
    path.write_text("".join(lines), encoding="utf-8")
    assert bring(other, path).counts == {"message": 1}
    (hit,) = other.recall("Zenobia")
    assert (hit.memory.text, hit.why.lexical_rank) == ("The well is dry", 1)


def test_another_memory_under_the_same_id_is_a_conflict_and_stays(
    memory: Commonplace, other: Commonplace, tmp_path: Path
) -> None:
    mine = memory.remember("mine")
    other.remember("theirs", id=mine.id)
    path = tmp_path / "x.jsonl"
    path.write_text(exported(memory), encoding="utf-8")
    assert bring(other, path).conflicts == 1
    assert other.get(mine.id).text == "theirs"


@pytest.mark.parametrize("ours", ["ref", "id"])
def test_an_import_does_not_take_the_name_of_a_memory(
    memory: Commonplace, other: Commonplace, tmp_path: Path, ours: str
) -> None:
    name = str(uuid.uuid4())
    mine = other.remember("mine", **{ours: name})  # type: ignore[arg-type]
    memory.remember("theirs", **{"id" if ours == "ref" else "ref": name})  # type: ignore[arg-type]
    memory.remember("another")
    path = tmp_path / "theirs.jsonl"
    path.write_text(exported(memory), encoding="utf-8")
    report = bring(other, path)
    assert (report.added, report.conflicts) == (1, 1)
    assert "equal the id of another" in report.problems[0].what
    assert other.get(name).id == mine.id
    assert other.browse()[1] == 2


def test_an_undone_import_can_be_imported_again(other: Commonplace, tmp_path: Path) -> None:
    with Commonplace(tmp_path / "source", embedding="none") as source:
        source.remember("zebra")
        path = tmp_path / "x.jsonl"
        path.write_text(exported(source), encoding="utf-8")
    bring(other, path)
    other.undo()
    assert not other.find_text("zebra")[0]
    assert bring(other, path).added == 1
    assert other.find_text("zebra")[0]
    assert bring(other, path).added == 0


@pytest.fixture
def thousands(tmp_path: Path) -> Path:
    """More lines than fit into one unit of work."""
    path = tmp_path / "thousands.jsonl"
    path.write_text("\n".join(json.dumps({"text": f"note {i}"}) for i in range(1_300)))
    return path


def test_an_import_of_several_batches_is_undone_whole(other: Commonplace, thousands: Path) -> None:
    kept = other.remember("before")
    report = bring(other, thousands)
    assert len(report.operations) == 3
    undone = other.undo()
    assert (undone.name, undone.undoes) == ("undo", report.operations[-1])
    assert other.browse()[1] == 1
    assert [m.id for m in other.browse()[0]] == [kept.id]
    with pytest.raises(Conflict, match="undone already"):
        other.undo(report.operations[0])
    other.undo(undone.id)
    assert other.browse()[1] == 1_301
    for name in report.operations[:2]:  # any of them means the import
        again = other.undo(name)
        assert other.browse()[1] == 1
        other.undo(again.id)
    assert other.find_text("note 1299")[1] == 1
    other.undo(report.operations[1])
    assert other.undo().undoes == other.history.operations(limit=1000)[-1].id  # the first of all
    assert other.browse()[1] == 0
    with pytest.raises(NotFound):
        other.undo()


def test_an_import_that_was_gone_on_from_is_not_undone(other: Commonplace, thousands: Path) -> None:
    report = bring(other, thousands)
    first = other.find_text("note 7")[0][-1]
    later = other.remember("on top of it")
    other.links.add(later.id, first.id, "follows")
    state = digest(other)
    with pytest.raises(Conflict, match=r"later operation .* \(link, "):
        other.undo(report.operations[0])
    assert digest(other) == state
    other.undo()
    other.revise(first.id, text="changed since")
    state = digest(other)
    with pytest.raises(Conflict, match=r"later operation .* \(revise, .*changed the same memories"):
        other.undo(report.operations[-1])
    assert digest(other) == state
    other.undo()  # the revision, so that it does not count
    other.undo(report.operations[-1])
    assert [m.text for m in other.browse()[0]] == ["on top of it"]


def test_undoing_an_import_puts_back_what_it_changed(
    memory: Commonplace, other: Commonplace, story: Path
) -> None:
    bring(other, story, trust_file=True)
    alice = memory.find_text("likes coffee")[0][0]
    for i in range(3):  # one form of a thing a batch, so that each is a unit of its own
        memory.revise(alice.id, text=f"Alice likes water {i}")
        memory.links.revise(memory.links.of(alice.id)[0].id, weight=i / 10)
    memory.artifacts.update("/plan.md", "third")
    story.write_text(exported(memory), encoding="utf-8")
    report = bring(other, story, trust_file=True)
    assert len(report.operations) == 3
    assert digest(other) == digest(memory)
    undone = other.undo()
    assert other.get(alice.id).text == "Alice likes coffee"
    assert other.artifacts.read("/plan.md")[1].content == b"again"
    assert other.links.of(alice.id)[0].weight == 0.9
    assert other.recall("coffee")[0].memory.id == alice.id
    other.undo(undone.id)
    assert other.get(alice.id).text == "Alice likes water 2"
    other.undo(report.operations[0])
    other.undo()  # the first import, whose rows show it again
    assert other.browse()[1] == 0 and other.links.of() == [] and other.artifacts.all() == []
    assert other.library.maintenance.check("default").findings == []


def test_two_imports_are_two_things(other: Commonplace, thousands: Path, tmp_path: Path) -> None:
    bring(other, thousands)
    path = tmp_path / "more.jsonl"
    path.write_text('{"text": "one more"}')
    bring(other, path)
    other.undo()
    assert other.browse()[1] == 1_300
    with other.unit("import", Origin(url="import:mine")):
        other.remember("by hand")
    other.undo()
    assert other.browse()[1] == 1_300
    other.undo()
    assert other.browse()[1] == 0


def test_trust_is_external_unless_the_file_is_vouched_for(
    memory: Commonplace, other: Commonplace, fresh: Callable[[], Commonplace], story: Path
) -> None:
    bring(other, story)
    every, _ = other.browse(states=["active", "archived", "superseded", "dead"])
    assert {each.trust for each in every} == {"external"}
    assert other.find_text("coffee")[0][0].origin.user == "ana"
    vouched = fresh()
    bring(vouched, story, trust_file=True)
    assert {each.trust for each in vouched.browse()[0]} == {"stated", "inferred"}
    bring(other, story, trust_file=True)  # what is here does not rise by importing again
    assert {each.trust for each in other.browse()[0]} == {"external"}


def test_conversations_of_the_same_name_are_joined(
    memory: Commonplace, other: Commonplace, story: Path
) -> None:
    other.conversations.add("talk", Line(speaker="Cy", text="first"))
    report = bring(other, story)
    assert report.conflicts == 0
    said = [(line.position, line.speaker) for line in other.conversations.history("talk")]
    assert said == [(0, "Cy"), (1, "Ana"), (2, "Bo")]
    assert bring(other, story).added == 0


def test_a_cut_or_changed_file_is_refused_before_anything_is_written(
    other: Commonplace, story: Path
) -> None:
    whole = story.read_bytes()
    lines = whole.splitlines(keepends=True)
    for damaged in (
        whole[:-1][: len(whole) // 2],
        b"".join(lines[:-1]),
        b"".join(lines[:3] + lines[4:]),
        whole.replace(b"Alice likes tea", b"Alice hates tea"),
        whole + b'{"type":"memory"}\n',
    ):
        story.write_bytes(damaged)
        with pytest.raises(InvalidInput, match="Nothing was imported"):
            bring(other, story)
    assert other.history.operations() == []


def test_cut_at_fifty_places_and_imported_again_it_is_the_same(
    memory: Commonplace, fresh: Callable[[], Commonplace], story: Path, tmp_path: Path
) -> None:
    whole = story.read_bytes()
    clean = fresh()
    bring(clean, story)
    wanted = digest(clean)
    cut = tmp_path / "cut.jsonl"
    for part in range(1, 50):
        store = clean.at(f"cut-{part}")
        cut.write_bytes(whole[: len(whole) * part // 50])
        if cut.stat().st_size > 200:
            report = bring(store, cut, partial=True)
            assert not report.complete
            assert report.conflicts == 0
        again = bring(store, story)
        assert (again.conflicts, again.skipped) == (0, 0)
        assert digest(store) == wanted, f"cut after {part}/50"


def test_a_batch_that_fails_leaves_nothing_of_itself(
    memory: Commonplace, other: Commonplace, tmp_path: Path
) -> None:
    memory.remember_many([Draft(text=f"note {i}") for i in range(3)])
    lines = exported(memory).splitlines()[:-1]
    bad = json.loads(lines[-1])
    bad["value"]["importance"] = 7
    path = tmp_path / "bad.jsonl"
    path.write_text(sealed([*lines[:-1], json.dumps(bad)]), encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"bad.jsonl, line 5: importance must be"):
        bring(other, path)
    assert other.browse()[1] == 0


def test_a_bad_line_behind_whole_batches_changes_nothing(
    memory: Commonplace, other: Commonplace, tmp_path: Path
) -> None:
    for part in range(3):
        memory.remember_many([Draft(text=f"note {part}.{i}") for i in range(600)])
    lines = exported(memory).splitlines()[:-1]
    bad = json.loads(lines[-1])
    bad["value"]["importance"] = 7
    path = tmp_path / "late.jsonl"
    path.write_text(sealed([*lines[:-1], json.dumps(bad)]), encoding="utf-8")
    where = rf"late.jsonl, line {len(lines)}: importance must be.*Nothing was imported"
    for partial in (False, True):
        with pytest.raises(InvalidInput, match=where):
            bring(other, path, partial=partial)
    notes = [json.dumps({"text": f"note {i}"}) for i in range(1_200)]
    path.write_text("\n".join([*notes, '{"text": ""}']), encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"late.jsonl, line 1201: .*Nothing was imported"):
        bring(other, path)
    assert other.history.operations() == []


def test_a_bad_file_of_a_directory_changes_nothing(
    memory: Commonplace, other: Commonplace, tmp_path: Path, story: Path
) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    story.rename(folder / "a.jsonl")
    (folder / "b.md").write_text("good")
    (folder / "c.jsonl").write_text('{"text": "good"}\n{"text": "x", "importance": 2}\n')
    with pytest.raises(InvalidInput, match=r"c.jsonl, line 2: "):
        bring(other, folder)
    assert other.history.operations() == []
    (folder / "c.jsonl").unlink()
    assert bring(other, folder).counts["memory"] > 1


def test_checking_and_writing_are_one_progress(other: Commonplace, tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("\n".join(json.dumps({"text": f"note {i}"}) for i in range(2_000)))
    steps: list[tuple[int, int]] = []
    stored: list[int] = []

    def show(done: int, total: int) -> None:
        steps.append((done, total))
        stored.append(other.browse()[1])

    bring(other, path, progress=show)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1] == (path.stat().st_size, path.stat().st_size)
    half = [count for (done, total), count in zip(steps, stored, strict=True) if done < total / 2]
    assert len(half) >= 3 and not any(half)


def test_a_pipe_is_read_once_and_imported_whole(
    memory: Commonplace, other: Commonplace, tmp_path: Path
) -> None:
    live(memory)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(exported(memory), encoding="utf-8"))
    writer.start()
    report = bring(other, pipe, trust_file=True)
    writer.join()
    assert (report.conflicts, report.skipped, report.complete) == (0, 0, True)
    assert digest(other) == digest(memory)


@pytest.mark.parametrize("path", [None, 5, b"x", object()])
def test_what_is_no_path_is_refused(other: Commonplace, path: Any) -> None:
    with pytest.raises(InvalidInput):
        bring(other, path)


HOSTILE: list[Any] = [
    [],
    "text",
    {"type": "nonsense", "op": 1, "form": 1, "status": "current", "value": {}},
    {"type": ["memory"], "op": 1, "form": 1, "status": "current", "value": {}},
    {"type": "memory", "op": "1", "form": 1, "status": "current", "value": {}},
    {"type": "memory", "op": 1, "form": 0, "status": "current", "value": {}},
    {"type": "memory", "op": 1, "form": True, "status": "current", "value": {}},
    {"type": "memory", "op": 1, "form": 1, "status": "odd", "value": {}},
    {"type": "memory", "op": 1, "form": 1, "status": "current"},
    {"type": "memory", "op": 1, "form": 1, "status": "current", "value": []},
    {"type": "memory", "op": 1, "form": 1, "status": "removal", "value": {"id": "x"}},
    {"type": "memory", "op": 1, "form": 1, "status": "removal", "value": {}},
    {"type": "event", "op": 1, "form": 1, "status": "current", "value": {"kind": "k"}},
    {"type": "event", "op": 1, "form": 1, "status": "current", "value": {
        "kind": "k", "subject": "", "at": "2026-01-01", "payload": None, "payload_hash": "zz"}},
    {"type": "link", "op": 1, "form": 1, "status": "current", "after": 5, "value": {}},
]  # fmt: skip

HOSTILE_FIELDS: list[tuple[str, Any]] = [
    ("id", "../../etc/passwd"),
    ("id", "A" * 36),
    ("id", None),
    ("text", ""),
    ("text", "a\x00b"),
    ("text", "half \ud83d"),
    ("text", "x" * 1_000_001),
    ("text", 5),
    ("kind", "Robert'); DROP TABLE memories;--"),
    ("tags", "notalist"),
    ("tags", [1]),
    ("importance", "high"),
    ("importance", True),
    ("state", "immortal"),
    ("pinned", 1),
    ("created_at", "0001-01-01T00:00:00+14:00"),
    ("created_at", "tomorrow"),
    ("created_at", None),
    ("attrs", []),
    ("attrs", {"a": "\ud800"}),
    ("origin", {"user": 5}),
    ("origin", {"tenant": "another"}),
    ("trust", "divine"),
    ("ref", ""),
    ("unknown", 1),
]


def test_hostile_lines_are_refused_with_their_place(
    memory: Commonplace, other: Commonplace, tmp_path: Path
) -> None:
    memory.remember("good")
    lines = exported(memory).splitlines()[:-1]
    path = tmp_path / "hostile.jsonl"
    bad = [json.dumps(each) for each in HOSTILE]
    for field, value in HOSTILE_FIELDS:
        line = json.loads(lines[-1])
        line["value"][field] = value
        bad.append(json.dumps(line))
    missing = json.loads(lines[-1])
    del missing["value"]["trust"]
    bad.append(json.dumps(missing))
    bad += ["{", "NaN", '{"type": NaN}', "[" * 100_000, '{"type": 1' + "0" * 5_000 + "}", ""]
    for each in bad:
        path.write_text(sealed([*lines, each]), encoding="utf-8")
        with pytest.raises(InvalidInput, match=r"hostile.jsonl, line 4: "):
            bring(other, path)
    assert other.browse()[1] == 0
    assert other.history.operations() == []


def test_lines_that_lead_nowhere_are_skipped_and_reported(
    other: Commonplace, tmp_path: Path
) -> None:
    one, two = str(uuid.uuid4()), str(uuid.uuid4())
    at = "2026-01-01T00:00:00Z"
    common = {"attrs": {}, "origin": {}, "created_at": at}
    values = [
        ("link", {"id": one, "source": one, "target": two, "kind": "x", "weight": 1, "reason": "",
                  **common}),
        ("fact", {"id": one, "subject": "a", "predicate": "b", "object": "c", "valid_from": None,
                  "valid_to": None, "confidence": 1, "memory": two, **common}),
        ("member", {"cluster": one, "memory": two}),
        ("message", {"memory": one, "conversation": "c", "session": "", "position": 0,
                     "speaker": "s"}),
        ("cluster", {"id": one, "name": "c", "digest": "", "parent": two, "centroid": None,
                     **common}),
        ("review", {"artifact": one, "version": 1, "reviewer": "", "outcome": "approved",
                    "comments": "", "origin": {}, "created_at": at}),
    ]  # fmt: skip
    lines = [json.dumps({"format": "commonplace-export", "version": 1})]
    for name, value in values:
        line = {"type": name, "op": 1, "form": 1, "status": "current", "value": value}
        lines.append(json.dumps(line))
    path = tmp_path / "dangling.jsonl"
    path.write_text(sealed(lines), encoding="utf-8")
    report = bring(other, path)
    assert (report.added, report.skipped, report.conflicts) == (0, len(values), 0)


def test_a_cluster_within_itself_is_left_out(other: Commonplace, tmp_path: Path) -> None:
    ids = [str(uuid.uuid4()) for _ in range(2)]

    def cluster(at: int, parent: int | None) -> dict[str, Any]:
        return {"id": ids[at], "name": "c", "digest": "", "centroid": None, "attrs": {},
                "parent": None if parent is None else ids[parent], "origin": {},
                "created_at": "2026-01-01T00:00:00Z"}  # fmt: skip

    from commonplace.engine.transfer import rows
    from commonplace.storage.tables import CLUSTERS

    first = cluster(0, None)
    after = rows.form_digest(CLUSTERS, first)
    records = [(1, None, first), (1, None, cluster(1, 0)), (2, after, cluster(0, 1))]
    lines = [json.dumps({"format": "commonplace-export", "version": 1})]
    for form, mark, value in records:
        line = {"type": "cluster", "op": 1, "form": form, "status": "current", "value": value}
        lines.append(json.dumps(line | ({"after": mark} if mark else {})))
    path = tmp_path / "loop.jsonl"
    path.write_text(sealed(lines), encoding="utf-8")
    report = bring(other, path)
    assert (report.added, report.conflicts) == (2, 1)
    assert "inside itself" in report.problems[0].what


def test_a_newer_format_is_refused(other: Commonplace, tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    path.write_text(sealed([json.dumps({"format": "commonplace-export", "version": 3})]))
    with pytest.raises(UnsupportedVersion):
        bring(other, path)
    with pytest.raises(NotFound):
        bring(other, tmp_path / "absent.jsonl")


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.binary(max_size=300), at=st.integers(0, 10_000))
def test_any_damage_is_a_typed_error_or_changes_nothing_else(
    other: Commonplace, story: Path, data: bytes, at: int
) -> None:
    whole = story.read_bytes()
    place = at % len(whole)
    broken = story.with_name("broken.jsonl")
    broken.write_bytes(whole[:place] + data + whole[place + len(data) :])
    for partial in (False, True):
        try:
            bring(other, broken, partial=partial)
        except (InvalidInput, UnsupportedVersion) as error:
            assert error.message


def test_jsonl_of_plain_objects(other: Commonplace, tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    rows: list[dict[str, Any]] = [
        {"text": "First", "tags": ["a"], "occurred_at": "2026-01-02", "trust": "stated"},
        {"text": "Second", "ref": "two", "created_at": None},
        {"text": "Third", "id": str(uuid.uuid4()), "origin": {"user": "ana"}, "pinned": True},
    ]
    body = "\ufeff" + "\n\n".join(json.dumps(row) for row in rows)
    path.write_text(body, encoding="utf-8")
    report = bring(other, path)
    assert (report.added, report.counts) == (3, {"memory": 3})
    before = digest(other)
    again = bring(other, path)
    assert (again.added, again.unchanged, again.conflicts) == (0, 3, 0)
    assert digest(other) == before
    assert other.get("two").trust == "external"
    other.revise("two", text="Second, corrected")
    assert bring(other, path).unchanged == 3  # its first form is in its history
    path.write_text(json.dumps({"text": "Other", "ref": "two"}))
    assert bring(other, path).conflicts == 1
    assert other.get("two").text == "Second, corrected"


@pytest.mark.parametrize(
    "line",
    ['{"text": ""}', '{"title": "no text"}', '{"text": "x", "vectors": []}', '{"text": "x", "a":1}',
     '{"text": "x", "created_at": "0001-01-01T00:00:00+14:00"}', "[1]", "{broken",
     '{"text": "x", "tags": null}', '{"text": "x", "origin": {"a": 1}}', '{"text": "\\ud800"}'],
)  # fmt: skip
def test_a_bad_plain_line_changes_nothing(other: Commonplace, tmp_path: Path, line: str) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text('{"text": "good"}\n' + line + "\n")
    with pytest.raises(InvalidInput, match=r"notes.jsonl, line 2: "):
        bring(other, path)
    assert other.browse()[1] == 0


def test_an_export_with_a_byte_order_mark_is_imported(
    other: Commonplace, story: Path, tmp_path: Path
) -> None:
    marked = tmp_path / "marked.jsonl"
    marked.write_bytes(b"\xef\xbb\xbf" + story.read_bytes())
    report = bring(other, marked)
    assert report.complete and report.added and not report.problems


def test_a_line_whose_ref_is_taken_is_told_so(other: Commonplace, tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text('{"text": "one", "ref": "a"}\n{"text": "two", "ref": "a"}\n')
    (problem,) = bring(other, path).problems
    assert (problem.where, problem.what) == (
        "notes.jsonl, line 2", "Another memory with this ref exists here.",
    )  # fmt: skip


def test_a_directory_of_notes(other: Commonplace, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "a.md").write_text("# A heading\n\nText with ümlaut\n", encoding="utf-8")
    (folder / "deep" / "b.TXT").write_bytes(b"\xef\xbb\xbfplain\r\n")
    (folder / "c.jsonl").write_text('{"text": "from lines"}')
    (folder / "empty.md").write_text(" \n")
    (folder / ".git" / "x.md").write_text("hidden")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / "out.md").symlink_to("/etc/hostname")
    report = bring(other, folder)
    assert (report.added, report.skipped) == (3, 1)
    heading = other.find_text("ümlaut")[0][0]
    assert (heading.title, heading.text) == ("A heading", "# A heading\n\nText with ümlaut\n")
    assert heading.attrs == {"file": "a.md"}
    assert other.find_text("plain")[0][0].title == "b"
    assert bring(other, folder).added == 0


def test_a_note_that_is_not_text_is_left_out_of_a_directory_and_refused_alone(
    other: Commonplace, tmp_path: Path
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "bad.md").write_bytes("café".encode("cp1252"))
    (folder / "good.md").write_text("Tea is in the tin.")
    (folder / "wide.txt").write_bytes("Der Schlüssel hängt links.".encode("utf-16"))
    (folder / "torn.txt").write_bytes("abc".encode("utf-16")[:-1])
    report = bring(other, folder)
    assert (report.added, report.skipped, report.unreadable) == (2, 2, 2)
    assert [(each.where, each.what) for each in report.problems] == [
        ("bad.md", "The file is not UTF-8 at byte 3."),
        ("torn.txt", "The file is not UTF-16 at byte 6."),
    ]
    assert other.find_text("Schlüssel")[0][0].text == "Der Schlüssel hängt links."
    with pytest.raises(InvalidInput, match=r"^bad\.md: The file is not UTF-8 at byte 3\. Convert"):
        bring(other, folder / "bad.md")


def test_digest_sees_every_difference(fresh: Callable[[], Commonplace], story: Path) -> None:
    seen = set()
    for change in (
        lambda m: None,
        lambda m: m.remember("more"),
        lambda m: m.revise("plan", importance=0.51),
        lambda m: m.forget("plan"),
        lambda m: m.events.record("k"),
        lambda m: m.links.remove(m.links.of()[0].id),
        lambda m: m.artifacts.review("/plan.md", "commented"),
    ):
        store = fresh()
        bring(store, story)
        change(store)
        seen.add(digest(store))
    assert len(seen) == 7


def test_a_large_export_is_imported_in_batches_with_progress(
    memory: Commonplace, other: Commonplace, tmp_path: Path
) -> None:
    rng = random.Random(1)
    words = ["alpha", "beta", "gamma", "delta", "omega", "sigma"]
    for _ in range(2):
        memory.remember_many([Draft(text=" ".join(rng.choices(words, k=12))) for _ in range(500)])
    path = tmp_path / "many.jsonl"
    path.write_text(exported(memory), encoding="utf-8")
    steps: list[tuple[int, int]] = []
    report = bring(other, path, progress=lambda done, total: steps.append((done, total)))
    assert report.added == 1_000
    assert len(report.operations) == 2
    assert steps[-1][0] == steps[-1][1] == path.stat().st_size
    assert bring(other, path).added == 0


@pytest.mark.parametrize("content", [b"\x00", b"a\x00b", b"\xff\x00", "\ufeff\r\n".encode(), b""])
def test_every_content_of_an_artifact_travels(
    memory: Commonplace, other: Commonplace, tmp_path: Path, content: bytes
) -> None:
    made = memory.artifacts.create(content, path="/p")
    file = tmp_path / "export.jsonl"
    with lease(memory) as space, file.open("w", encoding="utf-8", newline="") as stream:
        exporting.export_space(space, stream.write)
    with lease(other) as space:
        assert not import_file(space, file, trust_file=True).problems
    assert other.artifacts.read(made.id)[1].content == content
