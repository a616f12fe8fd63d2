"""JSON lines of other programs, and our own JSON lines with links."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from commonplace.engine.model import TRUSTS
from commonplace.engine.transfer.importing import SUFFIXES
from commonplace.engine.transfer.reading import files_below
from commonplace.importers.csv_table import TEXT_NAMES
from commonplace.importers.items import (
    Item,
    Skipped,
    digest_key,
    distinct_key,
    key_scope_of,
    storable_tags,
    storable_title,
)
from commonplace.transcripts.lines import first_objects
from commonplace.transcripts.record import mapping_of, parse_time, text_of

NAME = "jsonl"
TITLE = "JSON lines"
_BYTES_AT_ONCE = 1 << 20
_SUFFIXES = (".jsonl", ".ndjson")


def recognises(path: Path) -> bool:
    """Return whether a file has lines with a text that our own format does not read.

    It has the suffix .ndjson, links in its lines, or a text under another key than `text`. A
    directory has at least one such file, and nothing else to import but JSON lines with a text.
    """
    if path.is_dir():
        files = list(files_below(path, (*SUFFIXES, *_SUFFIXES)))
        return all(map(_has_texts, files)) and any(map(recognises, files))
    if not _has_texts(path):
        return False
    first = next(iter(first_objects(path, 1)), {})
    return "text" not in first or path.suffix.lower() == ".ndjson" or has_links(path)


def _has_texts(path: Path) -> bool:
    """Return whether a file has the suffix of JSON lines, and its first line has a text."""
    if not path.is_file() or path.suffix.lower() not in _SUFFIXES:
        return False
    try:
        first = next(iter(first_objects(path, 1)), {})
    except OSError:  # the import of our own format tells why the file cannot be read
        return False
    return any(isinstance(first.get(name), str) for name in TEXT_NAMES)


def has_links(path: Path) -> bool:
    """Return whether the lines of a file have links, which our own format does not read."""
    end = b""
    with path.open("rb") as stream:
        while part := stream.read(_BYTES_AT_ONCE):
            if b'"links":' in end + part:
                return True
            end = part[-10:]
    return False


def items(path: Path) -> Iterator[Item | Skipped]:
    """Yield a memory for each line with a text, and a `Skipped` for each line that is not JSON."""
    if path.is_dir():
        for file in files_below(path, _SUFFIXES):
            yield from items(file)
        return
    seen: dict[str, int] = {}
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            if not (line := raw.strip()):
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = None
            if not isinstance(value, dict):
                yield Skipped(f"{path.name}, line {number}: the line is not a JSON object.")
                continue
            name = next((name for name in TEXT_NAMES if text_of(value.get(name)).strip()), None)
            if name is not None:
                yield _item(value, name, line, path, seen)


def _item(value: dict[str, Any], name: str, line: bytes, path: Path, seen: dict[str, int]) -> Item:
    """Return the item of a line; fields that are not understood are kept as attributes."""
    left = {key: each for key, each in value.items() if key != name and each is not None}
    ours = name == "text" and value.get("trust") in TRUSTS
    trust = left.pop("trust") if ours else ""
    identity = str(left.pop("id", "") or "")
    ref = _take_field(left, "ref", _as_text, "") if ours or not identity else ""
    tags, title = _take_field(left, "tags", _as_tags, []), _take_field(left, "title", _as_text, "")
    links = [mapping_of(link) for link in _take_field(left, "links", _as_list, [])]
    key = identity or ref or digest_key(line)
    key = key if ours else distinct_key(key, value[name], seen)
    item = Item(
        key=key, text=value[name],
        id=identity if ours and identity else None, ref=ref if ours else "",
        trust_in_file=trust, key_scope="" if ours else key_scope_of(path, key),
        kind=_take_field(left, "kind", _as_text, "") or "note",
        title=title if ours else storable_title(title),
        tags=tags if ours else storable_tags(tags),
        source=_take_field(left, "source", _as_text, ""),
        occurred_at=_take_field(left, "occurred_at", parse_time, None),
        created_at=_take_field(left, "created_at", parse_time, None),
        pinned=_take_field(left, "pinned", _as_flag, False),
        importance=_take_field(left, "importance", _as_share, 0.5),
        attrs=_take_field(left, "attrs", _as_mapping, {}),
        links=[(text_of(each.get("kind")), text_of(each.get("target"))) for each in links],
    )  # fmt: skip
    return replace(item, attrs={**item.attrs, "fields": left}) if left else item


def _take_field(left: dict[str, Any], name: str, read: Callable[[Any], Any], default: Any) -> Any:
    """Remove a field and return what `read` makes of it.

    If the field is missing, or `read` returns None, remove nothing and return the default.
    """
    found = read(left[name]) if name in left else None
    if found is None:
        return default
    del left[name]
    return found


def _as_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _as_list(value: Any) -> list[Any] | None:
    return value if isinstance(value, list) else None


def _as_mapping(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _as_flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _as_share(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= 1 else None


def _as_tags(value: Any) -> list[str] | None:
    """Return the tags of a list, or of a text with commas or semicolons; None for other values."""
    if isinstance(value, str):
        return value.split(";" if ";" in value else ",")
    if not isinstance(value, list):
        return None
    return [str(tag) for tag in value if tag is not None]
