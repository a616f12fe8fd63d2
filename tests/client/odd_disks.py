"""A client over stdio on a full and on a read-only disk: run in a mount namespace of its own.

`python -m client.odd_disks DIRECTORY` mounts it, and prints what was seen as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from client.harness import Agent, kill_server, server_of, wait_until

SIZE = "40m"


def fill(disk: Path) -> None:
    """Leave no byte free."""
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(os.urandom(4_096))


def called(agent: Agent, tool: str, **arguments: Any) -> str:
    """The error of a call; empty if it succeeded."""
    try:
        agent.call(tool, **arguments)
    except RuntimeError as error:
        return str(error)
    return ""


def main(disk: Path) -> dict[str, Any]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(disk)], check=True)
    data, seen = disk / "data", {}
    with Agent(data) as agent:
        seen["stored"] = called(agent, "remember", text="x")
        called(agent, "recall", query="x")  # the first read sets room aside for a full disk
        fill(disk)
        seen["full"] = called(agent, "remember", text="y" * 100_000)
        seen["read"] = called(agent, "recall", query="x")
        kill_server(data)
        seen["read by another server"] = called(agent, "recall", query="x")
        seen["code"] = agent.end()[0]
    (disk / "filler").unlink()
    kill_server(data)
    wait_until(lambda: server_of(data) is None)
    read_only = ["mount", "-o", "remount,ro", str(disk)]
    wait_until(lambda: subprocess.run(read_only, capture_output=True).returncode == 0)
    with Agent(data) as agent:
        seen["read only"] = called(agent, "remember", text="z")
        seen["read-only code"], seen["read-only errors"] = agent.end()
    with suppress(OSError, ValueError):
        kill_server(data)
    return seen


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
