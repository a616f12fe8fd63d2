"""What was acknowledged outlives whatever fails around a PostgreSQL database, and is stored once.

Under six writers over two servers: the database is killed, single connections of it, the servers;
a standby takes over. Connections are cut around a COMMIT. The whole runs are for `make soak`.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

import postgres_engine
from commonplace import Commonplace
from commonplace.errors import CommonplaceError
from commonplace.storage.postgres import administration
from commonplace.storage.postgres import store as postgres_store
from conftest import texts, wait_until
from postgres.wire import CUTS, Wire
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
    administration.set_up(primary.admin(), "commonplace")
    standby = postgres_engine.start(standby_of=primary)
    _wait_for(primary, "async")
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
    _run_asynchronous(1, quick_disk, publish)


@pytest.mark.soak
def test_ten_failovers_to_an_asynchronous_standby_mix_no_histories(
    quick_disk: Path, publish: Publish
) -> None:
    _run_asynchronous(10, quick_disk, publish)


def _run_asynchronous(rounds: int, folder: Path, publish: Publish) -> None:
    told = lost = 0
    for number in counted(range(rounds), rounds, "failovers"):
        made, gone = _fail_over_asynchronously(folder / str(number))
        told += len(made.writers.told)
        lost += len(gone)
        for server in made.servers:
            assert "Replication to a standby is asynchronous" in server.process.errors
    publish(
        f"{rounds} failovers to an asynchronous standby: {told:,} acknowledged, {lost} lost, 0 of"
        " them from before the standby fell behind, 0 stored twice; up to 10 of the lost asked for"
        " at each server after each failover, 0 found"
    )


def _fail_over_asynchronously(folder: Path) -> tuple[Team, set[str]]:
    """Lose what the standby did not have yet; the team, which has ended, and what was lost."""
    with _with_standby(folder) as (made, standby):
        warned = [each.message for each in administration.problems(made.address)]
        assert any("asynchronous" in message for message in warned)
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
        assert lost, "this is the mutant of the synchronous failover"
        assert not lost & safe
        assert max(stored.values()) == 1
        for server in made.servers:
            _finds_only(server.port, stored, sorted(lost)[:10], sorted(stored)[-10:])
    return made, lost


def _finds_only(port: int, stored: object, lost: Sequence[str], there: Sequence[str]) -> None:
    """A server whose index had the lost rows finds none of them, and all that is stored."""
    with contextlib.closing(Client(port)) as client:
        for text in (*lost, *there):
            found = client.call("recall", {"query": text, "limit": 20}).result["memories"]
            texts = [each["text"] for each in found]
            assert all(each in stored for each in texts)  # type: ignore[operator]
            assert (text in texts) == (text in there)


CUT_SEED = 1_117


class Callers:
    """Threads that store one memory after the other, and believe what they are told.

    A call that was refused is made again, without an idempotency key. So a call that was stored and
    refused is stored twice, and one that was acknowledged and not stored is missing.
    """

    def __init__(self, memory: Commonplace, count: int = 3) -> None:
        self._memory = memory
        self._ended = threading.Event()
        self.told: list[str] = []
        self.refused = 0
        self.unsure: list[str] = []
        self._threads = [threading.Thread(target=self._store, args=(n,)) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def _store(self, number: int) -> None:
        line = 0
        while not self._ended.is_set():
            line += 1
            self._store_until_told(f"caller{number} line{line}")

    def _store_until_told(self, text: str) -> None:
        while True:
            try:
                self._memory.remember(text)
            except CommonplaceError as error:
                if "does not say" in error.message:
                    self.unsure.append(text)
                    return
                self.refused += 1
            else:
                self.told.append(text)
                return

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def _run_cuts(count: int, folder: Path, publish: Publish) -> None:
    chance = random.Random(CUT_SEED)
    # As many of each, in any order.
    places = [CUTS[number % len(CUTS)] for number in range(count)]
    chance.shuffle(places)
    address = postgres_engine.address_for(folder / "rows")
    name = psycopg.conninfo.conninfo_to_dict(address)["dbname"]
    wire = Wire(postgres_engine.server().port)
    # Statements are not prepared, so that a COMMIT can be seen.
    through = f"postgresql://commonplace:secret@127.0.0.1:{wire.port}/{name}?prepare=off"
    try:
        with Commonplace(through, space="team", embedding="none") as memory:
            memory.remember("first")
            callers = Callers(memory)
            try:
                for number, place in enumerate(counted(places, places, "cuts"), 1):
                    wire.cut = place
                    wait_until(lambda number=number: wire.cuts == number, PATIENCE)
                before = len(callers.told)
                wait_until(lambda: len(callers.told) >= before + 3, PATIENCE)
            finally:
                callers.end()
            stored: Counter[str] = Counter()
            while page := texts(memory.browse(limit=1_000, offset=stored.total())):
                stored.update(page)
            assert memory.library.maintenance.check("team").healthy
    finally:
        wire.close()
        postgres_engine.forget(folder)
    lost = set(callers.told) - set(stored)
    twice = [text for text, times in stored.items() if times > 1]
    publish(
        f"{wire.cuts} connections cut around COMMIT (seed {CUT_SEED}): {len(callers.told):,}"
        f" acknowledged, {callers.refused} refused, {len(callers.unsure)} told that it is unknown,"
        f" {len(lost)} acknowledged and lost, {len(twice)} refused and stored"
    )
    assert not lost and not twice, (sorted(lost)[:5], twice[:5])
    assert not callers.unsure, "the database answers again at once, so it can be asked"
    assert callers.refused, "no call met a cut"


def test_callers_are_told_the_truth_about_a_commit_that_was_cut(
    tmp_path: Path, publish: Publish
) -> None:
    _run_cuts(12, tmp_path, publish)


@pytest.mark.soak
def test_callers_are_told_the_truth_about_240_commits_that_were_cut(
    tmp_path: Path, publish: Publish
) -> None:
    _run_cuts(240, tmp_path, publish)


@pytest.mark.parametrize("believed", [True, False])
def test_a_guess_about_a_commit_that_was_cut_is_detected(
    tmp_path: Path, publish: Publish, monkeypatch: pytest.MonkeyPatch, believed: bool
) -> None:
    """The mutants: a COMMIT without an answer counts as stored, or as not stored, unseen."""
    monkeypatch.setattr(postgres_store._Session, "_was_stored", lambda self, head: believed)
    with pytest.raises(AssertionError, match="caller"):
        _run_cuts(6, tmp_path, publish)
