"""MEMORY.md: what an agent reads at the start of a session, within a budget of tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from commonplace.dialects.clawbrain import places
from commonplace.dialects.clawbrain.directory import Directory
from commonplace.dialects.clawbrain.strategy import Strategy
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.finding.ranking import credit_decayed
from commonplace.engine.model import Memory
from commonplace.text.hidden import visible

FILE = "MEMORY.md"
EMPTY = "# Memory\n\nNothing is remembered yet; what you store with memory_store will be here.\n"
ENTITIES = 0.7  # the share of the token budget for entities
CONSIDERED = 1_000  # memories of each kind that are considered, best first
SECTIONS = ("People", "Projects", "Preferences", "Recent Episodes")


@dataclass(frozen=True, slots=True)
class Entry:
    """A memory as MEMORY.md shows it."""

    section: str
    score: float
    text: str


def tokens(text: str) -> int:
    """Estimate the tokens of a text, without a model."""
    return math.ceil(len(text) / 4)


def compose(entries: Sequence[Entry], budget: int) -> str:
    """Compose MEMORY.md: memories by score; one that is too long for the rest is skipped."""
    if not entries:
        return EMPTY
    frame = tokens("# Memory\n" + "".join(f"\n## {name}\n" for name in SECTIONS))
    room = {True: int((budget - frame) * ENTITIES)}
    room[False] = budget - frame - room[True]
    chosen: dict[str, list[Entry]] = {name: [] for name in SECTIONS}
    for entry in sorted(entries, key=lambda each: -each.score):
        cost, entity = tokens(entry.text), entry.section != SECTIONS[-1]
        if cost <= room[entity]:
            room[entity] -= cost
            chosen[entry.section].append(entry)
    parts = ["# Memory\n"]
    for name, found in chosen.items():
        if found:
            parts.append(f"\n## {name}\n")
            parts += [entry.text for entry in found]
    return "".join(parts)


def entries(memory: Commonplace, decay_rate: float) -> list[Entry]:
    """The memories that MEMORY.md may show; untrusted external text is left out."""
    at = datetime.now(UTC)
    found = []
    for kind in places.KINDS:
        page, _ = memory.browse(
            kinds=[kind], order="credit", limit=CONSIDERED, trust=("stated", "inferred")
        )
        for one in page:
            place = places.of_memory(one)
            if place is not None:
                used = memory.usage(one.id).last_access or one.created_at
                days = (at - used).total_seconds() / 86_400
                score = credit_decayed(one.credit, days, rate=decay_rate)
                found.append(_entry(one, place, score))
    return found


def _entry(one: Memory, place: places.Place, score: float) -> Entry:
    section = SECTIONS[-1] if place.kind == "episode" else place.category.capitalize()
    content = visible(one.text.strip())
    return Entry(section, score, f"\n### {place.name}\n<!-- score: {score:.3f} -->\n\n{content}\n")


def write(memory: Commonplace, directory: Directory, chosen: Strategy) -> None:
    """Write MEMORY.md if its content changes."""
    data = compose(entries(memory, chosen.decay_rate), chosen.max_context_budget).encode()
    try:
        if directory.read(FILE)[0] == data:
            return
    except OSError:
        pass  # missing or unreadable: write it again
    directory.write(FILE, data)
