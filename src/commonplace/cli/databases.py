"""`commonplace database`: sets up and checks a PostgreSQL database."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from commonplace.cli import options
from commonplace.cli.options import AsJson, argument, option
from commonplace.cli.terminal import emit_json, note, say
from commonplace.errors import InvalidInput
from commonplace.storage import opening

database = typer.Typer(help="Set up and check a PostgreSQL database.", rich_markup_mode=None)

Admin = Annotated[
    str, argument("ADMIN_URL", "The database's address, with the administrator's role.")
]


@database.command("init")
def init(
    address: Admin,
    role: Annotated[str, option("--role NAME", "The role that servers use.")] = "commonplace",
    password_env: Annotated[
        str, option("--password-env NAME", "The environment variable with the role's password.")
    ] = "",
    print_sql: Annotated[bool, option("--print-sql", "Print the SQL, and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create or migrate the tables, policies and the role for servers.

    A new role gets a generated password; the address with the password is shown once. A second run
    only applies missing migration steps.

    \b
      commonplace database init postgresql://postgres@db.example.com/commonplace
    """
    administration = opening.administration()
    if print_sql:
        say(administration.setup_script(address, role).rstrip())
        return
    password = None
    if password_env:
        password = os.environ.get(password_env)
        if not password:
            raise InvalidInput(
                f"The variable {password_env} is not set.",
                hint="Set it to the role's password.",
                field="password_env",
            )
    made = administration.set_up(address, role, password)
    if as_json:
        emit_json({"address": made.address, "role_made": made.role_made, "steps": made.steps})
        return
    say(made.address)
    if made.role_made and not password_env:
        note("Copy it now: the password is not shown again.")
    elif not password_env:
        note(f"The role {role} already existed; its password is unchanged.")
    note(f"{made.steps} migration steps were applied. Use the address as COMMONPLACE_DATABASE.")


@database.command("check")
def check(
    address: Annotated[
        str | None, argument("[URL]", "The address with the role for servers.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a database with the role that servers use.

    Exit code 6 means that a server cannot start with this database.
    """
    address = address or options.database_of(None)
    if not address:
        raise InvalidInput(
            "The address of the database is missing.",
            hint="Give it as an argument, or set COMMONPLACE_DATABASE.",
        )
    problems = opening.administration().problems(address)
    if as_json:
        emit_json({"problems": [each._asdict() for each in problems]})
    else:
        for each in problems:
            say(f"{each.severity}: {each.message} {each.hint}")
        if not problems:
            say("no problems found")
    if any(each.severity == "error" for each in problems):
        raise typer.Exit(6)


GROUPS = {"database": database}
