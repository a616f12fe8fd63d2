"""R3: a full disk refuses with a typed error, loses nothing, and is written again when it can be.

Three kinds of full: SQLite's write is refused after any number of bytes (a real ENOSPC with a
short write, at the system call), a small tmpfs is filled for real, and a limit on the size of
files, which SQLite reports as an I/O error and not as a full disk.
"""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from commonplace.engine.binding import lease
from commonplace.engine.transfer import importing
from commonplace.errors import NotFound, StorageFull, StorageUnavailable
from commonplace.storage import database, writing
from commonplace.storage.sqlite import store as store_module
from reliability.faulty_vfs import SmallDisk, filling
from reliability.progress import counted
from reliability.workers import (
    FullRun,
    Hand,
    create,
    file_of,
    fill,
    inspect,
    open_memory,
    run_apart,
)

NAMESPACES = (("unshare", "-m"), ("unshare", "-Urm"))  # as root, and as anybody


def check(run: dict[str, Any]) -> None:
    assert (run["lost"], run["torn"], run["untyped"]) == (0, 0, 0), run["examples"][:5]
    assert run["refused"] >= run["disks"]
    assert run["slowest_resume"] < 1


def figures(run: dict[str, Any]) -> str:
    return (
        f"{run['disks']} disks filled, {run['refused']} writes refused as STORAGE_FULL,"
        f" {run['acknowledged']} acknowledged, {run['lost']} lost, {run['torn']} torn,"
        f" slowest three writes after space returned {run['slowest_resume']} s"
    )


def fill_at(
    sizes: list[int], directory: Path, *, fresh: bool = False
) -> tuple[FullRun, Counter[str]]:
    """A disk with each size left, filled by writing; fresh ones while the file is made."""
    run, refusals = FullRun(), Counter[str]()
    for number, size in enumerate(counted(sizes, sizes, "sizes")):
        place = directory / str(number)
        (place / "spaces").mkdir(parents=True)
        if not fresh:
            create(place)
        disk = SmallDisk(place / "spaces", size)

        def free_space(disk: SmallDisk = disk) -> None:
            disk.capacity += 1 << 30

        with filling(disk):
            fill(place, run, free_space, seed=number)
        refusals.update(disk.refusals)
    return run, refusals


def test_a_disk_that_fills_at_any_byte_refuses_and_loses_nothing(
    quick_disk: Path, publish: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    often_checkpointed(monkeypatch)
    chance = random.Random(1)
    sizes = [*range(0, 4096 * 8, 2100), *(chance.randrange(400_000) for _ in range(30))]
    run, refusals = fill_at(sizes, quick_disk)
    told = ", ".join(f"{suffix} {count}" for suffix, count in sorted(refusals.items()))
    publish(f"{figures(asdict(run))}; refusals by file: {told}")
    check(asdict(run))
    assert refusals.keys() >= {"db", "wal", "shm"}
    assert run.acknowledged > 10 * run.disks


def test_a_disk_that_fills_while_the_file_is_made_leaves_a_file_that_works(
    quick_disk: Path, publish: Callable[[str], None]
) -> None:
    run, _ = fill_at([*range(0, 400_000, 9_001)], quick_disk, fresh=True)
    publish(figures(asdict(run)))
    check(asdict(run))


@pytest.mark.soak
def test_a_disk_that_fills_at_hundreds_of_sizes(
    quick_disk: Path, publish: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    often_checkpointed(monkeypatch)
    sizes = [*range(0, 800_000, 2_930)]
    run, _ = fill_at(sizes, quick_disk)
    publish(f"{figures(asdict(run))}, seeds 0 to {len(sizes) - 1}")
    check(asdict(run))


def often_checkpointed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Move the log into the file every few writes, so that a disk fills up there as well."""
    real = database.connect

    def connect(path: Path, **options: Any) -> Any:
        connection = real(path, **options)
        connection.execute("PRAGMA wal_autocheckpoint = 40")
        return connection

    monkeypatch.setattr(store_module, "connect", connect)


def test_a_checkpoint_on_a_full_disk_is_refused_and_costs_nothing(quick_disk: Path) -> None:
    said: list[dict[str, Any]] = []
    with open_memory(quick_disk) as place:
        hand = Hand(place, random.Random(1), said.append)
        for _ in range(30):
            hand.write()
        disk = SmallDisk(quick_disk / "spaces", 0)
        with filling(disk), lease(place) as space:
            with pytest.raises(StorageFull):
                space.store.checkpoint()
            place.get(said[0]["memory"]["id"])
            disk.capacity += 1 << 30
            space.store.checkpoint()
        hand.write()
    assert disk.refusals.keys() == {"db"}
    state = inspect(file_of(quick_disk))
    assert (state.problems, state.lost(said)) == ([], [])


def test_a_failed_checkpoint_does_not_fail_the_write_before_it(
    quick_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the log is durable, whether or not it can be moved into the file yet."""
    often_checkpointed(monkeypatch)
    said: list[dict[str, Any]] = []
    with open_memory(quick_disk) as place:
        hand = Hand(place, random.Random(1), said.append)
        hand.write()
        with lease(place) as space:
            space.store.checkpoint()
        disk = SmallDisk(quick_disk / "spaces", 0)

        def room(descriptor: int, size: int, offset: int) -> int:
            name = Path(f"/proc/self/fd/{descriptor}").readlink().name
            if name.endswith(".db"):
                disk.refusals["db"] = disk.refusals.get("db", 0) + 1
                return 0
            return size

        monkeypatch.setattr(disk, "room", room)
        with filling(disk):
            for _ in range(20):
                hand.write()
        assert disk.refusals["db"] > 0
    assert len(said) >= 21
    state = inspect(file_of(quick_disk))
    assert (state.problems, state.lost(said)) == ([], [])


def test_a_purge_that_cannot_be_proved_does_not_say_that_nothing_was_done(
    quick_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def room(descriptor: int, size: int, offset: int) -> int:
        return size if Path(f"/proc/self/fd/{descriptor}").readlink().name.endswith("-wal") else 0

    with open_memory(quick_disk) as place:
        secret = place.remember("A secret that is to be deleted").id
        disk = SmallDisk(quick_disk / "spaces", 0)
        monkeypatch.setattr(disk, "room", room)
        with filling(disk), pytest.raises(StorageUnavailable, match="The memories are deleted"):
            place.purge(secret)
        with pytest.raises(NotFound):
            place.get(secret)


def test_an_import_that_fills_the_disk_says_what_is_here(quick_disk: Path) -> None:
    lines = quick_disk / "lines.jsonl"
    lines.write_text("".join(f'{{"text": "Line number {i}"}}\n' for i in range(2_000)))
    with open_memory(quick_disk) as place, lease(place) as space:
        disk = SmallDisk(quick_disk / "spaces", 1_500_000)
        with filling(disk), pytest.raises(StorageFull) as refused:
            importing.import_file(space, lines)
        held = place.browse(limit=1)[1]
        assert 0 < held < 2_000
        assert refused.value.message.endswith(f"{held:,} lines were imported before that.")
        importing.import_file(space, lines)
        assert place.browse(limit=1)[1] == 2_000


def test_files_that_may_not_grow_refuse_and_lose_nothing(
    quick_disk: Path, publish: Callable[[str], None]
) -> None:
    sizes = [*range(200_000, 600_000, 23_500)]
    run = run_apart("fill_limited", quick_disk, sizes=sizes)
    publish(figures(run))
    check(run)


def test_a_small_file_system_that_is_filled_refuses_and_loses_nothing(
    tmp_path: Path, publish: Callable[[str], None]
) -> None:
    mounts = ["sh", "-c", f"mount -t tmpfs -o size=1m tmpfs {tmp_path}"]
    for namespace in NAMESPACES:
        if subprocess.run([*namespace, *mounts], capture_output=True, check=False).returncode == 0:
            break
    else:
        pytest.skip("no mount namespace here: neither `unshare -m` nor `unshare -Urm` may mount")
    sizes = [0, 4096, *range(30_000, 600_000, 38_000)]
    run = run_apart("fill_tmpfs", tmp_path, before=namespace, sizes=sizes)
    publish(figures(run))
    check(run)


def test_an_acknowledgement_of_what_was_refused_is_detected(
    quick_disk: Path, publish: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant that swallows the failed commit: the caller hears that all is well."""

    def finish(self: Any, error: Exception | None) -> None:
        self.finished.set()

    monkeypatch.setattr(writing._Batch, "finish", finish)
    chance = random.Random(1)
    run, _ = fill_at([chance.randrange(100_000, 300_000) for _ in range(3)], quick_disk)
    publish(figures(asdict(run)))
    assert run.lost > 0
