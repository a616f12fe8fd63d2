"""OAuth resources: one for each MCP path and for REST, each with its own scopes.

This module also builds the metadata documents (RFC 8414, RFC 9728) and the WWW-Authenticate
challenge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from commonplace.access.declarations import OFFLINE_ACCESS, Resource

DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
USUAL_GRANT_TYPES = ("authorization_code", "refresh_token")
GRANT_TYPES = (*USUAL_GRANT_TYPES, DEVICE_CODE)
AUTH_METHODS = ("none", "client_secret_post", "client_secret_basic")
PROTECTED_RESOURCE = "/.well-known/oauth-protected-resource"

_SUBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


@dataclass(frozen=True, slots=True)
class Audience:
    """A resource that a client requested, with its exact URL."""

    url: str
    path: str
    resource: Resource
    subject: str = ""
    """The subject in the path, if there is one."""


class Resources:
    """The resources of one server, by URL and by path."""

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
        """The default resource."""
        path, resource = next(iter(self._fixed.items()))
        return Audience(self._issuer + path, path, resource)

    def find_by_path(self, path: str) -> Audience | None:
        """Return the resource of a path."""
        if path in self._fixed:
            return Audience(self._issuer + path, path, self._fixed[path])
        for prefix, resource in self._open:
            name = path.removeprefix(prefix)
            if path.startswith(prefix) and _SUBJECT.fullmatch(name):
                return Audience(self._issuer + path, path, resource, name)
        for above, resource in self._fixed.items():
            if resource.includes_below and path.startswith(f"{above}/"):
                return Audience(self._issuer + above, above, resource)
        return None

    @property
    def default_for_devices(self) -> Audience:
        """The default resource for devices."""
        found = (path for path, what in self._fixed.items() if what.devices)
        path = next(found, self.default.path)
        return Audience(self._issuer + path, path, self._fixed[path])

    def find_by_url(self, url: str) -> Audience | None:
        """Return the resource with exactly this URL."""
        if not url.startswith(self._issuer + "/"):
            return None
        audience = self.find_by_path(url[len(self._issuer) :])
        return audience if audience is not None and audience.url == url else None

    def server_metadata(self) -> dict[str, Any]:
        """Return the document at /.well-known/oauth-authorization-server."""
        every = [*self._fixed.values(), *(what for _, what in self._open)]
        scopes = dict.fromkeys(name for what in every for name in what.permissions)
        return {
            "issuer": self._issuer,
            "authorization_endpoint": f"{self._issuer}/oauth/authorize",
            "token_endpoint": f"{self._issuer}/oauth/token",
            "revocation_endpoint": f"{self._issuer}/oauth/revoke",
            "registration_endpoint": f"{self._issuer}/oauth/register",
            "device_authorization_endpoint": f"{self._issuer}/oauth/device_authorization",
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": list(GRANT_TYPES),
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": list(AUTH_METHODS),
            "revocation_endpoint_auth_methods_supported": list(AUTH_METHODS),
            "scopes_supported": [*scopes, OFFLINE_ACCESS],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": True,
            "resource_indicators_supported": True,
            "protected_resources": [self._issuer + path for path in self._fixed],
        }

    def resource_metadata(self, path: str) -> dict[str, Any] | None:
        """Return the metadata of the resource at a path, or of the default one for an empty
        path."""
        audience = self.find_by_path(path) if path else self.default
        if audience is None:
            return None
        # List `offline_access` only if it is required: clients request all listed scopes.
        offline = [OFFLINE_ACCESS] if audience.resource.needs_offline_access else []
        return {
            "resource": audience.url,
            "authorization_servers": [self._issuer],
            "scopes_supported": [*audience.resource.permissions, *offline],
            "bearer_methods_supported": ["header"],
            "resource_name": f"Commonplace: {audience.resource.title}",
        }

    def challenge(self, path: str, *, error: str = "", scope: str = "") -> str:
        """Return the value of WWW-Authenticate for a request to a path."""
        audience = self.find_by_path(path.rstrip("/"))
        known = audience.path if audience else ""
        parameters = {
            "error": error,
            "scope": scope,
            "resource_metadata": f"{self._issuer}{PROTECTED_RESOURCE}{known}",
        }
        given = (f'{name}="{_quoted(value)}"' for name, value in parameters.items() if value)
        return "Bearer " + ", ".join(given)

    def insufficient_scope_challenge(self, path: str, needed: Set[str], held: Set[str]) -> str:
        """Return the value of WWW-Authenticate for a caller who lacks a scope.

        It lists the caller's current scopes too, since clients request exactly the listed scopes.
        """
        audience = self.find_by_path(path.rstrip("/"))
        permissions = audience.resource.permissions if audience else {}
        names = [
            name
            for name, what in permissions.items()
            if what.scopes & needed or what.scopes <= held
        ]
        scope = " ".join(names or sorted(needed | held))
        return self.challenge(path, error="insufficient_scope", scope=scope)

    def resource_url_at(self, path: str) -> str | None:
        """Return the resource URL that a token must have to be accepted at a path."""
        audience = self.find_by_path(path.rstrip("/"))
        return None if audience is None else audience.url


def _quoted(value: str) -> str:
    plain = value.encode("ascii", "replace").decode().replace("\\", "").replace('"', "'")
    return "".join(character for character in plain if character.isprintable())


def is_valid_subject(name: str) -> bool:
    """Return whether a text is a valid subject id."""
    return _SUBJECT.fullmatch(name) is not None
