"""claude-mem: observations, summaries and prompts in its SQLite file, `claude-mem.db`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commonplace.importers.databases import first_with_tables
from commonplace.importers.items import Item, storable_tags, storable_title
from commonplace.storage.sqlite import foreign
from commonplace.transcripts.noise import text_by_user
from commonplace.transcripts.record import join_texts, list_of, parse_time, text_of

NAME = "claude-mem"
TITLE = "claude-mem"
_SUMMARY_FIELDS = ("request", "investigated", "learned", "completed", "next_steps", "notes")
TABLES = {
    "observations": ("id", "memory_session_id", "sdk_session_id", "project", "type", "title",
                     "subtitle", "text", "narrative", "facts", "concepts", "created_at_epoch"),
    "session_summaries": ("id", "memory_session_id", "sdk_session_id", "project", *_SUMMARY_FIELDS,
                          "created_at_epoch"),
    "user_prompts": ("id", "content_session_id", "claude_session_id", "prompt_text",
                     "created_at_epoch"),
}  # fmt: skip


def recognises(path: Path) -> bool:
    """Return whether a path is claude-mem's database, or a directory with it."""
    return _find_database(path) is not None


def _find_database(path: Path) -> Path | None:
    return first_with_tables(path, ("claude-mem.db",), "observations", "session_summaries")


def items(path: Path) -> Iterator[Item]:
    """Yield a memory for each observation and summary, and a message for each prompt."""
    file = _find_database(path)
    if file is None:
        return
    rows = foreign.read_tables(file, TABLES)
    for row in rows["observations"]:
        facts = [f"- {fact}" for fact in _parse_list(row.get("facts"))]
        text = join_texts([text_of(row.get("subtitle")), text_of(row.get("narrative")),
                       text_of(row.get("text")), "\n".join(facts)])  # fmt: skip
        title = storable_title(row.get("title"))
        if text or title:
            yield _item(file, f"observation:{row['id']}", row, title, text or title,
                        [row.get("type"), *_parse_list(row.get("concepts"))])  # fmt: skip
    for row in rows["session_summaries"]:
        said = [(part, text_of(row.get(part)).strip()) for part in _SUMMARY_FIELDS]
        text = join_texts(
            f"{part.replace('_', ' ').capitalize()}: {each}" for part, each in said if each
        )
        if text:
            yield _item(
                file,
                f"summary:{row['id']}",
                row,
                storable_title(row.get("request")),
                text,
                ["summary"],
            )
    for row in rows["user_prompts"]:
        session = text_of(row.get("content_session_id")) or text_of(row.get("claude_session_id"))
        if text := text_by_user(text_of(row.get("prompt_text"))):
            yield Item(
                key=f"prompt:{row['id']}", text=text, speaker="user", trust="inferred",
                occurred_at=parse_time(row.get("created_at_epoch")),
                conversation=f"{NAME}:{session}",
            )  # fmt: skip


def _item(
    file: Path, key: str, row: dict[str, Any], title: str, text: str, tags: list[Any]
) -> Item:
    at = parse_time(row.get("created_at_epoch"))
    project = text_of(row.get("project"))
    return Item(
        key=key, key_scope=str(file.resolve()), title=title, text=text, tags=storable_tags(tags),
        occurred_at=at, created_at=at,
        attrs={"project": project} if project else {},
    )  # fmt: skip


def _parse_list(value: Any) -> list[str]:
    try:
        found = json.loads(value) if isinstance(value, str) else []
    except (ValueError, RecursionError):
        return []
    return [str(each) for each in list_of(found) if each]
