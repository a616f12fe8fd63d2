"""When a job is due: cron expressions in local time, as people write them."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, tzinfo
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from commonplace.dialects.mama.platform.failures import invalid_value, not_installed

_NAMED = re.compile(r"@(?:yearly|annually|monthly|weekly|daily|midnight|hourly)")
# croniter's random fields, which would differ on each reading
_RANDOM = re.compile(r"(?:^|\s)[hr](?:[(/\s]|$)", re.I)


@cache
def local_zone() -> tzinfo:
    """The time zone of this machine with its rules; if it is unknown, the present offset."""
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


def _fields(expression: str) -> list[str]:
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
    """Refuse an expression that cannot be read, or that is never due."""
    next_due(expression, datetime.now(UTC))


def next_due(expression: str, after: datetime, zone: tzinfo | None = None) -> datetime:
    """The next moment at which an expression is due, in UTC.

    An hour that the clock repeats counts once for a job at a fixed hour; one that it skips is due
    at its end.
    """
    try:
        from croniter import croniter
    except ImportError:
        raise not_installed("croniter") from None
    expression = expression.strip()
    fields = _fields(expression)
    start = after.astimezone(zone or local_zone())
    try:
        times: Any = croniter(expression, start, second_at_beginning=len(fields) == 6)
        found: datetime = times.get_next(datetime)
        fixed = len(fields) > 1 and not fields[-4].startswith("*")
        if fixed and _is_repeated(found):
            found = times.get_next(datetime)
    except (ValueError, KeyError, OverflowError) as error:
        raise invalid_value("cron_expr is not a valid expression, or is never due.") from error
    return found.astimezone(UTC)


def _is_repeated(moment: datetime) -> bool:
    """Whether the clock shows this time for the second time."""
    return moment.fold == 1 and moment.replace(fold=0).utcoffset() != moment.utcoffset()
