"""mcp-memory-service: the table `memories` of its SQLite file, and its graph."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commonplace.importers.databases import first_with_tables
from commonplace.importers.items import Item, storable_tags
from commonplace.storage.sqlite import foreign
from commonplace.transcripts.record import list_of, mapping_of, parse_time, text_of

NAME = "mcp-memory-service"
TITLE = "mcp-memory-service"
TABLES = {
    "memories": ("id", "content_hash", "content", "tags", "memory_type", "metadata", "created_at",
                 "created_at_iso", "deleted_at"),
    "memory_graph": ("source_hash", "target_hash", "connection_types", "relationship_type"),
}  # fmt: skip


def recognises(path: Path) -> bool:
    """Return whether a path is the service's database, or a directory with it."""
    return _find_database(path) is not None


def _find_database(path: Path) -> Path | None:
    found = first_with_tables(path, ("sqlite_vec.db",), "memories")
    if found is None:
        return None
    with foreign.open_copy(found, ["memories"]) as copy:
        first = next(copy.rows("memories", TABLES["memories"]), None)
    return found if first is None or "content_hash" in first else None


def items(path: Path) -> Iterator[Item]:
    """Yield every memory that is not deleted, with the links of the graph."""
    file = _find_database(path)
    if file is None:
        return
    rows = foreign.read_tables(file, TABLES)
    links: dict[str, set[tuple[str, str]]] = {}
    for edge in rows["memory_graph"]:
        source, target = text_of(edge.get("source_hash")), text_of(edge.get("target_hash"))
        kind = text_of(edge.get("relationship_type")) or "related"
        # Some links are stored in both directions.
        if (kind, source) not in links.get(target, ()):
            links.setdefault(source, set()).add((kind, target))
    for row in rows["memories"]:
        text = text_of(row.get("content"))
        if not text.strip() or row.get("deleted_at"):
            continue
        kind, more = text_of(row.get("memory_type")), _parse_object(row.get("metadata"))
        at = parse_time(row.get("created_at")) or parse_time(row.get("created_at_iso"))
        known = text_of(row.get("content_hash"))
        attrs = {"memory_type": kind, "metadata": more}
        yield Item(
            key=known, text=text, tags=storable_tags(_parse_tags(row.get("tags"))), occurred_at=at,
            created_at=at, attrs={name: value for name, value in attrs.items() if value},
            links=sorted(links.get(known, ())),
        )  # fmt: skip


def _parse_tags(value: Any) -> list[Any]:
    """Parse tags: a text with commas or, in older releases, a JSON list."""
    text = text_of(value)
    if text.startswith("["):
        try:
            return list_of(json.loads(text))
        except (ValueError, RecursionError):
            pass
    return text.split(",")


def _parse_object(value: Any) -> dict[str, Any]:
    try:
        return mapping_of(json.loads(value)) if isinstance(value, str) else {}
    except (ValueError, RecursionError):
        return {}
