"""The memory directory as a git repository: a commit before and after each session.

It is a courtesy. Whatever goes wrong is logged, and nothing else depends on it. Nothing that the
repository configures is run: no hook, no filter by a file monitor, no signing.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from commonplace.dialects.clawbrain import documents
from commonplace.dialects.clawbrain.directory import OWN
from commonplace.dialects.clawbrain.strategy import Strategy

NOT_CONTENT = (
    f":(exclude){OWN}", ":(exclude,glob)**/.tmp-*", ":(exclude,glob)**/.swap-*"
)  # fmt: skip
"""The directory's id and lease, which are never those of a copy, and what is being written."""
SECONDS = 30.0
_PLAIN = (
    "-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false",
    "-c", "commit.gpgSign=false", "-c", "gc.auto=0",
    "-c", "user.name=Commonplace", "-c", "user.email=commonplace@localhost",
)  # fmt: skip

log = logging.getLogger(__name__)


def commit(directory: Path, chosen: Strategy, reason: str) -> bool:
    """Commit what changed, if the directory is a repository or the strategy asks for one.

    A directory within a larger repository is left to that one. Says whether there is a commit.
    """
    repository = directory / ".git"
    wanted = chosen.git_commits
    if wanted == "off" or (wanted == "auto" and not repository.exists()):
        return False
    git = shutil.which("git")
    if git is None:
        log.warning("there is no git to commit the memory directory with")
        return False
    try:
        if not repository.exists():
            _run([git, "init", "--quiet", "--template=", os.fspath(directory)], directory)
        base = [git, *_PLAIN, f"--git-dir={repository}", f"--work-tree={directory}"]
        _run([*base, "add", "--all", "--", ".", *NOT_CONTENT], directory)
        if not _run([*base, "status", "--porcelain", "--", ".", *NOT_CONTENT], directory):
            return False
        message = f"session: {reason} ({documents.stamp(datetime.now(UTC))})"
        _run([*base, "commit", "--quiet", "--no-verify", "-m", message], directory)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        log.warning("the memory directory was not committed", extra={"why": str(said)[:500]})
        return False
    return True


def _run(command: list[str], directory: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    ran = subprocess.run(  # noqa: S603 - git, by its full path, with arguments of our own
        command, cwd=directory, env={**clean, "GIT_TERMINAL_PROMPT": "0"}, check=True,
        capture_output=True, text=True, errors="replace", timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return ran.stdout
