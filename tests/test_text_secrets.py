"""Secrets are found in what people and programs write, and little else is taken for one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from commonplace.text import secrets
from planted_secrets import ordinary, planted

SEEDS = (1, 2, 3)
ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_of_a_thousand_planted_secrets_99_percent_are_masked(seed: int) -> None:
    missed = []
    for text, secret in planted(seed):
        masked, kinds = secrets.mask(text)
        if secret in masked or not kinds or any(piece in masked for piece in _pieces(secret)):
            missed.append(text[:200])
    assert len(missed) <= 10, missed


def _pieces(secret: str) -> list[str]:
    """Parts of a secret that must not stay either."""
    return [secret[: len(secret) // 2], secret[len(secret) // 2 :]] if len(secret) >= 24 else []


@pytest.mark.parametrize("seed", SEEDS)
def test_of_ordinary_texts_at_most_half_a_percent_are_changed(seed: int) -> None:
    texts = ordinary(seed)
    wrong = [
        (text[:200], secrets.find_secrets(text)) for text in texts if secrets.find_secrets(text)
    ]
    assert len(wrong) <= len(texts) * 0.005, wrong[:20]


def test_our_own_source_and_docs_are_left_as_they_are() -> None:
    """Code and prose that talk of tokens and passwords all the time."""
    lines = [
        line
        for pattern in ("src/**/*.py", "docs/*.md", "*.md")
        for path in ROOT.glob(pattern)
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    wrong = [line for line in lines if secrets.find_secrets(line)]
    assert len(lines) > 50_000
    assert len(wrong) <= len(lines) * 0.0005, wrong[:40]


def test_masking_leaves_all_else_and_is_done_once() -> None:
    for text, secret in planted(4, 300):
        masked, kinds = secrets.mask(text)
        assert secrets.mask(masked) == (masked, []), text
        assert secrets.masked_kinds(masked) == kinds
        before = text.split(secret)[0]
        if secret in text and len(kinds) == 1 and not before.endswith("://"):
            assert masked.startswith(before[:20]), text


def test_every_kind_is_one_that_a_mark_can_name() -> None:
    for kind in secrets.KINDS:
        assert secrets.masked_kinds(f"x {secrets.mask_for(kind)} y") == [kind]


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("", ""),
        ("postgres://ann:s3cr3t@db/x", "postgres://ann:[masked: password in an address]@db/x"),
        ("postgres://ann:password@db/x", "postgres://ann:password@db/x"),
        ("postgres://ann:$PGPASS@db/x", "postgres://ann:$PGPASS@db/x"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("password: hunter2", "password: [masked: password]"),
        ("password: hunter", "password: hunter"),
        ("İ password: hunter2", "İ password: [masked: password]"),
        ("My password is swordfish.", "My password is swordfish."),
        ("two: ghp_" + "a1B2c3D4e5F6" * 3 + " and npm_" + "g7H8i9J0k1L2" * 3,
         "two: [masked: github token] and [masked: npm token]"),
        ("token_count=12345678901234567890ab", "token_count=12345678901234567890ab"),
    ],
)  # fmt: skip
def test_what_is_masked_and_what_stays(text: str, masked: str) -> None:
    assert secrets.mask(text)[0] == masked


def test_texts_in_a_json_value_are_masked_wherever_they_stand() -> None:
    given = {"a": ["password: hunter2", {"b": "fine"}], "c": 3, "d": None}
    masked, kinds = secrets.mask_values(given)
    assert masked == {"a": ["password: [masked: password]", {"b": "fine"}], "c": 3, "d": None}
    assert kinds == ["password"]


@pytest.mark.parametrize(("name", "text", "masked"), [
    ("password", "hunter2pass", "[masked: password]"),
    ("db_password", "correct-horse-battery", "[masked: password]"),
    ("api_key", "8f3Kq92LmZx07Tbv", "[masked: key]"),
    ("clientSecret", "8f3Kq92LmZx07Tbv", "[masked: key]"),
    ("secret", "password: hunter2", "password: [masked: password]"),
    ("password", "[masked: password]", "[masked: password]"),
    ("password", "changeme", "changeme"),
    ("password_hint", "hunter2pass", "[masked: password]"),
    ("token_count", "12345678901234567890ab", "12345678901234567890ab"),
    ("password_file", "/etc/pass2word", "/etc/pass2word"),
    ("name", "hunter2pass", "hunter2pass"),
])  # fmt: skip
def test_a_value_in_json_is_a_secret_by_its_name(name: str, text: str, masked: str) -> None:
    assert secrets.mask_values({"a": [{name: text}]})[0] == {"a": [{name: masked}]}


@pytest.mark.parametrize(
    "text",
    ["a" * 200_000, "password: " * 20_000, "key=" * 50_000, "://a:" * 40_000,
     "-----BEGIN PRIVATE KEY-----" * 5_000,
     "token is " * 20_000, "\n" * 200_000, "eyJ" * 60_000, "password " * 20_000 + "is"],
    ids=lambda text: text[:12].strip() or "lines",
)  # fmt: skip
def test_no_text_takes_long(text: str) -> None:
    """The work grows with the text: a text ten times as long takes no hundred times the steps."""
    secrets.find_secrets(text)  # a quadratic search of this would take minutes


def test_the_kinds_of_the_planted_set_are_many() -> None:
    kinds = Counter(kind for text, _ in planted(1) for kind in secrets.mask(text)[1])
    assert len(kinds) >= 25, kinds


@pytest.mark.parametrize("chars", [1_000, 10_000])
def test_a_text_that_is_searched_in_pieces_has_the_same_secrets(
    monkeypatch: pytest.MonkeyPatch, chars: int
) -> None:
    text = "\n".join(line for line, _ in planted(5, 200))
    whole = secrets.find_secrets(text)
    assert len(whole) > 100 and {"private key", "password"} <= {each.kind for each in whole}
    monkeypatch.setattr(secrets, "PIECE_CHARS", chars)
    assert secrets.find_secrets(text) == whole


def test_a_secret_around_the_end_of_a_piece_is_masked_once() -> None:
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    for shift in (-1_100, -60, -20, -1, 0, 1, 60):
        before = "word " * ((secrets.PIECE_CHARS + shift) // 5)
        masked, kinds = secrets.mask(f"{before}{token} and password: Tr0ub4dor-9 there")
        assert kinds == ["github token", "password"]
        assert masked.endswith(" and password: [masked: password] there") and token not in masked


def test_a_text_full_of_secrets_is_masked_in_linear_time() -> None:
    """Each is compared with its neighbours only; with all of them, this would take minutes."""
    text = "AKIAQWERTYUIOPASDFGH " * 40_000
    assert len(secrets.find_secrets(text)) == 40_000


def test_secrets_in_names_of_values_are_masked() -> None:
    one, two = f"ghp_{'a1B2c3' * 6}", f"ghp_{'d4E5f6' * 6}"
    given = {one: 1, "inner": [{two: "x", one: "y"}], "https://u:pa55word@h/x": 2, "password": 3}
    masked, kinds = secrets.mask_values(given)
    assert masked == {
        "[masked: github token]": 1,
        "inner": [{"[masked: github token]": "x", "[masked: github token] 2": "y"}],
        "https://u:[masked: password in an address]@h/x": 2,
        "password": 3,
    }
    assert sorted(kinds) == ["github token"] * 3 + ["password in an address"]
