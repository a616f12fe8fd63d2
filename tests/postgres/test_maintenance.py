"""Backups of a database, in both directions, and what a check finds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg
import pytest

from commonplace import Commonplace
from commonplace.access.credentials import Grant
from commonplace.access.signed import Tokens
from commonplace.access.vault import open_vault
from commonplace.dialects import registry
from commonplace.errors import Conflict, NotFound, StorageCorrupt, StorageUnavailable
from commonplace.storage.database import Connection
from commonplace.storage.postgres import copying, maintenance
from commonplace.storage.sqlite.maintenance import SqliteMaintenance
from conftest import texts


def _filled(memory: Commonplace) -> None:
    first = memory.remember("an otter", tags=["river"], title="Otter", attrs={"n": 1})
    second = memory.remember("a badger 漢字", importance=0.9)
    memory.links.add(first.id, second.id, "near")
    memory.facts.add("otter", "lives in", "river")
    memory.revise(first.id, text="two otters")
    memory.forget(memory.remember("forgotten").id)
    memory.artifacts.create(b"\x00bytes", path="notes.md", title="Notes")
    memory.events.record("seen", "otter", {"a": "b"})


def _answers(memory: Commonplace) -> object:
    return (
        [(hit.memory.id, hit.score) for hit in memory.recall("otters badger", limit=10)],
        texts(memory.browse()),
        [operation.id for operation in memory.history.operations()],
    )


def test_copies_that_a_killed_command_left_are_removed(team: Commonplace, tmp_path: Path) -> None:
    code = "import os, sys, pathlib; from commonplace.storage.postgres import maintenance\n"
    code += "with maintenance._temporary_folder(pathlib.Path(sys.argv[1])) as folder:\n"
    code += "    (folder / 'copy').write_text('x'); os._exit(9)"
    path = team.library.path
    assert subprocess.run([sys.executable, "-c", code, str(path)]).returncode == 9
    (left,) = path.glob("copy-*")
    with maintenance._temporary_folder(path) as used:
        assert not left.exists()
        team.library.maintenance.backup(tmp_path / "backup")
        assert used.exists()
    assert not list(path.glob("copy-*"))
    for name in ("copy-_0older_", "copy-of-mine"):  # an earlier release's, and a person's
        (path / name / "spaces").mkdir(parents=True)
        os.utime(path / name, (0, 0))
    team.library.maintenance.check("team")
    assert [each.name for each in path.glob("copy-*")] == ["copy-of-mine"]


def test_a_backup_of_a_database_is_restored_as_files_and_back(
    team: Commonplace, tmp_path: Path
) -> None:
    _filled(team)
    before = _answers(team)
    report = team.library.maintenance.backup(tmp_path / "backup")
    assert report.spaces == {"team": 3}
    with Commonplace(tmp_path / "files", space="team", embedding="none") as files:
        if files.library.database is None:  # these tests may themselves run on PostgreSQL
            files.library.maintenance.restore(tmp_path / "backup")
            again = files.library.maintenance.backup(tmp_path / "again")
            assert again.digest == report.digest
            assert _answers(files) == before
    team.remember("after the backup")
    with pytest.raises(Conflict):
        team.library.maintenance.restore(tmp_path / "backup")
    assert "after the backup" in texts(team.browse())
    team.library.maintenance.restore(tmp_path / "backup", overwrite=True)
    assert _answers(team) == before
    team.library.maintenance.restore(tmp_path / "backup", spaces=["team"], into="other")
    assert _answers(team.at("other")) == before
    team.at("other").remember("goes on")
    assert "goes on" in texts(team.at("other").recall("goes on"))


def test_tokens_are_replaced_by_a_restore_only_where_that_was_asked_for(
    team: Commonplace, tmp_path: Path
) -> None:
    """A restore must not let in again whom a newer revocation keeps out."""
    maintenance = team.library.maintenance
    with closing(team.library.open_system()) as store:
        tokens = Tokens(store, open_vault(store), registry.token_formats())
        credentials = tokens.credentials
        made = credentials.create(Grant(space="team")).credential.id
        maintenance.backup(tmp_path / "backup")
        credentials.revoke(made)
        with pytest.raises(Conflict, match="tokens"):
            maintenance.restore(tmp_path / "backup", spaces=[], system=True)
        assert credentials.get(made).revoked_at is not None
        maintenance.restore(tmp_path / "backup", spaces=[], system=True, overwrite=True)
        assert credentials.get(made).revoked_at is None
        tokens.close()


def test_a_space_that_a_server_makes_during_a_restore_is_not_replaced(
    team: Commonplace, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _filled(team)
    maintenance = team.library.maintenance
    maintenance.backup(tmp_path / "backup")
    restored = SqliteMaintenance.restore

    def late(*given: Any, **more: Any) -> Any:
        with Commonplace(address, space="other", embedding="none") as memory:
            memory.remember("acknowledged")
        monkeypatch.setattr(maintenance, "_names", lambda: ["team"])
        return restored(*given, **more)

    monkeypatch.setattr(SqliteMaintenance, "restore", late)
    with pytest.raises(Conflict, match="other"):
        maintenance.restore(tmp_path / "backup", spaces=["team"], into="other")
    assert texts(team.at("other").browse()) == ["acknowledged"]


def _drop_a_row(count: int) -> Callable[[Iterable[object], int], Iterator[object]]:
    """A slice that loses one row, once `count` rows have passed."""
    passed = 0

    def careless(rows: Iterable[object], most: int) -> Iterator[object]:
        nonlocal passed
        for row in islice(rows, most):
            passed += 1
            if passed != count:
                yield row

    return careless


@pytest.mark.parametrize("lost", [1, 20])
def test_a_restore_that_loses_a_row_changes_nothing(
    team: Commonplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """The mutant: one row of a table, whichever it is, is left out."""
    _filled(team)
    team.library.maintenance.backup(tmp_path / "backup")
    team.remember("after the backup")
    before = _answers(team)
    monkeypatch.setattr(copying, "islice", _drop_a_row(lost))
    with pytest.raises(StorageCorrupt, match="differ from the original"):
        team.library.maintenance.restore(tmp_path / "backup", overwrite=True)
    assert _answers(team) == before
    monkeypatch.setattr(copying, "islice", _drop_a_row(lost))
    with pytest.raises(StorageCorrupt, match="differ from the original"):
        team.library.maintenance.restore(tmp_path / "backup", spaces=["team"], into="other")
    assert team.library.spaces() == ["team"]


def test_a_backup_that_loses_a_row_is_refused(
    team: Commonplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: the last row of each batch is not written."""
    _filled(team)
    whole = Connection.executemany

    def careless(file: Connection, statement: str, rows: Sequence[Sequence[Any]]) -> Any:
        return whole(file, statement, rows[:-1])

    monkeypatch.setattr(Connection, "executemany", careless)
    with pytest.raises(StorageCorrupt, match="differ from the original"):
        team.library.maintenance.backup(tmp_path / "backup")
    assert not (tmp_path / "backup").exists()
    with pytest.raises(StorageCorrupt, match="differ from the original"):
        team.library.maintenance.check("team")


def test_a_sound_space_is_healthy_and_a_changed_row_is_found(
    team: Commonplace, address: str
) -> None:
    _filled(team)
    found = team.library.maintenance.check("team")
    assert found.healthy, found
    assert team.library.maintenance.repair("team").rebuilt == []
    with psycopg.connect(address.replace("//commonplace@", "//admin@")) as admin:
        admin.execute("UPDATE commonplace.memories SET text = 'another' WHERE text = 'two otters'")
        admin.execute("UPDATE commonplace.lexemes SET terms = '\\x00' WHERE memory = 2")
    wrong = team.library.maintenance.check("team")
    assert not wrong.healthy
    assert {"memories", "lexemes"} <= {finding.check for finding in wrong.findings}
    report = team.library.maintenance.repair("team")
    assert report.rebuilt and {finding.check for finding in report.after.findings} == {"memories"}
    again = team.library.maintenance.check("team")
    assert {finding.check for finding in again.findings} == {"memories"}, "a row is only reported"
    with pytest.raises(NotFound):
        team.library.maintenance.repair("nowhere")
    with pytest.raises(StorageUnavailable):
        team.library.maintenance.salvage("team", Path("nowhere"))


def test_the_audit_above_the_spaces_is_checked_and_backed_up(
    team: Commonplace, tmp_path: Path
) -> None:
    team.remember("x")
    assert [each.space for each in team.library.maintenance.check_shared_files()] == ["system.db"]
    assert team.library.maintenance.backup(tmp_path / "backup").files == ("system.db",)


@pytest.mark.parametrize("table", ["lexemes", "passages", "labels", "grams"])
def test_derived_rows_are_rebuilt(team: Commonplace, address: str, table: str) -> None:
    _filled(team)
    before = _answers(team)
    with psycopg.connect(address.replace("//commonplace@", "//admin@")) as admin:
        admin.execute(f"DELETE FROM commonplace.{table}")  # type: ignore[arg-type]
    report = team.library.maintenance.repair("team")
    assert report.rebuilt and report.after.healthy
    assert team.library.maintenance.check("team").findings == []
    assert _answers(team) == before
    team.remember("goes on")
    assert "goes on" in texts(team.recall("goes"))
