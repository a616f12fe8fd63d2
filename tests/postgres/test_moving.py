"""Moving an installation from files to a database and back: all rows, once, or a clear refusal."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

import postgres_engine
from commonplace import Commonplace
from commonplace.cli.app import app
from commonplace.engine.library import Library
from commonplace.errors import Conflict, NotFound, StorageCorrupt
from commonplace.storage import moving
from commonplace.storage.postgres import copying
from conftest import texts


def _filled(path: Path, *spaces: str) -> None:
    with closing(Library(path, embedder=None)) as library:
        for space in spaces:
            memory = Commonplace(space=space, library=library)
            first = memory.remember(f"an otter of {space}", tags=["river"], attrs={"n": 1})
            second = memory.remember("a badger 漢字", importance=0.9)
            memory.links.add(first.id, second.id, "near")
            memory.facts.add("otter", "lives in", "river")
            memory.revise(first.id, text=f"two otters of {space}")
            memory.forget(memory.remember("forgotten").id)
            memory.artifacts.create(b"\x00bytes", path="notes.md", title="Notes")
            memory.events.record("seen", "otter", {"a": "b"})


def _answers(memory: Commonplace) -> object:
    return (
        [(hit.memory.id, hit.score) for hit in memory.recall("otters badger", limit=10)],
        texts(memory.browse()),
        [operation.id for operation in memory.history.operations()],
        [memory.artifacts.read(each.id) for each in memory.artifacts.all()],
    )


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Path]:
    """An installation of two spaces and a token."""
    path = tmp_path / "files"
    _filled(path, "garden", "team")
    made = CliRunner().invoke(
        app,
        [
            "token",
            "create",
            "--name",
            "laptop",
            "--space",
            "team",
            "--dialect",
            "mama",
            "--data",
            str(path),
        ],
    )
    assert made.exit_code == 0, made.output
    yield path
    postgres_engine.forget(tmp_path)


def _run(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, object]]:
    command = ["move", *arguments, "--data", str(tmp_path / "machine"), "--json"]
    done = CliRunner().invoke(app, command)
    printed = done.stdout.strip()
    return done.exit_code, json.loads(printed) if printed.startswith("{") else {}


def test_an_installation_moves_into_a_database_and_back(
    files: Path, address: str, tmp_path: Path
) -> None:
    with Commonplace(files, space="team", embedding="none") as memory:
        before = _answers(memory)
    code, report = _run(tmp_path, str(files), address)
    assert code == 0 and report["there"] == [] and report["system"] == "moved"
    assert sorted(report["moved"]) == ["garden", "team"]  # type: ignore[call-overload]
    with Commonplace(address, space="team", embedding="none") as memory:
        assert _answers(memory) == before
        assert memory.library.maintenance.check("team").healthy
    listed = subprocess.run(
        [sys.executable, "-m", "commonplace.cli", "token", "list", "--data", str(files),
         "--database", address],
        capture_output=True, text=True,
    )  # fmt: skip
    assert "laptop" in listed.stdout, "the master key of the source fits"
    code, report = _run(tmp_path, str(files), address)
    assert code == 0 and report == {"moved": {}, "there": ["garden", "team"], "system": "there"}
    back = tmp_path / "back"
    code, report = _run(tmp_path, address, str(back))
    assert code == 0 and report["system"] == "moved"
    with (
        Commonplace(back, space="team", embedding="none") as memory,
        Commonplace(files, space="team", embedding="none") as former,
    ):
        assert _answers(memory) == before == _answers(former), "the source is as it was"
        memory.remember("goes on")
        assert "goes on" in texts(memory.browse())


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_all_rows_move_whatever_the_size_of_a_batch(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    _filled(tmp_path / "files", "team")
    monkeypatch.setattr(copying, "BATCH", batch)
    with Commonplace(tmp_path / "files", space="team", embedding="none") as memory:
        before = _answers(memory)
    code, _ = _run(tmp_path, str(tmp_path / "files"), address)
    assert code == 0
    with Commonplace(address, space="team", embedding="none") as memory:
        assert _answers(memory) == before
        assert memory.library.maintenance.check("team").healthy


def test_one_space_moves_alone(files: Path, address: str, tmp_path: Path) -> None:
    code, report = _run(tmp_path, str(files), address, "--space", "garden")
    assert code == 0 and report["system"] == "left out" and report["there"] == []
    with Commonplace(address, space="garden", embedding="none") as memory:
        assert memory.library.spaces() == ["garden"]
        assert "two otters of garden" in texts(memory.browse())
    code, report = _run(tmp_path, str(files), address)
    assert code == 0 and report["there"] == ["garden"] and [*report["moved"]] == ["team"]  # type: ignore[misc]


def test_a_target_that_holds_something_else_is_refused(
    files: Path, address: str, tmp_path: Path
) -> None:
    with Commonplace(address, space="team", embedding="none") as memory:
        memory.remember("mine")
    before = postgres_engine.Place(address, "team").content()
    with (
        closing(Library(files, embedder=None)) as source,
        closing(Library(tmp_path, embedder=None, database=address)) as target,
    ):
        with pytest.raises(Conflict, match="space team"):
            moving.move(source, target)
        assert target.spaces() == ["team"], "not even the other space was moved"
        with pytest.raises(NotFound):
            moving.move(source, target, spaces=["nowhere"])
    assert postgres_engine.Place(address, "team").content() == before
    code, _ = _run(tmp_path, str(files), str(files))
    assert code != 0
    code, _ = _run(tmp_path, str(tmp_path / "nothing"), address)
    assert code != 0 and not (tmp_path / "nothing").exists()


def test_an_empty_space_of_the_same_name_does_not_matter(
    files: Path, address: str, tmp_path: Path
) -> None:
    with closing(Library(tmp_path / "machine", embedder=None, database=address)) as target:
        with target.lease("team"):
            pass
        assert target.spaces() == ["team"]
    code, report = _run(tmp_path, str(files), address)
    assert code == 0 and sorted(report["moved"]) == ["garden", "team"]  # type: ignore[call-overload]


def test_what_a_server_of_the_target_stores_meanwhile_is_not_replaced(
    files: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored after the target was looked at, and before the space is copied."""
    copy = moving._Mover.copy

    def late(mover: moving._Mover, name: str | None) -> int:
        if name == "team":
            with Commonplace(address, space="team", embedding="none") as memory:
                memory.remember("acknowledged")
        return copy(mover, name)

    monkeypatch.setattr(moving._Mover, "copy", late)
    with (
        closing(Library(files, embedder=None)) as source,
        closing(Library(tmp_path / "machine", embedder=None, database=address)) as target,
        pytest.raises(Conflict, match="space team"),
    ):
        moving.move(source, target)
    with Commonplace(address, space="team", embedding="none") as memory:
        assert texts(memory.browse()) == ["acknowledged"]


def test_other_files_in_the_target_are_left_alone(address: str, tmp_path: Path) -> None:
    _filled(tmp_path / "files", "team")
    assert _run(tmp_path, str(tmp_path / "files"), address)[0] == 0
    other = tmp_path / "documents" / "move-to-berlin"
    other.mkdir(parents=True)
    (other / "lease.txt").write_text("mine")
    assert _run(tmp_path, address, str(tmp_path / "documents"))[0] == 0
    assert (other / "lease.txt").read_text() == "mine"


def test_a_row_that_is_lost_on_the_way_is_detected(
    files: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: a label is dropped."""
    whole = copying.read_space

    def careless(rows: object, space: str, *more: object) -> None:
        whole(rows, space, *more)  # type: ignore[arg-type]
        rows.execute("DELETE FROM labels WHERE space = ?", (space,))  # type: ignore[attr-defined]

    monkeypatch.setattr(copying, "read_space", careless)
    with (
        closing(Library(files, embedder=None)) as source,
        closing(Library(tmp_path / "machine", embedder=None, database=address)) as target,
        pytest.raises(StorageCorrupt, match="labels"),
    ):
        moving.move(source, target)


def test_a_move_that_was_killed_goes_on(address: str, tmp_path: Path) -> None:
    address += "&lease=1"
    names = [f"space{number:02}" for number in range(6)]
    _filled(tmp_path / "many", *names)
    command = [
        sys.executable, "-m", "commonplace.cli", "move", str(tmp_path / "many"), address,
        "--data", str(tmp_path / "machine"), "--json",
    ]  # fmt: skip
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    plain = address.removesuffix("&lease=1")
    with psycopg.connect(plain, autocommit=True) as connection:
        while connection.execute("SELECT count(*) FROM commonplace.spaces").fetchone()[0] < 2:  # type: ignore[index]
            assert first.poll() is None
    first.kill()
    first.wait()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert 2 <= len(report["there"]) < 6
    assert sorted([*report["moved"], *report["there"]]) == names
    with closing(Library(tmp_path / "machine", embedder=None, database=address)) as target:
        assert target.spaces() == names
        assert all(target.maintenance.check(name).healthy for name in names[:2])
    assert not list((tmp_path / "machine").glob(".commonplace-move-*")), "temporary copies are gone"
