from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from commonplace.embedding import builtin
from commonplace.embedding.builtin import MODEL_DIRECTORY, BuiltIn
from commonplace.embedding.provider import QueryCache, open_embedder
from commonplace.errors import EmbeddingUnavailable, InvalidInput

# What a float64 forward pass over the original weights gives: base64 of float16.
REFERENCE: dict[str, str] = json.loads(
    (Path(__file__).parent / "embedding_reference.json").read_text()
)


ENGLISH, MULTILINGUAL = 384, 128


@pytest.fixture(scope="module")
def model() -> BuiltIn:
    return BuiltIn()


def test_vectors_are_those_of_the_original_weights(model: BuiltIn) -> None:
    texts = list(REFERENCE)
    packed = b"".join(base64.b64decode(vector) for vector in REFERENCE.values())
    expected = np.frombuffer(packed, "<f2").reshape(len(texts), -1).astype(np.float32)
    cosines = (model.english.embed(texts) * expected).sum(axis=1)
    assert cosines.min() > 0.995
    assert cosines.mean() > 0.999


def test_each_part_has_length_one(model: BuiltIn) -> None:
    vectors = model.embed(["a", "", "  ", "a longer sentence about nothing", "é" * 50])
    assert vectors.shape == (5, model.dimensions) == (5, ENGLISH + MULTILINGUAL)
    assert vectors.dtype == np.float32
    for part in (vectors[:4, :ENGLISH], vectors[:, ENGLISH:]):
        np.testing.assert_allclose(np.linalg.norm(part, axis=1), 1.0, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("Where does she keep her car overnight?", True),
        ("GHA runner fails with exit code 137", True),
        ("2026-11-17 10:00", True),
        ("Wo stellt sie nachts ihren Wagen ab?", False),
        ("Где она оставляет машину на ночь?", False),
        ("彼女は夜どこに車を止めますか？", False),
        ("她晚上把车停在哪里？", False),
    ],
)
def test_only_texts_that_the_english_encoder_knows_have_its_part(
    model: BuiltIn, text: str, known: bool
) -> None:
    (vector,) = model.embed([text])
    assert vector[:ENGLISH].any() == known
    assert vector[ENGLISH:].any()


def test_a_text_is_near_its_translations(model: BuiltIn) -> None:
    said = "My sister keeps bees behind the house."
    translations = [
        "Meine Schwester hält Bienen hinter dem Haus.",
        "Моя сестра держит пчёл за домом.",
        "姉は家の裏でミツバチを飼っています。",
        "내 여동생은 집 뒤에서 벌을 키운다.",
        "我姐姐在房子后面养蜜蜂。",
    ]
    others = ["Der Zug hatte Verspätung.", "契約は六月に終わります。"]
    rows = model.multilingual.embed([said, *translations, *others])
    near, far = rows[1:6] @ rows[0], rows[6:] @ rows[0]
    assert near.min() > 0.5
    assert far.max() < 0.3


def test_order_and_company_in_a_batch_do_not_matter(model: BuiltIn) -> None:
    texts = [f"memory {at} " + "and more words " * (at * 7 % 23) for at in range(80)]
    together = model.embed(texts)
    for at in (0, 3, 41, 79):
        np.testing.assert_allclose(together[at], model.embed([texts[at]])[0], atol=1e-5)


def test_no_text_gives_no_row(model: BuiltIn) -> None:
    assert model.embed([]).shape == (0, model.dimensions)
    assert model.embed([], query=True).shape == (0, model.dimensions)


def test_text_beyond_the_window_changes_nothing(model: BuiltIn) -> None:
    window = "word " * 300
    assert model.count_tokens(window) == 256
    vectors = model.embed([window, window + "and a different ending", "word " * 200_000])
    english = vectors[:, :ENGLISH]
    np.testing.assert_allclose(english[0], english[1], atol=1e-5)
    np.testing.assert_allclose(english[0], english[2], atol=1e-5)


@pytest.mark.parametrize("text", ["\ud800 half a pair", "\x00", "\U0001f600" * 600, "\u202e\u200b"])
def test_any_text_can_be_embedded(model: BuiltIn, text: str) -> None:
    assert np.isfinite(model.embed([text])).all()


def test_marks_of_the_model_in_a_text_are_text(model: BuiltIn) -> None:
    assert model.count_tokens("[MASK]") > 3


def test_query_vectors_are_kept_and_read_only(model: BuiltIn) -> None:
    first = model.embed(["where was it"], query=True)
    assert model.embed(["where was it"], query=True) is first
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 0.0
    several = model.embed(["where was it", "other", "where was it"], query=True)
    np.testing.assert_array_equal(several[0], several[2])
    np.testing.assert_array_equal(several[0], first[0])


def test_threads_get_the_same_vectors_from_a_cold_start() -> None:
    model = BuiltIn()
    expected = BuiltIn().embed(["shared question"])
    results: list[np.ndarray] = []
    threads = [
        threading.Thread(target=lambda: results.append(model.embed(["shared question"])))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    for result in results:
        np.testing.assert_allclose(result, expected, atol=1e-6)


def test_a_closed_model_loads_again() -> None:
    model = BuiltIn()
    before = model.embed(["again"])
    model.close()
    np.testing.assert_array_equal(model.embed(["again"]), before)


def test_nothing_heavy_is_imported_before_the_first_text() -> None:
    code = (
        "import sys\n"
        "from commonplace.embedding.provider import open_embedder\n"
        "model = open_embedder('builtin')\n"
        "assert model.dimensions == 512 and model.local and len(model.weights) == 64\n"
        "assert not {'numpy', 'onnxruntime', 'tokenizers', 'httpx'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_cold_path_is_affordable() -> None:
    code = (
        "import time\n"
        "from commonplace.embedding.builtin import BuiltIn\n"
        "BuiltIn().embed(['authentication approach'], query=True)\n"
        "assert time.process_time() < 1.5, time.process_time()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_files_are_those_that_were_built(model: BuiltIn) -> None:
    model.verify()


FILES = tuple(path.name for path in MODEL_DIRECTORY.iterdir())


@pytest.mark.parametrize("missing", FILES)
def test_a_missing_file_says_how_to_build(tmp_path: Path, missing: str) -> None:
    for name in set(FILES) - {missing}:
        (tmp_path / name).symlink_to(MODEL_DIRECTORY / name)
    with pytest.raises(EmbeddingUnavailable, match=r"tools/build_model\.py"):
        BuiltIn(tmp_path)


@pytest.mark.parametrize("broken", sorted(set(FILES) - {"model.json"}))
def test_a_broken_file_says_how_to_build(tmp_path: Path, broken: str) -> None:
    for name in set(FILES) - {broken}:
        (tmp_path / name).symlink_to(MODEL_DIRECTORY / name)
    (tmp_path / broken).write_bytes((MODEL_DIRECTORY / broken).read_bytes()[:1000])
    model = BuiltIn(tmp_path)
    with pytest.raises(EmbeddingUnavailable, match=r"tools/build_model\.py"):
        model.embed(["one"])
    with pytest.raises(EmbeddingUnavailable, match=broken):
        model.verify()


def test_batches_are_of_like_length_and_bounded() -> None:
    lengths = [256, 3, 4, 256, 3] * 40
    batches = list(builtin._batches_by_length(lengths))
    assert sorted(at for batch in batches for at in batch) == list(range(200))
    for batch in batches:
        longest = max(lengths[at] for at in batch)
        assert len(batch) <= builtin.BATCH_TEXTS
        assert longest * len(batch) <= builtin.ENGLISH_BATCH_TOKENS


def test_the_cache_forgets_the_query_asked_longest_ago() -> None:
    asked: list[str] = []

    def compute(texts: list[str]) -> np.ndarray:
        asked.extend(texts)
        return np.ones((len(texts), 2), np.float32)

    cache = QueryCache(size=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        cache.embed([text], compute)
    assert asked == ["a", "b", "c", "b"]
    assert len(cache) == 2
    cache.embed(["x" * 5_000], compute)
    assert len(cache) == 2


def test_the_model_leaves_nothing_at_home_that_reports_its_use(tmp_path: Path) -> None:
    code = "from commonplace.embedding.builtin import BuiltIn\nBuiltIn().embed(['a text'])"
    quiet = ("ORT_", "XDG_", "CI", "TF_BUILD", "GITHUB_", "PYTEST")  # some keep it quiet anyway
    kept = {name: value for name, value in os.environ.items() if not name.startswith(quiet)}
    subprocess.run([sys.executable, "-c", code], env={**kept, "HOME": str(tmp_path)}, check=True)
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("name", [None, "none", "None", ""])
def test_no_provider_is_a_choice(name: str | None) -> None:
    assert open_embedder(name) is None


def test_a_url_is_an_endpoint() -> None:
    provider = open_embedder("https://api.example/v1", model="text-embedding-3-large")
    assert provider is not None
    assert (provider.id, provider.dimensions, provider.local) == (
        "text-embedding-3-large",
        3072,
        False,
    )


@pytest.mark.parametrize("name", ["ollama", "ftp://example", "http://"])
def test_an_unknown_provider_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        open_embedder(name)


def test_a_text_is_split_word_by_word_as_it_is_as_a_whole(model: BuiltIn) -> None:
    pieces = model.multilingual._load()[0]
    for text in (
        "Who repairs the harbour lamp in spring?", "Grüße aus München, naïve café",
        "今日は良い天気ですね。 散歩に 行きましょう", "Привет мир", "odd \u2581 marks\u2581here 🙂",
        "Donaudampfschifffahrtsgesellschaftskapitän " * 3,
    ):  # fmt: skip
        whole = "\u2581" + "\u2581".join(unicodedata.normalize("NFKC", text).split())
        for _ in range(2):  # the second time from what is kept
            assert pieces.encode(text)[1:-1] == pieces._best_split(whole)[0]
