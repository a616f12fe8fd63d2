"""Real sentences in Japanese, Korean and Russian, in one space: the right one is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from commonplace import Commonplace, Draft
from commonplace.engine.binding import engine_call
from commonplace.engine.maintenance import upkeep
from conftest import texts

JAPANESE = {
    "来週の月曜日に東京本社で役員会議があります": ["東京の会議はいつ", "役員会議"],
    "田中さんは甲殻類のアレルギーがあるので、エビは避けてください": [
        "田中さんのアレルギー",
        "エビ",
    ],
    "新しいデータベースにはPostgreSQLを採用することに決めた": [
        "データベースの採用",
        "PostgreSQLを採用",
    ],
    "猫の名前はミケで、三歳になりました": ["猫の名前", "ミケは何歳"],
    "京都旅行では金閣寺と清水寺を見学した": ["金閣寺", "京都の旅行"],
    "毎朝六時に起きて三十分ジョギングをする": ["ジョギング", "朝何時に起きる"],
    "請求書は毎月一日に経理部から発送されます": ["請求書の発送", "経理部"],
    "祖母の味噌汁には必ず豆腐とわかめが入る": ["味噌汁の豆腐", "祖母"],
    "サーバーのバックアップは深夜二時に実行される": ["バックアップの実行", "サーバー"],
    "彼女は大学で量子力学を研究している": ["量子力学", "大学の研究"],
    "妹の結婚式は沖縄の海辺で行われた": ["結婚式", "沖縄"],
}
KOREAN = {
    "다음 주 월요일에 서울 본사에서 임원 회의가 있습니다": ["서울 회의", "임원 회의는 언제"],
    "김민수 씨는 땅콩 알레르기가 있으니 조심하세요": ["땅콩 알레르기", "김민수"],
    "새 데이터베이스로 PostgreSQL을 선택했습니다": ["데이터베이스 선택", "postgresql 데이터베이스"],
    "고양이 이름은 나비이고 세 살입니다": ["고양이의 이름", "나비"],
    "제주도 여행에서 한라산에 올랐다": ["한라산", "제주도에서 여행"],
    "매일 아침 여섯 시에 일어나 달리기를 한다": ["아침 달리기", "여섯 시"],
    "청구서는 매달 첫날에 발송됩니다": ["청구서 발송", "매달"],
    "할머니의 된장찌개에는 두부가 꼭 들어간다": ["된장찌개", "할머니 두부"],
    "서버 백업은 새벽 두 시에 실행됩니다": ["백업", "서버는 언제 백업"],
    "그녀는 대학교에서 양자역학을 연구한다": ["양자역학", "대학교 연구"],
    "여동생의 결혼식은 부산 바닷가에서 열렸다": ["결혼식", "부산 바닷가"],
}
RUSSIAN = {
    "В следующий понедельник в московском офисе пройдёт совещание": [
        "совещания в Москве офис", "понедельника",
    ],
    "У Анны аллергия на арахис, будьте осторожны": ["аллергии на арахис", "Анна"],
    "Мы выбрали PostgreSQL для новой базы данных": ["база данных", "выбор PostgreSQL"],
    "Кошку зовут Муся, ей три года": ["кошка", "Муся"],
    "Во время поездки в Казань мы осмотрели старый кремль": ["поездка Казань", "кремля"],
    "Каждое утро он бегает полчаса в парке": ["бегать в парке", "утром"],
    "Счета отправляются первого числа каждого месяца": ["отправка счетов", "счёт"],
    "В бабушкин борщ всегда кладут свежий укроп": ["борща", "укропа"],
    "Резервное копирование сервера запускается в два часа ночи": [
        "резервная копия сервера", "ночью",
    ],
    "Она изучает квантовую механику в университете": ["квантовая механика", "университет"],
    "Свадьба сестры прошла на берегу озера Байкал": ["свадьбу", "Байкала"],
}  # fmt: skip
LANGUAGES = {"japanese": JAPANESE, "korean": KOREAN, "russian": RUSSIAN}


@pytest.fixture(scope="module", params=["builtin", "none"])
def polyglot(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Commonplace:
    """All sentences of all languages in one space, with the real model and without."""
    path: Path = tmp_path_factory.mktemp("polyglot")
    memory = Commonplace(path, embedding=request.param)
    request.addfinalizer(memory.close)
    for sentences in LANGUAGES.values():
        memory.remember_many([Draft(text=text) for text in sentences])
    engine_call(memory, upkeep.embed_all)
    return memory


@pytest.mark.parametrize(
    ("language", "sentence"),
    [(language, text) for language, sentences in LANGUAGES.items() for text in sentences],
)
def test_the_right_sentence_comes_first(
    polyglot: Commonplace, language: str, sentence: str
) -> None:
    at = list(LANGUAGES[language]).index(sentence)
    same = {list(sentences)[at] for sentences in LANGUAGES.values()}  # what it says, translated
    for query in LANGUAGES[language][sentence]:
        found = texts(polyglot.recall(query, limit=3))
        assert sentence in found, query
        assert found[0] in same, query


def test_substrings_are_found_in_every_script(polyglot: Commonplace) -> None:
    assert len(texts(polyglot.find_text("会議"))) == 1
    assert len(texts(polyglot.find_text("알레르기"))) == 1
    assert len(texts(polyglot.find_text("КВАНТОВ"))) == 1


def test_english_beside_other_languages_is_found_by_meaning(real: Commonplace) -> None:
    for sentences in LANGUAGES.values():
        real.remember_many([Draft(text=text) for text in list(sentences)[:5]])
    real.remember("Alice moved to the vision team")
    assert (
        texts(real.recall("who works on images?", minimum=0))[0] == "Alice moved to the vision team"
    )


def test_statements_of_one_form_do_not_hide_the_answer(real: Commonplace) -> None:
    who = ("나디아는", "오스카는", "프리야는", "토마스는", "유수프는", "이웃 사람은")
    what = (
        "나무배를 수선했다", "다리를 사진으로 찍었다", "우산을 잃어버렸다", "사다리를 빌렸다",
        "시장에게 편지를 썼다", "동전을 두 번 셌다", "양초 두 개를 샀다", "박물관을 묘사했다",
        "소포를 돌려보냈다", "울타리를 초록색으로 칠했다",
    )  # fmt: skip
    others = [f"{one} {when} {did}." for one in who for when in ("3월에", "오전에") for did in what]
    answers = {
        "지붕은 누가 수리했나요?": "지난주에 목수가 물이 새는 기와를 고쳤다.",
        "그녀는 마당에 무엇을 키우나요?": "에바의 정원에는 토마토와 장미가 가득하다.",
        "그는 무엇이 있어야 잘 보나요?": "안경을 벗으면 다비드는 아무도 알아차리지 못한다.",
        "그녀가 좋아하는 색은 무엇인가요?": "미아의 방에 있는 것은 전부 파랗다.",
    }
    real.remember_many([Draft(text=text) for text in [*others, *answers.values()]])
    engine_call(real, upkeep.embed_all)
    for question, answer in answers.items():
        assert answer in texts(real.recall(question, limit=10)), question


GERMAN = [
    "Lena fährt mit der U-Bahn zur Arbeit.",
    "Anna ist allergisch gegen Erdnüsse.",
    "Markus übt seit seiner Kindheit Geige.",
    "Julia arbeitet als Softwareentwicklerin bei einer Bank.",
    "Im Juli sind wir für zwei Wochen nach Bali geflogen.",
    "Mein Tag beginnt immer mit zwei Tassen Kaffee.",
    "Der Vertrag läuft im September aus.",
    "Das Auto steht in der Garage meiner Schwester.",
    "Tobias hat am dritten Mai Geburtstag.",
    "Die Rechnung wurde gestern bezahlt.",
    "Petra spielt jeden Mittwoch Tennis.",
    "Unser Hund heißt Bello.",
    "Der neue Drucker steht im zweiten Stock.",
    "Meine Großmutter wohnt in Leipzig.",
    "Das Passwort wird alle drei Monate geändert.",
    "Am Wochenende gehen wir gern wandern.",
    "Der Zug nach Hamburg fährt um acht Uhr.",
    "Sabine mag keine Oliven.",
    "Wir haben die Küche blau gestrichen.",
    "Das Treffen ist auf Donnerstag verschoben.",
    "Jonas lernt seit einem Jahr Spanisch.",
    "Die Katze schläft am liebsten auf dem Sofa.",
]


def test_questions_about_things_never_stored_get_nothing_in_another_language(
    real: Commonplace,
) -> None:
    real.remember_many([Draft(text=text) for text in GERMAN])
    for query in (
        "Welche Bakterien verursachen Tuberkulose?",
        "Wie lautet die Ableitung des Arkustangens?",
    ):
        assert texts(real.recall(query)) == []
        assert real.recall(query, minimum=0) != []
    for query, place in (
        ("Welches Instrument kann Markus spielen?", 2),
        ("Wie kommt Lena ins Büro?", 0),
        ("Which food does Anna not tolerate?", 1),
    ):
        assert real.recall(query)[0].memory.text == GERMAN[place]


def test_in_another_language_a_worse_result_is_less_probable(real: Commonplace) -> None:
    real.remember_many([Draft(text=text) for text in GERMAN])
    hits = real.recall("Welches Instrument kann Markus spielen?", minimum=0)
    assert hits[0].memory.text == GERMAN[2]
    assert hits[0].probability > hits[1].probability > hits[-1].probability


def test_with_few_memories_in_another_language_nothing_is_left_out(real: Commonplace) -> None:
    real.remember_many([Draft(text=text) for text in GERMAN[:19]])
    assert real.recall("Welche Bakterien verursachen Tuberkulose?") != []


def test_why_says_what_a_memory_loses_for_resembling_many_others(real: Commonplace) -> None:
    alike = [
        f"{name} hat gestern den Rasen gemäht." for name in ("Ute", "Jan", "Eva", "Max", "Pia")
    ]
    real.remember_many([Draft(text=text) for text in [*alike, *GERMAN]])
    hits = real.recall("Was wurde im Garten getan?", minimum=0, limit=30)
    crowded = [hit for hit in hits if hit.memory.text in alike]
    assert all("like many others: -0." in str(hit.why) for hit in crowded) and crowded
    assert any(hit.why.crowded == 0 for hit in hits)
