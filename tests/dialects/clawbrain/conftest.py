"""What the tests of ClawBrain share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .brain import Brain, opened


@pytest.fixture
def brain(tmp_path: Path) -> Iterator[Brain]:
    """A server with an empty memory directory."""
    with opened(tmp_path / "data", tmp_path / "memory") as found:
        yield found
