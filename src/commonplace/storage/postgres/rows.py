"""A PostgreSQL connection inside a transaction, as the statements of `storage/` use it.

Statements are written once, for SQLite. This module rewrites their placeholders, and the few parts
that differ in PostgreSQL, once for each distinct statement.
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
from commonplace.storage.postgres.errors import typed_error
from commonplace.storage.tables import HEAD

_MARK = re.compile(r"'[^']*'|\?(\d*)")
_JSON = re.compile(r"json_extract\((\w+(?:\.\w+)?), '\$\.([a-z0-9_.-]+)'\)")


HASHED_COLUMNS = ("subject_key", "predicate_key", "object_key", "path")
"""Columns whose values can be too long for an index; their hash is indexed instead."""
_COLUMN = rf"((?:\w+\.)?\b(?:{'|'.join(HASHED_COLUMNS)}))"
_EQUAL = re.compile(rf"{_COLUMN} = (\$\d+)")
_AMONG = re.compile(rf"{_COLUMN} IN \((\$\d+(?:, \$\d+)*)\)")


@lru_cache(maxsize=4096)
def translated_statement(statement: str) -> str:
    """Return the statement with placeholders $1, $2, … and PostgreSQL's syntax for JSON fields."""
    count = 0

    def number(found: re.Match[str]) -> str:
        nonlocal count
        if found[1] is None:
            return found[0]  # This is a string literal, not a placeholder.
        if found[1]:
            return f"${found[1]}"
        count += 1
        return f"${count}"

    def field(found: re.Match[str]) -> str:
        path = found[2].replace(".", ",")
        return f"({found[1]}::json #>> '{{{path}}}')"

    text = _MARK.sub(number, _JSON.sub(field, statement))
    before, where, conditions = text.partition(" WHERE ")
    return before + where + _AMONG.sub(_compare_by_hashes, _EQUAL.sub(_compare_by_hash, conditions))


def _compare_by_hash(found: re.Match[str]) -> str:
    column, value = found.groups()
    return f"({_hash_sql(column)} = {_hash_sql(value)} AND {column} = {value})"


def _compare_by_hashes(found: re.Match[str]) -> str:
    column, values = found.groups()
    hashes = ", ".join(map(_hash_sql, values.split(", ")))
    return f"({_hash_sql(column)} IN ({hashes}) AND {column} IN ({values}))"


def _hash_sql(value: str) -> str:
    return f"hashtextextended({value}, 0)"


Statement = tuple[str, Sequence[Any] | None]
_ENDING_COMMANDS = ("RELEASE", "ROLLBACK", "COMMIT")
"""Commands that are sent immediately, so that they raise errors of postponed statements."""
_MOST_WAITING = 5_000
_ROWS_AT_ONCE = 20_000
"""How many rows of a streamed query are in memory at a time."""
_HEAD = translated_statement(HEAD.select_sql)
_WRITES_HEAD = HEAD.insert_sql.partition("(")[0]


@lru_cache(maxsize=4096)
def _returns_rows(text: str) -> bool:
    return text.startswith(("SELECT", "WITH", "FETCH")) or " RETURNING " in text


class Result:
    """The rows that a statement returned."""

    __slots__ = ("_rows",)

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = iter(rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows

    def __next__(self) -> tuple[Any, ...]:
        return next(self._rows)

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, or None."""
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all remaining rows."""
        return list(self._rows)


class PostgresRows:
    """`ports.Rows` on a connection in a transaction. Its errors are those of this package.

    Writes that return no rows are postponed. They are sent together with the next statement that
    returns rows, in one round trip; the first round trip begins the transaction. The error of a
    postponed statement is raised then, or at the end of its part of the unit.
    """

    def __init__(self, pool: Pool, *, writes: bool) -> None:
        self._pool = pool
        self._writes = writes
        self._begun = False
        self._waiting: list[Statement] = []
        self._head: list[tuple[Any, ...]] | None = None
        """The cached row of the head. It cannot change during the transaction: other writers
        wait for this one, and a reader has its snapshot."""
        self.connection = pool.take()

    def open_with(self, statements: Sequence[Statement]) -> None:
        """Set the statements that begin the transaction; they are sent with the next statement."""
        self._waiting = list(statements)

    def lock(self, statement: str, space: str) -> tuple[int, str]:
        """Take the write lock of a space; return the schema version and the transaction id."""
        found = self._run(translated_statement(statement), (space,))
        if not found:
            return 0, ""
        version, transaction, *head = found[0]
        self._head = [tuple(head)] if head else None
        return version, transaction

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, even if it has failed."""
        return self.connection.pgconn.transaction_status in (
            TransactionStatus.INTRANS,
            TransactionStatus.INERROR,
        )

    def execute(self, statement: str, bindings: Sequence[Any] | None = None, /) -> Result:
        """Run a statement."""
        text = translated_statement(statement)
        if text == _HEAD:
            if self._head is None:
                self._head = self._run(text, bindings)
            return Result(self._head)
        if self._writes and not _returns_rows(text) and not text.startswith(_ENDING_COMMANDS):
            if text.startswith(_WRITES_HEAD):
                self._head = None
            self._waiting.append((text, bindings))
            return Result([])
        if self._waiting and text.startswith("ROLLBACK TO"):
            # The postponed statement is rolled back anyway.
            with contextlib.suppress(CommonplaceError):
                self._run(*self._waiting.pop())
        return Result(self._run(text, bindings))

    def executemany(self, statement: str, bindings: Iterable[Sequence[Any]], /) -> None:
        """Run a statement once for each set of bindings."""
        text = translated_statement(statement)
        self._waiting += [(text, each) for each in bindings]
        if len(self._waiting) > _MOST_WAITING:
            self._run(*self._waiting.pop())

    def _run(self, text: str, bindings: Sequence[Any] | None) -> list[tuple[Any, ...]]:
        """Send the postponed statements and this one in one round trip; return the rows of this
        one.
        """
        first, self._begun = not self._begun, True
        waiting, self._waiting = self._waiting, []
        try:
            try:
                return self._send(waiting, text, bindings)
            except psycopg.OperationalError:
                if not first or not self.connection.broken:
                    raise
                # The server closed the idle connection, which only this statement shows.
                self.connection = self._pool.replace(self.connection)
                return self._send(waiting, text, bindings)
        except psycopg.Error as error:
            raise typed_error(error) from error

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
        """Return the rows of a space whose column has one of these numbers, in their order."""
        if not values:
            return iter(())
        text = f"{statement} AND {column} = ANY(?) ORDER BY {column}"
        return iter(Result(self._run(translated_statement(text), (space, list(values)))))

    def stream(self, statement: str, bindings: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a query one by one.

        Only one query of a transaction can be streamed at a time.
        """
        declared = f"DECLARE streamed NO SCROLL CURSOR FOR {translated_statement(statement)}"
        self._waiting.append((declared, bindings))
        while True:
            rows = self._run(f"FETCH {_ROWS_AT_ONCE} FROM streamed", None)
            if len(rows) < _ROWS_AT_ONCE:
                self._waiting.append(("CLOSE streamed", None))
            yield from rows
            if len(rows) < _ROWS_AT_ONCE:
                return

    def columns(self, table: str) -> set[str]:
        """Return the names of a table's columns."""
        found = self.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = CAST(CAST(? AS TEXT) AS regclass)"
            " AND attnum > 0 AND NOT attisdropped",
            (table,),
        )
        return {row[0] for row in found}

    @property
    def grams_indexed(self) -> bool:
        """Whether an index finds memories by trigrams, without reading all texts."""
        return False

    def add_grams(self, space: str, texts: Iterable[tuple[int, str]]) -> None:
        """Store the folded texts of memories, by number, for substring search."""
        self.executemany(
            "INSERT INTO grams (space, memory, body) VALUES (?, ?, ?)",
            [(space, num, folded) for num, folded in texts],
        )

    def drop_grams(self, space: str, memory: int) -> None:
        """Remove a memory's text from substring search."""
        self.execute("DELETE FROM grams WHERE space = ? AND memory = ?", (space, memory))

    def memories_with_grams(self, space: str, grams: Sequence[str], most: int | None) -> list[int]:
        """Return the numbers of at most `most` memories that contain all these trigrams.

        There is no index: the query scans the texts.
        """
        tests = " AND strpos(body, ?) > 0" * len(grams)
        limit = "" if most is None else f" LIMIT {most:d}"
        found = self.execute(
            f"SELECT memory FROM grams WHERE space = ?{tests}{limit}",  # noqa: S608
            (space, *grams),
        )
        return [row[0] for row in found]
