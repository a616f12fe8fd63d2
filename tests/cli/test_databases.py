"""`commonplace database`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

import postgres_engine
from commonplace import Commonplace
from commonplace.cli.app import app, run
from conftest import texts


@pytest.fixture
def admin() -> Iterator[str]:
    """The administrator's address of a database without anything in it."""
    server = postgres_engine.server()
    with psycopg.connect(server.admin(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE from_the_command_line")
    yield server.admin("from_the_command_line")
    with psycopg.connect(server.admin(), autocommit=True) as connection:
        connection.execute("DROP DATABASE from_the_command_line WITH (FORCE)")
        connection.execute("DROP ROLE IF EXISTS a_team, a_team_system")


def test_a_database_is_made_ready_and_its_address_shown_once(admin: str) -> None:
    invoke = CliRunner().invoke
    first = invoke(app, ["database", "init", admin, "--role", "a_team"])
    assert first.exit_code == 0, first.output
    address = first.stdout.strip()
    assert address.startswith("postgresql://a_team:")
    assert invoke(app, ["database", "check", address]).stdout == "no problems found\n"
    again = invoke(app, ["database", "init", admin, "--role", "a_team", "--json"])
    told = json.loads(again.stdout)
    assert (told["role_made"], told["steps"]) == (False, 0)
    assert ":" not in told["address"].removeprefix("postgresql://").partition("@")[0]


def test_sql_is_printed_and_nothing_changed(admin: str) -> None:
    printed = CliRunner().invoke(app, ["database", "init", admin, "--print-sql"])
    assert "CREATE TABLE memories" in printed.stdout
    assert "FORCE ROW LEVEL SECURITY" in printed.stdout
    with psycopg.connect(admin) as connection:
        assert connection.execute("SELECT to_regnamespace('commonplace')").fetchone() == (None,)


def test_a_password_comes_from_a_variable(admin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke = CliRunner().invoke
    asked = ["database", "init", admin, "--role", "a_team", "--password-env", "TEAM_PASSWORD"]
    assert invoke(app, asked).exit_code == 2
    monkeypatch.setenv("TEAM_PASSWORD", "p@ss/word")
    assert "//a_team:p%40ss%2Fword@" in invoke(app, asked).stdout


def test_what_is_wrong_is_told_with_an_exit_code(
    admin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoke = CliRunner().invoke
    monkeypatch.delenv("COMMONPLACE_DATABASE", raising=False)
    assert invoke(app, ["database", "check"]).exit_code == 2
    monkeypatch.setenv("COMMONPLACE_DATABASE", admin)
    wrong = invoke(app, ["database", "check", "--json"])
    assert wrong.exit_code == 6
    told = json.loads(wrong.stdout)["problems"]
    assert [each["severity"] for each in told] == ["error", "error"]
    assert "bypass" in told[0]["message"]


def test_the_database_of_config_toml_is_checked(
    admin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COMMONPLACE_DATABASE", raising=False)
    monkeypatch.setenv("COMMONPLACE_DATA", str(tmp_path))
    (tmp_path / "config.toml").write_text(f"database = {json.dumps(admin)}\n")
    (tmp_path / "config.toml").chmod(0o600)
    found = CliRunner().invoke(app, ["database", "check"])
    assert (found.exit_code, "bypass" in found.stdout) == (6, True)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The app's address of an empty database."""
    yield postgres_engine.address_for(tmp_path / "rows")
    postgres_engine.forget(tmp_path)


@pytest.mark.parametrize("named", ["option", "variable", "config"])
def test_commands_use_the_database_that_is_named(
    address: str,
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine = tmp_path / "machine"
    where = ["--data", str(machine)]
    if named == "option":
        where += ["--database", address]
    elif named == "variable":
        monkeypatch.setenv("COMMONPLACE_DATABASE", address)
    else:
        machine.mkdir()
        (machine / "config.toml").write_text(f"database = {json.dumps(address)}\n")
        (machine / "config.toml").chmod(0o600)
    assert run(["search", "otter", "--space", "team", *where]) == 3
    assert "no space team in PostgreSQL at" in capsys.readouterr().err
    assert run(["remember", "an otter", "--space", "team", *where]) == 0
    assert run(["search", "otter", "--space", "team", *where]) == 0
    assert "an otter" in capsys.readouterr().out
    assert run(["token", "create", "--dialect", "commonplace", "--space", "team", *where]) == 0
    assert run(["audit", "verify", "--system", *where]) == 0
    assert "chain intact" in capsys.readouterr().out
    assert not (machine / "spaces").exists() and not (machine / "system.db").exists()
    with Commonplace(address, space="team", embedding="none") as memory:
        assert texts(memory.browse()) == ["an otter"]


def test_a_command_says_what_is_wrong_with_the_database(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    where = ["--data", str(tmp_path), "--database", "postgresql://127.0.0.1:1/none"]
    assert run(["remember", "x", *where]) == 5
    assert "does not answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    "raised",
    [
        "ModuleNotFoundError(\"No module named 'psycopg'\", name='psycopg')",
        "ImportError('no pq wrapper available')",  # psycopg without libpq
    ],
)
def test_a_driver_that_is_not_there_is_one_clear_error(
    raised: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [*sys.modules]:
        if name.startswith(("psycopg.", "commonplace.storage.postgres.")) or name == "psycopg":
            monkeypatch.delitem(sys.modules, name)
    (tmp_path / "psycopg").mkdir()
    (tmp_path / "psycopg" / "__init__.py").write_text(f"raise {raised}")
    monkeypatch.syspath_prepend(tmp_path)
    address, files = "postgresql://commonplace@db.example.com/commonplace", tmp_path / "files"
    machine = ["--data", str(tmp_path / "machine")]
    with Commonplace(files, embedding="none") as memory:
        memory.remember("an otter")
    for command in (
        ["remember", "x", "--database", address, *machine],
        ["serve", "--port", "0", "--database", address, *machine],
        ["mcp", "--in-process", "--database", address, *machine],
        ["move", str(files), address, *machine],
        ["database", "init", address],
        ["database", "check", address],
    ):
        assert run(command) == 5, command
        assert "commonplace-memory[postgres]" in capsys.readouterr().err
