"""The history page of the console: operations, their changes, and undo."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from commonplace.dialects.commonplace.console import rows
from commonplace.dialects.commonplace.tools import undo_operation
from commonplace.dialects.contract import Call, Tool
from commonplace.dialects.rest import Route
from commonplace.dialects.tool_schemas import TEXT, input_schema, integer
from commonplace.engine.binding import engine_call
from commonplace.engine.history import changes as changing
from commonplace.engine.model import Memory
from commonplace.storage.tables import Row
from commonplace.text.snippets import opening

PAGE = 50
MOST_CHANGES = 200


def operations(call: Call, *, limit: int, before: int | None = None) -> dict[str, Any]:
    """Return a page of operations, newest first, and the numbers of the first and the last one."""
    found = call.memory.history.operations(limit=limit, before=before)
    first, last = engine_call(call.memory, changing.first_and_last_seq)
    return {
        "operations": [operation.as_dict() for operation in found],
        "first": first,
        "last": last,
    }


def changes_of(call: Call, *, operation: str) -> dict[str, Any]:
    """Return the changes of an operation."""
    return _changes_to_dict(engine_call(call.memory, changing.of_operation, operation))


def changes_between(call: Call, *, since: str, until: str) -> dict[str, Any]:
    """Return the changes between two times."""
    return _changes_to_dict(engine_call(call.memory, changing.between_times, since, until))


def preview_undo(call: Call, *, operation: str) -> dict[str, Any]:
    """Return the changes that undoing an operation would make, without making them."""
    return _changes_to_dict(engine_call(call.memory, changing.preview_undo, operation))


def undo(call: Call, *, operation: str) -> dict[str, Any]:
    """Undo an operation."""
    return {"operation": undo_operation(call, operation), "undone": operation}


def _changes_to_dict(found: changing.Changes) -> dict[str, Any]:
    entries = [
        {"table": each.table, "before": _row_summary(each.table, each.before),
         "after": _row_summary(each.table, each.after),
         "fields": _changed_fields(each.before, each.after)}
        for each in found.changes[:MOST_CHANGES]
    ]  # fmt: skip
    return {
        "operations": [operation.as_dict() for operation in found.operations],
        "changes": entries,
        "total": len(found.changes),
        "complete": found.complete and len(entries) == len(found.changes),
    }


def _row_summary(table: str, row: Row | None) -> dict[str, Any] | None:
    return None if row is None else _FORMATTERS.get(table, _other_summary)(row)


def _memory_summary(row: Row) -> dict[str, Any]:
    return rows.memory_to_row(Memory.of(row))


def _link_summary(row: Row) -> dict[str, Any]:
    names = ("id", "source", "target", "kind", "reason")
    return {"summary": row["kind"], **{name: row[name] for name in names}}


def _fact_summary(row: Row) -> dict[str, Any]:
    statement = " ".join(row[name] for name in ("subject", "predicate", "object"))
    return {"summary": opening(statement, rows.EXCERPT_CHARS), "id": row["id"]}


def _other_summary(row: Row) -> dict[str, Any]:
    label = row.get("name") or row.get("title") or row.get("path") or row.get("id") or ""
    return {"summary": opening(str(label), rows.EXCERPT_CHARS)}


_FORMATTERS: Mapping[str, Callable[[Row], dict[str, Any]]] = {
    "memories": _memory_summary, "links": _link_summary, "facts": _fact_summary,
}  # fmt: skip
_IGNORED_FIELDS = ("num", "seq", "updated_at", "space", "format", "hash")


def _changed_fields(before: Row | None, after: Row | None) -> list[str]:
    """Return the names of the fields that differ between two versions of a row."""
    if before is None or after is None:
        return []
    names = (name for name in after if name not in _IGNORED_FIELDS)
    return [name for name in names if before.get(name) != after[name]]


OPERATIONS = (
    Tool(
        name="console_operations", title="Operations", scope="read", handler=operations,
        description="List operations, newest first.",
        input=input_schema(limit=integer(1, 500, PAGE), before=integer(0)),
    ),
    Tool(
        name="console_operation", title="An operation", scope="read", handler=changes_of,
        description="Show the changes of an operation.",
        input=input_schema(["operation"], operation=TEXT),
    ),
    Tool(
        name="console_changes", title="Changes", scope="read", handler=changes_between,
        description="Show the changes between two times.",
        input=input_schema(["since", "until"], since=TEXT, until=TEXT),
    ),
    Tool(
        name="console_undo_preview", title="Preview an undo", scope="read", handler=preview_undo,
        description="Show the changes that undoing an operation would make.",
        input=input_schema(["operation"], operation=TEXT),
        stepwise=True,  # the preview runs in a transaction that is rolled back
    ),
    Tool(
        name="console_undo", title="Undo", scope="write", handler=undo,
        description="Undo an operation.", input=input_schema(["operation"], operation=TEXT),
    ),
)  # fmt: skip
ROUTES = (
    Route("GET", "/api/console/operations", "console_operations", summary="List operations"),
    Route("GET", "/api/console/operations/{operation}", "console_operation",
          summary="Changes of an operation"),
    Route("GET", "/api/console/operations/{operation}/undo", "console_undo_preview",
          summary="Preview an undo", errors=(409,)),
    Route("POST", "/api/console/operations/{operation}/undo", "console_undo",
          summary="Undo an operation", errors=(409,)),
    Route("GET", "/api/console/changes", "console_changes",
          summary="Changes between two times"),
)  # fmt: skip
