import threading
import time
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.text.analysis import PREFIX_MARK, analyse, analyse_query, token_spans
from commonplace.text.stopwords import QUESTION_PAIRS, QUESTION_WORDS, STOP_WORDS

ODD_WORDS = """
    getUserName don't l'homme C++ C# v1.2.3 1,000 a_b GPT-4 I 9f86d081 Rechnungen München Ò ñ ß ǅ İ
    ﬁ ﬃ ß's e\u0301 \u0301 ٢ программирование 会議は 猫 집에서 집 ｶﾞ ข้าวผัด 👍🏽 🇩🇪
"""
SPECIAL = sorted(
    {
        *chain.from_iterable(STOP_WORDS.values()),
        *chain.from_iterable(QUESTION_WORDS.values()),
        *QUESTION_PAIRS,
        *ODD_WORDS.split(),
    }
)
# Characters of any kind, or words that are treated in some special way.
ANY_TEXT = st.one_of(
    st.text(st.characters(codec=None)),
    st.builds(
        lambda words, between: between.join(words),
        st.lists(st.sampled_from(SPECIAL), max_size=8),
        st.sampled_from([" ", "", ".", "'", "_", "-", "@", ": ", "\n"]),
    ),
)


def finds(query: str, text: str) -> bool:
    """Whether the index entry of a text has anything that the query looks for."""
    return not set(analyse_query(query)).isdisjoint(analyse(text))


def finds_all(query: str, text: str) -> bool:
    return set(analyse_query(query)) <= set(analyse(text))


# --- languages ---


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("painted sunsets", "Caroline's daughter is painting a sunset over the lake."),
        ("Kündigung", "Der Vermieter hat die Kündigungen der Verträge gestern erhalten."),
        ("kundigung", "Die Kündigung des Vertrags ist bei uns eingegangen."),
        ("Vertrag", "Die Verträge wurden von der Verwaltung nicht unterschrieben."),
        ("Straße", "DIE STRASSE IST GESPERRT UND WIR SIND ZU SPÄT"),
        ("chats", "Le chat dort sur le canapé dans la maison de ma mère."),
        ("école", "Les enfants sont à l'école depuis ce matin."),
        ("gato", "Los gatos duermen en la casa de mi abuela."),
        ("la biblioteca della città", "Le biblioteche della città sono chiuse per le feste."),
        ("trabalhador", "Os trabalhadores foram ontem para a reunião da empresa."),
        ("inquiétude", "Les inquiétudes des ouvriers sont dans tous les journaux."),
        (
            "de vergaderingen van het team",
            "De vergadering van volgende week is verzet naar dinsdag.",
        ),
        ("договор", "Стороны подписали договоры аренды в прошлую пятницу."),
        ("елка", "Ёлка стояла в углу большой комнаты."),
        ("会議", "来週の会議は火曜日です。"),
        ("猫", "私の家には黒猫がいます。"),
        ("猫が好き", "隣の猫は白い。"),
        ("数据库", "我们昨天讨论了数据库迁移。"),
        ("茶", "他每天早上喝绿茶。"),
        ("회의", "다음 주 회의는 화요일입니다."),
        ("집", "어제 집에서 쉬었습니다."),
        ("집이", "어제 집에서 쉬었습니다."),
        ("ข้าวผัด", "ฉันชอบกินข้าวผัดกระเพรา"),
        ("مكتبة", "افتتحت المكتبة الوطنية في القاهرة."),
        ("كتاب", "قرأت الكِتَابَ أمس"),
        ("βιβλιοθηκη", "Η εθνική βιβλιοθήκη άνοιξε."),
        ("किताब", "मेज़ पर किताबें रखी हैं।"),
        ("ספרייה", "הספרייה ספרייה בירושלים"),
    ],
)
def test_a_short_query_finds_a_text_in_its_language(query: str, text: str) -> None:
    assert finds(query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("sunset", "The quarterly report is due on Friday."),
        ("Kündigung", "Der Kunde hat die Rechnung bezahlt."),
        ("会議", "昨日は雨でした。"),
        ("회의", "어제 비가 왔습니다."),
        ("ประชุม", "ฝนตกหนัก"),
        ("договор", "Вчера весь день шёл дождь."),
        ("数据库", "昨天下雨了。"),
        ("مكتبة", "نزل المطر أمس"),
    ],
)
def test_an_unrelated_text_is_not_found(query: str, text: str) -> None:
    assert not finds(query, text)


@pytest.mark.parametrize(
    "text",
    [
        "Der Kunde kündigt den Vertrag zum Jahresende, weil die Miete wieder gestiegen ist.",
        "Los trabajadores firmaron ayer los contratos de la empresa.",
        "Les ouvrières ont signé hier les contrats de la société.",
        "I lavoratori hanno firmato ieri i contratti della società.",
        "Os trabalhadores assinaram ontem os contratos da empresa.",
        "De medewerkers hebben gisteren de contracten van het bedrijf getekend.",
    ],
)
def test_every_single_word_of_a_text_finds_it_though_one_word_shows_no_language(text: str) -> None:
    function_words = frozenset[str]().union(*STOP_WORDS.values())
    words = set(text.lower().strip(".").replace(",", "").split()) - function_words
    assert len(words) >= 4
    for word in words:
        assert finds(word, text), word


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("Rechnungen", "Die Rechnung ist noch nicht bezahlt."),
        ("Termine mit Kindern", "Der Termin der Kinder ist im Mai."),
        ("decisión", "Las decisiones del equipo son para todos."),
        ("decisiones", "La decisión de usar PostgreSQL es del equipo."),
        ("informazioni", "L'informazione che ho non è di ieri."),
        ("Wann wurden die Kündigungen verschickt?", "Kündigung verschickt"),
        ("¿Cuáles son las decisiones del equipo?", "decisión tomada"),
        ("Où sont les factures de la maison ?", "facture payée"),
        ("Когда закончатся договоры?", "договор подписан"),
        ("会議はいつですか", "会議 火曜日"),
        ("회의는 언제 시작합니까?", "회의 화요일"),
        ("会议是什么时候", "会议 周二"),
    ],
)
def test_a_text_too_short_to_tell_its_language_meets_a_longer_one(query: str, text: str) -> None:
    assert finds(query, text)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("a man in a hat", ["man", "hat"]),
        ("Old man with hat", ["old", "man", "hat"]),
        ("The men want war", ["men", "want", "war"]),
        ("man was in war", ["man", "war"]),
        ("my son plus a ton of hay", ["son", "plus", "ton", "hay"]),
    ],
)
def test_english_words_that_look_foreign_stay_english(text: str, tokens: list[str]) -> None:
    assert analyse(text) == tokens


MONTHS = """
    January February March April May June July August September October November December
    Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec
    Januar Jänner Februar März Mai Juni Juli Oktober Dezember
    janvier février mars avril mai juin juillet août septembre octobre novembre décembre
    enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre
    gennaio febbraio aprile maggio giugno luglio settembre ottobre dicembre
    janeiro fevereiro março maio junho julho setembro outubro dezembro
    januari februari maart mei augustus
    января февраля марта апреля мая июня июля августа сентября октября ноября декабря май март
    Ιανουαρίου Μαΐου Μάιος मई مايو
"""


@pytest.mark.parametrize("month", MONTHS.split())
def test_a_month_is_never_left_out(month: str) -> None:
    for date in (f"8 {month} 2023", f"on {month} 8, 2023", f"Was war am 8. {month} mit der Bahn?"):
        assert finds(month, date)
        assert finds(date, month)
        assert {"8", "2023"} & set(analyse(date))


def test_english_stop_words_are_left_out_of_the_index() -> None:
    assert analyse("The cat is on the mat with them") == ["cat", "mat"]


def test_question_words_are_left_out_of_queries_only() -> None:
    assert analyse_query("Please tell me what Melanie painted") == ["melani", "paint"]
    assert "tell" in analyse("They tell stories")


@pytest.mark.parametrize("text", ["The Who", "to be or not to be", "was ist das", "что это"])
def test_a_text_of_stop_words_alone_keeps_them(text: str) -> None:
    assert analyse(text)
    assert finds(text, text)


def test_one_foreign_letter_does_not_decide_what_is_left_out() -> None:
    assert finds("SÒ:Ò", "SÒ:Ò")


def test_query_terms_are_distinct_and_index_terms_are_not() -> None:
    assert analyse("lake lake lakes") == ["lake", "lake", "lake"]
    assert analyse_query("lake lake lakes") == ["lake"]


def test_the_russian_short_i_stays_and_yo_does_not() -> None:
    assert analyse("ёлка") == analyse("елка")
    assert analyse("война") != analyse("воина")
    assert analyse("краи\u0306") == analyse("край")


def test_a_long_russian_word_also_matches_by_its_beginning_alone() -> None:
    assert PREFIX_MARK + "программ"[:5] in analyse("программирование")
    assert finds("программист", "программирование")
    assert not finds("прогр", "программирование")
    assert not any(token.startswith(PREFIX_MARK) for token in analyse("абвгде"))
    assert any(token.startswith(PREFIX_MARK) for token in analyse("абвгдеж"))


def test_japanese_becomes_pairs_across_kanji_and_kana() -> None:
    assert analyse("会議は") == ["会議", "議は", "会", "議"]
    assert analyse_query("会議は") == ["会議", "議は"]


def test_half_width_and_decomposed_writing_is_the_same() -> None:
    assert analyse("ｶﾞﾗｽ") == analyse("ガラス")
    assert analyse("ＡＢＣ") == ["abc"]
    assert analyse("\u1112\u116c\u110b\u1174") == analyse("회의")
    assert analyse("Cafe\u0301") == analyse("café") == analyse("cafe")


# --- identifiers, numbers, signs ---


@pytest.mark.parametrize(
    "spelling", ["getUserName", "get_user_name", "get-user-name", "GetUserName", "GET_USER_NAME"]
)
@pytest.mark.parametrize("query", ["user name", "getUserName", "getusername", "get_user_name"])
def test_an_identifier_is_found_by_its_words_and_as_a_whole(spelling: str, query: str) -> None:
    assert finds_all(query, f"It calls {spelling} twice.")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("email", "Please send an e-mail."),
        ("e-mail", "The email arrived."),
        ("foo.bar", "set foo.bar to 1"),
        ("bar", "set foo.bar to 1"),
        ("anna.smith@example.com", "write to anna.smith@example.com today"),
        ("anna", "write to anna.smith@example.com today"),
        ("github", "see https://github.com/foo/bar-baz?x=1"),
        ("bar-baz", "see https://github.com/foo/bar-baz?x=1"),
        ("v1.2.3", "released 1.2.3 yesterday"),
        ("1.2.3", "released v1.2.3 yesterday"),
        ("1000", "it cost $1,000"),
        ("1,000,000", "1000000 rows"),
        ("2026-11-16", "on 2026-11-16 we met"),
        ("GPT 4", "GPT-4 wrote it"),
        ("gpt4", "GPT-4 wrote it"),
        ("API", "All APIs are documented"),
        ("server", "HTTPServer failed"),
        ("http", "HTTPServer failed"),
        ("iphone", "her new iPhone"),
        ("C++", "rewritten in C++ last year"),
        ("C#", "rewritten in C# last year"),
        ("9f86d081", "fixed by 9f86d081 at last"),
        ("550e8400-e29b-41d4-a716-446655440000", "id 550E8400-E29B-41D4-A716-446655440000"),
        ("Caroline", "Caroline's dog"),
        ("Caroline’s", "Caroline was there"),
        ("O'Brien", "Mr. OBrien called"),
        ("homme", "l'homme"),
        ("٢٠٢٦", "in 2026"),
        ("👍", "ok 👍🏽"),
        ("👩‍💻", "the 👩‍💻 is here"),
        ("🇩🇪", "living in 🇩🇪 now"),
    ],
)
def test_everyday_spellings_meet(query: str, text: str) -> None:
    assert finds(query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [("C++", "C# code"), ("🇩🇪", "🇪🇩"), ("9f86d081", "86 and 81"), ("👍", "👎")],
)
def test_different_signs_do_not_meet(query: str, text: str) -> None:
    wanted = set(analyse_query(query)) - {"c"}
    assert wanted
    assert wanted.isdisjoint(analyse(text))


def test_possessives_and_contractions_leave_the_word() -> None:
    assert analyse("Caroline's") == ["carolin"]
    assert analyse("They don't know, we've seen Anna's dog") == ["know", "seen", "anna", "dog"]


def test_a_version_differs_from_its_digits_run_together() -> None:
    assert set(analyse("1.23")) != set(analyse("12.3"))


# --- for any text ---


@given(ANY_TEXT)
def test_any_text_is_analysed_to_clean_tokens(text: str) -> None:
    for token in analyse(text) + analyse_query(text):
        assert token
        assert not any(c.isspace() for c in token)
        assert all(c.isdigit() or c.islower() for c in token if c.isascii())


@given(ANY_TEXT)
def test_the_same_text_gives_the_same_tokens(text: str) -> None:
    assert analyse(text) == analyse(text)
    assert analyse_query(text) == analyse_query(text)


@given(ANY_TEXT)
def test_a_text_finds_itself(text: str) -> None:
    assert finds(text, text) == bool(analyse(text))


@given(st.text(st.characters(max_codepoint=127)))
def test_the_fast_path_reads_ascii_like_the_general_one(text: str) -> None:
    # Beside the thumb, a text of stop words alone has nothing to keep.
    assert analyse(f"{text} 👍") in ([*analyse(text), "👍"], ["👍"])
    assert analyse_query(f"zeppelin {text} 👍") == [*analyse_query(f"zeppelin {text}"), "👍"]


@given(ANY_TEXT)
def test_spans_lie_in_the_text_in_order(text: str) -> None:
    last = 0
    for start, stop, _ in token_spans(text):
        assert last <= start < stop <= len(text)
        last = start


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "_",
        "a.",
        "a'",
        "1,000",
        "x__",
        "会",
        "か",
        "한",
        "ก",
        "a\u0301",
        "\u0301",
        "👍",
        "\ud800",
    ],
)
def test_a_hundred_thousand_characters_of_anything_take_a_moment(unit: str) -> None:
    text = unit * (100_000 // len(unit))
    began = time.process_time()
    analyse(text)
    analyse_query(text)
    assert time.process_time() - began < 1


def test_threads_agree() -> None:
    texts = [f"Melanie painted sunset number {n} für die Kinder und den Hund" for n in range(500)]
    expected = [analyse(text) for text in texts]
    results: list[list[list[str]]] = []
    threads = [
        threading.Thread(target=lambda: results.append([analyse(text) for text in texts]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4
