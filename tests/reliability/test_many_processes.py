"""R7: many processes read and write one file; none sees a lock, none loses another's update."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reliability.workers import run_apart


def check(run: dict[str, Any]) -> None:
    assert (run["errors"], run["lost"], run["torn"]) == (0, 0, 0), run["examples"]
    assert run["counted"] == run["increments"] > 0
    assert min(run["writes"], run["reads"], run["conflicts"]) > 0


def figures(run: dict[str, Any]) -> str:
    return (
        f"{run['writes']} writes (p50 {run['p50_ms']} ms, p99 {run['p99_ms']} ms),"
        f" {run['reads']} reads, {run['increments']} increments counted as {run['counted']},"
        f" {run['conflicts']} conflicts told, {run['errors']} errors, {run['lost']} lost"
    )


def test_eight_processes_share_a_file_without_a_lock_error_or_a_lost_update(
    quick_disk: Path, publish: Callable[[str], None]
) -> None:
    run = run_apart("share", quick_disk, processes=8, seconds=8)
    publish(figures(run))
    check(run)


@pytest.mark.soak
def test_eight_processes_of_four_threads_share_a_file_for_minutes(
    tmp_path: Path, publish: Callable[[str], None]
) -> None:
    run = run_apart("share", tmp_path, processes=8, threads=4, seconds=180)
    publish(f"{figures(run)}, seed 1")
    check(run)


def test_a_deferred_begin_is_detected(quick_disk: Path, publish: Callable[[str], None]) -> None:
    mutant = "begins_deferred"
    run = run_apart("share", quick_disk, processes=4, seconds=1.5, mutant=mutant)
    publish(figures(run))
    assert run["errors"] > 0


def test_an_ignored_expected_version_is_detected(
    quick_disk: Path, publish: Callable[[str], None]
) -> None:
    mutant = "ignores_expected_version"
    run = run_apart("share", quick_disk, processes=4, seconds=1.5, mutant=mutant)
    publish(figures(run))
    assert run["counted"] < run["increments"]
