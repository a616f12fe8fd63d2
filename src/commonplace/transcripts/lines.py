"""Reads files of JSON lines that a client may still be writing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

_RECORD_START = re.compile(rb'\{"(?:parentUuid|type|timestamp|uuid|id|role|\$set|isSidechain)":')
_MOST_ATTEMPTS = 20
_DECODER = json.JSONDecoder()


def json_lines(
    path: Path, offset: int = 0, most_bytes: int | None = None
) -> Iterator[tuple[dict[str, Any], bytes, int]]:
    """Yield (object, its line, the offset after it), starting at an offset of the file.

    An incomplete last line is not read yet. The object is empty for a line that is not a JSON
    object. If a client was killed while writing and later continued on the same line, its complete
    records are yielded; the offset after one is as if it had its line end. An offset beyond the end
    means that the file was replaced; then it is read from its start. Reading stops at the first
    line that ends `most_bytes` bytes or more after the offset.
    """
    with path.open("rb") as stream:
        if offset > stream.seek(0, 2):
            offset = 0
        stream.seek(offset)
        start = at = offset
        for line in stream:
            value = _parse_object(line)
            if value is None and not line.endswith(b"\n"):
                return  # an incomplete line, which may be completed later
            if value is None and (before := _records_before_another(line)):
                line = line[sum(map(len, before)) :]
                value = _parse_object(line)
                for record in before:
                    at += len(record)
                    yield _parse_object(record) or {}, record, at + 1
            at += len(line)
            yield value if value is not None else _second_record(line) or {}, line.strip(), at
            if most_bytes is not None and at - start >= most_bytes:
                return


def size_if_unended(path: Path) -> int:
    """Return the size of a file whose last line has no line end yet; 0 for any other file."""
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - 1))
        return size if stream.read(1) not in (b"", b"\n") else 0


def first_objects(path: Path, count: int) -> list[dict[str, Any]]:
    """Return the objects of the first `count` complete lines of a file; see `json_lines`."""
    found = []
    for value, _, _ in json_lines(path):
        found.append(value)
        if len(found) == count:
            break
    return found


def json_document(stream: IO[bytes]) -> Any:
    """Parse a whole file as JSON; return None if it is incomplete or invalid."""
    try:
        return json.loads(stream.read())
    except (ValueError, RecursionError):
        return None


def _parse_object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else {}


def _records_before_another(line: bytes) -> list[bytes]:
    """Return the complete records at the start of a line that another record follows."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return []
    found, start = [], 0
    while text.startswith("{", start):
        try:
            _, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        if not text.startswith("{", end):
            break
        found.append(text[start:end].encode())
        start = end
    return found


def _second_record(line: bytes) -> dict[str, Any] | None:
    """Return the record at the end of a line whose first record is incomplete."""
    for found in list(_RECORD_START.finditer(line, 1))[:_MOST_ATTEMPTS]:
        if value := _parse_object(line[found.start() :]):
            return value
    return None
