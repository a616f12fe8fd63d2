"""Directories that only their owner can open."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from commonplace.storage.directories import make_private, remove_unfinished, replace_file


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_directory_that_is_made_is_private(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "b" / "c")

    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)

    make_private(tmp_path / "open" / "inner")

    assert (mode(tmp_path / "open"), mode(tmp_path / "open" / "inner")) == (0o755, 0o700)


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = tmp_path / "deep" / f".config.yaml.{ended.pid}.0123abcd.part"
    left.parent.mkdir()
    kept = [tmp_path / name for name in ("a.part", f".a.{ended.pid}.part", ".b.1.0123abcd.parts")]
    for file in (left, *kept):
        file.write_text("half")
    with replace_file(tmp_path / "new") as stream:  # by a process that runs
        stream.write(b"whole")
        remove_unfinished(tmp_path)
    assert not left.exists() and all(file.exists() for file in kept)
    assert (tmp_path / "new").read_bytes() == b"whole"
    remove_unfinished(tmp_path / "missing")
