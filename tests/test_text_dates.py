"""Periods of time in words."""

from __future__ import annotations

import time
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import pytest

from commonplace.cli import options
from commonplace.text.dates import TIME_WORD, find_periods, parse_moment, parse_period

NOW = datetime(2026, 11, 17, 15, 30, tzinfo=UTC)  # a Tuesday

PERIODS = {
    "today": ("2026-11-17", "2026-11-18"),
    "Yesterday": ("2026-11-16", "2026-11-17"),
    "the day before yesterday": ("2026-11-15", "2026-11-16"),
    "last tuesday": ("2026-11-10", "2026-11-11"),
    "monday": ("2026-11-16", "2026-11-17"),
    "last week": ("2026-11-09", "2026-11-16"),
    "this week": ("2026-11-16", "2026-11-23"),
    "this month": ("2026-11-01", "2026-12-01"),
    "last month": ("2026-10-01", "2026-11-01"),
    "last year": ("2025-01-01", "2026-01-01"),
    "april": ("2026-04-01", "2026-05-01"),
    "in December": ("2025-12-01", "2026-01-01"),
    "last april": ("2026-04-01", "2026-05-01"),
    "may 2024": ("2024-05-01", "2024-06-01"),
    "last summer": ("2026-06-01", "2026-09-01"),
    "last winter": ("2025-12-01", "2026-03-01"),
    "this autumn": ("2026-09-01", "2026-12-01"),
    "2024": ("2024-01-01", "2025-01-01"),
    "2026-02": ("2026-02-01", "2026-03-01"),
    "2026-02-28": ("2026-02-28", "2026-03-01"),
    "3 days ago": ("2026-11-14", "2026-11-15"),
    "a day ago": ("2026-11-16", "2026-11-17"),
    "two weeks ago": ("2026-10-31T03:30", "2026-11-07T03:30"),
    "7d": ("2026-11-10T15:30", "2026-11-17T15:30"),
    "12 h": ("2026-11-17T03:30", "2026-11-17T15:30"),
    "3 months": ("2026-08-17T15:30", "2026-11-17T15:30"),
    "last 2 weeks": ("2026-11-03T15:30", "2026-11-17T15:30"),
    "a few days ago": ("2026-11-14", "2026-11-15"),
    "a couple of weeks ago": ("2026-10-31T03:30", "2026-11-07T03:30"),
    "last night": ("2026-11-16", "2026-11-17"),
    "this morning": ("2026-11-17", "2026-11-18"),
    "last weekend": ("2026-11-14", "2026-11-16"),
    "this weekend": ("2026-11-21", "2026-11-23"),
    "7 July, 2023": ("2023-07-07", "2023-07-08"),
    "the 3rd of May": ("2026-05-03", "2026-05-04"),
    "December 24": ("2025-12-24", "2025-12-25"),
    "Oct 25, 2022": ("2022-10-25", "2022-10-26"),
    "in mid-June": ("2026-06-01", "2026-07-01"),
    "summer of 2024": ("2024-06-01", "2024-09-01"),
    "one hour ago": ("2026-11-17T14:30", "2026-11-17T15:30"),
}


@pytest.mark.parametrize("phrase", PERIODS)
def test_a_phrase_names_a_period(phrase: str) -> None:
    found = parse_period(phrase, NOW)
    expected = tuple(datetime.fromisoformat(each).replace(tzinfo=UTC) for each in PERIODS[phrase])
    assert found == expected


@pytest.mark.parametrize(
    ("phrase", "first", "last"),
    [
        ("7d", "2026-11-10T15:30", "2026-11-10T15:30"),
        ("3 months", "2026-08-17T15:30", "2026-08-17T15:30"),
        ("one hour ago", "2026-11-17T14:30", "2026-11-17T14:30"),
        ("Two  weeks ago", "2026-11-03T15:30", "2026-11-03T15:30"),
        ("a month ago", "2026-10-17T15:30", "2026-10-17T15:30"),
        ("3 days ago", "2026-11-14", "2026-11-15"),
        ("last month", "2026-10-01", "2026-11-01"),
    ],
)
def test_what_counts_back_from_now_is_a_moment(phrase: str, first: str, last: str) -> None:
    assert parse_moment(phrase, NOW, 0) == datetime.fromisoformat(first).replace(tzinfo=UTC)
    assert parse_moment(phrase, NOW, 1) == datetime.fromisoformat(last).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "phrase",
    ["", "soon", "2026-13-01", "2026-02-30", "may be", "5", "99999d", "week", "9999 years"],
)
def test_other_phrases_name_none(phrase: str) -> None:
    assert parse_period(phrase, NOW) is None


@pytest.mark.parametrize(
    ("now", "phrase", "expected"),
    [
        ("2026-03-29T02:30", "3 hours ago", "2026-03-28T23:30"),  # 02:00 became 03:00
        ("2026-03-29T02:30", "2h", "2026-03-29T00:30"),
        ("2026-10-25T01:30", "30 minutes ago", "2026-10-25T01:00"),  # 03:00 became 02:00
        ("2026-10-25T01:30", "90 minutes", "2026-10-25T00:00"),
    ],
)
def test_hours_are_counted_as_they_passed_where_the_clock_was_changed(
    monkeypatch: pytest.MonkeyPatch, now: str, phrase: str, expected: str
) -> None:
    there = datetime.fromisoformat(now).replace(tzinfo=UTC)
    wanted = datetime.fromisoformat(expected).replace(tzinfo=UTC)
    berlin = there.astimezone(ZoneInfo("Europe/Berlin"))
    found = parse_moment(phrase, berlin, 0)
    assert found is not None and found.astimezone(UTC) == wanted

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(there.timestamp(), tz)

    try:
        with monkeypatch.context() as patched:
            patched.setenv("TZ", "Europe/Berlin")
            time.tzset()
            patched.setattr(options, "datetime", Clock)
            typed = options.parse_time(phrase, "since")
    finally:
        time.tzset()
    assert isinstance(typed, datetime) and typed.astimezone(UTC) == wanted


def test_a_month_ago_is_the_last_day_of_a_shorter_month() -> None:
    start = parse_period("1 month", datetime(2026, 3, 31, tzinfo=UTC))
    assert start is not None and start[0] == datetime(2026, 2, 28, tzinfo=UTC)


def test_periods_are_found_in_a_sentence() -> None:
    text = "What did we say last Tuesday, and in April 2025?"
    found = find_periods(text, NOW)
    assert [each[0].date().isoformat() for each, _ in found] == ["2026-11-10", "2025-04-01"]
    assert [text[start:end] for _, (start, end) in found] == ["last Tuesday", "April 2025"]


@pytest.mark.parametrize("phrase", [each for each in PERIODS if " " in each or "-" in each])
def test_every_text_that_names_a_period_has_a_word_of_time(phrase: str) -> None:
    if find_periods(phrase, NOW):
        assert TIME_WORD.search(phrase)


@pytest.mark.parametrize("text", ["since April 3rd", "after 3 April", "since April", "after 2025"])
def test_what_is_since_a_time_lasts_until_now(text: str) -> None:
    ((period, _),) = find_periods(text, NOW)
    assert period[0] < period[1] == NOW


def test_letters_that_grow_in_lower_case_do_not_move_the_words() -> None:
    text = "İİİ in April"
    ((_, (start, end)),) = find_periods(text, NOW)
    assert text[start:end] == "in April"


@pytest.mark.parametrize(
    "text",
    [
        "May I have the march of time, or 7d of it?",
        "the sun sets, the dogs sat and 2024 of them wed",
        "spring cleaning and a fall from grace",
        "How are beans declared in Spring? And who fell in fall?",
        "on sun exposure, by may flowers",
    ],
)
def test_ordinary_words_are_no_periods(text: str) -> None:
    assert find_periods(text, NOW) == []
