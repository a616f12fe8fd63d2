"""What a person sees: safe text, local times, progress; and what a script reads: JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from unicodedata import category, east_asian_width

from commonplace.text.hidden import escape_json, visible


def width(text: str) -> int:
    """How many columns a text takes."""
    return sum(
        0 if category(sign) in ("Mn", "Me") else 2 if east_asian_width(sign) in "WF" else 1
        for sign in text
    )


def one_line(text: str, columns: int) -> str:
    """The text's words in at most so many columns, cut with an ellipsis."""
    line = " ".join(visible(text).split())
    if width(line) <= columns:
        return line
    kept, used = "", 0
    for sign in line:
        used += width(sign)
        if used > columns - 1:
            break
        kept += sign
    return kept.rstrip() + "…"


def local(at: datetime | None, *, seconds: bool = False) -> str:
    """A moment on the wall clock here; midnight in UTC is a day, and shown as one."""
    if at is None:
        return ""
    if not seconds and (at.hour, at.minute, at.second, at.microsecond) == (0, 0, 0, 0):
        return f"{at:%Y-%m-%d}"
    try:
        shown = at.astimezone()
    except (OverflowError, OSError, ValueError):  # at the ends of time, or in no zone of the earth
        shown = at
    return f"{shown:%Y-%m-%d %H:%M:%S}" if seconds else f"{shown:%Y-%m-%d %H:%M}"


def bold(text: str) -> str:
    """Stressed, where that can be shown."""
    return f"\x1b[1m{text}\x1b[0m" if _coloured() else text


def dim(text: str) -> str:
    """In the background, where that can be shown."""
    return f"\x1b[2m{text}\x1b[0m" if _coloured() else text


def _coloured() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def say(text: str = "") -> None:
    """A line for whoever asked."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """A line beside the answer, so that a pipe does not carry it."""
    sys.stdout.flush()
    sys.stderr.write(text + "\n")


def as_json_text(value: Any) -> str:
    """One JSON document on one line, in which nothing steers a terminal."""
    return escape_json(json.dumps(value, ensure_ascii=False))


def emit(value: Any) -> None:
    """Write one JSON document on one line."""
    sys.stdout.write(as_json_text(value) + "\n")


def tell(as_json: bool, value: Any, text: str) -> None:
    """Write a value as JSON for a script, or a text for a person."""
    emit(value) if as_json else say(text)


def columns() -> int:
    """How wide a line may be."""
    if not sys.stdout.isatty():
        return 100
    return max(40, min(os.get_terminal_size(sys.stdout.fileno()).columns, 120))


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, if that is a terminal and the work takes longer than a second."""
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
