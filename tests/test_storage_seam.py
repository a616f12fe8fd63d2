"""Only `storage/` talks to the database: nothing else imports its driver or passes SQL text.

`python tests/test_storage_seam.py` prints how much of it each package has.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import commonplace

SOURCE = Path(commonplace.__file__).parent
DRIVERS = {"apsw", "psycopg", "sqlite3"}
CALLS = {"execute", "executemany", "executescript", "fetch", "fetchone", "fetchall", "pragma"}
SQL = ("SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH ", "PRAGMA ", "BEGIN", "ROLLBACK",
       "AND ", "ORDER BY ", "WHERE ", "LIMIT ")  # fmt: skip


def _text(node: ast.AST) -> str:
    """How a string expression begins; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return _text(node.values[0]) if node.values else ""
    if isinstance(node, ast.BinOp):
        return _text(node.left)
    return ""


def found_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, what) of every driver import, every call that runs a statement, and all SQL text.

    SQL text is looked for wherever it stands, so that neither a constant nor a function that hides
    the call lets it pass.
    """
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.partition(".")[0] in DRIVERS:
                    yield node.lineno, f"import {name.name}"
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").partition(".")[0] in DRIVERS:
                yield node.lineno, f"import {node.module}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            given = [_text(argument) for argument in node.args[:1]]
            if node.func.attr in CALLS and (given == [] or given[0]):
                yield node.lineno, f"{node.func.attr}({given[0][:40] if given else ''})"
        elif _text(node).lstrip().startswith(SQL) and id(node) not in docstrings:
            yield node.lineno, f"SQL text: {_text(node).strip()[:40]}"


def _package(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0]


def _all() -> Iterator[tuple[str, str]]:
    for file in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for line, what in sorted(set(found_in(tree))):
            yield _package(file), f"{file.relative_to(SOURCE)}:{line} {what}"


def test_only_storage_talks_to_the_database() -> None:
    assert [what for package, what in _all() if package != "storage"] == []


def test_what_storage_does_is_found() -> None:
    assert len([what for package, what in _all() if package == "storage"]) > 100


@pytest.mark.parametrize(
    "code",
    [
        "import apsw",
        "from apsw import Connection",
        "if TYPE_CHECKING:\n    import apsw",
        "def f():\n    import psycopg",
        "rows.execute('VACUUM')",
        "rows.execute(f'ANALYZE {table}')",
        "rows.execute('SELECT ' + columns)",
        "connection.executemany('ANALYZE', [])",
        "QUERY = 'SELECT 1'",
        "run(f'DELETE FROM {table}')",
        "rows.execute(QUERY).fetchall()",
        "MEMORIES.fetch(rows, space, 'AND num = ?', num)",
        "clause = ''.join(f'AND {column} = ? ' for column in columns)",
    ],
)
def test_the_check_sees(code: str) -> None:
    assert list(found_in(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "import apswx",
        "'''SELECT is a word of SQL.'''",
        "pool.execute(job)",
        "say('Delete memories')",
        "store.get(rows, key)",
    ],
)
def test_the_check_passes(code: str) -> None:
    assert not list(found_in(ast.parse(code)))


if __name__ == "__main__":
    for package, count in sorted(Counter(package for package, _ in _all()).items()):
        print(f"{package:12} {count:5}")  # noqa: T201
