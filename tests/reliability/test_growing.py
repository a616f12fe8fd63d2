"""The recipe for a new column, tried: a copy of the package gets three, and old stores go on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import apsw
import pytest

import commonplace
from commonplace import Commonplace
from commonplace.engine.binding import engine_call, lease
from commonplace.engine.maintenance import upkeep
from commonplace.engine.transfer.exporting import export_space
from commonplace.errors import StorageCorrupt, UnsupportedVersion
from commonplace.storage import database, schema
from commonplace.storage.tables import Hashed
from conftest import WordVectors
from fixtures.golden import told

TESTS = Path(__file__).parent.parent
WORKER = TESTS / "fixtures" / "grown_worker.py"
RECIPE = {
    # A field of a memory is one line; a Python step of the migration adds all three columns.
    "storage/fields.py": (
        "\n\nFIELDS: Mapping",
        '    mood: str = _field("text", "calm", chars=20, added=True, filterable=True,'
        ' option="--mood", help="How it felt.")\n\n\nFIELDS: Mapping',
    ),
    "storage/tables.py": (
        '("space", "memory", "accesses", "last_access"))',
        '("space", "memory", "accesses", "last_access"), added={"mark": 0})',
    ),
    "storage/tables.py ": ('unhashed=("payload",)', 'unhashed=("payload",), added={"place": ""}'),
    "storage/schema.py": (
        "MIGRATIONS: tuple[Step, ...] ="
        " (_V1, AUDIT + _ANSWERS, _FILES, MODELS, _FORMATS, _VECTORS)",
        """
def _grow(connection: apsw.Connection) -> None:
    for table, column in (("memories", "mood TEXT NOT NULL DEFAULT 'calm'"),
                          ("counters", "mark BIGINT NOT NULL DEFAULT 0"),
                          ("events", "place TEXT NOT NULL DEFAULT ''")):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")


MIGRATIONS: tuple[Step, ...] = (_V1, AUDIT + _ANSWERS, _FILES, MODELS, _FORMATS, _VECTORS, _grow)
""",
    ),
}


@pytest.fixture
def store(quick_disk: Path) -> Path:
    """A store of mixed formats in `data`, what it says, and an export of it."""
    file = quick_disk / "data" / "spaces" / "default.db"
    file.parent.mkdir(parents=True)
    with tarfile.open(TESTS / "fixtures" / "v3.tar.gz") as packed:
        found = packed.extractfile("backup/default.db")
        assert found is not None
        file.write_bytes(found.read())
    with Commonplace(quick_disk / "data", embedding=WordVectors()) as memory:
        memory.revise("ref-3", source="a/path", title="With a source")
        memory.remember("Between the two.", source="https://example.org", ref="between")
        memory.get("between")
        memory.events.record("between", "between", {"b": 2})
        engine_call(memory, upkeep.embed_all)
        memory.forget("ref-12")
        (quick_disk / "told.json").write_text(json.dumps(told(memory)))
        with lease(memory) as space, (quick_disk / "before.jsonl").open("w") as out:
            export_space(space, out.write)
    return quick_disk


@pytest.fixture
def grown(quick_disk: Path) -> Path:
    """A copy of the package with the recipe carried out."""
    package = quick_disk / "grown" / "commonplace"
    shutil.copytree(
        Path(commonplace.__file__).parent, package,
        ignore=shutil.ignore_patterns("model", "__pycache__"),
    )  # fmt: skip
    for name, (old, new) in RECIPE.items():
        path = package / name.strip()
        text = path.read_text()
        assert text.count(old) == 1, (name, old)
        path.write_text(text.replace(old, new))
    return package.parent


def test_a_store_gains_columns_and_goes_on(store: Path, grown: Path) -> None:
    paths = os.pathsep.join((str(grown), str(TESTS)))
    done = subprocess.run(
        [sys.executable, str(WORKER), str(store)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.stdout == "grown\n", done.stdout + done.stderr
    # This release is now the older one.
    with (
        Commonplace(store / "data", embedding=WordVectors()) as memory,
        pytest.raises(UnsupportedVersion, match="this release supports up to"),
    ):
        memory.browse()


def test_an_added_column_of_an_old_row_cannot_change_unnoticed(store: Path) -> None:
    """A row of format 1 has no hash that covers the column: any value but its default is damage."""
    file = store / "data" / "spaces" / "default.db"
    connection = apsw.Connection(str(file))
    ((num, ref),) = connection.execute(
        "SELECT num, ref FROM memories WHERE format = 1 AND ref IS NOT NULL LIMIT 1"
    )
    connection.execute("UPDATE memories SET source = 'forged' WHERE num = ?", (num,))
    connection.close()
    with Commonplace(store / "data", embedding=WordVectors()) as memory:
        with pytest.raises(StorageCorrupt):
            memory.get(ref)
        findings = memory.library.maintenance.check("default").findings
        assert any(f"num {num}" in each.what for each in findings if each.severity == "error")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE memories SET source = 'forged' WHERE ref = 'between'",
        "UPDATE memories SET source = '' WHERE ref = 'between'",
        "UPDATE memories SET format = 1 WHERE ref = 'between'",
        "UPDATE memories SET format = 3 WHERE ref = 'between'",
        "UPDATE memories SET format = 0 WHERE ref = 'between'",
    ],
)
def test_a_changed_column_or_format_of_a_new_row_is_noticed(store: Path, change: str) -> None:
    connection = apsw.Connection(str(store / "data" / "spaces" / "default.db"))
    connection.execute(change)
    assert connection.total_changes() == 1
    connection.close()
    with (
        Commonplace(store / "data", embedding=WordVectors()) as memory,
        pytest.raises(StorageCorrupt),
    ):
        memory.get("between")


def test_a_hash_covers_names_and_leaves_out_defaults() -> None:
    old = Hashed("things", ("space", "a"))
    grown = Hashed("things", ("space", "a"), added={"b": "", "c": 0})
    renamed = Hashed("things", ("space", "a"), added={"x": "", "c": 0})
    assert old.hash(("s", 1)) == grown.hash(("s", 1, "", 0))
    assert old.hash(("s", 1), 1) == grown.hash(("s", 1, "", 0), 1)
    assert grown.hash(("s", 1, "", 7), 1) == b""
    different = {
        grown.hash(("s", 1, "", 0)), grown.hash(("s", 1, "", 7)), grown.hash(("s", 1, "7", 0)),
        grown.hash(("s", 1, "", 0), 1), renamed.hash(("s", 1, "7", 0)),
    }  # fmt: skip
    assert len(different) == 5
    assert grown.row(("s", 1)) == (*("s", 1, "", 0), 2, old.hash(("s", 1)))


def test_a_step_may_be_python_and_fails_whole(quick_disk: Path) -> None:
    file = quick_disk / "some.db"
    connection = apsw.Connection(str(file))

    def fill(connection: apsw.Connection) -> None:
        connection.executemany("INSERT INTO numbers VALUES (?)", [(n,) for n in range(3)])

    def fail(connection: apsw.Connection) -> None:
        connection.execute("DELETE FROM numbers")
        raise ValueError("half of it")

    steps: tuple[schema.Step, ...] = ("CREATE TABLE numbers (n)", fill)
    database.migrate(connection, steps)
    with pytest.raises(ValueError, match="half of it"):
        database.migrate(connection, (*steps, fail))
    assert connection.pragma("user_version") == 2
    assert connection.execute("SELECT sum(n) FROM numbers").fetchall() == [(3,)]
    connection.close()
