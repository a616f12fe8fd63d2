"""A session of the real OpenClaw with the plugin of `commonplace start`; the model is ours.

Its gateway takes half a minute to start, so this is a part of `make soak`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clients import programs
from clients.models import SAID, Model, serving_model
from clients.test_agents import environment, ran
from commonplace import Commonplace

MODULES = Path(__file__).parent.parent / "clients" / "openclaw" / "node_modules"
KNOWN = "The harbour lamp is repaired by Ottilie every spring"
ASKED = ("Who repairs the harbour lamp?", "And who repairs that lamp in spring?")
DECIDED = "We decided to use tabs in src/app/main.py."
AGREED = "We agreed on port 8471 for the relay."
SESSION = "agent:main:main"
WINDOW = 200_000


def settings(model: Model, work: Path, port: int) -> dict[str, Any]:
    """What a person would have set up: a model, a workspace, and compactions that keep little."""
    known = {"id": "m", "name": "m", "input": ["text"], "contextWindow": WINDOW, "maxTokens": 4096,
             "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}}  # fmt: skip
    provider = {"baseUrl": model.address, "apiKey": "x", "api": "anthropic-messages",
                "models": [known]}  # fmt: skip
    compaction = {"mode": "default", "keepRecentTokens": 50, "memoryFlush": {"enabled": False}}
    defaults = {"workspace": str(work), "model": {"primary": "loop/m"}, "skipBootstrap": True,
                "compaction": compaction, "heartbeat": {"every": "0m"}}  # fmt: skip
    auth = {"mode": "token", "token": "for-this-test"}
    return {
        "gateway": {"mode": "local", "port": port, "bind": "loopback", "auth": auth},
        "agents": {"defaults": defaults}, "models": {"providers": {"loop": provider}},
    }  # fmt: skip


@contextlib.contextmanager
def gateway(home: Path, openclaw: list[str], port: int) -> Iterator[None]:
    """OpenClaw's own server, until the end."""
    with (
        (home / "gateway.log").open("w+") as log,
        subprocess.Popen(
            [*openclaw, "gateway", "run"], cwd=home, env=environment(home), stdout=log, stderr=log
        ) as process,
    ):
        try:
            wait_until(lambda: process.poll() is not None or listens(port))
            assert process.poll() is None, (home / "gateway.log").read_text()
            yield
        finally:
            process.terminate()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + programs.SECONDS
    while not done() and time.monotonic() < until:
        time.sleep(0.2)


@pytest.mark.soak
def test_a_session_is_given_what_is_relevant_and_what_a_compaction_dropped(tmp_path: Path) -> None:
    home, data = tmp_path / "home", tmp_path / "data"
    (home / ".openclaw").mkdir(parents=True)
    (home / "work").mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    openclaw = [programs.node(MODULES), str(MODULES / "openclaw" / "openclaw.mjs")]
    with serving_model() as model:
        file = home / ".openclaw" / "openclaw.json"
        file.write_text(json.dumps(settings(model, home / "work", port)))
        at = ("--data", str(data))
        ran(home, programs.COMMAND, "start", "--yes", "--only", "openclaw", *at)
        ran(home, programs.COMMAND, "remember", "--global", KNOWN, *at)
        ran(home, programs.COMMAND, "restart", *at)

        def asked(prompt: str) -> str:
            """What the model was given with a prompt."""
            model.requests.clear()
            told = ran(home, *openclaw, "agent", "--agent", "main", "--message", prompt)
            assert SAID in told, told
            return next(given for given in map(last_prompts, model.requests) if prompt in given)

        with gateway(home, openclaw, port):
            assert KNOWN in asked(ASKED[0])
            assert KNOWN in asked(ASKED[1])
            asked(DECIDED)
            ran(home, *openclaw, "sessions", "compact", SESSION)
            given = asked("Is it day?")
            assert "checkpoint" in given and f"decided: {DECIDED}" in given
            model.tokens = WINDOW - 1_000  # its context is compacted within this turn
            asked(AGREED)
            model.tokens = 1
            given = asked("Is it night?")
            assert f"decided: {DECIDED}" in given and f"decided: {AGREED}" in given
            ran(home, *openclaw, "system", "event", "--text", "Look at the lamp", "--mode", "now")
            wait_until(lambda: any("heartbeat" in json.dumps(one) for one in model.requests))
            asked("Is it dusk?")

    prompts = [*ASKED, DECIDED, "Is it day?", AGREED, "Is it night?", "Is it dusk?"]
    wanted = [line for prompt in prompts for line in (prompt, SAID)]
    with Commonplace(data, embedding="none") as memory:

        def lines() -> list[str]:
            found, _ = memory.within(None).browse(limit=100, order="oldest", kinds=["message"])
            return [each.text for each in found]

        wait_until(lambda: len(lines()) >= len(wanted))
        assert sorted(lines()) == sorted(wanted)


def last_prompts(request: Any) -> str:
    """The user's last messages in a request: the prompt, with what was put before it."""
    return json.dumps([each for each in request["messages"] if each["role"] == "user"][-2:])
