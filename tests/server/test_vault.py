"""Secrets at rest: sealed, bound to what they are for, and never without their key."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.access import vault as vaults
from commonplace.access.vault import MasterKeyRefused, SecretUnreadable, Vault, open_vault
from commonplace.errors import InvalidInput, StorageCorrupt
from commonplace.storage.sqlite import Store
from commonplace.storage.system import open_system

ONE, TWO = bytes(range(32)), bytes(range(32, 64))
AAD = ("byok", "default", "anthropic")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_system(tmp_path / "data")
    yield opened
    opened.close()


def key_file(store: Store) -> Path:
    return store.path.with_name("master.key")


@given(st.binary(max_size=200), st.lists(st.text(max_size=20), min_size=1, max_size=4))
def test_what_was_sealed_is_opened_again(value: bytes, aad: list[str]) -> None:
    vault = Vault([ONE])
    sealed = vault.seal(value, *aad)
    assert vault.open(sealed, *aad) == value
    assert len(value) < 8 or value not in sealed
    assert vault.seal(value, *aad) != sealed


@given(st.data())
def test_no_bit_of_a_sealed_secret_can_be_changed(data: st.DataObject) -> None:
    vault = Vault([ONE])
    sealed = bytearray(vault.seal(b"a secret of some length", *AAD))
    place = data.draw(st.integers(0, len(sealed) - 1))
    sealed[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(SecretUnreadable):
        vault.open(bytes(sealed), *AAD)


@pytest.mark.parametrize("length", [0, 1, 8, 9, 20, 21, 30])
def test_a_cut_secret_is_refused(length: int) -> None:
    vault = Vault([ONE])
    with pytest.raises(SecretUnreadable):
        vault.open(vault.seal(b"secret", *AAD)[:length], *AAD)


@pytest.mark.parametrize(
    "aad",
    [
        ("byok", "other", "anthropic"),
        ("byok", "default", "openai"),
        ("channel", "default", "anthropic"),
        ("byok", "defaultanthropic", ""),
        ("byok", "default"),
    ],
)
def test_a_secret_cannot_be_put_in_anothers_place(aad: tuple[str, ...]) -> None:
    vault = Vault([ONE])
    with pytest.raises(SecretUnreadable) as refused:
        vault.open(vault.seal(b"secret", *AAD), *aad)
    assert isinstance(refused.value, StorageCorrupt)
    assert refused.value.hint


def test_a_secret_must_be_bound_to_something() -> None:
    with pytest.raises(ValueError, match="associated data"):
        Vault([ONE]).seal(b"secret")


def test_another_key_does_not_open_it() -> None:
    with pytest.raises(SecretUnreadable):
        Vault([TWO]).open(Vault([ONE]).seal(b"secret", *AAD), *AAD)


def test_an_older_key_opens_and_the_newest_seals() -> None:
    sealed = Vault([ONE]).seal(b"secret", *AAD)
    both = Vault([TWO, ONE])
    assert both.open(sealed, *AAD) == b"secret"
    again = both.seal(both.open(sealed, *AAD), *AAD)
    assert Vault([TWO]).open(again, *AAD) == b"secret"


def test_a_code_is_only_good_for_its_own_values() -> None:
    vault = Vault([ONE])
    mac = vault.mac("credential", 1, None, b"x")
    assert vault.check_mac(mac, "credential", 1, None, b"x")
    assert not vault.check_mac(mac, "credential", 1, None, b"y")
    assert not vault.check_mac(mac, "credential", "1", None, b"x")
    assert not Vault([TWO]).check_mac(mac, "credential", 1, None, b"x")
    assert not vault.check_mac(b"", "credential", 1, None, b"x")
    assert Vault([TWO, ONE]).check_mac(mac, "credential", 1, None, b"x")


def test_the_key_is_not_shown() -> None:
    assert ONE.hex() not in repr(Vault([ONE])) and repr(ONE) not in repr(Vault([ONE]))


def test_a_key_file_is_made_for_its_owner_alone(store: Store) -> None:
    old = os.umask(0)
    try:
        open_vault(store, {})
    finally:
        os.umask(old)
    assert stat.S_IMODE(key_file(store).stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    assert [path.name for path in store.path.parent.glob("master.key*")] == ["master.key"]


def test_the_key_of_the_file_is_used_again(store: Store) -> None:
    sealed = open_vault(store, {}).seal(b"secret", *AAD)
    assert open_vault(store, {}).open(sealed, *AAD) == b"secret"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o666])
def test_a_key_that_others_can_reach_is_refused(store: Store, mode: int) -> None:
    open_vault(store, {})
    key_file(store).chmod(mode)
    with pytest.raises(MasterKeyRefused) as refused:
        open_vault(store, {})
    assert "chmod 600" in refused.value.hint


def as_url(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).decode().rstrip("=")


def as_base64(key: bytes) -> str:
    return base64.b64encode(key).decode()


@pytest.mark.parametrize("encode", [bytes.hex, as_base64, as_url])
def test_the_environment_gives_the_key_as_base64_or_hex(
    store: Store, encode: Callable[[bytes], str]
) -> None:
    vault = open_vault(store, {"COMMONPLACE_MASTER_KEY": encode(ONE)})
    assert Vault([ONE]).open(vault.seal(b"secret", *AAD), *AAD) == b"secret"
    assert not key_file(store).exists()


@pytest.mark.parametrize(
    "value", ["short", "zz" * 32, ONE[:31].hex(), ONE.hex() + "00", "00" * 32, ",", "é" * 44]
)
def test_what_is_no_key_is_refused_and_not_repeated(store: Store, value: str) -> None:
    with pytest.raises(MasterKeyRefused) as refused:
        open_vault(store, {"COMMONPLACE_MASTER_KEY": value})
    assert len(value) < 3 or value not in str(refused.value)
    assert "openssl rand" in refused.value.hint


def test_a_wrong_key_is_noticed_at_the_start(store: Store) -> None:
    open_vault(store, {"COMMONPLACE_MASTER_KEY": ONE.hex()})
    with pytest.raises(MasterKeyRefused, match="not the master key"):
        open_vault(store, {"COMMONPLACE_MASTER_KEY": TWO.hex()})
    open_vault(store, {"COMMONPLACE_MASTER_KEY": ONE.hex()})


def test_a_lost_key_is_not_silently_replaced(store: Store) -> None:
    open_vault(store, {})
    key_file(store).unlink()
    with pytest.raises(MasterKeyRefused, match="missing"):
        open_vault(store, {})
    assert not key_file(store).exists()


def test_several_processes_that_start_at_once_make_one_key(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from commonplace.storage.system import open_system\n"
        "from commonplace.access.vault import open_vault\n"
        "store = open_system(Path(sys.argv[1])); sys.stdin.read(1)\n"
        "vault = open_vault(store, {}); print(vault.mac('x').hex())\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "data")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("x")
        process.stdin.flush()
    assert len({process.communicate(timeout=60)[0] for process in processes}) == 1
    assert all(process.returncode == 0 for process in processes)


def test_threads_that_start_at_once_make_one_key(store: Store) -> None:
    found = set[bytes]()
    barrier = threading.Barrier(8)

    def start() -> None:
        barrier.wait()
        found.add(open_vault(store, {}).mac("x"))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1


def test_rotation_seals_anew_and_a_running_vault_follows(store: Store) -> None:
    here, there = open_vault(store, {}), open_vault(store, {})
    sealed = here.seal(b"secret", *AAD)
    resealed = list[bytes]()

    def reseal(connection: apsw.Connection) -> None:
        resealed.append(here.seal(here.open(sealed, *AAD), *AAD))

    here.rotate(store, [reseal])
    assert there.open(resealed[0], *AAD) == b"secret"  # by a key that it had not seen
    assert there.open(sealed, *AAD) == b"secret"
    assert open_vault(store, {}).open(resealed[0], *AAD) == b"secret"
    first = vaults._read_keys(key_file(store))[0]
    assert Vault([first]).open(resealed[0], *AAD) == b"secret"
    assert stat.S_IMODE(key_file(store).stat().st_mode) == 0o600


def test_a_rotation_that_fails_loses_nothing(store: Store) -> None:
    vault = open_vault(store, {})
    sealed = vault.seal(b"secret", *AAD)

    def fail(connection: apsw.Connection) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        vault.rotate(store, [fail])
    again = open_vault(store, {})
    assert again.open(sealed, *AAD) == b"secret"
    assert again.open(vault.seal(b"newer", *AAD), *AAD) == b"newer"


def test_a_key_of_the_environment_is_rotated_by_naming_both(store: Store) -> None:
    one, both = ONE.hex(), f"{TWO.hex()},{ONE.hex()}"
    alone = open_vault(store, {"COMMONPLACE_MASTER_KEY": one})
    with pytest.raises(InvalidInput, match="one key"):
        alone.rotate(store, [])
    open_vault(store, {"COMMONPLACE_MASTER_KEY": both}).rotate(store, [])
    open_vault(store, {"COMMONPLACE_MASTER_KEY": TWO.hex()})
