"""Servers that are killed in the middle of their work: after a restart nothing is half done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from websockets.sync.client import connect

from commonplace import Commonplace
from conftest import wait_until
from dialects.orchestrator.fake_model import FakeModel
from server.harness import Process

KILLED_AT = """
import os, runpy, signal
from commonplace.dialects.mama.platform import files
from commonplace.platform import sealed

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

seal, put = sealed.SealedSettings.put, files.write_private

def sealing(*given):
    seal(*given)
    killed()

def putting(path, data):
    if COPY == "half of config.yaml" and COPY.endswith(path.name):
        os.fsync = killed  # its file is written, and has not got its name yet
    elif path.name.endswith(COPY):
        killed()
    put(path, data)

COPY = {copy!r}
if COPY:
    files.write_private = putting
else:
    sealed.SealedSettings.put = sealing
runpy.run_module("commonplace.cli", run_name="__main__")
"""


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with FakeModel() as made:
        yield made


def process(data: Path, model: FakeModel, killed_at: str | None = None) -> Process:
    environ = {
        "COMMONPLACE_LLM_PROVIDER": "openai", "COMMONPLACE_LLM_OPENAI_URL": model.url,
        "COMMONPLACE_LLM_MODEL": "gpt-4o-mini",
    }  # fmt: skip
    program = ("-m", "commonplace.cli")
    if killed_at is not None:
        program = ("-c", KILLED_AT.replace("{copy!r}", repr(killed_at)))
    return Process(data, environ=environ, program=program)


def url_of(server: Process) -> str:
    return f"http://127.0.0.1:{server.ready()}"


def get(url: str, path: str) -> Any:
    return httpx.get(url + path, timeout=30).json()


CONFIG = {"agent": {"max_turns": 42}, "discord": {"enabled": True, "token": "secret"}}


@pytest.mark.parametrize(
    ("killed_at", "stored"),
    [("", False), ("config.yaml", True)],
    ids=["between the secrets and the record", "between the record and its copy"],
)
def test_a_change_of_the_configuration_is_whole_or_not_there(
    tmp_path: Path, model: FakeModel, killed_at: str, stored: bool
) -> None:
    with process(tmp_path, model, killed_at) as server:
        with pytest.raises(httpx.TransportError):
            httpx.put(url_of(server) + "/api/config", json=CONFIG, timeout=30)
        server.end()
    with process(tmp_path, model) as server:
        url = url_of(server)
        shown = get(url, "/api/config")
        found = shown["agent"]["max_turns"], shown["discord"]["enabled"], shown["discord"]["token"]
        assert found == ((42, True, "***[redacted]***") if stored else (10, False, ""))
        file = tmp_path / "mama" / "config.yaml"
        assert file.exists() is stored
        if stored:
            assert yaml.safe_load(file.read_text())["agent"]["max_turns"] == 42
        assert httpx.put(url + "/api/config", json=CONFIG, timeout=30).status_code == 200
        assert get(url, "/api/config")["agent"]["max_turns"] == 42


def test_what_a_kill_left_half_written_is_removed_at_the_start(
    tmp_path: Path, model: FakeModel
) -> None:
    with process(tmp_path, model, "half of config.yaml") as server:
        with pytest.raises(httpx.TransportError):
            httpx.put(url_of(server) + "/api/config", json=CONFIG, timeout=30)
        server.end()
    assert list((tmp_path / "mama").rglob(".*.part"))
    with process(tmp_path, model) as server:
        assert get(url_of(server), "/api/config")["agent"]["max_turns"] == 42
    assert not list((tmp_path / "mama").rglob(".*.part"))


def test_an_upload_whose_copy_is_missing_is_served_and_read(
    tmp_path: Path, model: FakeModel
) -> None:
    content = b"words of a file"
    with process(tmp_path, model, "_a.txt") as server:
        files = {"file": ("a.txt", content)}
        with pytest.raises(httpx.TransportError):
            httpx.post(url_of(server) + "/api/upload", files=files, timeout=30)
        server.end()
    with Commonplace(tmp_path, embedding="none") as memory:
        (artifact,) = memory.artifacts.all(prefix="mama/workspace/media/")
        assert artifact.path is not None
        name = artifact.path.rpartition("/")[2]
    copy = tmp_path / "mama" / "workspace" / "media" / "inbound" / name
    assert not copy.exists()
    with process(tmp_path, model) as server:
        url = url_of(server)
        assert httpx.get(f"{url}/api/media/{name}", timeout=30).content == content
        script = {"code": f"await Read('media/inbound/{name}')"}
        told = httpx.post(url + "/api/code-act", json=script, timeout=90).json()
        assert told["result"] == {"content": content.decode()}, told
        assert copy.read_bytes() == content


def test_a_job_goes_on_and_a_chat_keeps_what_was_said(tmp_path: Path, model: FakeModel) -> None:
    model.delay = 60.0
    with process(tmp_path, model) as server:
        url = url_of(server)
        body = {"name": "Report", "cron_expr": "0 0 1 1 *", "prompt": "Report"}
        job = httpx.post(url + "/api/cron", json=body, timeout=30).json()["id"]
        run = httpx.post(f"{url}/api/cron/{job}/run", timeout=30).json()["execution_id"]
        with connect(url.replace("http", "ws") + "/ws", open_timeout=30) as socket:
            socket.send(json.dumps({"type": "send", "content": "Are you there?"}))
            told: dict[str, Any] = {}
            while told.get("type") != "attached":
                told = json.loads(socket.recv(timeout=30))
            session = told["sessionId"]
            wait_until(lambda: len(model.requests) == 2, 60)
            server.kill()
    model.delay = 0.0
    with process(tmp_path, model) as server:
        url = url_of(server)

        def ended() -> bool:
            return bool(get(url, f"/api/cron/{job}/logs")["logs"][0]["status"] != "running")

        wait_until(ended, 60)
        (found,) = get(url, f"/api/cron/{job}/logs")["logs"]
        assert (found["id"], found["status"], found["output"]) == (run, "success", "Fine.")
        address = f"{url.replace('http', 'ws')}/ws?sessionId={session}"
        with connect(address, open_timeout=30) as socket:
            seen: list[dict[str, Any]] = []
            while not seen or seen[-1]["type"] != "history":
                seen.append(json.loads(socket.recv(timeout=30)))
            said = [(each["role"], each["content"]) for each in seen[-1]["messages"]]
            assert said == [("user", "Are you there?")]
            socket.send(json.dumps({"type": "send", "content": "Again"}))
            while seen[-1]["type"] not in ("stream_end", "error"):
                seen.append(json.loads(socket.recv(timeout=30)))
            assert seen[-1]["type"] == "stream_end"
