"""Compute when a job is due, from cron expressions in local time."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, tzinfo
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from commonplace.dialects.mama.platform.failures import invalid_value, not_installed

_NAMED = re.compile(r"@(?:yearly|annually|monthly|weekly|daily|midnight|hourly)")
# random fields of croniter; they would differ each time they are parsed
_RANDOM = re.compile(r"(?:^|\s)[hr](?:[(/\s]|$)", re.I)


@cache
def local_zone() -> tzinfo:
    """Return the time zone of this machine, or its current offset if the zone is unknown."""
    name = os.environ.get("TZ", "").lstrip(":")
    if not name:
        try:
            name = os.readlink("/etc/localtime").partition("zoneinfo/")[2]  # noqa: PTH115
        except OSError:
            name = ""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError):  # TZ is not the name of a known time zone
        return datetime.now(UTC).astimezone().tzinfo or UTC


def _checked_fields(expression: str) -> list[str]:
    fields = expression.split()
    if _NAMED.fullmatch(expression):
        return fields
    if len(fields) not in (5, 6) or _RANDOM.search(expression):
        raise invalid_value(
            "cron_expr must have five fields, six with the seconds first, or be a name such as"
            " @hourly."
        )
    return fields


def check(expression: str) -> None:
    """Refuse an expression that is invalid or never due."""
    next_due(expression, datetime.now(UTC))


def next_due(expression: str, after: datetime, zone: tzinfo | None = None) -> datetime:
    """Return the next time at which an expression is due, in UTC.

    When the clock is set back, a job at a fixed hour does not run again in the repeated hour. When
    the clock is set forward, a job in the skipped hour runs at its end.
    """
    try:
        from croniter import croniter
    except ImportError:
        raise not_installed("croniter") from None
    expression = expression.strip()
    fields = _checked_fields(expression)
    start = after.astimezone(zone or local_zone())
    try:
        times: Any = croniter(expression, start, second_at_beginning=len(fields) == 6)
        found: datetime = times.get_next(datetime)
        while _has_fixed_hour(fields) and _is_repeated(found):
            found = times.get_next(datetime)
    except (ValueError, KeyError, OverflowError) as error:
        raise invalid_value("cron_expr is not a valid expression, or is never due.") from error
    return found.astimezone(UTC)


def _has_fixed_hour(fields: list[str]) -> bool:
    """Return whether the hour is given, by a field or by a name such as @daily."""
    return fields != ["@hourly"] and (len(fields) == 1 or not fields[-4].startswith("*"))


def _is_repeated(moment: datetime) -> bool:
    """Return whether a local time is the second of two equal ones, after a clock change."""
    return moment.fold == 1 and moment.replace(fold=0).utcoffset() != moment.utcoffset()
