"""Hidden characters: invisible ones, and those that control a terminal or the text direction."""

from __future__ import annotations

import re
from collections.abc import Callable

_HIDDEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029"  # control characters except tab and line feed
    "\u00ad\u061c\u070f\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb"  # format
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0000-\U000e0fff"  # variation selectors, tags
    "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"  # blank letters
    "\ud800-\udfff\ue000-\uf8ff\U000f0000-\U0010ffff"  # lone surrogates and private-use characters
    "\ufdd0-\ufdef"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(15))
    + "]"
)

# A joiner stays only where it is visible: where IDNA allows it (RFC 5892, appendix A.1 and A.2), in
# the Bengali ra-phala, and inside an emoji. In these places, two joiners cannot be adjacent, and a
# joiner cannot change the direction or occur without visible characters around it.
_VIRAMA = "[\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d3b\u0d3c\u0d4d\u0dca]"
_JOINS_BOTH_SIDES = (
    "\u0620\u0626\u0628\u062a-\u062e\u0633-\u063f\u0641-\u0647\u0649\u064a\u066e\u066f"
    "\u0678-\u0687\u069a-\u06bf\u06c1\u06c2\u06cc\u06ce\u06d0\u06d1\u06fa-\u06fc\u06ff"
    "\u0750-\u0758\u075c-\u076a\u076d-\u0770\u0772\u0775-\u0777\u077a-\u077f"
)
_JOINS_BEFORE = (
    "\u0622-\u0625\u0627\u0629\u062f-\u0632\u0648\u0671-\u0673\u0675-\u0677\u0688-\u0699"
    "\u06c0\u06c3-\u06cb\u06cd\u06cf\u06d2\u06d3\u06d5\u06ee\u06ef"
    "\u0759-\u075b\u076b\u076c\u0771\u0773\u0774\u0778\u0779"
)
_VOWEL_SIGN = "[\u064b-\u065f\u0670]"
_PICTURE = "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u27bf\u2900-\u2bff\u3030\u303d\u3297\u3299"
_PICTURE += "\U0001f000-\U0001f3fa\U0001f400-\U0001faff]"
_PICTURE += "\ufe0f?[\U0001f3fb-\U0001f3ff]?"
_SEEN_JOINERS = re.compile(
    f"{_PICTURE}(?:\u200d{_PICTURE})*"
    "|[0-9#*]\ufe0f\u20e3"
    f"|{_VIRAMA}[\u200c\u200d]"
    "|\u09b0\u200d\u09cd"
    f"|[{_JOINS_BOTH_SIDES}]{_VOWEL_SIGN}{{0,4}}\u200c"
    f"(?={_VOWEL_SIGN}{{0,4}}[{_JOINS_BOTH_SIDES}{_JOINS_BEFORE}])"
)


def escape_hidden(text: str) -> str:
    """Return the text with every hidden character replaced by an escape such as `\\u{200b}`.

    Line breaks, tabs, emoji, and the joiners of Persian and of the scripts of India stay. Windows
    line ends become line feeds.
    """
    if text.isprintable() and text.isascii():
        return text
    return _escape_matches(text.replace("\r\n", "\n"), lambda sign: f"\\u{{{ord(sign[0]):x}}}")


def escape_json(document: str) -> str:
    """Return a JSON document of the same value, with every hidden character as a JSON escape."""
    return _escape_matches(document, _json_escape)


def _escape_matches(text: str, escape: Callable[[re.Match[str]], str]) -> str:
    if not _HIDDEN.search(text):
        return text
    parts: list[str] = []
    at = 0
    for seen in _SEEN_JOINERS.finditer(text):
        if len(seen[0]) > 1:
            parts += (_HIDDEN.sub(escape, text[at : seen.start()]), seen[0])
            at = seen.end()
    parts.append(_HIDDEN.sub(escape, text[at:]))
    return "".join(parts)


def _json_escape(hidden: re.Match[str]) -> str:
    units = hidden[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
