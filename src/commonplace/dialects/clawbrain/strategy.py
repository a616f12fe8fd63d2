"""STRATEGY.md: the owner's settings for decay, promotion and pruning.

Lines `key: value` win; without them the sentences of the usual file are understood. Everything
else is prose for people. Only this file is read so: no memory can set anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from commonplace.dialects.clawbrain.directory import Directory
from commonplace.dialects.clawbrain.places import CATEGORIES
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content import credit

FILE = "STRATEGY.md"
YOUNGEST_DAYS = 14.0  # nothing younger is ever pruned


@dataclass(frozen=True, slots=True)
class Strategy:
    """The settings of the life cycle."""

    consolidation_tag_overlap: float = 0.0
    promotion_threshold: float = 0.7
    promotion_transfer: float = 0.25
    prune_threshold: float = 0.2
    prune_min_age_days: float = YOUNGEST_DAYS
    max_context_budget: int = 5_000
    skip_categories: tuple[str, ...] = ()
    alpha: float = 0.1
    decay_rate: float = 0.01
    credit_update: str = "ema"
    automatic_compaction: bool = False
    git_commits: str = "auto"
    problems: tuple[str, ...] = ()
    """Values that were ignored, and why."""


def _share(said: str) -> float:
    number = float(said[:-1]) / 100 if said.endswith("%") else float(said)
    if not 0 <= number <= 1:
        raise ValueError("a number from 0 to 1")
    return number


def _days(said: str) -> float:
    number = float(said.removesuffix("days").strip())
    if not YOUNGEST_DAYS <= number <= 36_500:
        raise ValueError(f"at least {YOUNGEST_DAYS:.0f} days")
    return number


def _tokens(said: str) -> int:
    number = int(said.replace(",", "").replace("_", ""))
    if not 100 <= number <= 1_000_000:
        raise ValueError("a whole number from 100 to 1,000,000")
    return number


def _categories(said: str) -> tuple[str, ...]:
    names = tuple(n.strip().strip("'\"").lower() for n in said.strip("[]").split(",") if n.strip())
    if not set(names) <= {*CATEGORIES, "episodes"}:
        raise ValueError(f"a list of {', '.join(CATEGORIES)}, episodes")
    return names


def _update(said: str) -> str:
    if said not in ("ema", "additive"):
        raise ValueError("ema or additive")
    return said


def _switch(said: str) -> bool:
    if said.lower() not in ("on", "off"):
        raise ValueError("on or off")
    return said.lower() == "on"


def _commits(said: str) -> str:
    if said.lower() not in ("auto", "on", "off"):
        raise ValueError("auto, on or off")
    return said.lower()


KEYS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "consolidation_tag_overlap": (_share, "a number from 0 to 1"),
    "promotion_threshold": (_share, "a number from 0 to 1"),
    "promotion_transfer": (_share, "a number from 0 to 1"),
    "prune_threshold": (_share, "a number from 0 to 1"),
    "prune_min_age_days": (_days, "a number of days, at least 14"),
    "max_context_budget": (_tokens, "a whole number from 100 to 1,000,000"),
    "skip_categories": (_categories, f"a list of {', '.join(CATEGORIES)}, episodes"),
    "alpha": (_share, "a number from 0 to 1"),
    "decay_rate": (_share, "a number from 0 to 1"),
    "credit_update": (_update, "ema or additive"),
    "automatic_compaction": (_switch, "on or off"),
    "git_commits": (_commits, "auto, on or off"),
}
SENTENCES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("consolidation_tag_overlap", re.compile(r">\s*(\d+(?:\.\d+)?%)\s+tag overlap", re.I)),
    ("promotion_threshold", re.compile(r"credit score\s*>\s*(\d*\.?\d+)", re.I)),
    ("prune_threshold", re.compile(r"credit score\s*<\s*(\d*\.?\d+)", re.I)),
    ("prune_min_age_days", re.compile(r"age\s*>\s*(\d+(?:\.\d+)?)\s*days", re.I)),
    ("max_context_budget", re.compile(r"maximum tokens for MEMORY\.md:\s*([\d,_]+)", re.I)),
)
_NEVER = re.compile(r"never prune\s+`?(\w+)`?\s+entit", re.I)
_LINE = re.compile(r"\s*(?:[-*]\s+)?`?([a-z_]+)`?\s*:\s*(.*?)\s*(?:#.*)?")


def parse(text: str) -> Strategy:
    """Parse STRATEGY.md; missing settings keep their defaults."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for line in text.splitlines():
        matched = _LINE.fullmatch(line)
        if matched and matched[1] in KEYS and matched[2]:
            _set(values, problems, matched[1], matched[2].strip("'\""))
    sentences = text.replace("**", "")
    for key, pattern in SENTENCES:
        found = pattern.search(sentences)
        if found and key not in values:
            _set(values, problems, key, found[1])
    if "skip_categories" not in values:
        named = [name.lower() for name in _NEVER.findall(sentences)]
        values["skip_categories"] = tuple(name for name in named if name in CATEGORIES)
    return Strategy(**values, problems=tuple(problems))


def _set(values: dict[str, Any], problems: list[str], key: str, said: str) -> None:
    read, allowed = KEYS[key]
    try:
        values[key] = read(said)
    except ValueError:
        problems.append(f"Ignored in {FILE}: {key} is {said[:40]!r}, and must be {allowed}.")


def read(directory: Directory | None) -> Strategy:
    """The strategy of a directory; the default one without a file."""
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
        return replace(Strategy(), problems=(f"{FILE} is not UTF-8, and was ignored.",))


def apply(memory: Commonplace, chosen: Strategy) -> None:
    """Apply the strategy's credit rule to the space, for every dialect."""
    additive = chosen.credit_update == "additive"
    credit.set_rule(memory, credit.Rule(chosen.alpha, chosen.decay_rate, additive))


def spares(chosen: Strategy, kind: str, category: str) -> bool:
    """Whether the strategy protects such memories from pruning."""
    if kind == "episode":
        return "episodes" in chosen.skip_categories
    return category == "people" or category in chosen.skip_categories
