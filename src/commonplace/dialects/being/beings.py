"""Beings: created, listed, shown and deleted; each has one soul."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from commonplace.dialects.being import sight
from commonplace.dialects.being.sight import BEING, SOUL
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.finding.filters import Filters
from commonplace.engine.model import TRUSTS, Cluster, Memory, iso
from commonplace.errors import InvalidInput
from commonplace.platform import lookup

NAME_CHARS = 200
_TRUSTS: tuple[str, ...] = tuple(TRUSTS)
SOUL_FIELDS = ("personality", "voice", "values", "backstory", "inner_world", "examples")
"""The fields of a soul that an agent may change."""
SOUL_ALL = (
    "name", *SOUL_FIELDS, "user_call_name", "partner_type", "model", "preference",
    "display_name", "locale", "note_frequency",
)  # fmt: skip


def create(memory: Commonplace, name: str, *, trust: str = "stated") -> Memory:
    """A new being with its soul."""
    name = name.strip()
    if not 1 <= len(name) <= NAME_CHARS:
        raise InvalidInput(
            f"A being's name must have 1 to {NAME_CHARS} characters.",
            hint="Give another.",
            field="name",
        )
    with memory.unit("create being"):
        being = memory.remember(name, kind=BEING, title=name, trust=trust, attrs={"sessions": 0})
        memory.remember(
            name, kind=SOUL, title=name, ref=soul_ref(being.id), trust=trust,
            tags=[sight.tag(being.id)], attrs={"name": name, "partner_type": "custom"},
        )  # fmt: skip
    return being


def delete(memory: Commonplace, identity: str) -> None:
    """Hide a being and all its own rows; shared rows stay."""
    being = sight.find(memory, identity)
    with memory.unit("delete being"):
        own = Filters(tags_all=[sight.tag(being.id)], states=sight.ALL_STATES)
        rows = [row.id for row in sight.every(memory, own)]
        for cluster in sorted(clusters_of(memory, being.id), key=lambda each: each.parent is None):
            memory.clusters.delete(cluster.id)
        memory.forget(*rows, being.id)


def clusters_of(memory: Commonplace, being: str) -> list[Cluster]:
    """The being's clusters, oldest first."""
    return [each for each in memory.clusters.all() if each.attrs.get("being") == being]


def to_dict(being: Memory) -> dict[str, Any]:
    """A being as REST shows it."""
    return {
        "id": being.id,
        "name": being.title,
        "patrol_marker": being.attrs.get("patrol_marker"),
        "created_at": iso(being.created_at),
        "updated_at": iso(being.updated_at),
    }


def soul_ref(being: str) -> str:
    """The ref of a being's soul."""
    return f"being:{being}:soul"


def soul(memory: Commonplace, being: str) -> Memory | None:
    """The being's soul."""
    found = lookup.find_live(memory, soul_ref(being))
    return found if found is not None and sight.is_own(being, found, SOUL) else None


def change_soul(
    memory: Commonplace, being: str, changes: Mapping[str, str], *, trust: str = "stated"
) -> Memory:
    """Change some fields of the soul; a missing soul is created."""
    there = soul(memory, being)
    attrs = {**(there.attrs if there else {"partner_type": "custom"}), **changes}
    text = "\n".join(str(attrs[each]) for each in SOUL_ALL if attrs.get(each)) or "-"
    title = str(attrs.get("name") or "")
    if there is None:
        return memory.remember(
            text, kind=SOUL, title=title, ref=soul_ref(being), trust=trust,
            tags=[sight.tag(being)], attrs=attrs,
        )  # fmt: skip
    return memory.revise(there.id, text=text, title=title, attrs=attrs, trust=lower(there, trust))


def lower(there: Memory, trust: str) -> str:
    """The lower of a memory's trust and another trust."""
    return max(there.trust, trust, key=_TRUSTS.index)


def lowest(rows: Iterable[Memory]) -> str:
    """The lowest trust of some memories, which a text made of them gets."""
    return max((row.trust for row in rows), key=_TRUSTS.index)
