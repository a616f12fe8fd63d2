"""Schema steps: killed anywhere they resume, what is newer is refused, what is old opens (R10)."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import apsw
import pytest

from commonplace import Commonplace
from commonplace.engine.library import Library
from commonplace.errors import CommonplaceError, StorageCorrupt, UnsupportedVersion
from commonplace.storage import database, schema
from commonplace.storage.database import connect
from commonplace.storage.sqlite import Store
from commonplace.storage.system import SYSTEM_MIGRATIONS
from conftest import WordVectors
from fixtures.full_store import content_digest

FIXTURES = Path(__file__).parent.parent / "fixtures"
EXTRA = (
    "ALTER TABLE memories ADD COLUMN mood TEXT; UPDATE memories SET mood = 'calm';"
    " CREATE TABLE moods (name TEXT PRIMARY KEY, times BIGINT NOT NULL);"
    " INSERT INTO moods SELECT mood, count(*) FROM memories GROUP BY mood;",
    "CREATE INDEX memories_mood ON memories (mood);"
    " UPDATE moods SET times = times + 100;"
    " DROP TABLE outbox; CREATE TABLE outbox (num INTEGER PRIMARY KEY);",
)
STEPS = (*schema.MIGRATIONS, *EXTRA)

CHILD = """
import json, os, signal, sys
from pathlib import Path
from commonplace.storage import database
from commonplace.storage.database import connect
path, steps, fatal = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
connection = connect(Path(path))
count = 0
def trace(cursor, sql, bindings):
    global count
    count += 1
    if count == fatal:
        os.kill(os.getpid(), signal.SIGKILL)
    return True
connection.exec_trace = trace
database.migrate(connection, steps)
print(count)
"""


def _golden(place: Path) -> Path:
    """The file of the first release, in a data directory."""
    file = place / "spaces" / "default.db"
    file.parent.mkdir(parents=True)
    file.write_bytes(gzip.decompress((FIXTURES / "v1.db.gz").read_bytes()))
    return file


def _child(file: Path, fatal: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CHILD, str(file), json.dumps(STEPS), str(fatal)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def _rows(file: Path) -> tuple[object, ...]:
    connection = apsw.Connection(str(file))
    try:
        return (
            connection.pragma("user_version"),
            connection.execute("SELECT group_concat(text || hex(hash)) FROM memories").fetchall(),
            connection.execute("SELECT * FROM moods").fetchall(),
            connection.execute("SELECT name FROM sqlite_schema ORDER BY name").fetchall(),
            connection.execute("PRAGMA integrity_check").fetchall(),
        )
    finally:
        connection.close()


def test_the_first_release_opens_and_says_what_it_said(quick_disk: Path) -> None:
    _golden(quick_disk)
    said = (FIXTURES / "v1.db.sha256").read_text().strip()
    with Commonplace(quick_disk, embedding="none") as memory:
        assert content_digest(memory) == said
        diagnosis = memory.library.maintenance.check("default")
        assert not [f for f in diagnosis.findings if f.check not in ("lexemes", "passages")]
        memory.remember("And it goes on.")
        assert memory.find_text("goes on")[1] == 1


def test_models_of_an_older_file_become_their_spaces_own(quick_disk: Path) -> None:
    file = quick_disk / "spaces" / "default.db"
    file.parent.mkdir()
    with tarfile.open(FIXTURES / "v3.tar.gz") as packed:
        found = packed.extractfile("backup/default.db")
        assert found is not None
        file.write_bytes(found.read())
    before = apsw.Connection(str(file))
    assert before.pragma("user_version") == 3
    ((model,),) = before.execute("SELECT num FROM models")
    vectors = before.execute("SELECT model, vector FROM passages").fetchall()
    before.close()
    with Commonplace(quick_disk, embedding=WordVectors()) as memory:
        assert memory.recall("certificate expired")[0].why.dense_rank is not None
        assert memory.library.maintenance.check("default").healthy
    after = connect(file)
    assert after.execute("SELECT space, num FROM models").fetchall() == [("default", model)]
    assert after.execute("SELECT model, vector FROM passages").fetchall() == vectors
    after.close()


@pytest.mark.parametrize(
    "steps", [schema.MIGRATIONS, SYSTEM_MIGRATIONS, STEPS], ids=["space", "system", "more"]
)
def test_a_new_file_has_the_schema_of_a_file_migrated_step_by_step(
    quick_disk: Path, steps: tuple[schema.Step, ...]
) -> None:
    database.create(quick_disk / "new.db", steps)
    new, migrated = connect(quick_disk / "new.db"), apsw.Connection(":memory:")
    database.migrate(migrated, steps)
    told = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid"
    try:
        assert new.execute(told).fetchall() == migrated.execute(told).fetchall()
        for name in ("user_version", "application_id"):
            assert new.pragma(name) == migrated.pragma(name)
    finally:
        new.close()
        migrated.close()


def test_columns_are_added_one_by_one_where_a_new_file_cannot_have_them_at_once() -> None:
    added = "ALTER TABLE numbers ADD COLUMN m BIGINT;\n"
    for steps in (
        ("CREATE TABLE numbers (n BIGINT\n);", len, added),
        ("CREATE TABLE n (n);", added),
    ):
        assert schema.steps_for_new_file(steps) is steps
    made = schema.steps_for_new_file(("CREATE TABLE numbers (n BIGINT\n)", added))
    assert made == ("CREATE TABLE numbers (n BIGINT\n, m BIGINT);\n",)


def test_a_changed_golden_file_would_be_noticed(quick_disk: Path) -> None:
    """The mutant: one link is gone after the upgrade."""
    file = _golden(quick_disk)
    connection = apsw.Connection(str(file))
    connection.execute("DELETE FROM links WHERE num = (SELECT max(num) FROM links)")
    connection.close()
    said = (FIXTURES / "v1.db.sha256").read_text().strip()
    with Commonplace(quick_disk, embedding="none") as memory:
        assert content_digest(memory) != said


def test_a_migration_killed_before_any_statement_resumes(quick_disk: Path) -> None:
    whole = _golden(quick_disk / "whole")
    done = _child(whole, fatal=0)
    assert done.returncode == 0, done.stderr
    statements, expected = int(done.stdout), _rows(whole)
    assert expected[0] == len(STEPS) and statements > 15
    for fatal in range(1, statements + 1):
        file = _golden(quick_disk / f"killed{fatal}")
        assert _child(file, fatal).returncode == -9
        connection = connect(file)
        assert connection.pragma("user_version") in range(1, len(STEPS) + 1)
        database.migrate(connection, STEPS)
        connection.close()
        assert _rows(file) == expected, f"killed before statement {fatal}"


def test_a_step_that_fails_leaves_the_version_before_it(quick_disk: Path) -> None:
    file = _golden(quick_disk)
    connection = connect(file)
    broken = (*STEPS[:-1], "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1)")
    with pytest.raises(apsw.Error):
        database.migrate(connection, broken)
    assert connection.pragma("user_version") == len(STEPS) - 1
    assert not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'half'").fetchall()
    database.migrate(connection, STEPS)
    assert connection.pragma("user_version") == len(STEPS)
    connection.close()


def test_two_that_migrate_at_once_do_it_once(quick_disk: Path) -> None:
    file = _golden(quick_disk)
    errors: list[BaseException] = []

    def migrate() -> None:
        connection = connect(file)
        try:
            database.migrate(connection, STEPS)
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    version, _, moods, _, integrity = _rows(file)
    assert version == len(STEPS) and integrity == [("ok",)]
    assert moods == [("calm", 138)]


def test_an_upgrade_keeps_a_copy_of_the_file_before_it(
    quick_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _golden(quick_disk)
    before = _content(file)
    monkeypatch.setattr(schema, "MIGRATIONS", STEPS)
    monkeypatch.setattr(database.migrate, "__defaults__", (STEPS,))
    Store(file, "default").close()
    copy = file.with_name(f"default.before-v{len(STEPS)}.db")
    assert _content(copy) == before
    assert copy.stat().st_mode & 0o777 == 0o600
    assert _rows(file)[0] == len(STEPS)
    library = Library(quick_disk, embedder=None)
    assert library.spaces() == ["default"]
    library.close()


def test_several_that_open_an_old_file_at_once_keep_one_copy_of_it(quick_disk: Path) -> None:
    file = _golden(quick_disk)
    large = connect(file)
    large.execute("CREATE TABLE padding (x); INSERT INTO padding VALUES (randomblob(50000000))")
    large.close()
    before = _content(file)
    opened: list[str] = []
    together = threading.Barrier(4)

    def open_it() -> None:
        together.wait()
        try:
            Store(file, "default", STEPS).close()
            opened.append("well")
        except BaseException as error:
            opened.append(repr(error))

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == ["well"] * 4
    copy = file.with_name(f"default.before-v{len(STEPS)}.db")
    assert _content(copy) == before
    assert {each.name for each in file.parent.iterdir()} == {file.name, copy.name}


@pytest.mark.parametrize(
    "step",
    [
        "ALTER TABLE memories RENAME COLUMN text TO body",
        "UPDATE memories SET format = 3",
    ],
    ids=["a column that has gone", "rows in a newer format"],
)
def test_a_file_that_is_migrated_while_it_is_open_is_not_called_damaged(
    quick_disk: Path, step: str
) -> None:
    with Commonplace(quick_disk, embedding="none") as memory:
        first = memory.remember("Before.")
        connection = connect(quick_disk / "spaces" / "default.db")
        database.migrate(connection, (*schema.MIGRATIONS, step))
        rows = connection.execute("SELECT count(*) FROM memories").fetchall()
        connection.close()
        with pytest.raises(UnsupportedVersion, match="schema version"):
            memory.get(first.id)
        with pytest.raises(UnsupportedVersion, match="schema version"):
            memory.remember("After.")
        with pytest.raises(UnsupportedVersion, match="schema version"):
            memory.revise(first.id, text="After.")
    connection = connect(quick_disk / "spaces" / "default.db")
    assert connection.execute("SELECT count(*) FROM memories").fetchall() == rows
    connection.close()


def test_an_old_release_does_not_write_to_a_file_that_a_new_one_has_migrated(
    quick_disk: Path,
) -> None:
    file = _golden(quick_disk)
    old = Store(file, "default")
    connection = connect(file)
    database.migrate(connection, (*schema.MIGRATIONS, "CREATE TABLE newer (x)"))
    connection.close()
    with pytest.raises(UnsupportedVersion), old.maintain() as rows:
        rows.execute("DELETE FROM memories")
    with old.read() as rows:  # what can be read still is
        assert rows.execute("SELECT count(*) FROM memories").fetchone() != (0,)
    old.close()


def _content(file: Path) -> object:
    connection = apsw.Connection(str(file))
    try:
        return (
            connection.pragma("user_version"),
            connection.execute("SELECT * FROM memories ORDER BY num").fetchall(),
            connection.execute("SELECT * FROM operations ORDER BY num").fetchall(),
        )
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("pragma", "error"),
    [
        (f"user_version = {len(schema.MIGRATIONS) + 1}", UnsupportedVersion),
        ("user_version = 2000000000", UnsupportedVersion),
        ("application_id = 1234", StorageCorrupt),
    ],
)
def test_what_is_newer_or_foreign_is_refused_and_not_touched(
    quick_disk: Path, pragma: str, error: type[CommonplaceError]
) -> None:
    file = _golden(quick_disk)
    connection = apsw.Connection(str(file))
    connection.execute(f"PRAGMA {pragma}")
    connection.close()
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    with Commonplace(quick_disk, embedding="none") as memory:
        for call in (
            lambda: memory.remember("Refused."),
            lambda: memory.browse(),
            lambda: memory.library.maintenance.repair("default"),
        ):
            with pytest.raises((error, StorageCorrupt)):
                call()
        assert not memory.library.maintenance.check("default").healthy
    assert hashlib.sha256(file.read_bytes()).hexdigest() == before
    assert [path.name for path in file.parent.iterdir()] == ["default.db"]
