"""What a being can read: its own rows, rows that all beings of its owner share, and the owner's
other memories.

Every row of a being has the being's tag. All filters that separate beings are made here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from commonplace.access.caller import Caller
from commonplace.dialects.being import RESERVED
from commonplace.dialects.contract import Call
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.finding.filters import Filters
from commonplace.engine.model import LIVE_STATES, Memory
from commonplace.errors import InvalidInput, NotFound
from commonplace.platform import lookup

BEING = "being"
SOUL = "being.soul"
NODE = "scene"
SCENE = "being.scene"
"""A scene that waits for the next patrol, which makes it a node."""
NOTE = "being.note"
PREFERENCE = "being.preference"
KNOWLEDGE = "being.knowledge"
RELATIONSHIP = "being.relationship"
RELATION = "being.relation"
TOOL = "being.tool"
MAP = "being.map"
DIARY = "being.diary"
RULE = "being.rule"
PARTY = "being.party"
THOUGHT = "being.thought"
CAPABILITY = "being.capability"
ACT = "being.act"
"""An act that waits for its owner's decision."""
KINDS = (NODE, *RESERVED.own_records)
SHARED = (KNOWLEDGE, TOOL)
"""Kinds that all beings of an owner share."""
SAID = "being-history"
"""The tag of conversation messages, which have their own search."""
ALL_STATES = (*LIVE_STATES, "dead")


def tag(being: str) -> str:
    """The tag of a being's rows."""
    return f"being:{being}"


def own_rows(being: str, *kinds: str, **conditions: Any) -> Filters:
    """The being's rows of some kinds; rows of shared kinds belong to all beings of the owner."""
    tags = () if set(kinds) <= set(SHARED) else (tag(being),)
    return Filters(kinds=kinds, tags_all=tags, **conditions)


def findable(memory: Commonplace, being: str, **conditions: Any) -> Filters:
    """What free-text search may find: its nodes and what other agents of the owner stored."""
    others = [tag(each.id) for each in every(memory, Filters(kinds=[BEING], states=_KNOWN))]
    others.remove(tag(being))
    return Filters(without_kinds=RESERVED.own_records, tags_none=[*others, SAID], **conditions)


_KNOWN = (*LIVE_STATES, "archived")


def readable(memory: Memory) -> bool:
    """Whether a row has valid attrs for its kind; `doctor` reports rows without them."""
    return RESERVED.readable(memory.kind, memory.attrs)


def number_of(row: Memory, name: str, otherwise: int = 0) -> int:
    """An integer attribute of a row."""
    held = row.attrs.get(name)
    return held if isinstance(held, int) else otherwise


def marks_of(being: Memory) -> list[int]:
    """The newest row of each of a being's patrols."""
    held = being.attrs.get("marks")
    return [each for each in held if isinstance(each, int)] if isinstance(held, list) else []


def every(memory: Commonplace, filters: Filters, order: str = "newest") -> Iterator[Memory]:
    """All rows that pass the filters and are readable."""
    return filter(readable, lookup.every(memory, filters, order))


def is_own(being: str, memory: Memory, *kinds: str) -> bool:
    """Whether a row is this being's, of one of the kinds."""
    mine = memory.kind in SHARED or tag(being) in memory.tags
    return memory.kind in (kinds or KINDS) and mine and readable(memory)


def beings(memory: Commonplace) -> list[Memory]:
    """The owner's beings, oldest first."""
    return list(every(memory, Filters(kinds=[BEING]), "oldest"))


def get(memory: Commonplace, identity: str) -> Memory | None:
    """A memory by an id that a caller gave; None if there is none, or the id is malformed."""
    with contextlib.suppress(InvalidInput):
        return lookup.find(memory, identity)
    return None


def find(memory: Commonplace, identity: str) -> Memory:
    """A being of this owner that is not deleted, by its id; NotFound if there is none."""
    found = get(memory, identity)
    if (
        found is None
        or found.kind != BEING
        or found.state not in LIVE_STATES
        or found.id != identity
    ):
        raise NotFound("There is no such being.")
    return found


def identify(memory: Commonplace, caller: Caller, named: Sequence[str]) -> Caller:
    """The caller as a being: the one that the address or token names, or the only one."""
    wanted = {each for each in (*named, caller.subject) if each}
    if len(wanted) > 1 or "" in named:
        raise NotFound("There is no such being.")
    if wanted:
        return replace(caller, subject=find(memory, wanted.pop()).id)
    there = beings(memory)
    if len(there) == 1:
        return replace(caller, subject=there[0].id)
    if not there:
        raise InvalidInput(
            "There is no being yet.", hint="Make one: 'commonplace being create NAME'."
        )
    raise InvalidInput(
        f"There are {len(there)} beings: name the being.",
        hint="Use /mcp/{beingId}, ?being_id=, or --being over stdio.",
    )


def being_of(call: Call) -> str:
    """The being that a call is made as."""
    if not call.caller.subject:
        return identify(call.memory, call.caller, []).subject
    return call.caller.subject
