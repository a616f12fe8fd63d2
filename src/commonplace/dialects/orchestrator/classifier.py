"""Classify a text as decision, preference, milestone, problem or emotional.

Each type has patterns. A segment gets the type whose patterns match most often; long segments get a
higher confidence. A solved problem is a milestone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MIN_CONFIDENCE = 0.5
LEAST_CHARS = 20
LONG, LONGER = 200, 500
FULL_SCORE = 5
BLOCK_LINES, GROUP_LINES = 20, 25
MIN_SPEAKER_LINES = 3

_PATTERN_TEXTS: dict[str, tuple[str, ...]] = {
    "decision": (
        r"\b(?:we|i|they|team)(?:'ve| have)? (?:decided|chose|chosen|agreed|settled|picked|opted)\b",
        r"\b(?:decision|trade-?offs?|architecture|approach|strategy|rationale)\b",
        r"\b(?:let'?s|we'?ll|we will|going to|should) (?:use|go with|switch|adopt|try|keep|move)\b",
        r"\binstead of\b", r"\brather than\b", r"\bbecause\b", r"\bthe reason\b", r"\bgo(?:ing)? with\b",
        r"\bover (?:\w+ ){0,3}(?:because|since)\b", r"\bin favou?r of\b", r"\bit'?s better to\b",
    ),
    "preference": (
        r"\b(?:i|we|she|he|they|user) (?:really |strongly )?(?:prefers?|likes?|loves?|hates?|dislikes?|enjoys?)\b",
        r"\bpreferences?\b", r"\bfavou?rite\b", r"\balways (?:use|do|write|put|add|make|want|run)\b",
        r"\bnever (?:use|do|write|put|add|make|want|run)\b", r"\b(?:please )?don'?t (?:ever |like |use )",
        r"\bmy (?:rule|style|habit|convention|way)\b", r"\bwe (?:always|never)\b", r"\bi(?:'d| would) rather\b",
        r"\b(?:snake_case|camel_?case|tabs|spaces|dark mode|light mode)\b",
    ),
    "milestone": (
        r"\b(?:it|this|that|everything) (?:finally )?works\b", r"\bworked\b", r"\bgot (?:it|this|that) (?:to )?work",
        r"\bfixed\b", r"\bsolved\b", r"\bshipped\b", r"\breleased?\b", r"\bdeployed\b", r"\blaunched\b",
        r"\b(?:completed|finished|done with|achieved|delivered)\b", r"\bbreakthrough\b", r"\bfigured (?:it )?out\b",
        r"\bfirst time\b", r"\bversion \d", r"\bv\d+\.\d+", r"\b\d+(?:\.\d+)?(?:x| ?%) (?:faster|better|smaller|fewer)\b",
        r"\bprototype\b", r"\bmilestone\b",
    ),
    "problem": (
        r"\b(?:bugs?|errors?|crash(?:e[sd]|ing)?|exceptions?|failures?|regression|outage)\b",
        r"\b(?:fails?|failed|failing|broke|broken|breaks|stuck|hangs?)\b", r"\b(?:issue|problem|trouble)s?\b",
        r"\b(?:doesn'?t|does not|isn'?t|is not|not|won'?t|can'?t) work(?:ing)?\b", r"\broot cause\b",
        r"\bworkaround\b", r"\bthe fix\b", r"\bkeeps? (?:failing|crashing|breaking)\b", r"\btime(?:d|s)? ?out\b",
        r"\bleak(?:s|ing)?\b",
    ),
    "emotional": (
        r"\b(?:i|we)(?:'m| am| are|'re| feel| felt|) (?:so |very |really |deeply )?(?:happy|sad|proud|afraid|scared|"
        r"worried|anxious|grateful|angry|lonely|excited|hurt|sorry|ashamed|relieved)\b",
        r"\b(?:love|loved) (?:you|him|her|them|this)\b", r"\b(?:feel|feeling|felt|feelings)\b",
        r"\b(?:cry|cried|crying|tears|laughed|joy|grief|heart|miss(?:ed)? (?:you|him|her|them))\b",
        r"\b(?:thank you|means (?:a lot|the world))\b", r"\b(?:afraid|scared|proud|grateful|worried|excited)\b",
    ),
}  # fmt: skip
_PATTERNS = {
    sort: tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)
    for sort, patterns in _PATTERN_TEXTS.items()
}
_RESOLVED = re.compile(
    r"\b(?:fixed|solved|resolved|works now|working now|got it working|patched|figured (?:it )?out"
    r"|the (?:fix|solution|answer) (?:was|is))\b",
    re.IGNORECASE,
)
_GLAD = re.compile(
    r"\b(?:happy|proud|glad|love[sd]?|great|amazing|wonderful|relieved|grateful|joy|excited"
    r"|beautiful|perfect|brilliant|breakthrough)\b",
    re.IGNORECASE,
)
_SAD = re.compile(
    r"\b(?:sad|angry|hate[sd]?|terrible|awful|worried|afraid|scared|frustrat\w+|horrible|worst"
    r"|broken|fail\w*|crash\w*|stuck)\b",
    re.IGNORECASE,
)
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_CODE_LINE = re.compile(
    r"^\s*(?:[$#>]{1,2} \S|import \w|from \w+ import|def \w+\(|class \w+[:(]|const |let |var "
    r"|function\b|return\b|if .*[:{]\s*$|\{|\}|\[|\]|</?\w+[^>]*>\s*$)"
)
_SPEAKER = re.compile(r"^\s*(?:>|(?:Human|User|Q|Assistant|AI|A):)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Classification:
    """The type of one segment, with a confidence."""

    memory_type: str
    confidence: float


def classify(text: str, least: float = MIN_CONFIDENCE) -> list[Classification]:
    """Return the type of each segment that has one, with its confidence."""
    found = (_classify_segment(segment) for segment in split_segments(text))
    return [one for one in found if one is not None and one.confidence >= least]


def split_segments(text: str) -> list[str]:
    """Split a text by speakers, by paragraphs, or, if it is one long paragraph, by lines."""
    lines = text.splitlines()
    if sum(bool(_SPEAKER.match(line)) for line in lines) >= MIN_SPEAKER_LINES:
        return _split_by_speaker(lines)
    parts = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
    if len(parts) == 1 and len(lines) > BLOCK_LINES:
        return [
            "\n".join(lines[first : first + GROUP_LINES])
            for first in range(0, len(lines), GROUP_LINES)
        ]
    return parts


def _split_by_speaker(lines: list[str]) -> list[str]:
    parts: list[list[str]] = []
    for line in lines:
        if _SPEAKER.match(line) or not parts:
            parts.append([])
        parts[-1].append(line)
    return ["\n".join(part) for part in parts]


def prose_of(segment: str) -> str:
    """Return the segment without its code; a segment of code only stays unchanged."""
    lines = _FENCED.sub("", segment).splitlines()
    prose = "\n".join(line for line in lines if not _CODE_LINE.match(line)).strip()
    return prose or segment


def _classify_segment(segment: str) -> Classification | None:
    if len(segment.strip()) < LEAST_CHARS:
        return None
    prose = prose_of(segment)
    scores = {
        sort: hits
        for sort, patterns in _PATTERNS.items()
        if (hits := sum(len(pattern.findall(prose)) for pattern in patterns))
    }
    if not scores:
        return None
    best = max(scores, key=lambda sort: scores[sort])
    score = scores[best] + (2 if len(segment) > LONGER else 1 if len(segment) > LONG else 0)
    return Classification(_final_type(best, prose, scores), min(1.0, score / FULL_SCORE))


def _final_type(best: str, prose: str, scores: dict[str, int]) -> str:
    """Return the final type: a solved problem gets the type of its outcome."""
    if best != "problem":
        return best
    glad = len(_GLAD.findall(prose)) > len(_SAD.findall(prose))
    if _RESOLVED.search(prose):
        return "emotional" if glad and "emotional" in scores else "milestone"
    if glad:
        if "milestone" in scores:
            return "milestone"
        if "emotional" in scores:
            return "emotional"
    return best
