"""The program: its commands, error messages and exit codes."""

from __future__ import annotations

import copy
import functools
import inspect
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from commonplace.cli import (
    access,
    background,
    beings,
    completion,
    connect,
    credit,
    databases,
    guarding,
    history,
    hooks,
    memories,
    options,
    reporting,
    reviewing,
    scanning,
    servers,
    service,
    starting,
    stores,
    transfer,
    workspaces,
)
from commonplace.errors import CommonplaceError

HOOK_COMMAND = ["hook", "recall"]  # run by agents: the exit code is always 0

HELP = """One memory for every AI agent: durable, searched by word and by meaning, offline.

\b
  commonplace start                set it up for the agents of this machine
  commonplace remember "Alice moved to the vision team" --tag people
  commonplace search "which team is Alice on?"
  commonplace revise 3f2a "Alice leads the vision team"
  commonplace log                  what was done, and who did it
  commonplace undo
  commonplace serve                serve every agent over HTTP
  commonplace open                 look at the memory in a browser
  commonplace connect claude-code  add it to an agent's configuration
  commonplace demo                 a tour with a temporary memory

IDs may be shortened to their first characters, at least 4. Data lives in ~/.commonplace
(--data, COMMONPLACE_DATA), in spaces that never see each other (--space). Add --help to a
command to have it explained.

With --json a command writes JSON for scripts: one object, or one object per line if there can be
several; times in UTC; errors as {"error": {…}} on stderr.

\b
Exit codes: 0 success · 1 nothing found · 2 invalid input · 3 not found
            4 conflict · 5 storage or model unavailable · 6 unhealthy
            (doctor, audit verify, connect --check) · 130 interrupted
"""


# The commands as help shows them; those that people use every day come first.
SECTIONS = {
    "Memories": "remember search list show revise forget recover log undo review",
    "Agents": "start stop-using connect serve open status stop restart service mcp hook being"
    " workspace credit",
    "Moving and keeping": "import export move backup restore guard",
    "Access": "token user invite audit scan promote purge",
    "Maintenance": "doctor spaces database demo completion version",
}
ALIASES = {"recall": "search"}


class Commands(TyperGroup):
    """Runs a command, and turns an error into a message and an exit code."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands by what they are for."""
        shown = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        sections = {title: names.split() for title, names in SECTIONS.items()}
        listed = {name for names in sections.values() for name in names}
        sections["More"] = [name for name in shown if name not in listed]
        width = max(map(len, shown), default=0)
        room = formatter.width - width - 6
        for title, names in sections.items():
            rows = [
                (name.ljust(width), command.get_short_help_str(room))
                for name in names
                if (command := shown.get(name)) is not None and not command.hidden
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except CommonplaceError as error:
            code = reporting.report_error(error)
        except KeyboardInterrupt:
            code = reporting.report_interrupt()
        except BrokenPipeError:
            code = reporting.BROKEN_PIPE
        raise typer.Exit(code)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the command line; typer alone would print nothing when interrupted."""
        try:
            return super().make_context(*args, **kwargs)
        except KeyboardInterrupt:
            raise typer.Exit(reporting.report_interrupt()) from None


app = typer.Typer(
    cls=Commands,
    help=HELP,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


@app.callback(invoke_without_command=True)
def _show_help_or_version(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        stores.version()
    elif context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


for command in (
    *starting.COMMANDS,
    *servers.COMMANDS,
    *background.COMMANDS,
    *connect.COMMANDS,
    *memories.COMMANDS,
    *history.COMMANDS,
    *transfer.COMMANDS,
    *stores.COMMANDS,
    *scanning.COMMANDS,
    *reviewing.COMMANDS,
    *access.COMMANDS,
    *completion.COMMANDS,
):
    app.command(name=command.__name__.rstrip("_").replace("_", "-"))(command)
GROUPS = {
    **servers.GROUPS, **access.GROUPS, **hooks.GROUPS, **credit.GROUPS, **beings.GROUPS,
    **workspaces.GROUPS, **databases.GROUPS, **service.GROUPS,
    **guarding.GROUPS,
}  # fmt: skip
for name, group in GROUPS.items():
    app.add_typer(group, name=name)


def _with_database(command: Any) -> Any:
    """Return the command with the option --database, if it has --data and lacks --database."""
    names = inspect.signature(command.callback).parameters
    if "data" not in names or "database" in names:
        return command
    given = copy.copy(command)
    given.callback = options.with_database(command.callback)
    return given


@functools.cache
def program_with_command(name: str) -> Any:
    """Return the program with this command only; with all commands if the name is unknown.

    Building all of them takes longer than running most commands.
    """
    only = copy.copy(app)
    only.registered_commands = [one for one in app.registered_commands if one.name == name]
    only.registered_groups = [one for one in app.registered_groups if one.name == name]
    known = only.registered_commands or only.registered_groups
    if known:
        only.registered_commands = list(map(_with_database, only.registered_commands))
        for group in only.registered_groups:
            assert group.typer_instance is not None
            group.typer_instance.registered_commands = list(
                map(_with_database, group.typer_instance.registered_commands)
            )
    return typer.main.get_command(only if known else app)


def run(args: Sequence[str]) -> int:
    """Run a command line; return its exit code."""
    args = [os.fsencode(arg).decode("utf-8", "surrogateescape") for arg in args]
    reporting.as_json = "--json" in args[: args.index("--") if "--" in args else None]
    if args[:1] == ["help"]:
        args = [*args[1:], "--help"]
    if args:
        args[0] = ALIASES.get(args[0], args[0])
    code = reporting.run(lambda: _run_program(args))
    return 0 if args[:2] == HOOK_COMMAND else code


def _run_program(args: Sequence[str]) -> int:
    try:
        program = program_with_command(args[0] if args else "")
        result = program(args, prog_name="commonplace", standalone_mode=False)
    except typer.Abort:
        sys.stderr.write("\naborted; nothing was changed\n")
        return 1
    except OSError:
        raise
    except Exception as error:
        return _report_usage_error(error)
    return result if isinstance(result, int) else 0


def _report_usage_error(error: Exception) -> int:
    """Report a usage error that typer found; other exceptions are raised again."""
    if not hasattr(error, "format_message"):
        raise error
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "commonplace"
    message = error.format_message()
    if not message.endswith("?"):  # typer suggests a command that is similar
        message = message.removesuffix(".") + "."
    reporting.show_error({"code": "USAGE", "message": message, "hint": f"See '{command} --help'."})
    return int(getattr(error, "exit_code", 2))
