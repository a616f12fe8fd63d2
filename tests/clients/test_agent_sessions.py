"""Sessions of real agents with the hooks that `commonplace start` writes; the model is ours."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clients import programs
from clients.models import SAID, Model, serving_model
from clients.test_agents import environment, native, ran
from commonplace import Commonplace

KNOWN = "The harbour lamp is repaired by Ottilie every spring"
PROMPTS = ("Who repairs the harbour lamp?", "And who repairs that lamp in spring?")

Session = tuple[list[str], dict[str, str]]
"""A command, and its environment."""


def claude_code(home: Path, model: Model, prompt: str) -> Session:
    file = home / ".claude.json"
    answered = {  # what a person is asked once
        "hasCompletedOnboarding": True, "theme": "dark",
        "customApiKeyResponses": {"approved": ["x"], "rejected": []},
        "projects": {str(home / "work"): {"hasTrustDialogAccepted": True}},
    }  # fmt: skip
    file.write_text(json.dumps({**json.loads(file.read_text()), **answered}))
    return [native("@anthropic-ai/claude-code-*/claude"), "-p", prompt], {
        "ANTHROPIC_BASE_URL": model.address, "ANTHROPIC_API_KEY": "x", "TERM": "xterm-256color",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }  # fmt: skip


def codex(home: Path, model: Model, prompt: str) -> Session:
    provider = f'{{name="loop",base_url="{model.address}/v1",env_key="K",wire_api="responses"}}'
    settings = ('model_provider="loop"', 'model="m"', f"model_providers.loop={provider}")
    return [
        native("@openai/codex-*/vendor/*/bin/codex"), "exec", "--skip-git-repo-check",
        "--dangerously-bypass-hook-trust",  # a person trusts them in /hooks
        *(word for setting in settings for word in ("-c", setting)), prompt,
    ], {"K": "x"}  # fmt: skip


def gemini(home: Path, model: Model, prompt: str) -> Session:
    file = home / ".gemini" / "settings.json"
    own = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    file.write_text(json.dumps({**json.loads(file.read_text()), **own}))
    program = programs.package("@google/gemini-cli", "bundle/gemini.js")
    return [programs.node(), program, "-m", "gemini-2.5-flash", "-p", prompt], {
        "GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": model.address,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }  # fmt: skip


@pytest.fixture
def model() -> Iterator[Model]:
    with serving_model() as model:
        yield model


@pytest.mark.parametrize("agent", [claude_code, codex, gemini])
def test_a_session_is_given_what_is_relevant_and_stored_once(
    agent: Callable[[Path, Model, str], Session], tmp_path: Path, model: Model
) -> None:
    name = agent.__name__.replace("_", "-")
    home, data = tmp_path / "home", tmp_path / "data"
    work = home / "work"
    work.mkdir(parents=True)
    at = ("--data", str(data))
    ran(home, programs.COMMAND, "start", "--yes", "--only", name, *at)
    ran(home, programs.COMMAND, "remember", "--global", KNOWN, *at)
    ran(home, programs.COMMAND, "restart", *at)  # a busy machine may start it too late

    for prompt in PROMPTS:
        model.requests.clear()
        command, variables = agent(home, model, prompt)
        told = in_pipes(command, work, {**environment(home), **variables})
        assert SAID in told and "hook error" not in told and " Failed" not in told, told
        asked = json.dumps(model.requests)
        assert prompt in asked and KNOWN in asked and "recalled " in asked, asked

    # Claude Code marks prompts of `-p` as not typed by a person.
    assert_stored(data, [SAID, SAID] if agent is claude_code else [*PROMPTS, SAID, SAID])


def test_claude_code_in_a_terminal_is_given_what_is_relevant(tmp_path: Path, model: Model) -> None:
    home, data = tmp_path / "home", tmp_path / "data"
    (home / "work").mkdir(parents=True)
    at = ("--data", str(data))
    ran(home, programs.COMMAND, "start", "--yes", "--only", "claude-code", *at)
    ran(home, programs.COMMAND, "remember", "--global", KNOWN, *at)
    ran(home, programs.COMMAND, "restart", *at)
    (program, *_), variables = claude_code(home, model, "")
    stored = [PROMPTS[0], SAID]

    def is_stored() -> bool:  # before the session ends
        with Commonplace(data, embedding="none") as memory:
            return said(memory) == sorted(stored)

    told = in_terminal(
        [program], home / "work", {**environment(home), **variables}, data, is_stored
    )
    assert "hook error" not in told, told
    asked = json.dumps(model.requests)
    assert PROMPTS[0] in asked and KNOWN in asked and "recalled " in asked, told + asked
    assert_stored(data, stored)


def assert_stored(data: Path, wanted: list[str]) -> None:
    """That these are the lines of all conversations, each stored once."""
    with Commonplace(data, embedding="none") as memory:
        until = time.monotonic() + 60
        while (found := said(memory)) != sorted(wanted) and time.monotonic() < until:
            time.sleep(0.2)
    assert found == sorted(wanted)


def in_pipes(command: list[str], cwd: Path, env: dict[str, str]) -> str:
    """What a program prints for its one prompt."""
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        timeout=programs.SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def in_terminal(
    command: list[str], cwd: Path, env: dict[str, str], data: Path, answered: Callable[[], bool]
) -> str:
    """What a program shows to a person who types a prompt and leaves after the answer.

    The answer is not looked for on the screen, where only the characters that differ are written.
    """
    ours, theirs = pty.openpty()
    shown = b""
    typing = [PROMPTS[0], "/exit"]
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        until = time.monotonic() + programs.SECONDS
        while process.poll() is None and time.monotonic() < until:
            if select.select([ours], [], [], 1)[0]:
                try:
                    shown += os.read(ours, 65_536)
                except OSError:  # it has ended
                    break
            elif not any((data / "sessions").glob("*/*.json")):
                continue  # it is not noted yet that the session has started
            elif typing and (len(typing) == 2 or answered()):
                os.write(ours, typing.pop(0).encode())
                time.sleep(1)
                os.write(ours, b"\r")
            else:
                os.write(ours, b"\r")  # a busy program takes the first one for pasted text
        if process.poll() is None:
            process.kill()
    os.close(ours)
    return shown.decode("utf-8", "replace")


def said(memory: Commonplace) -> list[str]:
    """Every line of a conversation, of all projects."""
    found, _ = memory.within(None).browse(limit=100, kinds=["message"])
    return sorted(each.text for each in found)
