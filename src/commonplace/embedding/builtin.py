"""The built-in model: all-MiniLM-L6-v2, inside the package, offline."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commonplace.embedding.provider import QueryCache
from commonplace.errors import EmbeddingUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODEL_DIRECTORY = Path(__file__).parent / "model"
BATCH_TEXTS = 32
# Larger batches were no faster on one thread, and 32 full windows take 190 MB more.
BATCH_TOKENS = 1_024
# Longer texts are cut before they are tokenised; the model's window is much shorter.
LONGEST_TEXT = 32_768

REBUILD = (
    "Reinstall the package, or in a source tree run `python tools/build_model.py` "
    "(it needs hatchling, numpy, onnx and safetensors)."
)


@dataclass(frozen=True)
class _Loaded:
    """The tokenizer and the session, loaded with the first text."""

    tokenizer: Any
    session: Any


class BuiltIn:
    """Embeds in this process. Nothing heavy is imported or read before the first text."""

    local = True

    def __init__(self, directory: Path = MODEL_DIRECTORY, *, threads: int = 1) -> None:
        self._directory = directory
        self._threads = threads
        self._about = _read_about(directory)
        self.id = str(self._about["id"])
        self.weights = str(self._about["weights"])
        self.dimensions = int(self._about["dimensions"])
        self._queries = QueryCache()
        self._loaded: _Loaded | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"BuiltIn({self.id!r}, dimensions={self.dimensions})"

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """One L2-normalised row per text, in order; rows of queries are shared and read-only."""
        if query and texts:
            return self._queries.embed(texts, self._compute)
        return self._compute(texts)

    def count_tokens(self, text: str) -> int:
        """The number of tokens of a text, including the two special ones."""
        return len(self._load().tokenizer.encode(_clean(text)).ids)

    def verify(self) -> None:
        """Raise `EmbeddingUnavailable` if a file does not match its recorded SHA-256."""
        for name, recorded in (("model.onnx", "weights"), ("tokenizer.json", "tokenizer")):
            content = (self._directory / name).read_bytes()
            if hashlib.sha256(content).hexdigest() != self._about[recorded]:
                raise EmbeddingUnavailable(
                    f"The built-in model's {name} does not match its recorded SHA-256.",
                    hint=REBUILD,
                )

    def close(self) -> None:
        """Free the model's memory; the next text loads it again."""
        with self._lock:
            self._loaded = None

    def _compute(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        vectors = np.empty((len(texts), self.dimensions), np.float32)
        if not texts:
            return vectors
        model = self._load()
        tokens = [model.tokenizer.encode(_clean(text)).ids for text in texts]
        for batch in _batches([len(ids) for ids in tokens]):
            longest = max(len(tokens[at]) for at in batch)
            ids = np.zeros((len(batch), longest), np.int32)
            mask = np.zeros_like(ids)
            for row, at in enumerate(batch):
                ids[row, : len(tokens[at])] = tokens[at]
                mask[row, : len(tokens[at])] = 1
            inputs = {"input_ids": ids, "attention_mask": mask}
            try:
                vectors[batch] = model.session.run(["vectors"], inputs)[0]
            except Exception as error:  # onnxruntime's errors have no common base class
                raise EmbeddingUnavailable(
                    f"The built-in model failed to compute: {error}", hint=REBUILD
                ) from error
        if not np.isfinite(vectors).all():
            raise EmbeddingUnavailable(
                "The built-in model computed infinite or undefined numbers.", hint=REBUILD
            )
        return vectors

    def _load(self) -> _Loaded:
        loaded = self._loaded
        if loaded is None:
            with self._lock:
                loaded = self._loaded
                if loaded is None:
                    loaded = self._loaded = _load(self._directory, self._threads)
        return loaded


def _read_about(directory: Path) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads((directory / "model.json").read_bytes())
        for name in ("model.onnx", "tokenizer.json"):
            (directory / name).stat()
        for key in ("id", "weights", "tokenizer", "dimensions"):
            about[key]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EmbeddingUnavailable(
            f"The built-in model in {directory} is incomplete.", hint=REBUILD
        ) from error
    return about


def _load(directory: Path, threads: int) -> _Loaded:
    try:
        # onnxruntime sends telemetry and stores a machine id under HOME unless this variable is set
        # before the import; the call below is for programs that imported it earlier.
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"
        import onnxruntime
        from tokenizers import Tokenizer

        onnxruntime.disable_telemetry_events()
        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        # Special tokens such as "[MASK]" in a text are plain text.
        tokenizer.encode_special_tokens = True
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        # With one thread the caller's thread computes, so that callers run in parallel.
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # The graph was optimised when it was built; more than constant folding only costs time.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        # Convert int8 matrices to float32 once, when loading (3 ms a run instead of 25).
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        session = onnxruntime.InferenceSession(
            str(directory / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # both libraries raise bare exceptions for unreadable files
        raise EmbeddingUnavailable(
            f"The built-in model could not be loaded: {error}", hint=REBUILD
        ) from error
    return _Loaded(tokenizer, session)


def _clean(text: str) -> str:
    """The text with bounded length and without lone surrogates, as the tokenizer needs it."""
    text = text[:LONGEST_TEXT]
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Batches of positions of texts with similar lengths, so that there is little padding."""
    batch: list[int] = []
    for at in sorted(range(len(lengths)), key=lambda at: lengths[at]):
        if len(batch) == BATCH_TEXTS or (len(batch) + 1) * lengths[at] > BATCH_TOKENS:
            if batch:
                yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch
