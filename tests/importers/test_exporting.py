"""What is exported for another program and imported again is the same."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from commonplace import Commonplace
from commonplace.cli.app import run as run_command
from commonplace.engine.binding import lease
from commonplace.engine.content.conversations import Line
from commonplace.engine.transfer import importing
from commonplace.importers import exporting, registry, storing
from commonplace.platform import lookup

TEXTS = [
    "Plain.",
    "Two\n\nparagraphs, with a \"quote\" and a [[link]] and #tag.",
    "## A heading\n<!-- commonplace {\"id\": \"x\"} -->\nin the text",
    "  leading space, trailing space  ",
    "\n\nempty lines around\n\n",
    "---\ntags: [not, mine]\n---\nlooks like frontmatter",
    "line\r\nends\r\n",
    "日本語 🙂 ‮ ﷽",
    "```\ncode # not a heading\n```",
    "-->",
    "Ends with a heading\n## last",
]  # fmt: skip
WHEN = datetime(2025, 12, 24, 18, 30, 5, 123456, UTC)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Commonplace]:
    with Commonplace(tmp_path / "data", embedding="none") as opened:
        for number, text in enumerate(TEXTS):
            opened.remember(
                text,
                title="" if number % 2 else "The same: title / of * many?",
                tags=["a b", 'quote"d', "ünï", f"n{number}"][: number % 5],
                occurred_at=WHEN if number % 3 else None,
                created_at=WHEN,
                kind="decision" if number % 4 == 1 else "note",
            )
        ids = [one.id for one in lookup.all_memories(opened, order="oldest")]
        opened.links.add(ids[0], ids[1], "supports")
        opened.links.add(ids[0], ids[2], "supports")
        opened.links.add(ids[2], ids[0], "part_of")
        opened.conversations.add("c", Line(speaker="user", text="said"))
        forgotten = opened.remember("forgotten")
        opened.forget(forgotten.id)
        yield opened


Content = tuple[set[tuple[str, ...]], set[tuple[str, str, str]]]


def contents(memory: Commonplace) -> Content:
    kept = [one for one in lookup.all_memories(memory) if one.kind != "message"]
    texts = {one.id: one.text for one in kept}
    notes = {
        (
            one.text,
            one.title,
            one.kind,
            str(one.occurred_at),
            str(one.created_at),
            *sorted(one.tags),
        )
        for one in kept
    }
    return notes, {
        (texts[link.source], texts[link.target], link.kind) for link in memory.links.of()
    }


@pytest.mark.parametrize("to", exporting.NAMES)
def test_an_export_comes_back_equal(tmp_path: Path, memory: Commonplace, to: str) -> None:
    target = tmp_path / ("vault" if to == "obsidian" else f"{to}.jsonl" if to == "jsonl" else
                         f"{to}.md" if to == "claude-md" else f"{to}.json")  # fmt: skip
    memory.close()
    assert run_command(["export", "--to", to, str(target), "--data", str(tmp_path / "data")]) == 0
    name = registry.detect_format(target)
    assert name == to
    with (
        Commonplace(tmp_path / "data", embedding="none") as before,
        Commonplace(tmp_path / "other", embedding="none") as after,
    ):
        registry.run_import(after, target, name, origin=storing.import_origin())
        assert contents(after) == contents(before)
        assert len(contents(after)[0]) == len(TEXTS) and len(contents(after)[1]) == 3
        again = registry.run_import(before, target, name, origin=storing.import_origin())
        assert (again.added, again.changed, again.links) == (0, 0, 0)


def test_a_directory_of_json_lines_with_links_comes_back(
    tmp_path: Path, memory: Commonplace
) -> None:
    memory.close()
    whole, folder, other = tmp_path / "whole.jsonl", tmp_path / "parts", tmp_path / "other"
    data = ["--data", str(tmp_path / "data")]
    assert run_command(["export", "--to", "jsonl", str(whole), *data]) == 0
    lines = whole.read_bytes().splitlines(keepends=True)
    folder.mkdir()
    for number, part in enumerate((lines[:1], lines[1:])):  # links lead from one file to another
        (folder / f"{number}.jsonl").write_bytes(b"".join(part))
    assert run_command(["import", str(folder), "--data", str(other), "--embedding", "none"]) == 0
    with (
        Commonplace(tmp_path / "data", embedding="none") as before,
        Commonplace(other, embedding="none") as after,
    ):
        assert contents(after) == contents(before)
    (folder / "note.md").write_text("Notes are not JSON lines.")
    assert registry.detect_format(folder) == registry.OWN_FORMAT


def test_json_lines_without_links_are_read_as_ever(tmp_path: Path) -> None:
    with Commonplace(tmp_path / "data", embedding="none") as memory:
        memory.remember("Alone.", tags=["x"], importance=0.9, pinned=True)
    file = tmp_path / "a.jsonl"
    assert (
        run_command(["export", "--to", "jsonl", str(file), "--data", str(tmp_path / "data")]) == 0
    )
    assert registry.detect_format(file) == registry.OWN_FORMAT
    with Commonplace(tmp_path / "other", embedding="none") as other, lease(other) as space:
        importing.import_file(space, file)
        (found,) = other.browse()[0]
        assert (found.text, found.tags, found.importance, found.pinned) == (
            "Alone.", ("x",), pytest.approx(0.9), True,
        )  # fmt: skip


def test_exports_go_to_standard_output_or_a_new_place(
    tmp_path: Path, memory: Commonplace, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data", str(tmp_path / "data")]
    assert run_command(["export", "--to", "mem0", *data]) == 0
    shown = capsys.readouterr()
    assert len(json.loads(shown.out)["results"]) == len(TEXTS)
    assert "1 lines of conversations are not exported" in shown.err
    assert run_command(["export", "--to", "obsidian", *data]) == 2
    assert run_command(["export", "--to", "word", *data]) == 2
    assert "Choose one of obsidian, jsonl" in capsys.readouterr().err
    (tmp_path / "vault").mkdir()
    (tmp_path / "vault" / "mine.md").write_text("mine")
    assert run_command(["export", "--to", "markdown", str(tmp_path / "vault"), *data]) == 4
    assert [file.name for file in (tmp_path / "vault").iterdir()] == ["mine.md"]


def test_a_vault_keeps_its_properties_and_folders(tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    for name, text in {
        "Home.md": "---\nstatus: active\nrating: 0\nkind: mine\naliases: [Start, Top]\n---\n"
                   "See [[Projects/Beta]].\n",
        "Projects/Beta.md": "---\ndone: false\n---\nBeta.\n",
        "Other/Beta.md": "Another Beta.\n",
    }.items():  # fmt: skip
        (vault / name).parent.mkdir(parents=True, exist_ok=True)
        (vault / name).write_text(text)
    (vault / ".obsidian").mkdir()
    data, out = tmp_path / "data", tmp_path / "out"
    assert run_command(["import", str(vault), "--data", str(data)]) == 0
    with Commonplace(data, embedding="none") as memory:
        home = next(one for one in lookup.all_memories(memory) if one.title == "Home")
        memory.revise(home.id, importance=0.9, pinned=True, source="https://example.org")
    assert run_command(["export", "--to", "obsidian", str(out), "--data", str(data)]) == 0
    written = (out / "Home.md").read_text()
    assert 'status: "active"\n' in written and 'rating: "0"\n' in written
    assert 'aliases: ["Start", "Top"]\n' in written and 'links: ["[[Projects/Beta]]"]' in written
    assert 'done: "false"\n' in (out / "Projects/Beta.md").read_text()
    assert (out / "Other/Beta.md").exists()
    with Commonplace(tmp_path / "other", embedding="none") as after:
        registry.run_import(after, out, "obsidian", origin=storing.import_origin())
        with Commonplace(data, embedding="none") as before:
            for one in lookup.all_memories(before):
                again = after.get(one.id)
                for name in ("attrs", "ref", "source", "importance", "pinned", "title", "text"):
                    assert getattr(again, name) == getattr(one, name), name


def test_a_path_that_leads_out_of_the_vault_is_not_written(tmp_path: Path) -> None:
    with Commonplace(tmp_path / "data", embedding="none") as memory:
        for file in ("../out.md", "/tmp/out.md", "a/../../out.md", ".hidden/out.md", "x:y/out.md"):
            memory.remember(f"from {file}", attrs={"file": file})
        names = [
            name for name, _ in exporting.export_files("obsidian", exporting.collect_export(memory))
        ]
    assert all("/" not in name for name in names if not name.startswith(".obsidian"))


def test_properties_that_cannot_be_read_are_told_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vault = tmp_path / "vault"
    (vault / ".obsidian").mkdir(parents=True)
    (vault / "Odd.md").write_text("---\ntags: [broken\ndate: 2026-02-31\n---\nText.\n")
    for odd in (["--dry-run"], ["--embedding", "none"]):
        assert run_command(["import", str(vault), "--data", str(tmp_path / "data"), *odd]) == 0
        told = capsys.readouterr().err
        assert "tags is not a list" in told and "date is not a date" in told
        assert "note: " in told and "skipped" not in told  # the note itself is imported
    with Commonplace(tmp_path / "data", embedding="none") as memory:
        (one,) = lookup.all_memories(memory)
        assert one.tags == () and one.text == "Text."
        assert one.attrs["properties"] == {"tags": "[broken", "date": "2026-02-31"}


@pytest.mark.parametrize("to", exporting.NAMES)
def test_odd_labels_and_titles_come_back_equal(tmp_path: Path, to: str) -> None:
    """Other programs write their tags with a #, and separators of lines into their texts."""
    target = tmp_path / ("vault" if to == "obsidian" else "a.md" if to == "claude-md" else
                         "a.jsonl" if to == "jsonl" else "a.json")  # fmt: skip
    with Commonplace(tmp_path / "data", embedding="none") as memory:
        for number, title in enumerate(("two  spaces", "a\u2028b", "a\x85b")):
            one = memory.remember(f"Text {number}", title=title, tags=["#1", "##x", "a\u2028b"])
        other = memory.remember("Plain", attrs={"said": "one\u2028two"})
        memory.links.add(one.id, other.id, "supports")
        for title in ("README", "README.md"):
            memory.links.add(other.id, memory.remember(f"Of {title}", title=title).id, "explains")
    assert run_command(["export", "--to", to, str(target), "--data", str(tmp_path / "data")]) == 0
    with (
        Commonplace(tmp_path / "data", embedding="none") as before,
        Commonplace(tmp_path / "other", embedding="none") as after,
    ):
        registry.run_import(
            after, target, registry.detect_format(target), origin=storing.import_origin()
        )
        assert contents(after) == contents(before)


def test_json_lines_with_links_keep_their_trust_and_come_from_standard_input(
    tmp_path: Path, memory: Commonplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.remember("From a page", trust="external")
    memory.close()
    file, data = tmp_path / "a.jsonl", str(tmp_path / "data")
    assert run_command(["export", "--to", "jsonl", str(file), "--data", data]) == 0
    with file.open("rb") as given:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(given))
        other = ["--data", str(tmp_path / "other"), "--embedding", "none"]
        assert run_command(["import", "-", "--trust-file", *other]) == 0
    with (
        Commonplace(tmp_path / "data", embedding="none") as before,
        Commonplace(tmp_path / "other", embedding="none") as after,
    ):
        assert contents(after) == contents(before)
        trust = {one.text: one.trust for one in lookup.all_memories(after)}
        assert trust["From a page"] == "external" and trust["Plain."] == "stated"


@pytest.mark.parametrize("to", ["obsidian", "jsonl"])
def test_an_importance_of_zero_comes_back(tmp_path: Path, to: str) -> None:
    target = tmp_path / ("vault" if to == "obsidian" else "a.jsonl")
    with Commonplace(tmp_path / "data", embedding="none") as memory:
        memory.remember("Of no importance", importance=0.0)
    assert run_command(["export", "--to", to, str(target), "--data", str(tmp_path / "data")]) == 0
    with Commonplace(tmp_path / "other", embedding="none") as after:
        name = registry.detect_format(target, to)
        registry.run_import(after, target, name, origin=storing.import_origin())
        (found,) = lookup.all_memories(after)
        assert found.importance == 0.0
