"""Vectors are written without a sync of their own: a power cut undoes such a write as a whole."""

from __future__ import annotations

import random
from pathlib import Path

from commonplace import Commonplace
from commonplace.engine.binding import lease
from commonplace.storage import outbox
from reliability.faulty_vfs import Recorder, Replay, mounted
from reliability.test_power_loss import lay_out


def test_a_write_that_is_not_durable_costs_no_sync_and_is_lost_as_a_whole(
    quick_disk: Path,
) -> None:
    disk = Recorder()
    with (
        mounted(disk),
        Commonplace(quick_disk / "before", embedding="none") as memory,
        lease(memory) as space,
    ):
        memory.remember("the car is red")
        with space.store.maintain() as rows:
            outbox.add(rows, space.name, 1)
        stored = disk.position
        with space.store.maintain(durable=False) as rows:
            outbox.remove(rows, space.name, 1)
            outbox.add(rows, space.name, 2)
        written = disk.position
        with space.store.maintain() as rows:
            outbox.add(rows, space.name, 3)
        synced = disk.position
    assert {step.kind for step in disk.steps[stored:written]} == {"write"}
    assert disk.steps[synced - 1].kind == "sync"
    replay = Replay(disk)
    for cut, requests in ((stored, [1]), (written, [1]), (synced, [2, 3])):
        replay.advance(cut)
        place = quick_disk / str(cut)
        lay_out(replay.image("drop", random.Random(1)), place)
        with (
            Commonplace(place, embedding="none") as memory,
            lease(memory) as space,
            space.store.read() as rows,
        ):
            asked = [n for n in (1, 2, 3) if outbox.error_of(rows, space.name, n) is not None]
            assert asked == requests
