"""The built-in model, inside the package, offline: an English and a multilingual encoder.

A vector has a part of each, and each part has a cosine of its own (`provider.parts`). Every text
has the multilingual part. The English part is zero for a text that the English encoder does not
know.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commonplace.embedding.english import English
from commonplace.embedding.multilingual import Multilingual
from commonplace.embedding.onnx_session import REBUILD
from commonplace.embedding.provider import QueryCache
from commonplace.errors import EmbeddingUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODEL_DIRECTORY = Path(__file__).parent / "model"


class BuiltIn:
    """Embeds in this process. Nothing heavy is imported or read before the first text."""

    local = True

    def __init__(self, directory: Path = MODEL_DIRECTORY, *, threads: int = 1) -> None:
        self._directory = directory
        self._about = _read_about(directory)
        self.id = str(self._about["id"])
        self.weights = str(self._about["weights"])
        self.english = English(directory, self._about["english"], threads=threads)
        self.multilingual = Multilingual(directory, self._about["multilingual"], threads=threads)
        self.dimensions = self.english.dimensions + self.multilingual.dimensions
        self._queries = QueryCache()

    def __repr__(self) -> str:
        return f"BuiltIn({self.id!r}, dimensions={self.dimensions})"

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """One row per text, in order; rows of queries are shared and read-only."""
        if query and texts:
            return self._queries.embed(texts, self._compute)
        return self._compute(texts)

    def count_tokens(self, text: str) -> int:
        """The number of the English encoder's tokens of a text, with the two special ones."""
        return self.english.count_tokens(text)

    def verify(self) -> None:
        """Raise `EmbeddingUnavailable` if a file does not match its recorded SHA-256."""
        for name, recorded in self._about["files"].items():
            with (self._directory / name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != recorded:
                    raise EmbeddingUnavailable(
                        f"The built-in model's {name} does not match its recorded SHA-256.",
                        hint=REBUILD,
                    )

    def close(self) -> None:
        """Free the model's memory; the next text loads it again."""
        self.english.close()
        self.multilingual.close()

    def _compute(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        english = self.english.embed(texts, known_only=True)
        return np.concatenate([english, self.multilingual.embed(texts)], axis=1)


def _read_about(directory: Path) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads((directory / "model.json").read_bytes())
        for name in about["files"]:
            (directory / name).stat()
        for key in ("id", "weights", "english", "multilingual"):
            about[key]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EmbeddingUnavailable(
            f"The built-in model in {directory} is incomplete.", hint=REBUILD
        ) from error
    return about
