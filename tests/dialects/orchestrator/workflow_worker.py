"""A process that carries out workflows until they are over, or kills itself where it is told to.

    python workflow_worker.py DATA SPACE EXECUTION LOG [before|inside|after:STEP]

Each step's agent writes a line into LOG. `inside` kills in the middle of the agent's run, before it
has any effect; `after` once what it gave is stored, and before DBOS knows.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from commonplace.dialects.contract import Setting
from commonplace.dialects.orchestrator import runtimes, workflows
from commonplace.dialects.orchestrator.running import running
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.library import Library
from commonplace.storage.system import open_system


class Scripted:
    """An agent that adds its word to what it was told, and writes down that it was asked."""

    def __init__(self, log: Path, kill: str) -> None:
        self.log = log
        self.kill = kill

    def converse(self, ask: runtimes.Ask) -> str:
        index = ask.key.split(":")[3]
        with self.log.open("a") as stream:
            stream.write(f"asked {index}\n")
        if self.kill == f"inside:{index}":
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{ask.prompt}+{index}"


def main() -> None:
    data, space, execution, log = sys.argv[1:5]
    kill = sys.argv[5] if len(sys.argv) > 5 else ""
    take = workflows.Executions.step

    def step(self: workflows.Executions, space: str, identity: str, index: int) -> bool:
        if kill == f"before:{index}":
            os.kill(os.getpid(), signal.SIGKILL)
        go_on = take(self, space, identity, index)
        if kill == f"after:{index}":
            os.kill(os.getpid(), signal.SIGKILL)
        return go_on

    workflows.Executions.step = step  # type: ignore[method-assign]
    library = Library(Path(data), embedder=None)
    with contextlib.closing(library), contextlib.closing(open_system(Path(data))) as system:
        runtimes.put(library, Scripted(Path(log), kill))
        with running(Setting(library=library, system=system, environ={})):
            memory = Commonplace(space=space, library=library)
            until = time.monotonic() + 60
            while time.monotonic() < until:
                if workflows.status(memory, execution)["status"] in workflows.OVER:
                    return
                time.sleep(0.05)
    sys.exit("it did not end")


if __name__ == "__main__":
    main()
