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
SINGLE_FILE_FORMATS: Mapping[str, Callable[[Sequence[Memory], Links], str]] = {
    "mem0": mem0.export_text,
    "server-memory": server_memory.export_text,
    "claude-md": instructions.export_text,
}
JSONL, OBSIDIAN = "jsonl", "obsidian"
NAMES = (OBSIDIAN, JSONL, *SINGLE_FILE_FORMATS)


@dataclass(frozen=True, slots=True)
class Export:
    """The exported data: live memories except lines of conversations, and their links."""

    memories: list[Memory]
    links: dict[str, list[Link]]
    lines_left_out: int
    """The number of lines of conversations, which are not exported."""


def collect_export(memory: Commonplace) -> Export:
    """Return the memories of a space, the oldest first, with the links between them."""
    found = list(lookup.all_memories(memory, order="oldest"))
    kept = [each for each in found if each.kind != MESSAGE]
    there = {each.id for each in kept}
    links: dict[str, list[Link]] = {}
    for link in memory.links.of():
        if link.source in there and link.target in there:
            links.setdefault(link.source, []).append(link)
    return Export(kept, links, len(found) - len(kept))


def export_files(name: str, what: Export) -> Iterator[tuple[str, str]]:
    """Yield (name in the target directory, text) of each file; the name is empty for a single
    file."""
    if name == OBSIDIAN:
        yield from vaults.export_notes(what.memories, what.links)
    elif name == JSONL:
        yield "", _json_lines(what)
    else:
        yield "", SINGLE_FILE_FORMATS[name](what.memories, what.links)


def _json_lines(what: Export) -> str:
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
