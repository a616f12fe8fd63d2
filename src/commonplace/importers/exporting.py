"""Writes memories in the formats of other programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from commonplace.engine.content.conversations import KIND as MESSAGE
from commonplace.engine.model import Link, Memory, iso
from commonplace.importers import instructions, mem0, server_memory, vaults
from commonplace.platform import lookup

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

Links = Mapping[str, Iterable[Link]]
ONE_FILE: Mapping[str, Callable[[Sequence[Memory], Links], str]] = {
    "mem0": mem0.written,
    "server-memory": server_memory.written,
    "claude-md": instructions.written,
}
JSONL, OBSIDIAN = "jsonl", "obsidian"
NAMES = (OBSIDIAN, JSONL, *ONE_FILE)


@dataclass(frozen=True, slots=True)
class Exported:
    """The exported data: live memories except lines of conversations, and their links."""

    memories: list[Memory]
    links: dict[str, list[Link]]
    lines: int
    """The number of lines of conversations, which are not exported."""


def chosen(memory: Commonplace) -> Exported:
    """Return the memories of a space, the oldest first, with the links between them."""
    found = list(lookup.all_memories(memory, order="oldest"))
    kept = [each for each in found if each.kind != MESSAGE]
    there = {each.id for each in kept}
    links: dict[str, list[Link]] = {}
    for link in memory.links.of():
        if link.source in there and link.target in there:
            links.setdefault(link.source, []).append(link)
    return Exported(kept, links, len(found) - len(kept))


def files(name: str, what: Exported) -> Iterator[tuple[str, str]]:
    """Yield (name in the target directory, text) of each file; the name is empty for a single
    file."""
    if name == OBSIDIAN:
        yield from vaults.written(what.memories, what.links)
    elif name == JSONL:
        yield "", _lines(what)
    else:
        yield "", ONE_FILE[name](what.memories, what.links)


def _lines(what: Exported) -> str:
    """Return memories as JSON lines, which `commonplace import` and most other programs can
    read."""
    lines = []
    for memory in what.memories:
        line: dict[str, Any] = {
            "id": memory.id, "text": memory.text, "title": memory.title, "kind": memory.kind,
            "tags": list(memory.tags), "created_at": iso(memory.created_at),
            "occurred_at": iso(memory.occurred_at), "importance": memory.importance,
            "pinned": memory.pinned, "ref": memory.ref, "source": memory.source,
            "attrs": dict(memory.attrs), "trust": memory.trust,
        }  # fmt: skip
        related = [
            {"kind": each.kind, "target": each.target} for each in what.links.get(memory.id, ())
        ]
        if related:
            line["links"] = related
        lines.append({key: value for key, value in line.items() if value not in (None, "", [], {})})
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
