"""compose.one.yaml and the Dockerfile, started without Docker: the same command and variables."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from reliability.team import free_port
from server.harness import clean_environment

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "commonplace.cli"]
SECONDS = 120


@pytest.fixture
def service() -> dict[str, Any]:
    (service,) = yaml.safe_load((ROOT / "compose.one.yaml").read_text())["services"].values()
    return dict(service)


def test_the_image_runs_what_the_service_gives_it(service: dict[str, Any]) -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    told = dict(line.split(" ", 1) for line in lines if line.startswith(("ENTRY", "CMD", "ENV")))
    assert json.loads(told["ENTRYPOINT"]) == ["commonplace"]
    assert service["command"][:3] == json.loads(told["CMD"])
    assert told["ENV"] == "COMMONPLACE_DATA=/data"
    assert service["volumes"] == ["data:/data"]


def test_one_server_starts_with_a_token_and_answers_only_with_it(
    service: dict[str, Any], tmp_path: Path
) -> None:
    data = str(tmp_path / "data")
    port = str(free_port())
    places = {"/data": data, "3847": port, "0.0.0.0": "127.0.0.1"}
    command = [*COMMAND, *(places.get(each, each) for each in service["command"])]
    variables = {
        name: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value)
        for name, value in service["environment"].items()
    }
    assert variables == {"COMMONPLACE_PUBLIC_URL": "http://localhost:3847"}
    environ = clean_environment({**variables, "COMMONPLACE_EMBEDDING": "none"})
    refused = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=SECONDS)
    assert refused.returncode != 0 and "token create" in refused.stderr
    token = subprocess.run(
        [*COMMAND, "token", "create", "--name", "laptop", "--data", data],
        env=environ, capture_output=True, text=True, check=True, timeout=SECONDS,
    ).stdout.strip()  # fmt: skip
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert any("listening on http://localhost:3847" in line for line in process.stdout)
            address = f"http://127.0.0.1:{port}"
            assert _status(f"{address}/health", "") == 200
            assert _status(f"{address}/api/console/me", "") == 401
            assert _status(f"{address}/api/console/me", token) == 200
        finally:
            process.terminate()
            process.wait(SECONDS)


def _status(url: str, token: str) -> int:
    headers = {"Host": "localhost:3847", **({"Authorization": f"Bearer {token}"} if token else {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
