"""Credentials in the console: what may come in, when it was last used, and revoking it."""

from __future__ import annotations

from typing import Any

from commonplace.access.credentials import Credential, Credentials
from commonplace.dialects.contract import Call, Tool
from commonplace.dialects.rest import Route
from commonplace.dialects.tool_schemas import TEXT, takes
from commonplace.errors import NotFound
from commonplace.storage.database import now


def operations(credentials: Credentials) -> tuple[Tool, ...]:
    """The operations; a caller sees and ends credentials of the own space alone."""

    def listed(call: Call) -> dict[str, Any]:
        found = credentials.listing(space=call.caller.space)
        return {"tokens": [_shown(one, call) for one in found]}

    def revoked(call: Call, *, id: str) -> dict[str, Any]:
        known = {one.id: one for one in credentials.listing(space=call.caller.space)}
        if id not in known:
            raise NotFound("There is no such credential in this space.", field="id")
        return {"token": _shown(credentials.revoke(id), call)}

    return (
        Tool(
            name="console_tokens", title="Credentials", scope="admin", handler=listed,
            description="List the tokens, OAuth grants and sessions of the space.", input=takes(),
        ),
        Tool(
            name="console_token_revoke", title="Revoke a credential", scope="admin",
            handler=revoked, description="Revoke a token, an OAuth grant or a session.",
            input=takes(["id"], id=TEXT), destructive=True, idempotent=True,
        ),
    )  # fmt: skip


ROUTES = (
    Route("GET", "/api/console/tokens", "console_tokens"),
    Route("DELETE", "/api/console/tokens/{id}", "console_token_revoke"),
)


def _shown(credential: Credential, call: Call) -> dict[str, Any]:
    ended = credential.expires_at is not None and credential.expires_at <= now()
    state = "revoked" if credential.revoked_at is not None else "expired" if ended else "live"
    return {
        **credential.as_dict(),
        "state": state,
        "own": credential.id == call.caller.credential,
    }
