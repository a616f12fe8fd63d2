"""Every promise of the seed names a test that is there."""

from __future__ import annotations

import ast
from pathlib import Path

from .coverage import ROWS

ROOT = Path(__file__).parents[3]


def test_every_row_names_a_test() -> None:
    known: dict[str, set[str]] = {}
    for section, line, proof in ROWS:
        assert section and line
        file, _, name = proof.partition("::")
        if file not in known:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            functions = (ast.FunctionDef, ast.AsyncFunctionDef)
            known[file] = {node.name for node in tree.body if isinstance(node, functions)}
        assert name in known[file], proof
    assert len({row[:2] for row in ROWS}) == len(ROWS)
