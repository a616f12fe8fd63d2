"""Embedders that cost little to ask: one keeps the real model's answers, one has them ready."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import apsw
import numpy as np
from numpy.typing import NDArray

from commonplace.embedding.builtin import BuiltIn
from commonplace.embedding.provider import Embedder

DIMENSIONS = 512


class CachedEmbedder:
    """A real embedder whose vectors are cached on disk, by text and by the model's weights."""

    def __init__(self, model: Embedder, directory: Path) -> None:
        self._model = model
        self.id, self.weights = model.id, model.weights
        self.dimensions, self.local = model.dimensions, model.local
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._kept = apsw.Connection(str(directory / "embeddings.db"))
        self._kept.set_busy_timeout(60_000)
        self._kept.execute(
            "PRAGMA synchronous = OFF; PRAGMA journal_mode = WAL;"
            "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID"
        ).fetchall()
        self.computed = 0

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """The rows for the texts; only those never seen before are computed."""
        keys = [hashlib.sha256(f"{self.weights}\0{text}".encode()).digest() for text in texts]
        with self._lock:
            found = [self._find(key) for key in keys]
            missing = [at for at, row in enumerate(found) if row is None]
            if missing:
                made = self._model.embed([texts[at] for at in missing], query=query)
                self.computed += len(missing)
                with self._kept:
                    self._kept.executemany(
                        "INSERT INTO vectors VALUES (?, ?) ON CONFLICT DO NOTHING",
                        [
                            (keys[at], row.astype("<f4").tobytes())
                            for at, row in zip(missing, made, strict=True)
                        ],
                    )
                for at, row in zip(missing, made, strict=True):
                    found[at] = row
        rows = [row for row in found if row is not None]
        return np.stack(rows) if rows else np.empty((0, self.dimensions), np.float32)

    def embed_without_english(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The built-in model's quick part, which is computed anew."""
        assert isinstance(self._model, BuiltIn)
        return self._model.embed_without_english(texts)

    def knows_english(self, text: str) -> bool:
        """What the built-in model says."""
        assert isinstance(self._model, BuiltIn)
        return self._model.knows_english(text)

    def count_tokens(self, text: str) -> int:
        """What the built-in model says."""
        assert isinstance(self._model, BuiltIn)
        return self._model.count_tokens(text)

    def _find(self, key: bytes) -> NDArray[np.float32] | None:
        row = self._kept.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
        return None if row is None else np.frombuffer(row[0], "<f4")

    def close(self) -> None:
        """Give the model back; what is kept stays open, for a library that is opened again."""
        self._model.close()


class ReadyMadeEmbedder:
    """Gives each query the vector it was told, so that a recall's own time is what is measured.

    It passes for the built-in model, so that a store filled with it can be asked with the model.
    """

    local = True

    def __init__(self, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        self._vectors = vectors
        model = BuiltIn()
        self.id, self.weights, self.dimensions = model.id, model.weights, model.dimensions

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:  # noqa: ARG002
        """The vectors of known texts; a query whose spelling was changed gets any of them."""
        other = next(iter(self._vectors.values()))
        return np.stack([self._vectors.get(text, other) for text in texts])

    def close(self) -> None:
        """There is nothing to give back."""
