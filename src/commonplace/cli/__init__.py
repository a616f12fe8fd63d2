"""The command line. It loads nothing before `main`, which handles an interrupt."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130
NO_OUTPUT = 5
# How /dev/null replaces a standard stream that is closed.
STREAM_FLAGS = {"stdin": os.O_RDONLY, "stdout": os.O_WRONLY, "stderr": os.O_WRONLY}


def main(args: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    given = list(sys.argv[1:] if args is None else args)
    try:
        if args is None:
            _end_at_once_on_interrupt()
        closed = _open_closed_streams()
        if "stdout" in closed and given[:1] != ["hook"]:
            # A result that nobody gets is an error; told before anything is stored.
            sys.stderr.write("error: Standard output is closed; nothing was done. Open it.\n")
            sys.exit(NO_OUTPUT)
        code = _serve_mcp(given) if given[:1] == ["mcp"] else None
        if code is None:
            from commonplace.cli.app import run

            _raise_on_interrupt()
            code = run(given)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; everything stored so far is safe\n")
        code = INTERRUPTED
    if code == INTERRUPTED:
        # After an interrupt during exec(), which dataclasses use, `python -m` would end by the
        # signal instead of with our exit code. Another exec() clears that state.
        exec("")  # noqa: S102
    sys.exit(code)


def _end_at_once_on_interrupt() -> None:
    """Let an interrupt end the program at once: a KeyboardInterrupt in an import may get lost."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit_interrupted)


def _raise_on_interrupt() -> None:
    """Let an interrupt be a KeyboardInterrupt again."""
    import signal

    if signal.getsignal(signal.SIGINT) is _exit_interrupted:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit_interrupted(*_: object) -> None:
    try:
        os.write(2, b"\ninterrupted; everything stored so far is safe\n")
    finally:
        os._exit(INTERRUPTED)


def _serve_mcp(given: list[str]) -> int | None:
    """Run `mcp` without loading the rest of the program; None if that must handle the arguments."""
    from commonplace.client import command

    options = command.McpOptions.read(given[1:])
    if options is None:
        return None
    code = command.run(options)
    if code is not None:
        os._exit(code)  # another thread may still wait for the server
    given.append("--in-process")
    if options.subject or not os.environ.get("COMMONPLACE_DATA", "usual").strip():
        return None
    from commonplace.platform.loading import without_garbage_collection

    with without_garbage_collection():
        from commonplace.cli.in_process import serve
    _raise_on_interrupt()
    return serve(options)


def _open_closed_streams() -> list[str]:
    """Open streams that are closed, so that no file gets their number; return their names."""
    closed = [name for name in STREAM_FLAGS if getattr(sys, name) is None]
    for name in closed:
        mode = "r" if name == "stdin" else "w"
        setattr(sys, name, open(os.open(os.devnull, STREAM_FLAGS[name]), mode))  # noqa: PTH123, SIM115
    return closed
