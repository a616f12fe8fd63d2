"""The data export of claude.ai: `conversations.json`, alone, in a directory or a ZIP archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commonplace.importers.items import Item, Skipped, digest_key
from commonplace.importers.json_files import documents, read_heads
from commonplace.transcripts.noise import without_private_text
from commonplace.transcripts.record import (
    Role,
    join_texts,
    list_of,
    mapping_of,
    parse_time,
    text_of,
)

NAME = "claude"
TITLE = "the data export of claude.ai"
FILE = "conversations.json"
_ROLES: dict[str, Role] = {"human": "user", "assistant": "assistant"}


def recognises(path: Path) -> bool:
    """Return whether a file, directory or archive is a data export of claude.ai."""
    return any(b'"chat_messages"' in head for head in read_heads(path, FILE))


def items(path: Path) -> Iterator[Item | Skipped]:
    """Yield the messages of every conversation."""
    for document in documents(path, FILE):
        if isinstance(document, Skipped):
            yield document
        for conversation in map(mapping_of, list_of(document)):
            identity = text_of(conversation.get("uuid")) or digest_key(conversation.get("name"))
            for message in map(mapping_of, list_of(conversation.get("chat_messages"))):
                role = _ROLES.get(text_of(message.get("sender")))
                text = _text(message)
                if role is None or not text:
                    continue
                yield Item(
                    key=text_of(message.get("uuid")) or digest_key(identity, role, text), text=text,
                    occurred_at=parse_time(message.get("created_at")),
                    conversation=f"{NAME}:{identity}", speaker=role,
                )  # fmt: skip


def _text(message: dict[str, Any]) -> str:
    parts = [mapping_of(part) for part in list_of(message.get("content"))]
    shown = join_texts(text_of(part.get("text")) for part in parts if part.get("type") == "text")
    return without_private_text(shown or text_of(message.get("text")))
