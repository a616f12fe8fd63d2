"""Processes that carry out workflows to their end, or kill themselves where they are told to.

    python workflow_worker.py DATA SPACE EXECUTION LOG KILL...

Each KILL is a process of its own, one after the other: `before`, `asked`, `acted` or `after`, a
colon and the number of a step; an empty one lives until the execution is over. The processes are
forked off one that has loaded the code and nothing else, so that none pays for loading it again.
What begins with `files:` is no kill but something that happens to the files in between.

`asked` kills when the step's agent begins; `acted` once it has done with tools what its step says,
and before it answers; `after` once what it gave is stored, and before DBOS knows.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from dbos import _queue  # loaded here, for all that are forked

from commonplace.dialects import registry
from commonplace.dialects.contract import Setting
from commonplace.dialects.orchestrator import runtimes, workflows
from commonplace.dialects.orchestrator.running import background_work
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.library import Library
from commonplace.errors import CommonplaceError
from commonplace.server.gate import Gate
from commonplace.storage.system import open_system

ORCHESTRATOR = registry.load("orchestrator")
ENOUGH_SECONDS = 60


def quickly(take: Any) -> Any:
    """DBOS looks once a second for what it is to go on with; here more often."""

    def worker(stop: Any, dbos: Any, queue: Any) -> None:
        queue._polling_interval_sec = 0.05
        take(stop, dbos, queue)

    return worker


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Scripted:
    """Agents that do what their prompt says, and write down that they were asked.

    `CALL [tool, {arguments}]` calls a tool, and `FAIL n` then fails for the first n times; the
    answer is what stands before, and the number of the step.
    """

    def __init__(self, log: Path, kill: str) -> None:
        self.log = log
        self.kill = kill
        self.setting: Setting

    def converse(self, ask: runtimes.AgentPrompt) -> str:
        words, _, order = ask.prompt.partition("CALL ")
        index = ask.key.split(":")[3] if order and ask.key.startswith("workflow:") else words
        with self.log.open("a") as stream:
            stream.write(f"asked {index}\n")
        if self.kill == f"asked:{index}":
            die()
        call = runtimes.agent_calls(ask, self.setting)
        if order:
            name, arguments = json.JSONDecoder().raw_decode(order)[0]
            told = call.tool_function(name)(arguments)
            if told.startswith("error"):
                raise CommonplaceError(told)
        if self.kill == f"acted:{index}":
            die()
        if fails := re.search(r"FAIL (\d+)", ask.prompt):
            with self.log.open("a") as stream:
                stream.write(f"failed {index}\n")
            if self.log.read_text().splitlines().count(f"failed {index}") <= int(fails[1]):
                raise CommonplaceError("the agent is tired")
        return f"{words.strip()}+{index}"


def carry_out(data: Path, space: str, execution: str, log: Path, kill: str) -> None:
    take = workflows.Executions.step

    def step(self: workflows.Executions, space: str, identity: str, index: int) -> bool:
        if kill == f"before:{index}":
            die()
        go_on = take(self, space, identity, index)
        if kill == f"after:{index}":
            die()
        return go_on

    workflows.Executions.step = step  # type: ignore[method-assign]
    _queue.queue_worker_thread = quickly(_queue.queue_worker_thread)
    library = Library(data, embedder=None)
    with contextlib.closing(library), contextlib.closing(open_system(data)) as system:
        agents = Scripted(log, kill)
        gate = Gate(library, system, [ORCHESTRATOR])
        agents.setting = Setting(library=library, system=system, environ={}, perform=gate.perform)
        runtimes.set_runtime(library, agents)
        with background_work(agents.setting):
            memory = Commonplace(space=space, library=library)
            until = time.monotonic() + ENOUGH_SECONDS
            while time.monotonic() < until:
                if (
                    workflows.execution_progress(memory, execution)["status"]
                    in workflows.FINAL_STATUSES
                ):
                    return
                time.sleep(0.02)
    sys.exit("it did not end")


def happen(what: str, data: Path) -> None:
    """What may become of files while no process has them open."""
    folder, copy = data / "workflows", data.with_name("copy of spaces")
    if what == "lose the notes":
        for file in folder.glob("dbos.sqlite*"):
            file.unlink()
    elif what == "lose the folder":
        shutil.rmtree(folder)
    elif what == "spoil the notes":
        happen("lose the notes", data)
        (folder / "dbos.sqlite").write_bytes(b"This is no database. " * 1_000)
    elif what == "copy the spaces":
        shutil.copytree(data / "spaces", copy)
    elif what == "put the spaces back":
        shutil.rmtree(data / "spaces")
        shutil.copytree(copy, data / "spaces")
    else:
        sys.exit(f"{what}?")


def main() -> None:
    data, space, execution, log = sys.argv[1:5]
    for kill in sys.argv[5:]:
        if kill.startswith("files:"):
            happen(kill.removeprefix("files:"), Path(data))
            continue
        child = os.fork()
        if child == 0:
            carry_out(Path(data), space, execution, Path(log), kill)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != (-signal.SIGKILL if kill else 0):
            sys.exit(f"{kill or 'the last'} ended with {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main()
