"""Write the pages that are made from code: docs/coverage.md, dialects.md and library.md.

python tools/write_docs.py            writes them
python tools/write_docs.py --check    says whether they are as they should be
"""

from __future__ import annotations

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
from commonplace.dialects import registry
from commonplace.engine.binding import Part
from commonplace.engine.content.memories import Changes, Details
from commonplace.engine.finding.filters import Conditions

ROOT = Path(__file__).parent.parent
Row = tuple[str, str, str]
WITHOUT_TEST = ("later: ", "left out: ")
GROUPS: dict[str, type] = {"details": Details, "changes": Changes, "conditions": Conditions}


def rows_of(dialect: str) -> list[Row]:
    """(section, line, test or why there is none) of a dialect's contract."""
    if str(ROOT / "tests") not in sys.path:
        sys.path.insert(0, str(ROOT / "tests"))
    rows: list[Row] = import_module(f"dialects.{dialect}.coverage").ROWS
    return rows


def contracts() -> list[str]:
    """The dialects that come from somebody else's contract, and are served."""
    return [name for name in registry.built_in() if registry.load(name).contract]


def coverage() -> str:
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
            lines.append(f"| {_cell(what)} | {_cell(shown)} |")
    return "\n".join(lines) + "\n"


def dialects(names: Sequence[str] = registry.built_in()) -> str:
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
    resources = registry.resources(loaded, names[0])
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
            _codes(dialect.paths),
            f"{len(routes)}, at {_codes(below)}" if routes else "none",
            str(sum(not tool.hidden for tool in dialect.tools)),
            _codes([f"{dialect.tokens.personal.prefix}…", f"{dialect.tokens.oauth.prefix}…"]),
            _codes(scopes),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    tables = {dialect.name: dialect.kinds for dialect in loaded}
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


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def library() -> str:
    """The public classes, with every method and field."""
    lines = [
        "# The library",
        "",
        "Made by `make docs` from the public classes. Everything here can be imported from",
        "`commonplace`; importing the package alone loads nothing. The README has examples.",
        "",
        "- An `identity` is a memory's id, or the `ref` that it was stored with.",
        "- A `When` is a `datetime` or a text as in ISO 8601; without a zone it is UTC.",
        "- `as_of` asks for what was stored at that moment.",
        "- `origin` says who makes the change; by default it is the one that the memory was opened",
        "  with.",
        "- `**details`, `**changes` and `**conditions` are named parameters: the fields of a",
        "  memory and the conditions of a search, in the tables below.",
        "- A parameter with the default `...` changes nothing if it is left out.",
        "",
        "## Commonplace",
        "",
        *_described(Commonplace),
        "",
        f"`Commonplace{_signature(Commonplace)}`",
        "",
    ]
    lines += _methods(Commonplace, "memory")
    with tempfile.TemporaryDirectory() as place, Commonplace(place, embedding="none") as memory:
        named = {name: part for name, part in vars(memory).items() if isinstance(part, Part)}
    for name, part in sorted(named.items()):
        if not name.startswith("_"):
            lines += ["", f"## memory.{name}", "", *_described(type(part)), ""]
            lines += _methods(type(part), f"memory.{name}")
    lines += ["", "## Fields of a memory", ""]
    lines += ["`details` are all of these but the text, which is a parameter of its own; `changes`"]
    lines += ["those that can be changed.", ""]
    lines += _parameters(Commonplace.remember, Details, ("can be changed", Changes))
    lines += ["", "## Conditions of a search", ""]
    lines += ["Each that is given must hold; they can also be passed together as `Filters`.", ""]
    lines += _parameters(Commonplace.recall, Conditions)
    public = {name: getattr(commonplace, name) for name in commonplace.__all__}
    lines += ["", "## AsyncCommonplace", "", *_described(AsyncCommonplace), ""]
    lines += [f"`AsyncCommonplace{_signature(AsyncCommonplace)}`"]
    lines += ["", "## Values", "", "What is passed and what is returned; none of them changes.", ""]
    lines += ["| class | fields | |", "| --- | --- | --- |"]
    for name, value in public.items():
        classes = (AsyncCommonplace, Commonplace, Library, Exception)
        if not inspect.isclass(value) or issubclass(value, classes):
            continue
        fields = _codes(
            [each.name for each in dataclasses.fields(value) if each.init]
            if dataclasses.is_dataclass(value)
            else value.__annotations__
        )
        lines.append(f"| `{name}` | {fields} | {_cell(' '.join(_described(value)))} |")
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
        lines.append(f"| `{name}` | `{error.code}` | {_cell(' '.join(_described(error)))} |")
    return "\n".join(lines) + "\n"


def _methods(owner: type, called: str) -> list[str]:
    """A line with the signature of each method, and what it does."""
    lines: list[str] = []
    for name, method in vars(owner).items():
        if name.startswith("_"):
            continue
        if isinstance(method, property):
            lines += [f"- `{called}.{name}`", "", f"  {' '.join(_described(method))}", ""]
            continue
        returned = inspect.signature(method).return_annotation
        lines += [f"- `{called}.{name}{_signature(method)} -> {returned}`", ""]
        lines += [f"  {line}".rstrip() for line in _described(method)]
        lines.append("")
    return lines[:-1]


def _parameters(
    function: Callable[..., Any], group: type, marked: tuple[str, type] | None = None
) -> list[str]:
    """A table of the parameters of a group; the marked ones are said to be so."""
    found = inspect.signature(function).parameters
    heading = ["name", "type", "default", *([marked[0]] if marked else [])]
    lines = [f"| {' | '.join(heading)} |", "| --- " * len(heading) + "|"]
    for name in group.__annotations__:
        default = "" if found[name].default is ... else f"`{found[name].default!r}`"
        cells = [f"`{name}`", f"`{_cell(str(found[name].annotation))}`", default]
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


def _described(value: object) -> list[str]:
    return (inspect.getdoc(value) or "").splitlines()


PAGES = {
    ROOT / "docs" / "coverage.md": coverage,
    ROOT / "docs" / "dialects.md": dialects,
    ROOT / "docs" / "library.md": library,
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
