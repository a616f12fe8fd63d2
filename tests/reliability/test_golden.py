"""Stores that an older release wrote: all of them reads, and history crosses the change (R10)."""

from __future__ import annotations

import contextlib
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
import time_machine

from commonplace import Commonplace
from commonplace.engine.binding import engine_call
from commonplace.engine.history import answers, audit, timeline
from commonplace.engine.library import Library
from commonplace.engine.maintenance import file_copies as noting
from commonplace.engine.maintenance import upkeep
from commonplace.engine.model import moment
from commonplace.engine.transfer.exporting import digest, export_space
from commonplace.engine.transfer.importing import import_file
from commonplace.errors import UnsupportedVersion
from commonplace.storage import schema
from commonplace.storage.sqlite import Store
from commonplace.storage.sqlite.backup import verify
from commonplace.storage.system import SYSTEM_MIGRATIONS, open_system
from commonplace.storage.tables import HASHED
from conftest import WordVectors
from fixtures.golden import SPACES, told

ARCHIVE = Path(__file__).parent.parent / "fixtures" / "v3.tar.gz"
WRITTEN_BY = 3, 2
"""The schema versions of spaces and of system.db that the archive was written with."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("golden")
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(place, filter="data")
    return place


@pytest.fixture
def golden(archive: Path, quick_disk: Path) -> Iterator[Library]:
    """The data directory that the archive was made of."""
    data = quick_disk / "data"
    (data / "spaces").mkdir(parents=True)
    for space in SPACES:
        shutil.copy(archive / "backup" / f"{space}.db", data / "spaces")
    shutil.copy(archive / "backup" / "beside" / "system.db", data)
    with contextlib.closing(Library(data, embedder=WordVectors())) as library:
        yield library


def _at(library: Library, space: str = "default") -> Commonplace:
    return Commonplace(space=space, library=library)


def _formats(file: Path, table: str = "") -> dict[int, int]:
    """How many rows of hashed tables have which format."""
    connection = apsw.Connection(str(file))
    found: dict[int, int] = {}
    try:
        for each in HASHED:
            if table in ("", each.name):
                statement = f"SELECT format, count(*) FROM {each.name} GROUP BY 1"
                for number, count in connection.execute(statement):
                    found[number] = found.get(number, 0) + count
    finally:
        connection.close()
    return found


def _hashes(file: Path) -> dict[str, set[bytes]]:
    connection = apsw.Connection(str(file))
    try:
        return {
            each.name: {row[0] for row in connection.execute(
                f"SELECT {each.hash_column} FROM {each.name}")}
            for each in HASHED
        }  # fmt: skip
    finally:
        connection.close()


@pytest.mark.parametrize("space", SPACES)
def test_a_store_of_an_older_release_says_what_it_said(
    golden: Library, archive: Path, space: str
) -> None:
    said = json.loads((archive / "answers.json").read_text())[space]
    now = told(_at(golden, space))
    assert now.keys() == said.keys()
    for name, answer in said.items():
        assert now[name] == answer, name


@pytest.mark.parametrize("space", SPACES)
def test_the_migration_rewrites_no_row(golden: Library, archive: Path, space: str) -> None:
    before = _hashes(archive / "backup" / f"{space}.db")
    assert _at(golden, space).history.operations(limit=1)
    golden.drop(space)
    file = golden.file(space)
    assert _hashes(file) == before
    assert _formats(file).keys() == {1}
    connection = apsw.Connection(str(file))
    assert connection.pragma("user_version") == len(schema.MIGRATIONS)
    connection.close()


def _sound(library: Library) -> None:
    for space in SPACES:
        findings = library.maintenance.check(space).findings
        assert [each for each in findings if each.severity == "error"] == []
        with library.lease(space) as opened:
            verdict = audit.verify(opened.store)
            assert verdict.faults == () and verdict.rows
    with contextlib.closing(open_system(library.path)) as system:
        verdict = audit.verify(system)
        assert verdict.faults == () and verdict.rows


def test_doctor_and_the_audits_are_clean_before_and_after_new_writes(golden: Library) -> None:
    _sound(golden)
    for space in SPACES:
        memory = _at(golden, space)
        memory.remember("Written by the newer release.", ref="newer")
        memory.events.record("newer", "newer", {"a": 1})
        memory.get("newer")
        engine_call(memory, upkeep.embed_all)
        with golden.lease(space) as opened:
            opened.write_reads()
            entry = audit.Entry(request="n", dialect="commonplace", tool="t", success=True,
                                milliseconds=1, arguments="{}", result="{}")  # fmt: skip
            audit.append(opened.store, entry)
    with contextlib.closing(open_system(golden.path)) as system:
        audit.append(system, entry)
    _sound(golden)
    assert _formats(golden.file("default"), "audit").keys() == {1, 2}
    assert _formats(golden.file("default"), "events").keys() == {1, 2}
    assert _formats(golden.file("default"), "head") == {2: 1}


def test_undo_and_the_past_cross_the_change(golden: Library) -> None:
    memory = _at(golden)
    last = memory.history.operations(limit=1)[0]
    assert memory.get("ref-8").state == "archived"
    undone = memory.undo()  # the newest operation, made before the migration
    assert undone.undoes == last.id
    assert memory.get("ref-8").state == "active"
    memory.revise("ref-5", text="Revised by the newer release.", title="Newer")
    memory.links.add("ref-20", "ref-21", "follows")
    memory.artifacts.update("/docs/one.md", "# One, newer\n")
    assert memory.get("ref-5", as_of=last.at).title == "Another title"
    assert memory.artifacts.read("/docs/one.md", as_of=last.at)[1].content == b"# One\n\nand more\n"
    versions = memory.history.versions("ref-5")
    assert [each.memory.title for each in versions] == ["Newer", "Another title", "", ""]
    formats = _formats(golden.file("default"), "versions")
    assert formats.keys() == {1, 2}
    for _ in range(3):
        memory.undo()
    assert memory.get("ref-5").title == "Another title"
    assert memory.artifacts.read("/docs/one.md")[1].content == b"# One\n\nand more\n"
    memory.undo(undone.id)
    assert memory.get("ref-8").state == "archived"
    with golden.lease("default") as space:
        exported: list[str] = []
        export_space(space, exported.append)
    assert len(exported) > 100


def test_an_import_and_a_patrol_from_before_are_taken_back_whole(golden: Library) -> None:
    memory = _at(golden)
    imported = [each for each in memory.history.operations(limit=500) if each.name == "import"]
    assert imported and memory.find_text("Imported: ")[1] == 2
    memory.undo(imported[0].id)
    assert memory.find_text("Imported: ")[1] == 0
    beings = _at(golden, "beings")
    patrol = next(e for e in beings.history.operations(limit=500) if e.name == "patrol")
    label = timeline.label(patrol)
    units = [e for e in beings.history.operations(limit=500) if timeline.label(e) == label]
    assert label is not None and label.startswith("patrol:") and len(units) > 1
    members = sum(len(beings.clusters.members(each.id)) for each in beings.clusters.all())
    beings.undo(patrol.id)
    left = sum(len(beings.clusters.members(each.id)) for each in beings.clusters.all())
    assert (members, left) == (24, 16)


def test_answers_counters_and_files_are_still_known(golden: Library) -> None:
    memory = _at(golden)
    with golden.lease("default") as space, space.store.read() as connection:
        ((key, at, result),) = connection.execute("SELECT key, at, result FROM answers")
        counted = connection.execute("SELECT count(*), max(accesses) FROM counters").fetchall()
    with time_machine.travel(moment(at)), golden.lease("default") as space:
        assert answers.find(space.store, key) == result
        assert answers.find(space.store, key + b"x") is None
    assert counted[0][0] == 14
    before = memory.usage("ref-1").accesses
    memory.get("ref-1")
    assert before > 0 and memory.usage("ref-1").accesses == before + 1
    files = _at(golden, "files")
    with golden.lease("files") as space, space.store.read() as connection:
        ((root,),) = connection.execute("SELECT DISTINCT root FROM files")
    noted = engine_call(files, noting.recorded_files, root)
    assert len(noted) == 3
    engine_call(files, noting.record_files, root, noted[:1])
    assert sorted(map(repr, engine_call(files, noting.recorded_files, root))) == sorted(
        map(repr, noted)
    )


def test_a_backup_of_an_older_release_is_restored(
    archive: Path, golden: Library, quick_disk: Path
) -> None:
    report = verify(archive / "backup")
    assert set(report.spaces) == set(SPACES)
    with contextlib.closing(Library(quick_disk / "other", embedder=WordVectors())) as other:
        other.maintenance.restore(archive / "backup")
        assert set(other.spaces()) == set(SPACES)
        for space in SPACES:
            assert told(_at(other, space)) == told(_at(golden, space))
        _sound(other)


def test_a_migrated_store_is_backed_up_and_restored(golden: Library, quick_disk: Path) -> None:
    _at(golden).revise("ref-5", title="Newer")
    made = golden.maintenance.backup(quick_disk / "made")
    verify(quick_disk / "made")
    with contextlib.closing(Library(quick_disk / "other", embedder=WordVectors())) as other:
        other.maintenance.restore(quick_disk / "made")
        assert other.maintenance.backup(quick_disk / "again").digest == made.digest
        _sound(other)


def test_an_export_of_an_older_release_is_imported(
    archive: Path, golden: Library, quick_disk: Path
) -> None:
    with contextlib.closing(Library(quick_disk / "other", embedder=WordVectors())) as other:
        with other.lease("default") as space, golden.lease("default") as former:
            report = import_file(space, archive / "default.jsonl", trust_file=True)
            assert report.complete and not report.problems and report.added > 80
            assert digest(space) == digest(former)
            again = import_file(space, archive / "default.jsonl", trust_file=True)
            assert again.added == 0 and not again.problems
        # What goes on from the export is taken where it is already, though it has newer forms.
        _at(golden).revise("ref-5", title="Newer")
        with golden.lease("default") as former, (quick_disk / "more.jsonl").open("w") as file:
            export_space(former, file.write)
        with other.lease("default") as space, golden.lease("default") as former:
            report = import_file(space, quick_disk / "more.jsonl", trust_file=True)
            assert not report.problems and report.added == 1
            assert digest(space) == digest(former)


@pytest.mark.parametrize("name", ["default", "system"])
def test_an_older_release_refuses_the_newer_file(golden: Library, name: str) -> None:
    _at(golden).remember("The file is migrated.")
    open_system(golden.path).close()
    golden.drop("default")
    system = name == "system"
    file = golden.path / "system.db" if system else golden.file("default")
    steps = SYSTEM_MIGRATIONS if system else schema.MIGRATIONS
    known: tuple[Any, ...] = steps[: WRITTEN_BY[system]]
    before = file.read_bytes()
    with pytest.raises(UnsupportedVersion, match="this release supports up to"):
        Store(file, name, steps=known)
    assert file.read_bytes() == before
