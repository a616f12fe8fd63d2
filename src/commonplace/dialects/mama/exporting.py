"""Export all decisions as JSON or CSV, in pieces that fit into a response of the gate."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from typing import Any

from commonplace.dialects.contract import Call, as_json
from commonplace.dialects.mama import decisions, presenting
from commonplace.dialects.mama.presenting import MILLISECONDS
from commonplace.engine.model import Memory, iso

COLUMNS = ("id", "topic", "decision", "reasoning", "outcome", "confidence", "created_at")
PAGE = 20
PIECE_CHARS = 150_000
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def export_piece(call: Call, *, format: str, until: str, offset: int, skip: int) -> dict[str, Any]:
    """Return a piece of the export: its text, and the offset and skip of the next piece.

    The piece begins at decision `offset`, after the decision's first `skip` characters. `until` is
    the start time of the export; decisions that are saved later would shift the offsets.
    """
    text = ""
    while True:
        page, total = call.memory.browse(
            kinds=[decisions.KIND], states=decisions.VISIBLE_STATES, created_until=until,
            offset=offset, limit=PAGE,
        )  # fmt: skip
        for each in page:
            written = _decision_text(each, format, first=offset == 0)[skip:]
            if text and len(text) + len(written) > PIECE_CHARS:
                return {"text": text, "offset": offset, "skip": 0}
            if len(written) > PIECE_CHARS:  # only rows longer than a whole piece are split
                cut = written[:PIECE_CHARS]
                return {"text": cut, "offset": offset, "skip": skip + PIECE_CHARS}
            text, offset, skip = text + written, offset + 1, 0
        if not page or offset >= total:
            return {"text": text, "offset": None, "skip": 0}


def _decision_text(memory: Memory, format: str, *, first: bool) -> str:
    """Return a decision as a CSV line without formulas, or as JSON with a leading comma."""
    fields = presenting.decision_to_dict(memory, MILLISECONDS)
    if format == "json":
        return ("" if first else ",") + as_json(fields)
    fields["created_at"] = iso(memory.created_at)
    return csv_line([safe_cell(fields[name]) for name in COLUMNS])


def safe_cell(value: Any) -> str:
    """Return a value as text that a spreadsheet does not interpret as a formula."""
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def csv_line(values: list[str]) -> str:
    """Return a CSV line with the line end of RFC 4180."""
    line = io.StringIO()
    csv.writer(line).writerow(values)
    return line.getvalue()


def export_head(format: str, at: datetime) -> str:
    """Return the beginning of the export, before the decisions."""
    if format == "csv":
        return csv_line(list(COLUMNS))
    return f'{{"exported_at":{as_json(iso(at))},"decisions":['


def export_tail(format: str) -> str:
    """Return the end of the export, after the decisions."""
    return "" if format == "csv" else "]}"
