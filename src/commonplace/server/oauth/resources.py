"""What a token can be for: one resource for each MCP path and for REST, with its own scopes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from commonplace.dialects.contract import FULL, Scope

OFFLINE = "offline_access"
"""Asked for by clients that want a refresh token; where a contract does not say, all get one."""
DEVICES = "/api/v2"
"""What a device asks for that names no resource: the contract with devices in it names none."""
_BEING = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


@dataclass(frozen=True, slots=True)
class Permission:
    """A scope as it is called outside: what it means to a person, and to the gate."""

    words: str
    scopes: frozenset[Scope]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """What is served at a path."""

    dialect: str
    title: str
    permissions: Mapping[str, Permission]
    of_a_being: bool = False
    """Whether a token is for one Being, named by the path or by the person."""
    below: bool = False
    """Whether every path below it is a part of it."""
    ignored: frozenset[str] = frozenset()
    """Scopes that clients of its contract ask for and that allow nothing here."""
    offline: bool = False
    """Whether a refresh token is given only to who asks for `offline_access`."""

    def refreshes(self, scopes: Collection[str]) -> bool:
        """Whether who was allowed these scopes gets a refresh token."""
        return not self.offline or OFFLINE in scopes


@dataclass(frozen=True, slots=True)
class Audience:
    """A resource that a client asked for: its address, exactly, and what is there."""

    url: str
    path: str
    resource: Resource
    being: str = ""
    """The Being in the path, if there is one."""


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


class Resources:
    """The resources of one server, by address and by path."""

    def __init__(self, issuer: str, table: Mapping[str, Resource]) -> None:
        self._issuer = issuer
        self._fixed = {path: what for path, what in table.items() if "{" not in path}
        self._open = [
            (path.partition("{")[0], what) for path, what in table.items() if path.endswith("}")
        ]
        if len(self._fixed) + len(self._open) != len(table):
            raise ValueError("a resource's path may have one name in braces, at its end")
        if not self._fixed:
            raise ValueError("there must be a resource")

    @property
    def default(self) -> Audience:
        """What is meant where no path is named."""
        path, resource = next(iter(self._fixed.items()))
        return Audience(self._issuer + path, path, resource)

    def at(self, path: str) -> Audience | None:
        """The resource that is served at a path."""
        if path in self._fixed:
            return Audience(self._issuer + path, path, self._fixed[path])
        for prefix, resource in self._open:
            name = path.removeprefix(prefix)
            if path.startswith(prefix) and _BEING.fullmatch(name):
                return Audience(self._issuer + path, path, resource, name)
        for above, resource in self._fixed.items():
            if resource.below and path.startswith(f"{above}/"):
                return Audience(self._issuer + above, above, resource)
        return None

    def of(self, url: str) -> Audience | None:
        """The resource of an address, which must be ours to the letter."""
        if not url.startswith(self._issuer + "/"):
            return None
        audience = self.at(url[len(self._issuer) :])
        return audience if audience is not None and audience.url == url else None

    def addresses(self) -> list[str]:
        """The addresses that can be listed."""
        return [self._issuer + path for path in self._fixed]

    def scopes(self) -> list[str]:
        """Every scope of any resource."""
        every = [*self._fixed.values(), *(what for _, what in self._open)]
        return list(dict.fromkeys(name for what in every for name in what.permissions))


def is_being(name: str) -> bool:
    """Whether a text can be a Being's id."""
    return _BEING.fullmatch(name) is not None
