"""What was acknowledged outlives whatever fails around a PostgreSQL database, and is stored once.

Under six writers over two servers: the database is killed, single connections of it, the servers;
a standby takes over. The whole runs are for `make soak`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import postgres_engine
from commonplace.storage.postgres import administration
from conftest import wait_until
from postgres_server import PostgresServer
from reliability.progress import counted
from reliability.team import PATIENCE, Client, Team, team

Publish = Callable[[str], None]

FORGETFUL = (
    "-c",
    """
from commonplace.storage.postgres import store
settings = store._settings
def careless(*given, **more):
    statement, values = settings(*given, **more)
    return statement, tuple("off" if value == "on" else value for value in values)
store._settings = careless
import runpy
runpy.run_module('commonplace.cli', run_name='__main__')
""",
)
"""The mutant: a server that acknowledges before the commit is on disk."""


def _checked(made: Team, publish: Publish, what: str) -> None:
    made.writers.end()
    stored = made.stored()
    told = set(made.writers.told)
    lost = told - set(stored)
    twice = [text for text, count in stored.items() if count > 1]
    publish(
        f"{what}: {len(told):,} acknowledged, {made.writers.retries:,} retries, {len(lost)} lost,"
        f" {len(twice)} stored twice"
    )
    assert not lost and not twice, (sorted(lost)[:5], twice[:5])
    assert set(stored) <= told | made.writers.unsure


KINDS = ("the database", "connections", "servers")


def test_a_few_kills_lose_nothing(quick_disk: Path, publish: Publish) -> None:
    _run_kills(KINDS * 3, quick_disk, publish)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_many_kills_lose_nothing(kind: str, quick_disk: Path, publish: Publish) -> None:
    _run_kills([kind] * 60, quick_disk, publish)


def _run_kills(kinds: Sequence[str], folder: Path, publish: Publish) -> None:
    with team(folder) as made:
        for number, kind in enumerate(counted(kinds, kinds, "kills")):
            made.writers.go_on()
            if kind == "the database":
                made.database.kill()
                made.database.start()
            elif kind == "connections":
                made.kill_backend()
            else:
                made.servers[number % 2].kill()
        made.writers.go_on()
        _checked(made, publish, f"{len(kinds)} kills of {', '.join(sorted(set(kinds)))}")
        assert made.writers.retries > 0, "no call met a kill"


def test_an_acknowledgement_before_the_commit_is_durable_is_detected(
    quick_disk: Path, publish: Publish
) -> None:
    with team(quick_disk, program=FORGETFUL, wal_writer_delay="10s") as made:
        made.writers.go_on()
        made.database.ask("CHECKPOINT")
        made.writers.go_on(30)
        made.database.kill()
        made.database.start()
        with pytest.raises(AssertionError, match="writer"):
            _checked(made, publish, "acknowledged too early")


@contextlib.contextmanager
def _with_standby(folder: Path) -> Iterator[tuple[Team, PostgresServer]]:
    """A team whose database has a standby, which the servers know too."""
    primary = postgres_engine.start()
    administration.prepare(primary.admin(), "commonplace")
    standby = postgres_engine.start(standby_of=primary)
    hosts = f"host={primary.folder},{standby.folder}&port={primary.port},{standby.port}"
    address = f"postgresql://commonplace@/postgres?{hosts}&target_session_attrs=read-write"
    try:
        made = Team(folder, primary, address)
        try:
            yield made, standby
        finally:
            made.end()
    finally:
        for each in (primary, standby):
            each.stop()
            shutil.rmtree(each.folder, ignore_errors=True)


def _wait_for(database: PostgresServer, state: str) -> None:
    statement = "SELECT sync_state FROM pg_stat_replication"
    wait_until(lambda: (state,) in database.ask(statement), PATIENCE)


def _make_synchronous(primary: PostgresServer) -> None:
    primary.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.ask("SELECT pg_reload_conf()")
    _wait_for(primary, "sync")


def _promote(made: Team, standby: PostgresServer) -> None:
    standby.ask("SELECT pg_promote()")
    standby.ask("ALTER SYSTEM RESET synchronous_standby_names")
    standby.ask("SELECT pg_reload_conf()")
    made.database = standby


def _run_failovers(rounds: int, folder: Path, publish: Publish) -> None:
    for number in counted(range(rounds), rounds, "failovers"):
        with _with_standby(folder / str(number)) as (made, standby):
            _make_synchronous(made.database)
            made.writers.go_on(30)
            made.database.kill()
            _promote(made, standby)
            made.writers.go_on(30)
            _checked(made, publish, "failover to a synchronous standby")


def test_a_failover_to_a_synchronous_standby_loses_nothing(
    quick_disk: Path, publish: Publish
) -> None:
    _run_failovers(1, quick_disk, publish)


@pytest.mark.soak
def test_ten_failovers_to_a_synchronous_standby_lose_nothing(
    quick_disk: Path, publish: Publish
) -> None:
    _run_failovers(10, quick_disk, publish)


def test_a_failover_to_an_asynchronous_standby_mixes_no_histories(
    quick_disk: Path, publish: Publish
) -> None:
    with _with_standby(quick_disk) as (made, standby):
        _wait_for(made.database, "async")
        warned = [each.message for each in administration.problems(made.address)]
        assert any("asynchronously" in message for message in warned)
        made.writers.go_on(20)
        safe = set(made.writers.told)
        ((position,),) = made.database.ask("SELECT pg_current_wal_lsn()::text")
        behind = f"SELECT 1 FROM pg_stat_replication WHERE flush_lsn >= '{position}'"
        wait_until(lambda: bool(made.database.ask(behind)), PATIENCE)
        ((sender,),) = made.database.ask("SELECT pid FROM pg_stat_replication")
        os.kill(sender, signal.SIGSTOP)
        made.writers.go_on(30)
        made.database.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(sender, signal.SIGKILL)
        _promote(made, standby)
        made.writers.go_on(30)
        made.writers.end()
        stored = made.stored()
        lost = set(made.writers.told) - set(stored)
        publish(f"asynchronous failover: {len(made.writers.told):,} acknowledged, {len(lost)} lost")
        assert lost, "this is the mutant of the synchronous failover"
        assert not lost & safe
        assert max(stored.values()) == 1
        for server in made.servers:
            _finds_only(server.port, stored, sorted(lost)[:10], sorted(stored)[-10:])


def _finds_only(port: int, stored: object, lost: Sequence[str], there: Sequence[str]) -> None:
    """A server whose index had the lost rows finds none of them, and all that is stored."""
    with contextlib.closing(Client(port)) as client:
        for text in (*lost, *there):
            found = client.call("recall", {"query": text, "limit": 20}).result["memories"]
            texts = [each["text"] for each in found]
            assert all(each in stored for each in texts)  # type: ignore[operator]
            assert (text in texts) == (text in there)
