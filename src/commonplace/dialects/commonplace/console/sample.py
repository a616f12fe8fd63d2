"""Sample memories of a small team, for the command `demo` and for the console."""

from __future__ import annotations

from commonplace.engine.commonplace import Commonplace
from commonplace.engine.content.conversations import Line
from commonplace.engine.content.memories import Draft
from commonplace.engine.model import Memory

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

SPACE_PREFIX = "demo-"
"""The prefix of the names of spaces with sample memories."""


def is_demo(space: str) -> bool:
    """Return whether the name is that of a space with sample memories."""
    return space.startswith(SPACE_PREFIX)


def store_sample(memory: Commonplace) -> dict[str, Memory]:
    """Store all sample memories in one operation; return the notes by their ref."""
    with memory.unit("a team's memories"):
        stored = {each.ref or "": each for each in memory.remember_many(NOTES)}
        memory.conversations.add("heron", *CONVERSATION)
        memory.links.add("renewal", "outage", "resolves", weight=0.9, reason="so it stays fixed")
        alice = stored["alice"].id
        memory.facts.add("Alice", "works on", "the map", valid_to="2026-02-01", memory=alice)
        memory.facts.add("Alice", "works on", "vision", valid_from="2026-02-02", memory=alice)
    return stored
