"""The command `demo`: shows the main features with sample memories in a temporary directory."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from commonplace.embedding.provider import Embedder, open_embedder
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content.conversations import Line
from commonplace.engine.content.memories import Draft
from commonplace.engine.model import Origin
from commonplace.errors import EmbeddingUnavailable

WIDTH = 96

_PEOPLE = ("people",)
_RELEASE = ("release",)
_INCIDENT = ("incident", "tides")

NOTES: tuple[Draft, ...] = (
    Draft(text="Heron is a field app for bird counts along the coast. Three of us build it.",
          kind="project", ref="heron"),
    Draft(text="Alice moved to the vision team; she teaches the model to tell gulls from terns.",
          kind="person", tags=_PEOPLE, occurred_at="2026-02-02", ref="alice"),
    Draft(text="Tomás runs the servers and is on call in odd weeks.", kind="person", tags=_PEOPLE),
    Draft(text="Yuki draws the screens and speaks with the volunteers.", kind="person",
          tags=_PEOPLE),
    Draft(text="Yuki is allergic to nuts. Check before ordering cake.", kind="person",
          tags=_PEOPLE, importance=0.9),
    Draft(text="We ship on Fridays after lunch.", kind="decision", tags=_RELEASE,
          occurred_at="2026-01-12", ref="ship-day"),
    Draft(text="Photos stay on the phone until the ranger agrees to upload them.",
          kind="decision", tags=("privacy",), occurred_at="2026-01-20", importance=0.8),
    Draft(text="SQLite on the device and sync at night: the marsh has no signal.",
          kind="decision", tags=("architecture",), occurred_at="2026-01-22"),
    Draft(text="No dark theme before autumn; sunlight is our enemy, not the night.",
          kind="decision", tags=("design",), occurred_at="2026-02-10"),
    Draft(text="The map went blank for 41 minutes: the tide server's certificate had expired.",
          kind="incident", tags=_INCIDENT, occurred_at="2026-03-06", importance=0.8, ref="outage"),
    Draft(text="Renew certificates by a timer, and alarm three weeks ahead.",
          kind="decision", tags=_INCIDENT, occurred_at="2026-03-07", ref="renewal"),
    Draft(text="The volunteers want bigger buttons: they wear gloves until April.",
          kind="insight", tags=("design",), occurred_at="2026-02-18"),
    Draft(text="Counting at dawn doubles the waders that are seen.", kind="insight"),
    Draft(text="The licence for the sea charts costs 240 euros a year, due in May.", kind="fact",
          tags=("money",)),
    Draft(text="Staging is at heron-staging.internal:8443; the build is called tern-7.",
          kind="reference", tags=("servers",)),
    Draft(text="Error E-4012 means that the GPS chip sleeps. Shake the phone.", kind="reference"),
    Draft(text="Tomás prefers short written updates to meetings.", kind="preference"),
    Draft(text="最初の現地テストは三月に葛西臨海公園で行う。双眼鏡を忘れないこと。",
          kind="note", tags=("field",), occurred_at="2026-03-14"),
    Draft(text="Ольга из заповедника пришлёт список редких птиц до конца апреля.",
          kind="note", tags=("field",), occurred_at="2026-03-20"),
    Draft(text="Lunch place with the good lentil soup: Kontor, behind the fish market.",
          kind="note"),
)  # fmt: skip

CONVERSATION: tuple[Line, ...] = (
    Line(speaker="Alice", text="The model mistakes plastic bags for egrets again.",
         at="2026-03-25T09:10:00Z", session="standup"),
    Line(speaker="Tomás", text="How bad is it?", at="2026-03-25T09:10:20Z", session="standup"),
    Line(speaker="Alice", text="One in nine at low water. I need two hundred photos of litter.",
         at="2026-03-25T09:10:45Z", session="standup"),
    Line(speaker="Tomás", text="I walk the dog there, you will have them by Monday.",
         at="2026-03-25T09:11:10Z", session="standup"),
)  # fmt: skip


def run(*, keep: bool = False) -> None:
    """Print the tour to stdout; with `keep`, do not delete its directory."""
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="commonplace-demo-"))
    try:
        with (
            _embedder() as embedder,
            Commonplace(
                folder, embedding=embedder, origin=Origin(user="demo", client="demo")
            ) as memory,
        ):
            _tour(memory, started)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    _print_next_steps(folder if keep else None)


@contextmanager
def _embedder() -> Iterator[Embedder | None]:
    try:
        yield open_embedder("builtin")
    except EmbeddingUnavailable as error:
        _print(f"  (search by words only: {error.message})")
        yield None


def _tour(memory: Commonplace, started: float) -> None:
    with memory.unit("a team's memories"):
        stored = {each.ref or "": each for each in memory.remember_many(NOTES)}
        memory.conversations.add("heron", *CONVERSATION)
        memory.links.add("renewal", "outage", "resolves", weight=0.9, reason="so it stays fixed")
        memory.facts.add("Alice", "works on", "the map", valid_to="2026-02-01")
        memory.facts.add("Alice", "works on", "vision", valid_from="2026-02-02", memory="alice")
    count = len(NOTES) + len(CONVERSATION)
    _print(f"Stored {count} memories of a small team, a conversation, a link and two facts"
           f" ({time.monotonic() - started:.1f} s).")  # fmt: skip

    _print("Each result has a score and the reasons why it was found.")

    _print_heading("Search by meaning: the result shares no word with the question")
    _ask(memory, "can everyone eat the dessert?")
    _ask(memory, "what annoys users with cold hands?")
    _print_heading("Search by word: a code, a name, in any script")
    _ask(memory, "E-4012")
    _ask(memory, "葛西でのテストはいつ？")
    _ask(memory, "список птиц")
    _print_heading("With context: the lines around a match, and the memories linked to it")
    _ask(memory, "what does Alice need photos of litter for?", limit=3)
    _ask(memory, "why did the certificate expire?", limit=2)

    _print_heading("Versions: a correction keeps the earlier text")
    before = datetime.now(UTC)
    time.sleep(0.01)  # so that `before` is earlier than the change
    shipped = stored["ship-day"]
    memory.revise(shipped.id, text="We ship on Tuesdays; Fridays spoilt two weekends.")
    _ask(memory, "when do we ship?", why=False)
    _ask(memory, "when do we ship?", why=False, as_of=before)
    _print("  Its versions, newest first:")
    for version in memory.history.versions(shipped.id):
        _print(f"    {'was' if version.until else 'is':<4}  {version.memory.text}")
    memory.undo()
    _print(f"  After undo:\n    is    {memory.get(shipped.id).text}")

    _print_heading("Facts are valid for a time")
    for day in ("2026-01-15", "2026-03-15"):
        known = memory.facts.query("Alice", predicate="works on", true_at=day)
        _print(f"  On {day} Alice works on {', '.join(fact.object for fact in known)}.")


def _ask(
    memory: Commonplace,
    query: str,
    *,
    limit: int = 1,
    why: bool = True,
    as_of: datetime | None = None,
) -> None:
    _print(f"  ? {query}" + ("" if as_of is None else "   (as of before the change)"))
    for hit in memory.recall(query, limit=limit, as_of=as_of):
        _print(f"    {hit.score:.2f}  {_cut(hit.memory.text)}")
        if why:
            _print(f"          {hit.why}")


def _cut(text: str) -> str:
    room = WIDTH - 10
    return text if len(text) <= room else text[: room - 1].rstrip() + "…"


def _print_heading(text: str) -> None:
    _print(f"\n{text}")


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _print_next_steps(folder: Path | None) -> None:
    if folder is None:
        _print("\nThe demo data is deleted. Now store your own:")
        _print('  commonplace remember "…" --tag first')
        _print('  commonplace search "…" --why')
    else:
        _print(f"\nThe demo data is in {folder}. Try:")
        _print(f'  commonplace search "gloves" --why --data {folder}')
        _print(f"  commonplace log --data {folder}")
    _print("  commonplace --help")
