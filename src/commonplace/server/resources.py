"""The OAuth resources of the served dialects: their paths and the permissions of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from commonplace.access.caller import FULL
from commonplace.access.oauth.resources import Permission, Resource

READ = Permission("Search and read everything in the space", frozenset({"read"}))
WRITE = Permission("Store new memories, and change those that are there", frozenset({"write"}))
DELETE = Permission("Delete memories", frozenset({"delete"}))
REST_WRITE = Permission(
    "Store new memories, and change or delete those that are there", frozenset({"write"})
)
BEING_FULL = Permission(
    "Act as this being: read its memory and your shared knowledge, store, change and delete", FULL
)

_MEMORY = {"read": READ, "write": WRITE, "delete": DELETE}
_AGENTS = {
    **_MEMORY,
    "admin": Permission("Manage agents, workflows and settings", frozenset({"admin"})),
}
_PENFIELD_IGNORES = frozenset({"openid", "profile"})
_BEINGS = Resource(
    dialect="being", title="Being", permissions={"being:full": BEING_FULL}, of_a_being=True
)

RESOURCES: Mapping[str, Resource] = {
    "/mcp": _BEINGS,
    "/mcp/v1": Resource(dialect="orchestrator", title="Orchestrator", permissions=_AGENTS),
    "/mcp/clawbrain": Resource(dialect="clawbrain", title="ClawBrain", permissions=_MEMORY),
    "/mcp/mama": Resource(dialect="mama", title="MAMA", permissions=_MEMORY),
    "/mcp/penfield": Resource(
        dialect="penfield",
        title="Penfield",
        permissions={"read": READ, "write": WRITE},
        ignored=_PENFIELD_IGNORES,
        offline=True,
    ),
    "/mcp/commonplace": Resource(dialect="commonplace", title="Commonplace", permissions=_MEMORY),
    "/api/v2": Resource(
        dialect="penfield",
        title="Penfield's REST interface",
        permissions={"read": READ, "write": REST_WRITE},
        below=True,
        ignored=_PENFIELD_IGNORES,
        offline=True,
    ),
    "/mcp/{being_id}": _BEINGS,
}
"""Every path that a token can be for. A name in braces stands for a Being's id."""


def resources_of(dialects: Collection[str], default: str) -> dict[str, Resource]:
    """The resources of a server that speaks these dialects, one of them where none is named."""
    served = {path: what for path, what in RESOURCES.items() if what.dialect in dialects}
    if "/mcp" not in served:
        usual = next(what for what in served.values() if what.dialect == default)
        served = {"/mcp": usual, **served}
    return served
