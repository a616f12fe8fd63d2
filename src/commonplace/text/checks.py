"""What may come in as text, and what text may do once a model reads it."""

from __future__ import annotations

import re

from commonplace.errors import InvalidInput

_SURROGATE = re.compile("[\ud800-\udfff]")

_TAG = re.compile(
    r"""
    [<＜﹤]
    (?= \s{0,9} /? \s{0,9} [A-Za-z] [\w:.-]{0,99} \s{0,9} [>＞﹥]    # <name>, </name>, < / name >
      | /? [A-Za-z] | [!?|] )                                      # <name attr, <!--, <|im_start|>
    ( [^<>＜＞﹤﹥]{0,500} )
    ( [>＞﹥]? )
    """,
    re.VERBOSE,
)

_INVISIBLE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029"  # controls, but for tab and line feed
    "\u00ad\u061c\u070f\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # format
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0000-\U000e0fff"  # variation selectors, tags
    "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"  # letters that are blank
    "\ud800-\udfff\ue000-\uf8ff\U000f0000-\U0010ffff"  # no character, or a private one
    "]"
)
_EMOJI = "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u27bf\u2900-\u2bff\u3030\u303d\u3297\u3299"
_EMOJI += "\U0001f000-\U0001faff]"
_MODIFIER = "[\U0001f3fb-\U0001f3ff]"
_EMOJI_SEQUENCE = re.compile(
    f"{_EMOJI}(?:\ufe0f?{_MODIFIER}?)(?:\u200d{_EMOJI}\ufe0f?{_MODIFIER}?)*"
)
_KEYCAP = re.compile("[0-9#*]\ufe0f\u20e3")
# Persian spells with the non-joiner, the scripts of India with both: there they are letters.
_JOINING_LETTERS = "[\u0600-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17ff]"
_JOINED = re.compile(f"(?<={_JOINING_LETTERS})[\u200c\u200d](?={_JOINING_LETTERS})")


def check_text(value: object, field: str, *, max_chars: int, allow_empty: bool = False) -> str:
    """The value, unchanged, if it is text that can be stored; InvalidInput otherwise."""
    if not isinstance(value, str):
        raise InvalidInput(
            f"'{field}' must be text, not {type(value).__name__}.",
            hint="Send a string.",
            field=field,
        )
    if len(value) > max_chars:
        raise InvalidInput(
            f"'{field}' has {len(value):,} characters; at most {max_chars:,} are allowed.",
            hint="Shorten it, or split it into several.",
            field=field,
        )
    if (nul := value.find("\x00")) >= 0:
        raise InvalidInput(
            f"'{field}' contains a NUL character (U+0000) at position {nul}.",
            hint="Remove it.",
            field=field,
        )
    if not value.isascii() and (lone := _SURROGATE.search(value)):
        raise InvalidInput(
            f"'{field}' is not valid Unicode: half of a character "
            f"(U+{ord(lone[0]):04X}) stands alone at position {lone.start()}.",
            hint="Send well-formed UTF-8; the text was probably cut inside an emoji.",
            field=field,
        )
    if not allow_empty and not value.strip():
        raise InvalidInput(
            f"'{field}' is {'blank' if value else 'empty'}.",
            hint="Send some text.",
            field=field,
        )
    return value


def neutralise(text: str) -> str:
    """The text as a model may safely read it inside a block that we compose.

    What cannot be seen is shown as an escape such as \\u{202e}; what looks like a tag
    loses its angle brackets. Line breaks, tabs, emoji and the joiners that Persian and
    the scripts of India need stay.
    """
    if not text.isascii() or not text.isprintable():
        text = _show_invisible(text.replace("\r\n", "\n"))
    return _TAG.sub(_without_brackets, text)


def _without_brackets(tag: re.Match[str]) -> str:
    return f"‹{tag[1]}{'›' if tag[2] else ''}"


def _show_invisible(text: str) -> str:
    if not _INVISIBLE.search(text):
        return text
    kept = {
        at
        for rule in (_EMOJI_SEQUENCE, _KEYCAP, _JOINED)
        for match in rule.finditer(text)
        for at in range(match.start(), match.end())
    }

    def show(found: re.Match[str]) -> str:
        return found[0] if found.start() in kept else f"\\u{{{ord(found[0]):x}}}"

    return _INVISIBLE.sub(show, text)
