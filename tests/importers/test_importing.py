"""Every format is recognised, imported once, undone in one step and brought back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commonplace import Commonplace
from commonplace.cli.app import run as run_command
from commonplace.engine.model import Memory
from commonplace.errors import InvalidInput, NotFound, StorageUnavailable
from commonplace.importers import csv_table, registry, storing
from commonplace.importers.items import Item
from commonplace.platform import lookup
from commonplace.platform.capture import capture
from commonplace.text.prose import Item as Recalled
from commonplace.text.prose import envelope
from importers.samples import SAMPLES, csv, lines, note


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Commonplace]:
    with Commonplace(tmp_path / "data", embedding="none") as opened:
        yield opened


def imported(memory: Commonplace, path: Path, name: str | None = None) -> storing.Imported:
    name = registry.detect_format(path, name)
    return registry.run_import(memory, path, name, origin=storing.import_origin())


def contents(memory: Commonplace) -> list[tuple[str, ...]]:
    found = lookup.all_memories(memory, order="oldest")
    return sorted((one.text, one.title, *one.tags, str(one.occurred_at)) for one in found)


def by_text(memory: Commonplace, text: str) -> Memory:
    (found,) = [one for one in lookup.all_memories(memory) if one.text == text]
    return found


def test_every_format_has_a_sample() -> None:
    assert set(SAMPLES) == set(registry.FORMATS)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_format_is_recognised_by_its_content(tmp_path: Path, name: str) -> None:
    make, count, text = SAMPLES[name]
    path = make(tmp_path / "source")
    assert registry.detect_format(path) == name
    report = registry.dry_run(path, name)
    assert report.found == count and len(report.samples) == min(3, count)
    assert any(item.text == text for item in registry.FORMATS[name].items(path))


@pytest.mark.parametrize("name", SAMPLES)
def test_a_format_is_stored_once_undone_in_one_step_and_brought_back(
    tmp_path: Path, memory: Commonplace, name: str
) -> None:
    make, count, _ = SAMPLES[name]
    path = make(tmp_path / "source")
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    first = imported(memory, path)
    assert (first.found, first.added, first.skipped) == (count, count, 0)
    there, links = contents(memory), len(memory.links.of())
    again = imported(memory, path)
    assert (again.added, again.unchanged, again.links) == (0, count, 0)
    assert contents(memory) == there
    memory.undo()
    assert contents(memory) == [] and memory.links.of() == []
    with pytest.raises(NotFound):
        memory.undo()
    imported(memory, path)
    assert contents(memory) == there and len(memory.links.of()) == links
    assert before == {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_histories_become_conversations_of_their_project(
    tmp_path: Path, memory: Commonplace
) -> None:
    imported(memory, SAMPLES["claude-code"][0](tmp_path / "claude"))
    said = memory.conversations.history("claude-code:s1")
    assert [(line.speaker, line.memory.text) for line in said] == [
        ("user", "Use port 8080 for the gateway."), ("assistant", "The gateway uses port 8080."),
    ]  # fmt: skip
    first = said[0].memory
    assert first.trust == "inferred" and first.ref == "claude-code:u1"
    assert set(first.tags) == {"project:/nowhere/api", "branch:main"}
    assert first.occurred_at is not None and first.occurred_at.year == 2026


def test_a_session_that_went_on_is_imported_from_where_it_was(
    tmp_path: Path, memory: Commonplace
) -> None:
    path = SAMPLES["claude-code"][0](tmp_path / "claude")
    imported(memory, path)
    file = next(path.rglob("s1.jsonl"))
    more = json.loads(file.read_text().splitlines()[0]) | {"uuid": "u9"}
    more["message"]["content"] = "And the proxy 9090."
    file.write_text(file.read_text() + json.dumps(more) + "\n")
    report = imported(memory, path)
    assert (report.added, report.unchanged) == (1, 2)
    assert len(memory.conversations.history("claude-code:s1")) == 3


def test_a_captured_session_is_not_imported_a_second_time_nor_the_other_way_round(
    tmp_path: Path, memory: Commonplace
) -> None:
    path = SAMPLES["claude-code"][0](tmp_path / "claude")
    assert capture(memory, str(next(path.rglob("s1.jsonl")))) == 2
    report = imported(memory, path)
    assert (report.added, report.unchanged) == (0, 2)
    other = SAMPLES["codex"][0](tmp_path / "codex")
    imported(memory, other)
    assert capture(memory, str(next(other.rglob("*.jsonl")))) == 0


def test_sessions_in_an_ignored_directory_are_not_imported(
    tmp_path: Path, memory: Commonplace
) -> None:
    path = SAMPLES["claude-code"][0](tmp_path / "claude")
    here = note(tmp_path / "work" / ".commonplaceignore", "*\n").parent
    file = next(path.rglob("s1.jsonl"))
    file.write_text(file.read_text().replace("/nowhere/api", str(here)))
    assert imported(memory, path).found == 0 and contents(memory) == []


def test_a_line_that_is_too_long_comes_over_in_pieces(tmp_path: Path, memory: Commonplace) -> None:
    path = SAMPLES["claude-code"][0](tmp_path / "claude")
    file = next(path.rglob("s1.jsonl"))
    file.write_text(file.read_text().replace("Use port", "x" * 1_500_000))
    assert imported(memory, path).added == 3
    assert capture(memory, str(file)) == 0


def test_links_and_observations_of_a_graph_are_kept(tmp_path: Path, memory: Commonplace) -> None:
    report = imported(memory, SAMPLES["server-memory"][0](tmp_path))
    assert report.links == 1
    ana = by_text(memory, "Runs\nCooks")
    (link,) = memory.links.of(ana.id)
    assert memory.get(link.target).title == "Acme"
    assert (link.kind, link.reason, ana.tags) == ("works_at", "works at", ("person",))


def test_a_vault_gives_tags_dates_and_links(tmp_path: Path, memory: Commonplace) -> None:
    imported(memory, SAMPLES["obsidian"][0](tmp_path / "vault"))
    (garden,) = [one for one in lookup.all_memories(memory) if one.title == "Garden"]
    assert set(garden.tags) == {"plants", "green", "summer"}
    assert str(garden.created_at.date()) == "2026-03-01"
    (link,) = memory.links.of(garden.id)
    assert memory.get(link.target).title == "Tomato"


def test_basic_memorys_observations_and_relations_are_kept(
    tmp_path: Path, memory: Commonplace
) -> None:
    imported(memory, SAMPLES["basic-memory"][0](tmp_path / "notes"))
    (coffee,) = [one for one in lookup.all_memories(memory) if one.title == "Coffee"]
    observed = coffee.attrs["observations"]
    assert observed == [{"category": "method", "text": "Pour over is best #brew"}]
    assert set(coffee.tags) == {"drinks", "brew", "method"}
    assert [link.kind for link in memory.links.of(coffee.id)] == ["pairs_with"]


def test_instructions_are_split_by_heading(tmp_path: Path, memory: Commonplace) -> None:
    path = SAMPLES["claude-md"][0](tmp_path)
    imported(memory, path)
    titles = {one.title: one.text for one in lookup.all_memories(memory)}
    assert titles["Build > Tests"] == "```\n# not a heading\npytest\n```"
    assert set(titles) == {"CLAUDE.md", "Build", "Build > Tests", "Style"}
    path.write_text(path.read_text().replace("Tabs.", "Spaces."))
    assert imported(memory, path).changed == 1
    changed = by_text(memory, "Spaces.")
    assert len(memory.history.versions(changed.id)) == 2
    memory.undo()
    assert by_text(memory, "Tabs.").id == changed.id


def test_a_private_block_of_instructions_may_span_headings(
    memory: Commonplace, tmp_path: Path
) -> None:
    text = "# A\n<private>\none\n\n## B\ntwo\n</private>\n\n# C\nthree\n"
    imported(memory, note(tmp_path / "CLAUDE.md", text))
    assert [one.text for one in lookup.all_memories(memory)] == ["three"]


def test_a_memory_that_was_changed_here_is_not_overwritten(
    tmp_path: Path, memory: Commonplace
) -> None:
    path = SAMPLES["claude-md"][0](tmp_path)
    imported(memory, path)
    memory.revise(by_text(memory, "Tabs.").id, text="Tabs, four wide.")
    path.write_text(path.read_text().replace("Tabs.", "Spaces."))
    assert imported(memory, path).changed == 0
    assert by_text(memory, "Tabs, four wide.")


def test_a_forgotten_memory_stays_forgotten(tmp_path: Path, memory: Commonplace) -> None:
    path = SAMPLES["mem0"][0](tmp_path)
    imported(memory, path)
    memory.forget(by_text(memory, "Likes oat milk").id)
    assert imported(memory, path).added == 0
    assert contents(memory) == []


@pytest.mark.parametrize(
    "odd", ["a" * 1_000_001, "half \ud800 a character", "nul \0", "x" * 1_000_000, " ", "🙂"]
)
def test_an_odd_text_keeps_no_other_from_being_imported(memory: Commonplace, odd: str) -> None:
    items = [Item(key="1", text="before"), Item(key="2", text=odd, tags=["t"]),
             Item(key="3", text=odd, speaker="user", conversation="c"),
             Item(key="4", text="after", kind="Ünusual kind!", links=[("", "1")])]  # fmt: skip
    run = storing.Import(memory, "mem0", origin=storing.import_origin())
    report = run.run(iter(items))
    assert report.found == 4 and report.added + report.skipped == 4
    texts = {one.text for one in lookup.all_memories(memory)}
    assert {"before", "after"} <= texts
    assert report.skipped == (2 if len(odd) > 1_000_000 or not odd.strip() else 0)
    assert len(memory.links.of()) == 1


def test_an_import_that_was_interrupted_goes_on(
    memory: Commonplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def items(until: int) -> Iterator[Item]:
        for number in range(1_000):
            if number == until:
                raise KeyboardInterrupt
            yield Item(key=str(number), text=f"line {number}", speaker="user", conversation="c")

    with pytest.raises(KeyboardInterrupt):
        storing.Import(memory, "codex", origin=storing.import_origin()).run(items(600))
    stored = len(contents(memory))
    assert 0 < stored < 600
    report = storing.Import(memory, "codex", origin=storing.import_origin()).run(items(2_000))
    assert report.added == 1_000 - stored and report.unchanged == stored
    said = memory.conversations.history("c", limit=1_000)
    assert [line.memory.text for line in said] == [f"line {number}" for number in range(1_000)]


@pytest.mark.parametrize("content", [b"\x00\x01\x02", b"%PDF-1.7", b"", b'{"a": 1}', b"PK\x03\x04"])
def test_an_unknown_file_is_refused_with_the_formats_that_are_known(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "thing.bin"
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"Not a format I know\. Known: claude-code, codex"):
        registry.detect_format(file)
    assert run_command(["import", str(file), "--data", str(tmp_path / "data")]) == 2
    assert "Not a format I know. Known: " in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "name", sorted(set(SAMPLES) - {"csv", "claude-md", "obsidian", "basic-memory"})
)
def test_a_file_that_is_not_of_the_named_format_is_refused(
    tmp_path: Path, memory: Commonplace, name: str
) -> None:
    file = csv(tmp_path)
    with pytest.raises((InvalidInput, NotFound, StorageUnavailable)):
        imported(memory, file, name)
    with pytest.raises(InvalidInput, match="Not a format I know"):
        imported(memory, file, "word")
    assert contents(memory) == []


def test_a_csv_file_without_a_text_column_is_refused(tmp_path: Path) -> None:
    file = note(tmp_path / "a.csv", "name,age\nAna,3\n")
    with pytest.raises(InvalidInput, match="no column for the text"):
        registry.dry_run(file, registry.detect_format(file))


def test_csv_columns_become_fields(tmp_path: Path, memory: Commonplace) -> None:
    imported(memory, csv(tmp_path))
    tea = by_text(memory, "Green, hot")
    assert (tea.title, set(tea.tags)) == ("Tea", {"drinks", "hot"})
    assert tea.attrs["columns"] == {"mood": "calm"}
    assert str(tea.occurred_at).startswith("2026-03-01")


def test_mem0s_history_gives_what_it_holds_now(tmp_path: Path, memory: Commonplace) -> None:
    from importers.samples import database

    insert = ("INSERT INTO history (id, memory_id, old_memory, new_memory, event, created_at,"
              " updated_at, is_deleted) VALUES (?, ?, ?, ?, ?, ?, ?, ?)")  # fmt: skip
    path = database(
        tmp_path / "history.db",
        "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT,"
        " new_memory TEXT, event TEXT, created_at DATETIME, updated_at DATETIME,"
        " is_deleted INTEGER, actor_id TEXT, role TEXT);",
        (insert, ("1", "m1", None, "Likes tea", "ADD", "2026-01-01T00:00:00Z", None, 0)),
        (insert, ("2", "m2", None, "Has a dog", "ADD", "2026-01-01T00:00:00Z", None, 0)),
        (insert, ("3", "m1", "Likes tea", "Likes coffee", "UPDATE", None,
                  "2026-02-01T00:00:00Z", 0)),
        (insert, ("4", "m2", "Has a dog", None, "DELETE", None, None, 1)),
    )  # fmt: skip
    assert registry.detect_format(path) == "mem0"
    imported(memory, path)
    assert [one[0] for one in contents(memory)] == ["Likes coffee"]
    assert str(by_text(memory, "Likes coffee").created_at.date()) == "2026-01-01"


def test_the_command_imports_shows_and_undoes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*args: str) -> dict[str, Any]:
        assert run_command([*args, "--data", str(tmp_path / "data"), "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    SAMPLES["claude-code"][0](tmp_path / "claude")
    counted = run("import", "claude-code", "--dry-run")
    assert counted["found"] == 2 and len(counted["samples"]) == 2
    assert not (tmp_path / "data").exists()
    report = run("import", "claude-code", "--embedding", "none")
    assert (report["format"], report["added"]) == ("claude-code", 2)
    assert run("import", "claude-code", "--embedding", "none")["unchanged"] == 2
    run("undo")
    with Commonplace(tmp_path / "data", embedding="none") as memory:
        assert contents(memory) == []


def test_a_dry_run_of_our_own_formats_stores_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = lines(tmp_path / "a.jsonl", *({"text": f"note {number}"} for number in range(5)))
    data = tmp_path / "data"
    assert run_command(["import", str(file), "--dry-run", "--data", str(data), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["found"] == 5 and len(found["samples"]) == 3
    assert not data.exists()


# Files of a directory that cannot be read


def broken_vault(folder: Path) -> Path:
    make, *_ = SAMPLES["obsidian"]
    vault = make(folder)
    (vault / "Café.md").write_bytes("Caf\u00e9 [[Garden]]".encode("cp1252"))
    (vault / "Wide.md").write_bytes("---\ntags: [x]\n---\nWide [[Garden]]".encode("utf-16"))
    note(vault / "Links.md", "see [[Café]] and [[Garden]]")
    return vault


def test_a_note_that_is_not_text_keeps_no_other_note_from_being_imported(
    tmp_path: Path, memory: Commonplace
) -> None:
    vault = broken_vault(tmp_path / "vault")
    _, count, _ = SAMPLES["obsidian"]
    counted = registry.dry_run(vault, "obsidian")
    report = imported(memory, vault)
    assert (report.found, report.added, report.skipped) == (count + 2, count + 2, 1)
    assert counted.problems == report.problems == [
        f"{vault / 'Café.md'}: The file is not UTF-8 at byte 3."
    ]  # fmt: skip
    wide = by_text(memory, "Wide [[Garden]]")
    assert wide.tags == ("x",) and len(memory.links.of(wide.id)) == 1
    (vault / "Café.md").write_text("Caf\u00e9 [[Garden]]")
    again = imported(memory, vault)
    assert (again.added, again.skipped) == (1, 0)
    with pytest.raises(InvalidInput, match="not UTF-8"):
        (vault / "Café.md").write_bytes(b"\xe9")
        imported(memory, vault / "Café.md", "obsidian")


def test_the_command_names_what_it_left_out_and_says_so_by_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vault, data = broken_vault(tmp_path / "vault"), ["--data", str(tmp_path / "data")]
    plain = note(tmp_path / "plain" / "a.md", "A note.").parent
    (plain / "b.md").write_bytes(b"\xff")
    for folder, name in ((vault, "Café.md"), (plain, "b.md")):
        assert run_command(["import", str(folder), "--dry-run", *data]) == 4
        assert f"{name}: The file is not UTF-8 at byte" in capsys.readouterr().err
        assert run_command(["import", str(folder), "--dry-run", "--json", *data]) == 4
        found = json.loads(capsys.readouterr().out)
        assert found["skipped"] == 1 and name in found["problems"][0]
    assert not (tmp_path / "data").exists()
    for folder, name in ((vault, "Café.md"), (plain, "b.md")):
        assert run_command(["import", str(folder), "--embedding", "none", *data]) == 4
        told = capsys.readouterr().err
        assert f"{name}: The file is not UTF-8 at byte" in told
        assert "correct or convert it, and run the import again" in told
    assert run_command(["import", str(plain / "a.md"), "--embedding", "none", *data]) == 0


def test_samples_of_a_dry_run_fit_on_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, *_ = SAMPLES["claude-code"]
    vault = broken_vault(tmp_path / "vault")
    note(vault / "A.md", f"---\ntitle: {'Title ' * 20}\n---\n{'many words ' * 30}")
    plain = note(tmp_path / "plain" / "a.md", "many words " * 30).parent
    for path in (vault, plain, make(tmp_path / "history")):
        run_command(["import", str(path), "--dry-run", "--data", str(tmp_path / "data")])
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) > 1 and all(len(line) <= 80 for line in lines)
    assert re.match(r"  2026-\d\d-\d\d \d\d:\d\d user: Use port 8080", lines[1])


@pytest.mark.parametrize("name", ["claude-code", "codex", "gemini"])
@pytest.mark.parametrize("content", [b"\xff\xfe\x00\x01\n" * 9, b"no JSON\n", b"[1]\n"])
def test_a_broken_session_keeps_no_other_session_from_being_imported(
    tmp_path: Path, memory: Commonplace, name: str, content: bytes
) -> None:
    make, count, _ = SAMPLES[name]
    path = make(tmp_path / "history")
    session = next(file for file in path.rglob("*.jsonl") if "subagents" not in file.parts)
    broken = session.with_name(session.name.replace("1.jsonl", "2.jsonl"))
    broken.write_bytes(content)
    session.with_name(session.name.replace("1.jsonl", "3.jsonl")).touch()
    report = imported(memory, path)
    assert (report.added, report.skipped) == (count, 1)
    assert report.problems == [f"{broken}: The file contains no JSON."]


@pytest.mark.parametrize(
    "document",
    [
        '[{"mapping": {"a": ',
        '[{"uuid": "c", "chat_messages": [{"text": "cu',
        '{"results": [{"id": "a", "memory": "I live", "user_id": "b", "created_at": "2026',
    ],
)
def test_a_json_document_that_is_cut_off_is_named(
    tmp_path: Path, memory: Commonplace, document: str
) -> None:
    file = note(tmp_path / "conversations.json", document)
    report = imported(memory, file)
    assert (report.added, report.skipped) == (0, 1)
    assert "conversations.json: it is not valid JSON" in report.problems[0]


def test_csv_may_be_utf_16(tmp_path: Path, memory: Commonplace) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('text\ttitle\r\n"zwei\r\nZeilen"\tÜber\r\n'.encode("utf-16"))
    imported(memory, path)
    assert by_text(memory, "zwei\nZeilen").title == "Über"
    path.write_bytes("text\ncaf\u00e9\n".encode("cp1252"))
    with pytest.raises(InvalidInput, match=r"a\.csv: The file is not UTF-8 at byte 8\."):
        imported(memory, path)


def test_what_was_purged_is_not_imported_again(tmp_path: Path, memory: Commonplace) -> None:
    path = SAMPLES["mem0"][0](tmp_path)
    found = imported(memory, path).added
    proof = memory.purge(by_text(memory, "Likes oat milk").id)
    assert proof.sources == ("mem0",)
    again = imported(memory, path)
    assert (again.added, again.unchanged, again.purged) == (0, found - 1, 1)
    assert again.as_dict()["purged"] == 1 and again.skipped == 0
    memory.remember("Likes oat milk", ref=None)  # by hand it can be stored
    for event in memory.events.all(kind="purged"):
        assert "mem0" not in str(event.payload) and "oat" not in str(event.payload)


@pytest.mark.parametrize("room", [0, 10_000_000])
def test_an_import_reads_its_source_once_unless_it_is_large(
    memory: Commonplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    source = tmp_path / "notes.csv"
    source.write_text("text\n" + "".join(f"Note {number}\n" for number in range(9)))
    monkeypatch.setattr(registry, "KEPT_CHARS", room)
    read = csv_table.items
    times: list[Path] = []

    def items(path: Path) -> Iterator[Item]:
        times.append(path)
        return read(path)

    monkeypatch.setattr(csv_table, "items", items)
    done = registry.run_import(memory, source, "csv", origin=storing.import_origin())
    assert done.added == 9 and len(times) == (1 if room else 2)


@pytest.mark.parametrize(("name", "values"), [
    ("jsonl", [{"id": "1", "memory": "Likes tea"}, {"id": "2", "memory": "Likes milk"}]),
    ("commonplace", [{"id": "0197a2c4-7f6e-4b1c-9d53-2f8a6e4c1b77", "text": "Likes tea",
                      "tags": ["memory"]}]),
    ("commonplace", [{"text": "Likes tea", "attrs": {"id": 1, "memory": 2}}]),
])  # fmt: skip
def test_json_lines_are_not_taken_for_an_export_of_mem0(
    tmp_path: Path, name: str, values: list[Any]
) -> None:
    assert registry.detect_format(lines(tmp_path / "a.jsonl", *values)) == name


def test_an_export_of_mem0_is_recognised_in_every_layout(tmp_path: Path) -> None:
    one = {"id": "1", "memory": "Likes tea"}
    for whole in ([one], {"results": [one]}, {"memories": [one]}, {"count": 1, "results": [one]}):
        for indent in (None, 2):
            file = note(tmp_path / "a.json", json.dumps(whole, indent=indent))
            assert registry.detect_format(file) == "mem0"


def chat(folder: Path, *parts: Any) -> Path:
    message = {"id": "m", "author": {"role": "user"},
               "content": {"content_type": "multimodal_text", "parts": list(parts)}}  # fmt: skip
    node = {"id": "m", "parent": None, "children": [], "message": message}
    whole = [{"conversation_id": "c", "mapping": {"m": node}, "current_node": "m"}]
    return note(folder / "conversations.json", json.dumps(whole))


def test_what_is_private_or_recalled_is_not_imported_from_chatgpt(
    tmp_path: Path, memory: Commonplace
) -> None:
    block = envelope([Recalled("id", "note", "a former memory")])
    imported(memory, chat(tmp_path, f"Before <private>my diary</private> after\n{block}"))
    assert [one[0] for one in contents(memory)] == ["Before  after"]


def test_what_was_spoken_to_chatgpt_is_imported(tmp_path: Path, memory: Commonplace) -> None:
    spoken = {"content_type": "audio_transcription", "text": "Plan a trip.", "direction": "in"}
    recording = {"content_type": "real_time_user_audio_video_asset_pointer", "text": None}
    imported(memory, chat(tmp_path, spoken, recording))
    assert [one[0] for one in contents(memory)] == ["Plan a trip."]


def test_every_column_of_a_csv_file_is_kept(tmp_path: Path, memory: Commonplace) -> None:
    file = note(tmp_path / "a.csv", "id,text,note,date,created,title,name\n"
                "1,Tea,hot,1/2/2026,2026-03-01,Drink,Cup\n2,Milk,,,2026-03-02,,\n")  # fmt: skip
    report = imported(memory, file)
    tea, milk = by_text(memory, "Tea"), by_text(memory, "Milk")
    assert (tea.title, tea.occurred_at) == ("Drink", None)
    assert tea.attrs["columns"] == {
        "note": "hot", "date": "1/2/2026", "created": "2026-03-01", "name": "Cup",
    }  # fmt: skip
    assert str(milk.occurred_at).startswith("2026-03-02") and "columns" not in milk.attrs
    assert report.remarks == [
        "a.csv, line 2: its column date is not a date and is kept as text: 1/2/2026"
    ]


def test_a_csv_file_may_have_long_texts(tmp_path: Path, memory: Commonplace) -> None:
    long = "long words " * 20_000
    report = imported(memory, note(tmp_path / "a.csv", f'id,text\n1,"{long}"\n2,short\n'))
    assert (report.added, report.skipped) == (2, 0)


def test_every_field_of_a_json_line_is_kept(tmp_path: Path, memory: Commonplace) -> None:
    file = lines(tmp_path / "a.jsonl", {
        "content": "Tea", "note": "hot", "importance": 1, "tags": "drinks, hot",
        "created_at": "last week", "occurred_at": "2026-03-01", "title": 5, "pinned": "no",
    })  # fmt: skip
    with file.open("a") as stream:
        stream.write('{"content": "cut o\n[]\n')
    report = imported(memory, file)
    tea = by_text(memory, "Tea")
    assert (tea.importance, tea.tags, tea.pinned) == (1.0, ("drinks", "hot"), False)
    assert tea.attrs["fields"] == {"note": "hot", "created_at": "last week", "title": 5,
                                   "pinned": "no"}  # fmt: skip
    assert report.problems == [
        f"a.jsonl, line {number}: the line is not a JSON object." for number in (2, 3)
    ]


def two_sources(folder: Path, name: str) -> tuple[Path, Path, str]:
    """Make two sources whose items have the same key; return them and how to change the second."""
    first, second = folder / "one", folder / "two"
    if name == "obsidian":
        for each, text in ((first, "Buy tea"), (second, "Ship it")):
            note(each / "Inbox.md", text)
            (each / ".obsidian").mkdir()
        return first, second, "Inbox.md"
    files = {"csv": "a.csv", "jsonl": "a.jsonl", "server-memory": "memory.json"}
    for each, text in ((first, "Buy tea"), (second, "Ship it")):
        file = each / files[name]
        if name == "csv":
            note(file, f"id,text\n1,{text}\n")
        elif name == "jsonl":
            lines(file, {"id": 1, "content": text})
        else:
            lines(file, {"type": "entity", "name": "default_user", "entityType": "person",
                         "observations": [text]})  # fmt: skip
    return first / files[name], second / files[name], ""


@pytest.mark.parametrize("name", ["csv", "jsonl", "server-memory", "obsidian"])
def test_two_sources_with_the_same_keys_do_not_overwrite_each_other(
    tmp_path: Path, memory: Commonplace, name: str
) -> None:
    first, second, inner = two_sources(tmp_path, name)
    imported(memory, first)
    report = imported(memory, second)
    assert (report.added, report.changed) == (1, 0)
    assert [one[0] for one in contents(memory)] == ["Buy tea", "Ship it"]
    for path in (first, second):
        again = imported(memory, path)
        assert (again.added, again.changed, again.unchanged) == (0, 0, 1)
    changed = second / inner if inner else second
    changed.write_text(changed.read_text().replace("Ship it", "Ship it today"))
    assert imported(memory, second).changed == 1
    assert [one[0] for one in contents(memory)] == ["Buy tea", "Ship it today"]


def test_a_source_that_was_moved_is_known_again(tmp_path: Path, memory: Commonplace) -> None:
    for path in two_sources(tmp_path, "csv")[:1] + two_sources(tmp_path / "v", "obsidian")[:1]:
        imported(memory, path)
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        moved = path.rename(tmp_path / "elsewhere" / path.name)
        assert imported(memory, moved).unchanged == 1
    (moved / "Inbox.md").write_text("Buy green tea")
    assert imported(memory, moved).changed == 1
    long = "0197a2c4-7f6e-4b1c-9d53-2f8a6e4c1b77"
    imported(memory, note(tmp_path / "b.csv", f"id,text\n{long},Old\n"))
    assert imported(memory, note(tmp_path / "b (1).csv", f"id,text\n{long},New\n")).changed == 1


def test_a_changed_text_with_a_masked_secret_is_revised(
    tmp_path: Path, memory: Commonplace
) -> None:
    file = note(tmp_path / "a.csv", "id,text\n1,The password is hunter2pass.\n")
    imported(memory, file)
    assert [one[0] for one in contents(memory)] == ["The password is [masked: password]."]
    assert imported(memory, file).unchanged == 1
    note(file, "id,text\n1,The password is hunter2pass and the port 8080.\n")
    assert imported(memory, file).changed == 1
    assert imported(memory, file).changed == 0
    assert "the port 8080" in contents(memory)[0][0]


def test_links_of_notes_are_found_however_they_are_written(
    memory: Commonplace, tmp_path: Path
) -> None:
    vault = tmp_path / "vault"
    note(vault / "Table.md", "| [[Garden\\|the garden]] |")
    note(vault / "Menu.md", "[[Cafe\u0301]] and [Beds](#beds) and [[#Roses]] #real")
    note(vault / "Garden.md", "Roses")
    note(vault / "Caf\u00e9.md", "Espresso")
    imported(memory, vault, "obsidian")
    titles = {one.id: one.title for one in lookup.all_memories(memory)}
    assert {(titles[link.source], titles[link.target]) for link in memory.links.of()} == {
        ("Table", "Garden"),
        ("Menu", "Caf\u00e9"),
    }
    assert by_text(memory, "[[Cafe\u0301]] and [Beds](#beds) and [[#Roses]] #real").tags == (
        "real",
    )


def test_notes_that_differ_by_their_suffix_are_both_stored(
    memory: Commonplace, tmp_path: Path
) -> None:
    note(tmp_path / "vault" / "a.markdown", "one")
    note(tmp_path / "vault" / "a.md", "two")
    assert imported(memory, tmp_path / "vault", "obsidian").added == 2
    assert by_text(memory, "one").attrs["file"] == "a.markdown"
    assert by_text(memory, "two").attrs["file"] == "a.md"
    assert by_text(memory, "two").ref == "obsidian:a"
    assert imported(memory, tmp_path / "vault", "obsidian").unchanged == 2


DEEP = "[" * 50_000 + "]" * 50_000
HALF = "half \ud800"


@pytest.mark.parametrize(
    ("name", "format", "text"),
    [
        ("a.md", "obsidian", f"---\ntags: {DEEP}\n---\nkept"),
        ("a.md", "obsidian", "---\ncommonplace: 0190a0a0-0000-7000-8000-000000000000\n"
                             "tags: [1]\n---\nkept\n"),
        ("a.md", "obsidian", "---\ncommonplace: 0190a0a0-0000-7000-8000-000000000000\n"
                             f"commonplace_attrs: {DEEP}\n---\nkept\n"),
        ("CLAUDE.md", None, f'## x\n<!-- commonplace {{"a": {DEEP}}} -->\nkept\n\n'),
        ("CLAUDE.md", None, "## x\n<!-- commonplace {edited} -->\nkept\n\n"),
        ("a.jsonl", "jsonl", json.dumps({"text": "kept", "id": HALF})),
        ("memory.json", "server-memory", json.dumps(
            {"type": "entity", "name": HALF, "observations": ["kept"], "commonplace": {"id": 5}})),
        ("conversations.json", "claude", json.dumps([{"uuid": "c", "chat_messages": [
            {"sender": ["human"], "text": "x"}, {"sender": "human", "text": "kept"}]}])),
        ("conversations.json", "chatgpt", json.dumps([{
            "id": "c", "current_node": ["a"], "mapping": {"a": {"message": {
                "id": HALF, "author": {"role": "user"},
                "content": {"content_type": "text", "parts": ["kept"]}}}}}])),
    ],
)  # fmt: skip
def test_an_odd_value_beside_a_text_does_not_stop_the_import(
    memory: Commonplace, tmp_path: Path, name: str, format: str | None, text: str
) -> None:
    report = imported(memory, note(tmp_path / name, text), format)
    assert (report.added, report.problems) == (1, [])
    assert imported(memory, tmp_path / name, format).unchanged == 1
    assert by_text(memory, "kept")


def test_no_cell_of_a_csv_file_is_lost(memory: Commonplace, tmp_path: Path) -> None:
    imported(memory, note(tmp_path / "one.csv", "text\none\ttab, and a comma\n"))
    imported(memory, note(tmp_path / "two.csv", "text,tags\nwide,a,,more\n"))
    assert by_text(memory, "one\ttab, and a comma")
    assert by_text(memory, "wide").attrs["columns"] == {"4": "more"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "key,note\nshop,one\nshop,two\nshop,one\n"),
        ("a.ndjson", "".join(json.dumps({"id": "shop", "text": text}) + "\n"
                             for text in ("one", "two", "one"))),
    ],
)  # fmt: skip
def test_rows_with_the_same_id_are_all_stored(
    memory: Commonplace, tmp_path: Path, name: str, text: str
) -> None:
    file = note(tmp_path / name, text)
    assert imported(memory, file).added == 2
    again = imported(memory, file)
    assert (again.added, again.changed, again.unchanged) == (0, 0, 3)
    assert by_text(memory, "one") and by_text(memory, "two")


@pytest.mark.parametrize("name", SAMPLES)
def test_a_directory_of_something_else_is_told(
    memory: Commonplace, tmp_path: Path, name: str
) -> None:
    folder = note(tmp_path / "notes" / "a.xyz", "x").parent
    for read in (lambda: registry.dry_run(folder, name), lambda: imported(memory, folder, name)):
        with pytest.raises(InvalidInput):
            read()


def test_a_missing_tag_is_no_tag(memory: Commonplace, tmp_path: Path) -> None:
    imported(memory, lines(tmp_path / "a.ndjson", {"text": "one", "tags": [None, "x", 1]}))
    assert set(by_text(memory, "one").tags) == {"x", "1"}
