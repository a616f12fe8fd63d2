"""Commit the memory directory to git at the start and the end of each session.

Errors are only logged. The commits do not run programs that the repository configures (hooks, file
monitors, signing).
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from commonplace.dialects.clawbrain import documents
from commonplace.dialects.clawbrain.directory import STATE_FOLDER
from commonplace.dialects.clawbrain.strategy import Strategy

EXCLUDED_PATHS = (
    f":(exclude){STATE_FOLDER}", ":(exclude,glob)**/.tmp-*", ":(exclude,glob)**/.swap-*"
)  # fmt: skip
"""The directory's id and lock file, and files that are being written, are not committed."""
SECONDS = 30.0
_GIT_OPTIONS = (
    "-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false",
    "-c", "commit.gpgSign=false", "-c", "gc.auto=0",
    "-c", "user.name=Commonplace", "-c", "user.email=commonplace@localhost",
)  # fmt: skip

log = logging.getLogger(__name__)


def commit(directory: Path, chosen: Strategy, reason: str) -> bool:
    """Commit all changes if the strategy allows it; return whether a commit was made.

    With `git_commits: auto`, the directory must itself be the root of a repository.
    """
    repository = directory / ".git"
    wanted = chosen.git_commits
    if wanted == "off" or (wanted == "auto" and not repository.exists()):
        return False
    git = shutil.which("git")
    if git is None:
        log.warning("git is not installed; the memory directory was not committed")
        return False
    try:
        if not repository.exists():
            _run_git([git, "init", "--quiet", "--template=", os.fspath(directory)], directory)
        base = [git, *_GIT_OPTIONS, f"--git-dir={repository}", f"--work-tree={directory}"]
        _run_git([*base, "add", "--all", "--", ".", *EXCLUDED_PATHS], directory)
        if not _run_git([*base, "status", "--porcelain", "--", ".", *EXCLUDED_PATHS], directory):
            return False
        message = f"session: {reason} ({documents.stamp(datetime.now(UTC))})"
        _run_git([*base, "commit", "--quiet", "--no-verify", "-m", message], directory)
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or str(error)
        log.warning("the memory directory was not committed", extra={"why": str(output)[:500]})
        return False
    return True


def _run_git(command: list[str], directory: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    ran = subprocess.run(  # noqa: S603 - git, by its full path, with arguments of our own
        command, cwd=directory, env={**clean, "GIT_TERMINAL_PROMPT": "0"}, check=True,
        capture_output=True, text=True, errors="replace", timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return ran.stdout
