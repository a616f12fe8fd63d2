"""What an embedding provider is, and how one is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from commonplace.errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Embedder(Protocol):
    """Turns texts into vectors. Safe to call from several threads at once."""

    @property
    def id(self) -> str:
        """The model's name, as calibration knows it."""

    @property
    def weights(self) -> str:
        """Changes exactly when vectors of before and after must not be compared."""

    @property
    def dimensions(self) -> int:
        """The length of every vector."""

    @property
    def local(self) -> bool:
        """Whether texts stay in this process."""

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """One L2-normalised, finite row per text, in order.

        `query` says that someone waits for the answer. Raises `EmbeddingUnavailable`.
        """

    def close(self) -> None:
        """Gives back what the provider holds; it can be used again, and is then opened anew."""


def open_embedder(
    name_or_url: str | None = "builtin",
    *,
    api_key: str | None = None,
    model: str = "text-embedding-3-small",
    dimensions: int | None = None,
) -> Embedder | None:
    """The provider a setting names: "builtin", "none", or an OpenAI-compatible base URL.

    `None` means that there is none, and search goes by words. `api_key`, `model` and
    `dimensions` concern only a URL. Raises `EmbeddingUnavailable` when the built-in model was
    not built, `InvalidInput` when the setting means nothing.
    """
    chosen = (name_or_url or "none").strip()
    if chosen.lower() == "none":
        return None
    if chosen.lower() == "builtin":
        from commonplace.embedding.builtin import BuiltIn

        return BuiltIn()
    if chosen.lower().startswith(("http://", "https://")):
        from commonplace.embedding.openai import OpenAICompatible

        return OpenAICompatible(chosen, api_key=api_key, model=model, dimensions=dimensions)
    raise InvalidInput(
        f"There is no embedding provider called {chosen!r}.",
        hint='Use "builtin", "none", or the base URL of an OpenAI-compatible endpoint.',
        field="embedding",
    )
