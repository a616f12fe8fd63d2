"""The operations of the console that manage credentials and the demo space."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

from commonplace.access.caller import NotPermitted
from commonplace.access.credentials import SCOPE_NAMES, Credential, Credentials, Grant
from commonplace.dialects.commonplace.console import sample
from commonplace.dialects.contract import Call, Tool
from commonplace.dialects.rest import Route
from commonplace.dialects.tool_schemas import TEXT, array, input_schema, integer
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.library import Library
from commonplace.engine.model import Origin
from commonplace.errors import Conflict, InvalidInput, NotFound, StorageUnavailable
from commonplace.storage.database import now
from commonplace.storage.fields import STATES

DAY_SECONDS = 86_400.0
DEMO_CLIENT = "commonplace demo"
PURGED_AT_ONCE = 200

log = logging.getLogger(__name__)


def operations(credentials: Credentials, library: Library) -> tuple[Tool, ...]:
    """Return the operations. A caller can list, create and revoke credentials of their own
    space."""
    return (
        *_token_operations(credentials),
        Tool(
            name="console_demo", title="Show sample memories", scope="admin", stepwise=True,
            handler=lambda call: begin_demo(call, credentials, library), input=input_schema(),
            description="Put sample memories into a space of their own, and give a code with"
            " which a browser can sign in there.",
            secret_results=("code",),
        ),
        Tool(
            name="console_demo_end", title="Remove the sample memories", scope="admin",
            handler=lambda call: end_demo(call, credentials, library), input=input_schema(),
            stepwise=True,
            description="Delete the sample memories for good, and sign out of their space.",
            destructive=True,
        ),
    )  # fmt: skip


def _token_operations(credentials: Credentials) -> tuple[Tool, ...]:
    def list_tokens(call: Call) -> dict[str, Any]:
        found = credentials.listing(space=call.caller.space)
        return {"tokens": [_token_as_json(one, call) for one in found if one.sort != "code"]}

    def create_token(call: Call, **rights: Any) -> dict[str, Any]:
        made = credentials.create(new_token_grant(call, **rights))
        return {"token": made.token, "credential": _token_as_json(made.credential, call)}

    def revoke_token(call: Call, *, id: str) -> dict[str, Any]:
        known = {one.id: one for one in credentials.listing(space=call.caller.space)}
        if id not in known:
            raise NotFound("There is no such credential in this space.", field="id")
        return {"token": _token_as_json(credentials.revoke(id), call)}

    return (
        Tool(
            name="console_tokens", title="Credentials", scope="admin", handler=list_tokens,
            description="List the tokens, OAuth grants and sessions of the space.",
            input=input_schema(),
        ),
        Tool(
            name="console_token_create", title="Create a token", scope="admin",
            handler=create_token,
            description="Create a token for the space; it is shown once.", stepwise=True,
            secret_results=("token",),
            input=input_schema(
                name={**TEXT, "default": "", "maxLength": 100},
                scope={"enum": list(SCOPE_NAMES), "default": "full"},
                dialects=array(TEXT, 20, default=[]), days=integer(1, 3_660),
            ),
        ),
        Tool(
            name="console_token_revoke", title="Revoke a credential", scope="admin",
            handler=revoke_token, description="Revoke a token, an OAuth grant or a session.",
            input=input_schema(["id"], id=TEXT), destructive=True, idempotent=True,
        ),
    )  # fmt: skip


ROUTES = (
    Route("GET", "/api/console/tokens", "console_tokens"),
    Route("POST", "/api/console/tokens", "console_token_create", 201),
    Route("DELETE", "/api/console/tokens/{id}", "console_token_revoke"),
    Route("POST", "/api/console/demo", "console_demo", 201),
    Route("DELETE", "/api/console/demo", "console_demo_end"),
)


def new_token_grant(
    call: Call, *, name: str, scope: str, dialects: list[str], days: int | None = None
) -> Grant:
    """Return the grant of a new token; refuse rights that the caller does not have."""
    caller = call.caller
    wanted = frozenset(dialects) or caller.dialects
    if caller.dialects is not None and not (wanted or frozenset()) <= caller.dialects:
        raise NotPermitted(
            "Your own credential is not for all of these contracts.",
            hint="Choose among those that it is for.",
        )
    if not SCOPE_NAMES[scope] <= caller.scopes:
        raise NotPermitted(
            "Your own credential does not have all of these rights.", hint="Choose a lesser scope."
        )
    return Grant(
        user=caller.user, space=caller.space, scopes=SCOPE_NAMES[scope], dialects=wanted,
        name=name, subject=caller.subject, lifetime=None if days is None else days * DAY_SECONDS,
    )  # fmt: skip


def begin_demo(call: Call, credentials: Credentials, library: Library) -> dict[str, Any]:
    """Fill the caller's demo space if it is empty, and return a one-time code to sign in there."""
    caller = call.caller
    if sample.is_demo(caller.space):
        raise Conflict("This space already holds the sample memories.")
    if caller.dialects is not None or caller.subject:
        raise NotPermitted(
            "Your credential is for some contracts only. Use one for all contracts to see the demo."
        )
    memory = Commonplace(library=library, space=demo_space(caller.user))
    memory = memory.at(memory.name, Origin(user=caller.user, client=DEMO_CLIENT))
    found, total = memory.browse(states=STATES, limit=1)
    if found and found[0].origin.client != DEMO_CLIENT:
        raise Conflict(f"The space {memory.name} holds memories that are not samples.")
    if not total:
        sample.store_sample(memory)
    grant = Grant(user=caller.user, space=memory.name, scopes=caller.scopes, name="demo")
    return {"space": memory.name, "code": credentials.create_code(grant)}


def end_demo(call: Call, credentials: Credentials, library: Library) -> dict[str, Any]:
    """Delete the demo space that the caller is in, and end its sessions."""
    if not sample.is_demo(call.caller.space):
        raise InvalidInput("This space has no sample memories.")
    while found := call.memory.browse(states=STATES, limit=PURGED_AT_ONCE)[0]:
        call.memory.purge(*(one.id for one in found))
    space = call.caller.space

    def remove() -> None:
        credentials.revoke_all(space=space)
        try:
            library.remove(space)
        except StorageUnavailable as error:  # another tab or process has the space open
            log.warning("the empty space stays", extra={"space": space, "why": error.message})

    call.afterwards.append(remove)
    return {"space": space}


def demo_space(user: str) -> str:
    """Return the name of a user's demo space."""
    return sample.SPACE_PREFIX + hashlib.sha256(user.encode()).hexdigest()[:12]


def _token_as_json(credential: Credential, call: Call) -> dict[str, Any]:
    ended = credential.expires_at is not None and credential.expires_at <= now()
    state = "revoked" if credential.revoked_at is not None else "expired" if ended else "live"
    return {
        **credential.as_dict(),
        "family": credential.family,
        "state": state,
        "own": credential.id == call.caller.credential,
    }
