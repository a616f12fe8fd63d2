"""Finds the project of a directory.

The name is the same for every worktree and every clone of a repository. Git's files are read
directly, since hooks need the project at every prompt; the program `git` runs only for a repository
without a remote.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from commonplace.engine.content.projects import NAME_CHARS, Project
from commonplace.errors import InvalidInput

SETTINGS_FILE = ".commonplace.toml"
PROJECT_VARIABLE = "COMMONPLACE_PROJECT"
NO_PROJECT = "-"
"""The value of the variable, or of --project, that means no project."""
GIT_SECONDS = 5.0
# Hosts where the names of repositories are case-insensitive.
CASELESS_HOSTS = ("github.com", "gitlab.com", "bitbucket.org", "codeberg.org")
_SCP = re.compile(r"(?:[^@/\s]+@)?([A-Za-z0-9._-]{2,}|\[[0-9a-fA-F:]+\]):(?!//)(.+)")
_REMOTE = re.compile(r'\[\s*remote\s+"origin"\s*\]', re.IGNORECASE)
_URL = re.compile(r'\s*url\s*=\s*(?:"([^"]*)"|([^"#;]*))', re.IGNORECASE)
_REFTABLE_BRANCH = ".invalid"  # in the file HEAD of a repository whose branches are in a table


def project_here(
    name: str | None = None,
    directory: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Project | None:
    """Return the project of that name, or of the working directory; None outside of any."""
    try:
        here = project_of(Path.cwd() if directory is None else directory, environ)
    except FileNotFoundError:  # the working directory was deleted
        here = None
    if name is None or (here is not None and here.name == name):
        return here
    return Project(name)


def project_of(
    directory: str | Path,
    environ: Mapping[str, str] | None = None,
    *,
    any_directory: bool = False,
    with_settings: bool = True,
) -> Project | None:
    """Return the project of a working directory; None if memories stored there are global.

    With `any_directory`, a directory outside of repositories is a project named by its path. The
    home directory is global. Without `with_settings`, settings files are ignored.
    """
    environ = os.environ if environ is None else environ
    where = Path(os.path.realpath(directory))
    home = Path(os.path.realpath(Path.home()))
    outside = {home, *home.parents}  # settings files and repositories there are ignored
    upward = [each for each in (where, *where.parents) if each not in outside]
    repository = next(filter(None, map(_git_directory, upward)), None)
    branch = _branch(repository) if repository else ""
    if given := environ.get(PROJECT_VARIABLE, "").strip():
        return None if given == NO_PROJECT else Project(given, branch)
    for parent in upward if with_settings else ():
        if (name := _project_in_settings(parent / SETTINGS_FILE)) is not None:
            return Project(name, branch)
    if repository is not None:
        return Project(_repository_name(str(_shared_git_directory(repository))), branch)
    return Project(_shorten(str(where))) if any_directory and where not in outside else None


def project_of_session(
    directory: str | Path, environ: Mapping[str, str] | None = None
) -> Project | None:
    """Return the project of an agent's session; None if it is global.

    An invalid name in a settings file or variable is ignored, since nobody would see the error, and
    what was said in one project must not be found in all. For the same reason, a path of another
    system, such as `C:/x` on Linux, is a project of its own, not one of the working directory.
    """
    if not Path(directory).is_absolute() and not named_project(environ):
        return Project(_shorten(str(directory)))
    try:
        return project_of(directory, environ, any_directory=True)
    except InvalidInput:
        return project_of(directory, {}, any_directory=True, with_settings=False)


def named_project(environ: Mapping[str, str] | None = None) -> str:
    """Return the project that the variable names, or `NO_PROJECT`; empty if it names no valid
    one."""
    given = (os.environ if environ is None else environ).get(PROJECT_VARIABLE, "").strip()
    return given if len(given) <= NAME_CHARS else ""


def _project_in_settings(path: Path) -> str | None:
    """Return the project in a settings file; None if there is no file or no project in it."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError, PermissionError, IsADirectoryError):
        return None
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{path} is not UTF-8: {error}.", hint="Save it as UTF-8.", field="project"
        ) from None
    import tomllib

    try:
        name = tomllib.loads(text).get("project")
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(
            f"{path} is not valid TOML: {error}.", hint='Write: project = "name".', field="project"
        ) from None
    if name is None:
        return None
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(
            f"project in {path} is not a name.", hint='Write: project = "name".', field="project"
        )
    return name.strip()


def _git_directory(directory: Path) -> Path | None:
    """Return the Git directory of a working tree with this root, also of a worktree or
    submodule."""
    marker = directory / ".git"
    if marker.is_dir():
        return marker if (marker / "HEAD").exists() else None
    try:
        text = marker.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if not text.startswith("gitdir:"):
        return None
    found = directory / text.removeprefix("gitdir:").strip()
    return found if (found / "HEAD").exists() else None


def _shared_git_directory(repository: Path) -> Path:
    """Return the Git directory that all worktrees of a repository share."""
    try:
        shared = (repository / "commondir").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return Path(os.path.realpath(repository))
    return Path(os.path.realpath(repository / shared))


def _branch(repository: Path) -> str:
    """Return the checked-out branch; empty for a detached HEAD, or if only Git can tell."""
    try:
        head = (repository / "HEAD").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    branch = head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else ""
    return "" if branch == _REFTABLE_BRANCH else branch


def _repository_name(common: str) -> str:
    """Return the name of a repository: its remote, or its first commit, or its path."""
    remote = normalise_remote(_origin_url(Path(common) / "config"))
    if remote:
        return _shorten(remote)
    root = _root_commit(common) if _has_refs(common) else ""
    return f"git:{root}" if root else _shorten(str(Path(common).parent))


def _origin_url(config: Path) -> str:
    """Return the URL of the remote `origin`; empty if there is none."""
    try:
        lines = config.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    inside = False
    for line in lines:
        if line.lstrip().startswith("["):
            inside = bool(_REMOTE.match(line.strip()))
        elif inside and (found := _URL.match(line)):
            return (found[1] or found[2] or "").strip()
    return ""


def normalise_remote(url: str) -> str:
    """Return a remote's URL as host/path; empty for a path on this machine.

    Credentials, the port and `.git` are removed; scp, ssh and https URLs give the same name.
    """
    if "://" in url:
        try:
            parts = urlsplit(url)
            host, path = parts.hostname or "", parts.path
        except ValueError:
            return ""
        if parts.scheme == "file":
            return ""
    elif scp := _SCP.fullmatch(url):
        host, path = scp[1].strip("[]").lower(), scp[2]
    else:
        return ""
    path = re.sub(r"/{2,}", "/", path).strip("/").removesuffix(".git").strip("/")
    if host in CASELESS_HOSTS:
        path = path.lower()
    return f"{host}/{path}" if host and path else ""


def _has_refs(common: str) -> bool:
    """Return whether a repository has a branch or tag, and so a commit; a new one has none yet."""
    packed = (Path(common) / "packed-refs").exists()
    return packed or any(names for _, _, names in os.walk(Path(common) / "refs"))


@lru_cache(maxsize=256)
def _root_commit(common: str) -> str:
    """Return the hash of the oldest commit without a parent; empty if there is none.

    All branches are searched, so that an orphan branch does not change the name.
    """
    import subprocess

    try:
        done = subprocess.run(  # noqa: S603
            ["git", f"--git-dir={common}", "rev-list", "--max-parents=0", "--all", "--timestamp"],  # noqa: S607
            capture_output=True, text=True, timeout=GIT_SECONDS, check=True,
            env={**os.environ, "GIT_DIR": common, "GIT_OPTIONAL_LOCKS": "0"},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    roots = [line.split() for line in done.stdout.splitlines()]
    return min(((int(at), name) for at, name in roots), default=(0, ""))[1]


def _shorten(name: str) -> str:
    """Return the name; if it is too long, return a digest of it and its end."""
    raw = name.encode("utf-8", "surrogateescape")
    shown = raw.decode("utf-8", "replace")
    if shown == name and len(name) <= NAME_CHARS:
        return name
    return f"{hashlib.sha256(raw).hexdigest()[:16]}:{shown[-(NAME_CHARS - 17) :]}"
