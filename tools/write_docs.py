"""Write the pages that are made from code: docs/coverage.md, dialects.md, library.md, settings.md
and commands.md.

python tools/write_docs.py            writes them
python tools/write_docs.py --check    says whether they are as they should be
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import commonplace
from commonplace import AsyncCommonplace, Commonplace, Library
from commonplace.cli.app import SECTIONS, program_with_command
from commonplace.dialects import registry
from commonplace.engine.binding import Part
from commonplace.engine.content.memories import Changes, Details
from commonplace.engine.finding.filters import Conditions
from commonplace.platform.llm import PROVIDERS
from commonplace.server.settings import Settings

ROOT = Path(__file__).parent.parent
Row = tuple[str, str, str]
WITHOUT_TEST = ("later: ", "left out: ")
GROUPS: dict[str, type] = {"details": Details, "changes": Changes, "conditions": Conditions}


# The variables that are no settings of config.toml. A test compares this table with the code.
VARIABLES = {
    "Everywhere": {
        "COMMONPLACE_DATA": "the data directory; `~/.commonplace` by default",
        "COMMONPLACE_MASTER_KEY": "the key that seals stored keys, instead of the file"
        " `master.key`; 32 bytes as base64",
        "COMMONPLACE_EMBEDDING_KEY": "the key of the service that `embedding` names",
        "COMMONPLACE_EMBEDDING_MODEL": "its model; `text-embedding-3-small` by default",
        "COMMONPLACE_PROJECT": "the project of what is stored, instead of the one of the working"
        " directory; `-` for none ([capture.md](capture.md))",
        "NO_COLOR": "no bold or dim text in a terminal",
    },
    "Over standard input and output": {
        "COMMONPLACE_IN_PROCESS": "`1`: `commonplace mcp` serves by itself, and starts no server in"
        " the background ([warm-server.md](warm-server.md))",
        "COMMONPLACE_SOCKET": "`loopback`: clients reach the background server over TCP instead of"
        " a Unix socket",
    },
    "A language model": {
        "COMMONPLACE_LLM_KEY": "the operator's key, for beings and agents that have none",
        "COMMONPLACE_LLM_PROVIDER": "`anthropic` or `openai` (the default), for the operator's key"
        " and for keys whose prefix names no provider",
        "COMMONPLACE_LLM_MODEL": "the model to ask",
        **{f"COMMONPLACE_LLM_{each.upper()}_URL": f"where `{each}` is asked" for each in PROVIDERS},
    },
    "MAMA": {
        "MAMA_AUTH_TOKEN": "a token for MAMA's contract, and for its operator",
        "MAMA_SERVER_TOKEN": "the same, if the other is not set",
        "MAMA_DB_PATH": "a database of MAMA's to take over",
        "MAMA_SERVER_PORT": "the port of the server, unless `port` is set",
        "MAMA_EMBEDDING_PORT": "the port of its embedding service; 3849 by default",
        "COMMONPLACE_CHROMIUM": "the browser for screenshots",
        "COMMONPLACE_DISCORD_URL": "another address of Discord",
        "COMMONPLACE_SLACK_URL": "another address of Slack",
        "COMMONPLACE_GITHUB_API_URL": "another address of GitHub's API, for skills",
        "COMMONPLACE_GITHUB_RAW_URL": "another address of GitHub's files",
    },
    "Other contracts": {
        "MEMORY_DIR": "ClawBrain over stdio: the directory of its Markdown files",
        "SESSION_ID": "ClawBrain over stdio: the session",
        "COMMONPLACE_PENFIELD_RATE": "Penfield: requests a minute for each tenant",
        "COMMONPLACE_WORKFLOW_APPROVAL": "Orchestrator: `manual`, so that a person approves steps",
        "COMMONPLACE_VAPID_KEY": "Orchestrator: the private key for Web Push",
        "COMMONPLACE_VAPID_SUBJECT": "Orchestrator: whom push services may write to",
        "COMMONPLACE_NTFY_URL": "Orchestrator: the address of an ntfy topic",
        "COMMONPLACE_NTFY_TOKEN": "Orchestrator: its token",
        "COMMONPLACE_PUSH_LOCAL": "Orchestrator: `1` sends pushes to local addresses too",
    },
    "Of other programs": {
        "CLAUDE_CONFIG_DIR": "where Claude Code keeps its files",
        "CODEX_HOME": "where Codex keeps its files",
        "OPENCLAW_STATE_DIR": "where OpenClaw keeps its files",
        "COPILOT_HOME": "where VS Code and Copilot CLI keep hooks",
        "OTEL_SDK_DISABLED": "`true`: no traces are sent, though the extra `otel` is installed",
    },
}
# Set by the program for its own processes.
INTERNAL_VARIABLES = ("COMMONPLACE_BACKGROUND", "COMMONPLACE_LISTENING_SOCKET")


def rows_of(dialect: str) -> list[Row]:
    """(section, line, test or why there is none) of a dialect's contract."""
    if str(ROOT / "tests") not in sys.path:
        sys.path.insert(0, str(ROOT / "tests"))
    rows: list[Row] = import_module(f"dialects.{dialect}.coverage").ROWS
    return rows


def contracts() -> list[str]:
    """The dialects that come from somebody else's contract, and are served."""
    return [name for name in registry.built_in_names() if registry.load(name).contract]


def coverage_page() -> str:
    """Every contract's lines with the test that shows each."""
    lines = [
        "# What each contract says, and the test that shows it",
        "",
        "Made by `make docs` from `tests/dialects/*/coverage.py`; a test fails when a row names no",
        "test, or a tool has no row.",
    ]
    for name in contracts():
        rows = rows_of(name)
        later, left_out = (
            sum(test.startswith(mark) for _, _, test in rows) for mark in WITHOUT_TEST
        )
        lines += ["", f"## {registry.load(name).contract}", ""]
        without = f"{later} are for later"
        if left_out:
            without += f" and {left_out}, which are optional there, are left out by decision"
        lines.append(f"{len(rows)} lines, of which {without}.")
        section = ""
        for where, what, test in rows:
            if where != section:
                section = where
                lines += ["", f"### {where}", "", "| line | test |", "| --- | --- |"]
            shown = test if test.startswith(WITHOUT_TEST) else f"`{test.rpartition('/')[2]}`"
            lines.append(f"| {_table_cell(what)} | {_table_cell(shown)} |")
    return "\n".join(lines) + "\n"


def dialects_page(names: Sequence[str] = registry.built_in_names()) -> str:
    """What each dialect declares, and how it shows a memory of each kind."""
    loaded = [registry.load(name) for name in names]
    lines = [
        "# Dialects",
        "",
        "Made by `make docs` from what each dialect declares;",
        "[new-dialect.md](new-dialect.md) shows how to add one.",
        "",
        "| dialect | MCP | REST routes | tools | tokens | OAuth scopes |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    resources = registry.resources_by_path(loaded, names[0])
    for dialect in loaded:
        routes = dialect.rest.routes if dialect.rest else ()
        below = sorted({"/".join(route.path.split("/")[:3]) for route in routes})
        scopes = dict.fromkeys(
            scope
            for resource in resources.values()
            if resource.dialect == dialect.name
            for scope in resource.permissions
        )
        cells = [
            dialect.title,
            _code_list(dialect.paths),
            f"{len(routes)}, at {_code_list(below)}" if routes else "none",
            str(sum(not tool.hidden for tool in dialect.tools)),
            _code_list([f"{dialect.tokens.personal.prefix}…", f"{dialect.tokens.oauth.prefix}…"]),
            _code_list(scopes),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    tables = {dialect.name: dialect.shown_types for dialect in loaded}
    kinds = sorted({kind for table in tables.values() for kind in table if kind != "*"})
    lines += [
        "",
        "## How dialects show each other's memories",
        "",
        "A dialect finds every live memory of the space; one that another dialect stored it shows",
        "as the type below, with its UUID as its id. It reads it, and does not change it.",
        "",
        "| kind | " + " | ".join(tables) + " |",
        "| --- |" + " --- |" * len(tables),
    ]
    for kind in [*kinds, "*"]:
        shown = "any other" if kind == "*" else f"`{kind}`"
        cells = [table.get(kind, table.get("*", "as it is")) for table in tables.values()]
        lines.append(f"| {shown} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _code_list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table_cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def library_page() -> str:
    """The public classes, with every method and field."""
    lines = [
        "# The library",
        "",
        "Made by `make docs` from the public classes. Everything here can be imported from",
        "`commonplace`; importing the package alone loads nothing. The README has examples.",
        "",
        "- An `identity` is a memory's id, or the `ref` that it was stored with.",
        "- A `When` is a `datetime` or a text as in ISO 8601; without a zone it is UTC. A",
        "  memory that happened at midnight in UTC has a date and no time: `since` and `until`",
        "  compare it as that day in their own zone.",
        "- `as_of` asks for what was stored at that moment.",
        "- `origin` says who makes the change; by default it is the one that the memory was opened",
        "  with.",
        "- `**details`, `**changes` and `**conditions` are named parameters: the fields of a",
        "  memory and the conditions of a search, in the tables below.",
        "- A parameter with the default `...` changes nothing if it is left out.",
        "",
        "## Commonplace",
        "",
        *_value_lines(Commonplace),
        "",
        f"`Commonplace{_signature(Commonplace)}`",
        "",
    ]
    lines += _method_lines(Commonplace, "memory")
    with tempfile.TemporaryDirectory() as place, Commonplace(place, embedding="none") as memory:
        named = {name: part for name, part in vars(memory).items() if isinstance(part, Part)}
    for name, part in sorted(named.items()):
        if not name.startswith("_"):
            lines += ["", f"## memory.{name}", "", *_value_lines(type(part)), ""]
            lines += _method_lines(type(part), f"memory.{name}")
    lines += ["", "## Fields of a memory", ""]
    lines += ["`details` are all of these but the text, which is a parameter of its own; `changes`"]
    lines += ["those that can be changed.", ""]
    lines += _parameter_table(Commonplace.remember, Details, ("can be changed", Changes))
    lines += ["", "## Conditions of a search", ""]
    lines += ["Each that is given must hold; they can also be passed together as `Filters`.", ""]
    lines += _parameter_table(Commonplace.recall, Conditions)
    public = {name: getattr(commonplace, name) for name in commonplace.__all__}
    lines += ["", "## AsyncCommonplace", "", *_value_lines(AsyncCommonplace), ""]
    lines += [f"`AsyncCommonplace{_signature(AsyncCommonplace)}`"]
    lines += ["", "## Values", "", "What is passed and what is returned; none of them changes.", ""]
    lines += ["| class | fields | |", "| --- | --- | --- |"]
    for name, value in public.items():
        classes = (AsyncCommonplace, Commonplace, Library, Exception)
        if not inspect.isclass(value) or issubclass(value, classes):
            continue
        fields = _code_list(
            [each.name for each in dataclasses.fields(value) if each.init]
            if dataclasses.is_dataclass(value)
            else value.__annotations__
        )
        lines.append(f"| `{name}` | {fields} | {_table_cell(' '.join(_value_lines(value)))} |")
    raised = {n: v for n, v in public.items() if inspect.isclass(v) and issubclass(v, Exception)}
    lines += [
        "",
        "## Errors",
        "",
        "Each has a `code`, a `message`, a `hint` and, where one argument",
    ]
    lines += ["is meant, its `field`. They are all a `CommonplaceError`.", ""]
    lines += ["| error | code | |", "| --- | --- | --- |"]
    for name, error in raised.items():
        lines.append(
            f"| `{name}` | `{error.code}` | {_table_cell(' '.join(_value_lines(error)))} |"
        )
    return "\n".join(lines) + "\n"


def _method_lines(owner: type, called: str) -> list[str]:
    """A line with the signature of each method, and what it does."""
    lines: list[str] = []
    for name, method in vars(owner).items():
        if name.startswith("_"):
            continue
        if isinstance(method, property):
            lines += [f"- `{called}.{name}`", "", f"  {' '.join(_value_lines(method))}", ""]
            continue
        returned = inspect.signature(method).return_annotation
        lines += [f"- `{called}.{name}{_signature(method)} -> {returned}`", ""]
        lines += [f"  {line}".rstrip() for line in _value_lines(method)]
        lines.append("")
    return lines[:-1]


def _parameter_table(
    function: Callable[..., Any], group: type, marked: tuple[str, type] | None = None
) -> list[str]:
    """A table of the parameters of a group; the marked ones are said to be so."""
    found = inspect.signature(function).parameters
    heading = ["name", "type", "default", *([marked[0]] if marked else [])]
    lines = [f"| {' | '.join(heading)} |", "| --- " * len(heading) + "|"]
    for name in group.__annotations__:
        default = "" if found[name].default is ... else f"`{found[name].default!r}`"
        cells = [f"`{name}`", f"`{_table_cell(str(found[name].annotation))}`", default]
        if marked:
            cells.append("yes" if name in marked[1].__annotations__ else "no")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _signature(function: Callable[..., Any]) -> str:
    """The parameters of a method without its first, as they would be written."""
    parameters = dict(inspect.signature(function).parameters)
    if not inspect.isclass(function):
        del parameters[next(iter(parameters))]
    grouped = ""
    for name, group in GROUPS.items():
        if group.__annotations__.keys() <= parameters.keys():
            grouped = f"**{name}"
            parameters = {n: p for n, p in parameters.items() if n not in group.__annotations__}
    shown, starred = [], False
    for each in parameters.values():
        if each.kind is each.VAR_POSITIONAL:
            starred = True
        elif each.kind is each.KEYWORD_ONLY and not starred:
            starred = True
            shown.append("*")
        default = ""
        if each.default is not each.empty:
            default = f" = {'...' if each.default is ... else repr(each.default)}"
        star = "*" if each.kind is each.VAR_POSITIONAL else ""
        shown.append(f"{star}{each.name}: {each.annotation}{default}")
    return f"({', '.join([*shown, grouped] if grouped else shown)})"


def _value_lines(value: object) -> list[str]:
    return (inspect.getdoc(value) or "").splitlines()


def settings_page() -> str:
    """Every setting of config.toml, and every variable."""
    said = _field_docstrings(Settings)
    serve = {
        flag for one in program_with_command("serve").commands["serve"].params for flag in one.opts
    }
    lines = [
        "# Settings",
        "",
        "Made by `make docs` from the code; a test fails when a setting or a variable is missing.",
        "",
        "Nothing has to be set. A setting of the table stands in `config.toml` of the data",
        "directory, or in its variable; some are also options of `commonplace serve`. An option",
        "counts before a variable, and a variable before the file. An unknown name or a bad value",
        "stops every command that would use the data directory, and the message names it.",
        "",
        "```toml",
        "# ~/.commonplace/config.toml, which only you may write (chmod 600)",
        'allow_hosts = ["memory.lan:3847"]',
        "audit_days = 365",
        "```",
        "",
        "| setting | default | variable | option | what |",
        "| --- | --- | --- | --- | --- |",
    ]
    for field in dataclasses.fields(Settings):
        if field.name == "data":
            continue
        default = _toml_value(field.default)
        flag = f"--{field.name.replace('_', '-')}"
        cells = [f"`{field.name}`", f"`{default}`", f"`COMMONPLACE_{field.name.upper()}`",
                 f"`{flag}`" if flag in serve else "", _table_cell(said[field.name])]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## Variables", ""]
    lines += ["A list is written with commas: `COMMONPLACE_PROXIES=10.0.0.5,10.0.0.6`."]
    for title, variables in VARIABLES.items():
        lines += ["", f"### {title}", "", "| variable | what |", "| --- | --- |"]
        lines += [f"| `{name}` | {what} |" for name, what in variables.items()]
    lines += [
        "",
        "## Other files",
        "",
        "| file | what |",
        "| --- | --- |",
        "| `.commonplace.toml` in a project | its name ([capture.md](capture.md)) |",
        "| `.commonplaceignore` in a project | what is not captured ([capture.md](capture.md)) |",
        "| `master.key` in the data directory | seals stored keys; keep a copy elsewhere |",
        "| `mama/config.yaml` in the data directory | MAMA's configuration ([mama.md](mama.md)) |",
        "",
        "The options of every command are in [commands.md](commands.md).",
    ]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[]"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if value < 1e5 else str(value)


def _field_docstrings(owner: type) -> dict[str, str]:
    """The string after each field of a class, which describes it."""
    (body,) = ast.parse(inspect.getsource(owner)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for one, following in zip(body.body, body.body[1:], strict=False):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            value = following.value if isinstance(following, ast.Expr) else None
            assert isinstance(value, ast.Constant), f"{one.target.id} has no description"
            found[one.target.id] = str(value.value)
    return found


def commands_page() -> str:
    """Every command with its options, in the order of the help."""
    lines = [
        "# Commands",
        "",
        "Made by `make docs` from the commands; `commonplace help COMMAND` shows the same. The",
        "options `--data`, `--database`, `--space` and `--json` are explained here, and not again:",
        "",
        "| option | what |",
        "| --- | --- |",
        "| `--data DIR` | the data directory; `~/.commonplace`, or `COMMONPLACE_DATA` |",
        "| `--database URL` | a PostgreSQL database that holds the rows instead |",
        "| `--space NAME` | the space; `default` if it is not given |",
        "| `--json` | JSON for scripts: one object, or one a line |",
        "",
        "Completion in a shell, in `~/.bashrc`, `~/.zshrc` or `config.fish`:",
        "",
        "```",
        'eval "$(commonplace completion bash)"',
        'eval "$(commonplace completion zsh)"',
        "commonplace completion fish | source",
        "```",
    ]
    for title, names in SECTIONS.items():
        lines += ["", f"## {title}"]
        for name in names.split():
            lines += _command_lines(program_with_command(name).commands[name], name)
    return "\n".join(lines) + "\n"


COMMON_OPTIONS = {"--data", "--database", "--space", "--json", "--help"}


def _command_lines(command: Any, path: str) -> list[str]:
    """A command, or all commands of a group."""
    if below := getattr(command, "commands", None):
        return [
            line for name, one in below.items() for line in _command_lines(one, f"{path} {name}")
        ]
    given = " ".join(
        one.metavar or one.name.upper() for one in command.params if one.param_type_name != "option"
    )
    told, _, example = (command.help or "").partition("\b\n")
    lines = ["", f"### {path}", "", f"`commonplace {path} {given}".rstrip() + "`", ""]
    lines += [" ".join(part.split()) + "\n" for part in told.strip().split("\n\n")]
    if example:
        lines += ["```", *(line.strip() for line in example.strip().splitlines()), "```", ""]
    rows = []
    for one in command.params:
        flags = [*one.opts, *one.secondary_opts]
        if one.param_type_name == "option" and not COMMON_OPTIONS & set(flags):
            shown = ", ".join(flags) + (f" {one.metavar}" if one.metavar else "")
            rows.append(f"| `{_table_cell(shown)}` | {_table_cell(one.help or '')} |")
    return [*lines, *(["| option | what |", "| --- | --- |", *rows] if rows else lines[:0])]


PAGES = {
    ROOT / "docs" / "coverage.md": coverage_page,
    ROOT / "docs" / "dialects.md": dialects_page,
    ROOT / "docs" / "library.md": library_page,
    ROOT / "docs" / "settings.md": settings_page,
    ROOT / "docs" / "commands.md": commands_page,
}


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check only compare."""
    stale = 0
    for path, page in PAGES.items():
        text = page()
        if arguments == ["--check"]:
            if not path.exists() or path.read_text() != text:
                sys.stderr.write(f"{path.name} is not as the code says; run 'make docs'\n")
                stale = 1
        else:
            path.write_text(text)
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
