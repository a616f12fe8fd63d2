"""Removes text from messages that the user did not write, and private text.

Clients put reminders, environment blocks, notifications and the output of local commands into the
user's messages. Memories that were recalled into a conversation are not stored a second time, and
text that a person marks as private is not stored at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from commonplace.transcripts.record import join_texts

_Position = tuple[int, int]  # the number of a text, and an offset in it

# The client wrote all of a part that begins with one of these tags.
_CLIENT_PARTS = re.compile(
    r"""\s*(?:
      <(?:command-(?:name|message|args|contents)
        |local-command-(?:stdout|stderr|caveat)
        |bash-(?:input|stdout|stderr)
        |user-memory-input|task-notification|teammate-message|tick
        |environment_context|environments|user_instructions|INSTRUCTIONS|turn_aborted|skill
        |user_shell_command|subagent_notification|collaboration_mode|model_switch
        |personality_spec|hook_prompt|apps_instructions|plugins_instructions|user_action
        |permissions\ instructions|goal_context|recommended_plugins|session_context
        |state_snapshot
        )[\s>]
      |\#\ AGENTS\.md\ instructions\ for[ ]
      |Caveat:\ The\ messages\ below\ were\ generated\ by\ the\ user\ while\ running\ local
      |\[Request\ interrupted\ by\ user
      |This\ is\ the\ Gemini\ CLI\.\ We\ are\ setting\ up\ the\ context
    )""",
    re.VERBOSE,
)
# Blocks that clients add to the user's text.
_CLIENT_BLOCKS = (
    "system-reminder", "system_reminder", "ide_opened_file", "ide_selection", "ide_diagnostics",
    "environment_details", "open_and_recently_viewed_files",
)  # fmt: skip
# The end tag also occurs in the block's first sentence; the real one begins a line.
_RECALLED_BLOCK = re.compile(r"<recalled ([0-9a-z]{8,64})>.*?(?:\n</recalled \1>|\Z)", re.DOTALL)
_PRIVATE_TAG = re.compile(r"<private(?:\s[^>]{0,500})?>|</private>", re.IGNORECASE)


def text_by_user(*parts: str) -> str:
    """Return the user's text in the parts of a message; empty if the client wrote all of it."""
    texts = ["" if _CLIENT_PARTS.match(part) else _RECALLED_BLOCK.sub("", part) for part in parts]
    texts = [_without_blocks(text, *_CLIENT_BLOCKS) for text in texts]
    return join_texts(
        _user_query(text.strip())
        for text in _without_private_blocks(texts, unclosed_is_private=True)
    )


def without_private_text(*parts: str) -> str:
    """Return the text in the parts of a message without recalled memories and private text."""
    texts = [_RECALLED_BLOCK.sub("", part) for part in parts]
    return join_texts(
        text.strip() for text in _without_private_blocks(texts, unclosed_is_private=False)
    )


def _user_query(text: str) -> str:
    """Return the text in the tags of Cursor's user queries, or a text without them unchanged.

    It is empty if the client wrote it.
    """
    if text.startswith("<user_query>") and (queries := list(_blocks(text, "user_query"))):
        text = "\n\n".join(text[begin.end() : end.start()].strip() for begin, end in queries)
    return "" if _CLIENT_PARTS.match(text) else text


def _without_private_blocks(texts: Sequence[str], unclosed_is_private: bool) -> list[str]:
    """Return the texts without private blocks, which may be nested and may span texts."""
    kept: list[list[str]] = [[] for _ in texts]
    number, at = 0, 0
    for begin, end in [
        *_private_spans(texts, unclosed_is_private),
        ((len(texts), 0), (len(texts), 0)),
    ]:
        while number < begin[0]:
            kept[number].append(texts[number][at:])
            number, at = number + 1, 0
        if number < len(texts):
            kept[number].append(texts[number][at : begin[1]])
        number, at = end
    return ["".join(each) for each in kept]


def _private_spans(
    texts: Sequence[str], unclosed_is_private: bool
) -> list[tuple[_Position, _Position]]:
    """Return the begins and ends of private blocks.

    If an end tag is missing, the last one that there is ends the block. With `unclosed_is_private`,
    all that follows a begin tag without an end tag is private.
    """
    spans: list[tuple[_Position, _Position]] = []
    depth = 0
    begin: _Position | None = None
    opened: _Position | None = None  # the first begin tag after the last end tag
    end: _Position | None = None
    for number, text in enumerate(texts):
        for tag in _PRIVATE_TAG.finditer(text):
            if not tag[0].startswith("</"):
                depth += 1
                opened = opened or (number, tag.start())
                if depth == 1:
                    begin, end = opened, None
            elif depth:
                depth -= 1
                opened, end = None, (number, tag.end())
                if begin is not None and depth == 0:
                    spans.append((begin, end))
    if depth and begin is not None and end is not None:
        spans.append((begin, end))
    if unclosed_is_private and opened is not None:
        spans.append((opened, (len(texts), 0)))
    return spans


def _without_blocks(text: str, *tags: str) -> str:
    kept, at = [], 0
    for begin, end in _blocks(text, *tags):
        kept.append(text[at : begin.start()])
        at = end.end()
    return "".join([*kept, text[at:]])


def _blocks(text: str, *tags: str) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    """Yield the begin and end tags of closed blocks, the leftmost first.

    A block may quote the begin tag of another. The time is linear in the length of the text: after
    a begin tag without an end tag, no other end tag of this name is searched for.
    """
    unclosed: set[str] = set()
    at = 0
    while begin := _begin_tag(tags).search(text, at):
        tag = begin[1].lower()
        end = None if tag in unclosed else _end_tag(tag).search(text, begin.end())
        if end is None:
            unclosed.add(tag)
            at = begin.end()
        else:
            yield begin, end
            at = end.end()


@cache
def _begin_tag(tags: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"<({'|'.join(tags)})(?:\s[^>]{{0,500}})?>", re.IGNORECASE)


@cache
def _end_tag(tag: str) -> re.Pattern[str]:
    return re.compile(f"</{tag}>", re.IGNORECASE)
