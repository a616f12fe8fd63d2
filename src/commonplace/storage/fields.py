"""The fields of a memory, each declared once.

`MemoryFields` defines the table `memories`, the `Draft` that is stored, the `Memory` that is read,
export and import, filters and the command line. Each dialect decides which fields it shows. A new
field is a line at the end of `MemoryFields` with `added=True`, and a migration step that adds its
column with the same default. Its name and type also belong in `Changes` of
`engine/content/memories.py`, and in `Conditions` of `engine/finding/filters.py` if it can be
filtered by. Type checkers read these two classes, and a test compares them.
"""

# ruff: noqa: RUF009  (`_field` is `dataclasses.field`)
from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from commonplace.storage.tables import Origin

Type = Literal[
    "identity",
    "kind",
    "text",
    "address",
    "tags",
    "share",
    "choice",
    "flag",
    "time",
    "attrs",
    "origin",
    "count",
    "content",
    "centroid",
]
STATES = ("active", "dying", "archived", "superseded", "dead")
TRUSTS = ("stated", "inferred", "external")


@dataclass(frozen=True, slots=True)
class Field:
    """The declaration of a field, apart from its name, Python type and default."""

    type: Type
    chars: int = 0
    """The maximum length of a string."""
    empty: bool = False
    """Whether a string may be empty."""
    optional: bool = False
    """Whether the value may be None."""
    choices: tuple[str, ...] = ()
    changeable: bool = True
    """Whether a revision may change the field."""
    added: bool = False
    """Whether a later migration added the column."""
    filterable: bool = False
    """Whether a search can filter by the field."""
    option: str = ""
    """The option on the command line."""
    metavar: str = ""
    help: str = ""


def _field(type: Type, default: Any = None, **known: Any) -> Any:
    return dataclasses.field(default=default, metadata={"field": Field(type, **known)})


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFields:
    """The fields of a memory, in the order of the table's columns."""

    id: str | None = _field("identity", changeable=False)
    kind: str = _field(
        "kind", "note", option="--kind", metavar="KIND", help="note, decision, preference, …"
    )
    title: str = _field(
        "text", "", chars=1_000, empty=True, option="--title", metavar="TEXT", help="A short name."
    )
    text: str = _field("text", chars=1_000_000)
    tags: Sequence[str] = _field("tags", ())
    importance: float = _field(
        "share", 0.5, option="--importance", metavar="0..1", help="How much it matters."
    )
    confidence: float = _field("share", 1.0)
    credit: float = _field("share", 0.5)
    state: str = _field("choice", "active", choices=STATES)
    pinned: bool = _field(
        "flag",
        False,
        option="--pinned/--unpinned",
        help="Pin it: agents get pinned memories at the start.",
    )
    occurred_at: datetime | str | None = _field(
        "time", optional=True, option="--at", metavar="WHEN", help="When it happened."
    )
    created_at: datetime | str | None = _field("time", changeable=False)
    updated_at: datetime | str | None = _field("time", changeable=False)
    ref: str | None = _field(
        "text", chars=500, optional=True, option="--ref", metavar="REF",
        help="An id of yours, unique in the space.",
    )  # fmt: skip
    attrs: Mapping[str, Any] | None = _field("attrs")
    origin: Origin | None = _field("origin", changeable=False)
    trust: str = _field(
        "choice", "stated", choices=TRUSTS, option="--trust", metavar="stated|inferred|external",
        help="Who says it: the user, the agent, or an outside source.",
    )  # fmt: skip
    source: str = _field(
        "address", "", chars=2_000, added=True, filterable=True, option="--source",
        metavar="ADDRESS", help="Where it came from: a URL, a file path, a commit.",
    )  # fmt: skip


FIELDS: Mapping[str, Field] = {
    each.name: each.metadata["field"] for each in dataclasses.fields(MemoryFields)
}
DEFAULTS: Mapping[str, Any] = {each.name: each.default for each in dataclasses.fields(MemoryFields)}
FILTERABLE: tuple[str, ...] = tuple(name for name, field in FIELDS.items() if field.filterable)
