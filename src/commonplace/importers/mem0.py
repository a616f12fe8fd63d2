"""mem0: the JSON result of `get_all`, or its `history.db`, which records every change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from commonplace.engine.model import Link, Memory, iso
from commonplace.importers.databases import first_with_tables
from commonplace.importers.items import Item, Skipped, storable_tags
from commonplace.importers.json_files import documents, read_heads
from commonplace.storage.sqlite import foreign
from commonplace.transcripts.record import list_of, mapping_of, parse_time, text_of

NAME = "mem0"
TITLE = "mem0"
_TABLES = {"history": ("memory_id", "new_memory", "event", "created_at", "updated_at",
                        "is_deleted")}  # fmt: skip
_FIELD_PATTERNS = tuple(re.compile(rb'"%s"\s*:' % name) for name in (b"memory", b"id"))
_OWNER_FIELDS = ("user_id", "agent_id", "run_id", "app_id", "actor_id")


def recognises(path: Path) -> bool:
    """Return whether a path is a JSON export of mem0, its history, or a directory with one."""
    if _find_database(path) is not None:
        return True
    return any(
        all(field.search(head) for field in _FIELD_PATTERNS) and head.lstrip()[:1] in (b"{", b"[")
        and b'"mapping"' not in head
        for head in read_heads(path, "mem0.json")
        if not _is_json_lines(path, head)
    )  # fmt: skip


def _is_json_lines(path: Path, head: bytes) -> bool:
    """Return whether a file has a JSON object on each line; an export of mem0 is one document."""
    if path.suffix.lower() in (".jsonl", ".ndjson") or head.lstrip().startswith(b'{"type"'):
        return True
    try:
        first = json.loads(head.lstrip().partition(b"\n")[0])
    except (ValueError, RecursionError):  # a document of several lines, or a longer line
        return False
    return isinstance(first, dict) and not isinstance(_listed_memories(first), list)


def items(path: Path) -> Iterator[Item | Skipped]:
    """Yield the current memories of mem0."""
    database = _find_database(path)
    if database is not None:
        yield from _final_states(database)
        return
    for document in documents(path, "mem0.json"):
        if isinstance(document, Skipped):
            yield document
            continue
        for value in map(mapping_of, list_of(_listed_memories(document))):
            if item := _item(value):
                yield item


def _listed_memories(document: Any) -> Any:
    """Return the list of memories in a document, which may be the list itself."""
    found = mapping_of(document)
    return found.get("results", found.get("memories", document))


def _find_database(path: Path) -> Path | None:
    found = first_with_tables(path, ("history.db",), "history")
    if found is None:
        return None
    with foreign.open_copy(found, ["history"]) as copy:
        first = next(copy.rows("history", _TABLES["history"]), None)
    return found if first is None or {"memory_id", "new_memory"} <= first.keys() else None


def _item(value: dict[str, Any]) -> Item | None:
    text, identity = text_of(value.get("memory")), text_of(value.get("id"))
    if not text.strip() or not identity:
        return None
    more = mapping_of(value.get("metadata"))
    named: Sequence[Any] = [*list_of(value.get("categories")), *list_of(more.get("tags"))]
    owners = {name: value[name] for name in _OWNER_FIELDS if value.get(name)}
    ours = mapping_of(more.get("commonplace"))
    links = [mapping_of(link) for link in list_of(ours.get("links"))]
    kept = {name: each for name, each in more.items() if name not in ("tags", "commonplace")}
    return Item(
        key=identity, text=text, id=identity if ours else None,
        tags=list(map(text_of, named)) if ours else storable_tags(named),
        kind=text_of(ours.get("kind")) or "note", title=text_of(ours.get("title")),
        occurred_at=parse_time(ours.get("occurred_at")),
        created_at=parse_time(value.get("created_at")),
        attrs={"mem0": {**owners, **kept}} if owners or kept else {},
        links=[(text_of(link.get("kind")), text_of(link.get("target"))) for link in links],
    )  # fmt: skip


def _final_states(path: Path) -> Iterator[Item]:
    """Yield each memory in the state after its last event."""
    current: dict[str, dict[str, Any]] = {}
    for row in foreign.read_tables(path, _TABLES)["history"]:
        identity = text_of(row.get("memory_id"))
        before = current.pop(identity, {})
        if row.get("event") != "DELETE" and not row.get("is_deleted"):
            created = before.get("created_at") or row.get("created_at")
            current[identity] = {**row, "created_at": created}
    for identity, row in current.items():
        text = text_of(row.get("new_memory"))
        if text.strip() and identity:
            created = parse_time(row.get("created_at")) or parse_time(row.get("updated_at"))
            yield Item(key=identity, text=text, created_at=created)


def export_text(memories: Sequence[Memory], links: Mapping[str, Iterable[Link]]) -> str:
    """Return memories as JSON in the format of mem0's `get_all`."""
    results = []
    for memory in memories:
        related = [{"kind": link.kind, "target": link.target} for link in links.get(memory.id, ())]
        ours = {"kind": memory.kind, "title": memory.title,
                "occurred_at": iso(memory.occurred_at), "links": related}  # fmt: skip
        results.append({
            "id": memory.id, "memory": memory.text, "user_id": "default",
            "created_at": iso(memory.created_at), "updated_at": iso(memory.updated_at),
            "categories": list(memory.tags), "metadata": {"commonplace": ours},
        })  # fmt: skip
    return json.dumps({"results": results}, ensure_ascii=False, indent=1) + "\n"
