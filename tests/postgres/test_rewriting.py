"""Statements are written once; this is how PostgreSQL is told them."""

from __future__ import annotations

import pytest

from commonplace.storage.postgres.rows import translated_statement


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("SELECT 1 WHERE a = ? AND b = ?", "SELECT 1 WHERE a = $1 AND b = $2"),
        ("SELECT 1 WHERE a = ?2 AND b = ?1", "SELECT 1 WHERE a = $2 AND b = $1"),
        ("SELECT '?' WHERE a = ?", "SELECT '?' WHERE a = $1"),
        (
            "SELECT json_extract(origin, '$.label')",
            "SELECT (origin::json #>> '{label}')",
        ),
        (
            "UPDATE artifacts SET path = ? WHERE path = ?",
            "UPDATE artifacts SET path = $1 WHERE"
            " (hashtextextended(path, 0) = hashtextextended($2, 0) AND path = $2)",
        ),
        (
            "SELECT 1 FROM facts f WHERE f.subject_key IN (?, ?)",
            "SELECT 1 FROM facts f WHERE (hashtextextended(f.subject_key, 0) IN"
            " (hashtextextended($1, 0), hashtextextended($2, 0)) AND f.subject_key IN ($1, $2))",
        ),
    ],
)
def test_a_statement_is_rewritten(written: str, told: str) -> None:
    assert translated_statement(written) == told
