"""Other systems: names that no system minds, and folders that cannot be opened."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from commonplace.dialects.clawbrain import directory

from .brain import Brain, Refused
from .test_agreement import BothSides, disagreements

DEVICES = ("con", "prn", "aux", "nul", "com1", "com9", "lpt1")


@pytest.fixture
def by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are reached by their paths, as on Windows."""
    monkeypatch.setattr(directory, "HAS_DIR_FD", False)


@pytest.mark.parametrize("name", DEVICES)
def test_a_name_that_is_a_device_on_windows_is_refused(brain: Brain, name: str) -> None:
    with pytest.raises(Refused, match="reserves for a device"):
        brain.store(name)
    assert brain.paths() == []
    assert brain.store(f"{name}-notes")


def test_a_file_with_the_name_of_a_device_is_left_alone_and_told(brain: Brain) -> None:
    brain.store()
    path = brain.file("entities/people/con.md")
    path.write_text(brain.file("entities/people/alice-chen.md").read_text())

    brain.sync()

    assert "device" in brain.problems["entities/people/con.md"]
    assert path.exists()


def test_a_long_name_is_archived_again_wherever_it_is_cut(brain: Brain) -> None:
    for length in range(170, 180):
        name = f"{'a' * length}-{'b' * (199 - length)}"
        kept = []
        for _ in range(3):
            identity = brain.store(name, "x", category="projects")
            kept.append(brain.call("memory_delete", id=identity)["archive_path"])
        assert len(set(kept)) == 3
        assert all(brain.file(path).exists() for path in kept)
    assert disagreements(brain) == []


@pytest.mark.usefixtures("by_path")
def test_files_and_rows_agree_where_folders_have_no_descriptors() -> None:
    run_state_machine_as_test(
        BothSides,
        settings=settings(
            max_examples=4, stateful_step_count=12, deadline=None, derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


@pytest.mark.usefixtures("by_path")
def test_links_are_not_followed_there_either(brain: Brain, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    brain.store()
    secret = outside / "secret.md"
    secret.write_text(brain.file("entities/people/alice-chen.md").read_text())
    brain.file("entities/people/linked.md").symlink_to(secret)
    brain.file("entities/projects").symlink_to(outside)

    assert brain.call("credit_report")["total_memories"] == 1
    with pytest.raises(Refused):
        brain.store("plan", category="projects")
    assert [path.name for path in outside.iterdir()] == ["secret.md"]


WINDOWS = textwrap.dedent(
    """
    import errno, os, sys, types
    from pathlib import Path

    import fcntl  # what msvcrt does there is done by it here
    real = dict((name, getattr(os, name)) for name in ("open", "rename", "scandir", "utime"))
    for name in ("O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_CLOEXEC"):
        delattr(os, name)
    os.supports_dir_fd.clear()
    os.supports_fd.clear()

    def by_path_only(name):
        def call(path, *arguments, **named):
            if isinstance(path, int):
                raise NotImplementedError(name + " by descriptor")
            return real[name](path, *arguments, **named)
        return call

    def opening(path, flags, mode=0o777, *, dir_fd=None):
        if dir_fd is not None:
            raise NotImplementedError("open by descriptor")
        if os.path.isdir(path) and "memory" in Path(path).parts:
            raise PermissionError(errno.EACCES, "a directory cannot be opened")
        return real["open"](path, flags, mode)

    def renaming(old, new, *, src_dir_fd=None, dst_dir_fd=None):
        if src_dir_fd is not None:
            raise NotImplementedError("rename by descriptor")
        if os.path.exists(new):
            raise FileExistsError(errno.EEXIST, "it exists")
        return real["rename"](old, new)

    def locking(descriptor, mode, size):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    sys.path.insert(0, {tests!r})
    from clawbrain.brain import opened
    from commonplace.dialects.clawbrain import directory
    assert not directory.HAS_DIR_FD
    os.open, os.rename = opening, renaming
    os.scandir, os.utime = by_path_only("scandir"), by_path_only("utime")
    sys.modules["fcntl"] = None
    sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)

    root = Path(sys.argv[1])
    with opened(root / "data", root / "memory") as brain:
        identity = brain.store("alice", "She bakes.")
        file = root / "memory/entities/people/alice.md"
        brain.call("memory_update", id=identity, content="She reads.")
        file.write_text(file.read_text().replace("reads", "sails"))
        assert brain.call("memory_retrieve", id=identity)["content"] == "She sails."
        assert directory.Directory(root / "memory").lock() is None
        assert brain.call("memory_compact")["details"] == []
    with opened(root / "data", root / "memory") as brain:
        assert brain.call("memory_search", query="sails")["total_matches"] == 1
        brain.call("memory_delete", id=identity)
        assert brain.paths() == ["archive/entities/people/alice.md"]
    print("done")
    """
)


def test_a_system_like_windows_keeps_files_too(tmp_path: Path) -> None:
    script = tmp_path / "windows.py"
    script.write_text(WINDOWS.format(tests=str(Path(__file__).parents[1])))
    ran = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, timeout=120
    )
    assert ran.stdout == "done\n", ran.stderr
