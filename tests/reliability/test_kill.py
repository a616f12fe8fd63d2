"""R1: processes that are killed while they write lose nothing that they acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reliability.workers import run_apart


def figures(run: dict[str, Any]) -> str:
    return (
        f"{run['acknowledged']} acknowledged, {run['kills']} SIGKILLs, {run['lost']} lost,"
        f" {run['torn']} torn, {run['in_flight']} stored but not yet acknowledged,"
        f" {run['errors']} errors, {run['seconds']} s"
    )


def test_killed_writers_lose_nothing_acknowledged(
    quick_disk: Path, publish: Callable[[str], None]
) -> None:
    run = run_apart("kill", quick_disk, acks=10_000, kills=150, at_most=90)
    publish(figures(run))
    assert (run["lost"], run["torn"], run["errors"]) == (0, 0, 0), run["examples"]
    assert run["acknowledged"] >= 10_000
    assert run["kills"] >= 150


def test_killed_writers_on_a_real_disk_lose_nothing(
    tmp_path: Path, publish: Callable[[str], None]
) -> None:
    run = run_apart("kill", tmp_path, acks=300, kills=16, at_most=30, seed=2)
    publish(figures(run))
    assert (run["lost"], run["torn"], run["errors"]) == (0, 0, 0), run["examples"]


@pytest.mark.soak
def test_thousands_of_kills_lose_nothing(quick_disk: Path, publish: Callable[[str], None]) -> None:
    run = run_apart("kill", quick_disk, acks=200_000, kills=3_000, at_most=1_500, seed=3)
    publish(f"{figures(run)}, seed 3")
    assert (run["lost"], run["torn"], run["errors"]) == (0, 0, 0), run["examples"]
    assert run["acknowledged"] >= 100_000


def test_acknowledging_before_the_commit_is_detected(
    quick_disk: Path, publish: Callable[[str], None]
) -> None:
    mutant = "commits_behind_the_callers_back"
    run = run_apart("kill", quick_disk, acks=0, kills=24, at_most=15, mutant=mutant)
    publish(figures(run))
    assert run["lost"] > 0


def test_derived_rows_outside_the_transaction_are_detected(
    quick_disk: Path, publish: Callable[[str], None]
) -> None:
    mutant = "writes_derived_rows_apart"
    run = run_apart("kill", quick_disk, acks=0, kills=24, at_most=15, mutant=mutant)
    publish(figures(run))
    assert run["torn"] > 0
