"""A wheel, built and installed in an environment of its own, and used as a newcomer would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 600
_LISTENING = re.compile(r"listening on (http://\S+)")


def build_wheel(source: Path, folder: Path) -> Path:
    """The wheel of a source tree."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=source, check=True, capture_output=True, timeout=SECONDS)
    (wheel,) = folder.iterdir()
    return wheel


class Environment:
    """An empty virtual environment, and a home directory with nothing in it."""

    def __init__(self, folder: Path, home: Path, **variables: str) -> None:
        self._folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.bin = folder / ("Scripts" if os.name == "nt" else "bin")
        self.home = home
        self._variables = {"PATH": os.environ["PATH"], "HOME": str(home), **variables}

    def pip(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)

    def run(self, program: str, *arguments: str) -> str:
        """What a program of the environment printed; it must succeed."""
        done = subprocess.run(
            [str(self.bin / program), *arguments],
            env=self._variables, cwd=self.home, capture_output=True, text=True, timeout=SECONDS,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, (program, arguments, done.stdout, done.stderr)
        return done.stdout

    @contextmanager
    def serving(self) -> Iterator[str]:
        """The address of a server on a free port."""
        with subprocess.Popen(
            [str(self.bin / "commonplace"), "serve", "--port", "0"],
            env=self._variables, cwd=self.home, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            try:
                assert process.stdout is not None
                found = next(filter(None, map(_LISTENING.search, process.stdout)), None)
                assert found is not None, "the server did not start"
                yield found[1]
            finally:
                process.terminate()
                process.wait(SECONDS)


def history_of_claude_code(home: Path, said: str) -> None:
    """A session of Claude Code in which the user said something."""
    folder = home / ".claude" / "projects" / "-work"
    folder.mkdir(parents=True)
    line = {
        "type": "user", "uuid": "u1", "sessionId": "s1", "timestamp": "2026-05-01T10:00:00Z",
        "cwd": str(home), "message": {"role": "user", "content": said},
    }  # fmt: skip
    (folder / "s1.jsonl").write_text(json.dumps(line) + "\n")


def use_as_newcomer(environment: Environment) -> None:
    """Start, store, recall by meaning in two languages, serve, look at a page, take it back."""
    run = environment.run
    history_of_claude_code(
        environment.home, "We decided to use PostgreSQL for the billing service."
    )
    before = {file for file in environment.home.rglob("*") if ".commonplace" not in file.parts}
    assert "imported 1 of 1" in run("commonplace", "start", "--yes")
    assert (environment.home / ".claude.json").exists()
    run("commonplace", "remember", "The staging database is restored every Monday")
    assert "every Monday" in run("commonplace", "search", "when is staging reset?")
    asked = "Wann wird die Staging-Datenbank wiederhergestellt?"
    assert "every Monday" in run("commonplace", "search", asked)
    assert "PostgreSQL" in run("commonplace", "search", "which database does billing use?")
    with environment.serving() as address:
        with urllib.request.urlopen(f"{address}/viewer", timeout=60) as answer:
            assert answer.status == 200 and b"<script" in answer.read()
        assert "commonplace serve" in run("commonplace", "status")
        # the server's own address, whatever its port
        assert run("commonplace", "open", "--print").startswith(f"{address}/viewer#code=")
    run("commonplace", "stop-using", "claude-code", "--yes")
    after = {file for file in environment.home.rglob("*") if ".commonplace" not in file.parts}
    assert after == before
