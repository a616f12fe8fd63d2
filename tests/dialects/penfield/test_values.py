"""The contract's rules as functions of values: tags, paths, ranks, chunks, rates, personas."""

from __future__ import annotations

import contextlib
import itertools
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.dialects import registry
from commonplace.dialects.penfield import fusion, personas, tags
from commonplace.dialects.penfield.artifacts import check_path, content_type
from commonplace.dialects.penfield.chunks import MAX_CHARS, split_text
from commonplace.dialects.penfield.contexts import references
from commonplace.dialects.penfield.failures import BadPath, Invalid, check_weights
from commonplace.dialects.penfield.fusion import RECALL_WEIGHTS, SEMANTIC_WEIGHTS, Ranks, Weights
from commonplace.dialects.penfield.kinds import (
    RELATIONS,
    SHOWN_TYPES,
    TYPES,
    filters_of_types,
    type_of,
)
from commonplace.dialects.penfield.reflection import frequent_words
from commonplace.dialects.penfield.searching import citation_url
from commonplace.server.quotas import Quota, quota_of

# --- artifact paths ------------------------------------------------------------------------------

ACCEPTED = ["/a.txt", "/project/notes.md", "/a/b/c/d/e/f/g/h/i/j.txt", "/A-b_c/d.e.f", "/CON",
            "/a..b", "/" + "s" * 128]  # fmt: skip
REFUSED = [
    "a.txt", "/", "/a/", "", "/../x", "/a/../b", "/a/..", "/.git/x", "/a/.env", "/.",
    "/a/b/c/d/e/f/g/h/i/j/k.txt", "/a//b", "/a b", "/é.txt", "/ａ.txt", "/a\\b", "/a\x00b",
    "/a%2e%2e/b", "/a\n", "/a:b", "/" + "a" * 4_096, "/" + "s" * 256, "/" + "s" * 129, "/a/./b",
    "/…/x", "//a", "\n/a", "/a\r", "/a\u202e.txt", "/．．/x", "/a/\u2024\u2024/b",
]  # fmt: skip


@pytest.mark.parametrize("path", ACCEPTED)
def test_a_path_within_the_rules_is_accepted(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize("path", REFUSED)
def test_a_path_beyond_the_rules_is_refused(path: str) -> None:
    with pytest.raises(BadPath) as caught:
        check_path(path)
    assert caught.value.tool_code == "INVALID_PATH"
    assert caught.value.status == 400


def _by_hand(path: str) -> bool:
    """The rules once more, written as a person reads them."""
    if not path.startswith("/"):
        return False
    parts = path[1:].split("/")
    allowed = set(string.ascii_letters + string.digits + "-_.")
    return 1 <= len(parts) <= 10 and all(
        0 < len(part) <= 128 and not part.startswith(".") and set(part) <= allowed for part in parts
    )


@given(
    st.one_of(
        st.text(max_size=40),
        st.text(alphabet="/.ab-_\\ %2e\n\x00é", max_size=40),
        st.lists(st.sampled_from(["a", "..", ".", "", ".x", "b.c", "é"]), max_size=13).map(
            lambda parts: "/" + "/".join(parts)
        ),
    )
)
def test_paths_are_judged_as_a_person_would(path: str) -> None:
    try:
        check_path(path)
        accepted = True
    except BadPath:
        accepted = False
    assert accepted == _by_hand(path)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a.md", "text/markdown"), ("/a.txt", "text/plain"), ("/a.json", "application/json"),
        ("/a.html", "text/html"), ("/a.css", "text/css"), ("/a.js", "text/javascript"),
        ("/a.py", "text/x-python"), ("/a.svg", "image/svg+xml"), ("/a.xml", "application/xml"),
        ("/a.yaml", "application/yaml"), ("/a.csv", "text/csv"),
        ("/a.MD", "text/markdown"), ("/a.bin", "application/octet-stream"),
        ("/b.md/a", "application/octet-stream"),
    ],
)  # fmt: skip
def test_the_extension_decides_the_type(path: str, expected: str) -> None:
    assert content_type(path) == expected


# --- tags ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kept"),
    [("Python", "python"), ("API Design", "api-design"), ("snake_case", "snake-case"),
     ("ns:tag", "ns-tag"), (" trimmed ", "trimmed"), ("a" * 100, "a" * 100), ("a" * 101, None),
     ("c++", None), ("é", None), ("", None), ("   ", None)],
)  # fmt: skip
def test_tags_are_written_one_way_or_refused(given: str, kept: str | None) -> None:
    assert tags.normalise(given) == kept


def test_equal_tags_are_kept_once_in_their_order() -> None:
    assert tags.normalise_all(["B", "a b", "b", "a_b", "!"]) == (["b", "a-b"], ["!"])


# --- ranks ---------------------------------------------------------------------------------------


def test_first_place_everywhere_scores_one() -> None:
    base = fusion.fused_score(Ranks(1, 1, 0.9), RECALL_WEIGHTS)
    assert base == pytest.approx(0.8)
    assert fusion.final_score(base, 1, RECALL_WEIGHTS.graph, 0.5, 60) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("ranks", "weights", "expected"),
    [
        (Ranks(1, None, 0.0), RECALL_WEIGHTS, 0.4),
        (Ranks(2, None, 0.0), RECALL_WEIGHTS, 0.4 * 61 / 62),
        (Ranks(1, 1, 0.9), SEMANTIC_WEIGHTS, 0.9),
        (Ranks(None, 1, 0.9), SEMANTIC_WEIGHTS, 0.6),
        (Ranks(1, 1, 0.24), RECALL_WEIGHTS, 0.4),
        (Ranks(1, 1, 0.25), RECALL_WEIGHTS, 0.8),
    ],
)
def test_each_ranking_counts_by_its_weight(ranks: Ranks, weights: Weights, expected: float) -> None:
    assert fusion.fused_score(ranks, weights) == pytest.approx(expected)


def test_without_meaning_words_have_its_weight() -> None:
    assert fusion.fused_score(Ranks(1, None, 0.0), RECALL_WEIGHTS, meaning=False) == pytest.approx(
        0.8
    )


@given(
    st.integers(1, 1_000), st.integers(1, 1_000), st.integers(1, 1_000),
    st.floats(0, 1), st.integers(1, 100),
)  # fmt: skip
def test_scores_stay_within_nothing_and_one(
    bm25: int, vector: int, graph: int, importance: float, k: int
) -> None:
    base = fusion.fused_score(Ranks(bm25, vector, 1.0), RECALL_WEIGHTS, k)
    assert 0 <= fusion.final_score(base, graph, RECALL_WEIGHTS.graph, importance, k) <= 1


@pytest.mark.parametrize(
    ("parts", "sound"),
    [((0.4, 0.4, 0.2), True), ((0.4, 0.4, 0.21), True), ((0.4, 0.4, 0.19), True),
     ((0.4, 0.4, 0.22), False), ((0.4, 0.4, 0.18), False), ((0.0, 0.0, 1.0), True)],
)  # fmt: skip
def test_weights_add_up_to_one_within_a_hundredth(parts: tuple[float, ...], sound: bool) -> None:
    with contextlib.nullcontext() if sound else pytest.raises(Invalid):
        check_weights("bm25_weight", *parts)


# --- chunks --------------------------------------------------------------------------------------


@given(st.text(alphabet="ab. \n#é", max_size=3_000))
def test_chunks_are_short_and_lose_no_word(text: str) -> None:
    found = split_text(text)
    assert all(0 < len(chunk.text) <= MAX_CHARS for chunk in found)
    assert all(text[chunk.start : chunk.stop] == chunk.text for chunk in found)
    held = {at for chunk in found for at in range(chunk.start, chunk.stop)}
    assert all(at in held for at, sign in enumerate(text) if not sign.isspace())
    assert [chunk.start for chunk in found] == sorted({chunk.start for chunk in found})


def test_chunks_end_with_sentences_and_share_some_words() -> None:
    text = " ".join(f"Sentence number {i} tells of the harbour." for i in range(40))
    found = split_text(text)
    assert len(found) > 3
    assert all(chunk.text.rstrip().endswith(".") for chunk in found)
    for before, after in itertools.pairwise(found):
        assert 0 < before.stop - after.start <= 60


def test_a_heading_begins_a_chunk() -> None:
    text = "# One\n" + "Words of the first part. " * 5 + "\n# Two\n" + "Words of the second. " * 5
    assert [chunk.text[:5] for chunk in split_text(text)] == ["# One", "# Two"]


def test_the_headings_of_a_long_text_are_read_once() -> None:
    text = "# heading\n\nSome words here.\n" * 60_000  # two million characters are accepted
    assert len(split_text(text)) == 60_000


# --- the rest ------------------------------------------------------------------------------------


def test_there_are_24_relationship_types() -> None:
    assert len(RELATIONS) == len(set(RELATIONS)) == 24


def test_every_kind_is_shown_as_one_of_the_types() -> None:
    assert set(SHOWN_TYPES.values()) <= set(TYPES)
    assert type_of("decision") == "insight"
    assert type_of("never-heard-of") == "fact"
    assert type_of("task") == "task"


@pytest.mark.parametrize("chosen", TYPES)
def test_a_type_filter_sees_exactly_the_kinds_shown_so(chosen: str) -> None:
    conditions = filters_of_types([chosen])
    for kind in (*TYPES, *(set(SHOWN_TYPES) - {"*"}), "unheard"):
        seen = kind in conditions["kinds"] if "kinds" in conditions else (
            kind not in conditions["without_kinds"])  # fmt: skip
        assert seen == (type_of(kind) == chosen), kind


ONE = "550e8400-e29b-41d4-a716-446655440000"


@pytest.mark.parametrize(
    ("description", "ids", "phrases"),
    [
        (f"Key discovery in memory_id: {ONE}. Also see memory: 'JWT validation issue'.",
         [ONE], ["JWT validation issue"]),
        (f"MEMORY_ID:{ONE.upper()} and memory_id: {ONE}", [ONE], []),
        ('memory: "double quoted" memory: \'single\' memory: \'single\'', [],
         ["double quoted", "single"]),
        ("memory_id: not-an-id, memory: unquoted, memory: ''", [], []),
        ("", [], []),
    ],
)  # fmt: skip
def test_references_are_read_from_a_description(
    description: str, ids: list[str], phrases: list[str]
) -> None:
    assert references(description) == (ids, phrases)


def test_a_minute_lets_so_many_pass_and_says_when_the_next_begins() -> None:
    clock = [120.0]
    minutes = Quota(2, lambda: clock[0])
    assert minutes.count_request("a").headers() == {
        "x-ratelimit-limit": "2", "x-ratelimit-remaining": "1", "x-ratelimit-reset": "180",
    }  # fmt: skip
    assert minutes.count_request("a").remaining == 0
    clock[0] = 150.0
    refused = minutes.count_request("a")
    assert (refused.wait, refused.headers()["retry-after"]) == (30, "30")
    assert minutes.count_request("b").wait == 0
    clock[0] = 180.0
    assert minutes.count_request("a").wait == 0


@pytest.mark.parametrize(
    ("said", "limit"), [("", 250), ("100", 100), ("0", 250), ("-1", 250), ("many", 250)]
)
def test_the_rate_can_be_set(said: str, limit: int) -> None:
    quota = quota_of(registry.load("penfield").rate, {"COMMONPLACE_PENFIELD_RATE": said})
    assert quota is not None and quota.count_request("a").limit == limit


def test_there_are_ten_personas_and_the_first_is_free() -> None:
    assert [persona.id for persona in personas.PERSONAS] == [
        "professional", "teacher", "research_analyst", "strategic_partner", "workshop_buddy",
        "philosophical_guide", "devils_advocate", "sassy_pirate", "conspiracy_theorist",
        "egirl_uwu",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tier", "open_to", "traits", "default"),
    [("free", 1, False, False), ("standard", 8, False, False), ("premium", 10, True, False),
     ("enterprise", 10, True, True), ("unlimited", 10, True, True)],
)  # fmt: skip
def test_a_tier_opens_personas_and_says_what_unlocks_the_others(
    tier: str, open_to: int, traits: bool, default: bool
) -> None:
    told = personas.personas_to_dict(tier)
    assert (told["current_tier"], told["can_add_traits"], told["can_set_org_default"]) == (
        tier, traits, default,
    )  # fmt: skip
    flags = [persona["accessible"] for persona in told["personas"]]
    assert flags == [True] * open_to + [False] * (10 - open_to)
    for persona in told["personas"]:
        assert (persona["locked_message"] is None) == persona["accessible"]


def test_topics_are_the_words_of_most_texts() -> None:
    found = frequent_words(["The harbour closes", "A harbour opens", "the lantern of the harbour"])
    assert found[0] == "harbour"
    assert "the" not in found


def test_a_memory_is_cited_under_the_public_address_if_there_is_one() -> None:
    environ = {"COMMONPLACE_PUBLIC_URL": "https://memory.example/"}
    assert citation_url(ONE, environ) == f"https://memory.example/api/v2/memories/{ONE}"
    assert re.fullmatch(r"commonplace://memories/[0-9a-f-]{36}", citation_url(ONE, {}))
