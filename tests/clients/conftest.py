"""One server for all clients, which lets nobody in without a token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from commonplace.dialects.being import beings
from commonplace.engine.commonplace import Commonplace
from server.conftest import shared_data, tmp_path
from server.harness import running

__all__ = ["shared_data", "tmp_path"]


@dataclass(frozen=True)
class Reachable:
    """Where the server listens, and what opens its door."""

    address: str
    token: str
    being: str
    being_token: str


@pytest.fixture(scope="module")
def server(shared_data: Path) -> Iterator[Reachable]:
    with running(shared_data / "http", require_token=True) as one:
        owned = Commonplace(library=one.parts.library, space="owner")
        beings.create(owned, "Brin")
        yield Reachable(
            one.settings.base_url,
            one.token(dialects=frozenset({"commonplace"})),
            being := beings.create(owned, "Aria").id,
            one.token("owner", dialects=frozenset({"being"}), subject=being),
        )
