"""docs/oauth.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from commonplace.access.browser import CSRF_FIELD, CSRF_HEADER, SESSION_SECONDS, BrowserSessions
from commonplace.access.browser import routes as browser_routes
from commonplace.access.credentials import REPEAT_SECONDS
from commonplace.access.declarations import Resource
from commonplace.access.oauth import clients as clients_module
from commonplace.access.oauth import routes
from commonplace.access.oauth.devices import (
    DEVICE_SECONDS,
    MOST_PENDING,
    POLL_SECONDS,
    SLOW_DOWN_SECONDS,
)
from commonplace.access.oauth.endpoints import client_address
from commonplace.access.oauth.families import CODE_SECONDS, REFRESH_SECONDS
from commonplace.access.oauth.forms import MOST_BYTES
from commonplace.access.oauth.logins import LOGIN_SECONDS, Lockout
from commonplace.access.signed import Tokens
from commonplace.dialects import registry

from .conftest import World

RESOURCES = registry.resources_by_path(map(registry.load, registry.built_in_names()), "commonplace")

TEXT = (Path(__file__).parents[3] / "docs" / "oauth.md").read_text(encoding="utf-8")


def test_every_route_is_told_of(world: World) -> None:
    for route in routes(world.oauth):
        assert f"`{route.path.partition('/{')[0]}`" in TEXT, route.path


def test_the_routes_of_browser_sessions_are_told_of(world: World) -> None:
    tokens = Tokens(world.store, world.vault, registry.token_formats(), environ={})
    sessions = BrowserSessions(tokens, world.issuer)
    for route in browser_routes(world.oauth, sessions, client_address):
        assert f"`{route.path}`" in TEXT, route.path
    assert f"lasts {SESSION_SECONDS // 3600} hours" in " ".join(TEXT.split())
    assert CSRF_HEADER in TEXT.lower() and f"`{CSRF_FIELD}`" in TEXT


def test_every_resource_is_told_of_with_its_scopes() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith(("| `/mcp", "| `/api"))]
    told: dict[str, tuple[str, list[str]]] = {}
    for row in rows:
        paths, dialect, scopes = (re.findall(r"`([^`]+)`", cell) for cell in row.split("|")[1:4])
        for path in paths:
            told[path] = (dialect[0], scopes)
    assert told == {
        path: (resource.dialect, list(resource.permissions)) for path, resource in RESOURCES.items()
    }


def test_the_figures_are_those_of_the_code() -> None:
    free = dict(Lockout.FREE_ATTEMPTS)
    for text in (
        f"lives for {CODE_SECONDS} seconds",
        f"For {REPEAT_SECONDS} seconds the\n  same client",
        f"Access tokens {Resource().access_seconds // 3600} hour",
        f"`/api/v2` {RESOURCES['/api/v2'].access_seconds // 3600} hours",
        f"refresh tokens {REFRESH_SECONDS // 86_400} days",
        f"the login on the pages {LOGIN_SECONDS // 60} minutes",
        f"| {MOST_BYTES // 1024} KiB",
        f"| {clients_module.MOST_CLIENTS}, 20 an hour",
        f"after {clients_module.IDLE_SECONDS // 86_400} days",
        f"every {POLL_SECONDS}\nseconds",
        f"then {SLOW_DOWN_SECONDS} seconds more",
        f"(after {DEVICE_SECONDS // 60} minutes)",
        f"| {MOST_PENDING}, 20 an hour",
        f"{free['both']} for a name from one address, {free['address']} from one address, "
        f"{free['account']} for a name",
    ):
        assert text in TEXT, text
