"""Write MEMORY.md within a token budget; agents read this file at the start of a session."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from commonplace.dialects.clawbrain import locations
from commonplace.dialects.clawbrain.directory import Directory
from commonplace.dialects.clawbrain.strategy import Strategy
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.finding.ranking import credit_decayed
from commonplace.engine.model import Memory
from commonplace.text.hidden import escape_hidden

FILE = "MEMORY.md"
EMPTY_BRIEFING = (
    "# Memory\n\nNothing is stored yet. Memories stored with memory_store will appear here.\n"
)
ENTITY_SHARE = 0.7  # fraction of the token budget
MAX_CANDIDATES = 1_000  # maximum number of memories of each kind, by credit
SECTIONS = ("People", "Projects", "Preferences", "Recent Episodes")


@dataclass(frozen=True, slots=True)
class Entry:
    """One memory in the file."""

    section: str
    score: float
    text: str


def estimate_tokens(text: str) -> int:
    """Return an estimate of the number of tokens."""
    return math.ceil(len(text) / 4)


def compose(entries: Sequence[Entry], budget: int) -> str:
    """Return the content of the file: the entries by score, as many as fit into the budget."""
    if not entries:
        return EMPTY_BRIEFING
    frame = estimate_tokens("# Memory\n" + "".join(f"\n## {name}\n" for name in SECTIONS))
    available = {True: int((budget - frame) * ENTITY_SHARE)}
    available[False] = budget - frame - available[True]
    chosen: dict[str, list[Entry]] = {name: [] for name in SECTIONS}
    for entry in sorted(entries, key=lambda each: -each.score):
        cost, entity = estimate_tokens(entry.text), entry.section != SECTIONS[-1]
        if cost <= available[entity]:
            available[entity] -= cost
            chosen[entry.section].append(entry)
    parts = ["# Memory\n"]
    for name, found in chosen.items():
        if found:
            parts.append(f"\n## {name}\n")
            parts += [entry.text for entry in found]
    return "".join(parts)


def entries(memory: Commonplace, decay_rate: float) -> list[Entry]:
    """Return the memories for the file, without external ones, because agents read the file."""
    at = datetime.now(UTC)
    found = []
    for kind in locations.KINDS:
        page, _ = memory.browse(
            kinds=[kind], order="credit", limit=MAX_CANDIDATES, trust=("stated", "inferred")
        )
        for one in page:
            location = locations.of_memory(one)
            if location is not None:
                used = memory.usage(one.id).last_access or one.created_at
                days = (at - used).total_seconds() / 86_400
                score = credit_decayed(one.credit, days, rate=decay_rate)
                found.append(_entry(one, location, score))
    return found


def _entry(one: Memory, location: locations.Location, score: float) -> Entry:
    section = SECTIONS[-1] if location.kind == "episode" else location.category.capitalize()
    content = escape_hidden(one.text.strip())
    return Entry(
        section, score, f"\n### {location.name}\n<!-- score: {score:.3f} -->\n\n{content}\n"
    )


def write_briefing(memory: Commonplace, directory: Directory, chosen: Strategy) -> None:
    """Write the file if its content changed."""
    data = compose(entries(memory, chosen.decay_rate), chosen.max_context_budget).encode()
    try:
        if directory.read(FILE)[0] == data:
            return
    except OSError:
        pass  # missing or unreadable: write it
    directory.write(FILE, data)
