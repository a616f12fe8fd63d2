"""The list of what runs on PostgreSQL names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import postgres_selection

ROOT = Path(__file__).parent.parent.parent


def test_every_file_runs_here_or_has_a_reason() -> None:
    found = {str(file.relative_to(ROOT)) for file in ROOT.glob("tests/**/test_*.py")}
    found = {name for name in found if "node_modules" not in name}
    own = {name for name in found if name.startswith("tests/postgres/")}
    listed = [*postgres_selection.FILES, *postgres_selection.FILES_NOT_HERE]
    assert len(listed) == len(set(listed))
    assert found - own == set(listed)


def test_every_file_and_every_exception_is_there() -> None:
    missing = [name for name in postgres_selection.FILES if not (ROOT / name).is_file()]
    assert missing == []
    written = "\n".join((ROOT / name).read_text() for name in postgres_selection.FILES)
    there = set(re.findall(r"def (test_\w+)", written))
    assert set(postgres_selection.NOT_HERE) - there == set()
