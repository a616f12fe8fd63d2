"""A server that a module's tests share, and directories in memory."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.harness import Running, running


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """A directory in memory where there is one: what is tested here needs no real disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="commonplace-", dir=memory if memory.is_dir() else None, ignore_cleanup_errors=True
    ) as made:
        yield Path(made)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory of a test's own."""
    with directory() as made:
        yield made


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory of a test's own."""
    return tmp_path


@pytest.fixture(scope="module")
def shared_data() -> Iterator[Path]:
    """A data directory that a module's tests share."""
    with directory() as made:
        yield made


@pytest.fixture(scope="module")
def server(shared_data: Path) -> Iterator[Running]:
    """A server on loopback, in a thread of this process."""
    with running(shared_data) as one:
        yield one
