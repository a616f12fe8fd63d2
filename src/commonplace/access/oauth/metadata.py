"""Metadata documents (RFC 8414, RFC 9728) and the WWW-Authenticate challenge."""

from __future__ import annotations

from typing import Any

from commonplace.access.declarations import OFFLINE
from commonplace.access.oauth.resources import Audience, Resources

DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"
USUAL_GRANT_TYPES = ("authorization_code", "refresh_token")
GRANT_TYPES = (*USUAL_GRANT_TYPES, DEVICE_CODE)
AUTH_METHODS = ("none", "client_secret_post", "client_secret_basic")
PROTECTED_RESOURCE = "/.well-known/oauth-protected-resource"


def authorization_server(issuer: str, resources: Resources) -> dict[str, Any]:
    """The authorization server's metadata."""
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/oauth/authorize",
        "token_endpoint": f"{issuer}/oauth/token",
        "revocation_endpoint": f"{issuer}/oauth/revoke",
        "registration_endpoint": f"{issuer}/oauth/register",
        "device_authorization_endpoint": f"{issuer}/oauth/device_authorization",
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": list(GRANT_TYPES),
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": list(AUTH_METHODS),
        "revocation_endpoint_auth_methods_supported": list(AUTH_METHODS),
        "scopes_supported": [*resources.scopes(), OFFLINE],
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": True,
        "resource_indicators_supported": True,
        "protected_resources": resources.addresses(),
    }


def protected_resource(issuer: str, audience: Audience) -> dict[str, Any]:
    """A resource's metadata: which server gives tokens for it, and with which scopes."""
    return {
        "resource": audience.url,
        "authorization_servers": [issuer],
        # Listed only where it matters: clients request the scopes that are listed.
        "scopes_supported": [
            *audience.resource.permissions,
            *([OFFLINE] if audience.resource.offline else ()),
        ],
        "bearer_methods_supported": ["header"],
        "resource_name": f"Commonplace: {audience.resource.title}",
    }


def challenge(
    issuer: str,
    audience: Audience | None,
    *,
    error: str = "",
    description: str = "",
    scope: str = "",
) -> str:
    """The value of WWW-Authenticate with the URL of the resource's metadata."""
    path = audience.path if audience else ""
    parameters = {
        "error": error,
        "error_description": description,
        "scope": scope,
        "resource_metadata": f"{issuer}{PROTECTED_RESOURCE}{path}",
    }
    given = (f'{name}="{_quoted(value)}"' for name, value in parameters.items() if value)
    return "Bearer " + ", ".join(given)


def _quoted(value: str) -> str:
    plain = value.encode("ascii", "replace").decode().replace("\\", "").replace('"', "'")
    return "".join(character for character in plain if character.isprintable())
