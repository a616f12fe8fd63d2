"""compose.yaml, started without Docker: its database, its two servers and its proxy as processes.

Commands, variables and the proxy's configuration are those of the file; only names of machines and
ports are replaced, and the database is the one of the tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import postgres_engine
from conftest import wait_until
from reliability.team import KEY, PATIENCE, free_port
from server.harness import Client, clean_environment

ROOT = Path(__file__).parents[2]
GIVEN = {"DATABASE_PASSWORD": "adminspassword", "ROLE_PASSWORD": "rolespassword", "MASTER_KEY": KEY}


class Composed:
    """The services of compose.yaml as processes of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._database = postgres_engine.start()
        self._database.ask(
            f"CREATE ROLE postgres SUPERUSER LOGIN PASSWORD '{GIVEN['DATABASE_PASSWORD']}'"
        )
        self._database.ask("CREATE DATABASE commonplace")
        self.ports = {name: free_port() for name in ("one", "two", "proxy")}
        self._given = {**GIVEN, "PUBLIC_URL": f"http://127.0.0.1:{self.ports['proxy']}"}
        self.file: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def value(self, text: str) -> str:
        """A value of the file, with variables, names and ports as they are here."""
        for name, given in self._given.items():
            text = re.sub(rf"\$\{{{name}(:[-?][^}}]*)?\}}", given, text)
        text = text.replace("$$", "$").replace("172.30.84.10", "127.0.0.1")
        text = text.replace("@database:5432", f"@127.0.0.1:{self._database.port}")
        for name in ("one", "two"):
            text = text.replace(f"server {name}:3847", f"server 127.0.0.1:{self.ports[name]}")
        return text.replace("listen 8080", f"listen 127.0.0.1:{self.ports['proxy']}")

    def command(self, name: str) -> tuple[list[str], dict[str, str]]:
        """The arguments and the environment of a service of ours."""
        service = self.file["services"][name]
        data = str(self._folder / name)
        port = str(self.ports.get(name, 0))
        places = {"/data": data, "3847": port, "0.0.0.0": "127.0.0.1"}
        arguments = [places.get(each, self.value(each)) for each in service["command"]]
        environ = {key: self.value(value) for key, value in service["environment"].items()}
        return [sys.executable, "-m", "commonplace.cli", *arguments], clean_environment(environ)

    def prepare(self) -> None:
        command, environ = self.command("prepare")
        done = subprocess.run(command, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def serve(self, name: str) -> None:
        command, environ = self.command(name)
        with (self._folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(command, env=environ, stdout=log, stderr=log)

    def proxy(self) -> None:
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program is not None, "install the package nginx"
        folder = self._folder / "nginx"
        folder.mkdir()
        written = self.value(self.file["configs"]["nginx"]["content"])
        places = "".join(
            f"{each}_temp_path {folder}/{each};\n"
            for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        written = written.replace("http {", f"http {{ access_log off;\n{places}", 1)
        (folder / "conf").write_text(written)
        self.processes["proxy"] = subprocess.Popen(
            [program, "-c", str(folder / "conf"), "-p", str(folder), "-e", str(folder / "log"),
             "-g", f"daemon off; pid {folder}/pid; master_process off;"],
        )  # fmt: skip

    def run(self, *arguments: str) -> list[Any]:
        """What a command of ours tells inside the first server's container."""
        _, environ = self.command("one")
        done = subprocess.run(
            [sys.executable, "-m", "commonplace.cli", *arguments, "--json"],
            env=environ, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def log(self, name: str) -> str:
        file = self._folder / ("nginx/log" if name == "proxy" else f"{name}.log")
        return file.read_text()

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self._database.stop()


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Composed]:
    made = Composed(tmp_path)
    try:
        yield made
    finally:
        made.end()


def _answers(composed: Composed, name: str) -> bool:
    port = composed.ports[name]
    assert composed.processes[name].poll() is None, composed.log(name)
    try:
        with contextlib.closing(Client(port)) as client:
            return client.request("GET", "/health").status == 200
    except OSError:
        return False


def test_the_services_of_compose_work_together(composed: Composed) -> None:
    composed.prepare()
    # The servers start once there is a token: docker compose run --rm one token create …
    (made,) = composed.run("token", "create", "--dialect", "commonplace", "--space", "team")
    token = made["token"]
    for name in ("one", "two"):
        composed.serve(name)
    composed.proxy()
    for name in composed.ports:
        wait_until(lambda name=name: _answers(composed, name), PATIENCE)
    with contextlib.closing(Client(composed.ports["proxy"])) as stranger:
        assert stranger.call("recall", {"query": "x"}).status == 401
    with contextlib.closing(Client(composed.ports["proxy"], token)) as client:
        for number in range(6):  # both servers in turn
            client.call("remember", {"text": f"number{number} by the river"}).result  # noqa: B018
        found = client.call("recall", {"query": "river", "limit": 20}).result["memories"]
        assert len(found) == 6
        composed.processes["one"].kill()
        composed.processes["one"].wait()
        for _ in range(4):
            found = client.call("recall", {"query": "river", "limit": 20}).result["memories"]
            assert len(found) == 6, "the other server answers"
    assert len(composed.run("audit", "list", "--space", "team")) >= 11


def test_each_service_starts_after_what_it_needs() -> None:
    file = yaml.safe_load((ROOT / "compose.yaml").read_text())
    services = file["services"]
    assert services["prepare"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    for name in ("one", "two"):
        assert [*services[name]["depends_on"]] == ["prepare"]
        assert services[name]["image"] == services["prepare"]["image"]
    assert services["proxy"]["depends_on"] == ["one", "two"]
    named = set(re.findall(r"\$\{(\w+)", (ROOT / "compose.yaml").read_text()))
    assert named == {*GIVEN, "PUBLIC_URL"}
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert 'ENTRYPOINT ["commonplace"]' in dockerfile and "[all,postgres]" in dockerfile
