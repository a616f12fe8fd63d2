"""One server for all clients, which lets nobody in without a token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from clients import programs
from commonplace.server.credentials import Credentials, Grant
from commonplace.server.vault import open_vault
from commonplace.storage.system import open_system


@dataclass(frozen=True)
class Reachable:
    """Where the server listens, and what opens its door."""

    address: str
    token: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reachable]:
    data = tmp_path_factory.mktemp("clients") / "data"
    token = _token(data)
    with programs.serving(data, [programs.COMMAND], "--require-token") as address:
        yield Reachable(address, token)


def _token(data: Path) -> str:
    with closing(open_system(data)) as store:
        grant = Grant(dialects=frozenset({"commonplace"}))
        issued = Credentials(store, open_vault(store)).create(grant)
    return issued.token
