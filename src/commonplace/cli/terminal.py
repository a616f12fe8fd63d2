"""Output of commands: text for people, JSON for scripts, times, progress."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from unicodedata import category, east_asian_width

from commonplace.text.hidden import escape_hidden, escape_json


def width(text: str) -> int:
    """Return the width of a text in columns."""
    return sum(
        0 if category(sign) in ("Mn", "Me") else 2 if east_asian_width(sign) in "WF" else 1
        for sign in text
    )


def one_line(text: str, columns: int) -> str:
    """Return the text as one line of limited width, shortened with an ellipsis."""
    line = " ".join(escape_hidden(text).split())
    if width(line) <= columns:
        return line
    fitting, used = "", 0
    for sign in line:
        used += width(sign)
        if used > columns - 1:
            break
        fitting += sign
    return fitting.rstrip() + "…"


def join_into_lines(parts: Iterable[str], columns: int, between: str = " · ") -> list[str]:
    """Join the parts into as few lines of limited width as possible; cut only a longer part."""
    lines: list[str] = []
    for each in filter(None, parts):
        part = one_line(each, columns)
        joined = f"{lines[-1]}{between}{part}" if lines else ""
        if joined and width(joined) <= columns:
            lines[-1] = joined
        else:
            lines.append(part)
    return lines


def paragraph(text: str, indent: int = 0) -> list[str]:
    """Break a text into lines that fit the terminal; all but the first are indented."""
    return textwrap.wrap(
        escape_hidden(text), columns(), subsequent_indent=" " * indent, break_long_words=False,
        break_on_hyphens=False, replace_whitespace=False, drop_whitespace=True,
    )  # fmt: skip


def local_time(at: datetime | None, *, seconds: bool = False) -> str:
    """Format a time in the local time zone; format midnight in UTC as a date."""
    if at is None:
        return ""
    if not seconds and (at.hour, at.minute, at.second, at.microsecond) == (0, 0, 0, 0):
        return f"{at:%Y-%m-%d}"
    try:
        shown = at.astimezone()
    # dates near the years 1 and 9999 cannot be converted to local time
    except (OverflowError, OSError, ValueError):
        shown = at
    return f"{shown:%Y-%m-%d %H:%M:%S}" if seconds else f"{shown:%Y-%m-%d %H:%M}"


def bold(text: str) -> str:
    """Make a text bold, if the terminal supports it."""
    return f"\x1b[1m{text}\x1b[0m" if _coloured() else text


def dim(text: str) -> str:
    """Make a text dim, if the terminal supports it."""
    return f"\x1b[2m{text}\x1b[0m" if _coloured() else text


def _coloured() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def count_with_noun(count: int, one: str, many: str) -> str:
    """Return a number with its noun: 1 memory, 2 memories."""
    return f"{count:,} {one if count == 1 else many}"


def say(*lines: str) -> None:
    """Write lines to standard output; without arguments, an empty line."""
    sys.stdout.write("\n".join(lines) + "\n")


def note(*lines: str) -> None:
    """Write lines to standard error, so that they are not part of piped output."""
    sys.stdout.flush()
    sys.stderr.write("\n".join(lines) + "\n")


def as_json_text(value: Any) -> str:
    """Return a value as one line of JSON, with terminal control characters escaped."""
    return escape_json(json.dumps(value, ensure_ascii=False))


def emit_json(value: Any) -> None:
    """Write a value as one line of JSON."""
    sys.stdout.write(as_json_text(value) + "\n")


def tell(as_json: bool, value: Any, text: str) -> None:
    """Write a value as JSON with `as_json`, or else a text."""
    emit_json(value) if as_json else say(text)


def columns() -> int:
    """Return the maximum width of a line."""
    if not sys.stdout.isatty():
        return 80
    return max(40, min(os.get_terminal_size(sys.stdout.fileno()).columns, 120))


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr, if it is a terminal and the work takes longer than a
    second."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    begun = time.monotonic()
    bar: Any = None
    task: Any = None

    def show(done: int, total: int) -> None:
        nonlocal bar, task
        if bar is None and time.monotonic() - begun > 1:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            task = bar.add_task(what, total=total)
            bar.start()
        if bar is not None:
            bar.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        if bar is not None:
            bar.stop()
