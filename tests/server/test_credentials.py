"""Opaque tokens: made once, known again cheaply, ended at once and everywhere."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine

from commonplace.access.caller import ALL_SCOPES, FULL_SCOPES, READ_ONLY_SCOPES, Scope
from commonplace.access.credentials import (
    Credentials,
    Grant,
    IssuedCredential,
    Unauthenticated,
    token_digest,
)
from commonplace.access.vault import Vault, open_vault
from commonplace.dialects.penfield.dialect import JWT
from commonplace.dialects.registry import token_formats
from commonplace.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    StorageUnavailable,
)
from commonplace.storage.credentials import by_digest
from commonplace.storage.database import copy_database
from commonplace.storage.sqlite import Store
from commonplace.storage.system import NAME, SYSTEM_MIGRATIONS, open_system

START = datetime(2026, 6, 1, 12, tzinfo=UTC)
FORMATS = token_formats()
VAULT = Vault([bytes(range(32))])
NEVER = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_system(tmp_path / "data")
    yield opened
    opened.close()


@pytest.fixture
def credentials(store: Store) -> Iterator[Credentials]:
    opened = Credentials(store, VAULT, token_formats())
    yield opened
    opened.close()


def refusal(credentials: Credentials, token: str) -> str:
    with pytest.raises(Unauthenticated) as refused:
        credentials.recognise(token)
    assert refused.value.as_dict() == Unauthenticated("anything").as_dict()
    assert str(refused.value) == str(Unauthenticated("anything"))
    return refused.value.reason


def only(*dialects: str) -> frozenset[str]:
    return frozenset(dialects)


@pytest.mark.parametrize(
    ("dialects", "oauth", "form"),
    [
        (only("being"), False, r"brt_[\w-]{49}"),
        (only("being"), True, r"bto_[\w-]{43}"),
        (only("penfield"), False, r"tm_team\.a_ak_[\w-]{49}"),
        (only("penfield"), True, r"cpo_[\w-]{49}"),
        (only("commonplace"), False, r"cpt_[\w-]{49}"),
        (only("clawbrain"), True, r"cpo_[\w-]{49}"),
        (only("mama"), False, r"cpt_[\w-]{49}"),
        (only("being", "penfield"), False, r"cpt_[\w-]{49}"),
        (None, False, r"cpt_[\w-]{49}"),
    ],
)
def test_a_token_looks_as_its_contract_says_and_tells_who_calls(
    credentials: Credentials, dialects: frozenset[str] | None, oauth: bool, form: str
) -> None:
    grant = Grant(
        user="ana",
        space="team.a",
        scopes=READ_ONLY_SCOPES,
        dialects=dialects,
        subject="b1",
        oauth=oauth,
    )
    issued = credentials.create(grant)
    assert re.fullmatch(form, issued.token)
    caller = credentials.recognise(issued.token)
    assert (caller.user, caller.space, caller.subject) == ("ana", "team.a", "b1")
    assert caller.scopes == READ_ONLY_SCOPES and caller.dialects == dialects
    assert caller.credential == issued.credential.id
    assert credentials.find(issued.token) == issued.credential


def test_a_token_is_not_shown_by_accident(credentials: Credentials) -> None:
    issued = credentials.create(Grant(name="laptop"))
    assert issued.token not in repr(issued) + repr(credentials.listing())
    assert issued.token not in json.dumps(issued.credential.as_dict())


def test_tokens_differ(credentials: Credentials) -> None:
    assert len({credentials.create(Grant()).token for _ in range(200)}) == 200


@pytest.mark.parametrize(
    "token",
    ["", "x", "cpt_", "cpt_" + "A" * 49, "brt_é", "cpt_\n", "cpt_" + "A" * 5000, "bto", "_", "tm_"],
)
def test_what_is_no_token_is_refused(credentials: Credentials, token: str) -> None:
    assert refusal(credentials, token) == "malformed"


def test_every_changed_character_is_refused(credentials: Credentials) -> None:
    for dialects, oauth in ((only("being"), True), (None, False)):
        token = credentials.create(Grant(dialects=dialects, oauth=oauth)).token
        for place in range(len(token)):
            other = "B" if token[place] != "B" else "C"
            refusal(credentials, token[:place] + other + token[place + 1 :])
        refusal(credentials, token[:-1])
        refusal(credentials, token + "A")
        refusal(credentials, token + " ")
        credentials.recognise(token)


def test_all_ways_to_be_refused_look_the_same(credentials: Credentials) -> None:
    with time_machine.travel(START) as clock:
        expired = credentials.create(Grant(lifetime=60)).token
        revoked = credentials.create(Grant())
        credentials.revoke(revoked.credential.id)
        unknown = FORMATS.dialects["being"].oauth.new_token("default")
        clock.shift(60)
        assert refusal(credentials, expired) == "expired"
        assert refusal(credentials, revoked.token) == "revoked"
        assert refusal(credentials, unknown) == "unknown"


def test_expiry_has_no_leeway_and_is_looked_at_every_time(credentials: Credentials) -> None:
    with time_machine.travel(START, tick=False) as clock:
        token = credentials.create(Grant(lifetime=3600)).token
        credentials.recognise(token)
        clock.shift(timedelta(seconds=3599, microseconds=999_999))
        credentials.recognise(token)
        clock.shift(timedelta(microseconds=1))
        assert refusal(credentials, token) == "expired"


@pytest.mark.parametrize("jump", [timedelta(days=3653), timedelta(days=-3653)], ids=str)
def test_tokens_without_an_end_outlive_a_jump_of_the_clock(
    credentials: Credentials, jump: timedelta
) -> None:
    with time_machine.travel(START) as clock:
        token = credentials.create(Grant()).token
        credentials.invalidate_created_before("default")
        after = credentials.create(Grant()).token
        clock.shift(jump)
        assert refusal(credentials, token) == "not before"
        credentials.recognise(after)
        # Made while the clock is wrong, and not from before the moment that was set.
        credentials.recognise(credentials.create(Grant()).token)
        credentials.store_last_use()


def test_a_revoked_token_is_refused_at_once_by_everything_that_knew_it(
    store: Store, credentials: Credentials
) -> None:
    issued = credentials.create(Grant())
    with closing(open_system(store.path.parent)) as other_store:
        other = Credentials(other_store, VAULT, token_formats())
        assert other.recognise(issued.token) == credentials.recognise(issued.token)
        credentials.revoke(issued.credential.id)
        assert refusal(credentials, issued.token) == "revoked"
        assert refusal(other, issued.token) == "revoked"
        other.close()


REPEATING = """
import sys, time
from pathlib import Path
from commonplace.storage.system import open_system
from commonplace.access.credentials import Credentials, Unauthenticated
from commonplace.dialects.registry import token_formats
from commonplace.access.vault import open_vault
store = open_system(Path(sys.argv[1]))
credentials = Credentials(store, open_vault(store, {}), token_formats())
credentials.recognise(sys.argv[2])
print("in", flush=True)
while True:
    try:
        credentials.recognise(sys.argv[2])
    except Unauthenticated as error:
        print(time.time(), error.reason, flush=True)
        break
    time.sleep(0.01)
"""


def test_every_process_refuses_a_revoked_token_within_five_seconds(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with closing(open_system(data)) as store:
        credentials = Credentials(store, open_vault(store, {}), token_formats())
        issued = credentials.create(Grant())
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", REPEATING, str(data), issued.token],
                stdout=subprocess.PIPE, text=True,
            )
            for _ in range(3)
        ]  # fmt: skip
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == "in\n"
        credentials.revoke(issued.credential.id)
        revoked = time.time()
        for process in processes:
            at, reason = process.communicate(timeout=30)[0].split()
            assert reason == "revoked"
            assert float(at) - revoked < 5
        credentials.close()


def test_a_token_made_by_another_process_is_known_at_once(credentials: Credentials) -> None:
    missing = FORMATS.dialects["commonplace"].personal.new_token("default")
    assert refusal(credentials, missing) == "unknown"
    code = (
        "import sys; from pathlib import Path\n"
        "from commonplace.storage.system import open_system\n"
        "from commonplace.access.credentials import Credentials, Grant\n"
        "from commonplace.access.vault import Vault\n"
        "from commonplace.dialects.registry import token_formats\n"
        "store = open_system(Path(sys.argv[1]))\n"
        "credentials = Credentials(store, Vault([bytes(range(32))]), token_formats())\n"
        "print(credentials.create(Grant()).token)\n"
    )
    path = str(credentials._store.path.parent)
    made = subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=True)
    assert credentials.recognise(made.stdout.decode().strip()).user == "local"


def test_not_before_ends_what_is_older_in_that_space_only(credentials: Credentials) -> None:
    with time_machine.travel(START) as clock:
        old, elsewhere = credentials.create(Grant()), credentials.create(Grant(space="other"))
        clock.shift(10)
        newer = credentials.create(Grant())
        clock.shift(10)
        held = credentials.invalidate_created_before("default", int((START.timestamp() + 5) * 1e6))
        assert refusal(credentials, old.token) == "not before"
        credentials.recognise(newer.token)
        credentials.recognise(elsewhere.token)
        assert credentials.invalidate_created_before("default", 1) == held  # it never moves back
        assert refusal(credentials, old.token) == "not before"
        credentials.invalidate_created_before("default")
        assert refusal(credentials, newer.token) == "not before"
        with pytest.raises(InvalidInput, match="future"):
            credentials.invalidate_created_before("default", int((START.timestamp() + 999) * 1e6))
        with pytest.raises(InvalidInput):
            credentials.invalidate_created_before("../x")


def test_a_token_for_another_address_is_refused(credentials: Credentials) -> None:
    bound = credentials.create(Grant(resource="https://a.example/mcp/")).token
    free = credentials.create(Grant()).token
    credentials.recognise(bound, resource="https://a.example/mcp")
    credentials.recognise(free, resource="https://a.example/mcp")
    with pytest.raises(Unauthenticated) as refused:
        credentials.recognise(bound, resource="https://b.example/mcp")
    assert refused.value.reason == "other resource"


@pytest.mark.parametrize(
    "grant",
    [
        Grant(space="../x"),
        Grant(user=""),
        Grant(user="x" * 201),
        Grant(name="x" * 201),
        Grant(name="a\0b"),
        Grant(subject="x" * 201),
        Grant(resource="x" * 2001),
        Grant(scopes=frozenset()),
        Grant(scopes=frozenset({"root"})),  # type: ignore[arg-type]
        Grant(dialects=frozenset()),
        Grant(dialects=frozenset({"klingon"})),
        Grant(lifetime=0),
        Grant(lifetime=-1),
        Grant(lifetime=float("nan")),
        Grant(lifetime=float("inf")),
    ],
)
def test_what_a_credential_cannot_say_is_refused(credentials: Credentials, grant: Grant) -> None:
    with pytest.raises(InvalidInput):
        credentials.create(grant)
    assert credentials.listing() == []


def test_credentials_are_found_and_revoked_by_the_start_of_their_id(
    credentials: Credentials,
) -> None:
    issued = [credentials.create(Grant(name=str(n), user=f"u{n % 2}")) for n in range(30)]
    assert {c.name for c in credentials.listing()} == {str(n) for n in range(30)}
    assert {c.user for c in credentials.listing(user="u1")} == {"u1"}
    assert credentials.listing(space="other") == []
    identity = issued[3].credential.id
    assert credentials.get(identity[:13]).name == "3"
    first = credentials.revoke(identity)
    assert first.revoked_at is not None
    assert credentials.revoke(identity) == first  # once more changes nothing
    with pytest.raises(NotFound):
        credentials.revoke(NEVER)
    for odd in ("", "abc", "%%%%", "zzzz", "____"):
        with pytest.raises(InvalidInput):
            credentials.revoke(odd)


def test_an_id_that_is_not_the_only_one_is_asked_about(
    credentials: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = iter(["abcd0000-0000-4000-8000-000000000000", "abcd0000-0000-4000-8000-000000000001"])
    monkeypatch.setattr("commonplace.access.credentials.new_id", lambda: next(ids))
    credentials.create(Grant())
    credentials.create(Grant())
    with pytest.raises(Conflict, match="Several"):
        credentials.revoke("abcd")


def test_many_can_be_ended_together(credentials: Credentials) -> None:
    ours = [credentials.create(Grant(family="f1", client="app")) for _ in range(3)]
    other = credentials.create(Grant(family="f2", client="app"))
    assert credentials.revoke_all(family="f1") == 3
    assert credentials.revoke_all(family="f1") == 0
    for issued in ours:
        assert refusal(credentials, issued.token) == "revoked"
    credentials.recognise(other.token)
    for wrong in ({}, {"name": "x"}, {"id": "x"}):
        with pytest.raises(ValueError, match="owner"):
            credentials.revoke_all(**wrong)


def test_a_token_is_part_of_the_transaction_that_makes_it(
    store: Store, credentials: Credentials
) -> None:
    made = list[IssuedCredential]()
    with pytest.raises(RuntimeError), store.maintain() as connection:
        made.append(credentials.create_in_transaction(connection, Grant()))
        raise RuntimeError
    assert refusal(credentials, made[0].token) == "unknown"
    assert credentials.listing() == []


CHANGES = [
    'scopes = \'["read","write","delete","admin"]\'',
    "space = 'other'",
    "owner = 'root'",
    "revoked_at = NULL",
    "expires_at = NULL",
    "dialects = NULL",
    "being = ''",
    "created_at = created_at + 1",
    "mac = zeroblob(40)",
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_row_that_somebody_changed_is_not_believed(
    store: Store, credentials: Credentials, change: str
) -> None:
    grant = Grant(scopes=READ_ONLY_SCOPES, dialects=only("being"), subject="b", lifetime=3600)
    issued = credentials.create(grant)
    if "revoked" in change:
        credentials.revoke(issued.credential.id)
    else:
        credentials.recognise(issued.token)
    with store.maintain() as connection:
        connection.execute(f"UPDATE credentials SET {change}")
    assert refusal(credentials, issued.token) == "damaged"


def test_a_row_that_somebody_adds_is_not_believed(store: Store, credentials: Credentials) -> None:
    forger = Credentials(store, Vault([bytes(range(64, 96))]), token_formats())
    issued = forger.create(Grant(scopes=ALL_SCOPES))
    assert refusal(credentials, issued.token) == "damaged"
    forger.close()


def test_use_is_written_down_at_most_once_a_minute(store: Store, credentials: Credentials) -> None:
    watch = store.watch()
    with time_machine.travel(START, tick=False) as clock:
        issued = credentials.create(Grant())

        def used() -> int:
            return credentials.get(issued.credential.id).last_used

        before = watch.version()
        for _ in range(100):
            credentials.recognise(issued.token)
        assert watch.version() == before  # looking writes nothing
        assert credentials.store_last_use() == 1
        first = used()
        assert first == int(START.timestamp() * 1e6)
        clock.shift(59)
        credentials.recognise(issued.token)
        assert credentials.store_last_use() == 0 and used() == first
        clock.shift(1)
        credentials.recognise(issued.token)
        assert credentials.store_last_use() == 1 and used() == first + 60_000_000
        clock.shift(-3600)
        credentials.recognise(issued.token)
        credentials.store_last_use()
        assert used() == first + 60_000_000
    watch.close()


def test_what_was_used_is_kept_when_it_cannot_be_written_yet(
    store: Store, credentials: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = credentials.create(Grant())
    credentials.recognise(issued.token)

    def refuse() -> None:
        raise StorageUnavailable("The disk is gone.")

    with monkeypatch.context() as patched:
        patched.setattr(store, "maintain", refuse)
        with pytest.raises(StorageUnavailable):
            credentials.store_last_use()
    assert credentials.store_last_use() == 1
    assert credentials.get(issued.credential.id).last_used > 0


def test_knowing_a_token_again_is_cheap(credentials: Credentials) -> None:
    tokens = [credentials.create(Grant()).token for _ in range(50)]
    for token in tokens:
        credentials.recognise(token)
    best = 1.0
    for _ in range(20):
        begun = time.thread_time()
        for token in tokens:
            credentials.recognise(token)
        best = min(best, (time.thread_time() - begun) / len(tokens))
    assert best < 50e-6


def test_what_is_kept_in_memory_is_bounded(
    credentials: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commonplace.access.credentials.MOST_CACHED", 10)
    tokens = [credentials.create(Grant()) for _ in range(25)]
    for issued in tokens:
        credentials.recognise(issued.token)
        credentials.get_valid(issued.credential.id)
        refusal(credentials, FORMATS.dialects["being"].personal.new_token(""))
    assert len(credentials._known) <= 10 and len(credentials._ids) <= 10


def test_what_ended_long_ago_is_forgotten(credentials: Credentials) -> None:
    with time_machine.travel(START) as clock:
        credentials.create(Grant(name="short", lifetime=60))
        credentials.revoke(credentials.create(Grant(name="revoked")).credential.id)
        credentials.create(Grant(name="kept"))
        assert credentials.prune() == 0
        clock.shift(timedelta(days=31))
        assert credentials.prune() == 2
        assert [each.name for each in credentials.listing()] == ["kept"]


def traces(token: str) -> list[bytes]:
    """What must be found nowhere: the token, its base64 at any offset, and its middle."""
    data = token.encode()
    middle = len(token) // 2
    found = [data, data[middle - 8 : middle + 8]]
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + data)
        found.append(encoded[4 if offset else 0 : -4])
    secret = data.partition(b"_ak_")[2] if data.startswith(b"tm_") else data[4:]
    raw = base64.urlsafe_b64decode(secret[:43] + b"=")
    return [*found, raw, raw.hex().encode()]


def test_a_thief_of_every_file_finds_no_token(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with closing(open_system(data)) as store:
        credentials = Credentials(store, open_vault(store, {}), token_formats())
        kinds = [None, *(only(name) for name in FORMATS.dialects)]
        tokens = [
            credentials.create(Grant(dialects=kinds[n % len(kinds)], oauth=n % 3 == 0))
            for n in range(100)
        ]
        for issued in tokens:
            credentials.recognise(issued.token)
        credentials.store_last_use()
        for issued in tokens[::2]:
            credentials.revoke(issued.credential.id)
        (data / "copies").mkdir()
        with store.read() as connection:
            copy_database(connection, data / "copies" / "backup.db")
            dump = "\n".join(
                repr(row)
                for (table,) in connection.execute(
                    "SELECT name FROM sqlite_schema WHERE type = 'table'"
                ).fetchall()
                for row in connection.execute(f"SELECT * FROM {table}")
            ).encode()
        files = [path.read_bytes() for path in data.rglob("*") if path.is_file()]
        assert (data / "system.db-wal").stat().st_size > 0
        assert len(files) >= 4
        credentials.close()
    for issued in tokens:
        for trace in traces(issued.token):
            assert len(trace) >= 16
            assert trace not in dump
            assert all(trace not in content for content in files)


def test_threads_that_make_use_and_end_tokens_never_see_an_ended_one(
    credentials: Credentials,
) -> None:
    wrong = list[str]()
    stop = threading.Event()

    def come_and_go() -> None:
        for _ in range(25):
            issued = credentials.create(Grant())
            try:
                credentials.recognise(issued.token)
                credentials.revoke(issued.credential.id)
            except Exception as error:
                wrong.append(repr(error))
            try:
                credentials.recognise(issued.token)
                wrong.append("let in")
            except Unauthenticated:
                pass

    steady = credentials.create(Grant())

    def stay() -> None:
        while not stop.wait(0.001):  # else these two would keep the others from their turns
            try:
                credentials.recognise(steady.token)
                credentials.store_last_use()
            except Exception as error:
                wrong.append(repr(error))

    staying = [threading.Thread(target=stay) for _ in range(2)]
    going = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in (*staying, *going):
        thread.start()
    for thread in going:
        thread.join()
    stop.set()
    for thread in staying:
        thread.join()
    assert wrong == []


def test_when_the_file_cannot_be_asked_nobody_is_let_in(
    credentials: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = credentials.create(Grant()).token
    credentials.recognise(token)

    def gone() -> tuple[int, int]:
        raise StorageUnavailable("The disk is gone.")

    monkeypatch.setattr(credentials.watch, "version", gone)
    with pytest.raises(StorageUnavailable):
        credentials.recognise(token)


@pytest.mark.parametrize(
    ("permissions", "scopes"),
    [
        (["read"], READ_ONLY_SCOPES),
        (["read", "write"], {"read", "write"}),
        (["READ", "RELATIONSHIPS_DELETE"], {"read", "delete"}),
        (["read", "write", "delete"], FULL_SCOPES),
        (["admin"], ALL_SCOPES),
        (["profile", "offline_access", "openid", ""], frozenset()),
    ],
)
def test_penfields_permissions_are_ours(permissions: list[str], scopes: set[Scope]) -> None:
    assert JWT.scopes_of(permissions) == scopes


def test_a_new_master_key_leaves_every_token_good(tmp_path: Path) -> None:
    with closing(open_system(tmp_path / "data")) as store:
        vault = open_vault(store, {})
        credentials = Credentials(store, vault, token_formats())
        other = Credentials(store, open_vault(store, {}), token_formats())
        issued = credentials.create(Grant())
        other.recognise(issued.token)
        vault.rotate(store, [credentials.reseal_rows])
        credentials.recognise(issued.token)
        other.recognise(issued.token)  # with a vault that was opened before
        later = other.create(Grant())
        credentials.recognise(later.token)
        lines = (tmp_path / "data" / "master.key").read_text().splitlines()
        keys = [line for line in lines if not line.startswith("#")]
        assert len(keys) == 2
        alone = Credentials(store, Vault([base64.b64decode(keys[0])]), token_formats())
        alone.recognise(issued.token)
        for each in (credentials, other, alone):
            each.close()


def test_a_file_with_the_older_column_names_is_migrated(
    store: Store, credentials: Credentials, tmp_path: Path
) -> None:
    issued = credentials.create(Grant(user="anna", space="anna"))
    with store.read() as rows:
        row = by_digest(rows, token_digest(issued.token))
    assert row is not None
    older = tmp_path / "older"
    older.mkdir()
    columns = ", ".join(row._fields).replace("owner", "user")
    marks = ", ".join("?" * len(row))
    before = Store(older / store.path.name, NAME, steps=SYSTEM_MIGRATIONS[:2])
    with closing(before), before.maintain() as connection:
        connection.execute(f"INSERT INTO credentials ({columns}) VALUES ({marks})", row)
    with closing(open_system(older)) as after, closing(Credentials(after, VAULT, FORMATS)) as found:
        assert found.recognise(issued.token).user == "anna"
        assert [one.id for one in found.listing(user="anna")] == [issued.credential.id]
