"""What a client is told in each situation of the table in docs/warm-server.md."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commonplace.client import connection
from reliability.test_disk_full import NAMESPACES

from .harness import PROGRAM, Agent, kill_server, place_of, server_of, wait_until

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs" / "warm-server.md").read_text(encoding="utf-8")
NOBODY = 65534


def documented(situation: str) -> tuple[int, str]:
    """The exit code and the message of a row of the table."""
    row = re.search(rf"^\| {re.escape(situation)} \| (\d+) \| (.+) \|$", TABLE, re.MULTILINE)
    assert row is not None, situation
    return int(row[1]), row[2]


def test_another_user_gets_no_byte(tmp_path: Path) -> None:
    """The server takes itself for somebody else, so that its clients are other users."""
    documented("another user connects to the socket")
    path = first(tmp_path, "import os\nif 'COMMONPLACE_BACKGROUND' in os.environ:\n"
                 "    os.geteuid = lambda: 12345\n")  # fmt: skip
    data = tmp_path / "data"
    place = place_of(data)
    command = [sys.executable, "-P", "-m", "commonplace.server.background"]
    environ = {
        **os.environ, "PYTHONPATH": path, "COMMONPLACE_DATA": str(data),
        connection.OPTIONS_VARIABLE: json.dumps({"base": place.base, "embedding": "none"}),
    }  # fmt: skip
    server = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
    try:
        wait_until(Path(place.socket_path).exists)
        made = connection.connect(place)
        while made is None:  # it exists a moment before it listens
            made = connection.connect(place)
        with made:
            made.settimeout(30)
            with contextlib.suppress(BrokenPipeError):
                made.sendall(b'{"commonplace": 1, "kind": "status"}\n')
            with contextlib.suppress(ConnectionResetError):
                assert made.recv(100) == b""
        assert stat.S_IMODE(Path(place.socket_path).stat().st_mode) == 0o600
        assert stat.S_IMODE(Path(place.socket_path).parent.stat().st_mode) == 0o700
    finally:
        server.terminate()
        server.wait(60)


def first(folder: Path, code: str) -> str:
    """A PYTHONPATH with which every process runs some code first."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(code)
    return os.pathsep.join([str(site), str(ROOT / "src")])


def test_a_directory_that_others_can_open_is_not_used(tmp_path: Path) -> None:
    code, message = documented(
        "the directory for the socket belongs to another user, or others can open it, and no other"
        " can be used"
    )
    for name in ("runtime", "tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o755)
    with pytest.raises(connection.Unusable) as refused:
        connection._first_private_directory([str(tmp_path / "runtime")])
    assert "can be opened by others" in str(refused.value)
    assert str(refused.value).startswith("There is no directory for the server's socket.")
    assert "There is no directory for the server's socket." in message and code == 0
    (tmp_path / "link").symlink_to(tmp_path / "tmp")
    with pytest.raises(connection.Unusable, match="is not a directory"):
        connection._first_private_directory([str(tmp_path / "link")])
    if os.getuid() == 0:
        os.chown(tmp_path / "tmp", NOBODY, NOBODY)
        with pytest.raises(connection.Unusable, match="belongs to another user"):
            connection._first_private_directory([str(tmp_path / "tmp")])


def test_without_a_place_for_the_socket_it_serves_in_its_process(tmp_path: Path) -> None:
    block = (
        "from commonplace.client import connection\n"
        "def none(): raise connection.Unusable('There is no directory.')\n"
        "connection._runtime_directory = none\n"
    )
    path = first(tmp_path, block)
    with Agent(tmp_path / "data", environ={"PYTHONPATH": path}) as agent:
        agent.call("remember", text="x")
        code, said = agent.end()
    assert code == 0
    assert "serving in this process: There is no directory." in said
    assert server_of(tmp_path / "data") is None


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    code, message = documented("the socket is left from a server that was killed")
    with Agent(tmp_path) as agent:
        agent.call("remember", text="x")
        kill_server(tmp_path)
        wait_until(lambda: server_of(tmp_path) is None)
        assert Path(place_of(tmp_path).socket_path).exists()
        agent.call("remember", text="y")
        assert agent.end() == (code, "") and message.startswith("none")
    place = tmp_path / "other"
    place.mkdir()
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(place_of(place).socket_path)
    stale.close()
    with Agent(place) as agent:
        agent.call("remember", text="x")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `odd_disks.py` saw."""
    for number, namespace in enumerate(NAMESPACES):
        place = tmp_path_factory.mktemp(f"disk-{number}")
        mounts = ["mount", "-t", "tmpfs", "tmpfs", place]
        if subprocess.run([*namespace, *mounts], capture_output=True, check=False).returncode:
            continue
        done = subprocess.run(
            [*namespace, sys.executable, "-m", "client.odd_disks", str(place)],
            cwd=ROOT / "tests", env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    pytest.skip(f"no mount namespace here: neither {NAMESPACES[0]} nor {NAMESPACES[1]}")


def test_on_a_full_disk_reading_works(seen: dict[str, Any]) -> None:
    code, message = documented("the disk is full")
    assert (seen["stored"], seen["read"], seen["read by another server"]) == ("", "", "")
    assert seen["full"].startswith("STORAGE_FULL: ") and "`STORAGE_FULL`" in message
    assert seen["code"] == code


def test_a_read_only_disk_is_told(seen: dict[str, Any]) -> None:
    code, message = documented("the disk can only be read")
    assert (seen["read-only code"], seen["read-only errors"]) == (code, "")
    assert seen["read only"].startswith("STORAGE_READ_ONLY: ") and "`STORAGE_READ_ONLY`" in message


def test_a_directory_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    code, message = documented("the data directory cannot be opened")
    (tmp_path / "system.db").mkdir()
    with Agent(tmp_path) as agent:
        with pytest.raises(RuntimeError, match="The database failed"):
            agent.call("remember", text="y")
        assert agent.process.wait(60) == code
        said = agent.end()[1]
    assert said.startswith("error: The database failed") and "`The database failed`" in message


@pytest.mark.parametrize(("version", "replaced"), [("0.0.1", True), ("99.0", False)])
def test_a_server_of_another_version(tmp_path: Path, version: str, replaced: bool) -> None:
    documented("the server is older than the pipe, in the background")
    documented("the server is newer than the pipe")
    with pretending(tmp_path, version) as other:
        other.call("remember", text="x")
        before = (server_of(tmp_path / "data") or {})["pid"]
        with Agent(tmp_path / "data") as agent:
            agent.call("remember", text="y")
            found = server_of(tmp_path / "data")
            assert found is not None and (found["pid"] != before) is replaced
            assert agent.end() == (0, "")
        other.call("remember", text="z")


def pretending(folder: Path, version: str) -> Agent:
    """A client, and a server that it starts, which are of another version."""
    path = first(folder, f"import commonplace\ncommonplace.__version__ = {version!r}\n")
    return Agent(folder / "data", environ={"PYTHONPATH": path})


def test_an_older_serve_is_used_and_told(tmp_path: Path) -> None:
    _, message = documented("the server is older than the pipe, `commonplace serve`")
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import commonplace\ncommonplace.__version__ = '0.0.1'\n"
    )
    path = os.pathsep.join([str(site), str(ROOT / "src")])
    data = tmp_path / "data"
    serve = subprocess.Popen(
        [*PROGRAM, "serve", "--data", str(data), "--port", "0", "--embedding", "none"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    try:
        wait_until(lambda: data.exists() and server_of(data) is not None)
        with Agent(data) as agent:
            agent.call("remember", text="x")
            code, said = agent.end()
        assert code == 0 and message.strip("`") in said
    finally:
        serve.terminate()
        serve.wait(60)


def test_another_protocol_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, message = documented("server and pipe speak different protocols")
    with Agent(tmp_path) as agent:
        agent.call("remember", text="x")
        monkeypatch.setattr(connection, "PROTOCOL", 2)
        answer = server_of(tmp_path)
    assert answer is not None
    assert answer["exit"] == code
    assert f"`{answer['error']['message']} {answer['error']['hint']}`" == message


def test_status_stop_and_restart(tmp_path: Path) -> None:
    def do(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [*PROGRAM, *words, "--data", str(tmp_path / "data")], capture_output=True, text=True,
            timeout=120,
        )  # fmt: skip
        return done.returncode, done.stdout

    assert do("status")[0] == 1 and do("stop") == (1, "No server is running.\n")
    assert not (tmp_path / "data").exists()
    with Agent(tmp_path / "data") as agent:
        agent.call("remember", text="x")
        code, said = do("status")
        pid = (server_of(tmp_path / "data") or {})["pid"]
        assert code == 0 and f"process {pid}, in the background" in said
        assert f"process {agent.process.pid}: commonplace, space default" in said
        assert (
            "default: 1 memory, " in said and "1,536 with a prompt" in said and "none yet" in said
        )
        assert do("restart")[0] == 0
        assert (server_of(tmp_path / "data") or {})["pid"] != pid
        agent.call("remember", text="y")
        assert do("stop")[0] == 0 and server_of(tmp_path / "data") is None
        agent.call("remember", text="z")
        assert do("backup", str(tmp_path / "copy"))[0] == 0
        assert str(tmp_path / "copy") in do("status")[1]


def test_a_data_directory_that_was_deleted_ends_its_server(tmp_path: Path) -> None:
    """What is acknowledged afterwards is in the directory that has the name then."""
    code, message = documented("the data directory was deleted or replaced")
    data = tmp_path / "data"
    with Agent(data) as agent:
        agent.call("remember", text="before")
        former = Path(place_of(data).socket_path)
        shutil.rmtree(data)
        wait_until(lambda: not former.exists())
        agent.call("remember", text="after")
        assert [
            each["text"] for each in agent.call("recall", query="before after")["memories"]
        ] == ["after"]
        assert agent.end() == (code, "") and message.startswith("none")
    with Agent(data) as agent:
        assert len(agent.call("recall", query="after")["memories"]) == 1
