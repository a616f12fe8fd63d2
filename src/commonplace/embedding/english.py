"""The English encoder of the built-in model: all-MiniLM-L6-v2."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commonplace.embedding.onnx_session import failures_named, open_session, run

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH_TEXTS = 32
# Larger batches were no faster on one thread, and 32 full windows take 190 MB more.
BATCH_TOKENS = 1_024
# Longer texts are cut before they are tokenised; the model's window is much shorter.
LONGEST_TEXT = 32_768

# A text with more pieces in a word, on average, is in another language. Plain English has 1.0 to
# 1.2, with names of programs and commands in it up to 1.7; other languages have about 2. A word of
# these shows that it is English with names in it.
MOST_PIECES, MOST_PIECES_WITH_NAMES, MOST_PIECES_WITH_ACCENTS = 1.3, 1.8, 1.15
SHORT = 3  # a text of so few words may consist of names
ENGLISH_WORDS = frozenset({
    "after", "and", "are", "does", "for", "from", "has", "have", "her", "his", "how", "is", "not",
    "of", "our", "she", "that", "the", "this", "use", "uses", "what", "when", "where", "which",
    "who", "why", "with", "you",
})  # fmt: skip


@dataclass(frozen=True)
class _Loaded:
    """The tokenizer and the session, loaded with the first text."""

    tokenizer: Any
    session: Any


class English:
    """Embeds in this process. Nothing heavy is imported or read before the first text."""

    def __init__(self, directory: Path, about: dict[str, Any], *, threads: int = 1) -> None:
        self._directory = directory
        self._threads = threads
        self.id = str(about["id"])
        self.dimensions = int(about["dimensions"])
        self._loaded: _Loaded | None = None
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str], *, known_only: bool = False) -> NDArray[np.float32]:
        """One L2-normalised row per text, in order.

        With `known_only`, the row of a text that the model does not know is zero.
        """
        import numpy as np

        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        if not texts:
            return vectors
        with failures_named():
            model = self._load()
            tokens = [_tokens(model.tokenizer, text, known_only) for text in texts]
            for batch in _batches([len(ids) for ids in tokens]):
                longest = max(len(tokens[at]) for at in batch)
                ids = np.zeros((len(batch), longest), np.int32)
                mask = np.zeros_like(ids)
                for row, at in enumerate(batch):
                    ids[row, : len(tokens[at])] = tokens[at]
                    mask[row, : len(tokens[at])] = 1
                inputs = {"input_ids": ids, "attention_mask": mask}
                vectors[batch] = run(model.session, inputs)
        return vectors

    def count_tokens(self, text: str) -> int:
        """The number of tokens of a text, including the two special ones."""
        return len(self._load().tokenizer.encode(_clean(text)).ids)

    def close(self) -> None:
        """Free the model's memory; the next text loads it again."""
        with self._lock:
            self._loaded = None

    def _load(self) -> _Loaded:
        loaded = self._loaded
        if loaded is None:
            with self._lock:
                loaded = self._loaded
                if loaded is None:
                    loaded = self._loaded = _load(self._directory, self._threads)
        return loaded


def _load(directory: Path, threads: int) -> _Loaded:
    session = open_session(directory / "model.onnx", threads)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    # Special tokens such as "[MASK]" in a text are plain text.
    tokenizer.encode_special_tokens = True
    return _Loaded(tokenizer, session)


def _tokens(tokenizer: Any, text: str, known_only: bool) -> Sequence[int]:
    """The tokens of a text; none if only known texts are wanted and it is not one."""
    text = _clean(text)
    most = _most_pieces(text) if known_only else 0.0
    if most is None:
        return ()
    encoding = tokenizer.encode(text)
    ids: Sequence[int] = encoding.ids
    words = [word for word in encoding.word_ids if word is not None] if most else ()
    return () if len(words) > most * len(set(words)) else ids


def _most_pieces(text: str) -> float | None:
    """How many pieces a word of an English text has at most; None if it is not in Latin letters."""
    if not text.isascii():
        letters = [letter for letter in text if letter.isalpha()]
        if 2 * sum(letter < "\u0250" for letter in letters) < len(letters):
            return None
        if not all(map(str.isascii, letters)):
            return MOST_PIECES_WITH_ACCENTS
    words = text.lower().split()
    may_be_names = len(words) <= SHORT or not ENGLISH_WORDS.isdisjoint(words)
    return MOST_PIECES_WITH_NAMES if may_be_names else MOST_PIECES


def _clean(text: str) -> str:
    """The text with bounded length and without lone surrogates, as the tokenizer needs it."""
    text = text[:LONGEST_TEXT]
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Batches of positions of texts with similar lengths, so that there is little padding."""
    batch: list[int] = []
    due = (at for at, length in enumerate(lengths) if length)
    for at in sorted(due, key=lambda at: lengths[at]):
        if len(batch) == BATCH_TEXTS or (len(batch) + 1) * lengths[at] > BATCH_TOKENS:
            if batch:
                yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch
