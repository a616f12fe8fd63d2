"""What hearing the topic does to short queries: more right answers, no more wrong ones."""

from __future__ import annotations

import pytest

from commonplace.dialects.mama import searching
from mama.conftest import Mama

# (topic, decision, reasoning, what somebody might ask who means it)
DECISIONS = [
    (
        "auth_strategy",
        "Use JWT with refresh tokens",
        "Need stateless auth for API scaling. Session-based auth failed under load.",
        ("authentication approach", "how do users log in?"),
    ),
    (
        "caching",
        "Switch to local LRU cache",
        "Redis added too much ops burden",
        ("caching strategy", "where do we cache responses?"),
    ),
    (
        "database_choice",
        "PostgreSQL for the main store",
        "Transactions and row-level security; SQLite locked under writers.",
        ("which database", "what do we store data in?"),
    ),
    (
        "deploy_strategy",
        "Blue-green with health checks",
        "Rollback within a minute; rolling updates left two versions live.",
        ("deployment method", "how are releases rolled out?"),
    ),
    (
        "testing_approach",
        "Integration tests over mocks",
        "Mocks hid two outages.",
        ("test policy", "do we use mocks in tests?"),
    ),
    (
        "error_handling",
        "Typed errors at the edge",
        "Clients need codes they can branch on.",
        ("error codes", "how do we report failures to clients?"),
    ),
    (
        "logging",
        "Structured JSON logs to stdout",
        "Grepping free text took hours.",
        ("log format", "where do logs go?"),
    ),
    (
        "frontend_framework",
        "Svelte for the dashboard",
        "Small bundles; the team knows it.",
        ("ui library", "what is the dashboard written in?"),
    ),
    (
        "rate_limiting",
        "Token bucket per API key",
        "Leaky bucket punished bursts of good clients.",
        ("throttling", "how do we limit requests?"),
    ),
    (
        "ci_pipeline",
        "GitHub Actions with caching",
        "Jenkins needed a full-time keeper.",
        ("build server", "what runs our builds?"),
    ),
    (
        "message_queue",
        "NATS instead of Kafka",
        "Kafka was too heavy for our volume.",
        ("event bus", "which broker do we use?"),
    ),
    (
        "api_style",
        "REST with OpenAPI",
        "GraphQL made caching and auth harder.",
        ("api design", "REST or GraphQL?"),
    ),
    (
        "secrets_management",
        "Vault with short leases",
        "Env files leaked once.",
        ("credentials storage", "where are secrets kept?"),
    ),
    (
        "office_plants",
        "Water the ficus every Monday",
        "It dried out twice in August.",
        ("plant care", "when is the ficus watered?"),
    ),
    (
        "code_review",
        "Two approvals for the core, one elsewhere",
        "Single approvals let a regression through.",
        ("review rules", "how many approvals does a change need?"),
    ),
    (
        "naming_convention",
        "snake_case in the database, camelCase in JSON",
        "Mixed names broke the ORM mapping.",
        ("column names", "how are fields named?"),
    ),
]


def test_hearing_the_topic_loses_nothing_that_is_right_and_adds_nothing_that_is_wrong(
    mama: Mama, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = {topic: mama.decide(topic, what, why) for topic, what, why, _ in DECISIONS}

    def counted() -> tuple[int, int]:
        right = wrong = 0
        for topic, _, _, queries in DECISIONS:
            for query in queries:
                found = [each["id"] for each in mama.found(query)]
                right += ids[topic] in found
                wrong += len(found) - (ids[topic] in found)
        return right, wrong

    hearing = counted()
    monkeypatch.setattr(searching, "TOPIC_SHARE", 0.0)
    deaf = counted()
    assert hearing[0] >= deaf[0] >= 24
    assert hearing[1] <= deaf[1] <= 6


def test_a_topic_that_says_nothing_takes_nothing_away(mama: Mama) -> None:
    mama.decide("x_17", "Use JWT with refresh tokens for authentication", "Stateless API auth.")
    mama.decide("_", "Authentication by JWT", "Stateless API authentication.")
    assert len(mama.found("authentication approach")) == 2
