"""A connection inside a transaction, as the statements of `storage/` use it.

Statements are written once, for SQLite; here their placeholders and the few parts that differ in
PostgreSQL are rewritten, once for each distinct statement.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from commonplace.errors import CommonplaceError
from commonplace.storage.postgres.connections import Pool
from commonplace.storage.postgres.errors import typed
from commonplace.storage.tables import HEAD

_MARK = re.compile(r"'[^']*'|\?(\d*)")
_JSON = re.compile(r"json_extract\((\w+(?:\.\w+)?), '\$\.([a-z0-9_.-]+)'\)")


LONG = ("subject_key", "predicate_key", "object_key", "path")
"""Columns whose values can be too long for an index, so that a hash of them is indexed instead."""
_COLUMN = rf"((?:\w+\.)?\b(?:{'|'.join(LONG)}))"
_EQUAL = re.compile(rf"{_COLUMN} = (\$\d+)")
_AMONG = re.compile(rf"{_COLUMN} IN \((\$\d+(?:, \$\d+)*)\)")


@lru_cache(maxsize=4096)
def rewritten(statement: str) -> str:
    """The statement with $1, $2, … as placeholders, and PostgreSQL's syntax for JSON fields."""
    count = 0

    def number(found: re.Match[str]) -> str:
        nonlocal count
        if found[1] is None:
            return found[0]  # a string literal, not a placeholder
        if found[1]:
            return f"${found[1]}"
        count += 1
        return f"${count}"

    def field(found: re.Match[str]) -> str:
        path = found[2].replace(".", ",")
        return f"({found[1]}::json #>> '{{{path}}}')"

    text = _MARK.sub(number, _JSON.sub(field, statement))
    before, where, conditions = text.partition(" WHERE ")
    return before + where + _AMONG.sub(_by_hashes, _EQUAL.sub(_by_hash, conditions))


def _by_hash(found: re.Match[str]) -> str:
    column, value = found.groups()
    return f"({_hash(column)} = {_hash(value)} AND {column} = {value})"


def _by_hashes(found: re.Match[str]) -> str:
    column, values = found.groups()
    hashes = ", ".join(map(_hash, values.split(", ")))
    return f"({_hash(column)} IN ({hashes}) AND {column} IN ({values}))"


def _hash(value: str) -> str:
    return f"hashtextextended({value}, 0)"


Statement = tuple[str, Sequence[Any] | None]
_ENDS = ("RELEASE", "ROLLBACK", "COMMIT")
"""Commands that are sent at once, so that errors of postponed statements are raised here."""
_MOST_WAITING = 5_000
_STREAMED = 20_000
"""How many rows of a large query are in memory at a time."""
_HEAD = rewritten(HEAD.select_sql)
_WRITES_HEAD = HEAD.insert_sql.partition("(")[0]


@lru_cache(maxsize=4096)
def _gives_rows(text: str) -> bool:
    return text.startswith(("SELECT", "WITH", "FETCH")) or " RETURNING " in text


class Result:
    """The rows that a statement gave."""

    __slots__ = ("_rows",)

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = iter(rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows

    def __next__(self) -> tuple[Any, ...]:
        return next(self._rows)

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None."""
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        return list(self._rows)


class PostgresRows:
    """`ports.Rows` on a connection in a transaction. Errors are typed.

    The transaction begins with the first statement that gives rows, and statements that give none
    wait for the next one that does: all of them are sent together, in one round trip. An error of
    one that waited is raised then, or when the part of a unit that it belongs to ends.
    """

    def __init__(self, pool: Pool, *, writes: bool) -> None:
        self._pool = pool
        self._writes = writes
        self._begun = False
        self._waiting: list[Statement] = []
        self._head: list[tuple[Any, ...]] | None = None
        """The head's row, which is asked for again and again; a transaction of others that could
        change it waits for a writer, and does not touch a reader's snapshot."""
        self.connection = pool.take()

    def open_with(self, statements: Sequence[Statement]) -> None:
        """Set the statements that begin the transaction; they are sent with the first other one."""
        self._waiting = list(statements)

    def lock(self, statement: str, space: str) -> tuple[int, str]:
        """Take the write lock of a space; return (schema version, id of the transaction)."""
        found = self._run(rewritten(statement), (space,))
        if not found:
            return 0, ""
        version, transaction, *head = found[0]
        self._head = [tuple(head)] if head else None
        return version, transaction

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, be it a failed one."""
        return self.connection.pgconn.transaction_status in (
            TransactionStatus.INTRANS,
            TransactionStatus.INERROR,
        )

    def execute(self, statement: str, bindings: Sequence[Any] | None = None, /) -> Result:
        """Run a statement."""
        text = rewritten(statement)
        if text == _HEAD:
            if self._head is None:
                self._head = self._run(text, bindings)
            return Result(self._head)
        if self._writes and not _gives_rows(text) and not text.startswith(_ENDS):
            if text.startswith(_WRITES_HEAD):
                self._head = None
            self._waiting.append((text, bindings))
            return Result([])
        if self._waiting and text.startswith("ROLLBACK TO"):
            # the postponed statement is rolled back anyway
            with contextlib.suppress(CommonplaceError):
                self._run(*self._waiting.pop())
        return Result(self._run(text, bindings))

    def executemany(self, statement: str, bindings: Iterable[Sequence[Any]], /) -> None:
        """Run a statement once for each set of bindings."""
        text = rewritten(statement)
        self._waiting += [(text, each) for each in bindings]
        if len(self._waiting) > _MOST_WAITING:
            self._run(*self._waiting.pop())

    def _run(self, text: str, bindings: Sequence[Any] | None) -> list[tuple[Any, ...]]:
        """Send postponed statements and this one in one round trip; return this one's rows."""
        first, self._begun = not self._begun, True
        waiting, self._waiting = self._waiting, []
        try:
            try:
                return self._send(waiting, text, bindings)
            except psycopg.OperationalError:
                if not first or not self.connection.broken:
                    raise
                # The server closed the connection while it was idle; only this statement shows it.
                self.connection = self._pool.replace(self.connection)
                return self._send(waiting, text, bindings)
        except psycopg.Error as error:
            raise typed(error) from error

    def _send(
        self, waiting: Sequence[Statement], text: str, bindings: Sequence[Any] | None
    ) -> list[tuple[Any, ...]]:
        connection = self.connection
        if not waiting:
            cursor = connection.execute(text, bindings, binary=True)
        else:
            with connection.pipeline():
                for each in waiting:
                    connection.execute(*each)
                cursor = connection.execute(text, bindings, binary=True)
        if text == "COMMIT" and cursor.statusmessage != "COMMIT":
            raise psycopg.errors.InFailedSqlTransaction("the transaction was rolled back")
        return cursor.fetchall() if cursor.description is not None else []

    def give_back(self, *, sound: bool = True) -> None:
        """Roll back without waiting, and return the connection to the pool."""
        if self.in_transaction and sound:
            self._pool.give_back(self.connection, ending=b"ROLLBACK")
        else:
            self._pool.give_back(self.connection, sound=sound)

    def select_each(
        self, statement: str, column: str, space: str, values: Sequence[int]
    ) -> Iterator[tuple[Any, ...]]:
        """As `ports.Rows`."""
        if not values:
            return iter(())
        text = f"{statement} AND {column} = ANY(?) ORDER BY {column}"
        return iter(Result(self._run(rewritten(text), (space, list(values)))))

    def stream(self, statement: str, bindings: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """As `ports.Rows`. Only one query of a transaction can be streamed at a time."""
        declared = f"DECLARE streamed NO SCROLL CURSOR FOR {rewritten(statement)}"
        self._waiting.append((declared, bindings))
        while True:
            rows = self._run(f"FETCH {_STREAMED} FROM streamed", None)
            if len(rows) < _STREAMED:
                self._waiting.append(("CLOSE streamed", None))
            yield from rows
            if len(rows) < _STREAMED:
                return

    def columns(self, table: str) -> set[str]:
        """As `ports.Rows`."""
        found = self.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = CAST(CAST(? AS TEXT) AS regclass)"
            " AND attnum > 0 AND NOT attisdropped",
            (table,),
        )
        return {row[0] for row in found}

    @property
    def grams_indexed(self) -> bool:
        """As `ports.Rows`."""
        return False

    def add_grams(self, space: str, texts: Iterable[tuple[int, str]]) -> None:
        """As `ports.Rows`."""
        self.executemany(
            "INSERT INTO grams (space, memory, body) VALUES (?, ?, ?)",
            [(space, num, folded) for num, folded in texts],
        )

    def drop_grams(self, space: str, memory: int) -> None:
        """As `ports.Rows`."""
        self.execute("DELETE FROM grams WHERE space = ? AND memory = ?", (space, memory))

    def memories_with_grams(self, space: str, grams: Sequence[str], most: int | None) -> list[int]:
        """As `ports.Rows`. There is no index: the texts themselves are looked through."""
        tests = " AND strpos(body, ?) > 0" * len(grams)
        limit = "" if most is None else f" LIMIT {most:d}"
        found = self.execute(
            f"SELECT memory FROM grams WHERE space = ?{tests}{limit}",  # noqa: S608
            (space, *grams),
        )
        return [row[0] for row in found]
