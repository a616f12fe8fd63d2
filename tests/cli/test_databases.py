"""`commonplace database`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest
from typer.testing import CliRunner

import postgres_engine
from commonplace.cli.app import app


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
    run = CliRunner().invoke
    first = run(app, ["database", "init", admin, "--role", "a_team"])
    assert first.exit_code == 0, first.output
    address = first.stdout.strip()
    assert address.startswith("postgresql://a_team:")
    assert run(app, ["database", "check", address]).stdout == "nothing is wrong\n"
    again = run(app, ["database", "init", admin, "--role", "a_team", "--json"])
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
    run = CliRunner().invoke
    asked = ["database", "init", admin, "--role", "a_team", "--password-env", "TEAM_PASSWORD"]
    assert run(app, asked).exit_code == 2
    monkeypatch.setenv("TEAM_PASSWORD", "p@ss/word")
    assert "//a_team:p%40ss%2Fword@" in run(app, asked).stdout


def test_what_is_wrong_is_told_with_an_exit_code(
    admin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CliRunner().invoke
    monkeypatch.delenv("COMMONPLACE_DATABASE", raising=False)
    assert run(app, ["database", "check"]).exit_code == 2
    monkeypatch.setenv("COMMONPLACE_DATABASE", admin)
    wrong = run(app, ["database", "check", "--json"])
    assert wrong.exit_code == 6
    told = json.loads(wrong.stdout)["problems"]
    assert [each["severity"] for each in told] == ["error", "error"]
    assert "bypass" in told[0]["message"]
