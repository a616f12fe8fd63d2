"""CSV files whose header has a column for the text."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

from commonplace.engine.transfer.reading import NOTHING_IMPORTED, decode_text
from commonplace.engine.transfer.rows import with_location
from commonplace.errors import InvalidInput
from commonplace.importers.items import (
    Item,
    Remark,
    digest_key,
    distinct_key,
    key_scope_of,
    storable_tags,
    storable_title,
)
from commonplace.transcripts.record import parse_time

NAME = "csv"
TITLE = "CSV with a header"
TEXT_NAMES = ("text", "content", "memory", "note", "body")
_TITLE_NAMES, _TAGS_NAMES = ("title", "name", "subject"), ("tags", "labels", "categories")
_TIME_NAMES = ("occurred_at", "created_at", "date", "time", "timestamp", "created")
_ID_NAMES, _KIND_NAMES, _SOURCE_NAMES = ("id", "ref", "key"), ("kind",), ("source", "url")


def recognises(path: Path) -> bool:
    """Return whether a file has the suffix of CSV or TSV."""
    return path.is_file() and path.suffix.lower() in (".csv", ".tsv")


def items(path: Path) -> Iterator[Item | Remark]:
    """Yield a memory for each row with a text, and a remark on each date that is none."""
    try:
        whole = decode_text(path.read_bytes()).replace("\r\n", "\n")
    except InvalidInput as error:
        raise with_location(error, path.name, NOTHING_IMPORTED) from None
    header = whole.split("\n", 1)[0]
    # a file with one column has no separators; in its texts, commas and tabs are just signs
    separator = max("\t;,", key=header.count) if re.search("[\t;,]", header) else "\x1f"
    # the default limit is smaller than a memory may be
    csv.field_size_limit(max(csv.field_size_limit(), len(whole)))
    reader = csv.reader(io.StringIO(whole, newline=""), delimiter=separator)
    columns = [name.strip().lower() for name in next(reader, [])]
    if not set(columns) & set(TEXT_NAMES):
        raise InvalidInput(
            f"{path.name} has no column for the text.",
            hint=f"Its first line must name the columns, one of them {', '.join(TEXT_NAMES)}.",
            field="path",
        )
    seen: dict[str, int] = {}
    for row in reader:
        values = dict(zip(columns, (value.strip() for value in row), strict=False))
        left = {name: value for name, value in values.items() if value}
        if not (text := _take_first(left, TEXT_NAMES)):
            continue
        # cells without a name, to the right of the header
        surplus = {str(n): cell for n, cell in enumerate(row, 1) if n > len(columns) and cell}
        dated = [name for name in _TIME_NAMES if name in left][:1]
        occurred_at = parse_time(left[dated[0]]) if dated else None
        if occurred_at is not None:
            del left[dated.pop()]
        key, tags = (
            _take_first(left, _ID_NAMES) or digest_key(*sorted(values.items())),
            _take_first(left, _TAGS_NAMES),
        )
        key, left = distinct_key(key, text, seen), {**left, **surplus}
        yield Item(
            key=key, key_scope=key_scope_of(path, key), text=text,
            title=storable_title(_take_first(left, _TITLE_NAMES)),
            kind=_take_first(left, _KIND_NAMES) or "note",
            tags=storable_tags(tags.split(";" if ";" in tags else ",")),
            occurred_at=occurred_at, source=_take_first(left, _SOURCE_NAMES),
            attrs={"columns": left} if left else {},
        )  # fmt: skip
        for name in dated:
            yield Remark(
                f"{path.name}, line {reader.line_num}: its column {name} is not a date and is kept"
                f" as text: {left[name]}"
            )


def _take_first(values: dict[str, str], names: tuple[str, ...]) -> str:
    """Remove the first of these columns that has a value, and return the value."""
    return next((values.pop(name) for name in names if name in values), "")
