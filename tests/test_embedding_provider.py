from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from commonplace.embedding.builtin import BuiltIn
from commonplace.embedding.provider import TABLES, calibrated, knows_script

PAIRS: dict[str, list[list[str]]] = json.loads(
    (Path(__file__).parent / "similarity_pairs.json").read_text()
)
MINILM = "all-MiniLM-L6-v2"


@pytest.fixture(scope="module")
def similar() -> dict[str, np.ndarray]:
    """Calibrated similarities of every band's pairs, by the real model."""
    model = BuiltIn()
    assert model.id == MINILM

    def similarities(pairs: list[list[str]]) -> np.ndarray:
        left = model.embed([pair[0] for pair in pairs])
        right = model.embed([pair[1] for pair in pairs])
        return calibrated((left * right).sum(axis=1), model.id, "latin")

    return {band: similarities(pairs) for band, pairs in PAIRS.items()}


def test_unrelated_texts_stay_low(similar: dict[str, np.ndarray]) -> None:
    assert np.median(similar["unrelated"]) < 0.30
    assert np.quantile(similar["unrelated"], 0.95) < 0.35
    assert similar["unrelated"].max() < 0.45


def test_one_topic_lies_in_the_middle(similar: dict[str, np.ndarray]) -> None:
    assert 0.4 < np.median(similar["topic"]) < 0.6
    assert np.quantile(similar["topic"], 0.9) < 0.8


def test_answers_pass_the_cut_offs_for_queries(similar: dict[str, np.ndarray]) -> None:
    assert (similar["answer"] >= 0.6).mean() > 0.9
    assert (similar["answer"] >= 0.7).mean() > 0.85


def test_the_seeds_own_query_finds_its_decision(similar: dict[str, np.ndarray]) -> None:
    assert PAIRS["answer"][0][0] == "authentication approach"
    assert similar["answer"][0] >= 0.70


def test_paraphrases_are_high(similar: dict[str, np.ndarray]) -> None:
    assert similar["paraphrase"].min() >= 0.8
    assert np.median(similar["paraphrase"]) > 0.85


def test_a_changed_fact_is_not_taken_for_the_same(similar: dict[str, np.ndarray]) -> None:
    assert similar["changed"].max() < 0.85


def test_a_small_edit_is_a_duplicate(similar: dict[str, np.ndarray]) -> None:
    assert similar["duplicate"].min() >= 0.9


def test_equal_texts_are_one(similar: dict[str, np.ndarray]) -> None:
    np.testing.assert_allclose(similar["identical"], 1.0, atol=1e-4)


@pytest.mark.parametrize("key", [*TABLES, ("a model nobody measured", "latin")])
def test_calibration_keeps_order_and_bounds(key: tuple[str, str]) -> None:
    raw = np.linspace(-1.2, 1.2, 2_401)
    result = calibrated(raw, *key)
    assert (np.diff(result) >= 0).all()
    assert result.min() == 0.0
    assert result.max() == 1.0
    assert calibrated(1.0, *key) == 1.0


def test_one_number_and_many_agree() -> None:
    one = calibrated(0.5, MINILM, "latin")
    assert isinstance(one, float)
    assert calibrated(np.array([[0.5]]), MINILM, "latin") == np.array([[one]])


def test_a_model_nobody_measured_keeps_its_cosine() -> None:
    assert calibrated(0.4, "some-model", "latin") == pytest.approx(0.4)
    assert calibrated(-0.4, "some-model", "latin") == 0.0
    assert knows_script("some-model", "kana")


@pytest.mark.parametrize("script", ["kana", "han", "hangul", "cyrillic", "greek", "other"])
def test_the_built_in_model_does_not_know_other_scripts(script: str) -> None:
    assert not knows_script(MINILM, script)
    assert calibrated(0.85, MINILM, script) == 0.0
    assert calibrated(1.0, MINILM, script) == 1.0


@pytest.mark.parametrize("script", ["latin", "none"])
def test_text_without_letters_counts_as_latin(script: str) -> None:
    assert knows_script(MINILM, script)
    assert calibrated(0.34, MINILM, script) == pytest.approx(0.70)


@pytest.mark.parametrize(
    ("script", "one", "other"),
    [
        ("kana", "猫は鮭が好きです", "契約は六月に終わります"),
        ("hangul", "고양이는 연어를 좋아한다", "계약은 6월에 끝난다"),
        ("cyrillic", "Кошка любит лосося", "Договор заканчивается в июне"),
        ("other", "আমি ভাত খাই", "ট্রেন দেরিতে এসেছে"),
    ],
)
def test_unrelated_texts_in_unknown_scripts_are_not_similar(
    script: str, one: str, other: str
) -> None:
    model = BuiltIn()
    left, right = model.embed([one, other])
    assert float(left @ right) > 0.5
    assert calibrated(float(left @ right), model.id, script) == 0.0
