"""A database of PostgreSQL for each test, whatever engine the other tests run on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import postgres_engine
from commonplace import Commonplace


@pytest.fixture(autouse=True)
def directories_are_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an address means a database here, whatever engine the other tests run on."""
    postgres_engine.use_files(monkeypatch.setattr)
    monkeypatch.setenv("COMMONPLACE_TEST_ENGINE", "sqlite")  # for processes that a test starts


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The app's address of an empty database."""
    yield postgres_engine.address_for(tmp_path / "rows")
    postgres_engine.forget(tmp_path)


@pytest.fixture
def team(address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Commonplace]:
    """An empty space in that database."""
    monkeypatch.setenv("COMMONPLACE_DATA", str(tmp_path / "machine"))
    with Commonplace(address, space="team", embedding="none") as opened:
        yield opened
