"""Every form that a thing has had in a space, also of things that are gone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from commonplace.engine.transfer import rows
from commonplace.engine.transfer.rows import Key
from commonplace.storage import versions
from commonplace.storage.ports import Rows
from commonplace.storage.tables import VERSIONED, Row, Table


@dataclass(frozen=True, slots=True)
class Form:
    """One form that a thing has had here, from one operation until another (None: it still is)."""

    num: int
    since: int
    until: int | None
    mark: str


class Past:
    """All forms of any thing of a space, also of things that are gone."""

    def __init__(self, connection: Rows, space: str) -> None:
        self._space = space
        self._gone: dict[tuple[Table, Key], list[int]] = {}
        for table in VERSIONED:
            for num in versions.gone(connection, space, table):
                for row, _, _ in table.past(connection, space, num=num, limit=1):
                    value = rows.leave(connection, space, table, row)
                    key = rows.key_of(table, value)
                    self._gone.setdefault((table, key), []).append(num)

    def gone(self, table: Table, key: Key) -> list[int]:
        """Numbers under which a thing was here, and is no longer."""
        return self._gone.get((table, key), [])

    def left(self, table: Table, key: Key, num: int) -> None:
        """Note that a thing is no longer here."""
        nums = self._gone.setdefault((table, key), [])
        if num not in nums:
            nums.append(num)

    def forms(self, connection: Rows, table: Table, key: Key, current: list[Row]) -> list[Form]:
        """What a thing was and is, oldest first; `current` are its present rows."""
        nums = dict.fromkeys([*self.gone(table, key), *(row["num"] for row in current)])
        found = []
        for num in nums:
            for row, until, _ in table.past(connection, self._space, num=num):
                found.append(self._form(connection, table, row, until))
        found += [self._form(connection, table, row, None) for row in current]
        return sorted(found, key=lambda form: (form.since, form.num))

    def _form(self, connection: Rows, table: Table, row: Row, until: int | None) -> Form:
        value = rows.leave(connection, self._space, table, row)
        return Form(row["num"], row["seq"], until, rows.mark(table, value))


def current_rows(
    connection: Rows, space: str, table: Table, values: Mapping[str, Any]
) -> list[Row]:
    """The present rows of the thing that these column values belong to."""
    columns = rows.key_columns(table)
    return table.where(connection, space, **{column: values[column] for column in columns})


def event_mark(kind: str, subject: str, at: int, payload_hash: bytes) -> str:
    """Equal for equal events, in whichever store they are."""
    return hashlib.sha256(json.dumps([kind, subject, at, payload_hash.hex()]).encode()).hexdigest()
