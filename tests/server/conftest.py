"""A server that a module's tests share, and directories in memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.harness import Running, running


def _directory(otherwise: Path) -> Iterator[Path]:
    """A directory in memory where there is one: what is tested here needs no real disk."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield otherwise
        return
    made = Path(tempfile.mkdtemp(prefix="commonplace-", dir=memory))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data directory of a test's own."""
    yield from _directory(tmp_path)


@pytest.fixture(scope="module")
def shared_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory that a module's tests share."""
    yield from _directory(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="module")
def server(shared_data: Path) -> Iterator[Running]:
    """A server on loopback, in a thread of this process."""
    with running(shared_data) as one:
        yield one
