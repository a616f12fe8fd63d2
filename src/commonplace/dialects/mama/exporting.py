"""All decisions as JSON or CSV, in pieces that fit into a response of the gate."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from typing import TYPE_CHECKING, Any

from commonplace.dialects.contract import as_json
from commonplace.dialects.mama import decisions, presenting
from commonplace.dialects.mama.presenting import MILLISECONDS
from commonplace.engine.model import Memory, iso

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

COLUMNS = ("id", "topic", "decision", "reasoning", "outcome", "confidence", "created_at")
PAGE = 20
PIECE_CHARS = 150_000
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def piece(memory: Commonplace, format: str, until: str, offset: int, skip: int) -> dict[str, Any]:
    """The text from decision `offset` on, without its first `skip` characters; and what is next.

    `until` is when the export began, so that what is saved meanwhile shifts nothing.
    """
    text = ""
    while True:
        page, total = memory.browse(
            kinds=[decisions.KIND], states=decisions.STATES, created_until=until, offset=offset,
            limit=PAGE,
        )  # fmt: skip
        for each in page:
            written = (csv_row if format == "csv" else json_row)(each)[skip:]
            if text and len(text) + len(written) > PIECE_CHARS:
                return {"text": text, "offset": offset, "skip": 0}
            if len(written) > PIECE_CHARS:  # only what is longer than a piece is ever cut
                cut = written[:PIECE_CHARS]
                return {"text": cut, "offset": offset, "skip": skip + PIECE_CHARS}
            text, offset, skip = text + written, offset + 1, 0
        if not page or offset >= total:
            return {"text": text, "offset": None, "skip": 0}


def json_row(memory: Memory) -> str:
    """A decision as JSON, with the comma before the next."""
    return as_json(presenting.fields(memory, MILLISECONDS)) + ","


def csv_row(memory: Memory) -> str:
    """A decision as a line of CSV, in which no cell is a formula."""
    fields = presenting.fields(memory, MILLISECONDS)
    fields["created_at"] = iso(memory.created_at)
    return csv_line([cell(fields[name]) for name in COLUMNS])


def cell(value: Any) -> str:
    """A value that a spreadsheet does not compute."""
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def csv_line(values: list[str]) -> str:
    """One line, ended as RFC 4180 says."""
    line = io.StringIO()
    csv.writer(line).writerow(values)
    return line.getvalue()


def head(format: str, at: datetime) -> str:
    """What stands before the decisions."""
    if format == "csv":
        return csv_line(list(COLUMNS))
    return f'{{"exported_at":{as_json(iso(at))},"decisions":['


def tail(format: str) -> str:
    """What stands behind them."""
    return "" if format == "csv" else "]}"
