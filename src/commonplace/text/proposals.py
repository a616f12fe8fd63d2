# ruff: noqa: E501  (a table of patterns, one a line)
"""Find statements worth remembering in a person's message, by patterns that are seldom wrong.

The results are proposals, which a person accepts, edits or rejects. Sentences that match no pattern
are ignored; the conversation itself is stored anyway.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MOST_CHARS = 2_000  # A longer message is mostly pasted text.
SENTENCE_CHARS = 240
LEAST_WORDS = 2  # words


class Proposal(NamedTuple):
    """A sentence that states something, and the kind of memory that it would become."""

    kind: str
    text: str


_CODE = re.compile(r"```.*?(?:```|\Z)|^(?:    |\t|>|\|).*$", re.DOTALL | re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])[\"')]*\s+|\n+")
_LEAD = re.compile(
    r"(?:(?:ok(?:ay)?|so|well|also|and|but|oh|hey|hi|yes|yeah|yep|right|alright|great|thanks|thank you|cool"
    r"|perfect|btw|by the way|just so you know|fyi|for the record|one more thing|please)[,.!:]?\s+)+",
    re.IGNORECASE,
)
_HEDGED = re.compile(
    r"\?\s*$|\b(?:maybe|perhaps|might|not sure|i guess|wonder(?:ing)?|thinking (?:of|about)|what if|imagine|pretend"
    r"|suppose|hypothetically|for example|e\.g\.|haven't|hasn't|can't decide|if (?:i|we|you)|whether)\b"
    r"|^(?:if|when|why|how|what|who|where|which|should|could|can|would|do(?! not)|does|did|is|are|was|were|has|have)\b",
    re.IGNORECASE,
)

_PEOPLE = r"(?:we(?:'ve| have)?|i(?:'ve| have)?|(?:the|my|our) team(?: has)?)"
_TOOLS = r"(?:use|deploy|ship|release|host|store|build|run|write|format|lint|test|review|merge|pin|target|support)"
_TRADES = (
    r"(?:engineer|developer|programmer|designer|teacher|nurse|doctor|student|manager|analyst|scientist|architect"
    r"|writer|lawyer|accountant|consultant|professor|researcher|freelancer|founder|photographer|musician|chef"
    r"|pharmacist|therapist|electrician|administrator|sysadmin|maintainer)"
)
_OWN = (
    r"(?:(?:full|first|last|middle|nick)?\s?name|birthday|e-?mail(?: address)?|phone number|address|job title|role"
    r"|time ?zone|favou?rite [\w' -]{2,40}|preferred [\w' -]{2,40}|native language|mother tongue|github (?:handle|user|account)"
    r"|user ?name|handle|pronouns|(?:current|main|primary) (?:project|editor|language|machine|laptop|branch))"
)
_KIN = r"(?:wife|husband|partner|boss|manager|dog|cat|son|daughter|brother|sister|mom|mother|dad|father|friend)"

# Pairs of a kind of memory and a pattern for sentences of that kind.
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("decision", rf"^{_PEOPLE} (?:just |now |finally |all |already |both )?"
                     r"(?:decided|agreed|settled|chose|chosen|opted|voted)\s+(?:to|on|that|for|not|against|we)\b"
                     r"(?! (?:try|have|take|visit|go|get|buy|watch|attend|make|start|meet|join)\b)(?!.*\b(?:today|yesterday|last (?:week|night|month)|this (?:morning|weekend))\b)"),
        ("decision", r"^(?:the decision (?:is|was)|it(?:'s| is|'s been| was) decided)\b|^(?:decision|decided): "),
        ("decision", r"^let'?s (?:go with|stick (?:with|to)|standardi[sz]e on|switch (?:over )?to|keep using|settle on) "),
        ("decision", r"^(?:we|i)(?:'re| are|'m| am) (?:going with|sticking with|standardi[sz]ing on|dropping|moving (?:away )?from|switching to) "),
        ("rule", r"(?:^|[,;] )(?!.*\bi(?:'ll| will)\b)(?:from now on|going forward|from here on|from today on|henceforth|as of (?:now|today))\b"),
        ("rule", r"^(?:always|never) (?!mind\b|been\b|heard\b|tried\b|thought\b|seen\b|had\b|ends?\b|a\b|the\b|gonna\b|knew\b|used to\b"
                 r"|fails\b|liked\b|loved\b|wanted\b|ever\b)[a-z]+ "),
        ("rule", r"^(?:don'?t|do not) ever [a-z-]+ "),
        ("rule", r"^(?:don'?t|do not) (?:use|commit|push|add|touch|edit|run|deploy|merge|import|write|mock|change|delete|rebase|format|upgrade|bump|log|store|rename)\b"
                 r".*\b(?:again|any ?more|in this (?:repo|project|codebase|file)|here|directly|without|unless|on (?:main|master|fridays?))\b"),
        ("rule", r"^(?:you|we|everyone|everybody|it) must (?:always|never|not)\b"),
        ("fact", rf"^(?:actually,? )?my {_OWN} (?:is|are) (?!not\b|a bit\b|so\b|too\b|very\b|really\b|getting\b|still\b|just\b|that\b|to\b|being\b|when\b)"),
        ("fact", rf"^(?:actually,? )?my {_KIN}(?:'s name is| is called| is named|'s birthday is)\b"),
        ("fact", r"^(?:you can |please |just )?call me [A-Z][\w-]+\W*$"),
        ("fact", rf"^i(?:'m| am) (?:a|an) (?:[\w-]+ ){{0,3}}{_TRADES}\b"),
        ("fact", rf"^as an? (?:[\w-]+ ){{0,3}}{_TRADES},? i\b"),
        ("fact", r"^i (?:currently |now )?(?:work (?:as|at|for)|live in|was born in|grew up in|moved to|am from|speak) (?!a bit\b|the moment\b|my mind\b)"),
        ("fact", r"^i(?:'m| am) (?:from (?!now)|based in|allergic to|lactose intolerant|vegan|vegetarian|colou?r-?blind|left-handed|dyslexic|gluten) ?"),
        ("fact", r"^i(?:'m| am) (?:also )?(?:vegan|vegetarian|pescatarian|diabetic|colou?r-?blind|left-handed|dyslexic)\b"),
        ("preference", r"^i (?:really |always |generally |usually |much |strongly |personally |still )?prefer "),
        ("preference", r"^i (?:really |absolutely )?(?:hate|dislike|can't stand|love|like) it when\b"),
        ("preference", r"^i (?:don't|do not|never) (?:eat|drink|use|want you to)\b(?!.*\b(?:yet|anymore in)\b)"),
        ("fact", rf"^(?:in (?:this|our) (?:repo|project|team|company|codebase),? )?we (?:always |only |never |mostly |currently |now |all )*{_TOOLS} (?!the above|this format|it\b|that\b|these\b|those\b)"),
        ("fact", r"^our (?:[\w-]+ ){0,3}(?:uses|use|deploys|runs|run|ships|lives|live|is hosted|are hosted|is written|is deployed|is called|targets|supports|goes out|must) "),
        ("note", r"^(?:(?:always )?remember|keep in mind|bear in mind|make a note|note|don't forget)(?: that|:)? (?:we|our|my|i|i'm|we're|this (?:repo|project|codebase))\b"),
        ("correction", r"^(?:no|nope|actually|correction|sorry|wait)[,:.]? .{3,160}(?:,| and| -) not (?:the |a |an |in |on |at )?\w"),
        ("correction", r"^(?:no|nope|correction)[,:]? (?:i meant|it should be|it's called|the (?:right|correct) \w+ is|my \w+ is|our \w+ (?:is|are)) "),
    )
)  # fmt: skip


def find_proposals(text: str) -> list[Proposal]:
    """Return the statements in a person's message, each sentence once."""
    if len(text) > MOST_CHARS:
        return []
    found: dict[str, Proposal] = {}
    for sentence in _SENTENCE.split(_CODE.sub("\n", text)):
        stated = proposal_in(sentence)
        if stated is not None:
            found.setdefault(stated.text, stated)
    return list(found.values())


def proposal_in(sentence: str) -> Proposal | None:
    """Return the statement in one sentence; None if no pattern matches it."""
    whole = " ".join(sentence.split()).strip("-*• ")
    if len(whole) > SENTENCE_CHARS or len(whole.split()) < LEAST_WORDS:
        return None
    lead = _LEAD.match(whole)
    core = whole[lead.end() :] if lead else whole
    core = core.replace("’", "'")
    if len(core.split()) < LEAST_WORDS or _HEDGED.search(core):
        return None
    for kind, pattern in _PATTERNS:
        if pattern.search(core):
            return Proposal(kind, core[0].upper() + core[1:])
    return None
