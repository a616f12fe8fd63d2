"""Prints which files and functions of `commonplace` one call over HTTP enters.

`python tools/walk.py [ROOT]` starts the server of a source tree in this process, calls `remember`
and `recall` twice each, and lists what the second call entered in any thread, from the request
being read to the answer being written.
"""

from __future__ import annotations

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
from types import CodeType, FrameType
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
    "recall": [{"query": "when is staging reset?"}, {"query": "who works on images?"}],
}
WAIT_SECONDS = 30.0
IDLE_SECONDS = 2.0
# Comprehensions have code of their own in some versions of Python; they are no functions.
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
QUIET_SECONDS = 0.5  # until the work that goes on after an answer is done


class Recorder:
    """Notes which functions of a package are entered until an answer is written.

    Threads and tasks that also run while nobody calls are background work, and not counted.
    """

    def __init__(self, package: Path) -> None:
        self._inside = f"{package}{os.sep}"
        self._note: Callable[[FrameType], None] | None = None
        self._background: set[CodeType] = set()
        self._answered = threading.Event()
        self.entered: set[tuple[str, str]] = set()  # file and function

    def watch_idle(self) -> None:
        """Learn what runs while nobody calls."""
        self._note = lambda frame: self._background.add(self._origin(frame))
        time.sleep(IDLE_SECONDS)
        self._note = None

    def start(self) -> None:
        self.entered = set()
        self._answered.clear()
        self._note = self._enter

    def wait(self) -> None:
        """Return when the answer is written."""
        if not self._answered.wait(WAIT_SECONDS):
            raise RuntimeError("no answer was written")

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Python calls this at every call and return, in every thread."""
        if (note := self._note) is None:
            return
        if event == "call" and frame.f_code.co_filename.startswith(self._inside):
            if frame.f_code.co_name not in COMPREHENSIONS:
                note(frame)
        elif (
            event == "return"
            and frame.f_code.co_qualname == "RequestResponseCycle.send"
            and frame.f_locals["self"].response_complete  # uvicorn has written all of it
        ):
            self._note = None
            self._answered.set()

    def _enter(self, frame: FrameType) -> None:
        if self._origin(frame) not in self._background:
            file = frame.f_code.co_filename.removeprefix(self._inside)
            self.entered.add((file, frame.f_code.co_qualname))

    def _origin(self, frame: FrameType) -> CodeType:
        """The outermost function of the package in this thread, or in this step of the loop."""
        origin, at = frame.f_code, frame.f_back
        while at is not None and at.f_code.co_qualname != "Handle._run":
            if at.f_code.co_filename.startswith(self._inside):
                origin = at.f_code
            at = at.f_back
        return origin


class Output(io.StringIO):
    """Takes what the server prints, and says when its address is there."""

    def address(self) -> str:
        until = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until:
            if found := re.search(r"http://([\d.]+:\d+)", self.getvalue()):
                return found[1]
            time.sleep(0.05)
        raise RuntimeError("the server did not start")


def call_all(output: Output, recorder: Recorder, walks: dict[str, set[tuple[str, str]]]) -> None:
    """Call every tool as often as it has arguments, then stop the server."""
    try:
        connection = http.client.HTTPConnection(output.address(), timeout=WAIT_SECONDS)
        time.sleep(QUIET_SECONDS)  # for the rest of the start
        recorder.watch_idle()
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
                if answer.get("result", {}).get("isError", True):
                    raise RuntimeError(f"{tool} failed: {answer}")
            walks[tool] = recorder.entered
    finally:
        os.kill(os.getpid(), signal.SIGINT)


def walk(root: Path) -> dict[str, set[tuple[str, str]]]:
    """What the last call of each tool entered."""
    source = root.resolve() / "src"
    sys.path.insert(0, str(source))
    from commonplace.cli import main as command

    recorder, output = Recorder(source / "commonplace"), Output()
    walks: dict[str, set[tuple[str, str]]] = {}
    client = threading.Thread(target=call_all, args=(output, recorder, walks), daemon=True)
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
    for tool, entered in walk(root).items():
        files = sorted({file for file, _ in entered})
        print(f"{tool}: {len(files)} files, {len(entered)} functions")
        for file in files:
            print(f"  {file}")
            print(*(f"    {name}\n" for at, name in sorted(entered) if at == file), sep="", end="")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent.parent)
