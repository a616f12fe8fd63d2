"""Installed from the registry into an empty environment; and data that an older wheel wrote."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from commonplace import DISTRIBUTION
from installing import Environment, build_wheel, use_as_newcomer

ROOT = Path(__file__).parents[2]
OLDER = "c7807eb"
"""The commit before rows could grow, before PostgreSQL, and before the second encoder."""


def _installed(wheel: Path, tmp_path: Path, name: str, *more: str) -> Environment:
    """A wheel with what it needs, from the registry of packages."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    made = Environment(tmp_path / name, home)
    made.pip("install", "--quiet", str(wheel), *more)
    return made


@pytest.mark.soak
def test_a_newcomer_installs_uses_and_uninstalls_it_by_the_wheel_alone(tmp_path: Path) -> None:
    made = _installed(build_wheel(ROOT, tmp_path / "wheels"), tmp_path, "fresh")
    use_as_newcomer(made)
    made.pip("uninstall", "--yes", "--quiet", DISTRIBUTION)
    assert not list(made.bin.glob("commonplace*"))
    assert (tmp_path / "home" / ".commonplace" / "spaces" / "default.db").exists()


@pytest.mark.soak
def test_data_of_an_older_wheel_is_opened_used_and_kept(tmp_path: Path) -> None:
    source = tmp_path / "source"
    packed = subprocess.run(
        ["git", "archive", OLDER], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(source, filter="data")
    # that version did not name all that it imported
    older = _installed(build_wheel(source, tmp_path / "old"), tmp_path, "older", "fastapi")
    older.run("commonplace", "remember", "Alice moved to the vision team", "--tag", "people")
    older.run("commonplace", "remember", "The staging database is restored every Monday")
    before = older.run("commonplace", "export")
    newer = _installed(build_wheel(ROOT, tmp_path / "new"), tmp_path, "newer")
    assert "every Monday" in newer.run("commonplace", "search", "when is staging reset?")
    assert "people" in newer.run("commonplace", "search", "which team is Alice on?")
    assert "default: healthy" in newer.run("commonplace", "doctor")
    newer.run("commonplace", "undo")
    assert len(newer.run("commonplace", "list", "--json").splitlines()) == 1
    newer.run("commonplace", "remember", "Bob likes tea")
    assert "tea" in newer.run("commonplace", "search", "what does Bob drink?")
    assert before.count('"text"') >= 2
