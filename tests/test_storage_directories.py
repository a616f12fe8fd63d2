"""Directories that only their owner can open."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from commonplace.storage.directories import make_private


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
