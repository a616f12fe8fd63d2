"""`commonplace database`: sets up and checks a PostgreSQL database."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from commonplace.cli.options import AsJson, argument, option
from commonplace.cli.terminal import emit, note, say
from commonplace.errors import InvalidInput
from commonplace.storage import opening

database = typer.Typer(help="A PostgreSQL database that holds the rows.", rich_markup_mode=None)

Admin = Annotated[str, argument("ADMIN_URL", "The database's address for its administrator.")]


@database.command("init")
def init(
    address: Admin,
    role: Annotated[str, option("--role NAME", "The role that servers use.")] = "commonplace",
    password_env: Annotated[
        str, option("--password-env NAME", "The variable that holds the role's password.")
    ] = "",
    print_sql: Annotated[bool, option("--print-sql", "Print the SQL, and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make or migrate the tables, policies and the servers' role.

    A new role gets a generated password, and the address to use is shown once. A second run applies
    missing migration steps and changes nothing else.

    
      commonplace database init postgresql://postgres@db.example.com/commonplace
    """
    administration = opening.administration()
    if print_sql:
        say(administration.script(address, role).rstrip())
        return
    password = None
    if password_env:
        password = os.environ.get(password_env)
        if not password:
            raise InvalidInput(
                f"The variable {password_env} is not set.",
                hint="Put the role's password into it.",
                field="password_env",
            )
    made = administration.prepare(address, role, password)
    if as_json:
        emit({"address": made.address, "role_made": made.role_made, "steps": made.steps})
        return
    say(made.address)
    if made.role_made and not password_env:
        note("Copy it now: the password is not shown again.")
    elif not password_env:
        note(f"The role {role} existed already; its password is unchanged.")
    note(f"{made.steps} migration steps were applied. Use the address as COMMONPLACE_DATABASE.")


@database.command("check")
def check(
    address: Annotated[str | None, argument("[URL]", "The address that servers use.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check a database with the role that servers use.

    Exit code 6 means that a server would not start with it.
    """
    address = address or opening.default_database()
    if not address:
        raise InvalidInput(
            "No database is named.", hint="Name its address, or set COMMONPLACE_DATABASE."
        )
    problems = opening.administration().problems(address)
    if as_json:
        emit({"problems": [each._asdict() for each in problems]})
    else:
        for each in problems:
            say(f"{each.severity}: {each.message} {each.hint}")
        if not problems:
            say("nothing is wrong")
    if any(each.severity == "error" for each in problems):
        raise typer.Exit(6)


GROUPS = {"database": database}
