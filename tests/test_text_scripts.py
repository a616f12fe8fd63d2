import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.text.scripts import dominant_script

SENTENCES = {
    "latin": "The quarterly report is due on Friday.",
    "cyrillic": "Отчёт нужно сдать в пятницу.",
    "han": "季度报告星期五截止。",
    "kana": "四半期報告書の締め切りは金曜日です。",
    "hangul": "분기 보고서는 금요일까지입니다.",
    "greek": "Η τριμηνιαία έκθεση λήγει την Παρασκευή.",
    "arabic": "التقرير الربع سنوي مستحق يوم الجمعة.",
    "hebrew": "הדוח הרבעוני יוגש ביום שישי.",
    "thai": "รายงานประจำไตรมาสต้องส่งวันศุกร์",
    "devanagari": "तिमाही रिपोर्ट शुक्रवार को देनी है।",
    "other": "კვარტალური ანგარიში პარასკევს",
    "none": "12:30 — 100 % 👍",
}


@pytest.mark.parametrize("script", SENTENCES)
def test_each_language_is_recognised_by_its_script(script: str) -> None:
    assert dominant_script(SENTENCES[script]) == script


def test_empty_text_has_no_script() -> None:
    assert dominant_script("") == "none"


def test_a_japanese_sentence_about_an_english_product_is_japanese() -> None:
    assert dominant_script("PostgreSQLの接続プールを増やした。") == "kana"


def test_a_chinese_text_with_one_borrowed_kana_stays_chinese() -> None:
    assert dominant_script("我们昨天在优の良品买了很多零食然后一起去公园散步聊天") == "han"


def test_letters_after_a_long_rule_of_dashes_still_count() -> None:
    assert dominant_script("-" * 10_000 + " Отчёт готов") == "cyrillic"


def test_only_the_beginning_of_a_long_text_decides() -> None:
    assert dominant_script("report " * 1_000 + "отчёт " * 100_000) == "latin"


@given(st.text(st.characters(codec=None)))
def test_any_text_has_exactly_one_known_script(text: str) -> None:
    assert dominant_script(text) in SENTENCES
    assert (dominant_script(text) == "none") == (not any(c.isalpha() for c in text))
