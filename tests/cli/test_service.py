"""The server as a service: what is written, what is run, and what is taken back."""

from __future__ import annotations

import json
import os
import plistlib
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from commonplace.cli import service
from commonplace.cli.app import run

# A service manager that writes down how it was called, and fails when it is told to.
PROGRAM = """#!/bin/sh
echo "$@" >> "$LOG"
test -n "$MAKES" && mkdir -p "$MAKES"
case " $1 $2 " in *" ${FAIL:-none} "*) echo "Failed to connect to bus" >&2; exit 1;; esac
exit 0
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "systemctl"
    program.write_text(PROGRAM)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("FAIL", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COMMONPLACE_DATA", str(tmp_path / "my data"))
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path / "log"


@pytest.fixture
def do(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def act(*args: str) -> tuple[int, str, str]:
        code = run(("service", *args))
        said = capsys.readouterr()
        return code, said.out, said.err

    return act


def test_a_service_is_installed_asked_for_and_removed(
    log: Path, tmp_path: Path, do: Callable[..., tuple[int, str, str]]
) -> None:
    unit = tmp_path / "config" / "systemd" / "user" / "commonplace.service"
    assert do("install")[0] == 0
    text = unit.read_text()
    assert f'"serve" "--data" "{tmp_path}/my data"' in text and "WantedBy=default.target" in text
    assert log.read_text().splitlines() == [
        "--user daemon-reload", "--user enable --now commonplace.service",
    ]  # fmt: skip
    assert do("status") == (0, "running\n", "")
    assert do("install")[0] == 0  # again: the same
    assert unit.read_text() == text
    code, out, _ = do("uninstall", "--json")
    assert code == 0 and json.loads(out) == {"installed": False}
    assert not unit.exists()
    assert log.read_text().splitlines()[-1] == "--user disable --now commonplace.service"
    assert do("uninstall")[0] == 3


@pytest.mark.parametrize("named", ["option", "variable"])
def test_a_database_that_the_service_would_not_use_is_refused(
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    do: Callable[..., tuple[int, str, str]],
    named: str,
) -> None:
    address = "postgresql://commonplace:hunter2@127.0.0.1:1/none"
    if named == "variable":
        monkeypatch.setenv("COMMONPLACE_DATABASE", address)
    more = ("--database", address) if named == "option" else ()
    code, _, told = do("install", *more)
    settings = tmp_path / "my data" / "config.toml"
    assert code == 2 and str(settings) in told and "hunter2" not in told
    assert not log.exists() and not (tmp_path / "config").exists()
    settings.parent.mkdir()
    settings.write_text(f"database = {json.dumps(address)}\n")
    settings.chmod(0o600)
    assert do("install", *more)[0] == 0


def test_a_service_that_does_not_run_is_told(
    log: Path, monkeypatch: pytest.MonkeyPatch, do: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.setenv("FAIL", "is-active")
    assert do("status") == (1, "not installed\n", "")
    do("install")
    assert do("status") == (1, "installed, not running\n", "")
    monkeypatch.setenv("FAIL", "enable")
    code, _, err = do("install")
    assert code == 2 and "Failed to connect to bus" in err


def test_a_failed_installation_leaves_the_file_as_it_was(
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    do: Callable[..., tuple[int, str, str]],
) -> None:
    unit = tmp_path / "config" / "systemd" / "user" / "commonplace.service"
    monkeypatch.setenv("FAIL", "enable")
    code, _, told = do("install")
    assert code == 2 and "run 'commonplace serve' yourself" in told
    assert not (tmp_path / "config").exists()  # no empty folder is left either
    monkeypatch.setenv("MAKES", str(unit.parent / "default.target.wants"))
    code, _, told = do("install")
    assert code == 2 and "run 'commonplace serve' yourself" in told
    monkeypatch.delenv("FAIL")
    assert do("install")[0] == 0
    former = unit.read_text()
    monkeypatch.setenv("FAIL", "enable")
    assert do("install", "--data", "elsewhere")[0] == 2 and unit.read_text() == former


def test_what_no_session_can_stop_is_removed_unless_it_runs(
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    do: Callable[..., tuple[int, str, str]],
) -> None:
    unit = tmp_path / "config" / "systemd" / "user" / "commonplace.service"
    do("install")
    monkeypatch.setenv("FAIL", "disable")
    assert do("uninstall")[0] == 2 and unit.exists()
    monkeypatch.setenv("FAIL", "--user")  # nobody answers
    assert do("uninstall")[0] == 0 and not unit.exists()


def test_a_file_of_somebody_else_is_left_alone(
    log: Path, tmp_path: Path, do: Callable[..., tuple[int, str, str]]
) -> None:
    unit = tmp_path / "config" / "systemd" / "user" / "commonplace.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    assert do("install")[0] == 2
    assert do("uninstall")[0] == 2
    assert unit.read_text() == "[Service]\nExecStart=/bin/true\n"


def test_a_dry_run_and_a_missing_manager_change_nothing(
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    do: Callable[..., tuple[int, str, str]],
) -> None:
    code, out, _ = do("install", "--dry-run")
    assert code == 0 and "systemctl --user enable --now commonplace.service" in out
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    code, _, err = do("install")
    assert code == 2 and "systemctl is not installed" in err
    assert not (tmp_path / "config").exists() and not log.exists()


def test_the_words_of_a_command_are_quoted_for_each_system() -> None:
    words = ["/opt/my app/commonplace", "serve", "--data", 'a "b" 100% $HOME']
    unit = service.systemd_unit(words)
    assert r'ExecStart="/opt/my app/commonplace" "serve" "--data" "a \"b\" 100%% $$HOME"' in unit
    assert plistlib.loads(service.launchd_agent(words).encode())["ProgramArguments"] == words
    assert service.manager("darwin").start[0][:2] == ("launchctl", "bootstrap")
    assert service.manager("win32").file is None
