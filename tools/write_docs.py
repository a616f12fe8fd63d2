"""Write the pages that are made from code: docs/coverage.md and docs/dialects.md.

python tools/write_docs.py            writes them
python tools/write_docs.py --check    says whether they are as they should be
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path

from commonplace.dialects import registry

ROOT = Path(__file__).parent.parent
Row = tuple[str, str, str]
WITHOUT_TEST = ("later: ", "left out: ")


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
            str(len(dialect.tools)),
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


PAGES = {ROOT / "docs" / "coverage.md": coverage, ROOT / "docs" / "dialects.md": dialects}


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
