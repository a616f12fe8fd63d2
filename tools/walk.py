"""Prints which files and functions of `commonplace` one call over HTTP enters.

`python tools/walk.py [ROOT]` starts the server of a source tree in this process, calls `remember`
and `recall` twice each, and lists what the second call entered, from the request being read to the
answer being written: on the event loop, and in the threads of executors to which it hands work.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import itertools
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ENDPOINT = "/mcp/commonplace"
HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2025-11-25",
}
CALLS: dict[str, list[dict[str, Any]]] = {
    "remember": [
        {"text": "The staging database is restored every Monday", "tags": ["ops"]},
        {"text": "Alice moved to the vision team", "tags": ["people"]},
    ],
    "recall": [{"query": "when is staging reset?"}, {"query": "Which team is Alice in?"}],
}
WAIT_SECONDS = 120.0
# Comprehensions have code of their own in some versions of Python; they are no functions.
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
QUIET_SECONDS = 0.5  # until the work that goes on after an answer is done


class Recorder:
    """Notes which functions of a package are entered until an answer is written.

    Counted are the steps of the event loop, but for those of tasks that were there before the call,
    and the work that they hand over to the threads of executors. All else is background work, such
    as the thread that embeds what was stored.
    """

    def __init__(self, package: Path) -> None:
        self._inside = f"{package}{os.sep}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._recording = False
        self._earlier_tasks: set[asyncio.Task[Any]] = set()
        self._handed_over: set[Callable[..., Any]] = set()
        self._answered = threading.Event()
        self.entered: set[tuple[str, str]] = set()  # file and function

    def start(self) -> None:
        assert self._loop is not None
        self.entered, self._handed_over = set(), set()
        self._earlier_tasks = asyncio.all_tasks(self._loop)
        self._answered.clear()
        self._recording = True

    def wait(self) -> None:
        """Return when the answer is written."""
        if not self._answered.wait(WAIT_SECONDS):
            raise RuntimeError("no answer was written")

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Python calls this at every call and return, in every thread."""
        if self._loop is None:
            self._loop = asyncio._get_running_loop()
        if not self._recording:
            return
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(self._inside):
            if code.co_name not in COMPREHENSIONS and self._serves(frame):
                file = code.co_filename.removeprefix(self._inside)
                self.entered.add((file, code.co_qualname))
        elif event == "call" and code.co_qualname == "ThreadPoolExecutor.submit":
            if self._serves(frame):
                self._handed_over.add(frame.f_locals["fn"])
        elif (
            event == "return"
            and code.co_qualname == "RequestResponseCycle.send"
            and frame.f_locals["self"].response_complete  # uvicorn has written all of it
        ):
            self._recording = False
            self._answered.set()

    def _serves(self, frame: FrameType) -> bool:
        """Whether a frame belongs to the call."""
        at: FrameType | None = frame
        while at is not None:
            if at.f_code.co_qualname == "Handle._run":
                return asyncio.current_task() not in self._earlier_tasks
            if at.f_code.co_qualname == "_WorkItem.run":
                return at.f_locals["self"].fn in self._handed_over
            at = at.f_back
        return False


class Output(io.StringIO):
    """Collects what the server prints, and waits for its address."""

    def address(self) -> str:
        until = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until:
            if found := re.search(r"http://([\d.]+:\d+)", self.getvalue()):
                return found[1]
            time.sleep(0.05)
        raise RuntimeError("the server did not start")


def call_tools_and_stop(
    output: Output, recorder: Recorder, walks: dict[str, set[tuple[str, str]]]
) -> None:
    """Call every tool once with each of its sets of arguments, then stop the server."""
    try:
        connection = http.client.HTTPConnection(output.address(), timeout=WAIT_SECONDS)
        time.sleep(QUIET_SECONDS)  # for the rest of the start
        numbers = itertools.count(1)
        for tool, calls in CALLS.items():
            for arguments in calls:
                params = {"name": tool, "arguments": arguments}
                message = {"jsonrpc": "2.0", "id": next(numbers), "method": "tools/call"}
                body = json.dumps({**message, "params": params})
                recorder.start()
                connection.request("POST", ENDPOINT, body, HEADERS)
                answer = json.loads(connection.getresponse().read())
                recorder.wait()
                time.sleep(QUIET_SECONDS)
                found = json.dumps(answer.get("result", {"isError": True}))
                if '"isError": true' in found or '\\"memories\\":[]' in found:
                    raise RuntimeError(f"{tool} failed or found nothing: {answer}")
            walks[tool] = recorder.entered
    finally:
        os.kill(os.getpid(), signal.SIGINT)


def functions_by_tool(root: Path) -> dict[str, set[tuple[str, str]]]:
    """Return the functions that the last call of each tool entered, as (file, function)."""
    source = root.resolve() / "src"
    sys.path.insert(0, str(source))
    from commonplace.cli import main as command

    recorder, output = Recorder(source / "commonplace"), Output()
    walks: dict[str, set[tuple[str, str]]] = {}
    client = threading.Thread(
        target=call_tools_and_stop, args=(output, recorder, walks), daemon=True
    )
    client.start()  # before threads are profiled, so that it is not
    printed, sys.stdout = sys.stdout, output
    threading.setprofile(recorder.profile)
    sys.setprofile(recorder.profile)
    with tempfile.TemporaryDirectory() as data:
        sys.argv = ["commonplace", "serve", "--port", "0", "--data", data]
        try:
            command()
        except SystemExit as ended:
            if ended.code:
                raise
        finally:
            sys.setprofile(None)
            sys.stdout = printed
    return walks


def main(root: Path) -> None:
    for tool, entered in functions_by_tool(root).items():
        files = sorted({file for file, _ in entered})
        print(f"{tool}: {len(files)} files, {len(entered)} functions")
        for file in files:
            print(f"  {file}")
            print(*(f"    {name}\n" for at, name in sorted(entered) if at == file), sep="", end="")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent.parent)
