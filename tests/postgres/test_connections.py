"""Connections that break, run out, or are shared by several servers."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import psycopg
import pytest

import loop_guard
import postgres_engine
from commonplace import Commonplace
from commonplace.engine import library
from commonplace.engine.binding import lease
from commonplace.engine.library import Library
from commonplace.errors import StorageUnavailable
from commonplace.storage.postgres import connections
from conftest import texts, wait_until


def _end_backends(address: str) -> int:
    """End every connection of the app to a database, as an administrator can."""
    name = psycopg.conninfo.conninfo_to_dict(address)["dbname"]
    with psycopg.connect(postgres_engine.server().admin(), autocommit=True) as admin:
        found = admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = %s AND usename = 'commonplace'",
            (name,),
        )
        return len(found.fetchall())


def test_a_connection_that_died_while_idle_is_replaced(team: Commonplace, address: str) -> None:
    team.remember("first")
    assert _end_backends(address)
    assert texts(team.browse()) == ["first"]
    assert _end_backends(address)
    team.remember("second")
    assert texts(team.recall("second")) == ["second"]


def test_a_connection_that_dies_in_a_unit_loses_that_unit_alone(
    team: Commonplace, address: str
) -> None:
    team.remember("before")
    with pytest.raises(StorageUnavailable), team.unit("broken"):
        team.remember("lost")
        assert _end_backends(address)
        team.remember("lost too")
    team.remember("after")
    assert sorted(texts(team.browse())) == ["after", "before"]


def test_two_servers_see_each_others_writes_at_once(team: Commonplace, address: str) -> None:
    with Commonplace(address, space="team", embedding="none") as other:
        kept = team.remember("an otter")
        assert texts(other.recall("otter")) == ["an otter"]
        other.revise(kept.id, text="a badger")
        assert texts(team.recall("badger")) == ["a badger"]
        assert texts(team.recall("otter")) == []
        team.undo()
        assert texts(other.recall("otter")) == ["an otter"]


def test_servers_that_write_at_the_same_time_number_their_operations_without_gaps(
    team: Commonplace, address: str
) -> None:
    def store(memory: Commonplace, name: str) -> None:
        for at in range(20):
            memory.remember(f"{name} {at}")

    with Commonplace(address, space="team", embedding="none") as other:
        threads = [
            threading.Thread(target=store, args=(memory, f"{at} {name}"))
            for at in range(3)
            for name, memory in (("one", team), ("two", other))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with lease(other) as space, space.store.read() as rows:
            found = rows.execute(
                "SELECT count(*), min(num), max(num) FROM operations WHERE space = 'team'"
            )
            assert found.fetchone() == (120, 1, 120)
        assert len(texts(team.browse(limit=200))) == len(texts(other.browse(limit=200))) == 120


def test_more_threads_than_connections_wait_their_turn(address: str, tmp_path: Path) -> None:
    with Commonplace(f"{address}&pool=2", embedding="none") as memory:
        done: list[str] = []

        def work(at: int) -> None:
            memory.remember(f"number {at}")
            done.extend(texts(memory.recall(f"{at}")))

        threads = [threading.Thread(target=work, args=(at,)) for at in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert {f"number {at}" for at in range(12)} <= set(done)


def test_the_guard_finds_a_connection_in_a_loops_thread(address: str) -> None:
    def use() -> None:
        with psycopg.Connection.connect(address) as opened:
            opened.execute("SELECT 1").fetchone()

    async def serve(on_the_loop: bool) -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        await asyncio.to_thread(use)
        loop.call_soon(lambda: (use() if on_the_loop else None, done.set()))
        await done.wait()

    asyncio.run(serve(False))
    assert loop_guard.found == []
    asyncio.run(serve(True))
    stacks, loop_guard.found[:] = list(loop_guard.found), []
    assert len(stacks) >= 3  # opening, the statement, and the commit


def test_a_database_keeps_many_spaces_open_until_their_indexes_are_large(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "OPEN_SPACES", 2)
    monkeypatch.setattr(library, "OPEN_IN_DATABASE", 5)
    opened = Library(tmp_path, embedder=None, database=address)
    spaces = [Commonplace(space=f"s{number}", library=opened) for number in range(8)]
    for number, space in enumerate(spaces):
        space.remember(f"number {number} walrus")

    def open_after_a_round() -> int:
        for number, space in enumerate(spaces):
            assert texts(space.recall("walrus")) == [f"number {number} walrus"]
        return len(opened._opened)

    # One that the background work uses at this moment stays open for a while.
    wait_until(lambda: open_after_a_round() == 5)
    monkeypatch.setattr(library, "MOST_RESIDENT", 3)
    wait_until(lambda: open_after_a_round() == 4)  # the last one had loaded nothing when it opened
    opened.close()


@pytest.mark.parametrize(("more", "seconds"), [("", "10"), ("&keepalives_idle=99", "99")])
def test_a_host_that_is_gone_is_noticed_unless_the_address_says_otherwise(
    address: str, more: str, seconds: str
) -> None:
    with Commonplace(address + more, space="team", embedding="none") as memory:
        memory.remember("a heron")
        (pool,) = (one for given, one in connections._SHARED.items() if given == address + more)
        connection = pool._connect()
        told = connection.info.get_parameters()
        connection.close()
    assert told["keepalives_idle"] == seconds
    assert told["tcp_user_timeout"] == "30000"
