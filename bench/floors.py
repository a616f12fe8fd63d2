"""What the engine is measured against: the least code that does a part of its work."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import simsimd
from numpy.typing import NDArray

from bench.corpus import Corpus
from bench.embedders import DIMENSIONS
from commonplace.storage.database import connect, migrate
from commonplace.text.analysis import analyse_query, fold

TOP = 10


class BareFullText:
    """An FTS5 table of its own over the analysed texts, merged into one segment."""

    def __init__(self, path: Path, corpus: Corpus) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.execute("PRAGMA synchronous = OFF")
        with self._connection:
            self._connection.execute("CREATE VIRTUAL TABLE words USING fts5(body, content = '')")
            self._connection.executemany(
                "INSERT INTO words (rowid, body) VALUES (?, ?)",
                list(enumerate(corpus.analysed)),
            )
            self._connection.execute("INSERT INTO words (words) VALUES ('optimize')")

    def ask(self, terms: Sequence[str]) -> list[Any]:
        """The ten best by BM25 of any of the terms."""
        query = " OR ".join(f'"{term}"' for term in terms)
        return self._connection.execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?", (query, TOP)
        ).fetchall()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def terms_of(queries: Sequence[str]) -> dict[str, list[str]]:
    """Each query's terms, as the engine looks for them."""
    return {query: analyse_query(query) for query in queries}


class BareScan:
    """Every int8 vector against the query's, and the ten best."""

    def __init__(self, corpus: Corpus) -> None:
        self._matrix, self._scales = corpus.int8

    def ask(self, query: NDArray[np.int8]) -> NDArray[np.int64]:
        """Positions of the ten nearest."""
        products = np.asarray(simsimd.cdist(query[None, :], self._matrix, metric="dot"))[0]
        scores = products * self._scales
        return np.argpartition(scores, -TOP)[-TOP:]


class SqliteVec:
    """`sqlite-vec` with float vectors, in a file of its own."""

    def __init__(self, path: Path, corpus: Corpus) -> None:
        import sqlite_vec

        self._connection = apsw.Connection(str(path))
        self._connection.enable_load_extension(True)
        self._connection.load_extension(sqlite_vec.loadable_path())
        self._connection.enable_load_extension(False)
        self._connection.execute("PRAGMA synchronous = OFF")
        with self._connection:
            self._connection.execute(
                f"CREATE VIRTUAL TABLE near USING vec0(vector float[{DIMENSIONS}])"
            )
            self._connection.executemany(
                "INSERT INTO near (rowid, vector) VALUES (?, ?)",
                ((at, row.tobytes()) for at, row in enumerate(corpus.vectors)),
            )

    def ask(self, query: NDArray[np.float32]) -> list[Any]:
        """The ten nearest."""
        return self._connection.execute(
            "SELECT rowid, distance FROM near WHERE vector MATCH ? AND k = ?",
            (query.tobytes(), TOP),
        ).fetchall()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


@dataclass
class Rows:
    """What the engine wrote for some memories, table by table, ready to be written again."""

    tables: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    TABLES = {  # noqa: RUF012 - a constant table
        "operations": "num > ?1",
        "memories": "num > ?2",
        "lexemes": "memory > ?2",
        "passages": "memory > ?2",
        "labels": "memory > ?2",
    }


def written_rows(path: Path, operation: int, number: int) -> Rows:
    """Return the rows that a store has written after an operation and a row number."""
    rows = Rows()
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        for name, condition in Rows.TABLES.items():
            # Both numbers are bound by place, so a statement may use either.
            statement = f"SELECT * FROM {name} WHERE {condition} AND ?1 >= 0 AND ?2 >= 0"
            rows.tables[name] = connection.execute(statement, (operation, number)).fetchall()
        texts = connection.execute("SELECT num, text FROM memories WHERE num > ?", (number,))
        rows.tables["grams"] = [(num, fold(text)) for num, text in texts]
        rows.tables["head"] = connection.execute("SELECT * FROM head").fetchall()
    finally:
        connection.close()
    return rows


def joined_rows(several: Sequence[Rows]) -> Rows:
    """Join the rows of several writes, with the space's counters of the last one."""
    tables = {
        name: [row for rows in several for row in rows.tables[name]] for name in several[0].tables
    }
    return Rows({**tables, "head": several[-1].tables["head"]})


class BareTables:
    """The engine's own tables and indexes with its own settings, filled by bare inserts."""

    def __init__(self, path: Path) -> None:
        self._connection = connect(path, create=True)
        self._connection.pragma("journal_mode", "wal")
        migrate(self._connection)
        self._statements: dict[str, str] = {}

    def _statement(self, name: str, width: int) -> str:
        if name not in self._statements:
            columns = " (rowid, body)" if name == "grams" else ""
            verb = "INSERT OR REPLACE" if name == "head" else "INSERT"
            marks = ", ".join("?" * width)
            self._statements[name] = f"{verb} INTO {name}{columns} VALUES ({marks})"
        return self._statements[name]

    def insert(self, rows: Rows) -> None:
        """All of the rows in one transaction; they are on disk when this returns."""
        execute = self._connection
        execute.execute("BEGIN IMMEDIATE")
        for name, values in rows.tables.items():
            if values:
                execute.executemany(self._statement(name, len(values[0])), values)
        execute.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def fsync_seconds(path: Path, times: int) -> list[float]:
    """Return the seconds that writing and syncing 4 KB takes, for each of several times."""
    taken = []
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        for _ in range(times):
            began = time.perf_counter()
            os.write(descriptor, bytes(4096))
            os.fsync(descriptor)
            taken.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
    return taken
