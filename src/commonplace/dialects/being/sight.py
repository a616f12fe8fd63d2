"""The rows that a being can read.

These are its own rows, the rows that all beings of its owner share, and the owner's other memories.

Every row of a being has the being's tag. This module builds all filters that separate beings.
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

PREFIX_CHARS = 4
"""How much of an id is enough to name a being."""

BEING = "being"
SOUL = "being.soul"
NODE = "scene"
SCENE = "being.scene"
"""A scene that the next patrol turns into a node."""
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
"""An act that waits for the owner's decision."""
OWN_KINDS = (NODE, *RESERVED.own_records)
SHARED_KINDS = (KNOWLEDGE, TOOL)
"""Kinds that all beings of an owner share."""
HISTORY_TAG = "being-history"
"""The tag of conversation messages. Of a being's tools, only search_history searches them."""
ALL_STATES = (*LIVE_STATES, "dead")


def being_tag(being: str) -> str:
    """Return the tag of a being's rows."""
    return f"being:{being}"


def own_row_filters(being: str, *kinds: str, **conditions: Any) -> Filters:
    """Return filters for the being's rows of some kinds; shared kinds need no tag."""
    tags = () if set(kinds) <= set(SHARED_KINDS) else (being_tag(being),)
    return Filters(kinds=kinds, tags_all=tags, **conditions)


def search_filters(memory: Commonplace, being: str, **conditions: Any) -> Filters:
    """Return the filters of free-text search: the being's nodes, and memories of other agents."""
    others = [
        being_tag(each.id)
        for each in readable_rows(memory, Filters(kinds=[BEING], states=_EXISTING_STATES))
    ]
    others.remove(being_tag(being))
    return Filters(
        without_kinds=RESERVED.own_records, tags_none=[*others, HISTORY_TAG], **conditions
    )


_EXISTING_STATES = (*LIVE_STATES, "archived")


def is_readable(memory: Memory) -> bool:
    """Return whether the attrs of a row are valid for its kind; `doctor` reports invalid ones."""
    return RESERVED.is_readable(memory.kind, memory.attrs)


def integer_attr(row: Memory, name: str, default: int = 0) -> int:
    """Return an integer attribute of a row, or the default if it is missing or invalid."""
    value = row.attrs.get(name)
    return value if isinstance(value, int) else default


def patrol_marks(being: Memory, name: str = "marks_at") -> list[int]:
    """Return the marks of a being's patrols: when the newest node at each of them was stored.

    An older release noted the number of that node, in `marks`; an import changes numbers.
    """
    marks = being.attrs.get(name)
    return [each for each in marks if isinstance(each, int)] if isinstance(marks, list) else []


def readable_rows(memory: Commonplace, filters: Filters, order: str = "newest") -> Iterator[Memory]:
    """Return all rows that pass the filters and have valid attrs."""
    return filter(is_readable, lookup.all_memories(memory, filters, order))


def is_own(being: str, memory: Memory, *kinds: str) -> bool:
    """Return whether a row belongs to this being and has one of the kinds."""
    mine = memory.kind in SHARED_KINDS or being_tag(being) in memory.tags
    return memory.kind in (kinds or OWN_KINDS) and mine and is_readable(memory)


def beings(memory: Commonplace) -> list[Memory]:
    """Return the owner's beings, oldest first."""
    return list(readable_rows(memory, Filters(kinds=[BEING]), "oldest"))


def find_memory(memory: Commonplace, identity: str) -> Memory | None:
    """Return the memory with this id, or None if there is none or the id is malformed."""
    with contextlib.suppress(InvalidInput):
        return lookup.find_memory(memory, identity)
    return None


def get_being(memory: Commonplace, identity: str) -> Memory:
    """Return the owner's live being with this id; raise NotFound if there is none."""
    found = find_memory(memory, identity)
    if (
        found is None
        or found.kind != BEING
        or found.state not in LIVE_STATES
        or found.id != identity
    ):
        raise NotFound("There is no such being.")
    return found


def find_named(memory: Commonplace, name: str) -> Memory:
    """Return the being with an id, a unique prefix of an id, or a unique name."""
    there = beings(memory)
    found = [each for each in there if each.id == name] or [
        each for each in there
        if each.title.casefold() == name.casefold()
        or (len(name) >= PREFIX_CHARS and each.id.startswith(name.lower()))
    ]  # fmt: skip
    if len(found) == 1:
        return found[0]
    what = "There are several beings" if found else "There is no being"
    create = (
        "" if found else f", or create one: 'commonplace being create NAME --space {memory.name}'"
    )
    raise NotFound(
        f"{what} {name[:80]!r} in the space {memory.name}.",
        hint=f"See 'commonplace being list --space {memory.name}'{create}.",
        field="being",
    )


def identify(memory: Commonplace, caller: Caller, names: Sequence[str]) -> Caller:
    """Return the caller with a being as its subject.

    The address or the token names the being; without a name the owner must have only one.
    """
    distinct = {each for each in (*names, caller.subject) if each}
    if len(distinct) > 1 or "" in names:
        raise NotFound("There is no such being.")
    if distinct:
        return replace(caller, subject=get_being(memory, distinct.pop()).id)
    all_beings = beings(memory)
    if len(all_beings) == 1:
        return replace(caller, subject=all_beings[0].id)
    if not all_beings:
        raise InvalidInput(
            "There is no being yet.", hint="Create one with 'commonplace being create NAME'."
        )
    raise InvalidInput(
        f"There are {len(all_beings)} beings. Say which one to use.",
        hint="Use /mcp/{beingId}, ?being_id=, or --being over stdio.",
    )


def being_of(call: Call) -> str:
    """Return the id of the being that makes a call; a session may outlive its being."""
    if not call.caller.subject:
        return identify(call.memory, call.caller, []).subject
    return get_being(call.memory, call.caller.subject).id
