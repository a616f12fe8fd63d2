"""Signed tokens: the orchestrator's, Penfield's, the environment's; every form against a model."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
import time_machine
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    rule,
)

from commonplace.access.accounts import Accounts, ScryptCost
from commonplace.access.caller import ALL_SCOPES, FULL_SCOPES, READ_ONLY_SCOPES
from commonplace.access.credentials import Grant, IssuedCredential, Unauthenticated
from commonplace.access.signed import Tokens, signed_token, space_of
from commonplace.access.vault import SecretUnreadable, Vault, open_vault
from commonplace.dialects.registry import token_formats
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.storage.sqlite import Store
from commonplace.storage.system import open_system
from server.conftest import directory

ORCHESTRATOR, PENFIELD = "orchestrator", "penfield"

START = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECOND = int(START.timestamp())
SHARED = b"a key that the orchestrator shares"
VAULT = Vault([bytes(range(32))])


@pytest.fixture
def clock() -> Iterator[time_machine.Coordinates]:
    with time_machine.travel(START, tick=False) as coordinates:
        yield coordinates


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_system(tmp_path / "data")
    yield opened
    opened.close()


@pytest.fixture
def tokens(store: Store, clock: time_machine.Coordinates) -> Iterator[Tokens]:
    opened = Tokens(store, VAULT, token_formats(), environ={})
    yield opened
    opened.close()


def refusal(tokens: Tokens, token: str) -> str:
    with pytest.raises(Unauthenticated) as refused:
        tokens.recognise(token)
    # Why a token is refused is not told; that there was none may be.
    same = Unauthenticated("anything" if token else "missing")
    assert refused.value.as_dict() == same.as_dict()
    return refused.value.reason


def by_hand(payload: bytes, key: bytes = SHARED) -> str:
    """A token as the contract writes it, with nothing of ours."""
    first = base64.urlsafe_b64encode(payload).rstrip(b"=").decode()
    return first + "." + hmac.new(key, first.encode(), hashlib.sha256).hexdigest()


# The orchestrator's


def test_the_seeds_own_form_is_accepted(tokens: Tokens) -> None:
    tokens.keys.rotate(ORCHESTRATOR, secret=SHARED)
    caller = tokens.recognise(by_hand(b"user-1:workspace-1"))
    assert (caller.user, caller.space) == ("user-1", "workspace-1")
    assert caller.scopes == FULL_SCOPES and caller.dialects == {"orchestrator"}
    assert caller.credential.startswith("key:") and caller.credential.endswith(":user-1")
    dated = tokens.recognise(by_hand(f"user-1:workspace-1:{SECOND}".encode()))
    assert caller.expires_at is None and dated.expires_at == (SECOND + 300) * 1_000_000
    assert replace(dated, expires_at=None) == caller


def test_the_signature_may_be_in_capital_letters(tokens: Tokens) -> None:
    tokens.keys.rotate(ORCHESTRATOR, secret=SHARED)
    payload, _, signature = by_hand(b"u:w").partition(".")
    assert tokens.recognise(f"{payload}.{signature.upper()}").user == "u"


@pytest.mark.parametrize(
    "payload",
    [b"", b":", b"u", b"u:", b":w", b"u:w:", b"u:w:x", b"u:w:-5", b"u:w:1.5", b"u:w:1:2", b"\xff:w",
     b"u:w:" + b"9" * 30, "u:w:٣".encode(), b"u\n:w", b"u:w\0"],
)  # fmt: skip
def test_a_well_signed_payload_that_says_something_else_is_refused(
    tokens: Tokens, payload: bytes
) -> None:
    tokens.keys.rotate(ORCHESTRATOR, secret=SHARED)
    assert refusal(tokens, by_hand(payload)) == "malformed"


def test_a_changed_token_is_refused(tokens: Tokens) -> None:
    tokens.keys.rotate(ORCHESTRATOR, secret=SHARED)
    token = by_hand(b"user-1:workspace-1")
    for place in range(len(token)):
        other = "b" if token[place] != "b" else "c"
        refusal(tokens, token[:place] + other + token[place + 1 :])
    first, _, signature = token.partition(".")
    for odd in (
        first, first + ".", "." + signature, first + "=." + signature, token + "0", token[:-1],
        token + "." + signature, by_hand(b"user-1:workspace-1", b"another key of some length"),
        first + "." + "é" * 64, "x" * 5000 + "." + signature,
    ):  # fmt: skip
        refusal(tokens, odd)


def test_without_a_key_nobody_is_let_in(tokens: Tokens) -> None:
    assert refusal(tokens, by_hand(b"u:w", b"")) == "bad signature"
    assert refusal(tokens, by_hand(b"u:w")) == "bad signature"


def test_a_dated_token_is_good_for_five_minutes_both_ways(
    tokens: Tokens, clock: time_machine.Coordinates
) -> None:
    tokens.keys.rotate(ORCHESTRATOR, secret=SHARED)
    token = by_hand(f"u:w:{SECOND}".encode())
    undated = by_hand(b"u:w")
    for seconds, reason in ((0, ""), (300, ""), (301, "expired"), (-300, ""),
                            (-301, "not yet valid"), (86_400, "expired")):  # fmt: skip
        clock.move_to(START + timedelta(seconds=seconds))
        if reason:
            assert refusal(tokens, token) == reason
        else:
            tokens.recognise(token)
        if seconds >= 0:
            tokens.recognise(undated)


def test_the_age_can_be_set_and_zero_is_no_end(
    store: Store, clock: time_machine.Coordinates
) -> None:
    short, endless = (
        Tokens(store, VAULT, token_formats(), environ={}, max_age=age) for age in (10, 0)
    )
    short.keys.rotate(ORCHESTRATOR, secret=SHARED)
    token = by_hand(f"u:w:{SECOND}".encode())
    clock.shift(11)
    assert refusal(short, token) == "expired"
    endless.recognise(token)
    clock.shift(timedelta(days=4000))
    endless.recognise(token)
    clock.move_to(START - timedelta(seconds=61))
    assert refusal(endless, token) == "not yet valid"
    short.close()
    endless.close()


def test_a_workspace_with_an_odd_name_has_a_space_of_its_own(tokens: Tokens) -> None:
    tokens.keys.rotate(ORCHESTRATOR, secret=SHARED)
    names = ["ws-1", "WS-1", "Ws-1", "../etc", "con", "ワーク", "a b"]
    spaces = [tokens.recognise(by_hand(f"u:{name}".encode())).space for name in names]
    assert spaces[0] == "ws-1"
    assert len(set(spaces)) == len(names)
    assert spaces == [space_of(name) for name in names]


def test_rotation_ends_the_former_key_at_once_or_after_a_while(
    tokens: Tokens, clock: time_machine.Coordinates
) -> None:
    first = tokens.hmac["orchestrator"].issue("u", "w").token
    tokens.recognise(first)
    tokens.keys.rotate(ORCHESTRATOR, overlap=100)
    second = tokens.hmac["orchestrator"].issue("u", "w").token
    tokens.recognise(first)
    tokens.recognise(second)
    clock.shift(99)
    tokens.recognise(first)
    clock.shift(1)
    assert refusal(tokens, first) in ("signing key retired", "bad signature")
    tokens.recognise(second)
    tokens.keys.rotate(ORCHESTRATOR)
    assert refusal(tokens, second) == "bad signature"
    clock.shift(-50)  # the clock does not bring back what was ended at once
    assert tokens.keys.live_keys(ORCHESTRATOR)


def test_signing_keys_are_checked(tokens: Tokens) -> None:
    tokens.keys.rotate(ORCHESTRATOR, secret=SHARED)
    for wrong in (b"", b"short", b"x" * 2000):
        with pytest.raises(InvalidInput):
            tokens.keys.rotate(ORCHESTRATOR, secret=wrong)
    with pytest.raises(InvalidInput):
        tokens.keys.rotate("other")
    with pytest.raises(InvalidInput):
        tokens.keys.rotate(ORCHESTRATOR, overlap=-1)
    with pytest.raises(Conflict, match="used before"):
        tokens.keys.rotate(ORCHESTRATOR, secret=SHARED)
    for _ in range(15):
        tokens.keys.rotate(ORCHESTRATOR, overlap=1000)
    with pytest.raises(Conflict, match="live keys"):
        tokens.keys.rotate(ORCHESTRATOR, overlap=1000)


def test_signing_keys_are_stored_sealed_and_bound_to_their_times(
    tokens: Tokens, store: Store, clock: time_machine.Coordinates
) -> None:
    key = tokens.keys.rotate(ORCHESTRATOR, secret=SHARED)
    assert "shares" not in repr(key)
    for file in store.path.parent.iterdir():
        assert SHARED not in file.read_bytes()
    tokens.keys.rotate(ORCHESTRATOR)
    with store.maintain() as connection:
        connection.execute("UPDATE signing_keys SET retires_at = NULL")
    with pytest.raises(SecretUnreadable):  # and nobody is let in by a key that was brought back
        tokens.recognise(by_hand(b"u:w"))


def test_not_before_ends_undated_tokens_unless_their_key_is_newer(
    tokens: Tokens, clock: time_machine.Coordinates
) -> None:
    tokens.keys.rotate(ORCHESTRATOR, secret=SHARED)
    undated, elsewhere = by_hand(b"u:w"), by_hand(b"u:other")
    early, late = by_hand(f"u:w:{SECOND}".encode()), by_hand(f"u:w:{SECOND + 20}".encode())
    for token in (undated, elsewhere, early):
        tokens.recognise(token)
    clock.shift(10)
    tokens.credentials.invalidate_created_before("w")
    clock.shift(10)
    assert refusal(tokens, undated) == "not before"
    assert refusal(tokens, early) == "not before"
    tokens.recognise(late)
    tokens.recognise(elsewhere)
    with pytest.raises(Conflict, match="rotate-key"):
        tokens.hmac["orchestrator"].issue("u", "w")
    tokens.recognise(tokens.hmac["orchestrator"].issue("u", "w", with_time=True).token)
    newer = tokens.keys.rotate(ORCHESTRATOR, overlap=3600)
    assert refusal(tokens, undated) == "not before"
    tokens.recognise(signed_token("u:w", newer.secret))
    tokens.recognise(elsewhere)


def test_a_token_that_was_issued_here_can_be_revoked_by_itself(tokens: Tokens) -> None:
    issued = tokens.hmac["orchestrator"].issue("ana", "team", name="runtime")
    other = tokens.hmac["orchestrator"].issue("bob", "team")
    caller = tokens.recognise(issued.token)
    assert caller.credential == issued.credential.id
    assert tokens.hmac["orchestrator"].issue("ana", "team").credential == issued.credential
    assert [each.sort for each in tokens.credentials.listing()] == ["signed", "signed"]
    tokens.credentials.revoke(issued.credential.id)
    assert refusal(tokens, issued.token) == "revoked"
    payload, _, signature = issued.token.partition(".")
    assert refusal(tokens, f"{payload}.{signature.upper()}") == "revoked"
    tokens.recognise(other.token)
    with pytest.raises(Conflict, match="rotate-key"):
        tokens.hmac["orchestrator"].issue("ana", "team")
    tokens.credentials.prune(days=-1)
    assert refusal(tokens, issued.token) == "revoked"  # what is not known would be let in


def test_a_removed_user_does_not_come_back_with_an_old_token(
    tokens: Tokens, store: Store, clock: time_machine.Coordinates
) -> None:
    accounts = Accounts(store, VAULT, tokens.credentials, cost=ScryptCost(n=2))
    accounts.add("ana", "a password", ["w"])
    tokens.keys.rotate(ORCHESTRATOR, secret=SHARED)
    undated, dated = by_hand(b"ana:w"), by_hand(f"ana:w:{SECOND}".encode())
    tokens.recognise(undated)
    clock.shift(1)
    accounts.remove("ana")
    assert refusal(tokens, undated) == refusal(tokens, dated) == "user removed"
    clock.shift(1)
    accounts.add("ana", "a password", ["w"])
    assert refusal(tokens, undated) == refusal(tokens, dated) == "not before"
    tokens.recognise(by_hand(f"ana:w:{SECOND + 2}".encode()))


@pytest.mark.parametrize(("user", "workspace"), [("a:b", "w"), ("u", "w:1"), ("", "w"), ("u", "")])
def test_parts_that_would_be_read_otherwise_are_not_signed(
    tokens: Tokens, user: str, workspace: str
) -> None:
    with pytest.raises(InvalidInput):
        tokens.hmac["orchestrator"].issue(user, workspace)


# Penfield's


@pytest.fixture
def key(tokens: Tokens) -> IssuedCredential:
    return tokens.credentials.create(
        Grant(user="ana", space="team", dialects=frozenset({"penfield"}))
    )


def forged(tokens: Tokens, issued: IssuedCredential, /, algorithm: str = "HS256",
           secret: Any = None, kid: Any = None, **changes: Any) -> str:  # fmt: skip
    """A token with our own key, but for what is changed; None leaves a claim out."""
    signing = tokens.keys.newest(PENFIELD)
    claims = {
        "iss": "commonplace", "aud": "penfield", "sub": "ana", "tenant_id": "pf_team",
        "scopes": ["read"], "iat": SECOND, "exp": SECOND + 3600, "jti": "x",
        "key": issued.credential.id, **changes,
    }  # fmt: skip
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(
        claims,
        signing.secret if secret is None else secret,
        algorithm=algorithm,
        headers={"kid": signing.id if kid is None else kid},
    )


def test_an_access_token_has_the_claims_of_its_contract(
    tokens: Tokens, key: IssuedCredential
) -> None:
    token = tokens.jwt["penfield"].issue(key.credential)
    assert jwt.get_unverified_header(token) == {
        "alg": "HS256",
        "typ": "JWT",
        "kid": tokens.keys.newest(PENFIELD).id,
    }
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["sub"] == "ana" and claims["tenant_id"] == "pf_team"
    assert claims["scopes"] == ["read", "write", "delete"]
    assert (claims["iat"], claims["exp"]) == (SECOND, SECOND + 259_200)
    caller = tokens.recognise(token)
    assert (caller.user, caller.space, caller.scopes) == ("ana", "team", FULL_SCOPES)
    assert caller.dialects == {"penfield"} and caller.credential == key.credential.id
    assert tokens.jwt["penfield"].issue(key.credential) != token


def test_what_is_forged_without_harm_is_accepted(tokens: Tokens, key: IssuedCredential) -> None:
    assert tokens.recognise(forged(tokens, key)).scopes == READ_ONLY_SCOPES


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "somebody"}, {"aud": "mama"}, {"aud": ["penfield", "mama"]}, {"sub": "bob"},
        {"tenant_id": "pf_other"}, {"iat": SECOND + 61}, {"iat": "now"}, {"exp": SECOND - 60},
        {"exp": "never"}, {"key": "11111111-1111-4111-8111-111111111111"}, {"kid": "other"},
        {"kid": ""}, {"nbf": SECOND + 61}, {"secret": b"k" * 64},
        *({name: None} for name in
          ("iss", "aud", "sub", "tenant_id", "scopes", "iat", "exp", "jti", "key")),
    ],
    ids=str,
)  # fmt: skip
def test_a_claim_that_is_wrong_or_missing_is_refused(
    tokens: Tokens, key: IssuedCredential, changes: dict[str, Any]
) -> None:
    assert refusal(tokens, forged(tokens, key, **changes))


def test_a_token_cannot_say_that_it_may_do_more_than_its_key(tokens: Tokens) -> None:
    weak = tokens.credentials.create(
        Grant(user="ana", space="team", scopes=READ_ONLY_SCOPES, dialects=frozenset({"penfield"}))
    )
    assert (
        tokens.recognise(forged(tokens, weak, scopes=["admin", "write"])).scopes == READ_ONLY_SCOPES
    )


def test_the_algorithm_is_not_the_tokens_choice(tokens: Tokens, key: IssuedCredential) -> None:
    signing = tokens.keys.newest(PENFIELD)
    assert refusal(tokens, forged(tokens, key, algorithm="HS384")) == "wrong algorithm"
    assert refusal(tokens, forged(tokens, key, algorithm="HS512")) == "wrong algorithm"
    token = tokens.jwt["penfield"].issue(key.credential)
    _, claims, signature = token.split(".")
    for algorithm in ("none", "None", "NONE", "hs256", "RS256", "", None, 5):
        for end in ("", signature):
            head = json.dumps({"alg": algorithm, "typ": "JWT", "kid": signing.id}).encode()
            first = base64.urlsafe_b64encode(head).decode().rstrip("=")
            refusal(tokens, f"{first}.{claims}.{end}")
    for odd in (f"{token}.", token[:-5], f".{claims}.{signature}", "a.b.c", "..", "é.é.é"):
        refusal(tokens, odd)
    tokens.recognise(token)


def test_an_access_token_ends_with_a_leeway_of_a_minute(
    tokens: Tokens, key: IssuedCredential, clock: time_machine.Coordinates
) -> None:
    token = tokens.jwt["penfield"].issue(key.credential, lifetime=3600)
    clock.shift(3659)
    tokens.recognise(token)
    clock.shift(1)
    assert refusal(tokens, token) == "expired"
    fresh = Tokens(tokens.credentials._store, VAULT, token_formats(), environ={})
    assert refusal(fresh, token) == "expired"
    clock.move_to(START - timedelta(seconds=60))
    tokens.recognise(token)
    fresh.recognise(token)
    clock.move_to(START - timedelta(seconds=61))
    assert refusal(tokens, token) == "not yet valid"
    assert refusal(fresh, token) == "not yet valid"
    fresh.close()


def test_an_access_token_ends_with_its_api_key(tokens: Tokens, key: IssuedCredential) -> None:
    token = tokens.jwt["penfield"].issue(key.credential)
    tokens.recognise(token)
    tokens.credentials.revoke(key.credential.id)
    assert refusal(tokens, token) == "revoked"


def test_an_access_token_does_not_outlive_its_api_key(
    tokens: Tokens, clock: time_machine.Coordinates
) -> None:
    short = tokens.credentials.create(Grant(dialects=frozenset({"penfield"}), lifetime=100))
    token = tokens.jwt["penfield"].issue(short.credential)
    tokens.recognise(token)
    clock.shift(100)  # and nothing was written meanwhile
    assert refusal(tokens, token) == "expired"


def test_access_tokens_end_by_rotation_and_not_before(
    tokens: Tokens, key: IssuedCredential, clock: time_machine.Coordinates
) -> None:
    token = tokens.jwt["penfield"].issue(key.credential)
    tokens.keys.rotate(ORCHESTRATOR)
    tokens.recognise(token)
    tokens.keys.rotate(PENFIELD)
    assert refusal(tokens, token) == "unknown key"
    clock.shift(timedelta(microseconds=500_000))
    tokens.credentials.invalidate_created_before("team")
    renewed = tokens.credentials.create(
        Grant(user="ana", space="team", dialects=frozenset({"penfield"}))
    )
    tokens.recognise(tokens.jwt["penfield"].issue(renewed.credential))  # in the same second


# The environment's


@pytest.mark.parametrize(
    ("environ", "accepted", "refused"),
    [
        ({"MAMA_AUTH_TOKEN": "one"}, ["one"], ["", "on", "ones", "two"]),
        ({"MAMA_SERVER_TOKEN": "dev-token"}, ["dev-token"], ["one"]),
        ({"MAMA_AUTH_TOKEN": "one", "MAMA_SERVER_TOKEN": "two"}, ["one"], ["two"]),
        ({"MAMA_AUTH_TOKEN": "", "MAMA_SERVER_TOKEN": "two"}, ["two"], [""]),
        ({"MAMA_AUTH_TOKEN": ""}, [], ["", "one"]),
        ({"BEING_API_TOKEN": "b"}, [], ["b"]),
        ({"BEING_API_TOKEN": "", "BEING_API_USER_ID": "u"}, [], [""]),
    ],
)
def test_tokens_of_the_environment(
    store: Store, environ: dict[str, str], accepted: list[str], refused: list[str]
) -> None:
    tokens = Tokens(store, VAULT, token_formats(), environ=environ)
    for token in accepted:
        caller = tokens.recognise(token)
        assert caller.scopes == ALL_SCOPES and caller.dialects == {"mama"}
    for token in (*refused, "\ud800", "é"):
        refusal(tokens, token)
    tokens.close()


def test_beings_token_of_the_environment_names_its_user(store: Store) -> None:
    tokens = Tokens(
        store, VAULT, token_formats(), environ={"BEING_API_TOKEN": "b", "BEING_API_USER_ID": "ana"}
    )
    caller = tokens.recognise("b")
    assert (caller.user, caller.scopes, caller.dialects) == ("ana", FULL_SCOPES, {"being"})
    tokens.close()


def test_threads_that_ask_for_the_first_key_at_once_get_the_same(tokens: Tokens) -> None:
    found = list[str]()
    threads = [
        threading.Thread(target=lambda: found.append(tokens.keys.newest(PENFIELD).id))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1


# Every form against a model


@dataclass
class Modelled:
    """What the model knows of a token; times are seconds."""

    sort: str
    token: str
    user: str
    space: str
    made: float
    ends: float = float("inf")
    key: Keyed | None = None
    parent: Modelled | None = None
    id: str = ""
    revoked: bool = False


@dataclass
class Keyed:
    """A signing key of the model."""

    made: float
    retires: float = float("inf")


USERS, SPACES = ("ana", "bob"), ("one", "two")


class EveryToken(RuleBasedStateMachine):
    """Issue, revoke, expire, rotate, remove and come back, in any order, seen by two processes."""

    issued = Bundle("issued")

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.clock = self.stack.enter_context(time_machine.travel(START, tick=False))
        data = self.stack.enter_context(directory()) / "data"
        self.stores = [open_system(data) for _ in range(2)]
        self.vaults = [open_vault(store, {}) for store in self.stores]
        self.sides = [
            Tokens(store, vault, token_formats(), environ={})
            for store, vault in zip(self.stores, self.vaults, strict=True)
        ]
        for opened in (*self.stores, *self.sides):
            self.stack.callback(opened.close)
        self.accounts = [
            Accounts(store, vault, side.credentials, cost=ScryptCost(n=2, r=1, p=1))
            for store, vault, side in zip(self.stores, self.vaults, self.sides, strict=True)
        ]
        self.at = 0.0
        self.tokens = list[Modelled]()
        self.keys: dict[str, list[Keyed]] = {ORCHESTRATOR: [], PENFIELD: []}
        self.users = dict.fromkeys(USERS, "unknown")
        self.ended: dict[tuple[str, str], float] = {}

    def teardown(self) -> None:
        self.stack.close()

    def floor(self, user: str, space: str) -> float:
        return max(self.ended.get(("user", user), -1e18), self.ended.get(("space", space), -1e18))

    def key(self, purpose: str) -> Keyed:
        """The key that signs, as `newest` finds or makes it."""
        live = [key for key in self.keys[purpose] if self.at < key.retires]
        return live[-1] if live else self.new_key(purpose)

    def new_key(self, purpose: str) -> Keyed:
        made = max([self.at, *(key.made + 1e-6 for key in self.keys[purpose])])
        self.keys[purpose].append(Keyed(made))
        return self.keys[purpose][-1]

    def allowed(self, token: Modelled) -> bool:
        floor = self.floor(token.user, token.space)
        if token.revoked or self.users[token.user] == "removed":
            return False
        if token.key is not None and self.at >= token.key.retires:
            return False
        if token.sort == "opaque":
            return token.made >= floor and self.at < token.ends
        if token.sort == "undated":
            assert token.key is not None
            return token.made >= floor and token.key.made >= floor
        if token.sort == "dated":
            return token.made >= floor and abs(self.at - token.made) <= 300
        assert token.parent is not None
        return (
            self.allowed(token.parent)
            and token.made >= floor
            and token.made - 60 <= self.at < token.ends + 60
        )

    @rule(
        target=issued, side=st.integers(0, 1), user=st.sampled_from(USERS),
        space=st.sampled_from(SPACES), lifetime=st.sampled_from([None, 10, 3600]),
    )  # fmt: skip
    def make_opaque(self, side: int, user: str, space: str, lifetime: int | None) -> Any:
        grant = Grant(user=user, space=space, lifetime=lifetime, dialects=frozenset({"penfield"}))
        if self.users[user] == "removed":
            with pytest.raises(NotFound):
                self.sides[side].credentials.create(grant)
            return self.nothing()
        made = self.sides[side].credentials.create(grant)
        begun = max(self.at, self.floor(user, space))
        return self.keep(
            Modelled(
                "opaque", made.token, user, space, begun,
                ends=begun + (lifetime or float("inf")), id=made.credential.id,
            )
        )  # fmt: skip

    def nothing(self) -> Any:
        from hypothesis.stateful import multiple

        return multiple()

    def keep(self, token: Modelled) -> Modelled:
        same = [each for each in self.tokens if each.token == token.token]
        if not same:
            self.tokens.append(token)
            return token
        if not same[0].id and token.id:  # somebody else had signed it before it was issued here
            same[0].id, same[0].made = token.id, token.made
        return same[0]

    @rule(
        target=issued, side=st.integers(0, 1), user=st.sampled_from(USERS),
        space=st.sampled_from(SPACES), dated=st.booleans(),
    )  # fmt: skip
    def signed_elsewhere(self, side: int, user: str, space: str, dated: bool) -> Any:
        key = self.key(ORCHESTRATOR)
        secret = self.sides[side].keys.newest(ORCHESTRATOR).secret
        payload = f"{user}:{space}" + (f":{SECOND + int(self.at)}" if dated else "")
        made = self.at if dated else float("inf")  # nothing tells when, if it is not noted
        sort = "dated" if dated else "undated"
        return self.keep(Modelled(sort, signed_token(payload, secret), user, space, made, key=key))

    @rule(
        target=issued, side=st.integers(0, 1), user=st.sampled_from(USERS),
        space=st.sampled_from(SPACES), dated=st.booleans(),
    )  # fmt: skip
    def make_signed(self, side: int, user: str, space: str, dated: bool) -> Any:
        key = self.key(ORCHESTRATOR)
        floor = self.floor(user, space)
        try:
            made = self.sides[side].hmac["orchestrator"].issue(user, space, with_time=dated)
        except NotFound:
            assert self.users[user] == "removed"
            return self.nothing()
        except Conflict:
            known = [
                each for each in self.tokens
                if each.revoked and (each.user, each.space, each.key) == (user, space, key)
            ]  # fmt: skip
            assert known or (not dated and key.made < floor)
            return self.nothing()
        sort = "dated" if dated else "undated"
        return self.keep(
            Modelled(
                sort, made.token, user, space, max(self.at, floor), key=key, id=made.credential.id
            )
        )

    @rule(target=issued, side=st.integers(0, 1), parent=issued, lifetime=st.sampled_from([10, 900]))
    def exchange(self, side: int, parent: Modelled, lifetime: int) -> Any:
        if parent.sort != "opaque" or not self.allowed(parent):
            return self.nothing()
        credential = self.sides[side].credentials.find(parent.token)
        key = self.key(PENFIELD)
        token = self.sides[side].jwt["penfield"].issue(credential, lifetime=lifetime)
        made = max(self.at, self.floor(parent.user, parent.space))
        return self.keep(
            Modelled(
                "jwt", token, parent.user, parent.space, made, ends=made + lifetime, key=key,
                parent=parent,
            )
        )  # fmt: skip

    @rule(side=st.integers(0, 1), token=issued)
    def revoke(self, side: int, token: Modelled) -> None:
        if token.id:
            self.sides[side].credentials.revoke(token.id)
            token.revoked = True

    @rule(seconds=st.sampled_from([1, 9, 60, 299, 3600, 90 * 86_400]))
    def wait(self, seconds: int) -> None:
        self.clock.shift(seconds)
        self.at += seconds

    @rule(seconds=st.sampled_from([-1, -61, -3600]))
    def set_the_clock_back(self, seconds: int) -> None:
        self.clock.shift(seconds)
        self.at += seconds

    @rule(
        side=st.integers(0, 1), purpose=st.sampled_from([ORCHESTRATOR, PENFIELD]),
        overlap=st.sampled_from([0, 100]),
    )  # fmt: skip
    def rotate(self, side: int, purpose: str, overlap: int) -> None:
        if sum(self.at < key.retires for key in self.keys[purpose]) >= 16:
            return
        self.sides[side].keys.rotate(purpose, overlap=overlap)
        for key in self.keys[purpose]:
            if self.at < key.retires:
                key.retires = min(key.retires, self.at + overlap)
        self.new_key(purpose)

    @rule(side=st.integers(0, 1), space=st.sampled_from(SPACES))
    def end_before(self, side: int, space: str) -> None:
        self.sides[side].credentials.invalidate_created_before(space)
        self.ended["space", space] = max(self.at, self.ended.get(("space", space), -1e18))

    @rule(side=st.integers(0, 1), user=st.sampled_from(USERS))
    def add_user(self, side: int, user: str) -> None:
        if self.users[user] == "there":
            with pytest.raises(Conflict):
                self.accounts[side].add(user, "a password", ["one"])
            return
        try:
            self.accounts[side].add(user, "a password", ["one"])
        except Conflict:  # tokens for another space were made in this name
            named = (each for each in self.tokens if each.user == user and each.space != "one")
            assert any(each.id and not each.revoked for each in named)
            return
        self.users[user] = "there"

    @rule(side=st.integers(0, 1), user=st.sampled_from(USERS))
    def remove_user(self, side: int, user: str) -> None:
        if self.users[user] != "there":
            with pytest.raises(NotFound):
                self.accounts[side].remove(user)
            return
        self.accounts[side].remove(user)
        self.users[user] = "removed"
        self.ended["user", user] = max(self.at, self.ended.get(("user", user), -1e18))
        for token in self.tokens:
            token.revoked = token.revoked or (token.user == user and bool(token.id))

    @rule(side=st.integers(0, 1))
    def rotate_the_master_key(self, side: int) -> None:
        ours = self.sides[side]
        self.vaults[side].rotate(
            self.stores[side],
            (ours.credentials.reseal_rows, ours.keys.reseal_rows, self.accounts[side].reseal_rows),
        )

    @rule(side=st.integers(0, 1))
    def flush(self, side: int) -> None:
        self.sides[side].credentials.store_last_use()

    @invariant()
    def both_sides_let_in_whom_the_model_lets_in(self) -> None:
        for token in self.tokens:
            allowed = self.allowed(token)
            for side in self.sides:
                try:
                    caller = side.recognise(token.token)
                except Unauthenticated as error:
                    assert not allowed, (token, error.reason)
                else:
                    assert allowed, token
                    assert (caller.user, caller.space) == (token.user, token.space)


TestEveryToken = EveryToken.TestCase
TestEveryToken.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
