"""Finding memories and operations by the beginning of their id."""

from __future__ import annotations

import re
from typing import Literal

from commonplace.engine.library import OpenSpace
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.storage import memories

SHORTEST = 4
_SHOWN = 5
_ADVICE = {
    "memory": "Find it with 'commonplace search'.",
    "operation": "'commonplace log' lists the newest ones.",
}
_PREFIX = re.compile(r"[0-9a-f-]{4,36}")


def memory_id(space: OpenSpace, name: str) -> str:
    """Return the id of the memory with an id, a ref or the beginning of an id; in any state."""
    with space.store.read() as connection:
        exact = memories.named(connection, space.name, name.lower(), name)
    return exact or _only(space, "memories", "memory", name)


def operation_id(space: OpenSpace, name: str) -> str:
    """Return the id of the operation with an id or its beginning."""
    return _only(space, "operations", "operation", name)


def _only(space: OpenSpace, table: Literal["memories", "operations"], kind: str, name: str) -> str:
    prefix = name.lower()
    if not _PREFIX.fullmatch(prefix):
        if len(name) < SHORTEST:
            raise InvalidInput(
                f"{name!a} is too short to name a {kind}.",
                hint=f"Give at least {SHORTEST} characters of its id.",
                field="id",
            )
        raise NotFound(f"There is no {kind} {name[:60]!a}.", hint=_ADVICE[kind], field="id")
    with space.store.read() as connection:
        found = memories.ids_beginning(connection, space.name, table, prefix, _SHOWN + 1)
    if not found:
        raise NotFound(f"There is no {kind} {name[:60]!a}.", hint=_ADVICE[kind], field="id")
    if len(found) > 1:
        more = ", …" if len(found) > _SHOWN else ""
        raise Conflict(
            f"{name!a} could be {', '.join(found[:_SHOWN])}{more}.",
            hint="Give more characters.",
            field="id",
        )
    return found[0]
