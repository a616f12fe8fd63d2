"""What a token can be for: one resource for each MCP path and for REST, with its own scopes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from commonplace.access.declarations import Resource

_SUBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


@dataclass(frozen=True, slots=True)
class Audience:
    """A resource that a client asked for, with its exact URL."""

    url: str
    path: str
    resource: Resource
    subject: str = ""
    """The subject that the path names, if it names one."""


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
        """The resource that is used when no path is named."""
        path, resource = next(iter(self._fixed.items()))
        return Audience(self._issuer + path, path, resource)

    def at(self, path: str) -> Audience | None:
        """The resource that is served at a path."""
        if path in self._fixed:
            return Audience(self._issuer + path, path, self._fixed[path])
        for prefix, resource in self._open:
            name = path.removeprefix(prefix)
            if path.startswith(prefix) and _SUBJECT.fullmatch(name):
                return Audience(self._issuer + path, path, resource, name)
        for above, resource in self._fixed.items():
            if resource.below and path.startswith(f"{above}/"):
                return Audience(self._issuer + above, above, resource)
        return None

    @property
    def for_devices(self) -> Audience:
        """What is meant by a device that names no resource."""
        found = (path for path, what in self._fixed.items() if what.devices)
        path = next(found, self.default.path)
        return Audience(self._issuer + path, path, self._fixed[path])

    def of(self, url: str) -> Audience | None:
        """The resource of exactly this URL."""
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


def is_subject(name: str) -> bool:
    """Whether a text can be the id of a subject."""
    return _SUBJECT.fullmatch(name) is not None
