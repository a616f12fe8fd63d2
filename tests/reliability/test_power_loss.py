"""R2: a power cut at any moment loses nothing that was acknowledged, and breaks nothing.

`faulty_vfs` says what a cut may lose. A workload runs once on a recording disk; then the files of
many cuts are built and opened with the normal code.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

from commonplace.engine.binding import lease
from reliability import workers
from reliability.faulty_vfs import LOSSES, Loss, Recorder, Replay, mounted
from reliability.progress import counted
from reliability.workers import Hand, State, file_of, inspect, open_memory

THREADS = 5


@dataclass
class Recording:
    """What was done to the disk, and after which step each acknowledgement came."""

    disk: Recorder
    acknowledged: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def before(self, cut: int) -> list[dict[str, Any]]:
        return [said for position, said in self.acknowledged if position <= cut]


def record(directory: Path, *, lying_sync: bool = False, seed: int = 1) -> Recording:
    """A life of a file: created, written alone and together, checkpointed, closed, reopened."""
    recording = Recording(Recorder(lying_sync=lying_sync))
    disk = recording.disk

    def acknowledge(said: dict[str, Any]) -> None:
        recording.acknowledged.append((disk.position, said))

    def write_together(place: Any, each: int) -> None:
        def run(number: int) -> None:
            hand = Hand(place, random.Random(f"{seed}/{number}/{disk.position}"), acknowledge)
            for _ in range(each):
                hand.write()

        running = [threading.Thread(target=run, args=(n,)) for n in range(THREADS)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    def checkpoint(mode: int) -> None:
        connection = apsw.Connection(str(file_of(directory)))
        connection.execute("PRAGMA synchronous = FULL")
        connection.wal_checkpoint(mode=mode)
        connection.close()

    with mounted(disk):
        with open_memory(directory) as place:
            hand = Hand(place, random.Random(seed), acknowledge)
            for _ in range(5):
                hand.write()
            write_together(place, 3)
            checkpoint(apsw.SQLITE_CHECKPOINT_PASSIVE)  # the log starts over, and is overwritten
            write_together(place, 2)
            with lease(place) as space:
                space.store.checkpoint()  # the log is cut to nothing
            for _ in range(4):
                hand.write()
        with open_memory(directory) as place:  # the log was deleted on closing
            hand = Hand(place, random.Random(seed + 1), acknowledge)
            for _ in range(4):
                hand.write()
            checkpoint(apsw.SQLITE_CHECKPOINT_RESTART)
            write_together(place, 1)
    return recording


@dataclass
class Toll:
    """What the cuts cost."""

    images: int = 0
    different: int = 0
    with_loss: int = 0
    most_lost: int = 0
    broken: int = 0
    used: int = 0
    examples: list[str] = field(default_factory=list)


def cut_power(
    recording: Recording,
    directory: Path,
    *,
    cuts: int,
    losses: tuple[Loss, ...] = LOSSES,
    seed: int = 1,
    use_each: int = 40,
) -> Toll:
    """Build and open the files of cuts spread over the whole recording."""
    chance, toll, replay = random.Random(seed), Toll(), Replay(recording.disk)
    known: dict[bytes, State] = {}
    last = recording.disk.position
    moments = chance.sample(range(last + 1), min(cuts, last + 1))
    moments += chance.choices(range(last + 1), k=cuts - len(moments))
    for cut in counted(sorted(moments), moments, "power cuts"):
        replay.advance(cut)
        for loss in losses:
            files = replay.image(loss, chance)
            toll.images += 1
            print_of = fingerprint(files)
            acknowledged = recording.before(cut)
            if print_of not in known:
                place = directory / f"{cut}-{loss}"
                lay_out(files, place)
                known[print_of] = state = inspect(file_of(place))
                if state.problems:
                    toll.broken += 1
                    toll.examples += [f"{loss} after step {cut}: {state.problems[0]}"]
                elif len(known) % use_each == 0 and not state.lost(acknowledged):
                    lay_out(files, place)
                    use(place, acknowledged, state)
                    toll.used += 1
                shutil.rmtree(place)
            lost = known[print_of].lost(acknowledged)
            if lost:
                toll.with_loss += 1
                toll.most_lost = max(toll.most_lost, len(lost))
                toll.examples += [f"{loss} after step {cut}: {lost[0]}"]
    toll.different = len(known)
    return toll


def fingerprint(files: dict[str, bytes]) -> bytes:
    whole = hashlib.sha256()
    for name, content in sorted(files.items()):
        whole.update(f"{name} {len(content)} ".encode())
        whole.update(content)
    return whole.digest()


def lay_out(files: dict[str, bytes], place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    (place / "spaces").mkdir(parents=True)
    for name, content in files.items():
        (place / "spaces" / name).write_bytes(content)


def use(directory: Path, acknowledged: list[dict[str, Any]], state: State) -> None:
    """Work with what a cut left as a caller would."""
    with open_memory(directory) as place:
        newest = {said["memory"]["id"]: said["memory"] for said in acknowledged if "memory" in said}
        for identity in newest:
            assert place.get(identity).version >= newest[identity]["version"]
        live = [each for each in newest.values() if place.get(each["id"]).state == "active"]
        if live:
            text = place.get(live[0]["id"]).text
            assert text in [hit.memory.text for hit in place.recall(text, limit=100)]
            assert text in [memory.text for memory in place.find_text(text)[0]]
        added = place.remember("Written after the cut.")
        assert added.version == state.operations + 1


def figures(toll: Toll) -> str:
    return (
        f"{toll.images} cuts ({toll.different} different images, {toll.used} used through the"
        f" library), {toll.with_loss} lost something acknowledged (at most {toll.most_lost}"
        f" writes), {toll.broken} broken"
    )


def test_a_power_cut_at_any_moment_loses_nothing_acknowledged(
    quick_disk: Path, publish: Callable[[str], None]
) -> None:
    recording = record(quick_disk / "life")
    assert not inspect(file_of(quick_disk / "life")).lost([s for _, s in recording.acknowledged])
    toll = cut_power(recording, quick_disk / "cuts", cuts=600)
    publish(figures(toll))
    assert (toll.with_loss, toll.broken) == (0, 0), toll.examples[:5]
    assert toll.images >= 2400
    assert toll.used > 10


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_power_cuts_at_every_step_of_many_lives(
    quick_disk: Path, publish: Callable[[str], None], seed: int
) -> None:
    recording = record(quick_disk / "life", seed=seed)
    toll = cut_power(recording, quick_disk / "cuts", cuts=2_500, seed=seed)
    publish(f"{figures(toll)}, seed {seed}")
    assert (toll.with_loss, toll.broken) == (0, 0), toll.examples[:5]


def test_commits_without_sync_are_detected(
    quick_disk: Path, publish: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    workers.commits_without_sync(monkeypatch.setattr)
    recording = record(quick_disk / "life")
    monkeypatch.undo()
    toll = cut_power(recording, quick_disk / "cuts", cuts=60)
    publish(f"synchronous=NORMAL: {figures(toll)}")
    assert toll.with_loss > 0


def test_a_sync_that_lies_is_detected(quick_disk: Path, publish: Callable[[str], None]) -> None:
    recording = record(quick_disk / "life", lying_sync=True)
    toll = cut_power(recording, quick_disk / "cuts", cuts=40)
    publish(figures(toll))
    assert toll.with_loss > 0


def test_acknowledging_before_the_commit_is_detected(
    quick_disk: Path, publish: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers only remember here: a revision would miss its own memory and fail first.

    On a busy machine it may happen that no two threads share a commit, so there are several lives.
    """
    for life in range(5):
        with monkeypatch.context() as patch:
            workers.acknowledges_before_commit(patch.setattr)
            patch.setattr(Hand, "write", Hand._remember)
            recording = record(quick_disk / f"life{life}")
        toll = cut_power(recording, quick_disk / f"cuts{life}", cuts=300, losses=("drop",))
        if toll.with_loss:
            break
    publish(figures(toll))
    assert toll.with_loss > 0
