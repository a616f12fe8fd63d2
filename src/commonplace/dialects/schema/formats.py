"""The formats that a text may be asked to have."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from urllib.parse import urlsplit

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DATE_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[Tt](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?"
    r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_URI = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#@!$&'()*+,;=\[\]-]|%[0-9A-Fa-f]{2})+"
)


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    if not _DATE_TIME.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text.upper())
    except ValueError:
        return False
    return True


def _is_uri(text: str) -> bool:
    if not _URI.fullmatch(text) or text.count("#") > 1:
        return False
    try:
        parts = urlsplit(text)
        _ = parts.port  # refuses a port that is none
    except ValueError:
        return False
    return not set("[]") & set(parts.path + parts.query + parts.fragment)


FORMATS: dict[str, tuple[str, Callable[[str], object]]] = {
    "date": ("a date such as 2026-11-02", _is_date),
    "date-time": ("a time with its zone such as 2026-11-02T09:30:00Z", _is_date_time),
    "uuid": ("a UUID such as 123e4567-e89b-12d3-a456-426614174000", _UUID.fullmatch),
    "uri": ("an address such as https://example.org/page", _is_uri),
}
