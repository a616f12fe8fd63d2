"""Instruction files of agents: CLAUDE.md, AGENTS.md, MEMORY.md and GEMINI.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from commonplace.engine.model import Link, Memory, iso
from commonplace.importers import markdown
from commonplace.importers.items import Item, digest_key, storable_title
from commonplace.transcripts.noise import without_private_text
from commonplace.transcripts.record import list_of, mapping_of, parse_time, text_of

NAME = "claude-md"
TITLE = "CLAUDE.md, AGENTS.md, MEMORY.md or GEMINI.md"
FILES = ("CLAUDE.md", "AGENTS.md", "MEMORY.md", "GEMINI.md", "CLAUDE.local.md", "memory_summary.md")
_EXPORT_MARK = re.compile(r"^## .*\n<!-- commonplace (\{.*\}) -->\n", re.MULTILINE)


def recognises(path: Path) -> bool:
    """Return whether a file has one of these names, or contains an export of ours."""
    if not path.is_file() or path.suffix.lower() not in markdown.SUFFIXES:
        return False
    names = {name.casefold() for name in FILES}
    return path.name.casefold() in names or bool(_EXPORT_MARK.search(markdown.read(path)))


def items(path: Path) -> Iterator[Item]:
    """Yield a memory for each heading with a text under it."""
    text = markdown.read(path)
    if _EXPORT_MARK.search(text):
        yield from _exported_items(text)
        return
    where = str(path.absolute())
    seen: dict[str, int] = {}
    # before it is split, since a private block may span headings
    shown = without_private_text(markdown.split_frontmatter(text)[1])
    for headings, body in markdown.sections(shown):
        place = " > ".join(headings) or path.name
        seen[place] = seen.get(place, 0) + 1
        number = "" if seen[place] == 1 else f" ({seen[place]})"
        yield Item(
            key=f"{where}#{place}{number}", text=body, title=storable_title(place),
            source=where if len(where) <= 2_000 else "", attrs={"file": path.name},
        )  # fmt: skip


def _exported_items(text: str) -> Iterator[Item]:
    """Yield the sections of an export of ours.

    A section is read by its recorded length, since its text may contain headings.
    """
    mark = _EXPORT_MARK.search(text)
    while mark is not None:
        try:
            ours = mapping_of(json.loads(mark[1]))
        except (ValueError, RecursionError):
            ours = {}
        end = mark.end() + (ours["chars"] if isinstance(ours.get("chars"), int) else 0)
        following = _EXPORT_MARK.search(text, mark.end())
        if not text.startswith("\n\n", end):  # the section was edited
            end = len(text.rstrip()) if following is None else following.start()
        body = text[mark.end() : end]
        links = [mapping_of(each) for each in list_of(ours.get("links"))]
        if body.strip():
            identity = text_of(ours.get("id"))
            yield Item(
                key=identity or digest_key(body), id=identity or None, text=body,
                title=text_of(ours.get("title")), kind=text_of(ours.get("kind")) or "note",
                tags=[text_of(tag) for tag in list_of(ours.get("tags"))],
                created_at=parse_time(ours.get("created_at")),
                occurred_at=parse_time(ours.get("occurred_at")),
                links=[(text_of(each.get("kind")), text_of(each.get("target"))) for each in links],
            )  # fmt: skip
        mark = _EXPORT_MARK.search(text, end)


def export_text(memories: Sequence[Memory], links: Mapping[str, Iterable[Link]]) -> str:
    """Return memories as sections of one file; a comment under each heading has the other
    fields."""
    parts = ["# Memories\n\n"]
    for memory in memories:
        related = [{"kind": link.kind, "target": link.target} for link in links.get(memory.id, ())]
        ours = {
            "id": memory.id, "title": memory.title, "kind": memory.kind, "tags": list(memory.tags),
            "created_at": iso(memory.created_at), "occurred_at": iso(memory.occurred_at),
            "links": related, "chars": len(memory.text),
        }  # fmt: skip
        kept = {name: value for name, value in ours.items() if value}
        comment = json.dumps(kept, ensure_ascii=False).replace(">", "\\u003e")
        shown = storable_title(memory.title or memory.text.strip().split("\n", 1)[0])[:80]
        parts.append(f"## {shown}\n<!-- commonplace {comment} -->\n{memory.text}\n\n")
    return "".join(parts)
