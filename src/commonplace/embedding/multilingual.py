"""The multilingual encoder: Google's Universal Sentence Encoder (multilingual, version 3).

It knows Arabic, Chinese, Dutch, English, French, German, Italian, Japanese, Korean, Polish,
Portuguese, Russian, Spanish, Thai and Turkish, and puts a text near its translations. The rows of
its vocabulary and the tree of its pieces are mapped from files, so that processes share them and
opening them takes no time.
"""

from __future__ import annotations

import mmap
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commonplace.embedding.onnx_session import failures_named, open_session, run

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

UNKNOWN, BEGIN, END = 0, 1, 2
LONGEST_TEXT = 4_096  # longer than a passage
BATCH_TOKENS = 512
BATCH_TEXTS = 32
# The branches of the network look at most two tokens back and two ahead.
REACH = 2

# The tree of pieces is a hash table of its edges. An edge's key is made of the slot of the edge
# before it and of the next character; the slot where the key lies stands for the longer piece.
CODE_POINTS = 0x110000
HASH_FACTOR = 0x9E3779B97F4A7C15
NO_EDGE = 0xFFFF_FFFF_FFFF_FFFF
_64_BITS = 0xFFFF_FFFF_FFFF_FFFF

# Characters that SentencePiece's normalisation makes spaces and NFKC does not.
_SPACES = dict.fromkeys((0x200B, 0x200E, 0x200F, 0xFEFF, 0xFFFD), " ")


class Pieces:
    """Splits texts into the pieces of a SentencePiece unigram vocabulary."""

    def __init__(self, path: Path, slots: int, pieces: int) -> None:
        with path.open("rb") as file:
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self._keys = mapped[: 8 * slots].cast("Q")
        self._pieces = mapped[8 * slots : 12 * slots].cast("i")
        self._scores = mapped[12 * slots : 12 * slots + 4 * pieces].cast("f")
        self._slots = slots
        self._shift = 64 - (slots - 1).bit_length()
        self._unknown_score = min(self._scores) - 10.0

    def encode(self, text: str) -> list[int]:
        """The numbers of the pieces of the likeliest split, between begin and end."""
        words = unicodedata.normalize("NFKC", text[:LONGEST_TEXT].translate(_SPACES)).split()
        if not words:
            return [BEGIN, UNKNOWN, END]
        return [BEGIN, *self._best_split("\u2581" + "\u2581".join(words)), END]

    def _best_split(self, text: str) -> list[int]:
        """The Viterbi algorithm: the best split of each prefix, from the shortest to the whole."""
        keys, pieces, scores = self._keys, self._pieces, self._scores
        slots, shift = self._slots, self._shift
        codes = list(map(ord, text))
        length = len(codes)
        best = [0.0] + [float("-inf")] * length
        begins = [0] * (length + 1)
        chosen = [UNKNOWN] * (length + 1)
        for begin in range(length):
            before = best[begin]
            node, single = slots, False
            for end in range(begin + 1, length + 1):
                key = node * CODE_POINTS + codes[end - 1]
                node = (key * HASH_FACTOR & _64_BITS) >> shift
                while (found := keys[node]) != key and found != NO_EDGE:
                    node = (node + 1) % slots
                if found == NO_EDGE:
                    break
                piece = pieces[node]
                if piece >= 0:
                    single = single or end == begin + 1
                    score = before + scores[piece]
                    if score > best[end]:
                        best[end], begins[end], chosen[end] = score, begin, piece
            if not single and before + self._unknown_score > best[begin + 1]:
                best[begin + 1] = before + self._unknown_score
                begins[begin + 1], chosen[begin + 1] = begin, UNKNOWN
        split = []
        while length:
            split.append(chosen[length])
            length = begins[length]
        return split[::-1]


@dataclass(frozen=True)
class _Loaded:
    """The pieces, the rows of the vocabulary and the session, opened with the first text."""

    pieces: Pieces
    table: Any
    session: Any


class Multilingual:
    """Embeds in this process. Nothing is imported or opened before the first text."""

    def __init__(self, directory: Path, about: dict[str, Any], *, threads: int = 1) -> None:
        self._directory = directory
        self._about = about
        self._threads = threads
        self.dimensions = int(about["dimensions"])
        self._loaded: _Loaded | None = None
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One L2-normalised row per text, in order."""
        import numpy as np

        vectors = np.empty((len(texts), self.dimensions), np.float32)
        if not texts:
            return vectors
        with failures_named():
            model = self._load()
            tokens = [model.pieces.encode(text) for text in texts]
            for batch in _batches(tokens):
                vectors[batch] = run(model.session, self._inputs(model.table, batch, tokens))
        return vectors

    def _inputs(
        self, table: Any, batch: Sequence[int], tokens: Sequence[Sequence[int]]
    ) -> dict[str, Any]:
        """A batch as the graph takes it: the tokens of all its texts in one list."""
        import numpy as np

        lengths = np.array([len(tokens[at]) for at in batch])
        ids = np.concatenate([np.asarray(tokens[at], np.int64) for at in batch])
        text = np.repeat(np.arange(len(batch)), lengths)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)[:, None]
        around = np.arange(len(ids))[:, None] + np.arange(-REACH, REACH + 1)
        outside = (around < starts) | (around >= starts + lengths[text][:, None])
        around[outside] = len(ids)  # a row of zeros
        shares = np.zeros((len(batch), len(ids)), np.float32)
        shares[text, np.arange(len(ids))] = 1 / np.sqrt(lengths[text])
        chunks = ids % int(self._about["chunks"])
        return {"rows": table[ids], "chunks": chunks, "around": around, "shares": shares}

    def close(self) -> None:
        """Free the memory; the next text opens everything again."""
        with self._lock:
            self._loaded = None

    def _load(self) -> _Loaded:
        loaded = self._loaded
        if loaded is None:
            with self._lock:
                loaded = self._loaded
                if loaded is None:
                    loaded = self._loaded = self._open()
        return loaded

    def _open(self) -> _Loaded:
        import numpy as np

        about = self._about
        pieces = Pieces(
            self._directory / "multilingual.pieces", int(about["slots"]), int(about["pieces"])
        )
        table = np.memmap(self._directory / "multilingual.table", np.uint8, "r")
        session = open_session(self._directory / "multilingual.onnx", self._threads)
        return _Loaded(pieces, table.reshape(-1, int(about["width"])), session)


def _batches(tokens: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Batches of positions of texts with a limited number of tokens."""
    batch: list[int] = []
    total = 0
    for at, each in enumerate(tokens):
        if batch and (len(batch) == BATCH_TEXTS or total + len(each) > BATCH_TOKENS):
            yield batch
            batch, total = [], 0
        batch.append(at)
        total += len(each)
    if batch:
        yield batch
