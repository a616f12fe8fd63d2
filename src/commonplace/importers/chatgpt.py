"""ChatGPT's data export: `conversations.json`, alone, in its directory or in its ZIP archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commonplace.importers.items import Item, Skipped, digest_key, storable_title
from commonplace.importers.json_files import documents, read_heads
from commonplace.transcripts.noise import without_private_text
from commonplace.transcripts.record import list_of, mapping_of, parse_time, text_of

NAME = "chatgpt"
TITLE = "ChatGPT's data export"
FILE = "conversations.json"
_NUMBERED_FILES = tuple(f"conversations-{number:03}.json" for number in range(100))
_SHOWN_CONTENT_TYPES = ("text", "multimodal_text")


def recognises(path: Path) -> bool:
    """Return whether a file, directory or archive is a data export of ChatGPT."""
    return any(b'"mapping"' in head for head in read_heads(path, FILE, *_NUMBERED_FILES))


def items(path: Path) -> Iterator[Item | Skipped]:
    """Yield the messages on the last visible branch of each conversation."""
    for document in documents(path, FILE, *_NUMBERED_FILES):
        if isinstance(document, Skipped):
            yield document
        for conversation in map(mapping_of, list_of(document)):
            yield from _messages_of_conversation(conversation)


def _messages_of_conversation(conversation: dict[str, Any]) -> Iterator[Item]:
    identity = text_of(conversation.get("conversation_id")) or text_of(conversation.get("id"))
    title = storable_title(conversation.get("title"))
    identity = identity or digest_key(title, conversation.get("create_time"))
    for node in _visible_branch(conversation):
        message = mapping_of(node.get("message"))
        role = mapping_of(message.get("author")).get("role")
        content = mapping_of(message.get("content"))
        hidden = mapping_of(message.get("metadata")).get("is_visually_hidden_from_conversation")
        if (
            role not in ("user", "assistant")
            or content.get("content_type") not in _SHOWN_CONTENT_TYPES
            or hidden
        ):
            continue
        if message.get("recipient", "all") != "all":  # a call of a tool
            continue
        text = without_private_text(*map(_text_of_part, list_of(content.get("parts"))))
        if text:
            at = parse_time(message.get("create_time")) or parse_time(
                conversation.get("create_time")
            )
            yield Item(
                key=text_of(message.get("id")) or digest_key(identity, role, text),
                text=text, occurred_at=at, conversation=f"{NAME}:{identity}", speaker=role,
            )  # fmt: skip


def _text_of_part(part: Any) -> str:
    """Return the text of a part of a message; for a voice message it is the transcription."""
    if mapping_of(part).get("content_type") == "audio_transcription":
        return text_of(part.get("text"))
    return text_of(part)


def _visible_branch(conversation: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes from the first to the current one; the user has replaced other branches."""
    mapping = mapping_of(conversation.get("mapping"))
    at = text_of(conversation.get("current_node"))
    if at not in mapping:  # the newest leaf
        leaves = [name for name, node in mapping.items() if not mapping_of(node).get("children")]
        at = max(leaves, key=lambda name: _creation_time(mapping[name]), default="")
    found: list[dict[str, Any]] = []
    while at in mapping and len(found) <= len(mapping):
        node = mapping_of(mapping[at])
        found.append(node)
        at = text_of(node.get("parent"))
    return found[::-1]


def _creation_time(node: Any) -> float:
    at = mapping_of(mapping_of(node).get("message")).get("create_time")
    return at if isinstance(at, int | float) else 0.0
