"""Removes text from messages that the user did not write, and private text.

Clients put reminders, environment blocks, notifications and the output of local commands into the
user's messages. Memories that were recalled into a conversation are not stored a second time, and
text that a person marks as private is not stored at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

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
_RECALLED = re.compile(r"<recalled ([0-9a-z]{8,64})>.*?(?:\n</recalled \1>|\Z)", re.DOTALL)
_LEFT_OPEN = re.compile(r"<private(?:\s[^>]{0,500})?>.*", re.DOTALL | re.IGNORECASE)


def said_by_user(text: str) -> str:
    """Return the user's text in a part of a message; empty if the client wrote all of it."""
    if _CLIENT_PARTS.match(text):
        return ""
    text = without_private(text)
    text = _LEFT_OPEN.sub("", _without_blocks(text, *_CLIENT_BLOCKS)).strip()
    if text.startswith("<user_query>") and (queries := list(_blocks(text, "user_query"))):
        text = "\n\n".join(text[begin.end() : end.start()].strip() for begin, end in queries)
    return "" if _CLIENT_PARTS.match(text) else text


def without_private(text: str) -> str:
    """Return the text without recalled memories and private parts."""
    return _without_blocks(_RECALLED.sub("", text), "private").strip()


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
