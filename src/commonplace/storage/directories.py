"""Directories that only their owner can open."""

from __future__ import annotations

from pathlib import Path


def make_private(directory: Path) -> None:
    """Make a directory and its missing parents, each 0700; one that is there keeps its mode."""
    for missing in reversed(
        [each for each in (directory, *directory.parents) if not each.exists()]
    ):
        missing.mkdir(mode=0o700, exist_ok=True)
