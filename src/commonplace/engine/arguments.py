"""What callers of the library pass, as the engine takes it.

The fields of a memory and the conditions of a search are written out here for type checkers and
editors, which cannot read them from `MemoryFields` and `Filters`; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from commonplace.engine import checks
from commonplace.engine.content.memories import DRAFT_FIELDS, Draft
from commonplace.engine.finding.filters import Filters
from commonplace.engine.model import Origin, When
from commonplace.errors import InvalidInput
from commonplace.storage.fields import FILTERABLE

_ALL = Filters()


class Changes(TypedDict, total=False):
    """The fields of a memory that can be changed, beside its text."""

    kind: str
    title: str
    tags: Sequence[str]
    importance: float
    confidence: float
    credit: float
    state: str
    pinned: bool
    occurred_at: When | None
    ref: str | None
    attrs: Mapping[str, Any] | None
    trust: str
    source: str


class Details(Changes, total=False):
    """The fields of a new memory, beside its text and its origin."""

    id: str | None
    created_at: When | None
    vectors: Sequence[bytes] | None


class Conditions(TypedDict, total=False):
    """The conditions of `Filters`, and the fields that can be filtered by."""

    kinds: Collection[str] | None
    without_kinds: Collection[str]
    tags_any: Collection[str]
    tags_all: Collection[str]
    tags_none: Collection[str]
    states: Collection[str]
    since: When | None
    until: When | None
    created_since: When | None
    created_until: When | None
    importance: float
    credit: float
    pinned: bool | None
    origin: Origin | None
    trust: Collection[str] | None
    speakers: Collection[str] | None
    ids: Collection[str] | None
    fields: Mapping[str, str]
    source: str | None


def by(given: Origin | None, usual: Origin) -> Origin:
    """Return the origin that the call names, or else the usual one."""
    return usual if given is None else checks.origin(given)


def sound_drafts(drafts: Iterable[Draft]) -> list[Draft]:
    """Check the origins and vectors of drafts; the rest is checked with the text."""
    found = list(checks.listed(drafts, "drafts", "drafts"))
    for draft in found:
        if isinstance(draft, Draft):
            if draft.origin is not None:
                checks.origin(draft.origin)
            if draft.vectors is not None:
                checks.vectors(draft.vectors)
    return found


def draft_of(text: str, details: Mapping[str, Any]) -> Draft:
    """Return a checked draft of a text and the fields that a call names."""
    unknown = details.keys() - set(DRAFT_FIELDS)
    if unknown:
        name = sorted(unknown)[0]
        raise InvalidInput(
            f"A memory has no {name}.", hint=f"It has {', '.join(DRAFT_FIELDS)}.", field=name
        )
    return sound_drafts([Draft(text=text, **details)])[0]


def filters_of(filters: Filters | None, conditions: Mapping[str, Any]) -> Filters:
    """Return the filters with the conditions that a call names beside them."""
    if not isinstance(filters, Filters | None):
        raise InvalidInput(
            "filters must be Filters.", hint="Or name them one by one.", field="filters"
        )
    chosen = filters or _ALL
    named = {name: value for name, value in conditions.items() if name in FILTERABLE}
    if named:
        having = {name: value for name, value in named.items() if value is not None}
        others = {name: value for name, value in conditions.items() if name not in named}
        conditions = {**others, "fields": {**chosen.fields, **having}}
    unknown = conditions.keys() - set(Filters.__slots__)
    if unknown:
        name = sorted(unknown)[0]
        raise InvalidInput(
            f"There is no filter {name}.",
            hint=f"There are {', '.join((*Filters.__slots__, *FILTERABLE))}.",
            field=name,
        )
    return replace(chosen, **conditions)
