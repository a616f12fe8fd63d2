"""A directory in memory, and the figures of the runs, shown when all is done."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture
def quick_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: a killed process needs no real disk."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(prefix="commonplace-", dir=memory))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def publish(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Show a figure at the end of the run."""
    name = request.node.name

    def note(figure: str) -> None:
        request.config.stash.setdefault(_FIGURES, []).append(f"{name}: {figure}")
        if file := os.environ.get("SOAK_FIGURES"):  # tools/soak.py reads it
            with Path(file).open("a", encoding="utf-8") as stream:
                stream.write(f"{figure}\n")

    return note


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    figures = config.stash.get(_FIGURES, [])
    if figures:
        terminalreporter.section("reliability figures")
        for figure in figures:
            terminalreporter.write_line(figure)
