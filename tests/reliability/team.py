"""Two servers on one PostgreSQL database, and clients that write through them whatever fails.

A client writes one memory after the other, each under an idempotency key of its own. Where an
answer does not come or is an error, it tries again under the same key at the other server. What it
saw acknowledged must be stored, once.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import postgres_engine
from commonplace import Commonplace
from commonplace.engine.binding import lease
from commonplace.engine.history import audit
from commonplace.storage.postgres import administration
from conftest import wait_until
from postgres_server import PostgresServer
from server.harness import Client, Process

WRITERS = 6
PATIENCE = 120.0
KEY = secrets.token_hex(32)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class AppServer:
    """`commonplace serve` on a port of its own, which can be killed and started again."""

    def __init__(
        self,
        data: Path,
        address: str,
        program: Sequence[str],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        self._data, self._address, self._program = data, address, program
        self._environ = {"COMMONPLACE_MASTER_KEY": KEY, **(environ or {})}
        self.process = self._started()

    def _started(self) -> Process:
        return Process(
            self._data, "--port", str(self.port), "--database", self._address,
            environ=self._environ, program=self._program,
        )  # fmt: skip

    def ready(self) -> None:
        """Wait until it answers."""

        def answers() -> bool:
            assert self.process.process.poll() is None, self.process.errors
            with contextlib.closing(Client(self.port)) as client:
                return client.request("GET", "/health").status == 200

        wait_until(lambda: not _fails(answers), PATIENCE)

    def kill(self) -> None:
        """End it as a power cut would, and start another on the same port."""
        self.end()
        self.process = self._started()

    def end(self) -> None:
        self.process.kill()


def _fails(act: Callable[[], bool]) -> bool:
    try:
        return not act()
    except (OSError, http.client.HTTPException):
        return True


class Writers:
    """Clients of both servers."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.told: dict[str, str] = {}
        """By text: the ids of what was acknowledged."""
        self.unsure: set[str] = set()
        self.retries = 0
        self._ports = ports
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    def _write(self, number: int) -> None:
        clients = [Client(port) for port in self._ports]
        line = 0
        while not self._ended.is_set():
            line += 1
            text = f"writer{number} line{line}"
            for attempt in range(10_000):
                identity = self._stored(clients[(number + attempt) % len(clients)], text)
                if identity is not None:
                    self.told[text] = identity
                    break
                self.retries += 1
                if self._ended.is_set():
                    self.unsure.add(text)
                    break
                time.sleep(0.05)
        for client in clients:
            client.close()

    @staticmethod
    def _stored(client: Client, text: str) -> str | None:
        try:
            answer = client.call("remember", {"text": text}, key=text)
        except (OSError, http.client.HTTPException):
            return None
        if answer.status != 200 or answer.json["result"]["isError"]:
            return None
        return str(answer.result["id"])

    def go_on(self, count: int = 10) -> None:
        """Wait until some more is acknowledged."""
        enough = len(self.told) + count
        wait_until(lambda: len(self.told) >= enough, PATIENCE)

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


class Team:
    """The database, the servers and the writers."""

    def __init__(
        self,
        folder: Path,
        database: PostgresServer,
        address: str,
        program: Sequence[str] = ("-m", "commonplace.cli"),
    ) -> None:
        self.database = database
        self.address = address
        self.servers = [AppServer(folder / name, address, program) for name in ("one", "two")]
        for server in self.servers:
            server.ready()
        self.writers = Writers([server.port for server in self.servers])

    def kill_backend(self) -> None:
        """Kill the process of one connection in the midst of its work."""
        for _ in range(1_000):
            found = self.database.ask(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'commonplace'"
                " AND state IN ('active', 'idle in transaction')"
            )
            if found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(found[0][0], signal.SIGKILL)
                    return
        raise AssertionError("no connection was writing")

    def stored(self) -> Counter[str]:
        """How often each text is stored; the rows and the audit must be whole."""
        found: Counter[str] = Counter()
        with Commonplace(self.address, embedding="none") as memory:
            while page := memory.browse(limit=1_000, offset=found.total())[0]:
                found.update(each.text for each in page)
            assert memory.library.maintenance.check("default").healthy
            with lease(memory) as space:
                assert audit.verify(space.store).faults == ()
        return found

    def end(self) -> None:
        self.writers.end()
        for server in self.servers:
            server.end()


@contextlib.contextmanager
def team(
    folder: Path, *, program: Sequence[str] = ("-m", "commonplace.cli"), **settings: str
) -> Iterator[Team]:
    """A team on a PostgreSQL server of its own."""
    database = postgres_engine.start(**settings)
    try:
        administration.set_up(database.admin(), "commonplace")
        address = database.admin().replace("//admin@", "//commonplace@")
        made = Team(folder, database, address, program)
        try:
            yield made
        finally:
            made.end()
    finally:
        database.stop()
