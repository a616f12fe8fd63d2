"""Parse periods of time in natural language: yesterday, two weeks ago, last Tuesday, in April.

A period is a half-open pair of local times. Words are English; dates in digits are ISO 8601.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from functools import cache

Period = tuple[datetime, datetime]
_Rule = Callable[[re.Match[str], datetime], Period]

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
NUMBERS = {
    word: number
    for number, words in enumerate((
        "zero", "one a an", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
        "eleven", "twelve",
    ))
    for word in words.split()
} | {"a couple of": 2, "a few": 3, "several": 4}  # fmt: skip
UNIT_LETTERS = {"h": "hour", "d": "day", "w": "week", "m": "month", "y": "year"}
UNITS = ("minute", "hour", "day", "week", "month", "year")
DAYS_OF_UNIT = {"week": 7, "month": 30, "year": 365}

_NUMBER = rf"(?P<number>\d{{1,4}}|{'|'.join(NUMBERS)})"
_UNIT = rf"(?P<unit>{'|'.join(UNITS)})s?"
_MONTH = "|".join(f"{name}|{name[:3]}" for name in MONTHS)
_DAY_OF_MONTH = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_WEEKDAY = "|".join(f"{name}|{name[:3]}" for name in WEEKDAYS)
_YEAR = r"(?P<year>(?:19|20)\d\d)"


def _days_from(day: date, now: datetime, days: int = 1) -> Period:
    start = datetime.combine(day, time(), now.tzinfo)
    return start, datetime.combine(day + timedelta(days), time(), now.tzinfo)


def _months_from(year: int, month: int, now: datetime, count: int = 1) -> Period:
    def start(index: int) -> datetime:
        return datetime(index // 12, index % 12 + 1, 1, tzinfo=now.tzinfo)

    first = year * 12 + month - 1
    return start(first), start(first + count)


def _time_ago(number: int, unit: str, now: datetime) -> datetime:
    """Return the time some units ago.

    A month ago is the same day of the last month, or its last day if there is no such day. Minutes
    and hours are counted as they passed, also where the clock was changed.
    """
    if unit in ("minute", "hour"):
        passed = timedelta(**{f"{unit}s": number})
        if now.tzinfo is None:
            return datetime.fromtimestamp(now.timestamp() - passed.total_seconds())
        return (now.astimezone(UTC) - passed).astimezone(now.tzinfo)
    if unit in ("month", "year"):
        index = now.year * 12 + now.month - 1 - number * (12 if unit == "year" else 1)
        for day in range(now.day, now.day - 4, -1):
            try:
                return now.replace(year=index // 12, month=index % 12 + 1, day=day)
            except ValueError:
                continue
        raise ValueError("outside the years 1 to 9999")
    return now - timedelta(**{f"{unit}s": number})


def _matched_time_ago(match: re.Match[str], now: datetime) -> datetime:
    word = match["number"] or "1"
    return _time_ago(NUMBERS[word] if word in NUMBERS else int(word), match["unit"], now)


def _period_ago(match: re.Match[str], now: datetime) -> Period:
    unit = match["unit"]
    at = _matched_time_ago(match, now)
    if unit in ("minute", "hour"):
        return at, at + timedelta(**{f"{unit}s": 1})
    if unit == "day":
        return _days_from(at.date(), now)
    half = timedelta(DAYS_OF_UNIT[unit] / 2)
    return at - half, at + half


def _period_until_now(match: re.Match[str], now: datetime) -> Period:
    return _matched_time_ago(match, now), now


def _abbreviated_period(match: re.Match[str], now: datetime) -> Period:
    return _time_ago(int(match["number"]), UNIT_LETTERS[match["letter"]], now), now


def _named_day(match: re.Match[str], now: datetime) -> Period:
    back = {"yesterday": 1, "last night": 1, "the day before yesterday": 2}.get(match["day"], 0)
    return _days_from(now.date() - timedelta(back), now)


def _weekday(match: re.Match[str], now: datetime) -> Period:
    names = [name[:3] for name in WEEKDAYS]
    back = (now.weekday() - names.index(match["weekday"][:3])) % 7 or 7
    return _days_from(now.date() - timedelta(back), now)


def _this_or_last_unit(match: re.Match[str], now: datetime) -> Period:
    last, unit = match["which"] != "this", match["unit"]
    if unit == "week":
        monday = now.date() - timedelta(now.weekday() + (7 if last else 0))
        return _days_from(monday, now, 7)
    if unit == "month":
        return _months_from(now.year, now.month - (1 if last else 0), now)
    return _months_from(now.year - (1 if last else 0), 1, now, 12)


def _weekend(match: re.Match[str], now: datetime) -> Period:
    saturday = now.date() - timedelta(now.weekday() - 5)
    if match["which"] != "this" and (saturday + timedelta(1)) >= now.date():
        saturday -= timedelta(7)
    return _days_from(saturday, now, 2)


def _month_number(match: re.Match[str]) -> int:
    return [name[:3] for name in MONTHS].index(match["month"][:3]) + 1


def _day_of_month(match: re.Match[str], now: datetime) -> Period:
    year = int(match["year"]) if match["year"] else now.year
    day = date(year, _month_number(match), int(match["day"]))
    if not match["year"] and day > now.date():
        day = day.replace(year=year - 1)
    return _days_from(day, now)


def _month(match: re.Match[str], now: datetime) -> Period:
    month = _month_number(match)
    year = int(match["year"]) if match["year"] else now.year
    if not match["year"] and (month > now.month or (match["which"] and month == now.month)):
        year -= 1
    return _months_from(year, month, now)


def _season(match: re.Match[str], now: datetime) -> Period:
    month = SEASONS[match["season"]]
    year = int(match["year"]) if match["year"] else now.year
    if (
        not match["year"]
        and _months_from(year, month, now, 3)[0 if not match["which"] else 1] > now
    ):
        year -= 1
    return _months_from(year, month, now, 3)


def _year(match: re.Match[str], now: datetime) -> Period:
    return _months_from(int(match["year"]), 1, now, 12)


def _iso_date(match: re.Match[str], now: datetime) -> Period:
    year, month = int(match["year"]), int(match["month"])
    if match["day"] is None:
        return _months_from(year, month, now)
    return _days_from(date(year, month, int(match["day"])), now)


_RULES: tuple[tuple[str, _Rule], ...] = (
    (rf"{_YEAR}-(?P<month>\d\d)(?:-(?P<day>\d\d))?", _iso_date),
    (r"(?P<day>the day before yesterday|yesterday|today|tonight|last night"
     r"|this (?:morning|afternoon|evening))", _named_day),
    (rf"(?:the )?{_DAY_OF_MONTH}(?: of)? (?P<month>{_MONTH})\b(?:,? {_YEAR})?", _day_of_month),
    (rf"(?P<month>{_MONTH}) (?:the )?{_DAY_OF_MONTH}(?:,? {_YEAR})?", _day_of_month),
    (rf"{_NUMBER} {_UNIT} ago", _period_ago),
    (rf"(?:in |within |over |during )?(?:the )?(?:last|past) {_NUMBER} {_UNIT}", _period_until_now),
    (r"(?P<which>last|this|the past) (?P<unit>week|month|year)", _this_or_last_unit),
    (r"(?P<which>last|this|the past|at the) weekend", _weekend),
    (rf"(?:last |on )(?P<weekday>{'|'.join(WEEKDAYS)})", _weekday),
    (rf"(?P<which>)(?P<month>{_MONTH}),? (?:of )?{_YEAR}", _month),
    (rf"(?:(?:in|during|since|until|before|after) |(?P<which>last ))(?:early |mid[- ]|late )?"
     rf"(?P<month>{_MONTH})(?P<year>)", _month),
    (rf"(?P<which>)(?P<season>{'|'.join(SEASONS)}) (?:of )?{_YEAR}", _season),
    (rf"(?:in the |during the |this |(?P<which>last ))(?P<season>{'|'.join(SEASONS)})(?P<year>)",
     _season),
    (r"(?P<which>)(?:in|during) (?P<season>summer|autumn|winter)(?P<year>)", _season),
    (rf"(?:in|during|since|by|until|before|after) {_YEAR}", _year),
)  # fmt: skip
# Phrases that name a period if they are the whole text, but may mean something else in a sentence.
_WHOLE_TEXT_RULES: tuple[tuple[str, _Rule], ...] = (
    (r"(?P<number>\d{1,4}) ?(?P<letter>[hdwmy])", _abbreviated_period),
    (rf"{_NUMBER} {_UNIT}", _period_until_now),
    (rf"(?P<weekday>{_WEEKDAY})", _weekday),
    (rf"(?P<which>)(?P<month>{_MONTH})(?: {_YEAR})?", _month),
    (rf"{_YEAR}", _year),
)
TIME_WORD = re.compile(
    rf"\b(?:(?:{'|'.join(UNITS)})s?|yesterday|today|tonight|{_MONTH}|{'|'.join(WEEKDAYS)}"
    rf"|{'|'.join(SEASONS)}|weekend|night|morning|afternoon|evening|(?:19|20)\d\d)\b",
    re.IGNORECASE,
)
"""A pattern that matches every text with a period, and is faster than the rules."""


# Compiled on first use: most queries name no time, and compiling takes longer than a recall.
@cache
def _sentence_patterns() -> list[tuple[re.Pattern[str], _Rule]]:
    return [(re.compile(rf"\b{rule}\b", re.IGNORECASE), read) for rule, read in _RULES]


@cache
def _whole_text_patterns() -> list[tuple[re.Pattern[str], _Rule]]:
    return [(re.compile(rule, re.IGNORECASE), read) for rule, read in (*_RULES, *_WHOLE_TEXT_RULES)]


def parse_period(words: str, now: datetime) -> Period | None:
    """Return the period that a phrase names, relative to `now`; None if it names none."""
    phrase = " ".join(words.lower().split())
    for rule, read in _whole_text_patterns():
        if match := rule.fullmatch(phrase):
            return _apply_rule(read, match, now)
    return None


def parse_moment(words: str, now: datetime, share: float) -> datetime | None:
    """Return the time that a phrase names, relative to `now`; None if it names none.

    A phrase that counts back from now, such as `7d` or `a month ago`, is a time by itself. For
    other periods, including `3 days ago`, return the time at which `share` of the period has
    passed.
    """
    found = parse_period(words, now)
    if found is None:
        return None
    start, end = found
    ago = re.fullmatch(rf"{_NUMBER} {_UNIT} ago", " ".join(words.lower().split()))
    if ago and ago["unit"] != "day":
        return _matched_time_ago(ago, now)
    return start if end == now else start + (end - start) * share


def find_periods(text: str, now: datetime) -> list[tuple[Period, tuple[int, int]]]:
    """Return the periods that a sentence names, each with the span of its words; none overlap.

    A period after "since" or "after" extends from its start to now.
    """
    found: list[tuple[Period, tuple[int, int]]] = []
    lowered = text.lower() if text.isascii() else "".join(c.lower()[:1] for c in text)
    for rule, read in _sentence_patterns():
        for match in rule.finditer(lowered):
            start, end = match.span()
            if any(start < last and first < end for _, (first, last) in found):
                continue
            if named := _apply_rule(read, match, now):
                if re.search(r"\b(?:since|after)(?: the)? ?$", lowered[:start]) or re.match(
                    r"since|after", match[0]
                ):
                    named = named[0], max(now, named[1])
                found.append((named, (start, end)))
    return found


def _apply_rule(read: _Rule, match: re.Match[str], now: datetime) -> Period | None:
    try:
        return read(match, now)
    # There is no such day, or it is outside the years 1 to 9999.
    except (ValueError, OverflowError):
        return None
