"""A connection inside a transaction, as the statements of `storage/` use it.

Statements are written once, for SQLite; here their marks and the few things that PostgreSQL spells
otherwise are rewritten, once for each text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.pq import ExecStatus, TransactionStatus

from commonplace.storage.postgres.connections import Connection
from commonplace.storage.postgres.errors import typed

_MARK = re.compile(r"'[^']*'|\?(\d*)")
_JSON = re.compile(r"json_extract\((\w+(?:\.\w+)?), '\$\.([a-z0-9_.-]+)'\)")


LONG = ("subject_key", "predicate_key", "object_key", "path")
"""Columns that can be longer than the key of an index, which holds a hash of them instead."""
_COLUMN = rf"((?:\w+\.)?\b(?:{'|'.join(LONG)}))"
_EQUAL = re.compile(rf"{_COLUMN} = (\$\d+)")
_AMONG = re.compile(rf"{_COLUMN} IN \((\$\d+(?:, \$\d+)*)\)")


@lru_cache(maxsize=4096)
def rewritten(statement: str) -> str:
    """The statement with $1, $2, … for its marks, and PostgreSQL's syntax for a JSON field."""
    count = 0

    def number(found: re.Match[str]) -> str:
        nonlocal count
        if found[1] is None:
            return found[0]  # a literal
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
    """`ports.Rows` on a connection in a transaction. Errors are typed."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, be it a failed one."""
        return self.connection.pgconn.transaction_status in (
            TransactionStatus.INTRANS,
            TransactionStatus.INERROR,
        )

    def execute(self, statement: str, bindings: Sequence[Any] | None = None, /) -> Result:
        """Run a statement."""
        try:
            cursor = self.connection.execute(
                rewritten(statement),
                bindings,
                binary=True,
            )
            return Result(cursor.fetchall() if cursor.description is not None else [])
        except psycopg.Error as error:
            raise typed(error) from error

    def executemany(self, statement: str, bindings: Iterable[Sequence[Any]], /) -> None:
        """Run a statement once for each set of bindings."""
        try:
            with self.connection.cursor() as cursor:
                cursor.executemany(rewritten(statement), bindings)
        except psycopg.Error as error:
            raise typed(error) from error

    def command(self, text: str) -> None:
        """Run commands of our own, several in one round trip."""
        try:
            result = self.connection.pgconn.exec_(text.encode())
            if result.status == ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(result)
        except psycopg.Error as error:
            raise typed(error) from error

    def select_each(
        self, statement: str, column: str, space: str, values: Sequence[int]
    ) -> Iterator[tuple[Any, ...]]:
        """As `ports.Rows`."""
        if not values:
            return iter(())
        return iter(
            self.execute(
                f"{statement} AND {column} = ANY(?) ORDER BY {column}", (space, list(values))
            )
        )

    def columns(self, table: str) -> set[str]:
        """As `ports.Rows`."""
        found = self.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = CAST(CAST(? AS TEXT) AS regclass)"
            " AND attnum > 0 AND NOT attisdropped",
            (table,),
        )
        return {row[0] for row in found}

    def add_grams(self, space: str, texts: Iterable[tuple[int, str]]) -> None:
        """As `ports.Rows`."""
        self.executemany(
            "INSERT INTO grams (space, memory, body) VALUES (?, ?, ?)",
            [(space, num, folded) for num, folded in texts],
        )

    def drop_grams(self, space: str, memory: int) -> None:
        """As `ports.Rows`."""
        self.execute("DELETE FROM grams WHERE space = ? AND memory = ?", (space, memory))

    def holding(self, space: str, grams: Sequence[str], most: int | None) -> list[int]:
        """As `ports.Rows`. There is no index: the texts themselves are looked through."""
        tests = " AND strpos(body, ?) > 0" * len(grams)
        limit = "" if most is None else f" LIMIT {most:d}"
        found = self.execute(
            f"SELECT memory FROM grams WHERE space = ?{tests}{limit}",  # noqa: S608
            (space, *grams),
        )
        return [row[0] for row in found]
