"""Two servers on machines of their own, with one PostgreSQL database behind them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

import postgres_engine
from commonplace.access.credentials import Grant
from commonplace.dialects.clawbrain import file_sync
from commonplace.server import connections
from commonplace.storage.postgres import spaces
from server.harness import Client, Running, running, wait_until


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[Running, Running]]:
    """Two servers; both have the master key of the first."""
    address = postgres_engine.address_for(tmp_path / "rows")
    with running(tmp_path / "one", database=address, embedding="none") as one:
        key = (tmp_path / "one" / "master.key").read_bytes()
        (tmp_path / "two").mkdir(mode=0o700)
        file = tmp_path / "two" / "master.key"
        file.touch(mode=0o600)
        file.write_bytes(key)
        with running(tmp_path / "two", database=address, embedding="none") as two:
            yield one, two
    postgres_engine.forget(tmp_path)


def test_what_one_stores_the_other_finds_and_forgets(servers: tuple[Running, Running]) -> None:
    one, two = servers
    token = one.token("team")
    here, there = one.client(token), two.client(token)
    here.call("remember", {"text": "an otter by the river"})
    found = there.call("recall", {"query": "otter"}).result["memories"]
    assert [each["text"] for each in found] == ["an otter by the river"]
    there.call("forget", {"ids": [found[0]["id"]]})
    assert here.call("recall", {"query": "otter"}).result["memories"] == []


def test_a_revoked_token_is_refused_by_both_at_the_next_call(
    servers: tuple[Running, Running],
) -> None:
    one, two = servers
    issued = one.parts.tokens.credentials.create(Grant(space="team"))
    here, there = one.client(issued.token), two.client(issued.token)
    assert [each.call("recall", {"query": "x"}).status for each in (here, there)] == [200, 200]
    one.parts.tokens.credentials.revoke(issued.credential.id)
    assert [each.call("recall", {"query": "x"}).status for each in (there, here)] == [401, 401]


def test_a_stream_of_the_other_server_ends_with_its_credential(
    servers: tuple[Running, Running],
) -> None:
    one, two = servers
    issued = one.parts.tokens.credentials.create(Grant(space="team"))
    stream = two.older(issued.token)
    one.parts.tokens.credentials.revoke(issued.credential.id)
    assert stream._answer.read() is not None  # returns when the server has ended it
    stream.close()
    assert connections.RECHECK_SECONDS < 5


def test_a_token_that_a_failover_lost_is_refused_soon(servers: tuple[Running, Running]) -> None:
    """Nothing that was read before is trusted for longer than some seconds."""
    one, two = servers
    credentials = one.parts.tokens.credentials
    issued = credentials.create(Grant(space="team"))
    client = two.client(issued.token)
    assert client.call("recall", {"query": "x"}).status == 200
    address = str(two.settings.database)
    with psycopg.connect(address.replace("//commonplace@", "//admin@")) as connection:
        # As after a failover: the row is not there, and the number counts for another write.
        connection.execute("DELETE FROM commonplace_system.credentials")
    wait_until(lambda: client.call("recall", {"query": "x"}).status == 401, 60)
    assert spaces.TRUSTED_SECONDS <= 5


def test_a_retry_at_the_other_server_acts_once(servers: tuple[Running, Running]) -> None:
    token = servers[0].token("team")
    start = threading.Barrier(8)
    ids: list[str] = []

    def send(number: int) -> None:
        client = Client(servers[number % 2].port, token)
        start.wait()
        ids.append(client.call("remember", {"text": "once"}, key="k").result["id"])
        client.close()

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(ids) == 8 and len(set(ids)) == 1


def _brain(server: Running, token: str) -> tuple[Client, Path]:
    """A client of ClawBrain, and the directory of its files on that machine."""
    return server.client(token, path="/mcp/clawbrain"), server.settings.data / "clawbrain" / "team"


def _told(client: Client, tool: str, arguments: dict[str, Any]) -> str:
    answer = client.call(tool, arguments).json["result"]
    assert not answer["isError"], answer
    return str(answer["content"][0]["text"])


def test_each_machine_has_its_own_files_of_one_clawbrain(servers: tuple[Running, Running]) -> None:
    """Rows are shared; files are a copy of them on each machine, and edits there come in."""
    token = servers[0].token("team")
    (here, ours), (there, theirs) = (_brain(server, token) for server in servers)
    mine, yours = ours / "entities/people/alice.md", theirs / "entities/people/alice.md"
    alice = {"type": "entity", "category": "people", "name": "alice", "content": "She bakes."}
    identity = json.loads(_told(here, "memory_store", alice))["id"]
    assert "She bakes." in mine.read_text()
    assert "She bakes." in _told(there, "memory_retrieve", {"id": identity})
    wait_until(lambda: yours.exists() and "She bakes." in yours.read_text(), 60)

    yours.write_text(yours.read_text().replace("bakes", "paints"))
    assert "She paints." in _told(there, "memory_retrieve", {"id": identity})
    assert "She paints." in _told(here, "memory_retrieve", {"id": identity})
    wait_until(lambda: "She paints." in mine.read_text(), 60)

    here.call("memory_update", {"id": identity, "content": "She sings."})
    wait_until(lambda: "She sings." in yours.read_text(), 60)
    here.call("memory_delete", {"id": identity})
    wait_until(lambda: not yours.exists() and not mine.exists(), 60)
    for folder in (ours, theirs):
        assert (folder / "archive/entities/people/alice.md").exists()
        assert not list(folder.rglob("*conflict*"))


def test_edits_on_both_machines_are_both_kept(servers: tuple[Running, Running]) -> None:
    token = servers[0].token("team")
    (here, ours), (there, theirs) = (_brain(server, token) for server in servers)
    mine, yours = ours / "entities/people/alice.md", theirs / "entities/people/alice.md"
    alice = {"type": "entity", "category": "people", "name": "alice", "content": "She bakes."}
    here.call("memory_store", alice)
    there.call("credit_report", {})
    wait_until(yours.exists, 60)
    with _syncing(servers[0]), _syncing(servers[1]):
        mine.write_text(mine.read_text().replace("bakes", "paints"))
        yours.write_text(yours.read_text().replace("bakes", "sings"))

    def known() -> set[str]:
        found = _told(here, "memory_search", {"query": "She"})
        return {word for word in ("paints", "sings") if word in found}

    wait_until(lambda: known() == {"paints", "sings"}, 60)
    for folder in (ours, theirs):
        wait_until(
            lambda folder=folder: (
                {"She paints.", "She sings."}
                == {
                    path.read_text().splitlines()[-1]
                    for path in folder.glob("entities/people/*.md")
                }
            ),
            60,
        )


def test_a_change_between_the_reading_of_a_row_and_its_import_is_kept(
    servers: tuple[Running, Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    token = servers[0].token("team")
    (here, ours), (there, _) = (_brain(server, token) for server in servers)
    mine = ours / "entities/people/alice.md"
    alice = {"type": "entity", "category": "people", "name": "alice", "content": "She bakes."}
    identity = json.loads(_told(here, "memory_store", alice))["id"]
    mirror = _mirror(servers[0])
    read_row = mirror._row_by_number

    def then_changed(num: int) -> Any:
        row = read_row(num)
        monkeypatch.setattr(mirror, "_row_by_number", read_row)
        there.call("memory_update", {"id": identity, "content": "She sings."})
        return row

    with mirror.lock:
        monkeypatch.setattr(mirror, "_row_by_number", then_changed)
        mine.write_text(mine.read_text().replace("bakes", "paints"))
    wait_until(lambda: "paints" in _told(here, "memory_search", {"query": "paints"}), 60)
    assert "sings" in _told(here, "memory_search", {"query": "sings"})


def _mirror(server: Running) -> Any:
    return file_sync._running_syncs[server.parts.library].space_files("team").mirror


def _syncing(server: Running) -> Any:
    """Keep a server from syncing meanwhile."""
    return _mirror(server).lock


def test_both_write_one_audit_whose_chain_is_whole(servers: tuple[Running, Running]) -> None:
    token = servers[0].token("team")
    clients = [server.client(token) for server in servers]
    for number in range(6):
        clients[number % 2].call("remember", {"text": f"number {number}"})
    assert [server.verdict("team").faults for server in servers] == [(), ()]
    assert [len(server.calls("team")) for server in servers] == [6, 6]


def test_both_serve_one_platform_of_mama(servers: tuple[Running, Running]) -> None:
    one, two = (f"http://127.0.0.1:{server.port}" for server in servers)
    with httpx.Client(timeout=60) as client:
        change = {"agent": {"max_turns": 7}, "discord": {"token": "secret"}}
        assert client.put(one + "/api/config", json=change).status_code == 200
        there = client.get(two + "/api/config").json()
        assert there["agent"]["max_turns"] == 7
        assert there["discord"]["token"] == "***[redacted]***"
        assert client.put(two + "/api/config", json={"agent": {"max_turns": 8}}).is_success
        assert client.get(one + "/api/config").json()["agent"]["max_turns"] == 8
        copies = [
            server.parts.library.path.joinpath("mama", "config.yaml").read_text()
            for server in servers
        ]
        assert all("max_turns: 8" in copy for copy in copies), "each machine has a copy"

        file = {"file": ("a.txt", b"words")}
        name = client.post(one + "/api/upload", files=file).json()["filename"]
        assert client.get(f"{two}/api/media/{name}").content == b"words"
        script = {"code": f"await Read('media/inbound/{name}')"}
        told = client.post(two + "/api/code-act", json=script).json()
        assert told["result"] == {"content": "words"}, told

        job = {"name": "n", "cron_expr": "* * * * * *", "prompt": "p"}
        id = client.post(one + "/api/cron", json=job).json()["id"]
        seen: list[str] = []

        def logs() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = client.get(f"{two}/api/cron/{id}/logs").json()["logs"]
            seen[:] = [each["id"] for each in found]
            return found

        wait_until(lambda: len(logs()) >= 2 and logs()[-1]["status"] == "failed", 60)
        assert client.put(f"{two}/api/cron/{id}", json={"enabled": False}).is_success
        assert "COMMONPLACE_LLM_KEY" in logs()[-1]["error"]
        assert len(set(seen)) == len(seen)
        assert client.delete(f"{one}/api/cron/{id}").is_success


def test_data_of_the_machine_holds_no_rows(servers: tuple[Running, Running]) -> None:
    one, _ = servers
    one.client(one.token("team")).call("remember", {"text": "in the database"})
    files = {path.name for path in one.parts.library.path.rglob("*") if path.is_file()}
    assert files == {"master.key"}
