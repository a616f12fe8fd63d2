"""Row hashes: what a row's SHA-256 covers, in each row format.

Every hashed table has a column `format`. Format 1 covers the first columns of the table by
position; no row is written in it any more, and none is ever rehashed. Format 2 covers the format
number and the columns by name, without the added columns that have their default value. So a new
column, which has its default in every row that is there, changes no hash and needs no new format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import apsw

from commonplace.storage.ports import Rows

FORMAT = 2
"""The format in which rows are written."""

_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})
_MADE_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__), (bytes, bytes), (int, int.__int__), (float, float.__float__),
)  # fmt: skip


def digest(*values: Any) -> bytes:
    """A SHA-256 over values, unambiguous about where one ends and the next begins.

    `ascii` writes texts, bytes, numbers and None the same on every version of Python; `repr`
    does not, since what is printable changes with Unicode.
    """
    return sha256(ascii(plain(values)).encode()).digest()


def plain(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values as SQLite gives them back: a text of a type of its own may print as anything."""
    if _PLAIN.issuperset(map(type, values)):
        return values
    return tuple(map(_as_stored, values))


def _as_stored(value: Any) -> Any:
    for plain_type, make in _MADE_PLAIN:
        if isinstance(value, plain_type) and type(value) not in _PLAIN:
            return make(value)
    return value


class Hashed:
    """A table whose rows carry a hash, and the format that it was computed in.

    `columns` are those of format 1, in the order in which it hashes them, `space` included. `tag`
    is what format 1 hashes before them. `added` are later columns with the constant default that
    their migration gave them, oldest first; a new one goes to the end. `beside` are columns that
    the hash does not cover.
    """

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        *,
        added: Mapping[str, Any] | None = None,
        beside: Sequence[str] = (),
        tag: tuple[str, ...] = (),
        hash_column: str = "hash",
    ) -> None:
        self.name = name
        self.added: Mapping[str, Any] = dict(added or {})
        self.covered = (*columns, *self.added)
        self.beside = tuple(beside)
        self.hash_column = hash_column
        self.stored = (*columns, *self.beside, *self.added, "format", hash_column)
        names, marks = ", ".join(self.stored), ", ".join("?" * len(self.stored))
        before, after = names.split("space, ", 1)
        self.select_sql = f"SELECT {names} FROM {name} WHERE space = ?"  # noqa: S608
        self.insert_sql = f"INSERT INTO {name} ({before}space, {after}) VALUES ({marks})"  # noqa: S608
        self._first = tuple(columns)
        self._tag = tag
        self._defaults = tuple(self.added.values())
        self._prefixes: dict[tuple[str, ...], bytes] = {}
        self._prefix = self._named(())

    def _named(self, newer: tuple[str, ...]) -> bytes:
        """What format 2 hashes before the values: the names of the columns that they are of."""
        prefix = self._prefixes.get(newer)
        if prefix is None:
            prefix = ascii((self.name, FORMAT, (*self._first, *newer))).encode()
            self._prefixes[newer] = prefix
        return prefix

    def hash(self, values: tuple[Any, ...], format: Any = FORMAT) -> bytes:
        """The hash of a row, for plain values in the order of `covered`.

        It is empty where there can be no such row: the format is unknown, or an added column of
        a row of format 1 has another value than its default.
        """
        at = len(self._first)
        first, usual = values[:at], values[at:] == self._defaults
        if format == FORMAT:
            prefix = self._prefix
            if not usual:
                newer = self.newer(values[at:])
                prefix = self._named(tuple(newer))
                first = (*first, *newer.values())
            return sha256(prefix + ascii(first).encode()).digest()
        if format == 1 and usual:
            return sha256(ascii((*self._tag, *first)).encode()).digest()
        return b""

    def newer(self, values: Sequence[Any]) -> dict[str, Any]:
        """Of the added columns, in their order, those that do not have their default."""
        pairs = zip(self.added.items(), values, strict=True)
        return {name: value for (name, default), value in pairs if value != default}

    def row(self, values: tuple[Any, ...], *beside: Any) -> tuple[Any, ...]:
        """A new row as `insert_sql` takes it, for values in the order of `covered`.

        Added columns that are not given have their default.
        """
        at = len(self._first)
        values = plain((*values, *self._defaults[len(values) - at :]))
        return (*values[:at], *beside, *values[at:], FORMAT, self.hash(values))

    def sound(self, stored: Sequence[Any]) -> bool:
        """Whether a row that `select_sql` gave is what was written."""
        at = len(self._first)
        covered = (*stored[:at], *stored[at + len(self.beside) : -2])
        return bool(self.hash(covered, stored[-2]) == stored[-1])

    def select_from(self, connection: Rows) -> str:
        """As `select_sql`, for a file that may be older than some columns: they have defaults."""
        there = {row[1] for row in connection.execute(f"PRAGMA table_info({self.name})")}
        absent = {"format": 1, **self.added}
        names = [
            name if name in there else f"{apsw.format_sql_value(absent[name])} AS {name}"
            for name in self.stored
        ]
        return f"SELECT {', '.join(names)} FROM {self.name} WHERE space = ?"  # noqa: S608

    def upsert(self, *key: str) -> str:
        """A statement that inserts a row, or replaces the one with the same space and key."""
        others = [name for name in self.stored if name not in ("space", *key)]
        changes = ", ".join(f"{name} = excluded.{name}" for name in others)
        more = "".join(f", {name}" for name in key)
        return f"{self.insert_sql} ON CONFLICT (space{more}) DO UPDATE SET {changes}"
