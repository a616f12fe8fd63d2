"""What type a text is taken for, and how important."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.dialects.penfield.detection import detect_type, parse_checkpoint, rate_importance
from commonplace.dialects.penfield.kinds import STORED_TYPES

CHECKPOINT = json.dumps({"checkpoint_name": "Monday", "memory_ids": []})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (CHECKPOINT, "checkpoint"),
        ('{"checkpoint_name": 7}', "fact"),
        ("CORRECTION: the port is 3847", "correction"),
        ("The claim that WAL is slow was wrong", "correction"),
        ("It is actually the cache that fails", "correction"),
        ("The previous estimate turned out incorrect", "correction"),
        ("TODO: rotate the key", "task"),
        ("Follow up with Dana on Friday", "task"),
        ("We need to migrate the harbour data", "task"),
        ("The next step is a load test", "task"),
        ("Remind Sam about the invoice", "task"),
        ("See https://example.org/wal for the details", "reference"),
        ("RFC 8707 defines resource indicators", "reference"),
        ("docs: the deployment guide", "reference"),
        ("Knuth et al. describe it in chapter 6", "reference"),
        ("When the build fails, always check the lock file", "strategy"),
        ("The preferred approach is to write tests first", "strategy"),
        ("Never deploy on Fridays", "strategy"),
        ("The token's audience was never checked", "fact"),
        ("The harbour is always closed on Mondays", "fact"),
        ("Our strategy for search", "strategy"),
        ("INSIGHT: slow tests hide behind fast ones", "insight"),
        ("There is a pattern in the failures", "insight"),
        ("Load correlates with the backup", "insight"),
        ("I realized that the index is stale", "insight"),
        ("Caching leads to stale reads", "insight"),
        ("The job tends to fail at night", "insight"),
        ("User prefers direct answers", "relationship"),
        ("There is trust between the teams", "relationship"),
        ("Ann works with Bob on the parser", "relationship"),
        ("We discussed the roadmap", "conversation"),
        ("User said the demo went well", "conversation"),
        ("User confirmed the date", "conversation"),
        ("User wants darker colours", "conversation"),
        ("We talked for an hour", "conversation"),
        ("Both sides agreed on Tuesday", "conversation"),
        ("Python async uses asyncio for concurrent operations", "fact"),
        ("[Decision] Use SQLite", "insight"),
        ("[Task] We discussed this", "task"),
        ("[Session] The harbour is closed", "fact"),
        ("[identity_core] You are a pirate", "fact"),
    ],
)
def test_a_content_has_the_type_of_the_first_rule_that_fits(content: str, expected: str) -> None:
    assert detect_type(content) == expected


@given(st.text(max_size=300))
def test_a_protected_type_is_never_detected(content: str) -> None:
    assert detect_type(content) in STORED_TYPES
    assert detect_type(f"identity_core personality_trait {content}") in STORED_TYPES


@pytest.mark.parametrize(
    ("content", "memory_type", "expected"),
    [
        ("the harbour closes when the fog comes in early", "fact", 0.5),
        ("the harbour closes when the fog comes in early", "correction", 0.8),
        ("the harbour closes when the fog comes in early", "insight", 0.7),
        ("the harbour closes when the fog comes in early", "strategy", 0.7),
        ("the harbour closes when the fog comes in early", "relationship", 0.65),
        ("the harbour closes when the fog comes in early", "task", 0.6),
        ("the harbour closes when the fog comes in early", "reference", 0.5),
        ("the harbour closes when the fog comes in early", "conversation", 0.45),
        ("the harbour closes when the fog comes in early", "checkpoint", 0.9),
        ("the harbour must be closed when the fog comes in", "fact", 0.6),
        ("the harbour closes at 9 when the fog comes in early", "fact", 0.55),
        ("the harbour closes when Dana sees the fog come in", "fact", 0.55),
        ("x" * 400, "fact", 0.5),
        ("x" * 401, "fact", 0.55),
        ("x" * 39, "fact", 0.35),
        ("x" * 40, "fact", 0.5),
        ("a critical decision: never stop at 9 " + "x" * 400, "checkpoint", 0.95),
        ("short", "conversation", 0.3),
    ],
)
def test_importance_follows_type_weight_and_length(
    content: str, memory_type: str, expected: float
) -> None:
    assert rate_importance(content, memory_type) == pytest.approx(expected)


@pytest.mark.parametrize("content", ["{", '{"checkpoint_name": ', "[]", '{"name": "x"}', "null"])
def test_broken_or_other_json_is_no_checkpoint(content: str) -> None:
    assert parse_checkpoint(content) is None
