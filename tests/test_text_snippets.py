import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.text.clusters import splits_cluster
from commonplace.text.snippets import snippet

ANY_TEXT = st.text(st.characters(codec=None), max_size=400)
FILLER = "Nothing of note happened on that long and quiet afternoon. "


def test_a_text_that_fits_is_shown_whole() -> None:
    text = "x" * 200
    assert snippet(text, "anything") == text
    assert snippet(text[:-1], "anything") == text[:-1]
    assert snippet(text + "x", "anything") != text + "x"


def test_the_window_lies_where_the_terms_stand_together() -> None:
    text = (
        "We spoke about the lake. "
        + FILLER * 10
        + "Melanie painted the sunset over the lake. "
        + FILLER * 10
    )
    shown = snippet(text, "Who painted a sunset at the lake?", 100)
    assert "painted the sunset over the lake" in shown
    assert shown.startswith("…")
    assert shown.endswith("…")


def test_other_forms_of_a_word_are_found_too() -> None:
    text = FILLER * 10 + "Die Kündigungen der Verträge sind eingegangen." + " Ende der Woche." * 20
    assert "Kündigungen der Verträge" in snippet(text, "Kündigung des Vertrags und der Frist", 80)


def test_without_a_match_the_beginning_is_shown() -> None:
    shown = snippet(FILLER * 10, "zeppelin", 50)
    assert shown == "Nothing of note happened on that long and quiet…"


@pytest.mark.parametrize("query", ["", "   ", "?!"])
def test_a_query_without_terms_shows_the_beginning(query: str) -> None:
    assert snippet("Zeppelins! " + FILLER * 10, query, 40).startswith("Zeppelins! Nothing")


@pytest.mark.parametrize(
    ("text", "query", "term"),
    [
        (
            "今日は何もありませんでした。" * 30 + "会議は火曜日です。" + "終わり。" * 60,
            "会議",
            "会議",
        ),
        ("오늘은 조용했습니다. " * 30 + "회의는 화요일입니다. " + "끝. " * 60, "회의", "회의"),
        ("วันนี้เงียบสงบ " * 30 + "ประชุมวันอังคาร " + "จบ " * 80, "ประชุม", "ประชุม"),
        ("Сегодня тихо. " * 30 + "Договоры подписаны. " + "Конец. " * 60, "договор", "Договоры"),
        ("اليوم هادئ. " * 30 + "افتتحت المكتبة الوطنية. " + "نهاية. " * 60, "مكتبة", "المكتبة"),
        ("今天很安静。" * 30 + "数据库迁移完成。" + "结束。" * 60, "数据库", "数据库"),
    ],
)
def test_the_term_is_shown_in_every_script(text: str, query: str, term: str) -> None:
    shown = snippet(text, query, 60)
    assert term in shown
    assert len(shown) <= 62


@pytest.mark.parametrize("width", range(1, 40))
def test_a_family_of_emoji_is_never_torn(width: int) -> None:
    family = "👨‍👩‍👧‍👦"
    text = f"{family} " * 20
    for piece in snippet(text, "nothing", width).strip("…").split():
        assert piece == family or width < len(family) + 1


@pytest.mark.parametrize("width", range(20, 60))
def test_words_stay_whole(width: int) -> None:
    text = FILLER * 5 + "The zeppelin landed." + FILLER * 5
    shown = snippet(text, "zeppelin", width)
    assert "zeppelin" in shown
    assert set(re.findall(r"\w+", shown)) <= set(re.findall(r"\w+", text))


@given(ANY_TEXT, ANY_TEXT, st.integers(1, 250))
def test_a_snippet_is_short_and_made_of_the_text(text: str, query: str, width: int) -> None:
    shown = snippet(text, query, width)
    if len(text) <= width:
        assert shown == text
    else:
        assert len(shown) <= width + 2
        assert any(
            shown[a : len(shown) - b] in text
            for a in (0, shown.startswith("…"))
            for b in (0, shown.endswith("…"))
        )


@given(st.lists(st.sampled_from(["👍🏽", "👩‍💻", "e\u0301", "🇩🇪", "กำ", "한", "a"]), min_size=1))
def test_no_cut_falls_inside_a_visible_character(clusters: list[str]) -> None:
    text = "".join(clusters)
    cuts = [at for at in range(1, len(text)) if not splits_cluster(text, at)]
    ends = [len("".join(clusters[: n + 1])) for n in range(len(clusters) - 1)]
    assert cuts == ends
