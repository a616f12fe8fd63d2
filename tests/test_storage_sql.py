"""SQL text in the source: every statement names its space, and other engines can run it.

A file holds one space today. Where spaces share tables, a statement without `space` reads or
changes another tenant's rows.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import commonplace
from commonplace.storage import schema

SOURCE = Path(commonplace.__file__).parent
STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b")
TABLES = set(
    re.findall(
        r"CREATE TABLE (\w+)", "".join(step for step in schema.MIGRATIONS if isinstance(step, str))
    )
)
REFERENCE = re.compile(
    r"\b(?:FROM|JOIN|INTO|UPDATE)\s+(\w+|\{\})(?:\s+(?:AS\s+)?(?!(?:WHERE|ON|SET|JOIN|LEFT|ORDER|"
    r"GROUP|LIMIT|NOT|UNION|INDEXED|VALUES|AND|RETURNING|SELECT)\b)([a-z]\w*))?"
)
# Statements of one SQLite file on rows whose space itself may be damaged.
WHOLE_FILE = {
    "DELETE FROM outbox",
    "DELETE FROM {} WHERE memory = ?",
    "SELECT {} FROM {} WHERE {}",
}
# Statements on tables that belong to no space: those of other programs, and PostgreSQL's version.
FOREIGN = {
    "SELECT version FROM {}.schema_version",
    "SELECT CASE WHEN {} BETWEEN oldest AND version THEN {} ELSE version END"
    " FROM {}.schema_version",
    "SELECT {} FROM {} ORDER BY {}",
}
# Statements that copy or compare all columns of a table, `space` among them, from one engine to
# another; the condition on it is appended.
COPYING = ("storage/postgres/copying.py", "storage/comparing.py")
COPIED = {
    "SELECT {} FROM {}{}",
    "SELECT {} FROM {}",
    "SELECT 1 FROM {} LIMIT 1",
    "DELETE FROM {}{}",
    "INSERT INTO {} ({}) VALUES ({})",
}
# Statements on system.db, which belongs to no space.
SYSTEM = {f"storage/{name}.py" for name in ("accounts", "credentials", "oauth", "secrets")}
NO_SPACE = "ON CONFLICT without space"
NOT_PORTABLE = {
    "a limit below zero": r"\bLIMIT -1",
    "json_extract; use json_field": r"\bjson_extract\(",
    "INSERT OR": r"\bINSERT OR\b",
    "max or min of two values": r"\b(?:max|min)\((?:[^(),]|\([^()]*\))+,",
    "changes": r"\bchanges\(\)",
    NO_SPACE: r"\bON CONFLICT \((?!space\b)",
}


def _flat(node: ast.AST) -> str:
    """A string expression as text, with {} for what is computed."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_flat(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _flat(node.left) + _flat(node.right)
    return "{}"


def statements(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) of every SQL statement among the string expressions."""
    text = _flat(tree)
    if STATEMENT.match(text):
        yield getattr(tree, "lineno", 0), " ".join(text.split())
        return
    for child in ast.iter_child_nodes(tree):
        yield from statements(child)


def unbound(statement: str) -> list[str]:
    """Tables of the statement to which no mention of `space` belongs."""
    bare = len(re.findall(r"(?<![.\w])space\b", statement))
    missing = []
    for table, alias in REFERENCE.findall(statement):
        if table != "{}" and table not in TABLES:
            continue
        if any(re.search(rf"\b{re.escape(name)}\.space\b", statement) for name in (alias, table)):
            continue
        bare -= 1
        if bare < 0:
            missing.append(table)
    return missing


def _source() -> list[tuple[str, str]]:
    rooms = [
        path for room in ("engine", "storage") for path in sorted((SOURCE / room).rglob("*.py"))
    ]
    return [
        (f"{path.relative_to(SOURCE)}:{line}", statement)
        for path in rooms
        for line, statement in statements(ast.parse(path.read_text(encoding="utf-8")))
    ]


def _of_system(where: str) -> bool:
    return where.partition(":")[0] in SYSTEM


def test_every_statement_on_a_table_of_spaces_names_the_space() -> None:
    found = [
        f"{where}: {', '.join(missing)}: {statement}"
        for where, statement in _source()
        if not _of_system(where)
        and statement not in WHOLE_FILE | FOREIGN
        and not (where.startswith(COPYING) and statement in COPIED)
        and (missing := unbound(statement))
    ]
    assert not found, "\n".join(found)


def test_statements_are_portable() -> None:
    found = [
        f"{where}: {what}: {statement}"
        for where, statement in _source()
        for what, pattern in NOT_PORTABLE.items()
        if re.search(pattern, statement) and not (what == NO_SPACE and _of_system(where))
    ]
    assert not found, "\n".join(found)


def test_the_walk_sees_the_statements_there_are() -> None:
    assert len(_source()) > 100
    assert {where.partition(":")[0] for where, _ in _source()} >= SYSTEM
    assert {statement for _, statement in _source()} >= WHOLE_FILE | FOREIGN
    assert {"memories", "links", "outbox", "models", "head", "versions"} <= TABLES


@pytest.mark.parametrize(
    ("statement", "missing"),
    [
        ("SELECT 1 FROM links LIMIT 1", ["links"]),
        ("SELECT 1 FROM links WHERE space = ? LIMIT 1", []),
        ("SELECT num FROM sqlite_schema", []),
        (
            "SELECT a.num FROM memories a JOIN links l ON l.source = a.id WHERE a.space = ?",
            ["links"],
        ),
        ("SELECT a.num FROM memories a JOIN links l ON l.space = a.space WHERE a.space = ?", []),
        (
            "UPDATE outbox SET x = 0 WHERE num IN (SELECT num FROM outbox WHERE space = ?)",
            ["outbox"],
        ),
        ("INSERT INTO models (id) VALUES (?)", ["models"]),
        ("DELETE FROM {} WHERE num = ?", ["{}"]),
    ],
)
def test_the_check_itself(statement: str, missing: list[str]) -> None:
    assert unbound(statement) == missing


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1 FROM links LIMIT -1",
        "SELECT json_extract(attrs, '$.a') FROM memories",
        "INSERT OR REPLACE INTO users VALUES (?)",
        "UPDATE t SET a = max(a, ?)",
        "INSERT INTO lexemes VALUES (?) ON CONFLICT (memory) DO NOTHING",
    ],
)
def test_what_other_engines_do_not_know_is_found(statement: str) -> None:
    assert any(re.search(pattern, statement) for pattern in NOT_PORTABLE.values())
