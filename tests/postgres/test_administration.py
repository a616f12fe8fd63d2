"""Setting a database up, and what is refused: each with one clear error, and nothing changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import postgres_engine
from commonplace import Commonplace
from commonplace.errors import (
    CommonplaceError,
    InvalidInput,
    StorageUnavailable,
    UnsupportedVersion,
)
from commonplace.storage.postgres import administration, schema
from commonplace.storage.postgres.connections import Pool
from conftest import texts


@pytest.fixture
def admin() -> Iterator[str]:
    """The administrator's address of a database without anything in it."""
    server = postgres_engine.server()
    with psycopg.connect(server.admin(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE bare")
    yield server.admin("bare")
    with psycopg.connect(server.admin(), autocommit=True) as connection:
        connection.execute("DROP DATABASE bare WITH (FORCE)")


def _over_tcp(address: str, password: str) -> str:
    server = postgres_engine.server()
    return f"postgresql://commonplace:{password}@127.0.0.1:{server.port}/{_name(address)}"


def _name(address: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(address)["dbname"])


def _problems(address: str) -> list[str]:
    return [problem.message for problem in administration.problems(address)]


def _refused(address: str) -> CommonplaceError:
    with pytest.raises(CommonplaceError) as raised, Commonplace(address, embedding="none"):
        pass
    return raised.value


def test_a_bare_database_is_made_ready_once_and_stays_as_it_is(admin: str) -> None:
    first = administration.set_up(admin, "commonplace")
    assert first.steps == sum(map(len, schema.STEPS.values()))
    again = administration.set_up(admin, "commonplace")
    assert (again.steps, again.role_made) == (0, False)
    assert _problems(first.address) == []
    with Commonplace(first.address, embedding="none") as memory:
        memory.remember("kept")
    administration.set_up(admin, "commonplace")
    with Commonplace(first.address, embedding="none") as memory:
        assert texts(memory.browse()) == ["kept"]


def test_a_new_role_has_the_password_that_the_address_names(admin: str) -> None:
    prepared = administration.set_up(admin, "another_team")
    assert prepared.role_made
    password = prepared.address.split(":")[2].split("@")[0]
    tcp = _over_tcp(admin, password).replace("//commonplace:", "//another_team:")
    assert _problems(tcp) == []


def test_an_address_may_say_the_same_in_parameters(admin: str) -> None:
    """An address without a host, as it is usual on the machine of the database itself."""
    other = admin.replace("//admin@/", "///") + "&user=admin&password=hunter2&pool=2"
    prepared = administration.set_up(other, "yet_another", "secret")
    assert "hunter2" not in prepared.address and "user=admin" not in prepared.address
    known = psycopg.conninfo.conninfo_to_dict(prepared.address.replace("&pool=2", ""))
    assert (known["user"], known["password"]) == ("yet_another", "secret")
    assert _problems(prepared.address) == []
    named = prepared.address.replace("//yet_another:secret@/", "///") + "&user=yet_another"
    assert _problems(named) == []


def test_parameters_are_passed_on_as_they_are_written(address: str) -> None:
    given = f"{address}&options=-c%20geqo%3Doff&application_name=a%2Bb%20c&connect_timeout=3"
    with psycopg.connect(Pool(given).address) as plain:
        expected = plain.execute("SHOW application_name").fetchone()
    pool = Pool(f"{given}&prepare=off")
    connection = pool.take()
    try:
        assert connection.execute("SHOW geqo").fetchone() == ("off",)
        assert expected == ("a+b c",)
        assert connection.info.get_parameters()["connect_timeout"] == "3"
    finally:
        pool.give_back(connection)
        pool.close()


def test_the_printed_script_does_what_setting_up_does(admin: str) -> None:
    text = administration.setup_script(admin, "commonplace")
    with psycopg.connect(admin, autocommit=True) as connection:
        assert connection.execute("SELECT to_regnamespace('commonplace')").fetchone() == (None,)
        connection.execute(text)
    assert _problems(admin.replace("//admin@", "//commonplace@")) == []
    assert administration.set_up(admin, "commonplace").steps == 0


@pytest.mark.parametrize("role", ["", "Team", "a b", "x" * 52, 'a"; DROP ROLE b'])
def test_a_role_that_cannot_be_named_is_refused(admin: str, role: str) -> None:
    with pytest.raises(InvalidInput):
        administration.set_up(admin, role)


@pytest.mark.parametrize(
    ("address", "kind", "says"),
    [
        ("postgresql://127.0.0.1:1/none", StorageUnavailable, "does not answer"),
        ("postgresql://%zz", InvalidInput, "not the URL"),
        ("postgresql://x/y?nonsense=1", InvalidInput, "not the URL"),
        ("postgresql://x/y?pool=0", InvalidInput, "1 to 1000"),
    ],
)
def test_a_bad_address_is_one_clear_error(
    address: str, kind: type[CommonplaceError], says: str
) -> None:
    error = _refused(address)
    assert type(error) is kind
    assert says in error.message and error.hint


def test_a_wrong_password_and_a_missing_database_are_told_apart(address: str) -> None:
    assert "password" in _refused(_over_tcp(address, "wrong")).message
    missing = address.replace(_name(address), "not_there")
    assert "no such database" in _refused(missing).message


def test_no_password_is_ever_shown(address: str) -> None:
    assert "hunter2" not in str(_refused(_over_tcp(address, "hunter2")))
    assert "hunter2" not in str(_refused("postgresql://a:hunter2@127.0.0.1:1/none"))


def test_an_administrator_and_an_owner_are_no_users(admin: str) -> None:
    user = admin.replace("//admin@", "//commonplace@")
    assert "Tables are missing" in _refused(user).message
    administration.set_up(admin, "commonplace")
    assert "bypass row-level security" in _refused(admin).message
    with psycopg.connect(admin) as connection:
        connection.execute("ALTER TABLE commonplace.memories OWNER TO commonplace")
    assert "owns the tables" in _refused(user).message


def test_a_table_without_row_level_security_is_found(admin: str) -> None:
    user = administration.set_up(admin, "commonplace").address
    with psycopg.connect(admin) as connection:
        connection.execute("ALTER TABLE commonplace.links NO FORCE ROW LEVEL SECURITY")
    assert "links" in _refused(user).message


@pytest.mark.parametrize(("change", "kind"), [(1, UnsupportedVersion), (-1, StorageUnavailable)])
def test_tables_of_another_version_are_refused_at_the_start_and_while_running(
    address: str, tmp_path: Path, change: int, kind: type[CommonplaceError]
) -> None:
    with (
        psycopg.connect(address.replace("//commonplace@", "//admin@"), autocommit=True) as admin,
        Commonplace(address, embedding="none") as running,
    ):
        running.remember("before")
        update = (
            "UPDATE commonplace.schema_version SET version = version + %s, oldest = version + %s"
        )
        admin.execute(update, (change, change))
        try:
            assert "schema version" in _refused(address).message
            with pytest.raises(kind):
                running.remember("after")
        finally:
            admin.execute(update, (-change, -change))
        assert texts(running.browse()) == ["before"]


@pytest.mark.parametrize("change", [1, -1])
def test_the_tables_of_credentials_must_have_this_version_too(address: str, change: int) -> None:
    with psycopg.connect(address.replace("//commonplace@", "//admin@"), autocommit=True) as admin:
        update = (
            "UPDATE commonplace_system.schema_version"
            " SET version = version + %s, oldest = version + %s"
        )
        admin.execute(update, (change, change))
        try:
            (message,) = _problems(address)
            assert "schema version" in message
            assert _refused(address).message == message
        finally:
            admin.execute(update, (-change, -change))
    assert _problems(address) == []


def test_a_server_without_fsync_is_refused() -> None:
    server = postgres_engine.start(fsync="off")
    try:
        made = administration.set_up(server.admin(), "commonplace")
        assert "fsync is off" in _refused(made.address).message
    finally:
        server.stop()


def test_servers_go_on_writing_beside_steps_that_only_add(address: str, tmp_path: Path) -> None:
    """An upgrade takes such steps first, and then replaces the servers one after the other."""
    with Commonplace(address, space="team", embedding="none") as memory:
        memory.remember("before")
        with psycopg.connect(address.replace("//commonplace@", "//admin@")) as admin:
            admin.execute("UPDATE commonplace.schema_version SET version = version + 1")
        try:
            memory.remember("after a step that only adds")
            assert administration.problems(address) == []
            with psycopg.connect(address.replace("//commonplace@", "//admin@")) as admin:
                admin.execute("UPDATE commonplace.schema_version SET oldest = version")
            with pytest.raises(UnsupportedVersion):
                memory.remember("after one that does more")
            assert [each.severity for each in administration.problems(address)] == ["error"]
        finally:
            with psycopg.connect(address.replace("//commonplace@", "//admin@")) as admin:
                admin.execute(
                    "UPDATE commonplace.schema_version SET version = version - 1,"
                    " oldest = version - 1"
                )
        assert len(memory.browse()[0]) == 2


def test_a_step_says_who_may_write_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    last = len(schema.STEPS[schema.SPACES])
    assert f"oldest = {last}" in schema.step_sql(schema.SPACES, last)
    monkeypatch.setattr(schema, "ADDITIVE_STEPS", frozenset({(schema.SPACES, last)}))
    assert "oldest" not in schema.step_sql(schema.SPACES, last)
