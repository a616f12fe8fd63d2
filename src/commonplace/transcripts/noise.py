"""Removes text from messages that the user did not write, and private text.

Clients put reminders, environment blocks, notifications and the output of local commands into the
user's messages. Memories that were recalled into a conversation are not stored a second time, and
text that a person marks as private is not stored at all.
"""

from __future__ import annotations

import re

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
_CLIENT_BLOCKS = re.compile(
    r"<(system-reminder|system_reminder|ide_opened_file|ide_selection|ide_diagnostics"
    r"|environment_details|open_and_recently_viewed_files)\b[^>]*>.*?</\1>",
    re.DOTALL,
)
# The end tag also occurs in the block's first sentence; the real one begins a line.
_RECALLED = re.compile(r"<recalled ([0-9a-z]{8,64})>.*?(?:\n</recalled \1>|\Z)", re.DOTALL)
_PRIVATE = re.compile(r"<private>.*?</private>", re.DOTALL | re.IGNORECASE)
_LEFT_OPEN = re.compile(r"<private>.*", re.DOTALL | re.IGNORECASE)
_QUERY = re.compile(r"<user_query>\s*(.*?)\s*</user_query>", re.DOTALL)


def said_by_user(text: str) -> str:
    """Return the user's text in a part of a message; empty if the client wrote all of it."""
    if _CLIENT_PARTS.match(text):
        return ""
    text = _LEFT_OPEN.sub("", _CLIENT_BLOCKS.sub("", without_private(text))).strip()
    if text.startswith("<user_query>") and (queries := _QUERY.findall(text)):
        text = "\n\n".join(queries)
    return "" if _CLIENT_PARTS.match(text) else text


def without_private(text: str) -> str:
    """Return the text without recalled memories and private parts."""
    return _PRIVATE.sub("", _RECALLED.sub("", text)).strip()
