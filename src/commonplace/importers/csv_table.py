"""CSV files whose header has a column for the text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from commonplace.engine.transfer.reading import NOTHING, decoded
from commonplace.engine.transfer.rows import located
from commonplace.errors import InvalidInput
from commonplace.importers.items import Item, key_of, tags_of, title_of
from commonplace.transcripts.record import moment

NAME = "csv"
TITLE = "CSV with a header"
TEXT = ("text", "content", "memory", "note", "body")
_TITLE, _TAGS = ("title", "name", "subject"), ("tags", "labels", "categories")
_AT = ("occurred_at", "created_at", "date", "time", "timestamp", "created")
_ID, _KIND, _SOURCE = ("id", "ref", "key"), ("kind",), ("source", "url")
_KNOWN = (*TEXT, *_TITLE, *_TAGS, *_AT, *_ID, *_KIND, *_SOURCE)


def recognises(path: Path) -> bool:
    """Return whether a file has the suffix of CSV or TSV."""
    return path.is_file() and path.suffix.lower() in (".csv", ".tsv")


def items(path: Path) -> Iterator[Item]:
    """Yield a memory for each row with a text."""
    try:
        whole = decoded(path.read_bytes()).replace("\r\n", "\n")
    except InvalidInput as error:
        raise located(error, path.name, NOTHING) from None
    header = whole.split("\n", 1)[0]
    separator = max("\t;,", key=header.count)
    reader = csv.reader(io.StringIO(whole, newline=""), delimiter=separator)
    columns = [name.strip().lower() for name in next(reader, [])]
    if not set(columns) & set(TEXT):
        raise InvalidInput(
            f"{path.name} has no column for the text.",
            hint=f"Its first line must name the columns, one of them {', '.join(TEXT)}.",
            field="path",
        )
    for row in reader:
        values = dict(zip(columns, (value.strip() for value in row), strict=False))
        text = _first(values, TEXT)
        if not text:
            continue
        more = {name: value for name, value in values.items() if name not in _KNOWN and value}
        named = _first(values, _TAGS)
        yield Item(
            key=_first(values, _ID) or key_of(*sorted(values.items())), text=text,
            title=title_of(_first(values, _TITLE)), kind=_first(values, _KIND) or "note",
            tags=tags_of(named.split(";" if ";" in named else ",")),
            occurred_at=moment(_first(values, _AT)), source=_first(values, _SOURCE),
            attrs={"columns": more} if more else {},
        )  # fmt: skip


def _first(values: dict[str, str], names: tuple[str, ...]) -> str:
    return next((values[name] for name in names if values.get(name)), "")
