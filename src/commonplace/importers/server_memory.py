"""The knowledge graph of `@modelcontextprotocol/server-memory`: a file of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from commonplace.engine.model import Link, Memory, iso
from commonplace.importers.items import Item, storable_kind, storable_tags, storable_title
from commonplace.transcripts.lines import first_objects, json_lines
from commonplace.transcripts.record import list_of, mapping_of, parse_time, text_of

NAME = "server-memory"
TITLE = "@modelcontextprotocol/server-memory"


def recognises(path: Path) -> bool:
    """Return whether the first lines of a file are entities or relations."""
    if not path.is_file():
        return False
    first = first_objects(path, 3)
    return bool(first) and all(
        (each.get("type") == "entity" and "observations" in each)
        or (each.get("type") == "relation" and "relationType" in each)
        for each in first
    )


def items(path: Path) -> Iterator[Item]:
    """Yield a memory for each entity with its observations; relations become links."""
    entities: dict[str, dict[str, Any]] = {}
    relations: dict[str, list[tuple[str, str]]] = {}
    for value, _, _ in json_lines(path):
        if value.get("type") == "entity":
            entities[text_of(value.get("name"))] = value
        elif value.get("type") == "relation":
            link = (text_of(value.get("relationType")), text_of(value.get("to")))
            relations.setdefault(text_of(value.get("from")), []).append(link)
    for name, value in entities.items():
        observations = [text_of(each) for each in list_of(value.get("observations"))]
        text = "\n".join(observations)
        ours = mapping_of(value.get("commonplace"))
        kind = text_of(value.get("entityType"))
        attrs = {"entity_type": kind, "observations": observations}
        yield Item(
            key=name, text=text if text.strip() else name, id=text_of(ours.get("id")) or None,
            key_scope="" if ours else str(path.resolve()),
            title=text_of(ours["title"]) if "title" in ours else storable_title(name),
            kind=kind if ours else "note",
            tags=list(map(text_of, list_of(ours.get("tags")))) if ours else storable_tags([kind]),
            occurred_at=parse_time(ours.get("occurred_at")),
            created_at=parse_time(ours.get("created_at")),
            attrs=mapping_of(ours.get("attrs")) if ours else attrs, links=relations.get(name, ()),
        )  # fmt: skip


def export_text(memories: Sequence[Memory], links: Mapping[str, Iterable[Link]]) -> str:
    """Return memories as entities; fields unknown to the graph are stored in an extra field."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for memory in memories:
        name = memory.title or memory.text.split("\n", 1)[0][:80].strip() or memory.id
        names[memory.id] = name if name not in taken else f"{name} ({memory.id})"
        taken.add(names[memory.id])
    lines = []
    for memory in memories:
        observed = memory.attrs.get("observations")
        whole = isinstance(observed, list) and "\n".join(map(str, observed)) == memory.text
        ours = {"id": memory.id, "title": memory.title, "tags": list(memory.tags),
                "occurred_at": iso(memory.occurred_at), "created_at": iso(memory.created_at),
                "attrs": dict(memory.attrs)}  # fmt: skip
        lines.append({"type": "entity", "name": names[memory.id], "entityType": memory.kind,
                      "observations": observed if whole else [memory.text],
                      "commonplace": ours})  # fmt: skip
    for memory in memories:
        for link in links.get(memory.id, ()):
            if link.target in names:
                ends = {"from": names[memory.id], "to": names[link.target]}
                lines.append({"type": "relation", **ends, "relationType": _relation_name(link)})
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _relation_name(link: Link) -> str:
    """Return the original name of the relation that an imported link was made from."""
    return link.reason if link.reason and storable_kind(link.reason, "") == link.kind else link.kind
