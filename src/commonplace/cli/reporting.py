"""How a command ends: errors as messages on standard error, and exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping

from commonplace.cli import INTERRUPTED
from commonplace.cli.terminal import as_json_text
from commonplace.errors import CommonplaceError, StorageUnavailable, exit_code
from commonplace.text.hidden import escape_hidden

BROKEN_PIPE = 141  # the exit code that a shell reports after SIGPIPE

as_json = False
"""Whether errors are JSON, also usage errors."""


def run(work: Callable[[], int]) -> int:
    """Do the work of a command, report its error, and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # not if a test replaced it
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        code = work()
        sys.stdout.flush()
    except CommonplaceError as error:
        code = report_error(error)
    except BrokenPipeError:
        code = BROKEN_PIPE
    except OSError as error:
        if error.filename is None:  # standard output is full or closed
            _discard_output()
        code = report_error(_as_storage_error(error))
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    if code == BROKEN_PIPE:
        _discard_output()
    return code


def report_error(error: CommonplaceError) -> int:
    """Report an error; return the exit code."""
    show_error(error.as_dict())
    return exit_code(error)


def report_interrupt() -> int:
    """Report an interrupt; return the exit code."""
    sys.stderr.write("\ninterrupted; everything stored so far is safe\n")
    return INTERRUPTED


def show_error(parts: Mapping[str, str]) -> None:
    """Write an error to standard error."""
    if as_json:
        text = as_json_text({"error": parts})
    else:
        text = escape_hidden(f"error: {parts['message']} {parts['hint']}".rstrip())
    sys.stdout.flush()
    sys.stderr.write(text + "\n")


def _as_storage_error(error: OSError) -> StorageUnavailable:
    """Return a system error as one of our errors."""
    if error.filename is None:
        return StorageUnavailable(
            f"System error: {error.strerror or error}.",
            hint="What the command has stored stays stored: look before you run it again.",
        )
    where = f"{error.filename}: "
    return StorageUnavailable(
        f"System error: {where}{error.strerror or error}.",
        hint="Writes acknowledged before are stored. Check the path, its permissions and the disk.",
    )


def _discard_output() -> None:
    """Discard further output, so that Python does not report an error at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
