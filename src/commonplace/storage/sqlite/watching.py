"""Watches a file for changes."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import apsw

from commonplace.storage.database import Connection, connect, typed


class Watch:
    """Tells whether a file changed, whoever changed it, in a few microseconds.

    Two equal answers of `version()` mean that nothing was committed between them, by this process
    or by another. Threads may share it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._opened = 0

    def version(self) -> tuple[int, int]:
        """A value that differs after every commit."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = connect(self._path)
                    self._connection.execute("PRAGMA query_only = ON")
                    # data_version of a new connection starts at an arbitrary value
                    self._opened += 1
                # The pragma reads the file, unlike the file control of the same name.
                row = self._connection.execute("PRAGMA data_version").fetchone()
            except apsw.Error as error:
                self._let_go()
                raise typed(error) from error
            assert row is not None
            return self._opened, int(row[0])

    def close(self) -> None:
        """Close the connection; the next call opens it again."""
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(apsw.Error):
                connection.close(True)
