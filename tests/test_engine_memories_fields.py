"""The fields of a memory: declared once, and the same everywhere; `source` goes all the way."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any

import apsw
import pytest
from typer.testing import CliRunner

from commonplace import Commonplace
from commonplace.access.caller import Caller
from commonplace.cli.app import app
from commonplace.dialects import registry
from commonplace.dialects.contract import RequestInfo
from commonplace.engine.binding import lease
from commonplace.engine.content.memories import CHANGEABLE, DRAFT_FIELDS, Draft
from commonplace.engine.finding.filters import Filters
from commonplace.engine.model import Memory
from commonplace.engine.transfer import rows
from commonplace.engine.transfer.exporting import digest, export_space
from commonplace.engine.transfer.importing import import_file
from commonplace.errors import InvalidInput
from commonplace.server.gate import Gate
from commonplace.storage import database, schema
from commonplace.storage.fields import FIELDS
from commonplace.storage.system import SYSTEM_MIGRATIONS, open_system
from commonplace.storage.tables import AUDIT, HASHED, MEMORIES
from postgres_engine import NO_TRACES

PAGE = "https://example.org/design#retries"


def test_every_use_of_the_fields_has_the_same_ones(memory: Commonplace) -> None:
    names = set(FIELDS)
    assert set(MEMORIES.columns) == names
    assert {each.name for each in dataclasses.fields(Memory)} == names | {"version", "num"}
    assert set(DRAFT_FIELDS) == (names | {"vectors"}) - {"updated_at"}
    assert set(rows.COLUMNS[MEMORIES]) == names
    assert memory.remember("One.").as_dict().keys() == names | {"version"}
    assert names - {"id", "origin", "created_at", "updated_at"} == CHANGEABLE
    with pytest.raises(TypeError):
        Draft(text="x", updated_at="2026-01-01")  # type: ignore[call-arg]


@pytest.mark.parametrize("steps", [schema.MIGRATIONS, SYSTEM_MIGRATIONS], ids=["space", "system"])
def test_the_schema_has_the_columns_that_are_declared(steps: Any) -> None:
    """Where a column was added, the schema's default is the declared one."""
    connection = apsw.Connection(":memory:")
    database.migrate(connection, steps)
    for table in HASHED if steps is schema.MIGRATIONS else (AUDIT,):
        made = {row[1]: row for row in connection.execute(f"PRAGMA table_info({table.name})")}
        assert made.keys() == set(table.stored), table.name
        for name, default in {"format": 1, **table.added}.items():
            _, _, _, needed, written, _ = made[name]
            assert needed and connection.execute(f"SELECT {written}").fetchall() == [(default,)]


def test_a_source_is_stored_revised_and_shown(memory: Commonplace) -> None:
    kept = memory.remember("Retries are capped at 5.", source=PAGE)
    plain = memory.remember("Nobody knows whence.")
    assert (kept.source, plain.source) == (PAGE, "")
    then = memory.history.operations(limit=1)[0].at
    memory.revise(kept.id, source="src/retry.py")
    assert memory.get(kept.id).source == "src/retry.py"
    assert memory.get(kept.id, as_of=then).source == PAGE
    assert [each.memory.source for each in memory.history.versions(kept.id)] == [
        "src/retry.py", PAGE,
    ]  # fmt: skip
    memory.undo()
    assert memory.get(kept.id).source == PAGE
    newer = memory.supersede(kept.id, "Retries are capped at 7.", source="commit 3f2a")
    assert newer.source == "commit 3f2a"
    assert memory.revise(newer.id, source="").source == ""


@pytest.mark.parametrize("source", ["x" * 2_000, "x", "/tmp/with space.md", "東京/地図"])
def test_a_source_may_be_any_address(memory: Commonplace, source: str) -> None:
    kept = memory.remember("It has one.", source=source)
    assert memory.get(kept.id).source == source
    assert memory.recall("has one", source=source)


@pytest.mark.parametrize(
    "source", ["x" * 2_001, "two\nlines", " before", "after ", "\x00", "a\u2028b", 7, None, ["x"]]
)
def test_what_is_no_address_is_refused_and_changes_nothing(
    memory: Commonplace, source: Any
) -> None:
    kept = memory.remember("It has one.", source="x")
    for call in (
        lambda: memory.remember("Another.", source=source),
        lambda: memory.revise(kept.id, source=source),
    ):
        with pytest.raises(InvalidInput) as refused:
            call()
        assert refused.value.field == "source"
    assert memory.browse()[1] == 1 and memory.get(kept.id) == kept


def test_memories_are_found_by_their_source(memory: Commonplace) -> None:
    memory.remember("The design of retries.", source=PAGE, ref="one")
    memory.remember("The design of queues.", source="other", ref="two")
    memory.remember("The design of nothing.", ref="three")
    then = memory.history.operations(limit=1)[0].at
    memory.revise("two", source=PAGE)
    memory.revise("one", source="moved")

    def found(**more: Any) -> list[set[str | None]]:
        return [
            {hit.memory.ref for hit in memory.recall("design", source=PAGE, **more)},
            {each.ref for each in memory.browse(source=PAGE, **more)[0]},
            {each.ref for each in memory.find_text("design", source=PAGE, **more)[0]},
        ]

    assert found() == [{"two"}] * 3
    assert found(as_of=then) == [{"one"}] * 3
    assert memory.browse(filters=Filters(fields={"source": "moved"}))[1] == 1
    assert memory.browse(source=None)[1] == 3
    for wrong in ({"source": ""}, {"text": "x"}, {"source": 3}, ["source"]):
        with pytest.raises(InvalidInput):
            Filters(fields=wrong)  # type: ignore[arg-type]
    assert memory.library.maintenance.check("default").findings == []


def test_a_source_travels_and_is_purged(memory: Commonplace, tmp_path: Path) -> None:
    memory.remember("Retries are capped at 5.", source=PAGE, ref="one")
    memory.revise("one", source="src/retry-of-payments-and-queues.py")
    file = tmp_path / "out.jsonl"
    with lease(memory) as space, file.open("w") as out:
        export_space(space, out.write)
        whole = digest(space)
    with Commonplace(tmp_path / "other", embedding="none") as other, lease(other) as space:
        assert not import_file(space, file, trust_file=True).problems
        assert digest(space) == whole
        assert other.get("one").source == "src/retry-of-payments-and-queues.py"
        assert [each.memory.source for each in other.history.versions("one")][1] == PAGE
    notes = tmp_path / "notes.jsonl"
    notes.write_text(json.dumps({"text": "From a file.", "source": "a/file"}) + "\n")
    with lease(memory) as space:
        assert import_file(space, notes).added == 1
    assert memory.browse(source="a/file")[0][0].text == "From a file."
    assert memory.purge("one").traces == NO_TRACES
    if NO_TRACES is None:
        return  # there is no file to look into
    data = (memory.library.file("default")).read_bytes()
    assert b"retry-of-payments" not in data and PAGE.encode() not in data


def test_the_command_line_takes_shows_and_filters_a_source(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        around = {"COMMONPLACE_DATA": str(tmp_path), "COMMONPLACE_EMBEDDING": "none"}
        done = CliRunner().invoke(app, list(arguments), env=around, catch_exceptions=False)
        return done.stdout

    kept = json.loads(run("remember", "Retries are capped.", "--source", PAGE, "--json"))
    run("remember", "Retries are logged.")
    assert kept["source"] == PAGE
    assert f"source     {PAGE}" in run("show", kept["id"])
    (hit,) = run("search", "retries", "--source", PAGE, "--json").splitlines()
    assert json.loads(hit)["memory"]["id"] == kept["id"]
    (hit,) = run("search", "retries", "--text", "--source", PAGE, "--json").splitlines()
    assert json.loads(hit)["memory"]["source"] == PAGE
    assert run("search", "retries", "--source", "elsewhere", "--json") == ""
    after = json.loads(run("revise", kept["id"], "--source", "src/retry.py", "--json"))
    assert after["source"] == "src/retry.py"
    shown = [
        json.loads(line) for line in run("show", kept["id"], "--versions", "--json").splitlines()
    ]
    assert [each["memory"]["source"] for each in shown] == ["src/retry.py", PAGE]


def test_the_tools_take_a_source_and_show_it_when_there_is_one(memory: Commonplace) -> None:
    with contextlib.closing(open_system(memory.library.path)) as system:
        gate = Gate(memory.library, system, [registry.load("commonplace")])

        def call(tool: str, **arguments: Any) -> dict[str, Any]:
            outcome = gate.perform(Caller(), RequestInfo(), "commonplace", tool, arguments)
            assert outcome.error is None, outcome.error
            return dict(outcome.wire["structuredContent"])

        kept = call("remember", text="Retries are capped.", source=PAGE)["id"]
        plain = call("remember", text="Retries are logged.")["id"]
        assert call("read", id=kept)["memory"]["source"] == PAGE
        assert "source" not in call("read", id=plain)["memory"]
        shown = {
            each["id"]: each.get("source") for each in call("recall", query="retries")["memories"]
        }
        assert shown == {kept: PAGE, plain: None}
        call("revise", id=kept, source="src/retry.py")
        assert call("read", id=kept)["memory"]["source"] == "src/retry.py"
        history = call("read", id=kept, history=True)["history"]
        assert [each["source"] for each in history] == ["src/retry.py", PAGE]
