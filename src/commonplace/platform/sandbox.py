"""Runs untrusted JavaScript: QuickJS in WebAssembly, in a separate process for each run.

The process gets no environment variable but the path of its cache, and has limits on memory and
time. A script can call only the given functions; the parent process receives the calls over a pipe
and runs them.
`python -m commonplace.platform.sandbox` is the entry point of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MEMORY_BYTES = 32 * 1024 * 1024
RESULT_BYTES = 1024 * 1024
LINE_BYTES = 4 * RESULT_BYTES  # a line is ASCII, so a letter of two bytes takes six
MOST_CALLS, ARGUMENT_CHARS = 50, 20_000
LOG_LINES, LOG_CHARS = 1_000, 1_000
GRACE_SECONDS = 2.0
COMMAND = (sys.executable, "-I", "-m", "commonplace.platform.sandbox")
Function = Callable[[Sequence[Any]], Any]
"""A function that scripts may call; if it raises `FunctionError`, the script gets an error."""


class FunctionError(Exception):
    """An error of a called function; the script gets its message."""


@dataclass(slots=True)
class SandboxResult:
    """The result of a script."""

    success: bool = False
    result: Any = None
    error: str = ""
    milliseconds: int = 0
    logs: list[str] = field(default_factory=list)
    calls: list[tuple[str, Sequence[Any]]] = field(default_factory=list)


def run(code: str, functions: Mapping[str, Function], seconds: float, cache: Path) -> SandboxResult:
    """Run a script with some functions; kill it soon after its time limit."""
    ran, begun = SandboxResult(), time.monotonic()
    environ = {"XDG_CACHE_HOME": str(cache), "HOME": str(cache)}
    process = subprocess.Popen(  # noqa: S603 - our own module
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=environ, start_new_session=True,
    )  # fmt: skip
    killer = threading.Timer(seconds + GRACE_SECONDS, process.kill)
    killer.start()
    try:
        _exchange_messages(process, code, functions, seconds, ran)
    finally:
        killer.cancel()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        ran.milliseconds = int((time.monotonic() - begun) * 1000)
    return ran


def _exchange_messages(
    process: subprocess.Popen[bytes],
    code: str,
    functions: Mapping[str, Function],
    seconds: float,
    ran: SandboxResult,
) -> None:
    assert process.stdin is not None and process.stdout is not None
    asked = {"code": code, "functions": list(functions), "seconds": seconds}
    with contextlib.suppress(OSError):
        _send(process.stdin, asked)
    ran.error = "TimeoutError: the script was stopped"
    while True:
        line = process.stdout.readline(LINE_BYTES)
        if len(line) == LINE_BYTES:
            ran.error = "RangeError: the arguments of a call are too large"
            return
        try:
            message = _parse_message(line)
        except ValueError:
            return  # the process was killed or crashed
        if "log" in message:
            if len(ran.logs) < LOG_LINES:
                ran.logs.append(str(message["log"])[:LOG_CHARS])
        elif "call" in message:
            answer = {"id": message["id"], **_call_function(functions, message, ran)}
            with contextlib.suppress(OSError):
                _send(process.stdin, answer)
        else:
            ran.error = str(message.get("error", ""))[:1_000]
            ran.success = not ran.error
            ran.result = message.get("result") if ran.success else None
            return


def _parse_message(line: bytes) -> Any:
    """Parse a line of JSON; replace lone surrogates, which no response may contain, by `?`."""
    message = json.loads(line)
    if b"\\ud" not in line.lower():
        return message
    return json.loads(json.dumps(message, ensure_ascii=False).encode(errors="replace"))


def _call_function(
    functions: Mapping[str, Function], message: Mapping[str, Any], ran: SandboxResult
) -> dict[str, Any]:
    name, arguments = str(message["call"]), message.get("arguments") or []
    if len(ran.calls) >= MOST_CALLS:
        return {"error": f"A script may make at most {MOST_CALLS} calls."}
    if len(json.dumps(arguments)) > ARGUMENT_CHARS:
        return {"error": f"The arguments of a call may have at most {ARGUMENT_CHARS:,} characters."}
    ran.calls.append((name, arguments))
    try:
        return {"value": functions[name](arguments)}
    except (FunctionError, KeyError) as error:
        return {"error": str(error)}


def _send(pipe: Any, value: Any) -> None:
    pipe.write(json.dumps(value).encode() + b"\n")
    pipe.flush()


# --- in the sandbox process ----------------------------------------------------------------------

_PRELUDE = """
(() => {
  const log = globalThis.__log, call = globalThis.__call, text = (value) => {
    if (typeof value === 'string') return value;
    try { return JSON.stringify(value) ?? String(value); } catch { return String(value); }
  };
  const write = (...values) => { log(values.map(text).join(' ').toWellFormed()); };
  globalThis.console = { log: write, info: write, warn: write, error: write, debug: write };
  for (const name of globalThis.__names) {
    globalThis[name] = async (...values) => {
      const message = await call(name, values);
      if (message.error !== undefined) throw new Error(message.error);
      return message.value;
    };
  }
  for (const name of ['__log', '__call', '__names']) delete globalThis[name];
})();
"""
_SHOW = """
((value) => {
  const plain = (_, each) =>
    ['function', 'symbol', 'bigint'].includes(typeof each) ? String(each) : each;
  const seen = new Set();
  const once = (name, each) => {
    if (typeof each === 'object' && each !== null) {
      if (seen.has(each)) return '[cycle]';
      seen.add(each);
    }
    return plain(name, each);
  };
  let shown;
  try { shown = JSON.stringify(value, plain); } catch { shown = JSON.stringify(value, once); }
  return shown === undefined ? 'null' : shown;
})
"""


def _quickjs_with_limits() -> Any:
    """Return the QuickJS library, with a memory limit and a cache of compiled WebAssembly code."""
    import quickjs_rs
    import wasmtime
    from quickjs_rs import _wasmtime

    class Limited(wasmtime.Store):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.set_limits(memory_size=MEMORY_BYTES)

    wasmtime.Store = Limited  # type: ignore[misc]
    config = wasmtime.Config()
    # without a writable cache directory, compiled code is not cached
    with contextlib.suppress(Exception):
        config.cache = True
    _wasmtime._SHARED_ENGINE = wasmtime.Engine(config)
    return quickjs_rs


class _Host:
    """The connection to the parent process."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self._next = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def send(self, value: Any) -> None:
        _send(self._out, value)

    async def call(self, name: str, arguments: list[Any]) -> Any:
        """Call a function of the parent; return an object with its `value` or its `error`."""
        self._next += 1
        answer = self._waiting[self._next] = asyncio.get_running_loop().create_future()
        self.send({"call": name, "id": self._next, "arguments": arguments})
        return await answer

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            loop.call_soon_threadsafe(self._resolve_call, message)

    def _resolve_call(self, message: Mapping[str, Any]) -> None:
        answer = {name: message[name] for name in ("value", "error") if name in message}
        self._waiting.pop(message["id"]).set_result(answer)


async def _evaluate(asked: Mapping[str, Any], host: _Host) -> dict[str, Any]:
    quickjs = _quickjs_with_limits()
    loop = asyncio.get_running_loop()
    threading.Thread(target=host.listen, args=(loop,), daemon=True).start()
    seconds = float(asked["seconds"])
    try:
        with quickjs.Runtime(memory_limit=MEMORY_BYTES) as runtime:
            context = runtime.new_context(timeout=seconds)
            context.register("__log", lambda text: host.send({"log": text}))
            context.register("__call", host.call)
            context.globals["__names"] = asked["functions"]
            context.eval(_PRELUDE)
            handle = await context.eval_handle_async(asked["code"], timeout=seconds)
            handle = await handle.await_promise(timeout=seconds)
            show = context.eval_handle(_SHOW)
            text = show.call(handle).to_python()
    except quickjs.MemoryLimitError:
        return {"error": "MemoryLimitError: the script used too much memory"}
    except (quickjs.TimeoutError, quickjs.DeadlockError):
        return {"error": "TimeoutError: the script did not end in time"}
    except quickjs.JSError as error:
        name, message = getattr(error, "name", "Error"), getattr(error, "message", str(error))
        return {"error": f"{name}: {message}"}
    except quickjs.QuickJSError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    if len(text.encode()) > RESULT_BYTES:
        return {"error": f"RangeError: the result is larger than {RESULT_BYTES:,} bytes"}
    return {"result": json.loads(text)}


def main() -> None:
    """Run one script."""
    out = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # the script's output must not mix with the protocol's lines
    host = _Host(out)
    asked = json.loads(sys.stdin.buffer.readline())
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        limit = int(asked["seconds"]) + 5
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    try:
        message = asyncio.run(_evaluate(asked, host))
    except Exception as error:  # a WebAssembly trap ends the run
        message = {"error": f"{type(error).__name__}: the script crashed"}
    host.send(message)


if __name__ == "__main__":
    main()
