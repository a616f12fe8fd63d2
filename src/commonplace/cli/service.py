"""`commonplace service`: the server as a service of this user, started at login.

The service is a systemd user unit on Linux, a launchd agent on macOS, and a scheduled task on
Windows. The server reads its settings from `config.toml` of its data directory.
"""

from __future__ import annotations

import contextlib
import os
import plistlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from commonplace.cli.options import AsJson, Data, option, unconfigured_database
from commonplace.cli.terminal import emit_json, note, say, tell
from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.text.hidden import escape_hidden

NAME = "commonplace"
LABEL = "org.commonplace.memory"
COMMAND_SECONDS = 30
MARK = "Made by 'commonplace service install'"
NOT_RUNNING = 1

service = typer.Typer(
    help="Run the server as a service of this user, started at login.", rich_markup_mode=None
)
GROUPS = {"service": service}


class ServiceFailed(CommonplaceError):
    """The system's service manager failed or is missing."""

    code = "SERVICE_FAILED"


@dataclass(frozen=True, slots=True)
class Manager:
    """The service manager of a system: the file that describes a service, and its commands."""

    program: str
    file: Path | None
    start: tuple[tuple[str, ...], ...]
    stop: tuple[tuple[str, ...], ...]
    query: tuple[str, ...]


def manager(system: str = sys.platform) -> Manager:
    """Return the service manager of a system."""
    home = Path.home()
    if system == "darwin":
        path = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        target = f"gui/{os.getuid() if hasattr(os, 'getuid') else 0}"
        return Manager(
            "launchctl",
            path,
            start=(("launchctl", "bootstrap", target, str(path)),),
            stop=(("launchctl", "bootout", f"{target}/{LABEL}"),),
            query=("launchctl", "print", f"{target}/{LABEL}"),
        )
    if system == "win32":
        return Manager(
            "schtasks",
            None,
            start=(("schtasks", "/Run", "/TN", NAME),),
            stop=(("schtasks", "/End", "/TN", NAME), ("schtasks", "/Delete", "/F", "/TN", NAME)),
            query=("schtasks", "/Query", "/TN", NAME),
        )
    base = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    unit = f"{NAME}.service"
    user = ("systemctl", "--user")
    return Manager(
        "systemctl",
        base / "systemd" / "user" / unit,
        start=((*user, "daemon-reload"), (*user, "enable", "--now", unit)),
        stop=((*user, "disable", "--now", unit),),
        query=(*user, "is-active", unit),
    )


def service_command(data: Path | None) -> list[str]:
    """Return the command that the service runs."""
    found = shutil.which("commonplace")
    run = [str(Path(found).absolute())] if found else [sys.executable, "-m", "commonplace.cli"]
    return [*run, "serve", *(["--data", str(data.expanduser().absolute())] if data else [])]


def systemd_unit(words: list[str]) -> str:
    """Return the systemd unit."""
    quoted = " ".join(
        '"' + each.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
        + '"' for each in words
    )  # fmt: skip
    return f"""\
# {MARK}; 'commonplace service uninstall' removes it.
[Unit]
Description=Commonplace, a memory for AI agents
After=network.target

[Service]
ExecStart={quoted}
Restart=on-failure
RestartSec=2
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def launchd_agent(words: list[str]) -> str:
    """Return the launchd agent."""
    logs = Path.home() / "Library" / "Logs" / f"{NAME}.log"
    settings = {
        "Label": LABEL,
        "ProgramArguments": words,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "StandardErrorPath": str(logs),
        "Comment": MARK,
    }
    return plistlib.dumps(settings).decode()


@service.command("install")
def install(
    data: Data = None,
    dry_run: Annotated[
        bool, option("--dry-run", "Show the file and the commands, and change nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start the server now and at every login.

    \b
      commonplace service install
    """
    from commonplace.engine.library import directory

    if unconfigured_database(data, {}):
        raise InvalidInput(
            "The service would not use this database: it takes its settings from config.toml.",
            hint=f"Write the address as `database` into {directory(data) / 'config.toml'}.",
            field="database",
        )
    known, words = manager(), service_command(data)
    text = launchd_agent(words) if sys.platform == "darwin" else systemd_unit(words)
    starting = _start_commands(known, words)
    if dry_run:
        if known.file is not None:
            say(f"# {known.file}", text.rstrip())
        say(*(subprocess.list2cmdline(each) for each in starting))
        return
    _check_manager_installed(known)
    former = None
    made: list[Path] = []
    if known.file is not None:
        if known.file.exists():
            former = known.file.read_text(encoding="utf-8")
            if MARK not in former:
                raise InvalidInput(
                    f"{known.file} was not made by Commonplace.",
                    hint="Move or delete the file first.",
                )
        made = _make_folders(known.file.parent)
        known.file.write_text(text, encoding="utf-8")
    try:
        for each in starting:
            _run_checked(each)
    except ServiceFailed:
        if known.file is not None and former is None:
            known.file.unlink()
            with contextlib.suppress(OSError):  # the service manager may have put files there
                for folder in made:
                    folder.rmdir()
        elif known.file is not None and former is not None:
            known.file.write_text(former, encoding="utf-8")
        raise
    place = "" if known.file is None else str(known.file)
    tell(as_json, {"installed": True, "file": place, "command": words}, "the server is running")
    if not as_json:
        note("It starts at every login. Remove it with: commonplace service uninstall")


def _make_folders(folder: Path) -> list[Path]:
    """Create a folder with its parents; return the new ones, the innermost first."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _start_commands(known: Manager, words: list[str]) -> list[tuple[str, ...]]:
    if known.file is not None:
        return list(known.start)
    line = subprocess.list2cmdline(words)
    made = ("schtasks", "/Create", "/F", "/SC", "ONLOGON", "/TN", NAME, "/TR", line)
    return [made, *known.start]


@service.command("status")
def status(as_json: AsJson = False) -> None:
    """Show whether the service is installed and running. Exit code 1 if it is not running."""
    known = manager()
    _check_manager_installed(known)
    running = _run_unchecked(known.query).returncode == 0
    installed = running or (known.file is not None and known.file.exists())
    place = "" if known.file is None or not installed else str(known.file)
    state = "running" if running else "installed, not running" if installed else "not installed"
    tell(as_json, {"installed": installed, "running": running, "file": place}, state)
    if not running:
        raise typer.Exit(NOT_RUNNING)


@service.command("uninstall")
def uninstall(as_json: AsJson = False) -> None:
    """Stop and remove the service. The memories are kept."""
    known = manager()
    _check_manager_installed(known)
    if known.file is None:
        if _run_unchecked(known.query).returncode:
            raise NotFound("The service is not installed.")
    elif not known.file.exists():
        raise NotFound("The service is not installed.", hint=f"There is no {known.file}.")
    elif MARK not in known.file.read_text(encoding="utf-8"):
        raise InvalidInput(
            f"{known.file} was not made by Commonplace.", hint="The file was not changed."
        )
    try:
        for each in known.stop:
            _run_checked(each)
    except ServiceFailed:
        # without a user session the service is not running, so only the file is removed
        if known.file is None or _run_unchecked(known.query).returncode == 0:
            raise
    if known.file is not None:
        known.file.unlink()
    if as_json:
        emit_json({"installed": False})
    else:
        say("the service is removed; the memories are kept")


def _check_manager_installed(known: Manager) -> None:
    if shutil.which(known.program) is None:
        raise ServiceFailed(
            f"{known.program} is not installed on this machine.",
            hint="Start 'commonplace serve' in another way. --dry-run shows the commands.",
        )


def _run_unchecked(words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603
            words,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceFailed(f"{words[0]} could not be run: {error}.") from error


def _run_checked(words: tuple[str, ...]) -> None:
    done = _run_unchecked(words)
    if done.returncode:
        said = escape_hidden(" ".join((done.stderr or done.stdout).split()))
        raise ServiceFailed(
            f"'{subprocess.list2cmdline(words)}' failed: {said or done.returncode}.",
            hint="Is this user logged in? Without a service manager, run 'commonplace serve'"
            " yourself. 'commonplace service install --dry-run' shows the commands.",
        )
