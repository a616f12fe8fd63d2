"""What callers of the library pass, as the engine takes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from commonplace.engine import checks
from commonplace.engine.filters import Filters
from commonplace.engine.memories import DRAFT_FIELDS, Draft
from commonplace.engine.model import Origin
from commonplace.errors import InvalidInput
from commonplace.storage.fields import FILTERABLE

_ALL = Filters()


def by(given: Origin | None, usual: Origin) -> Origin:
    """Who does it: whom the call names, or who usually does."""
    return usual if given is None else checks.origin(given)


def sound_drafts(drafts: Iterable[Draft]) -> list[Draft]:
    """Drafts whose origin and vectors are what they must be; the rest is checked with the text."""
    found = list(checks.listed(drafts, "drafts", "drafts"))
    for draft in found:
        if isinstance(draft, Draft):
            if draft.origin is not None:
                checks.origin(draft.origin)
            if draft.vectors is not None:
                checks.vectors(draft.vectors)
    return found


def draft_of(**details: Any) -> Draft:
    """A draft of named details."""
    unknown = details.keys() - set(DRAFT_FIELDS)
    if unknown:
        name = sorted(unknown)[0]
        raise InvalidInput(
            f"A memory has no {name}.", hint=f"It has {', '.join(DRAFT_FIELDS)}.", field=name
        )
    return Draft(**details)


def filters_of(filters: Filters | None, conditions: Mapping[str, Any]) -> Filters:
    """The filters with the conditions that a call names beside them."""
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


def moment_of(value: datetime | str) -> int:
    """The moment as of which something is asked."""
    at = checks.when(value, "as_of")
    assert at is not None
    return at


def moment_or_none(value: datetime | str | None) -> int | None:
    """As moment_of; None for the present."""
    return None if value is None else moment_of(value)
