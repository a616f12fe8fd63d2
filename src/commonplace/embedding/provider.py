"""Embedding providers: their interface, how one is chosen, a query cache, calibrated similarity.

Contracts compare similarities with thresholds chosen for other models: .35 means about related, .5
and .6 about the same topic, .7 an answer, .85 and .9 the same statement. The range of raw cosines
differs between models, and is meaningful only for the scripts of their training. So a table maps
raw cosines to similarities.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, overload

from commonplace.errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    VectorRows = NDArray[np.float32]
    # Increasing pairs of (raw cosine, calibrated similarity), with linear interpolation between
    # them.
    Knots = Sequence[tuple[float, float]]


class Embedder(Protocol):
    """Turns texts into vectors. Threads may share it."""

    @property
    def id(self) -> str:
        """The model's name."""

    @property
    def weights(self) -> str:
        """An identifier of the weights. Vectors of different weights must not be compared."""

    @property
    def dimensions(self) -> int:
        """The length of every vector."""

    @property
    def local(self) -> bool:
        """Whether texts are embedded in this process."""

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Return one finite row for each text, in order; each part is L2-normalised or zero.

        `query` means that a caller is waiting. Raise `EmbeddingUnavailable` on failure.
        """

    def close(self) -> None:
        """Release resources; the next call acquires them again."""


def open_embedder(
    name_or_url: str | None = "builtin",
    *,
    api_key: str | None = None,
    model: str = "text-embedding-3-small",
    dimensions: int | None = None,
) -> Embedder | None:
    """Return the provider for a setting: "builtin", "none", or an OpenAI-compatible base URL.

    For "none", return None: search uses words alone. `api_key`, `model` and `dimensions` apply only
    to a URL. Raise `EmbeddingUnavailable` if the built-in model was not built, and `InvalidInput`
    if the setting is invalid.
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
        f"There is no embedding provider named {chosen!r}.",
        hint='Use "builtin", "none", or the base URL of an OpenAI-compatible endpoint.',
        field="embedding",
    )


def configured_embedder(name_or_url: str) -> Embedder | None:
    """Return the provider for a setting, with the API key and model from the environment."""
    key = os.environ.get("COMMONPLACE_EMBEDDING_KEY") or None
    model = os.environ.get("COMMONPLACE_EMBEDDING_MODEL") or "text-embedding-3-small"
    return open_embedder(name_or_url, api_key=key, model=model)


# Longer texts are not cached: they are rarely repeated.
LONGEST_CACHED_TEXT = 4_096


class QueryCache:
    """Caches the vectors of the last `size` queries. They are read-only, because callers share
    them.
    """

    def __init__(self, size: int = 1_024) -> None:
        self._size = size
        self._rows: OrderedDict[str, VectorRows] = OrderedDict()
        self._lock = threading.Lock()

    def embed(
        self, texts: Sequence[str], compute: Callable[[Sequence[str]], VectorRows]
    ) -> VectorRows:
        """Return the vectors of `texts`; only vectors that are not cached are computed."""
        import numpy as np

        found = {text: row for text in texts if (row := self._look_up(text)) is not None}
        missing = [text for text in dict.fromkeys(texts) if text not in found]
        if missing:
            # Compute without the lock, so that a slow model does not delay cached queries.
            for text, row in zip(missing, compute(missing), strict=True):
                own = row.reshape(1, -1).copy()
                own.setflags(write=False)
                found[text] = own
                self._store(text, own)
        if len(texts) == 1:
            return found[texts[0]]
        joined = np.concatenate([found[text] for text in texts])
        joined.setflags(write=False)
        return joined

    def __len__(self) -> int:
        return len(self._rows)

    def _look_up(self, text: str) -> VectorRows | None:
        with self._lock:
            row = self._rows.get(text)
            if row is not None:
                self._rows.move_to_end(text)
            return row

    def _store(self, text: str, row: VectorRows) -> None:
        if len(text) > LONGEST_CACHED_TEXT:
            return
        with self._lock:
            self._rows[text] = row
            self._rows.move_to_end(text)
            while len(self._rows) > self._size:
                self._rows.popitem(last=False)


ANY_SCRIPT = "*"

# Measured with the pairs in tests/similarity_pairs.json, joined cosines: unrelated -.11 to .07,
# same topic .13 to .49, question and answer .27 to .75, paraphrase from .73, changed fact up to
# .77, small edit from .93. MAMA's contract expects its own example, at .34, to exceed .7.
BUILT_IN_KNOTS: Knots = (
    (-0.20, 0.0),
    (0.00, 0.12),
    (0.10, 0.25),
    (0.25, 0.48),
    (0.34, 0.70),
    (0.70, 0.82),
    (0.80, 0.86),
    (0.90, 0.90),
    (1.00, 1.0),
)
# Not measured here. According to public reports, unrelated texts have .1 to .2 and related texts .4
# to .6.
OPENAI_3_SMALL: Knots = (
    (0.00, 0.0),
    (0.15, 0.20),
    (0.30, 0.48),
    (0.42, 0.70),
    (0.70, 0.84),
    (0.90, 0.92),
    (1.00, 1.0),
)
# For models without measurements: the cosine, clipped to 0..1.
IDENTITY_KNOTS: Knots = ((0.0, 0.0), (1.0, 1.0))

BUILT_IN_ID = "all-MiniLM-L6-v2+USE-multilingual-v3"

KNOTS_OF_MODEL: dict[tuple[str, str], Knots] = {
    (BUILT_IN_ID, ANY_SCRIPT): BUILT_IN_KNOTS,
    ("text-embedding-3-small", ANY_SCRIPT): OPENAI_3_SMALL,
}
# Models that were trained on some scripts only; other models are assumed to support all.
SCRIPTS_OF_MODEL: dict[str, frozenset[str]] = {
    BUILT_IN_ID: frozenset({"latin", "cyrillic", "han", "kana", "hangul", "arabic", "thai"})
}

# A text without letters has no script. ("other" is a script: Bengali, Georgian, …)
NO_SCRIPT = frozenset({"none", ""})


class Part(NamedTuple):
    """Some dimensions of a model's vectors, with a cosine of their own."""

    dimensions: int
    weight: float = 1.0
    """The weight of its cosine if both texts have all parts."""
    factor_alone: float = 1.0
    """A factor that makes the cosine of this part alone comparable with the mean of all parts."""


# Question and answer without a common word have a mean of about .4 in English, and a multilingual
# cosine of about .3 in other languages; unrelated texts have less than .2 either way.
PARTS_OF_MODEL: dict[str, tuple[Part, ...]] = {BUILT_IN_ID: (Part(384, 6.0), Part(128, 1.0, 1.15))}


def parts_of_model(model_id: str, dimensions: int) -> tuple[Part, ...]:
    """Return the parts of a model's vectors, in order; most models have one."""
    known = PARTS_OF_MODEL.get(model_id, ())
    return known if sum(part.dimensions for part in known) == dimensions else (Part(dimensions),)


class Vectors:
    """The vectors of a space, by rows; each part of the model has a matrix of its own.

    Scanning some columns of one wide matrix would take as long as scanning all of it.
    """

    def __init__(self, parts: tuple[NDArray[np.int8], ...]) -> None:
        self.parts = parts

    @classmethod
    def split(cls, rows: NDArray[np.int8], parts: Sequence[Part]) -> Vectors:
        """Return the same rows, split into parts."""
        import numpy as np

        ends = np.cumsum([part.dimensions for part in parts])[:-1]
        return cls(tuple(np.split(rows, ends, axis=1)))

    def __len__(self) -> int:
        return len(self.parts[0]) if self.parts else 0

    def __getitem__(self, rows: Any) -> NDArray[np.int8]:
        """Return whole vectors."""
        import numpy as np

        return np.concatenate([matrix[rows] for matrix in self.parts], axis=-1)


def combine_cosines(cosines: Sequence[NDArray[Any]], parts: Sequence[Part]) -> NDArray[np.float32]:
    """Combine the cosines of the parts: their weighted mean, or the last part alone.

    A cosine of exactly 0 in the first part means that one of the texts has no such part. Then the
    cosine of the last part, which every text has, is scaled to be comparable with the mean.
    """
    import numpy as np

    first = np.asarray(cosines[0], np.float32)
    if len(parts) == 1:
        return first
    total = sum(part.weight for part in parts)
    mean = first * np.float32(parts[0].weight / total)
    for own, part in zip(cosines[1:], parts[1:], strict=True):
        mean += own * np.float32(part.weight / total)
    lacking = first == 0
    if lacking.any():
        alone = cosines[-1][lacking] * np.float32(parts[-1].factor_alone)
        mean[lacking] = np.minimum(alone, np.float32(1))
    return mean


def cosines(model_id: str, rows: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float32]:
    """Return the combined cosine of each row with each of the others."""
    found = []
    known = parts_of_model(model_id, rows.shape[1])
    start = 0
    for part in known:
        here = slice(start, start + part.dimensions)
        start += part.dimensions
        found.append(_normalised(rows[:, here]) @ _normalised(others[:, here]).T)
    return combine_cosines(found, known)


def _normalised(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Return the rows normalised to length 1; zero rows stay zero."""
    import numpy as np

    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths == 0, 1, lengths), np.float32)


def knows_script(model_id: str, script: str) -> bool:
    """Return whether the model was trained on this script; if not, search uses words alone."""
    return model_id not in SCRIPTS_OF_MODEL or _script_key(script) in SCRIPTS_OF_MODEL[model_id]


@overload
def calibrate(raw: float, model_id: str, script: str) -> float: ...


@overload
def calibrate(raw: NDArray[Any], model_id: str, script: str) -> NDArray[np.float64]: ...


def calibrate(raw: float | NDArray[Any], model_id: str, script: str) -> float | NDArray[np.float64]:
    """Map raw cosines monotonically to similarities in 0..1, for the thresholds of contracts."""
    import numpy as np

    script = _script_key(script)
    knots = (
        KNOTS_OF_MODEL.get((model_id, script))
        or KNOTS_OF_MODEL.get((model_id, ANY_SCRIPT))
        or IDENTITY_KNOTS
    )
    result = np.interp(raw, [knot[0] for knot in knots], [knot[1] for knot in knots])
    return result if isinstance(raw, np.ndarray) else float(result)


def _script_key(script: str) -> str:
    return "latin" if script in NO_SCRIPT else script
