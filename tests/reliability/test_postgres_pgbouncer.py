"""PgBouncer in transaction mode: eight tenants share few connections, and none meets another."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import postgres_engine
from commonplace import Commonplace
from commonplace.engine.binding import lease
from commonplace.storage.postgres import store
from conftest import wait_until
from reliability.team import free_port

TENANTS = 8
CONFIG = """
[databases]
{database} = host={host} port={port} dbname={database}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 3
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
logfile = {folder}/log
"""


@pytest.fixture
def bouncer(tmp_path: Path) -> Iterator[str]:
    """The address of an empty database by way of PgBouncer."""
    address = postgres_engine.address_for(tmp_path / "rows")
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None, "install the package pgbouncer"
    known = psycopg.conninfo.conninfo_to_dict(address)
    folder = Path(str(known["host"])) / f"bouncer-{time.time_ns()}"
    folder.mkdir()
    listen = free_port()
    values = {**known, "database": known["dbname"], "listen": listen, "folder": folder}
    (folder / "ini").write_text(CONFIG.format(**values))
    (folder / "users").write_text('"commonplace" ""\n')
    command = [program, str(folder / "ini")]
    if os.geteuid() == 0:  # it refuses to run as root
        folder.chmod(0o777)
        shutil.chown(folder, 65534, 65534)
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    plain = f"postgresql://commonplace@127.0.0.1:{listen}/{known['dbname']}"

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        try:
            psycopg.connect(plain).close()
        except psycopg.OperationalError:
            return False
        return True

    try:
        wait_until(answers, 60)
        yield f"{plain}?prepare=off&pool=32"
    finally:
        process.terminate()
        process.wait(30)
        postgres_engine.forget(tmp_path)


def _crossings(address: str, transactions: int) -> tuple[int, int]:
    """(transactions, how many of them saw another tenant's rows) of all tenants together."""
    seen: list[tuple[int, int]] = []

    def act(name: str) -> None:
        count = wrong = 0
        with Commonplace(address, space=name, embedding="none") as memory:
            for number in range(transactions // TENANTS // 3):
                stored = memory.remember(f"{name} number {number}")
                with lease(memory) as space, space.store.read() as rows:
                    # Without its condition on the space, a statement shows what it may see at all.
                    found = rows.execute("SELECT DISTINCT space FROM memories").fetchall()
                wrong += found != [(name,)]
                hits = memory.recall(f"{name} number {number}", limit=3)
                wrong += stored.id not in [hit.memory.id for hit in hits]
                wrong += any(not hit.memory.text.startswith(name) for hit in hits)
                count += 3
        seen.append((count, wrong))

    threads = [threading.Thread(target=act, args=(f"tenant{n}",)) for n in range(TENANTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == TENANTS, "a tenant failed"
    return sum(count for count, _ in seen), sum(wrong for _, wrong in seen)


def test_tenants_do_not_meet_in_a_shared_connection(bouncer: str) -> None:
    assert _crossings(bouncer, 264) == (264, 0)


@pytest.mark.soak
def test_tenants_do_not_meet_in_five_thousand_transactions(
    bouncer: str, publish: Callable[[str], None]
) -> None:
    count, wrong = _crossings(bouncer, 5_040)
    publish(f"{count:,} transactions of {TENANTS} tenants by PgBouncer, {wrong} crossings")
    assert (count, wrong) == (5_040, 0)


def test_a_setting_of_the_session_is_detected(
    bouncer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: the space is named once for each connection, not in every transaction."""
    of_transaction = store._settings
    known: set[tuple[int, str]] = set()

    def of_session(
        rows: object, part: store.SchemaPart, space: str, writes: bool, durable: bool = True
    ) -> object:
        statement, values = of_transaction(rows, part, space, writes, durable)  # type: ignore[arg-type]
        me = (id(rows.connection), space)  # type: ignore[attr-defined]
        if me in known and not writes:
            return "SELECT set_config('search_path', $1, true)", (f"{part.schema}, pg_temp",)
        known.add(me)
        return statement.replace("true", "false"), values

    monkeypatch.setattr(store, "_settings", of_session)
    memories = [
        Commonplace(bouncer, space=f"tenant{number}", embedding="none") for number in range(2)
    ]
    try:
        for memory in memories:
            memory.remember(memory.name)
        wrong = 0
        for _ in range(20):
            for memory in memories:
                with lease(memory) as space, space.store.read() as rows:
                    found = rows.execute("SELECT DISTINCT space FROM memories").fetchall()
                wrong += found != [(memory.name,)]
        assert wrong > 0
    finally:
        for memory in memories:
            memory.close()
