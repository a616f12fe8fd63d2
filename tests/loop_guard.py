"""Finds every use of a database connection in the thread of a running event loop.

A statement there holds up every other request, however quick it is on a quiet disk. apsw tells of
each connection as it is opened, and a connection of each statement; every call of psycopg that
talks to a server waits in one method. So nothing can be forgotten.
What a test does in a coroutine of its own is not looked at.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import os
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import apsw

TESTS = str(Path(__file__).parent)
_PACKAGE = importlib.util.find_spec("commonplace")  # which does not import it
assert _PACKAGE is not None
assert _PACKAGE.origin is not None
SOURCE = str(Path(_PACKAGE.origin).parent)
STACK = 30  # frames that are shown

found: list[str] = []
"""The stacks of what was found since they were last looked at."""


def watch(ends: bool = False) -> None:
    """Watch every connection that is opened from now on; with `ends`, a find ends the process."""
    import apsw  # here, since importing it can be what begins the guard and imports this module

    def executing(cursor: Any, sql: str, bindings: Any) -> bool:
        del cursor, sql, bindings
        _look(ends)
        return True

    def opened(connection: apsw.Connection) -> None:
        _look(ends)
        connection.exec_trace = executing

    apsw.connection_hooks.append(opened)


def watch_postgres(ends: bool = False) -> None:
    """Watch all connections to PostgreSQL in the same way."""
    import psycopg

    wait, connect = psycopg.Connection.wait, psycopg.Connection.connect

    def waiting(self: Any, *given: Any, **more: Any) -> Any:
        _look(ends)
        return wait(self, *given, **more)

    def connecting(*given: Any, **more: Any) -> Any:
        _look(ends)
        return connect(*given, **more)

    psycopg.Connection.wait = waiting  # type: ignore[method-assign]
    psycopg.Connection.connect = staticmethod(connecting)  # type: ignore[method-assign,assignment]


def _look(ends: bool) -> None:
    if asyncio._get_running_loop() is None or not _ours(sys._getframe(2)):
        return
    stack = "".join(traceback.format_stack(sys._getframe(2), STACK))
    found.append(stack)
    if ends:
        sys.stderr.write(f"a database was used on the event loop\n{stack}")
        sys.stderr.flush()
        os._exit(70)


def _ours(frame: FrameType | None) -> bool:
    """Whether the innermost coroutine is the server's; a callback counts as the server's."""
    while frame is not None:
        code = frame.f_code
        if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            if SOURCE in code.co_filename:
                return True
            if code.co_filename.startswith(TESTS):
                return False
        frame = frame.f_back
    return True
