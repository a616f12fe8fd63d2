"""Spaces share tables: what keeps one from another's rows when a statement forgets to."""

from __future__ import annotations

import psycopg
import pytest

import postgres_engine
from commonplace import Commonplace
from commonplace.engine.binding import lease
from commonplace.errors import CommonplaceError, NotFound
from commonplace.storage.postgres import rows as rows_module
from commonplace.storage.postgres.schema import SPACES_PART, SYSTEM_PART
from commonplace.storage.postgres.store import transaction
from conftest import texts

TABLES = ("memories", "head", "operations", "lexemes", "labels", "grams")


def test_a_statement_without_its_space_sees_no_other_spaces_rows(team: Commonplace) -> None:
    other = team.at("other")
    team.remember("ours", tags=["a"])
    other.remember("theirs", tags=["b"])
    with lease(team) as space, space.store.read() as rows:
        for table in TABLES:
            found = rows.execute(f"SELECT DISTINCT space FROM {table}").fetchall()
            assert found == [("team",)], table


def test_nobody_writes_into_another_space(team: Commonplace) -> None:
    team.at("other").remember("theirs")
    with pytest.raises(CommonplaceError), lease(team) as space, space.store.maintain() as rows:
        rows.execute("UPDATE head SET space = 'other' WHERE space = 'team'")
    with lease(team) as space, space.store.maintain() as rows:
        assert rows.execute("DELETE FROM memories RETURNING num").fetchall() == []
    assert texts(team.at("other").browse()) == ["theirs"]


def test_a_transaction_that_names_no_space_sees_nothing(team: Commonplace) -> None:
    team.remember("ours")
    with transaction(team.library._spaces._pool, SPACES_PART, "") as rows:
        for table in TABLES:
            assert rows.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)]


def test_credentials_are_out_of_reach_of_a_spaces_transaction(team: Commonplace) -> None:
    pool = team.library._spaces._pool
    with transaction(pool, SYSTEM_PART, "system") as rows:
        assert rows.execute("SELECT count(*) FROM credentials").fetchall() == [(0,)]
    with (
        pytest.raises(CommonplaceError, match="lacks a permission"),
        transaction(pool, SPACES_PART, "team") as rows,
    ):
        rows.execute("SELECT count(*) FROM commonplace_system.credentials")


def test_the_setting_of_one_transaction_is_gone_in_the_next(team: Commonplace) -> None:
    team.remember("ours")
    connection = team.library._spaces._pool.take()
    try:
        found = connection.execute("SELECT current_setting('commonplace.space', true)").fetchone()
        assert found in [("",), (None,)]
    finally:
        team.library._spaces._pool.give_back(connection)


def test_queries_that_forget_their_space_are_answered_as_before(
    team: Commonplace, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make test-postgres` runs the whole isolation matrix like this."""
    other = team.at("other")
    mine = team.remember("ours by the river", tags=["a"], ref="one")
    theirs = other.remember("theirs by the river", tags=["b"], ref="two")
    other.links.add(theirs.id, other.remember("another").id, "near")
    other.facts.add("river", "has", "otters")
    stripped: list[str] = []
    written = rows_module.translated_statement

    def careless(statement: str) -> str:
        text = postgres_engine.without_space(written(statement))
        if text != written(statement):
            stripped.append(text)
        return text

    monkeypatch.setattr(rows_module, "translated_statement", careless)
    team.library.drop("team")  # what was read before is not known any more
    assert texts(team.browse()) == ["ours by the river"]
    assert texts(team.recall("river")) == ["ours by the river"]
    assert list(team.facts.query("river")) == []
    assert team.get(mine.id).text == "ours by the river"
    with pytest.raises(NotFound):
        team.get(theirs.id)
    assert len(stripped) > 2
    statement = "SELECT text FROM commonplace.memories WHERE CAST(%s AS TEXT) IS NOT NULL"
    with psycopg.connect(address.replace("//commonplace@", "//admin@")) as connection:
        found = connection.execute(statement, ("team",)).fetchall()
    assert len(found) == 3, "without row-level security such a query shows all spaces"
