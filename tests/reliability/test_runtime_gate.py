"""R21: what cannot keep the promises, or is not ours, is refused and left as it was."""

from __future__ import annotations

import contextlib
from pathlib import Path

import apsw
import pytest

from commonplace import Commonplace
from commonplace.errors import (
    CommonplaceError,
    StorageCorrupt,
    StorageUnavailable,
    UnsupportedVersion,
)
from commonplace.storage import database, schema
from commonplace.storage.database import check_runtime
from commonplace.storage.sqlite import Store


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.51.2"])
def test_a_sqlite_that_can_corrupt_a_shared_log_is_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(StorageUnavailable, match=version):
        check_runtime(tmp_path, version)


@pytest.mark.parametrize("version", ["3.51.3", "3.52.0", "3.54.1", "4.0.0"])
def test_a_sqlite_without_that_fault_is_accepted(tmp_path: Path, version: str) -> None:
    check_runtime(tmp_path, version)


def test_the_sqlite_in_use_is_checked_when_a_memory_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.40.1")
    with pytest.raises(StorageUnavailable):
        Commonplace(tmp_path, embedding="none")


@pytest.mark.parametrize("kind", sorted(database.NETWORK_FILESYSTEMS))
def test_a_network_file_system_is_refused(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "my data"
    place.mkdir()
    escaped = str(place).replace(" ", "\\040")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nhost:/export {escaped} {kind} rw 0 0\n")
    with pytest.raises(StorageUnavailable, match="network"):
        check_runtime(place / "deeper", mounts=str(mounts))
    check_runtime(tmp_path, mounts=str(mounts))


def test_a_local_disk_mounted_inside_a_network_one_is_accepted(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"host:/ / nfs rw 0 0\n/dev/sda1 {tmp_path} ext4 rw 0 0\n")
    check_runtime(tmp_path / "data", mounts=str(mounts))


def refused(path: Path) -> CommonplaceError:
    """The error that opening it as a space gives; the file and its directory stay as they are."""
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    with pytest.raises(CommonplaceError) as told:
        Store(path, "default")
    error = told.value
    del told  # the traceback would keep the connection open
    after = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    assert after == before
    return error


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_file_of_a_newer_release_is_refused_and_left_as_it_is(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "newer.db"
    Store(path, "default").close()
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.pragma("user_version", len(schema.MIGRATIONS) + 1)
        connection.pragma("journal_mode", mode)
    assert isinstance(refused(path), UnsupportedVersion)


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_file_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "others.db"
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("CREATE TABLE photographs (name)")
        connection.pragma("application_id", 0x0BADCAFE)
        connection.pragma("journal_mode", mode)
    assert isinstance(refused(path), StorageCorrupt)


@pytest.mark.parametrize("version", [0, len(schema.MIGRATIONS)])
def test_a_file_of_a_program_that_left_no_mark_is_refused_and_left_as_it_is(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "unmarked.db"
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("CREATE TABLE photographs (name)")
        connection.pragma("user_version", version)
    assert isinstance(refused(path), StorageCorrupt)


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "letter.db"
    path.write_text("Dear reader, this is not a database. " * 100)
    assert isinstance(refused(path), StorageCorrupt)


def test_a_restored_file_gets_its_write_ahead_log_again(tmp_path: Path) -> None:
    """A copy is made without one; without it a reader would keep every writer waiting."""
    path = tmp_path / "restored.db"
    Store(path, "default").close()
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.pragma("journal_mode", "delete")
    store = Store(path, "default")
    with store.read() as connection:
        assert connection.pragma("journal_mode") == "wal"
    store.close()
