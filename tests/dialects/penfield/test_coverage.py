"""The table of what is proved where names tests that exist, and every tool and endpoint group."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from commonplace.server import served
from penfield.coverage import ROWS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "node", sorted({row[2] for row in ROWS if not row[2].startswith("later:")})
)
def test_a_named_test_exists(node: str) -> None:
    file, _, name = node.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert name in {item.name for item in tree.body if isinstance(item, ast.FunctionDef)}


def test_every_tool_has_rows() -> None:
    sections = {row[0] for row in ROWS}
    assert {tool.name for tool in served.load("penfield").tools} <= sections
