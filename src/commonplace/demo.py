"""A tour of the memory with a small team's project, in a directory that is thrown away."""

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

TALK: tuple[Line, ...] = (
    Line(speaker="Alice", text="The model mistakes plastic bags for egrets again.",
         at="2026-03-25T09:10:00Z", session="standup"),
    Line(speaker="Tomás", text="How bad is it?", at="2026-03-25T09:10:20Z", session="standup"),
    Line(speaker="Alice", text="One in nine at low water. I need two hundred photos of litter.",
         at="2026-03-25T09:10:45Z", session="standup"),
    Line(speaker="Tomás", text="I walk the dog there, you will have them by Monday.",
         at="2026-03-25T09:11:10Z", session="standup"),
)  # fmt: skip


def run(*, keep: bool = False) -> None:
    """Tell the tour on stdout; with `keep`, leave its directory for trying further."""
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="commonplace-demo-"))
    try:
        with (
            _embedder() as embedder,
            Commonplace(
                folder, embedding=embedder, origin=Origin(user="demo", client="demo")
            ) as memory,
        ):
            _tour(memory, begun)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    _farewell(folder if keep else None)


@contextmanager
def _embedder() -> Iterator[Embedder | None]:
    try:
        yield open_embedder("builtin")
    except EmbeddingUnavailable as error:
        _say(f"  (by words alone: {error.message})")
        yield None


def _tour(memory: Commonplace, begun: float) -> None:
    with memory.unit("a team's memories"):
        stored = {each.ref or "": each for each in memory.remember_many(NOTES)}
        memory.conversations.add("heron", *TALK)
        memory.links.add("renewal", "outage", "resolves", weight=0.9, reason="so it stays fixed")
        memory.facts.add("Alice", "works on", "the map", valid_to="2026-02-01")
        memory.facts.add("Alice", "works on", "vision", valid_from="2026-02-02", memory="alice")
    count = len(NOTES) + len(TALK)
    _say(f"Commonplace remembered {count} things of a small team, a talk, a link and two facts"
         f" ({time.monotonic() - begun:.1f} s).")  # fmt: skip

    _say("Each answer comes with its score, and with why it came.")

    _head("By meaning: the answer shares no word with the question")
    _ask(memory, "can everyone eat the dessert?")
    _ask(memory, "what annoys users with cold hands?")
    _head("By word: a code, a name, in any script")
    _ask(memory, "E-4012")
    _ask(memory, "葛西でのテストはいつ？")
    _ask(memory, "список птиц")
    _head("Together: a line of a talk brings the lines around it, a link what it leads to")
    _ask(memory, "what does Alice need photos of litter for?", limit=3)
    _ask(memory, "why did the certificate expire?", limit=2)

    _head("A correction keeps what was")
    before = datetime.now(UTC)
    time.sleep(0.01)  # a moment must pass to look back at it
    shipped = stored["ship-day"]
    memory.revise(shipped.id, text="We ship on Tuesdays; Fridays spoilt two weekends.")
    _ask(memory, "when do we ship?", why=False)
    _ask(memory, "when do we ship?", why=False, as_of=before)
    _say("  Its versions, newest first:")
    for version in memory.history.versions(shipped.id):
        _say(f"    {'was' if version.until else 'is':<4}  {version.memory.text}")
    memory.undo()
    _say(f"  After undo:\n    is    {memory.get(shipped.id).text}")

    _head("Facts have a when")
    for day in ("2026-01-15", "2026-03-15"):
        known = memory.facts.query("Alice", predicate="works on", true_at=day)
        _say(f"  On {day} Alice works on {', '.join(fact.object for fact in known)}.")


def _ask(
    memory: Commonplace,
    query: str,
    *,
    limit: int = 1,
    why: bool = True,
    as_of: datetime | None = None,
) -> None:
    _say(f"  ? {query}" + ("" if as_of is None else "   … asked of the moment before"))
    for hit in memory.recall(query, limit=limit, as_of=as_of):
        _say(f"    {hit.score:.2f}  {_cut(hit.memory.text)}")
        if why:
            _say(f"          {hit.why}")


def _cut(text: str) -> str:
    room = WIDTH - 10
    return text if len(text) <= room else text[: room - 1].rstrip() + "…"


def _head(text: str) -> None:
    _say(f"\n{text}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _farewell(kept: Path | None) -> None:
    if kept is None:
        _say("\nAll of it is gone again. Now yours:")
        _say('  commonplace remember "…" --tag first')
        _say('  commonplace search "…" --why')
    else:
        _say(f"\nIt stays in {kept}. Try:")
        _say(f'  commonplace search "gloves" --why --data {kept}')
        _say(f"  commonplace log --data {kept}")
    _say("  commonplace --help")
