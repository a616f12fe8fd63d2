"""What an agent knows when it wakes up: who the workspace is (L0), and what matters most (L1)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from commonplace.dialects.orchestrator import drawers
from commonplace.text.prose import neutral

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace

L0_CHARS = 400
L1_DRAWERS = 15
L1_SNIPPET_CHARS = 200
L1_CHARS = 2_000
ALL_CHARS = 14_000


def wake_up(memory: Commonplace) -> str:
    """L0 and L1 as a text for a model; empty when nothing is known."""
    parts = [part for part in (identity(memory), essentials(memory)) if part]
    return "\n\n".join(parts)


def identity(memory: Commonplace) -> str:
    """L0."""
    text = drawers.identity_of(memory)
    return f"## Identity\n{neutral(cut(text, L0_CHARS))}" if text else ""


def essentials(memory: Commonplace) -> str:
    """L1: the most important drawers by room."""
    best, _ = memory.browse(kinds=drawers.OWN, order="importance", limit=L1_DRAWERS)
    by_room: dict[str, list[str]] = defaultdict(list)
    for drawer in best:
        snippet = " ".join(cut(drawer.text, L1_SNIPPET_CHARS).split())
        by_room[str(drawer.attrs.get("room", ""))].append(f"- {neutral(snippet)}")
    return _within(by_room, "## Essential memories", L1_CHARS)


def _within(by_room: dict[str, list[str]], heading: str, chars: int) -> str:
    text = heading
    for room, lines in by_room.items():
        begun = f"{text}\n[{neutral(room)}]"
        if len(begun) + len(lines[0]) + 1 > chars:
            break
        text = begun
        for line in lines:
            if len(text) + len(line) + 1 > chars:
                return text
            text += f"\n{line}"
    return text if text != heading else ""


def cut(text: str, chars: int) -> str:
    """At most so many characters, and three dots if there were more."""
    return text if len(text) <= chars else text[:chars] + "..."
