"""`commonplace restart` and `commonplace open` while `commonplace serve` runs."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path

import pytest

from commonplace import Commonplace
from server.harness import Process, clean_environment, cli, wait_until


@pytest.fixture(autouse=True)
def stored(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    with Commonplace(data, embedding="none") as memory:
        memory.remember("tea is at four")


def health(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=20) as answer:
        return int(answer.status)


def test_a_restart_of_serve_brings_http_back_at_the_same_address(data: Path) -> None:
    with Process(data) as server:
        port = server.ready()
        wait_until(lambda: cli("status", "--data", str(data)).returncode == 0)
        before = json.loads(cli("status", "--data", str(data), "--json").stdout)["server"]
        ended = cli("restart", "--data", str(data), "--json")
        assert ended.returncode == 0, ended.stderr
        after = json.loads(ended.stdout)["server"]
        assert (after["kind"], after["http"]) == ("serve", f"http://127.0.0.1:{port}")
        assert after["since"] > before["since"]
        assert health(port) == 200
        assert cli("restart", "--data", str(data)).stdout.endswith(f":{port}\n")
        assert server.stop() == 0


def test_a_wrong_setting_is_told_before_the_server_is_stopped(data: Path) -> None:
    with Process(data) as server:
        port = server.ready()
        wait_until(lambda: cli("status", "--data", str(data)).returncode == 0)
        (data / "config.toml").write_text("databse = 1\n")
        (data / "config.toml").chmod(0o600)
        ended = cli("restart", "--data", str(data))
        assert (ended.returncode, "sets 'databse'" in ended.stderr) == (2, True)
        assert health(port) == 200


def test_a_server_that_is_in_the_way_is_named(data: Path, tmp_path: Path) -> None:
    backup, other = str(tmp_path / "backup"), tmp_path / "other"
    assert cli("backup", backup, "--data", str(data)).returncode == 0
    with Process(data) as server:
        server.ready()
        wait_until(lambda: cli("status", "--data", str(data)).returncode == 0)
        moved = cli("move", str(data), str(other))
        assert moved.returncode == 5 and f"commonplace stop --data {data}" in moved.stderr
        assert not other.exists()
        restored = cli("restore", backup, "--overwrite", "--data", str(data))
        assert restored.returncode == 5 and "'commonplace stop'" in restored.stderr
    assert cli("move", str(data), str(other)).returncode == 0


def test_open_finds_a_server_that_listens_everywhere(data: Path) -> None:
    assert cli("token", "create", "--data", str(data)).returncode == 0
    with Process(data, "--host", "0.0.0.0") as server:
        port = server.ready()
        wait_until(lambda: cli("status", "--data", str(data)).returncode == 0)
        ended = cli("open", "--print", "--data", str(data))
        assert ended.stdout.startswith(f"http://127.0.0.1:{port}/viewer#code="), ended.stderr
