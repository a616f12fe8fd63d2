"""Vectors are written without a sync of their own; those that a power cut undoes are made again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from commonplace import Commonplace
from commonplace.engine.binding import engine_call
from commonplace.engine.maintenance import upkeep
from conftest import WordVectors, texts
from reliability.faulty_vfs import LOSSES, Recorder, Replay, mounted
from reliability.test_power_loss import lay_out

MEANINGS = {"car": "vehicle", "auto": "vehicle"}


@pytest.mark.parametrize("loss", LOSSES)
def test_vectors_cost_no_sync_and_are_made_again_after_a_power_cut(
    quick_disk: Path, loss: str
) -> None:
    disk, near = Recorder(), WordVectors(meanings=MEANINGS)
    with (
        mounted(disk),
        Commonplace(quick_disk / "before", embedding=near, embed="later") as memory,
    ):
        near.gate.clear()
        memory.remember("the car is red")
        stored = disk.position
        near.gate.set()
        engine_call(memory, upkeep.settle)
        embedded = disk.position
        assert memory.backlog() == (0, 0)
    since = disk.steps[stored:embedded]
    assert {step.kind for step in since} == {"write"}, "the batch is written, and nothing synced"
    replay = Replay(disk)
    replay.advance(embedded)
    lay_out(replay.image(loss, random.Random(1)), quick_disk / "after")  # type: ignore[arg-type]
    with Commonplace(quick_disk / "after", embedding=near, embed="later") as memory:
        if loss == "drop":
            assert memory.backlog()[0] == 1, "the batch is lost as a whole"
        engine_call(memory, upkeep.settle)
        assert texts(memory.recall("auto")) == ["the car is red"]
