"""Builds a database as the original MAMA leaves one behind, from its schema at version 0.10."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE decisions (
  id TEXT PRIMARY KEY, topic TEXT NOT NULL, decision TEXT NOT NULL, reasoning TEXT,
  outcome TEXT CHECK (outcome IN ('SUCCESS', 'FAILED', 'PARTIAL') OR outcome IS NULL),
  failure_reason TEXT, limitation TEXT, duration_days INTEGER, user_involvement TEXT,
  session_id TEXT, supersedes TEXT, superseded_by TEXT, refined_from TEXT,
  confidence REAL DEFAULT 0.5, created_at INTEGER, updated_at INTEGER,
  needs_validation INTEGER DEFAULT 0, usage_count INTEGER DEFAULT 0, trust_context TEXT,
  evidence TEXT, alternatives TEXT, risks TEXT,
  FOREIGN KEY (supersedes) REFERENCES decisions(id)
);
CREATE TABLE decision_edges (
  from_id TEXT NOT NULL, to_id TEXT NOT NULL, relationship TEXT NOT NULL, reason TEXT,
  weight REAL DEFAULT 1.0, created_at INTEGER, created_by TEXT DEFAULT 'user',
  approved_by_user INTEGER DEFAULT 1, decision_id TEXT, evidence TEXT,
  PRIMARY KEY (from_id, to_id, relationship)
);
CREATE TABLE checkpoints (
  id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp INTEGER NOT NULL, summary TEXT NOT NULL,
  open_files TEXT, next_steps TEXT, recent_conversation TEXT DEFAULT '[]',
  status TEXT DEFAULT 'active'
);
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at INTEGER, description TEXT);
"""
NOON = 1_732_530_000_000
"""Milliseconds: 25 November 2024, 10:20 UTC."""


class OriginalDatabase:
    """An open database of the original; it may stay open while it is imported."""

    def __init__(self, path: Path, *, wal: bool = True) -> None:
        self.path = path
        self.connection = sqlite3.connect(path)
        if wal:
            self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.executescript(SCHEMA)
        self._declare_extension_table()

    def _declare_extension_table(self) -> None:
        """The original's vectors are in a table of an extension that is not here."""
        self.connection.executescript(
            "PRAGMA writable_schema = ON;"
            "INSERT INTO sqlite_schema VALUES ('table', 'vss_memories', 'vss_memories', 0,"
            " 'CREATE VIRTUAL TABLE vss_memories USING vec0(embedding float[384])');"
            "PRAGMA writable_schema = OFF;"
        )

    def add(self, table: str, **values: Any) -> None:
        """One row, committed."""
        self.add_all(table, values)

    def add_all(self, table: str, *rows: Mapping[str, Any]) -> None:
        """Rows, committed together."""
        for values in rows:
            marks = ", ".join("?" * len(values))
            self.connection.execute(
                f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})",
                tuple(values.values()),
            )
        self.connection.commit()

    def decide(self, id: str, topic: str, decision: str = "It is so.", **more: Any) -> None:
        """A decision as the original saves it: what it supersedes is told of it, too."""
        values = {"reasoning": "Because.", "created_at": NOON, "updated_at": NOON, **more}
        self.add("decisions", id=id, topic=topic, decision=decision, **values)
        if old := more.get("supersedes"):
            self.connection.execute(
                "UPDATE decisions SET superseded_by = ? WHERE id = ?", (id, old)
            )
            self.add("decision_edges", from_id=id, to_id=old, relationship="supersedes",
                     reason="Newer", created_at=NOON)  # fmt: skip

    def close(self) -> None:
        """Let go of it; the log then goes into the file."""
        self.connection.close()


def build(path: Path) -> OriginalDatabase:
    """A small database with one of everything."""
    made = OriginalDatabase(path)
    made.decide("decision_auth_strategy_1732530000_abc", "auth_strategy",
                "Use JWT with refresh tokens", confidence=0.85, outcome="SUCCESS",
                reasoning="Need stateless auth for API scaling. Session-based auth failed.",
                user_involvement="approved", evidence='["a.log"]')  # fmt: skip
    made.decide("decision_caching_1_aaaa", "caching", "Use Redis", created_at=NOON + 1000,
                outcome="FAILED", failure_reason="Too complex")  # fmt: skip
    made.decide("decision_caching_2_bbbb", "caching", "Use an LRU cache", created_at=NOON + 2000,
                supersedes="decision_caching_1_aaaa")  # fmt: skip
    made.decide("decision_auth_v2_3_cccc", "auth_v2", "Add OAuth2", created_at=1_732_530_003,
                refined_from='["decision_caching_2_bbbb"]', confidence=None)  # fmt: skip
    made.add_all(
        "decision_edges",
        {"from_id": "decision_auth_v2_3_cccc", "to_id": "decision_auth_strategy_1732530000_abc",
         "relationship": "builds_on", "reason": "Social login", "weight": 0.5},
        {"from_id": "decision_auth_v2_3_cccc", "to_id": "decision_caching_2_bbbb",
         "relationship": "debates", "reason": "proposed", "approved_by_user": 0},
        {"from_id": "decision_auth_v2_3_cccc", "to_id": "decision_gone", "relationship": "debates"},
    )  # fmt: skip
    made.add("checkpoints", id=3, timestamp=NOON, summary="JWT done.", next_steps="Refresh flow",
             open_files='["src/auth/jwt.ts"]', recent_conversation='[{"role":"user"}]')  # fmt: skip
    made.add("checkpoints", id=7, timestamp=NOON + 5000, summary="All done.", status="archived")
    return made
