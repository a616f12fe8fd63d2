"""The command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

INTERRUPTED = 130
# How /dev/null replaces a standard stream that is closed. Writing to standard output then fails,
# since a result that nobody gets is an error.
CLOSED = {"stdin": os.O_RDONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}


def main(args: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    given = list(sys.argv[1:] if args is None else args)
    try:
        _open_closed_streams()
        if given[:1] == ["mcp"]:
            given = _serve_through_background(given)
        from commonplace.cli.app import run

        code = run(given)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; everything stored so far is safe\n")
        code = INTERRUPTED
    if code == INTERRUPTED:
        # After an interrupt during exec(), which dataclasses use, `python -m` would end by the
        # signal instead of with our exit code. Another exec() clears that state.
        exec("")  # noqa: S102
    sys.exit(code)


def _serve_through_background(given: list[str]) -> list[str]:
    """Run `mcp` without loading the rest of the program; return the arguments if the whole program
    must handle them.
    """
    from commonplace.client import command

    options = command.McpOptions.read(given[1:])
    if options is None:
        return given
    code = command.run(options)
    if code is not None:
        os._exit(code)  # another thread may still wait for the server
    return [*given, "--in-process"]


def _open_closed_streams() -> None:
    for name, how in CLOSED.items():
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.open(os.devnull, how), mode))  # noqa: PTH123, SIM115
