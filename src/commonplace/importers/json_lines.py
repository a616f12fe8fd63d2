"""JSON lines of other programs, and our own JSON lines with links."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commonplace.importers.csv_table import TEXT
from commonplace.importers.items import Item, key_of, tags_of, title_of
from commonplace.transcripts.lines import first_objects, json_lines
from commonplace.transcripts.record import list_of, mapping_of, moment, text_of

NAME = "jsonl"
TITLE = "JSON lines"
_KNOWN = {*TEXT, "id", "kind", "title", "tags", "created_at", "occurred_at", "importance", "pinned",
          "ref", "source", "attrs", "links", "trust"}  # fmt: skip
_AT_ONCE = 1 << 20


def recognises(path: Path) -> bool:
    """Return whether a file has lines with a text that our own format does not read.

    It has the suffix .ndjson, links in its lines, or a text under another key than `text`.
    """
    if not path.is_file() or path.suffix.lower() not in (".jsonl", ".ndjson"):
        return False
    first = next(iter(first_objects(path, 1)), {})
    if not any(isinstance(first.get(name), str) for name in TEXT):
        return False
    return "text" not in first or path.suffix.lower() == ".ndjson" or _has_links(path)


def _has_links(path: Path) -> bool:
    end = b""
    with path.open("rb") as stream:
        while part := stream.read(_AT_ONCE):
            if b'"links":' in end + part:
                return True
            end = part[-10:]
    return False


def items(path: Path) -> Iterator[Item]:
    """Yield a memory for each line with a text."""
    for value, line, _ in json_lines(path):
        text = next((text_of(value[name]) for name in TEXT if text_of(value.get(name))), "")
        if text.strip():
            yield _item(value, line, text)


def _item(value: dict[str, Any], line: bytes, text: str) -> Item:
    identity = str(value.get("id") or "")
    ours = "text" in value and "trust" in value
    more = {name: each for name, each in value.items() if name not in _KNOWN}
    importance = value.get("importance")
    links = [mapping_of(link) for link in list_of(value.get("links"))]
    return Item(
        key=identity or text_of(value.get("ref")) or key_of(line), text=text,
        id=identity if ours and identity else None, ref=text_of(value.get("ref")) if ours else "",
        kind=text_of(value.get("kind")) or "note", title=title_of(value.get("title")),
        tags=tags_of(list_of(value.get("tags"))), occurred_at=moment(value.get("occurred_at")),
        created_at=moment(value.get("created_at")), pinned=value.get("pinned") is True,
        importance=importance if isinstance(importance, float) and 0 <= importance <= 1 else 0.5,
        attrs={**mapping_of(value.get("attrs")), **({"fields": more} if more else {})},
        source=text_of(value.get("source")),
        links=[(text_of(each.get("kind")), text_of(each.get("target"))) for each in links],
    )  # fmt: skip
