"""A MemPalace brought over: its Chroma store, its knowledge graph, its export."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from commonplace.cli import app
from commonplace.dialects.orchestrator import drawers, importing
from commonplace.errors import InvalidInput, NotFound
from commonplace.storage.sqlite import foreign

from .conftest import Workspace, opened

# Chroma's tables as its own migrations make them, as far as a palace uses them.
CHROMA = """
CREATE TABLE collections (id TEXT PRIMARY KEY, name TEXT NOT NULL, dimension INTEGER);
CREATE TABLE segments (id TEXT PRIMARY KEY, type TEXT, scope TEXT, collection TEXT NOT NULL);
CREATE TABLE embeddings (
  id INTEGER PRIMARY KEY, segment_id TEXT NOT NULL, embedding_id TEXT NOT NULL,
  seq_id BLOB NOT NULL, created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  UNIQUE (segment_id, embedding_id)
);
CREATE TABLE embedding_metadata (
  id INTEGER REFERENCES embeddings(id), key TEXT NOT NULL, string_value TEXT, int_value INTEGER,
  float_value REAL, bool_value INTEGER, PRIMARY KEY (id, key)
);
CREATE VIRTUAL TABLE embedding_fulltext_search USING fts5(string_value, tokenize='trigram');
"""
FIRST = "drawer_wing0_room0_" + "0" * 16
GRAPH = """
CREATE TABLE entities (id TEXT PRIMARY KEY, name TEXT NOT NULL, type TEXT DEFAULT 'unknown',
  properties TEXT DEFAULT '{}', created_at TEXT DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE triples (id TEXT PRIMARY KEY, subject TEXT NOT NULL, predicate TEXT NOT NULL,
  object TEXT NOT NULL, valid_from TEXT, valid_to TEXT, confidence REAL DEFAULT 1.0,
  source_closet TEXT, source_file TEXT, extracted_at TEXT DEFAULT CURRENT_TIMESTAMP);
"""


def put_drawers(file: Path, drawers: list[dict[str, Any]], collection: str) -> None:
    with sqlite3.connect(file) as store:
        store.execute("INSERT INTO collections VALUES (?, ?, 384)", (f"c-{collection}", collection))
        for scope in ("METADATA", "VECTOR"):
            store.execute(
                "INSERT INTO segments VALUES (?, '', ?, ?)",
                (f"{scope}-{collection}", scope, f"c-{collection}"),
            )
        for drawer in drawers:
            row = store.execute(
                "INSERT INTO embeddings (segment_id, embedding_id, seq_id) VALUES (?, ?, 1)",
                (f"METADATA-{collection}", drawer["id"]),
            ).lastrowid
            about = {"chroma:document": drawer["content"], **drawer["about"]}
            for name, value in about.items():
                column = {str: "string", int: "int", float: "float", bool: "bool"}[type(value)]
                store.execute(
                    f"INSERT INTO embedding_metadata (id, key, {column}_value) VALUES (?, ?, ?)",
                    (row, name, value),
                )
    store.close()


def palace_at(
    folder: Path, drawers: int = 500, odd: Sequence[dict[str, Any]] = ()
) -> list[dict[str, Any]]:
    """A store as MemPalace leaves it; the odd drawers come first and are not returned."""
    folder.mkdir()
    made: list[dict[str, Any]] = [
        {
            "id": f"drawer_wing{n % 7}_room{n % 13}_{n:016x}",
            "content": f"Drawer number {n}.\n\nIt has a second paragraph, “quoted”.",
            "about": {
                "wing": f"wing{n % 7}", "room": f"room{n % 13}", "hall": "hall_facts",
                "source_file": f"/home/anna/notes/{n}.md", "chunk_index": n, "added_by": "miner",
                "filed_at": f"2025-03-{n % 28 + 1:02}T10:00:00",
            },
        }
        for n in range(drawers)
    ]  # fmt: skip
    made.append(
        {
            "id": "diary_wing_claude_1",
            "content": "SESSION: built the palace.",
            "about": {"wing": "wing_claude", "room": "diary", "hall": "hall_diary",
                      "topic": "building", "type": "diary_entry", "agent": "claude",
                      "filed_at": "2025-04-01T09:30:00.123456"},
        }
    )  # fmt: skip
    with sqlite3.connect(folder / importing.CHROMA) as store:
        store.executescript(CHROMA)
    store.close()
    put_drawers(folder / importing.CHROMA, [*odd, *made], "mempalace_drawers")
    other = {"id": "closet_1", "content": "an index line", "about": {"wing": "w", "room": "r"}}
    put_drawers(folder / importing.CHROMA, [other], "mempalace_closets")
    return made


def graph_at(folder: Path) -> None:
    with sqlite3.connect(folder / importing.GRAPH) as store:
        store.executescript(GRAPH)
        for name in ("Max", "Acme", "Globex", "Chess"):
            store.execute("INSERT INTO entities (id, name) VALUES (?, ?)", (name.lower(), name))
        store.executemany(
            "INSERT INTO triples (id, subject, predicate, object, valid_from, valid_to,"
            " source_closet) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                ("t1", "max", "works_at", "acme", "2024-01-01", "2024-06-30", None),
                ("t2", "max", "works_at", "globex", "2024-07-01", None, FIRST),
                ("t3", "max", "plays", "chess", None, None, None),
                ("t4", "max", "plays", "chess", "2020", "2021-01-01", None),
            ],
        )  # fmt: skip
    store.close()


def counted(drawers: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter((one["about"]["wing"], one["about"]["room"]) for one in drawers)


def test_a_store_is_brought_over_whole(workspace: Workspace, tmp_path: Path) -> None:
    source = palace_at(tmp_path / "palace")
    graph_at(tmp_path / "palace")
    (tmp_path / "palace" / "identity.txt").write_text("I am Atlas, Anna's assistant.\n")
    told: list[tuple[int, int]] = []
    report = importing.import_palace(
        workspace.memory, tmp_path / "palace", lambda done, total: told.append((done, total))
    )
    assert (report.drawers.found, report.drawers.added) == (501, 501)
    assert (report.triples.found, report.triples.added, report.identity) == (4, 4, True)
    assert told == sorted(told) and told[-1] == (505, 505)
    status = workspace.value("memory_status")
    assert status["total_drawers"] == len(source)
    rooms = {(one["wing"], one["room"]): one["count"] for one in status["rooms"]}
    assert rooms == counted(source)
    one = workspace.memory.get(source[3]["id"])
    assert one.text == source[3]["content"]
    assert one.created_at.isoformat() == "2025-03-04T10:00:00+00:00"
    assert one.attrs["mempalace"]["chunk_index"] == 3
    assert one.attrs["source_file"] == "/home/anna/notes/3.md"
    (entry,) = workspace.value("memory_diary_read", agent_name="claude")["entries"]
    assert (entry["content"], entry["hall"]) == ("SESSION: built the palace.", "building")
    found = workspace.value("memory_search", query="Drawer number 17", wing="wing3")["results"]
    assert source[17]["id"] in {each["id"] for each in found}


def test_again_it_adds_nothing_and_later_only_what_is_new(
    workspace: Workspace, tmp_path: Path
) -> None:
    palace_at(tmp_path / "palace", drawers=50)
    graph_at(tmp_path / "palace")
    importing.import_palace(workspace.memory, tmp_path / "palace")
    workspace.value("memory_delete_drawer", drawer_id=FIRST)
    again = importing.import_palace(workspace.memory, tmp_path / "palace")
    assert (again.drawers.added, again.drawers.unchanged) == (0, 51)
    assert (again.triples.added, again.triples.unchanged) == (0, 4)
    assert workspace.value("memory_status")["total_drawers"] == 50  # what was deleted stays so
    with sqlite3.connect(tmp_path / "palace" / importing.CHROMA) as store:
        row = store.execute(
            "INSERT INTO embeddings (segment_id, embedding_id, seq_id) VALUES (?, 'new', 1)",
            ("METADATA-mempalace_drawers",),
        ).lastrowid
        store.execute(
            "INSERT INTO embedding_metadata (id, key, string_value) VALUES (?, ?, ?)",
            (row, "chroma:document", "A new drawer without an address."),
        )
    store.close()
    later = importing.import_palace(workspace.memory, tmp_path / "palace")
    assert (later.drawers.added, later.drawers.unchanged) == (1, 51)
    assert workspace.memory.get("new").attrs["wing"] == "unknown"


KILLED = """
import os, signal, sys
from pathlib import Path
from commonplace import Commonplace
from commonplace.dialects.orchestrator import importing
from commonplace.engine.library import Library

def tell(done, total):
    print(done, total, flush=True)
    if done >= int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

memory = Commonplace(space="acme", library=Library(Path(sys.argv[1]), embedder=None))
importing.import_palace(memory, Path(sys.argv[2]), tell)
"""


def test_killed_in_the_middle_it_goes_on_and_undo_takes_it_back(tmp_path: Path) -> None:
    """R: thousands of drawers; a kill costs one batch, and the counts are the source's."""
    source = palace_at(tmp_path / "palace", drawers=3_000)
    graph_at(tmp_path / "palace")
    (tmp_path / "palace" / "identity.txt").write_text("I am Atlas.")
    data = tmp_path / "data"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(data), str(tmp_path / "palace"), "1400"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.splitlines()[-1] == "1400 3005"
    with opened(data, None) as workspace:
        report = importing.import_palace(workspace.memory, tmp_path / "palace")
        assert (report.drawers.found, report.drawers.added) == (3_001, 1_601)
        assert (report.drawers.unchanged, report.drawers.left_out) == (1_400, [])
        status = workspace.value("memory_status")
        assert status["total_drawers"] == len(source)
        rooms = {(one["wing"], one["room"]): one["count"] for one in status["rooms"]}
        assert rooms == counted(source)
        assert workspace.memory.get(source[2_345]["id"]).text == source[2_345]["content"]
        workspace.memory.undo()  # all that the second one brought, and nothing of the first
        assert workspace.value("memory_status")["total_drawers"] == 1_400
        assert workspace.value("memory_kg_stats")["triples"] == 0
        assert drawers.workspace_identity(workspace.memory) == ""
        workspace.memory.undo()
        assert workspace.value("memory_status")["total_drawers"] == 0


def test_a_source_is_never_held_as_a_whole(tmp_path: Path) -> None:
    long = [
        {"id": f"drawer_{n}", "content": f"{n} " + "x" * 20_000, "about": {"wing": "w"}}
        for n in range(500)
    ]  # ten megabytes
    with sqlite3.connect(tmp_path / importing.CHROMA) as store:
        store.executescript(CHROMA)
    store.close()
    put_drawers(tmp_path / importing.CHROMA, long, "mempalace_drawers")
    del long
    with contextlib.ExitStack() as stack:
        file = tmp_path / importing.CHROMA
        copy = stack.enter_context(foreign.open_copy(file, importing._CHROMA_TABLES))
        found = importing.chroma_drawers(copy, importing._drawer_segments(copy, file))
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        assert [drawer.id for drawer in found] == [f"drawer_{n}" for n in range(500)]
        assert tracemalloc.get_traced_memory()[1] < 1_000_000


def test_the_knowledge_graph_keeps_its_validity(workspace: Workspace, tmp_path: Path) -> None:
    palace_at(tmp_path / "palace", drawers=1)
    graph_at(tmp_path / "palace")
    importing.import_palace(workspace.memory, tmp_path / "palace")
    assert workspace.value("memory_kg_stats") == {
        "entities": 4, "triples": 4, "current_facts": 2, "expired_facts": 2,
        "relationship_types": ["plays", "works_at"],
    }  # fmt: skip
    then = workspace.value("memory_kg_query", entity="Max", as_of="2024-03-01")["results"]
    assert {(one["object"], one["current"]) for one in then} == {("Acme", False), ("Chess", True)}
    globex = workspace.memory.facts.query("Globex")[0]
    assert globex.memory == workspace.memory.get(FIRST).id


def test_what_is_empty_is_left_out_and_told(workspace: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "palace"
    folder.mkdir()
    with sqlite3.connect(folder / importing.CHROMA) as store:
        store.executescript(CHROMA)
    store.close()
    put_drawers(
        folder / importing.CHROMA,
        [{"id": "empty", "content": " ", "about": {"wing": "w"}}],
        "mempalace_drawers",
    )
    report = importing.import_palace(workspace.memory, folder / importing.CHROMA)
    assert report.drawers.left_out == ["empty: the text is empty"]


def test_a_row_that_cannot_be_stored_is_left_out_and_told(
    workspace: Workspace, tmp_path: Path
) -> None:
    about = {"wing": "w", "room": "r", "filed_at": "0001-01-01T00:00:00+14:00"}
    odd = [
        {"id": "nul", "content": "A drawer with \0 in it.", "about": about},
        {"id": "i" * 600, "content": "A drawer with a long id.", "about": about},
        {"id": "early", "content": "A drawer of an impossible year.", "about": about},
    ]
    source = palace_at(tmp_path / "palace", 30, odd)
    graph_at(tmp_path / "palace")
    with sqlite3.connect(tmp_path / "palace" / importing.GRAPH) as graph:
        graph.executemany(
            "INSERT INTO triples (id, subject, predicate, object, source_closet)"
            " VALUES (?, 'max', 'said', ?, ?)",
            [("long", "o" * 501, None), ("sourced", "hello", "page " * 200)],
        )
    graph.close()
    for added in (len(source) + 1, 0):
        report = importing.import_palace(workspace.memory, tmp_path / "palace")
        assert report.drawers.added == added
        assert report.drawers.added + report.drawers.unchanged == len(source) + 1
        assert [why.partition(": ")[0] for why in report.drawers.left_out] == ["nul", "i" * 600]
        assert "NUL" in report.drawers.left_out[0]
        assert [why.partition(": ")[0] for why in report.triples.left_out] == ["long"]
    assert [fact.object for fact in workspace.memory.facts.query("Max", predicate="said")] == [
        "hello"
    ]


EXPORT = """# wing0 / room0

## drawer_one

> First line.
>\x20
> ## not a heading
> | Field | Value |

| Field | Value |
|-------|-------|
| Source | notes.md |
| Filed | 2025-03-01T10:00:00 |
| Added by | miner |

---

## drawer_two

> Second.

| Field | Value |
|-------|-------|
| Source | unknown |
| Filed | unknown |
| Added by | unknown |

---

"""


def test_an_export_is_brought_over(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "export" / "wing0").mkdir(parents=True)
    (tmp_path / "export" / "index.md").write_text("# Palace Export\n")
    (tmp_path / "export" / "wing0" / "room0.md").write_text(EXPORT)
    report = importing.import_palace(workspace.memory, tmp_path / "export")
    assert (report.drawers.found, report.drawers.added) == (2, 2)
    one = workspace.memory.get("drawer_one")
    assert one.text == "First line.\n\n## not a heading\n| Field | Value |"
    assert (one.attrs["wing"], one.attrs["source_file"]) == ("wing0", "notes.md")
    assert "source_file" not in workspace.memory.get("drawer_two").attrs
    assert importing.import_palace(workspace.memory, tmp_path / "export").drawers.unchanged == 2


def test_what_is_no_palace_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        importing.import_palace(workspace.memory, tmp_path)
    with sqlite3.connect(tmp_path / "other.db") as store:
        store.execute("CREATE TABLE something (x)")
    store.close()
    with pytest.raises(InvalidInput):
        importing.import_palace(workspace.memory, tmp_path / "other.db")


def test_the_command_imports_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    palace_at(tmp_path / "palace", drawers=20)
    command = ["workspace", "import", "acme", str(tmp_path / "palace"), "--data", str(tmp_path)]
    assert app.run([*command, "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["drawers"]
    assert counts == {"found": 21, "added": 21, "unchanged": 0, "left_out": []}
    assert app.run(command) == 0
    assert "21 found, 0 added, 21 unchanged" in capsys.readouterr().out
    assert app.run(["doctor", "--data", str(tmp_path)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "acme: healthy"  # none waits for its vector
