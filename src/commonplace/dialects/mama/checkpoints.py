"""Checkpoints: each stores the state of a session as a memory with a number."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from commonplace.engine.model import LIVE_STATES, Memory, microseconds

KIND = "checkpoint"
REF_PREFIX = "checkpoint_"
_NEXT = "\nNext steps: "
_NUMBERED = re.compile(r"checkpoint_([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The fields of a checkpoint."""

    summary: str
    next_steps: str = ""
    open_files: Sequence[str] = ()

    @property
    def text(self) -> str:
        """The text that is stored, searched and embedded."""
        return self.summary + (_NEXT + self.next_steps if self.next_steps else "")

    @property
    def attrs(self) -> dict[str, Any]:
        """The attrs from which `read` restores the fields."""
        return {"summary_chars": len(self.summary), "open_files": list(self.open_files)}


def read(memory: Memory) -> Checkpoint:
    """Return the checkpoint of a memory; a memory of another contract has a summary only."""
    chars, files = memory.attrs.get("summary_chars"), memory.attrs.get("open_files")
    known = [str(file) for file in files] if isinstance(files, list) else []
    if isinstance(chars, int) and memory.text.startswith(_NEXT, chars):
        return Checkpoint(memory.text[:chars], memory.text[chars + len(_NEXT) :], known)
    return Checkpoint(_summary(memory), "", known)


def _summary(memory: Memory) -> str:
    """Return the text, or the title and description if another contract stored JSON."""
    if memory.text.startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            described = json.loads(memory.text).get("description")
            if memory.title and isinstance(described, str):
                return f"{memory.title}: {described}" if described.strip() else memory.title
    return memory.text


def checkpoint_number(memory: Memory) -> int:
    """Return the number of a checkpoint, or the row number for other contracts."""
    numbered = _NUMBERED.fullmatch(memory.ref or "")
    return int(numbered[1]) if numbered else memory.num


def is_numbered(memory: Memory) -> bool:
    """Return whether a memory is a checkpoint of this contract."""
    return _NUMBERED.fullmatch(memory.ref or "") is not None


def public_id(memory: Memory) -> str:
    """Return the id of a checkpoint in search results."""
    return memory.ref if memory.ref and is_numbered(memory) else memory.id


def to_dict(memory: Memory, *, per_second: int) -> dict[str, Any]:
    """Return the fields of a checkpoint; times are in units of 1 / `per_second` seconds."""
    checkpoint = read(memory)
    return {
        "id": checkpoint_number(memory),
        "summary": checkpoint.summary,
        "next_steps": checkpoint.next_steps,
        "open_files": list(checkpoint.open_files),
        "timestamp": microseconds(memory.created_at) * per_second // 1_000_000,
    }


def status(memory: Memory) -> str:
    """Return the status of a checkpoint: active or archived."""
    return "active" if memory.state in LIVE_STATES else "archived"
