"""Create, list, read and delete beings; each being has one soul, its persona."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from commonplace.dialects.being import sight
from commonplace.dialects.being.sight import BEING, SOUL
from commonplace.engine import checks
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.finding.filters import Filters
from commonplace.engine.model import TRUSTS, Cluster, Memory, iso
from commonplace.errors import InvalidInput
from commonplace.platform import lookup

NAME_CHARS = 200
UNNAMED = "-"
"""The stored name of a cluster whose nodes share no theme; their main action is shown instead."""
_TRUSTS: tuple[str, ...] = tuple(TRUSTS)
SOUL_FIELDS = ("personality", "voice", "values", "backstory", "inner_world", "examples")
"""The fields of a soul that an agent may change."""
ALL_SOUL_FIELDS = (
    "name", *SOUL_FIELDS, "user_call_name", "partner_type", "model", "preference",
    "display_name", "locale", "note_frequency",
)  # fmt: skip


def create(memory: Commonplace, name: str, *, trust: str = "stated") -> Memory:
    """Create a being with its soul."""
    name = name.strip()
    if not 1 <= len(name) <= NAME_CHARS:
        raise InvalidInput(
            f"A being's name must have 1 to {NAME_CHARS} characters.",
            hint="Give another name.",
            field="name",
        )
    with memory.unit("create being"):
        being = memory.remember(name, kind=BEING, title=name, trust=trust, attrs={"sessions": 0})
        memory.remember(
            name, kind=SOUL, title=name, ref=soul_ref(being.id), trust=trust,
            tags=[sight.being_tag(being.id)], attrs={"name": name, "partner_type": "custom"},
        )  # fmt: skip
    return being


def delete(memory: Commonplace, identity: str) -> None:
    """Archive a being and all its own rows; rows that beings share stay live."""
    being = sight.get_being(memory, identity)
    with memory.unit("delete being"):
        own = Filters(tags_all=[sight.being_tag(being.id)], states=sight.ALL_STATES)
        rows = [row.id for row in sight.readable_rows(memory, own)]
        for cluster in sorted(clusters_of(memory, being.id), key=lambda each: each.parent is None):
            memory.clusters.delete(cluster.id)
        memory.forget(*rows, being.id)


def clusters_of(memory: Commonplace, being: str) -> list[Cluster]:
    """Return the being's clusters, oldest first."""
    return [each for each in memory.clusters.all() if each.attrs.get("being") == being]


def to_dict(being: Memory) -> dict[str, Any]:
    """Return the REST representation of a being."""
    return {
        "id": being.id,
        "name": being.title,
        "patrol_marker": being.attrs.get("patrol_marker"),
        "created_at": iso(being.created_at),
        "updated_at": iso(being.updated_at),
    }


def soul_ref(being: str) -> str:
    """Return the ref of the row that holds a being's soul."""
    return f"being:{being}:soul"


def soul(memory: Commonplace, being: str) -> Memory | None:
    """Return the being's soul."""
    found = lookup.find_live_memory(memory, soul_ref(being))
    return found if found is not None and sight.is_own(being, found, SOUL) else None


def change_soul(
    memory: Commonplace, being: str, changes: Mapping[str, str], *, trust: str = "stated"
) -> Memory:
    """Change some fields of the soul; create the soul if it is missing or was forgotten."""
    for name, value in changes.items():
        checks.optional_text(value, name, max_chars=checks.TEXT_CHARS)
    existing = lookup.find_memory(memory, soul_ref(being))
    live = soul(memory, being)
    attrs = {**(live.attrs if live else {"partner_type": "custom"}), **changes}
    text = "\n".join(str(attrs[each]) for each in ALL_SOUL_FIELDS if attrs.get(each)) or "-"
    title = str(attrs.get("name") or "")
    if existing is None:
        return memory.remember(
            text, kind=SOUL, title=title, ref=soul_ref(being), trust=trust,
            tags=[sight.being_tag(being)], attrs=attrs,
        )  # fmt: skip
    return memory.revise(
        existing.id, text=text, title=title, attrs=attrs, state="active",
        trust=lower_trust(existing, trust),
    )  # fmt: skip


def lower_trust(memory: Memory, trust: str) -> str:
    """Return the lower of two trust levels: the memory's and the given one."""
    return max(memory.trust, trust, key=_TRUSTS.index)


def lowest_trust(rows: Iterable[Memory]) -> str:
    """Return the lowest trust of some memories; a text derived from them gets this trust."""
    return max((row.trust for row in rows), key=_TRUSTS.index)
