"""Set up a database, and check whether its configuration is safe."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import psycopg

from commonplace.errors import InvalidInput, StorageUnavailable
from commonplace.storage.postgres.connections import Pool
from commonplace.storage.postgres.errors import typed_error, unreachable_error
from commonplace.storage.postgres.schema import (
    SPACES,
    STEPS,
    SYSTEM,
    preparing_sql,
    securing_sql,
    step_sql,
    version_sql,
)
from commonplace.storage.postgres.store import version_error

OLDEST_SERVER = 140_000
_VERSION = "SELECT version FROM {}.schema_version"
_LOGIN_PARAMETERS = ("user", "password")
_ROLE = re.compile(r"[a-z_][a-z0-9_]{0,50}")


class Problem(NamedTuple):
    """A problem of a database. An error prevents a server from starting."""

    severity: Literal["error", "warning"]
    message: str
    hint: str


class SetupResult(NamedTuple):
    """The result of setting up a database."""

    address: str
    """The database URL for servers; without a password if the role had one already."""
    role_made: bool
    steps: int


_SERVER_FACTS = f"""
SELECT current_setting('server_version_num')::int, r.rolsuper, r.rolbypassrls,
  current_setting('fsync'), current_setting('full_page_writes'),
  current_setting('server_encoding'), pg_is_in_recovery(),
  current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication),
  to_regclass('{SPACES}.schema_version') IS NOT NULL
    AND to_regclass('{SPACES}.work_requests') IS NOT NULL,
  has_schema_privilege(session_user, to_regnamespace('{SPACES}'), 'USAGE'),
  (SELECT count(*) FROM pg_class c WHERE c.relkind = 'r' AND c.relowner = r.oid
    AND c.relnamespace = ANY (ARRAY[to_regnamespace('{SPACES}'), to_regnamespace('{SYSTEM}')])),
  (SELECT string_agg(c.relname, ', ' ORDER BY c.relname) FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'space'
    WHERE c.relkind = 'r' AND c.relnamespace = to_regnamespace('{SPACES}')
    AND NOT (c.relrowsecurity AND c.relforcerowsecurity)),
  pg_has_role(session_user, coalesce((SELECT s.oid FROM pg_roles s
    WHERE s.rolname = session_user || '_system'), r.oid), 'USAGE'),
  EXISTS (SELECT 1 FROM pg_roles s WHERE s.rolname = session_user || '_system')
FROM pg_roles r WHERE r.rolname = session_user
"""


def _server_problems(
    version: int, superuser: bool, bypasses: bool, fsync: str, pages: str, encoding: str,
    standby: bool, synchronous: str, standbys: int,
) -> Iterator[Problem]:  # fmt: skip
    if version < OLDEST_SERVER:
        yield Problem(
            "error", "PostgreSQL is older than 14.", "Upgrade the server to version 14 or newer."
        )
    if superuser or bypasses:
        yield Problem(
            "error",
            "The role may bypass row-level security, which keeps spaces apart.",
            "Use the URL that 'commonplace database init' printed, not an administrator's.",
        )
    if fsync == "off":
        yield Problem(
            "error",
            "fsync is off: committed data can be lost.",
            "Set fsync = on in postgresql.conf.",
        )
    if pages == "off":
        yield Problem(
            "warning",
            "full_page_writes is off: a power cut can damage pages.",
            "Set full_page_writes = on, unless the file system writes pages atomically.",
        )
    if encoding != "UTF8":
        yield Problem(
            "error",
            f"The database's encoding is {encoding}.",
            "Create a database with ENCODING 'UTF8'.",
        )
    if standby:
        yield Problem(
            "error",
            "This server is a standby, which is read-only.",
            "Use the host of the primary, or both hosts with target_session_attrs=read-write.",
        )
    if standbys and not synchronous:
        yield Problem(
            "warning",
            "Replication to a standby is asynchronous: a failover can lose committed data.",
            "Set synchronous_standby_names.",
        )


def _table_problems(
    there: bool, usable: bool, owned: bool, open_tables: str, inherits: bool, has_system: bool
) -> Iterator[Problem]:
    if owned:
        yield Problem(
            "error",
            "The role owns the tables, and could switch row-level security off.",
            "Use the URL that 'commonplace database init' printed, not the owner's.",
        )
    if not there or not usable:
        yield Problem(
            "error",
            "Tables are missing in the database, or this role may not use them.",
            "Let an administrator run 'commonplace database init ADMIN_URL'; no data is lost.",
        )
        return
    if open_tables:
        yield Problem(
            "error",
            f"Row-level security is off for {open_tables}.",
            "Let an administrator run 'commonplace database init ADMIN_URL' again.",
        )
    if not has_system:
        yield Problem(
            "error",
            "The role that holds credentials is missing.",
            "Let an administrator run 'commonplace database init ADMIN_URL --role' with this role.",
        )
    elif inherits:
        yield Problem(
            "warning",
            "The role inherits the rights to the credentials, so every transaction has them.",
            "Run ALTER ROLE … NOINHERIT, and grant the credentials role to it again.",
        )


def check(pool: Pool) -> list[Problem]:
    """Return the problems of a database; raise connection errors."""
    connection = pool.take()
    try:
        facts = connection.execute(_SERVER_FACTS).fetchone()
        assert facts is not None
        found = [*_server_problems(*facts[:9]), *_table_problems(*facts[9:])]
        if not any(each.severity == "error" for each in found):
            found += _version_problems(connection)
    except psycopg.Error as error:
        raise typed_error(error) from error
    finally:
        pool.give_back(connection)
    return found


def problems(address: str) -> list[Problem]:
    """Return the problems of the database at a URL; see `check`."""
    pool = Pool(address)
    try:
        return check(pool)
    finally:
        pool.close()


def _version_problems(connection: psycopg.Connection[tuple[Any, ...]]) -> Iterator[Problem]:
    for name, steps in STEPS.items():
        with connection.transaction():
            if name == SYSTEM:
                connection.execute("SELECT set_config('role', session_user || '_system', true)")
            row = connection.execute(version_sql(name)).fetchone()
        version = 0 if row is None else int(row[0])
        if version != len(steps):
            error = version_error(version, len(steps))
            yield Problem("error", error.message, error.hint)


def _version(connection: psycopg.Connection[tuple[Any, ...]], name: str) -> int:
    row = connection.execute(_VERSION.format(name)).fetchone()
    return 0 if row is None else int(row[0])


def refuse_unfit(pool: Pool) -> list[Problem]:
    """Raise the first problem that prevents a server from using the database.

    If there is none, return the problems that were found, which are only warnings.
    """
    found = check(pool)
    for problem in found:
        if problem.severity == "error":
            raise StorageUnavailable(problem.message, hint=problem.hint)
    return found


def _admin_connection(address: str) -> psycopg.Connection[tuple[Any, ...]]:
    pool = Pool(address)  # It checks the URL, and leaves out what is not for libpq.
    try:
        return psycopg.connect(pool.address, autocommit=True, connect_timeout=10)
    except psycopg.Error as error:
        raise unreachable_error(error, pool.where) from error


def _pending_steps(connection: psycopg.Connection[tuple[Any, ...]]) -> list[tuple[str, int]]:
    """Return the migration steps that are not applied yet, as (schema, number)."""
    found = []
    for name, steps in STEPS.items():
        there = connection.execute("SELECT to_regclass(%s)", (f"{name}.schema_version",)).fetchone()
        version = 0
        if there is not None and there[0] is not None:
            version = _version(connection, name)
        if version > len(steps):
            raise version_error(version, len(steps))
        found += [(name, number) for number in range(version + 1, len(steps) + 1)]
    return found


def _checked_role(role: str) -> str:
    if not _ROLE.fullmatch(role):
        raise InvalidInput(
            "A role's name must have 1 to 51 of a-z, 0-9 and '_', and not start with a digit.",
            hint="Choose another role with --role.",
            field="role",
        )
    return role


def setup_script(address: str, role: str) -> str:
    """Return the SQL of the setup, for an administrator who runs it by hand."""
    role = _checked_role(role)
    with _admin_connection(address) as connection:
        try:
            steps = _pending_steps(connection)
        except psycopg.Error as error:
            raise typed_error(error) from error
    parts = [f"BEGIN;\n{preparing_sql(role)}\nCOMMIT;"]
    parts += [f"BEGIN;\n{step_sql(name, number)}COMMIT;" for name, number in steps]
    parts.append(f"BEGIN;\n{securing_sql(role)}COMMIT;")
    parts.append(f"-- Then give the role a password: \\password {role}")
    return "\n".join(parts) + "\n"


def set_up(address: str, role: str, password: str | None = None) -> SetupResult:
    """Create or migrate schemas, policies and the application's role. It can be run repeatedly."""
    role = _checked_role(role)
    with _admin_connection(address) as connection:
        try:
            known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,))
            made = known.fetchone() is None
            with connection.transaction():
                connection.execute(preparing_sql(role))
                if made:
                    password = password or secrets.token_urlsafe(24)
                if password:
                    secret = psycopg.sql.Literal(password)
                    text = psycopg.sql.SQL("ALTER ROLE {} PASSWORD {}")
                    connection.execute(text.format(psycopg.sql.Identifier(role), secret))
            taken = 0
            while True:
                with connection.transaction():
                    # Only one administrator runs a step at a time; the others then find the step
                    # done.
                    connection.execute(f"LOCK TABLE {SPACES}.schema_version IN EXCLUSIVE MODE")
                    steps = _pending_steps(connection)
                    if not steps:
                        connection.execute(securing_sql(role))
                        break
                    connection.execute(step_sql(*steps[0]))
                    taken += 1
        except psycopg.Error as error:
            raise typed_error(error) from error
    return SetupResult(_address_for(address, role, password), made, taken)


def _address_for(address: str, role: str, password: str | None) -> str:
    """Return the administrator's URL with another user."""
    where, _, query = address.partition("?")
    scheme, _, place = where.partition("://")
    authority, slash, name = place.partition("/")
    who = role if password is None else f"{role}:{quote(password, safe='')}"
    # Parameters count before what stands in front of the host.
    kept = [
        each
        for each in query.split("&")
        if each and each.partition("=")[0] not in _LOGIN_PARAMETERS
    ]
    found = f"{scheme}://{who}@{authority.rpartition('@')[2]}{slash}{name}"
    return f"{found}?{'&'.join(kept)}" if kept else found
