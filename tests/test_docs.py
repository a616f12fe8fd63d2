"""The pages that are made from code are as the code says, and every line of a contract is shown."""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from commonplace.server import served

ROOT = Path(__file__).parent.parent


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_docs", ROOT / "tools" / "write_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


docs = _load()


@cache
def _tests_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    found |= {node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign):  # TestX = Machine.TestCase
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{each.name}" for each in node.body if hasattr(each, "name")}
    return found


@pytest.mark.parametrize("page", docs.PAGES, ids=lambda path: path.name)
def test_a_page_made_from_code_is_as_the_code_says(page: Path) -> None:
    assert page.read_text() == docs.PAGES[page](), "run 'make docs'"


@pytest.mark.parametrize("dialect", docs.contracts())
def test_every_line_of_a_contract_names_a_test_that_there_is(dialect: str) -> None:
    for section, line, test in docs.rows_of(dialect):
        assert section and line, (section, line, test)
        if test.startswith(docs.WITHOUT_TEST):
            continue
        file, _, name = test.partition("::")
        assert re.sub(r"\[.*", "", name) in _tests_in(ROOT / file), test


@pytest.mark.parametrize("dialect", docs.contracts())
def test_every_tool_of_a_contract_has_a_line(dialect: str) -> None:
    told = "\n".join(f"{section} {line}" for section, line, _ in docs.rows_of(dialect))
    missing = [
        tool.name
        for tool in served.load(dialect).tools
        if not re.search(rf"\b{re.escape(tool.name)}\b", told)
    ]
    assert missing == []


def test_every_dialect_says_how_it_shows_the_others() -> None:
    for name in docs.contracts():
        assert "*" in served.load(name).kinds, name
