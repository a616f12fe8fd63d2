"""What is told when the database, or the way to it, fails: the truth, and nothing is stored twice.

The long runs are for `make soak`; these are a twentieth of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import postgres_engine
from commonplace import Commonplace
from commonplace.errors import CommonplaceError, StorageUnavailable
from commonplace.storage.postgres import administration
from commonplace.storage.postgres import store as postgres_store
from conftest import texts
from postgres.wire import Wire
from server.harness import running
from server.test_errors import TELLING


@pytest.fixture
def wire(address: str) -> Iterator[Wire]:
    made = Wire(postgres_engine.server().port)
    yield made
    made.close()


@pytest.fixture
def distant(address: str, wire: Wire, tmp_path: Path) -> Iterator[Commonplace]:
    """A space behind that wire. Statements are not prepared, so that a COMMIT can be seen."""
    name = psycopg.conninfo.conninfo_to_dict(address)["dbname"]
    through = f"postgresql://commonplace:secret@127.0.0.1:{wire.port}/{name}?prepare=off"
    with Commonplace(through, space="team", embedding="none") as memory:
        yield memory


@pytest.mark.parametrize("kind", ["memory", "counter"])
def test_a_commit_whose_answer_is_lost_is_looked_up(
    distant: Commonplace, wire: Wire, kind: str
) -> None:
    from commonplace.engine.binding import lease

    distant.remember("first")
    for at in range(10):
        wire.cut = "after"
        if kind == "memory":
            assert distant.remember(f"number {at}").text == f"number {at}"
        else:
            with lease(distant) as space, space.store.maintain() as rows:
                rows.execute(
                    "INSERT INTO labels (space, label, memory) VALUES ('team', ?, 1)", (f"x{at}",)
                )
    assert wire.cuts == 10
    if kind == "memory":
        assert sorted(texts(distant.browse())) == ["first", *(f"number {at}" for at in range(10))]


def test_a_commit_that_never_reached_the_database_is_refused(
    distant: Commonplace, wire: Wire
) -> None:
    distant.remember("first")
    for at in range(10):
        wire.cut = "before"
        with pytest.raises(StorageUnavailable):
            distant.remember(f"number {at}")
    assert wire.cuts == 10
    assert texts(distant.browse()) == ["first"]
    distant.remember("goes on")
    assert sorted(texts(distant.browse())) == ["first", "goes on"]


def test_an_answer_that_is_taken_for_granted_is_detected(
    distant: Commonplace, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: a lost commit is called stored without looking."""
    monkeypatch.setattr(postgres_store._Session, "_was_stored", lambda self, head: True)
    distant.remember("first")
    wire.cut = "before"
    distant.remember("acknowledged and lost")
    assert texts(distant.browse()) == ["first"]


def test_a_space_that_a_failover_lost_is_made_again(team: Commonplace, address: str) -> None:
    team.remember("lost")
    with psycopg.connect(address.replace("//commonplace@", "//admin@")) as connection:
        tables = connection.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r'"
            " AND relnamespace = 'commonplace'::regnamespace AND relname <> 'schema_version'"
        ).fetchall()
        for (table,) in tables:
            connection.execute(f"DELETE FROM {table}")  # type: ignore[arg-type]
    team.remember("stored again")
    assert texts(team.browse()) == ["stored again"]
    assert texts(team.recall("stored lost")) == ["stored again"]
    assert team.library.spaces() == ["team"]


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    server = postgres_engine.start()
    address = administration.set_up(server.admin(), "commonplace").address
    told: list[str] = []
    unsure: list[str] = []
    ended = threading.Event()

    def write(memory: Commonplace, name: str) -> None:
        number = 0
        while not ended.is_set():
            number += 1
            text = f"{name} number {number}"
            try:
                memory.remember(text)
                told.append(text)
            except CommonplaceError:
                unsure.append(text)
                time.sleep(0.05)

    try:
        with (
            Commonplace(address, space="team", embedding="none") as one,
            Commonplace(f"{address}&pool=8", space="team", embedding="none") as two,
        ):
            one.remember("first")
            threads = [
                threading.Thread(target=write, args=(memory, f"{at} {name}"))
                for at in range(3)
                for name, memory in (("one", one), ("two", two))
            ]
            for thread in threads:
                thread.start()
            for _ in range(3):
                before = len(told)
                while len(told) < before + 20:
                    time.sleep(0.02)
                server.kill()
                server.start()
            before = len(told)
            while len(told) < before + 20:
                time.sleep(0.02)
            ended.set()
            for thread in threads:
                thread.join(60)
            stored: list[str] = []
            while page := texts(one.browse(limit=1000, offset=len(stored))):
                stored += page
            assert one.library.maintenance.check("team").healthy
    finally:
        ended.set()
        server.stop()
    assert set(told) <= set(stored), "an acknowledged memory is lost"
    assert len(stored) == len(set(stored)), "a memory is stored twice"
    assert unsure, "no call met the kill"


def test_clients_are_not_told_where_a_database_is_that_does_not_answer(
    address: str, tmp_path: Path
) -> None:
    """T40: neither its host nor its name, whoever asks and whatever is asked."""
    wire = Wire(postgres_engine.server().port)
    name = str(psycopg.conninfo.conninfo_to_dict(address)["dbname"])
    through = f"postgresql://commonplace:secret@127.0.0.1:{wire.port}/{name}"
    with running(tmp_path / "machine", database=through) as server:
        known = server.client(server.token("team"))
        reader = server.client(server.token("team", {"read"}))
        assert known.call("remember", {"text": "an otter"}).result
        wire.close()
        with psycopg.connect(address.replace("//commonplace@", "//admin@")) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'commonplace' AND datname = current_database()"
            )
        answers = [
            known.call("remember", {"text": "a badger"}),
            known.call("recall", {"query": "otter"}),
            reader.call("remember", {"text": "a badger"}),
            reader.call("no_such_tool", {}),
            known.request("GET", "/metrics"),
            server.client("cp_wrong").call("recall", {"query": "otter"}),
            server.client().call("recall", {"query": "otter"}),
            server.client().call("remember", {"text": "a badger"}),
            server.client().request("GET", "/health"),
        ]
    for answer in answers:
        told = answer.body.decode()
        assert not TELLING.search(answer.body), told
        for secret in (name, "127.0.0.1", str(wire.port), "secret"):
            assert secret not in told
    assert [answer.status for answer in answers[:5]] == [503] * 5
    assert all(b"STORAGE_UNAVAILABLE" in answer.body for answer in answers[:5])
