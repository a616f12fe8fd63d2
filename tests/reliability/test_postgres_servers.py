"""Two servers, processes of their own, on one database: one memory, whichever is asked.

Each sees what the other has written at its next call; patrols and workflows run once; a token that
is revoked is refused by both. The whole run of mixed calls is for `make soak`.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import postgres_engine
from commonplace import Commonplace
from commonplace.dialects.being import patrol, sight
from commonplace.engine.library import OpenSpace
from conftest import wait_until
from dialects.orchestrator.fake_model import FakeModel
from reliability.progress import report_progress
from reliability.team import KEY, PATIENCE, AppServer
from server.harness import Client, clean_environment, running

Publish = Callable[[str], None]
PROGRAM = ("-m", "commonplace.cli")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    yield postgres_engine.address_for(tmp_path / "rows")
    postgres_engine.forget(tmp_path)


@contextlib.contextmanager
def two_servers(
    address: str, folder: Path, environ: Mapping[str, str] | None = None
) -> Iterator[list[AppServer]]:
    started = [AppServer(folder / name, address, PROGRAM, environ) for name in ("one", "two")]
    try:
        for each in started:
            each.ready()
        yield started
    finally:
        for each in started:
            each.end()


@dataclass
class Item:
    """A memory as it must be."""

    identity: str
    text: str
    live: bool = True
    links: int = 0
    former: str = ""
    operation: str = ""
    """The last change of the text, which can be undone."""
    past: list[tuple[str, str]] = field(default_factory=list)
    """Moments, and the text at that time."""


class Driver:
    """Calls one server after the other, and compares what the next call to either tells."""

    def __init__(self, clients: list[Client], name: str) -> None:
        self._clients = clients
        self._name = name
        self._random = random.Random(name)
        self._items: list[Item] = []
        self.calls = self.wrong = 0
        self.examples: list[str] = []

    def _call(self, tool: str, **arguments: Any) -> Any:
        self.calls += 1
        answer = self._random.choice(self._clients).call(tool, arguments)
        return answer.result

    def step(self) -> None:
        """One change, and a look at it."""
        live = [item for item in self._items if item.live]
        acts = [self._remember]
        if len(live) > 3:
            item = self._random.choice(live)
            acts += [
                lambda: self._revise(item), lambda: self._revise(item),
                lambda: self._forget(item), lambda: self._connect(item, live[0]),
                lambda: self._undo(item), lambda: self._look_back(item),
            ]  # fmt: skip
        self._random.choice(acts)()

    def _remember(self) -> None:
        text = f"{self._name}x{len(self._items)} first"
        told = self._call("remember", text=text)
        self._items.append(Item(told["id"], text))
        self._check(self._items[-1])

    def _revise(self, item: Item) -> None:
        item.former, item.text = item.text, f"{item.text.split()[0]} version{self.calls}"
        item.operation = self._call("revise", id=item.identity, text=item.text)["operation"]
        self._check(item)

    def _undo(self, item: Item) -> None:
        if item.operation:
            self._call("revise", undo=item.operation)
            item.text, item.operation = item.former, ""
            self._check(item)

    def _forget(self, item: Item) -> None:
        self._call("forget", ids=[item.identity])
        self._note(not self._finds(item), f"{item.text} is found after it was forgotten")
        if self._random.random() < 0.7:
            self._call("forget", ids=[item.identity], restore=True)
            item.operation = ""
            self._check(item)
        else:
            item.live = False

    def _connect(self, item: Item, other: Item) -> None:
        if item is other:
            return
        kind = f"kind{self.calls}"
        self._call("connect", source=item.identity, target=other.identity, kind=kind)
        links = self._call("read", id=other.identity)["links"]
        self._note(any(kind in json.dumps(link) for link in links), f"a link of {other.text}")

    def _look_back(self, item: Item) -> None:
        if item.past:
            moment, text = self._random.choice(item.past)
            told = self._call("read", id=item.identity, as_of=moment)["memory"]["text"]
            self._note(told == text, f"{told} as of then, not {text}")

    def _finds(self, item: Item) -> bool:
        found = self._call("recall", query=item.text.split()[0], limit=5)["memories"]
        return item.identity in [each["id"] for each in found]

    def _check(self, item: Item) -> None:
        told = self._call("read", id=item.identity)["memory"]["text"]
        self._note(told == item.text, f"{told}, not {item.text}")
        self._note(self._finds(item), f"{item.text} is not found")
        item.past.append((datetime.now(UTC).isoformat(), item.text))

    def _note(self, right: bool, what: str) -> None:
        if not right:
            self.wrong += 1
            self.examples.append(what)


def mixed_calls(ports: list[int], token: str | None, calls: int) -> list[Driver]:
    """Two drivers at the same time, until each has made half of the calls."""
    drivers = [Driver([Client(port, token) for port in ports], name) for name in ("ann", "ben")]
    failed: list[BaseException] = []

    def drive(driver: Driver) -> None:
        try:
            while driver.calls < calls // 2:
                driver.step()
                report_progress(driver.calls * 2, calls, "calls")
        except AssertionError as error:  # an answer that is an error
            driver.wrong += 1
            driver.examples.append(str(error)[:300])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=drive, args=(driver,)) for driver in drivers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for driver in drivers:
        for client in driver._clients:
            client.close()
    if failed:
        raise failed[0]
    return drivers


def _run_mixed(address: str, folder: Path, publish: Publish, calls: int, revocations: int) -> None:
    with two_servers(address, folder) as servers, ThreadPoolExecutor(1) as beside:
        ports = [each.port for each in servers]
        revoked = beside.submit(
            lambda: [_seconds_until_refused(address, folder, ports) for _ in range(revocations)]
        )
        drivers = mixed_calls(ports, None, calls)
        seconds = max(revoked.result())
    made = sum(driver.calls for driver in drivers)
    wrong = sum(driver.wrong for driver in drivers)
    publish(
        f"{made:,} calls over two servers, {wrong} that did not see the other's write; meanwhile"
        f" {revocations} tokens revoked, each refused by both after {seconds:.2f} s at most"
    )
    assert not wrong, [driver.examples[:3] for driver in drivers]
    assert seconds <= 5
    with Commonplace(address, embedding="none") as memory:
        assert memory.library.maintenance.check("default").healthy


def test_each_server_sees_the_others_writes_at_its_next_call(
    address: str, tmp_path: Path, publish: Publish
) -> None:
    _run_mixed(address, tmp_path, publish, 500, 1)


@pytest.mark.soak
def test_each_server_sees_the_others_writes_in_ten_thousand_calls(
    address: str, tmp_path: Path, publish: Publish
) -> None:
    _run_mixed(address, tmp_path, publish, 10_000, 20)


def test_an_index_that_does_not_ask_what_is_new_is_detected(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: a server asks for news every third time."""
    fresh = OpenSpace._updated_index
    kept: dict[int, Any] = {}

    def stale(space: OpenSpace, connection: Any, **more: Any) -> Any:
        key = id(space)
        count, known = kept.get(key, (0, None))
        if known is None or count % 3 == 0 or space.store.open_unit is not None:
            known = fresh(space, connection, **more)
        kept[key] = (count + 1, known)
        return known

    monkeypatch.setattr(OpenSpace, "_updated_index", stale)
    with running(tmp_path / "one", database=address, embedding="none") as one:
        shutil.copytree(tmp_path / "one", tmp_path / "two")  # the master key
        with running(tmp_path / "two", database=address, embedding="none") as two:
            drivers = mixed_calls([one.port, two.port], None, 100)
    assert sum(driver.wrong for driver in drivers) > 0


def _command(address: str, folder: Path, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, *PROGRAM, *arguments, "--data", str(folder / "one"),
         "--database", address, "--json"],
        capture_output=True, text=True, env=clean_environment({"COMMONPLACE_MASTER_KEY": KEY}),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _seconds_until_refused(address: str, folder: Path, ports: list[int]) -> float:
    """How long a token that was revoked on the command line is still taken by a server."""
    made = _command(address, folder, "token", "create")
    clients = [Client(port, made["token"]) for port in ports]
    try:
        assert all(client.call("recall", {"query": "x"}).status == 200 for client in clients)
        _command(address, folder, "token", "revoke", made["id"])
        begun = time.monotonic()
        for client in clients:
            wait_until(
                lambda client=client: client.call("recall", {"query": "x"}).status == 401, 60
            )
        return time.monotonic() - begun
    finally:
        for client in clients:
            client.close()


def test_a_patrol_and_a_workflow_run_once_and_a_revoked_token_is_refused(
    address: str, tmp_path: Path
) -> None:
    being = _command(address, tmp_path, "being", "create", "Aria")["id"]
    mine = _command(address, tmp_path, "token", "create", "--dialect", "being", "--being", being)
    shared = _command(address, tmp_path, "token", "create", "--dialect", "orchestrator")
    with FakeModel() as model:
        environ = {"COMMONPLACE_LLM_OPENAI_URL": model.url, "COMMONPLACE_LLM_KEY": "sk-test"}
        with two_servers(address, tmp_path, environ) as servers:
            _patrol_once(address, [Client(each.port, mine["token"]) for each in servers], being)
            clients = [Client(each.port, shared["token"]) for each in servers]
            _workflow_once(clients, model)
            _command(address, tmp_path, "token", "revoke", shared["id"])
            assert [_status(client) for client in clients] == [401, 401]


def _status(client: Client) -> int:
    with contextlib.closing(client):
        return client.call("list_workflows", {}, path="/mcp/v1").status


def _patrol_once(address: str, clients: list[Client], being: str) -> None:
    """Scenes that come in at both servers at the same time, enough for one patrol."""
    start = threading.Barrier(2)

    def tell(client: Client, name: str) -> None:
        scenes = [
            {"action": f"{name} {number} by the river", "actors": ["Mika"], "when": ["2026-04-14"]}
            for number in range(9)
        ]
        start.wait()
        for first in range(0, 9, 3):
            answer = client.call("update_notes", {"scenes": scenes[first : first + 3]}, path="/mcp")
            assert not answer.json["result"]["isError"], answer.body
        client.close()

    threads = [
        threading.Thread(target=tell, args=(client, name))
        for client, name in zip(clients, ("otter", "badger"), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Commonplace(address, embedding="none") as memory:

        def nodes() -> list[str]:
            return [
                each.text
                for each in sight.readable_rows(memory, sight.own_row_filters(being, sight.NODE))
            ]

        wait_until(lambda: len(nodes()) >= 10, PATIENCE)
        time.sleep(1)
        assert len(nodes()) == len(set(nodes())) <= 18
        done = [e.payload or {} for e in memory.events.all(kind=patrol.PATROL_EVENT, limit=1_000)]
        assert not [each for each in done if "failed" in each]


def _workflow_once(clients: list[Client], model: FakeModel) -> None:
    path = "/mcp/v1"

    def value(client: Client, tool: str, **arguments: Any) -> Any:
        return client.call(tool, arguments, path=path).result

    here, there = clients
    steps = [
        {"name": f"step {number}", "agent_slug": "wally", "prompt_template": f"Do part {number}."}
        for number in range(3)
    ]
    made = value(here, "create_workflow", name="Plan", steps=json.dumps(steps))["workflow_id"]
    ids = [
        value(client, "trigger_workflow", workflow_id=made)["execution_id"] for client in clients
    ]
    for identity in ids:
        wait_until(
            lambda identity=identity: value(
                there, "check_workflow_status", execution_id=identity
            )["status"] == "completed",
            PATIENCE,
        )  # fmt: skip
    asked = [json.dumps(each["messages"]) for each in model.requests]
    parts = [sum(f"Do part {number}." in each for each in asked) for number in range(3)]
    assert parts == [2, 2, 2], "each execution asks the model once for each step"
