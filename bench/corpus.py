"""Seeded texts, vectors and queries: the same rows for the engine and for every floor."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bench.embedders import DIMENSIONS
from commonplace import Draft
from commonplace.storage.derived import quantise, unpack_matrix
from commonplace.text.analysis import analyse

SEED = 20_260
VOCABULARY = 30_000
BLOCK = 1_000  # made block by block, so that a small corpus is the beginning of a large one
FLATTENING = 30  # Zipf-Mandelbrot: the commonest content word is in about a tenth of the texts
FUNCTION_SHARE = 0.4
FUNCTION_WORDS = ("the", "of", "and", "to", "in", "a", "is", "that", "it", "was", "for", "on")
SHORTEST, LONGEST = 12, 60
QUERY_WORDS = 4
ONSETS = ("b", "br", "d", "dr", "f", "g", "gr", "k", "l", "m", "n", "p", "pl", "r", "s", "t", "v")
VOWELS = ("a", "e", "i", "o", "u", "ai", "ou")
CODAS = ("", "", "n", "r", "m", "k", "lt")

Floats = NDArray[np.float32]


def vocabulary() -> list[str]:
    """Pronounceable words, commonest first; rare ones are longer."""
    chance = random.Random(SEED)
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        count = 2 if len(words) < 3_000 else 3
        parts = [chance.choice(p) for _ in range(count) for p in (ONSETS, VOWELS, CODAS)]
        words["".join(parts)] = None
    return list(words)


@dataclass(frozen=True)
class Corpus:
    """Texts and their vectors, and the queries that are asked of them."""

    texts: Sequence[str]
    vectors: Floats
    queries: Sequence[str]
    query_vectors: Floats

    def __len__(self) -> int:
        return len(self.texts)

    def first(self, count: int) -> Corpus:
        """The smaller corpus."""
        return Corpus(self.texts[:count], self.vectors[:count], self.queries, self.query_vectors)

    @cached_property
    def packed(self) -> list[bytes]:
        """The vectors as the engine stores them."""
        return quantise(self.vectors)

    @cached_property
    def int8(self) -> tuple[NDArray[np.int8], Floats]:
        """The vectors as one matrix of int8, and their scales."""
        return unpack_matrix(b"".join(self.packed), DIMENSIONS)

    @cached_property
    def analysed(self) -> list[str]:
        """The texts as the engine's analysis sees them, for a full-text floor."""
        return [" ".join(analyse(text)) for text in self.texts]

    @property
    def asked(self) -> dict[str, Floats]:
        """The vector of each query."""
        return dict(zip(self.queries, self.query_vectors, strict=True))

    def drafts(self, start: int, stop: int) -> list[Draft]:
        """Memories with ready-made vectors."""
        size = len(self)
        return [
            Draft(text=self.texts[at % size], vectors=[self.packed[at % size]])
            for at in range(start, stop)
        ]


def make_corpus(size: int, queries: int) -> Corpus:
    """A corpus and a fixed list of queries; a query is four words of one text."""
    content, texts = _texts(size)
    chance = random.Random(SEED + 1)
    asked: dict[str, int] = {}
    while len(asked) < queries:
        # Of the first thousand, so that the same list of queries serves every size.
        at = chance.randrange(min(size, 1_000))
        words = sorted(set(content[at]))
        if len(words) >= QUERY_WORDS:
            asked.setdefault(" ".join(chance.sample(words, QUERY_WORDS)), at)
    vectors = _vectors(size)
    noise = np.random.default_rng(SEED + 2).standard_normal((queries, DIMENSIONS), np.float32)
    near = vectors[list(asked.values())] + noise / np.sqrt(np.float32(DIMENSIONS))
    return Corpus(texts, vectors, list(asked), _unit_vectors(near))


def _texts(size: int) -> tuple[list[list[str]], list[str]]:
    words = np.array(vocabulary(), dtype=object)
    filler = np.array(FUNCTION_WORDS, dtype=object)
    weights = 1 / (np.arange(VOCABULARY) + 1 + FLATTENING)
    reached = np.cumsum(weights / weights.sum())
    texts, content = [], []
    for block in range(-(-size // BLOCK)):
        generator = np.random.default_rng((SEED, block))
        lengths = generator.integers(SHORTEST, LONGEST + 1, BLOCK)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        at = np.searchsorted(reached, generator.random(starts[-1]))
        drawn = words[np.minimum(at, VOCABULARY - 1)]
        function = generator.random(starts[-1]) < FUNCTION_SHARE
        chosen = filler[generator.integers(0, len(filler), starts[-1])]
        whole = np.where(function, chosen, drawn)
        for start, stop in pairwise(starts.tolist()):
            texts.append(" ".join(whole[start:stop]).capitalize() + ".")
            content.append(drawn[start:stop][~function[start:stop]].tolist())
    return content[:size], texts[:size]


def _vectors(size: int) -> Floats:
    blocks = [
        np.random.default_rng((SEED, 1, block)).standard_normal((BLOCK, DIMENSIONS), np.float32)
        for block in range(-(-size // BLOCK))
    ]
    return _unit_vectors(np.concatenate(blocks)[:size])


def _unit_vectors(rows: Floats) -> Floats:
    scaled: Floats = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return scaled
