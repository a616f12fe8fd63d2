"""R4: a sync that fails is told to the caller, and neither loses nor halves anything."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commonplace.engine.binding import lease
from commonplace.errors import StorageUnavailable
from commonplace.storage import writing
from reliability.faulty_vfs import FailingSync, mounted
from reliability.progress import report_progress
from reliability.workers import Hand, State, file_of, inspect, open_memory


def checkpointed(place: Any) -> None:
    """Empty the log, told as a caller would be."""
    with lease(place) as space:
        space.store.checkpoint()


def live(directory: Path, fail: int | None) -> tuple[FailingSync, State, list[dict[str, Any]], int]:
    """A short life of a file whose n-th sync fails once: (disk, state, acknowledged, told)."""
    disk, said, told = FailingSync(), list[dict[str, Any]](), 0
    disk.fail_after(fail)
    with mounted(disk):
        place = open_memory(directory)
        hand = Hand(place, random.Random(1), said.append)
        for step in range(26):
            try:
                if step in (8, 16):
                    checkpointed(place)
                else:
                    hand.write()
            except StorageUnavailable:
                told += 1
                for each in said:  # reading goes on
                    if "memory" in each:
                        place.get(each["memory"]["id"], count=False)
        disk.fail_after(None)
        disk.reachable = disk.syncs
        hand.write()
        place.close()
    return disk, inspect(file_of(directory)), said, told


def test_the_nth_sync_of_a_life_may_fail_for_every_n(
    quick_disk: Path, publish: Callable[[str], None]
) -> None:
    disk, state, said, told = live(quick_disk / "well", None)
    assert (told, state.problems, state.lost(said)) == (0, [], [])
    syncs = disk.reachable
    for fail in range(syncs):
        disk, state, said, told = live(quick_disk / str(fail), fail)
        assert disk.failures == 1
        assert told == 1
        assert (state.problems, state.lost(said)) == ([], []), f"sync {fail}"
    publish(f"each of {syncs} syncs failed once: every failure told, 0 lost, 0 torn")


def fail_often(directory: Path, failures: int) -> tuple[int, State, list[dict[str, Any]]]:
    """One process that lives through many failed syncs at changing distances."""
    disk, said, told = FailingSync(), list[dict[str, Any]](), 0
    chance = random.Random(1)
    with mounted(disk):
        place = open_memory(directory)
        hand = Hand(place, chance, said.append)
        hand.write()  # the file exists: creating it takes more syncs than lie between two failures
        while disk.failures < failures:
            report_progress(disk.failures, failures, "failed syncs")
            before = disk.failures
            disk.fail_after(chance.randrange(8))
            while disk.failures == before:
                acknowledged = len(said)
                try:
                    if chance.random() < 0.05:
                        checkpointed(place)
                    else:
                        hand.write()
                except StorageUnavailable:
                    told += 1
                    assert len(said) == acknowledged
        hand.write()
        place.close()
    return told, inspect(file_of(directory)), said


def test_one_process_lives_through_hundreds_of_failed_syncs(
    quick_disk: Path, publish: Callable[[str], None]
) -> None:
    told, state, said = fail_often(quick_disk, 300)
    publish(
        f"300 failed syncs, {told} told, {len(said)} acknowledged, {len(state.lost(said))} lost,"
        f" {len(state.problems)} torn"
    )
    assert (state.problems, state.lost(said)) == ([], [])
    assert told == 300
    assert len(said) > 300, "few writes were acknowledged: the harness proves little"


@pytest.mark.soak
def test_one_process_lives_through_thousands_of_failed_syncs(
    quick_disk: Path, publish: Callable[[str], None]
) -> None:
    told, state, said = fail_often(quick_disk, 10_000)
    publish(
        f"10000 failed syncs, {told} told, {len(said)} acknowledged, {len(state.lost(said))} lost,"
        f" {len(state.problems)} torn, seed 1"
    )
    assert (told, state.problems, state.lost(said)) == (10_000, [], [])
    assert len(said) > 10_000


def test_an_acknowledgement_of_a_failed_commit_is_detected(
    quick_disk: Path, publish: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant that swallows the failed commit: the caller hears that all is well."""

    def finish(self: Any, error: Exception | None) -> None:
        self.finished.set()

    monkeypatch.setattr(writing._Batch, "finish", finish)
    monkeypatch.setattr(Hand, "write", Hand._remember)
    disk, said = FailingSync(), list[dict[str, Any]]()
    with mounted(disk), open_memory(quick_disk) as place:
        hand = Hand(place, random.Random(1), said.append)
        hand.write()
        for _ in range(5):
            disk.fail_after(0)
            hand.write()
    lost = inspect(file_of(quick_disk)).lost(said)
    publish(f"{len(said)} acknowledged, {len(lost)} lost")
    assert lost
