"""What a client reads first, and how it is led there."""

from __future__ import annotations

import pytest
from mcp.client.auth.utils import (
    build_protected_resource_metadata_discovery_urls,
)
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata

from commonplace.access.oauth import OAuth
from commonplace.access.oauth.resources import Resources
from commonplace.dialects import registry

from .conftest import World

RESOURCES = registry.resources_by_path(registry.load_all().values(), "commonplace")

pytestmark = pytest.mark.anyio
PATHS = [*(path for path in RESOURCES if "{" not in path), "/mcp/aria-1"]


async def test_the_authorization_server_tells_what_it_does(world: World) -> None:
    async with world.client() as client:
        response = await client.get("/.well-known/oauth-authorization-server")
        probed = await client.get("/.well-known/openid-configuration")
    body = response.json()
    assert body == probed.json()
    parsed = OAuthMetadata.model_validate(body)
    assert str(parsed.issuer) == world.issuer
    assert body["code_challenge_methods_supported"] == ["S256"]
    assert body["response_types_supported"] == ["code"]
    assert body["grant_types_supported"] == [
        "authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code",
    ]  # fmt: skip
    assert body["authorization_response_iss_parameter_supported"] is True
    assert body["client_id_metadata_document_supported"] is True
    assert "none" in body["token_endpoint_auth_methods_supported"]
    assert {"read", "write", "being:full", "offline_access"} <= set(body["scopes_supported"])
    for name in ("authorization", "token", "revocation", "registration", "device_authorization"):
        assert body[f"{name}_endpoint"].startswith(world.issuer + "/oauth/")
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", PATHS)
async def test_every_resource_tells_of_itself(world: World, path: str) -> None:
    async with world.client() as client:
        response = await client.get(f"/.well-known/oauth-protected-resource{path}")
    parsed = ProtectedResourceMetadata.model_validate(response.json())
    assert response.json()["resource"] == world.issuer + path
    assert response.json()["authorization_servers"] == [world.issuer]
    assert parsed.scopes_supported
    decides = path in ("/mcp/penfield", "/api/v2")  # whether it is asked for
    assert ("offline_access" in parsed.scopes_supported) is decides


async def test_without_a_path_the_default_resource_is_meant(world: World) -> None:
    async with world.client() as client:
        response = await client.get("/.well-known/oauth-protected-resource")
        assert response.json()["resource"] == f"{world.issuer}/mcp"


@pytest.mark.parametrize("path", ["/", "/x", "/mcp/", "/mcp/a/b", "/mcp/-", "/mcp/a%2fb", "//mcp"])
async def test_what_is_no_resource_has_no_document(world: World, path: str) -> None:
    async with world.client() as client:
        response = await client.get(f"/.well-known/oauth-protected-resource{path}")
        assert response.status_code == (200 if path == "/" else 404)


@pytest.mark.parametrize("path", PATHS)
def test_a_refusal_leads_to_the_resource(world: World, path: str) -> None:
    header = world.oauth.resources.challenge(path)
    url = f"{world.issuer}/.well-known/oauth-protected-resource{path}"
    assert header == f'Bearer resource_metadata="{url}"'
    assert url in build_protected_resource_metadata_discovery_urls(None, world.issuer + path)
    assert world.oauth.resources.resource_url_at(path) == world.issuer + path


def test_what_is_below_the_rest_interface_is_a_part_of_it(world: World) -> None:
    assert world.oauth.resources.resource_url_at("/api/v2/memories/x") == f"{world.issuer}/api/v2"
    assert world.oauth.resources.resource_url_at("/api/v2x") is None
    url = f"{world.issuer}/.well-known/oauth-protected-resource/api/v2"
    assert (
        world.oauth.resources.challenge("/api/v2/memories") == f'Bearer resource_metadata="{url}"'
    )
    assert world.oauth.resources.find_by_url(f"{world.issuer}/api/v2/memories") is None


def test_a_refusal_elsewhere_leads_to_the_default(world: World) -> None:
    url = f"{world.issuer}/.well-known/oauth-protected-resource"
    assert world.oauth.resources.challenge("/health") == f'Bearer resource_metadata="{url}"'
    assert world.oauth.resources.resource_url_at("/health") is None


def test_a_refusal_can_say_why(world: World) -> None:
    header = world.oauth.resources.challenge("/mcp/mama", error='a "b"\r\n\\ü', scope="read write")
    assert header.startswith('Bearer error="a \'b\'?", scope="read write", resource_metadata=')


@pytest.mark.parametrize(
    "issuer",
    [
        "http://memory.example", "https://memory.example/", "https://memory.example/x",
        "https://u@memory.example", "memory.example", "", "https://", "ftp://memory.example",
        "http://localhost.evil.example", "http://127.0.0.1.evil.example:80",
        "https://memory.example?x", "https://memory.example#x",
    ],
)  # fmt: skip
def test_an_issuer_is_an_origin_that_can_be_trusted(world: World, issuer: str) -> None:
    with pytest.raises(ValueError, match="issuer"):
        _server(world, issuer)


@pytest.mark.parametrize(
    "issuer",
    ["https://m.example", "https://m.example:8443", "http://127.0.0.1:1", "http://[::1]:9"],
)
def test_a_good_issuer_is_taken(world: World, issuer: str) -> None:
    assert _server(world, issuer).resources.server_metadata()["issuer"] == issuer


def _server(world: World, issuer: str) -> OAuth:
    return OAuth(
        world.store, world.credentials, world.accounts,
        vault=world.vault, issuer=issuer, resources=RESOURCES,
    )  # fmt: skip


def test_a_server_without_beings_has_another_default() -> None:
    two = [registry.load(name) for name in ("commonplace", "mama")]
    table = registry.resources_by_path(two, "mama")
    assert {path: what.dialect for path, what in table.items()} == {
        "/mcp": "mama",
        "/mcp/mama": "mama",
        "/mcp/commonplace": "commonplace",
    }
    assert Resources("https://m.example", table).default.path == "/mcp"
    assert registry.resources_by_path(registry.load_all().values(), "mama") == RESOURCES


def test_a_table_of_resources_is_checked() -> None:
    with pytest.raises(ValueError, match="resource"):
        Resources("https://m.example", {})
    with pytest.raises(ValueError, match="braces"):
        Resources("https://m.example", {"/a/{x}/b": RESOURCES["/mcp/mama"]})


@pytest.mark.parametrize(
    "path", ["/oauth/token", "/oauth/register", "/oauth/revoke", "/oauth/device_authorization"]
)
async def test_a_get_is_not_allowed_where_something_is_done(world: World, path: str) -> None:
    async with world.client() as client:
        assert (await client.get(path)).status_code == 405
