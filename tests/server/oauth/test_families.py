"""Refreshing, and everything that ends a connection."""

from __future__ import annotations

import asyncio

import pytest
import time_machine

from commonplace.access.oauth import MacRows
from commonplace.access.oauth.families import Families

from .conftest import World
from .test_broken_requests import assert_refused, refresh

pytestmark = pytest.mark.anyio


async def test_a_refresh_token_that_is_used_twice_ends_the_family(world: World) -> None:
    async with world.client() as client:
        with time_machine.travel("2027-01-01T00:00:00Z", tick=False) as clock:
            client_id = (await world.register(client))["client_id"]
            first = await world.tokens(client, client_id)
            second = (await refresh(client, client_id, first)).json()
            third = (await refresh(client, client_id, second)).json()
            assert world.alive(third["access_token"])
            assert not world.alive(first["access_token"])
            clock.shift(60.000_001)
            assert_refused(await refresh(client, client_id, first), 400, "invalid_grant")
            assert not world.alive(third["access_token"])
            assert_refused(await refresh(client, client_id, third), 400, "invalid_grant")


@pytest.mark.parametrize("seconds", [0, 1, 59.9, 60])
async def test_for_a_minute_a_used_refresh_token_gives_another_pair(
    world: World, seconds: float
) -> None:
    async with world.client() as client:
        with time_machine.travel("2027-01-01T00:00:00Z", tick=False) as clock:
            client_id = (await world.register(client))["client_id"]
            first = await world.tokens(client, client_id)
            pairs = [(await refresh(client, client_id, first)).json()]
            clock.shift(seconds)
            pairs.append((await refresh(client, client_id, first)).json())
            assert not world.alive(first["access_token"])
            assert all(world.alive(pair["access_token"]) for pair in pairs)
            assert len({pair["refresh_token"] for pair in pairs}) == 2


@pytest.mark.parametrize("used", [0, 1])
async def test_of_two_siblings_the_other_ends_when_one_refreshes(world: World, used: int) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        first = await world.tokens(client, client_id)
        pairs = [(await refresh(client, client_id, first)).json() for _ in range(2)]
        ours, other = pairs[used], pairs[1 - used]
        newest = (await refresh(client, client_id, ours)).json()
        assert not world.alive(other["access_token"])
        assert world.alive(newest["access_token"])
        # Two hold tokens of this family, and nobody can tell which of them copied one.
        assert_refused(await refresh(client, client_id, other), 400, "invalid_grant")
        assert not world.alive(newest["access_token"])


async def test_a_second_use_by_another_client_ends_the_family_at_once(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        other = (await world.register(client))["client_id"]
        first = await world.tokens(client, client_id)
        second = (await refresh(client, client_id, first)).json()
        assert_refused(await refresh(client, other, first), 400, "invalid_grant")
        assert not world.alive(second["access_token"])


async def test_revoking_one_sibling_ends_both(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        first = await world.tokens(client, client_id)
        pairs = [(await refresh(client, client_id, first)).json() for _ in range(2)]
        world.credentials.revoke(world.credentials.find(pairs[0]["access_token"]).id)
        for each in pairs:
            assert not world.alive(each["access_token"])
        for each in (first, *pairs):
            assert_refused(await refresh(client, client_id, each), 400, "invalid_grant")


async def test_another_connection_of_the_same_client_is_left_alone(world: World) -> None:
    async with world.client() as client:
        with time_machine.travel("2027-01-01T00:00:00Z", tick=False) as clock:
            client_id = (await world.register(client))["client_id"]
            one, two = await world.tokens(client, client_id), await world.tokens(client, client_id)
            await refresh(client, client_id, one)
            clock.shift(61)
            assert_refused(await refresh(client, client_id, one), 400, "invalid_grant")
            assert world.alive(two["access_token"])
            assert (await refresh(client, client_id, two)).status_code == 200


async def test_many_at_once_get_a_pair_each_of_which_one_can_refresh(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        tokens = await world.tokens(client, client_id)
        answers = await asyncio.gather(*(refresh(client, client_id, tokens) for _ in range(8)))
        pairs = [answer.json() for answer in answers if answer.status_code == 200]
        assert len({pair["refresh_token"] for pair in pairs}) == 8
        assert all(world.alive(pair["access_token"]) for pair in pairs)
        newest = (await refresh(client, client_id, pairs[3])).json()
        assert [world.alive(each["access_token"]) for each in (*pairs, newest)] == [False] * 8 + [
            True
        ]


@pytest.mark.parametrize(("path", "seconds"), [("/api/v2", 86_400), ("/mcp/mama", 3_600)])
async def test_how_long_an_access_token_lives_depends_on_its_resource(
    world: World, path: str, seconds: int
) -> None:
    async with world.client() as client:
        with time_machine.travel("2027-01-01T00:00:00Z", tick=False) as clock:
            client_id = (await world.register(client))["client_id"]
            resource = f"{world.issuer}{path}"
            code = await world.code(client, world.request(client_id, resource=resource))
            data = world.exchange(client_id, code, resource=resource)
            tokens = (await client.post("/oauth/token", data=data)).json()
            assert tokens["expires_in"] == seconds
            clock.shift(seconds - 1)
            assert world.alive(tokens["access_token"], path)
            clock.shift(1)
            assert not world.alive(tokens["access_token"], path)


async def test_of_many_codes_at_once_one_wins(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        code = await world.code(client, world.request(client_id))
        data = world.exchange(client_id, code)
        answers = await asyncio.gather(*(client.post("/oauth/token", data=data) for _ in range(8)))
        assert sorted(answer.status_code for answer in answers) == [200] + [400] * 7


async def test_a_refresh_can_narrow_and_never_widen(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        tokens = await world.tokens(client, client_id)
        wider = await refresh(client, client_id, tokens, scope="read delete")
        assert_refused(wider, 400, "invalid_scope")
        tokens = (await refresh(client, client_id, tokens, scope="read")).json()
        assert tokens["scope"] == "read"
        assert world.credentials.find(tokens["access_token"]).scopes == {"read"}
        tokens = (await refresh(client, client_id, tokens)).json()
        assert tokens["scope"] == "read write"


async def test_a_refresh_is_for_its_client_and_its_resource(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        other = (await world.register(client))["client_id"]
        tokens = await world.tokens(client, client_id)
        assert_refused(await refresh(client, other, tokens), 400, "invalid_grant")
        elsewhere = await refresh(
            client, client_id, tokens, resource=f"{world.issuer}/mcp/penfield"
        )
        assert_refused(elsewhere, 400, "invalid_target")
        access = {"refresh_token": tokens["access_token"]}
        assert_refused(await refresh(client, client_id, access), 400, "invalid_grant")
        assert (await refresh(client, client_id, tokens)).status_code == 200


async def test_tokens_end_with_their_time(world: World) -> None:
    async with world.client() as client:
        with time_machine.travel("2027-01-01T00:00:00Z", tick=False) as clock:
            client_id = (await world.register(client))["client_id"]
            tokens = await world.tokens(client, client_id)
            clock.shift(3599)
            assert world.alive(tokens["access_token"])
            clock.shift(1)
            assert not world.alive(tokens["access_token"])
            tokens = (await refresh(client, client_id, tokens)).json()
            clock.shift(30 * 86_400)
            assert_refused(await refresh(client, client_id, tokens), 400, "invalid_grant")


async def test_what_has_ended_is_forgotten(world: World) -> None:
    async with world.client() as client:
        with time_machine.travel("2027-01-01T00:00:00Z", tick=False) as clock:
            client_id = (await world.register(client))["client_id"]
            for _ in range(3):
                await world.tokens(client, client_id)
            clock.shift(32 * 86_400)
            await world.tokens(client, client_id)
        with world.store.read() as connection:
            for table in ("oauth_families", "oauth_codes", "oauth_refreshes"):
                assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (1,)


async def test_revoking_a_refresh_token_ends_the_family(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        tokens = await world.tokens(client, client_id)
        data = {"client_id": client_id, "token": tokens["refresh_token"]}
        response = await client.post("/oauth/revoke", data=data)
        assert (response.status_code, response.headers["cache-control"]) == (200, "no-store")
        assert not world.alive(tokens["access_token"])
        assert_refused(await refresh(client, client_id, tokens), 400, "invalid_grant")
        assert (await client.post("/oauth/revoke", data=data)).status_code == 200


async def test_revoking_an_access_token_ends_the_connection_too(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        tokens = await world.tokens(client, client_id)
        data = {"client_id": client_id, "token": tokens["access_token"]}
        assert (await client.post("/oauth/revoke", data=data)).status_code == 200
        assert not world.alive(tokens["access_token"])
        assert_refused(await refresh(client, client_id, tokens), 400, "invalid_grant")


async def test_nobody_can_revoke_what_is_another_clients(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        other = (await world.register(client))["client_id"]
        tokens = await world.tokens(client, client_id)
        for token in (tokens["access_token"], tokens["refresh_token"], "cpo_unknown", "x"):
            data = {"client_id": other, "token": token}
            assert (await client.post("/oauth/revoke", data=data)).status_code == 200
        assert world.alive(tokens["access_token"])
        unknown = {"client_id": "cid_x", "token": tokens["access_token"]}
        assert_refused(await client.post("/oauth/revoke", data=unknown), 401, "invalid_client")
        missing = {"client_id": client_id}
        assert_refused(await client.post("/oauth/revoke", data=missing), 400, "invalid_request")


async def test_a_token_that_the_operator_revokes_is_not_refreshed(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        tokens = await world.tokens(client, client_id)
        world.credentials.revoke(world.credentials.find(tokens["access_token"]).id)
        assert_refused(await refresh(client, client_id, tokens), 400, "invalid_grant")


@pytest.mark.parametrize("end", ["removed", "signed out", "space ended"])
async def test_whoever_leaves_takes_their_connections_along(world: World, end: str) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        tokens = await world.tokens(client, client_id)
        code = await world.code(client, world.request(client_id))
        if end == "removed":
            world.accounts.remove("anna")
        elif end == "signed out":
            world.accounts.change_password("anna", "another long one", sign_out=True)
        else:
            world.credentials.invalidate_created_before("anna")
        assert not world.alive(tokens["access_token"])
        assert_refused(await refresh(client, client_id, tokens), 400, "invalid_grant")
        late = await client.post("/oauth/token", data=world.exchange(client_id, code))
        assert_refused(late, 400, "invalid_grant")


def test_a_new_password_ends_sign_ins_and_keeps_other_accounts_signed_in(world: World) -> None:
    logins = world.oauth.logins
    anna, bert = logins.begin("anna"), logins.begin("bert")
    world.accounts.change_password("anna", "another long one")
    assert (logins.user_of(anna), logins.user_of(bert)) == (None, "bert")


async def test_a_row_that_somebody_else_wrote_is_not_believed(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        tokens = await world.tokens(client, client_id)
        with world.store.maintain() as connection:
            connection.execute("UPDATE oauth_families SET space = 'bert'")
        assert_refused(await refresh(client, client_id, tokens), 400, "invalid_grant")
        with world.store.maintain() as connection:
            connection.execute(
                """UPDATE oauth_clients SET metadata = replace(metadata, 'client', 'evil')"""
            )
        assert world.oauth.clients.find(client_id) is None


async def test_connections_outlive_a_new_master_key(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        tokens = await world.tokens(client, client_id)
        owners = (world.credentials, world.accounts, MacRows(world.vault))
        world.vault.rotate(world.store, [each.reseal_rows for each in owners])
        world.vault._keys = world.vault._keys[:1]  # the older key is gone
        assert (await refresh(client, client_id, tokens)).status_code == 200


async def test_a_restart_changes_nothing(world: World) -> None:
    async with world.client() as client:
        client_id = (await world.register(client))["client_id"]
        tokens = await world.tokens(client, client_id)
        world.__post_init__()
    async with world.client() as client:
        assert (await refresh(client, client_id, tokens)).status_code == 200
    assert isinstance(world.oauth.families, Families)
