"""Watch an SQLite file for changes."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import apsw

from commonplace.storage.database import Connection, connect, typed_error


class Watch:
    """Reports within microseconds whether any process has changed a file.

    Two equal results of `version()` mean that nothing was committed between the calls, by this
    process or by another. Threads may share the object.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._opened = 0

    def version(self) -> tuple[int, int]:
        """Return a value that differs after every commit."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = connect(self._path)
                    self._connection.execute("PRAGMA query_only = ON")
                    # The data_version of a new connection starts at an arbitrary value.
                    self._opened += 1
                # The pragma reads the file, unlike the file control of the same name.
                row = self._connection.execute("PRAGMA data_version").fetchone()
            except apsw.Error as error:
                self._close_connection()
                raise typed_error(error) from error
            assert row is not None
            return self._opened, int(row[0])

    def close(self) -> None:
        """Close the connection; the next call opens it again."""
        with self._lock:
            self._close_connection()

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(apsw.Error):
                connection.close(True)
