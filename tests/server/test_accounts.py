"""People who can log in."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from commonplace.access.accounts import Accounts, ScryptCost
from commonplace.access.credentials import Credentials, Grant, Unauthenticated
from commonplace.access.vault import Vault
from commonplace.dialects.registry import token_formats
from commonplace.errors import Conflict, InvalidInput, NotFound, StorageCorrupt
from commonplace.storage.sqlite import Store
from commonplace.storage.system import open_system

CHEAP = ScryptCost(n=16)
PASSWORD = "correct horse"
VAULT = Vault([bytes(range(32))])


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


@pytest.fixture
def accounts(store: Store, credentials: Credentials) -> Accounts:
    return Accounts(store, VAULT, credentials, cost=CHEAP)


def test_only_the_right_password_lets_in(accounts: Accounts) -> None:
    accounts.add("ana", PASSWORD, ["team", "default"])
    found = accounts.verify("ana", PASSWORD)
    assert found is not None and found.spaces == ("team", "default")
    for wrong in ("correct horsE", PASSWORD + " ", "", "x", "y" * 5000, "\ud800" * 9, "a\0bcdefgh"):
        assert accounts.verify("ana", wrong) is None
    for nobody in ("bob", "", "Ana", "ana\0", "\ud800"):
        assert accounts.verify(nobody, PASSWORD) is None


def test_a_name_and_a_password_may_be_typed_in_two_forms(accounts: Accounts) -> None:
    accounts.add("Zoë", "cafe\u0301 noir", ["default"])
    assert accounts.verify("Zoe\u0308", "caf\u00e9 noir") is not None
    with pytest.raises(Conflict):
        accounts.add("Zoe\u0308", PASSWORD, ["default"])


@pytest.mark.parametrize("name", ["", " ana", "ana\n", "a:b", "a\u202eb", "x" * 201])
def test_names_that_could_deceive_are_refused(accounts: Accounts, name: str) -> None:
    with pytest.raises(InvalidInput):
        accounts.add(name, PASSWORD, ["default"])


@pytest.mark.parametrize("password", ["", "1234567", "x" * 1025])
def test_passwords_have_a_length(accounts: Accounts, password: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        accounts.add("ana", password, ["default"])
    assert not password or password not in str(refused.value)


@pytest.mark.parametrize("spaces", [[], ["../x"], ["Team"]])
def test_spaces_are_checked(accounts: Accounts, spaces: list[str]) -> None:
    with pytest.raises(InvalidInput):
        accounts.add("ana", PASSWORD, spaces)


def test_no_password_is_stored(accounts: Accounts, store: Store) -> None:
    accounts.add("ana", PASSWORD, ["default"])
    accounts.add("bob", PASSWORD, ["default"])
    with store.read() as connection:
        rows = connection.execute("SELECT salt, hash, cost FROM users").fetchall()
    assert len({row[0] for row in rows}) == len({row[1] for row in rows}) == 2
    assert json.loads(str(rows[0][2])) == {"n": 16, "r": 8, "p": 3}
    for file in store.path.parent.iterdir():
        assert PASSWORD.encode() not in file.read_bytes()


def test_an_unknown_user_costs_as_much_as_a_known_one(
    store: Store, credentials: Credentials
) -> None:
    accounts = Accounts(store, VAULT, credentials, cost=ScryptCost(n=2**13))
    accounts.add("ana", PASSWORD, ["default"])
    accounts.add("gone", PASSWORD, ["default"])
    accounts.remove("gone")

    def fastest(name: str, password: str) -> float:
        took = []
        for _ in range(5):
            begun = time.thread_time()  # the work, however busy the machine is
            assert accounts.verify(name, password) is None
            took.append(time.thread_time() - begun)
        return min(took)

    known = fastest("ana", "a wrong password")
    for name, password in (("bob", PASSWORD), ("gone", PASSWORD), ("", ""), ("ana", "x" * 9999)):
        assert fastest(name, password) > known / 2


def test_a_dearer_cost_is_taken_on_at_the_next_login(
    accounts: Accounts, store: Store, credentials: Credentials
) -> None:
    accounts.add("ana", PASSWORD, ["default"])
    dearer = Accounts(store, VAULT, credentials, cost=ScryptCost(n=64))
    assert dearer.verify("ana", "wrong password") is None
    assert dearer.verify("ana", PASSWORD) is not None
    with store.read() as connection:
        (cost,) = connection.execute("SELECT cost FROM users").fetchone() or ("",)
    assert json.loads(str(cost))["n"] == 64
    assert accounts.verify("ana", PASSWORD) is not None


def test_a_removed_users_tokens_end_at_once_and_stay_ended(
    accounts: Accounts, credentials: Credentials
) -> None:
    accounts.add("ana", PASSWORD, ["default"])
    token = credentials.create(Grant(user="ana")).token
    other = credentials.create(Grant(user="bob")).token
    assert credentials.recognise(token).user == "ana"
    assert accounts.remove("ana") == 1
    with pytest.raises(Unauthenticated):
        credentials.recognise(token)
    assert credentials.recognise(other).user == "bob"
    assert accounts.verify("ana", PASSWORD) is None
    assert accounts.listing() == []
    with pytest.raises(NotFound):
        credentials.create(Grant(user="ana"))
    with pytest.raises(NotFound):
        accounts.remove("ana")
    accounts.add("ana", "another password", ["default"])
    with pytest.raises(Unauthenticated):
        credentials.recognise(token)
    assert credentials.recognise(credentials.create(Grant(user="ana")).token).user == "ana"
    assert accounts.verify("ana", PASSWORD) is None


def test_a_removed_account_is_enough_to_refuse_its_tokens(
    accounts: Accounts, credentials: Credentials, store: Store
) -> None:
    accounts.add("ana", PASSWORD, ["default"])
    token = credentials.create(Grant(user="ana")).token
    with store.maintain() as connection:  # as if the end of the tokens had not been written
        connection.execute("UPDATE users SET removed_at = 1")
    with pytest.raises(Unauthenticated) as refused:
        credentials.recognise(token)
    assert refused.value.reason == "user removed"


def test_a_new_password_ends_the_old_one_and_tokens_if_asked(
    accounts: Accounts, credentials: Credentials
) -> None:
    accounts.add("ana", PASSWORD, ["default"])
    token = credentials.create(Grant(user="ana")).token
    accounts.change_password("ana", "another password")
    assert accounts.verify("ana", PASSWORD) is None
    assert accounts.verify("ana", "another password") is not None
    assert credentials.recognise(token).user == "ana"
    accounts.change_password("ana", "a third password", sign_out=True)
    with pytest.raises(Unauthenticated):
        credentials.recognise(token)
    with pytest.raises(NotFound):
        accounts.change_password("bob", "a third password")


def test_a_row_that_somebody_changed_is_not_believed(accounts: Accounts, store: Store) -> None:
    accounts.add("ana", PASSWORD, ["default"])
    accounts.add("eve", "eve's password", ["default"])
    with store.maintain() as connection:
        connection.execute(
            "UPDATE users SET (salt, hash) = (SELECT salt, hash FROM users WHERE name = 'eve')"
            " WHERE name = 'ana'"
        )
    with pytest.raises(StorageCorrupt):
        accounts.verify("ana", "eve's password")


def test_two_who_add_the_same_name_at_once_get_one_account(accounts: Accounts) -> None:
    outcomes = list[str]()

    def add(password: str) -> None:
        try:
            accounts.add("ana", password, ["default"])
            outcomes.append(password)
        except Conflict:
            outcomes.append("")

    passwords = [f"password number {number}" for number in range(6)]
    threads = [threading.Thread(target=add, args=(password,)) for password in passwords]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [outcome for outcome in outcomes if outcome]
    assert [p for p in passwords if accounts.verify("ana", p)] == [winner]
