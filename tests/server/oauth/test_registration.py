"""Registering clients: what is taken, how many, and for how long."""

from __future__ import annotations

import asyncio
import json
import resource
from typing import Any

import pytest
import time_machine
from starlette.types import Message

from commonplace.access.oauth import MacRows
from commonplace.access.oauth.clients import Clients, parse_registration
from commonplace.access.oauth.errors import OAuthError
from commonplace.access.rates import network_of
from commonplace.storage.oauth import count_clients

from .conftest import CALLBACK, World
from .test_broken_requests import assert_refused

pytestmark = pytest.mark.anyio
GOOD: dict[str, Any] = {"client_name": "Test", "redirect_uris": [CALLBACK]}

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no redirects": ({"redirect_uris": None}, "invalid_redirect_uri"),
    "an empty list": ({"redirect_uris": []}, "invalid_redirect_uri"),
    "a text": ({"redirect_uris": CALLBACK}, "invalid_redirect_uri"),
    "numbers": ({"redirect_uris": [1]}, "invalid_redirect_uri"),
    "too many": ({"redirect_uris": [CALLBACK + str(n) for n in range(11)]}, "invalid_redirect_uri"),
    "one bad one": ({"redirect_uris": [CALLBACK, "http://x.example/"]}, "invalid_redirect_uri"),
    "another method": (
        {"token_endpoint_auth_method": "private_key_jwt"},
        "invalid_client_metadata",
    ),
    "a method that is none": ({"token_endpoint_auth_method": 1}, "invalid_client_metadata"),
    "another grant": ({"grant_types": ["client_credentials"]}, "invalid_client_metadata"),
    "no grant": ({"grant_types": []}, "invalid_client_metadata"),
    "another response": ({"response_types": ["token"]}, "invalid_client_metadata"),
    "a name that is none": ({"client_name": 5}, "invalid_client_metadata"),
}


def count(world: World) -> int:
    """How many clients are registered."""
    with world.store.read() as rows:
        return count_clients(rows)


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_registration_is_refused(world: World, name: str) -> None:
    changes, error = BAD[name]
    body = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    async with world.client() as client:
        assert_refused(await client.post("/oauth/register", json=body), 400, error)
    assert count(world) == 0


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'"x"', 400),
        (b"\xff", 400),
        (b'{"redirect_uris":[],"redirect_uris":[]}', 400),
        (b"[" * 10_000, 400),
        (b'{"x":"' + b"y" * 17_000 + b'"}', 413),
    ],
)
async def test_a_body_that_is_no_small_object_is_refused(
    world: World, content: bytes, status: int
) -> None:
    async with world.client() as client:
        headers = {"content-type": "application/json"}
        response = await client.post("/oauth/register", content=content, headers=headers)
        assert_refused(response, status, "invalid_request")
        form = await client.post("/oauth/register", data={"redirect_uris": CALLBACK})
        assert_refused(form, 400, "invalid_request")


async def test_a_registration_is_answered_as_the_rfc_says(world: World) -> None:
    async with world.client() as client:
        response = await client.post(
            "/oauth/register",
            json={
                **GOOD,
                "client_uri": "https://client.example",
                "logo_uri": "https://client.example/logo.png",
                "scope": "read",
                "application_type": "web",
                "grant_types": ["authorization_code", "refresh_token", "implicit"],
            },
        )
    assert response.status_code == 201
    assert response.headers["cache-control"] == "no-store"
    body = response.json()
    assert body.pop("client_id").startswith("cid_")
    assert body.pop("client_id_issued_at") > 0
    assert body == {
        "client_name": "Test",
        "redirect_uris": [CALLBACK],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }


async def test_one_address_registers_only_so_many(world: World) -> None:
    async with world.client() as client:
        answers = [await client.post("/oauth/register", json=GOOD) for _ in range(30)]
    statuses = [answer.status_code for answer in answers]
    assert statuses == [201] * 20 + [429] * 10
    assert answers[-1].json()["error"] == "temporarily_unavailable"
    assert int(answers[-1].headers["retry-after"]) > 0
    async with world.client("198.51.100.8") as client:
        assert (await client.post("/oauth/register", json=GOOD)).status_code == 201


def test_an_ipv6_host_is_one_sender_whatever_address_it_takes() -> None:
    assert network_of("2001:db8:1:2::1") == network_of("2001:db8:1:2:ffff::9")
    assert network_of("2001:db8:1:2::1") != network_of("2001:db8:1:3::1")
    assert network_of("::ffff:198.51.100.7") == network_of("198.51.100.7")
    assert network_of("testclient") == "testclient"


async def test_ten_thousand_registrations_from_everywhere_do_not_fill_the_store(
    world: World,
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    addresses = (f"10.0.{number >> 8}.{number & 255}" for number in range(10_000))
    statuses = [await register_from(world, address) for address in addresses]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert set(statuses) == {201, 429}
    assert count(world) == statuses.count(201) <= 210
    assert grown < 20 * 1024


async def register_from(world: World, address: str) -> int:
    """The status of a registration; without a client of its own, which would cost more."""
    statuses: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": json.dumps(GOOD).encode()}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope: dict[str, Any] = {
        "type": "http", "method": "POST", "path": "/oauth/register", "query_string": b"",
        "headers": [(b"content-type", b"application/json")], "client": (address, 1),
    }  # fmt: skip
    await world.app(scope, receive, send)
    return statuses[0]


async def test_however_fast_they_come_there_are_never_more_than_the_cap(world: World) -> None:
    clients = Clients(world.store, MacRows(world.vault), most=50)
    described = parse_registration(GOOD)

    def register() -> bool:
        try:
            clients.register(described)
        except OAuthError as error:
            assert (error.error, error.status) == ("temporarily_unavailable", 503)
            return False
        return True

    outcomes = await asyncio.gather(*(asyncio.to_thread(register) for _ in range(500)))
    assert outcomes.count(True) == 50
    assert count(world) == 50


async def test_registrations_that_nobody_allowed_are_forgotten(world: World) -> None:
    clients = Clients(world.store, MacRows(world.vault), most=5)
    described = parse_registration(GOOD)
    with time_machine.travel("2027-01-01T00:00:00Z", tick=False) as clock:
        used = clients.register(described).client
        with world.store.maintain() as connection:
            clients.record_use(connection, used.id)
        unused = [clients.register(described).client for _ in range(4)]
        with pytest.raises(OAuthError):
            clients.register(described)
        clock.shift(601)  # there is no room: those that are ten minutes old make some
        assert clients.register(described)
        assert [clients.find(client.id) for client in unused] == [None] * 4
        assert clients.find(used.id) is not None
        clock.shift(86_401)
        clients.register(described)
        assert count(world) == 2
        clock.shift(91 * 86_400)
        clients.register(described)
        assert clients.find(used.id) is None  # it was not used for three months


async def test_a_client_that_somebody_allowed_stays(world: World) -> None:
    with time_machine.travel("2027-01-01T00:00:00Z", tick=False) as clock:
        async with world.client() as client:
            used = (await world.register(client))["client_id"]
            unused = (await world.register(client))["client_id"]
            await world.tokens(client, used)
            clock.shift(3 * 86_400)
            await world.register(client)
        assert world.oauth.clients.find(used) is not None
        assert world.oauth.clients.find(unused) is None
