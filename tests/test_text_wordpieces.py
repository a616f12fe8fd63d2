from math import ceil

import pytest

from commonplace.text.wordpieces import wordpieces_before

# How many wordpieces the tokenizer of all-MiniLM-L6-v2 really makes of each.
REAL_COUNTS = {
    "Yesterday Melanie told me that her daughter painted a sunset over the lake. They had "
    "stayed at the old cabin for a week, and it had rained on every day but one. ": 35,
    "Der Kunde kündigt den Mietvertrag zum Jahresende, weil die Hausverwaltung die "
    "Nebenkostenabrechnung trotz mehrfacher Aufforderung nicht vorgelegt hat.": 55,
    "Le gouvernement a annoncé hier une réforme des retraites qui suscite de nombreuses "
    "inquiétudes.": 31,
    "Новый договор аренды подписали вчера вечером.": 38,
    "会議は来週の火曜日の午後三時からです。": 19,
    "회의는 다음 주 화요일 오후 세 시에 시작합니다.": 38,
    "我们昨天讨论了数据库迁移的计划。": 16,
    "المكتبة الوطنية في القاهرة مفتوحة اليوم.": 35,
    "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b": 32,
    "def get_user_name(user_id: int) -> str: return users[user_id].name": 27,
    "Call +49 30 901820 on 2026-11-16 at 10:30.": 19,
}


@pytest.mark.parametrize("text", REAL_COUNTS)
def test_the_estimate_is_at_least_the_real_count_and_not_far_above(text: str) -> None:
    estimate = ceil(wordpieces_before(text)[-1] - 1e-6)
    assert REAL_COUNTS[text] <= estimate <= REAL_COUNTS[text] * 1.35


def test_no_text_costs_nothing() -> None:
    assert wordpieces_before("")[-1] == 0
    assert wordpieces_before(" \n\t")[-1] == 0
