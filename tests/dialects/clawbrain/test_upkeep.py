"""What happens by itself: compaction on a schedule, and commits of the directory."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from commonplace.dialects.clawbrain import commits, file_sync, lifecycle
from commonplace.dialects.clawbrain.strategy import Strategy, parse
from conftest import wait_until

from .brain import Brain, opened

ON = Strategy(automatic_compaction=True)


def two_episodes(brain: Brain, *names: str) -> None:
    for name in names or ("one", "two"):
        brain.store(name, f"# {name}", type="episode", tags=["auth"])


def episodes(brain: Brain) -> list[str]:
    return [path for path in brain.paths() if path.startswith("episodes/")]


def test_compaction_runs_by_itself_only_where_the_strategy_asks_for_it(tmp_path: Path) -> None:
    with opened(tmp_path / "data", tmp_path / "memory") as brain:
        two_episodes(brain)
        file_sync._running_syncs[brain.library].space_files("default").run_maintenance()
        assert len(episodes(brain)) == 2

        brain.file("STRATEGY.md").write_text("automatic_compaction: on\n")
        file_sync._running_syncs[brain.library].space_files("default").run_maintenance()

        assert [Path(path).stem for path in episodes(brain)] == ["one-merged"]
        assert "one-merged" in brain.file("MEMORY.md").read_text()
        operation = brain.memory.history.operations(limit=1)[0]
        assert operation.origin.tool == "clawbrain_upkeep"
        brain.memory.undo(operation.id)
        wait_until(lambda: len(episodes(brain)) == 2)


def test_the_watcher_looks_soon_after_the_start(tmp_path: Path) -> None:
    with opened(tmp_path / "data", tmp_path / "memory") as brain:
        two_episodes(brain)
        brain.file("STRATEGY.md").write_text("automatic_compaction: on\n")
    with opened(tmp_path / "data", tmp_path / "memory") as brain:
        wait_until(lambda: len(episodes(brain)) == 1)


def test_each_step_runs_when_its_time_has_come(brain: Brain) -> None:
    with brain.paused():
        at = datetime.now(UTC)

        def ran(after: timedelta) -> list[str]:
            before = brain.memory.events.all(kind=lifecycle.SCHEDULED_RUN, limit=1_000)
            lifecycle.compact_if_due(brain.memory, ON, set(), at + after)
            events = brain.memory.events.all(kind=lifecycle.SCHEDULED_RUN, limit=1_000)
            return sorted(event.subject for event in events[len(before) :])

        assert ran(timedelta()) == ["consolidate", "promote", "prune"]
        assert ran(timedelta(hours=23)) == []
        assert ran(timedelta(hours=25)) == ["consolidate"]
        assert ran(timedelta(hours=49)) == ["consolidate", "promote"]
        assert ran(timedelta(days=7, hours=1)) == ["consolidate", "promote", "prune"]


def test_a_step_that_is_not_due_does_nothing(brain: Brain) -> None:
    with brain.paused():
        two_episodes(brain)
        report = lifecycle.compact(brain.memory, ON, set(), ["prune"])
        assert report.consolidated == 0
        assert lifecycle.compact(brain.memory, ON, set(), ["consolidate"]).consolidated == 1


@pytest.mark.parametrize("said", ["yes", "1", ""])
def test_a_wrong_switch_is_named_and_stays_off(said: str) -> None:
    chosen = parse(f"automatic_compaction: {said}\ngit_commits: {said}\n")

    assert (chosen.automatic_compaction, chosen.git_commits) == (False, "auto")
    assert len(chosen.problems) == (2 if said else 0)


def git(directory: Path, *command: str) -> str:
    where = shutil.which("git")
    assert where is not None, "git is needed for this test"
    ran = subprocess.run(
        [where, "-C", str(directory), *command], capture_output=True, text=True, check=True
    )
    return ran.stdout


def subjects(directory: Path) -> list[str]:
    return [line.split(" (")[0] for line in git(directory, "log", "--format=%s").splitlines()]


def test_a_directory_that_is_a_repository_is_committed_before_and_after(tmp_path: Path) -> None:
    files = tmp_path / "memory"
    files.mkdir()
    git(files, "init", "-q")
    hook = files / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    hook.chmod(0o755)
    (files / "notes.txt").write_text("mine")

    with opened(tmp_path / "data", files) as brain:
        assert subjects(files) == ["session: start"]
        brain.store()

    assert subjects(files) == ["session: end", "session: start"]
    assert not (tmp_path / "ran").exists(), "hooks are not run"
    kept = git(files, "ls-files").splitlines()
    assert "entities/people/alice-chen.md" in kept
    assert not [path for path in kept if path.startswith(".commonplace")]
    with opened(tmp_path / "data", files) as brain:
        assert subjects(files)[0] == "session: end", "nothing changed in between"
        brain.call("memory_delete", id="entity-people-alice-chen")
    assert "archive/entities/people/alice-chen.md" in git(files, "ls-files").splitlines()


def test_a_larger_repository_is_left_alone_and_so_is_a_plain_directory(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    with opened(tmp_path / "data", tmp_path / "memory") as brain:
        brain.store()

    assert git(tmp_path, "status", "--porcelain").count("A ") == 0
    assert not (tmp_path / "memory" / ".git").exists()


def test_the_strategy_can_ask_for_a_repository_and_forbid_commits(tmp_path: Path) -> None:
    files = tmp_path / "memory"
    files.mkdir()
    (files / "STRATEGY.md").write_text("git_commits: on\n")
    with opened(tmp_path / "data", files):
        assert subjects(files) == ["session: start"]
        (files / "STRATEGY.md").write_text("git_commits: off\n")
    assert subjects(files) == ["session: start"]


def test_a_broken_repository_and_a_missing_git_fail_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "memory"
    files.mkdir()
    (files / ".git").write_text("gitdir: /nowhere\n")
    with opened(tmp_path / "data", files) as brain:
        assert brain.store()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commits.commit(files, Strategy(git_commits="on"), "start") is False
    with opened(tmp_path / "data", files) as brain:
        assert brain.call("memory_retrieve", id="entity-people-alice-chen")
