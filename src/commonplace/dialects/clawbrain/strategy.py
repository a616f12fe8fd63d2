"""Read STRATEGY.md, the settings for consolidating, promoting and pruning memories.

Lines of the form `key: value` take precedence over the sentences of the contract's template. All
other text is ignored. Only this file can change the settings; memories cannot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from commonplace.dialects.clawbrain.directory import Directory
from commonplace.dialects.clawbrain.locations import CATEGORIES
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content import credit

FILE = "STRATEGY.md"
MIN_PRUNE_AGE_DAYS = 14.0  # days; younger memories are never pruned


@dataclass(frozen=True, slots=True)
class Strategy:
    """The settings, with their defaults."""

    consolidation_tag_overlap: float = 0.0
    promotion_threshold: float = 0.7
    promotion_transfer: float = 0.25
    prune_threshold: float = 0.2
    prune_min_age_days: float = MIN_PRUNE_AGE_DAYS
    max_context_budget: int = 5_000
    skip_categories: tuple[str, ...] = ()
    alpha: float = 0.1
    decay_rate: float = 0.01
    credit_update: str = "ema"
    automatic_compaction: bool = False
    git_commits: str = "auto"
    problems: tuple[str, ...] = ()
    """Error messages about ignored values."""


def _parse_share(value: str) -> float | None:
    number = float(value[:-1]) / 100 if value.endswith("%") else float(value)
    return number if 0 <= number <= 1 else None


def _parse_days(value: str) -> float | None:
    number = float(value.removesuffix("days").strip())
    return number if MIN_PRUNE_AGE_DAYS <= number <= 36_500 else None


def _parse_tokens(value: str) -> int | None:
    number = int(value.replace(",", "").replace("_", ""))
    return number if 100 <= number <= 1_000_000 else None


def _parse_categories(value: str) -> tuple[str, ...] | None:
    names = tuple(n.strip().strip("'\"").lower() for n in value.strip("[]").split(",") if n.strip())
    return names if set(names) <= {*CATEGORIES, "episodes"} else None


_SHARE_VALUE = (_parse_share, "a number from 0 to 1")
VALUE_PARSERS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "consolidation_tag_overlap": _SHARE_VALUE,
    "promotion_threshold": _SHARE_VALUE,
    "promotion_transfer": _SHARE_VALUE,
    "prune_threshold": _SHARE_VALUE,
    "prune_min_age_days": (_parse_days, "a number of days, at least 14"),
    "max_context_budget": (_parse_tokens, "a whole number from 100 to 1,000,000"),
    "skip_categories": (_parse_categories, f"a list of {', '.join(CATEGORIES)}, episodes"),
    "alpha": _SHARE_VALUE,
    "decay_rate": _SHARE_VALUE,
    "credit_update": ({"ema": "ema", "additive": "additive"}.get, "ema or additive"),
    "automatic_compaction": (lambda v: {"on": True, "off": False}.get(v.lower()), "on or off"),
    "git_commits": (
        lambda v: v.lower() if v.lower() in ("auto", "on", "off") else None, "auto, on or off"
    ),
}  # fmt: skip
"""By key: a parser, which returns None or raises ValueError for an invalid value, and the allowed
values as text."""
SENTENCE_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("consolidation_tag_overlap", re.compile(r">\s*(\d+(?:\.\d+)?%)\s+tag overlap", re.I)),
    ("promotion_threshold", re.compile(r"credit score\s*>\s*(\d*\.?\d+)", re.I)),
    ("prune_threshold", re.compile(r"credit score\s*<\s*(\d*\.?\d+)", re.I)),
    ("prune_min_age_days", re.compile(r"age\s*>\s*(\d+(?:\.\d+)?)\s*days", re.I)),
    ("max_context_budget", re.compile(r"maximum tokens for MEMORY\.md:\s*([\d,_]+)", re.I)),
)
_NEVER_PRUNE = re.compile(r"never prune\s+`?(\w+)`?\s+entit", re.I)
_LINE = re.compile(r"\s*(?:[-*]\s+)?`?([a-z_]+)`?\s*:\s*(.*?)\s*(?:#.*)?")


def parse(text: str) -> Strategy:
    """Parse the text of the file; missing values get their defaults."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for line in text.splitlines():
        matched = _LINE.fullmatch(line)
        if matched and matched[1] in VALUE_PARSERS and matched[2]:
            _set_value(values, problems, matched[1], matched[2].strip("'\""))
    sentences = text.replace("**", "")
    for key, pattern in SENTENCE_PATTERNS:
        found = pattern.search(sentences)
        if found and key not in values:
            _set_value(values, problems, key, found[1])
    if "skip_categories" not in values:
        named = [name.lower() for name in _NEVER_PRUNE.findall(sentences)]
        values["skip_categories"] = tuple(name for name in named if name in CATEGORIES)
    return Strategy(**values, problems=tuple(problems))


def _set_value(values: dict[str, Any], problems: list[str], key: str, value: str) -> None:
    convert, allowed = VALUE_PARSERS[key]
    try:
        converted = convert(value)
    except ValueError:
        converted = None
    if converted is not None:
        values[key] = converted
    else:
        problems.append(f"Ignored in {FILE}: {key} is {value[:40]!r}; it must be {allowed}.")


def read(directory: Directory | None) -> Strategy:
    """Read the strategy of a directory; use the defaults if there is no file."""
    if directory is None:
        return Strategy()
    try:
        data, _ = directory.read(FILE)
    except FileNotFoundError:
        return Strategy()
    except OSError as error:
        return Strategy(problems=(f"{FILE} could not be read: {error.strerror}.",))
    try:
        return parse(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return Strategy(problems=(f"{FILE} was ignored: it is not UTF-8.",))


def apply_credit_rule(memory: Commonplace, chosen: Strategy) -> None:
    """Set the credit rule of the space, for all dialects."""
    additive = chosen.credit_update == "additive"
    credit.set_rule(memory, credit.Rule(chosen.alpha, chosen.decay_rate, additive))


def is_exempt(chosen: Strategy, kind: str, category: str) -> bool:
    """Return whether the strategy exempts this kind and category from pruning."""
    if kind == "episode":
        return "episodes" in chosen.skip_categories
    return category == "people" or category in chosen.skip_categories
