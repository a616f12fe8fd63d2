"""Record which imported lines were purged, so that they are not imported again.

An event stores salted hashes of the lines' refs, never their texts.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator
from typing import Any

from commonplace.engine.content.events import append_checked
from commonplace.engine.library import OpenSpace
from commonplace.storage import events
from commonplace.storage.ports import Rows
from commonplace.storage.writing import Unit

KIND = "purged"
TOOLS = ("import", "capture", "guard")
"""Tools, as named in the origin of a memory, that may read the same line again."""


def record_purged(unit: Unit, refs: Collection[str]) -> None:
    """Record the refs of lines that are purged."""
    if not refs:
        return
    known = next(_recorded_hashes(unit.connection, unit.space), None)
    salt = os.urandom(16).hex() if known is None else str(known["salt"])
    payload = {"salt": salt, "refs": sorted(_hash(salt, ref) for ref in refs)}
    append_checked(unit, KIND, "", json.dumps(payload, separators=(",", ":")))


def purged_among(space: OpenSpace, refs: Collection[str]) -> set[str]:
    """Return the refs among these that were purged."""
    found: set[str] = set()
    with space.store.read() as connection:
        for known in _recorded_hashes(connection, space.name):
            hashes = set(known["refs"])
            found |= {ref for ref in refs if _hash(known["salt"], ref) in hashes}
    return found


def _recorded_hashes(rows: Rows, space: str) -> Iterator[dict[str, Any]]:
    for row in events.find(rows, space, events.EventConditions(kind=KIND)):
        value = json.loads(row.payload or "{}")
        if isinstance(value.get("salt"), str) and isinstance(value.get("refs"), list):
            yield value


def _hash(salt: str, ref: str) -> str:
    return hashlib.sha256(f"{salt}{ref}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
