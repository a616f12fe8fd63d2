"""What time it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from commonplace.dialects.contract import Call

_DAYS = "月火水木金土日"


def get_current_time(call: Call, *, timezone: str = "UTC") -> dict[str, Any]:
    """The time in a zone; in one that is not known, the time in UTC as ISO 8601."""
    del call
    now = datetime.now(UTC)
    iso = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    try:
        there = now.astimezone(ZoneInfo(timezone))
        shown = f"{there:%Y/%m/%d}({_DAYS[there.weekday()]}) {there:%H:%M:%S}"
    except (ValueError, OSError, KeyError):  # the last is ZoneInfoNotFoundError
        shown = iso
    return {"datetime": shown, "iso": iso, "timezone": timezone}
