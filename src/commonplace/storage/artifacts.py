"""Statements on the table `artifacts`."""

from __future__ import annotations

from commonplace.storage.ports import Rows
from commonplace.storage.tables import ARTIFACTS, Row


def named(rows: Rows, space: str, name: str) -> Row | None:
    """The active artifact with an id or at a path, or None."""
    clause = "AND state = 'active' AND (id = ? OR path = ?)"
    return ARTIFACTS.fetch_one(rows, space, clause, name, name)
