"""Parses Markdown files: frontmatter, headings and links."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commonplace.engine.transfer.reading import (
    NOTHING_IMPORTED,
    decode_text,
    files_below,
    open_file,
)
from commonplace.engine.transfer.rows import with_location
from commonplace.errors import InvalidInput

SUFFIXES = (".md", ".markdown")
_FRONTMATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_PROPERTY = re.compile(r"([^\s#:'\"\[\]{}-][^:\n]*?)[ \t]*:(?:[ \t]+(.*))?$")
_HEADING = re.compile(r"(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
_CODE_FENCE = re.compile(r"[ \t]{0,3}(`{3,}|~{3,})")
WIKI_LINK = re.compile(r"!?\[\[([^\]\[|#^\n]+)(?:[#^][^\]\[|\n]*)?(?:\|[^\]\[\n]*)?\]\]")
# A `#` at the start of the target of a link is a heading of the same note.
INLINE_TAG = re.compile(r"(?<![\w#/&])(?<!\[\[)(?<!\]\()#([\w/-]*[^\W\d_][\w/-]*)")


def files(path: Path) -> Iterator[Path]:
    """Yield the Markdown files of a directory, except hidden ones; or the file itself."""
    if path.is_file():
        yield path
    else:
        yield from files_below(path, SUFFIXES)


def read(file: Path) -> str:
    """Return a file's text unchanged; raise InvalidInput if it is not text."""
    with open_file(file) as stream:
        data = stream.read()
    try:
        return decode_text(data)
    except InvalidInput as error:
        raise with_location(error, str(file), NOTHING_IMPORTED) from None


def split_frontmatter(text: str) -> tuple[dict[str, Any], str]:
    """Return the properties at the top of a note, and the rest of the note.

    Values are strings (also for numbers) and lists, as Obsidian's property editor writes them.
    """
    found = _FRONTMATTER.match(text)
    if not found:
        return {}, text
    properties: dict[str, Any] = {}
    key = ""
    # other separators of lines, such as U+2028, may be part of a value
    for line in found[1].replace("\r\n", "\n").split("\n"):
        stripped = line.strip()
        if stripped.startswith("- ") and key:
            before = properties[key] if isinstance(properties[key], list) else []
            properties[key] = [*before, _unquoted(stripped[2:].strip())]
        elif pair := _PROPERTY.match(line):
            key = pair[1].strip()
            properties[key] = _parse_value((pair[2] or "").strip())
    return properties, text[found.end() :]


def _parse_value(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return [_unquoted(part.strip()) for part in text[1:-1].split(",") if part.strip()]
    return _unquoted(text)


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            return text[1:-1]
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text


def property_items(value: Any) -> list[Any]:
    """Return the items of a property, which may be a list or a text with commas or spaces."""
    if isinstance(value, list):
        return value
    text = str(value or "")
    return [part for part in re.split(r"[,\s]+", text) if part]


def sections(text: str) -> Iterator[tuple[list[str], str]]:
    """Yield (headings above it, text) for each text between headings; headings in code are
    ignored."""
    path: list[tuple[int, str]] = []
    lines: list[str] = []
    fence = ""
    for line in [*text.replace("\r\n", "\n").split("\n"), None]:
        heading = _HEADING.match(line) if line is not None and not fence else None
        if line is None or heading:
            if body := "\n".join(lines).strip():
                yield [name for _, name in path], body
            lines = []
            if heading:
                level = len(heading[1])
                path = [above for above in path if above[0] < level] + [(level, heading[2])]
            continue
        if code := _CODE_FENCE.match(line):
            if not fence:
                fence = code[1]
            elif code[1].startswith(fence):
                fence = ""
        lines.append(line)
