"""The built-in model, which is part of the package: an English and a multilingual encoder.

A vector has one part for each encoder, and each part has its own cosine
(`provider.parts_of_model`). Every text has the multilingual part. The English part is zero for a
text that the English encoder does not support.

The English encoder is all-MiniLM-L6-v2. The multilingual one is Google's Universal Sentence Encoder
(multilingual, version 3). It supports Arabic, Chinese, Dutch, English, French, German, Italian,
Japanese, Korean, Polish, Portuguese, Russian, Spanish, Thai and Turkish, and gives a text and its
translations similar vectors.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import mmap
import os
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commonplace.embedding.provider import QueryCache
from commonplace.errors import EmbeddingUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODEL_DIRECTORY = Path(__file__).parent / "model"
USUAL_INFORMATION = 16.0  # in nats, as of a rare word; assumed for every word without a vocabulary
REBUILD = (
    "Reinstall the package, or in a source tree run `python tools/build_model.py` "
    "(it needs hatchling, numpy, onnx and safetensors)."
)
BATCH_TEXTS = 32

# The limits of the English encoder. Larger batches were no faster on one thread, and 32 full
# windows take 190 MB more. Longer texts are cut before tokenisation; the window is shorter.
ENGLISH_BATCH_TOKENS = 1_024
ENGLISH_CHARS = 32_768

# A text whose words have more tokens than this, on average, counts as another language. Plain
# English has 1.0 to 1.2 tokens a word, and up to 1.7 with names of programs and commands; other
# languages have about 2. The limit for names applies to a SHORT text and to one with one of
# ENGLISH_WORDS, the limit for accents to a text with letters beyond ASCII.
MOST_PIECES, MOST_PIECES_WITH_NAMES, MOST_PIECES_WITH_ACCENTS = 1.3, 1.8, 1.15
SHORT_TEXT_WORDS = 3  # A text with this few words may consist of names.
ENGLISH_WORDS = frozenset({
    "after", "and", "are", "does", "for", "from", "has", "have", "her", "his", "how", "is", "not",
    "of", "our", "she", "that", "the", "this", "use", "uses", "what", "when", "where", "which",
    "who", "why", "with", "you",
})  # fmt: skip

# The limits of the multilingual encoder. A passage is always shorter than MULTILINGUAL_CHARS.
MULTILINGUAL_BATCH_TOKENS = 512
MULTILINGUAL_CHARS = 4_096
MOST_CACHED_WORDS = 8_192  # The pieces of up to this many words are cached.
MOST_CACHED_WORD_CHARS = 24  # Longer words than this are not cached.
UNKNOWN, BEGIN, END = 0, 1, 2
# The branches of the network read at most two tokens before and two after a token.
BRANCH_REACH = 2

# The tree of pieces is a hash table of its edges. The key of an edge combines the slot of the
# previous edge and the next character. The slot of a key represents the longer piece.
CODE_POINTS = 0x110000
HASH_FACTOR = 0x9E3779B97F4A7C15
NO_EDGE = 0xFFFF_FFFF_FFFF_FFFF
_64_BITS = 0xFFFF_FFFF_FFFF_FFFF

# SentencePiece's normalisation turns these characters into spaces, and NFKC does not.
_TO_SPACES = dict.fromkeys((0x200B, 0x200E, 0x200F, 0xFEFF, 0xFFFD), " ")


class BuiltIn:
    """Embeds texts in this process. Nothing large is imported or read before the first text."""

    local = True

    def __init__(self, directory: Path = MODEL_DIRECTORY, *, threads: int = 1) -> None:
        self._directory = directory
        self._about = _read_model_description(directory)
        self.id = str(self._about["id"])
        self.weights = str(self._about["weights"])
        self.english = EnglishEncoder(directory, self._about["english"], threads=threads)
        self.multilingual = MultilingualEncoder(
            directory, self._about["multilingual"], threads=threads
        )
        self.dimensions = self.english.dimensions + self.multilingual.dimensions
        self._queries = QueryCache()

    def __repr__(self) -> str:
        return f"BuiltIn({self.id!r}, dimensions={self.dimensions})"

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """Return one row for each text, in order; rows of queries are shared and read-only."""
        if query and texts:
            return self._queries.embed(texts, self._compute)
        return self._compute(texts)

    def embed_without_english(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors like `embed`, but with zeros for the English part.

        The English part takes three times as long to compute as the multilingual one.
        """
        import numpy as np

        none = np.zeros((len(texts), self.english.dimensions), np.float32)
        return np.concatenate([none, self.multilingual.embed(texts)], axis=1)

    def knows_english(self, text: str) -> bool:
        """Return whether the English encoder supports a text: its tokens are mostly whole words."""
        return self.english.supports(text)

    def count_tokens(self, text: str) -> int:
        """Return the number of the English encoder's tokens, including the two special ones."""
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


@functools.lru_cache(maxsize=8_192)
def word_information(word: str) -> float:
    """Return the information of a word in nats: low for a common word of any language."""
    known = _shared_vocabulary()
    return known.information(word) if known is not None else USUAL_INFORMATION


@functools.cache
def _shared_vocabulary() -> PieceVocabulary | None:
    try:
        return _open_vocabulary(
            MODEL_DIRECTORY, _read_model_description(MODEL_DIRECTORY)["multilingual"]
        )
    except EmbeddingUnavailable:
        return None


def _read_model_description(directory: Path) -> dict[str, Any]:
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


class _Encoder:
    """One encoder of this model. Nothing large is imported or read before the first text."""

    def __init__(self, directory: Path, about: dict[str, Any], *, threads: int = 1) -> None:
        self._directory = directory
        self._about = about
        self._threads = threads
        self.id = str(about["id"])
        self.dimensions = int(about["dimensions"])
        self._loaded: Any = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Free the memory; the next text loads the model again."""
        with self._lock:
            self._loaded = None

    def _load(self) -> Any:
        """Return the result of `_open`, which only the first call runs."""
        loaded = self._loaded
        if loaded is None:
            with self._lock:
                loaded = self._loaded
                if loaded is None:
                    loaded = self._loaded = self._open()
        return loaded

    def _open(self) -> Any:
        raise NotImplementedError


class EnglishEncoder(_Encoder):
    """The English encoder."""

    def embed(self, texts: Sequence[str], *, known_only: bool = False) -> NDArray[np.float32]:
        """Return one L2-normalised row for each text, in order.

        With `known_only`, the row of a text that the model does not support is zero.
        """
        import numpy as np

        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        if not texts:
            return vectors
        with _raising_unavailable():
            tokenizer, session = self._load()
            tokens = [_english_tokens(tokenizer, text, known_only) for text in texts]
            for batch in _batches_by_length([len(ids) for ids in tokens]):
                longest = max(len(tokens[at]) for at in batch)
                ids = np.zeros((len(batch), longest), np.int32)
                mask = np.zeros_like(ids)
                for row, at in enumerate(batch):
                    ids[row, : len(tokens[at])] = tokens[at]
                    mask[row, : len(tokens[at])] = 1
                inputs = {"input_ids": ids, "attention_mask": mask}
                vectors[batch] = _run_session(session, inputs)
        return vectors

    def supports(self, text: str) -> bool:
        """Return whether the model supports the language of a text."""
        with _raising_unavailable():
            return bool(_english_tokens(self._load()[0], text, known_only=True))

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, including the two special ones."""
        return len(self._load()[0].encode(_clean_text(text)).ids)

    def _open(self) -> tuple[Any, Any]:
        """Return the tokenizer and the session."""
        session = _open_session(self._directory / "model.onnx", self._threads)
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self._directory / "tokenizer.json"))
        # Special tokens such as "[MASK]" in a text are treated as plain text.
        tokenizer.encode_special_tokens = True
        return tokenizer, session


def _english_tokens(tokenizer: Any, text: str, known_only: bool) -> Sequence[int]:
    """Return the tokens of a text.

    With `known_only`, return none for a text that the model does not support.
    """
    text = _clean_text(text)
    most = _most_pieces(text) if known_only else 0.0
    if most is None:
        return ()
    encoding = tokenizer.encode(text)
    ids: Sequence[int] = encoding.ids
    words = [word for word in encoding.word_ids if word is not None] if most else ()
    return () if len(words) > most * len(set(words)) else ids


def _most_pieces(text: str) -> float | None:
    """Return how many tokens a word of this text may have on average if it is English.

    Return None for a text whose letters are mostly not Latin.
    """
    if not text.isascii():
        letters = [letter for letter in text if letter.isalpha()]
        if 2 * sum(letter < "\u0250" for letter in letters) < len(letters):
            return None
        if not all(map(str.isascii, letters)):
            return MOST_PIECES_WITH_ACCENTS
    words = text.lower().split()
    may_be_names = len(words) <= SHORT_TEXT_WORDS or not ENGLISH_WORDS.isdisjoint(words)
    return MOST_PIECES_WITH_NAMES if may_be_names else MOST_PIECES


def _clean_text(text: str) -> str:
    """Return the text shortened and without lone surrogates, as the tokenizer requires."""
    text = text[:ENGLISH_CHARS]
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _batches_by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield batches of positions of texts with similar lengths, to keep the padding small.

    Texts without tokens are left out.
    """
    batch: list[int] = []
    due = (at for at, length in enumerate(lengths) if length)
    for at in sorted(due, key=lambda at: lengths[at]):
        if len(batch) == BATCH_TEXTS or (len(batch) + 1) * lengths[at] > ENGLISH_BATCH_TOKENS:
            if batch:
                yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch


class MultilingualEncoder(_Encoder):
    """The multilingual encoder.

    The rows of its vocabulary and the tree of its pieces are memory-mapped files. Processes share
    them, and opening them takes no time.
    """

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one L2-normalised row for each text, in order."""
        import numpy as np

        vectors = np.empty((len(texts), self.dimensions), np.float32)
        if not texts:
            return vectors
        with _raising_unavailable():
            pieces, table, session = self._load()
            tokens = [pieces.encode(text) for text in texts]
            for batch in _batches_in_order(tokens):
                vectors[batch] = _run_session(session, self._graph_inputs(table, batch, tokens))
        return vectors

    def _graph_inputs(
        self, table: Any, batch: Sequence[int], tokens: Sequence[Sequence[int]]
    ) -> dict[str, Any]:
        """Return the inputs of the graph for a batch: the tokens of all its texts in one list."""
        import numpy as np

        lengths = np.array([len(tokens[at]) for at in batch])
        ids = np.concatenate([np.asarray(tokens[at], np.int64) for at in batch])
        text = np.repeat(np.arange(len(batch)), lengths)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)[:, None]
        around = np.arange(len(ids))[:, None] + np.arange(-BRANCH_REACH, BRANCH_REACH + 1)
        outside = (around < starts) | (around >= starts + lengths[text][:, None])
        around[outside] = len(ids)  # This refers to a row of zeros.
        shares = np.zeros((len(batch), len(ids)), np.float32)
        shares[text, np.arange(len(ids))] = 1 / np.sqrt(lengths[text])
        chunks = ids % int(self._about["chunks"])
        return {"rows": table[ids], "chunks": chunks, "around": around, "shares": shares}

    def _open(self) -> tuple[PieceVocabulary, Any, Any]:
        """Return the pieces, the rows of the vocabulary and the session."""
        import numpy as np

        about = self._about
        pieces = _open_vocabulary(self._directory, about)
        table = np.memmap(self._directory / "multilingual.table", np.uint8, "r")
        session = _open_session(self._directory / "multilingual.onnx", self._threads)
        return pieces, table.reshape(-1, int(about["width"])), session


def _batches_in_order(tokens: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield batches of positions of texts, with a limited number of tokens in each batch."""
    batch: list[int] = []
    total = 0
    for at, each in enumerate(tokens):
        if batch and (len(batch) == BATCH_TEXTS or total + len(each) > MULTILINGUAL_BATCH_TOKENS):
            yield batch
            batch, total = [], 0
        batch.append(at)
        total += len(each)
    if batch:
        yield batch


class PieceVocabulary:
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
        self._known_split = functools.lru_cache(MOST_CACHED_WORDS)(self._best_split)

    def encode(self, text: str) -> list[int]:
        """Return the numbers of the pieces of the likeliest split, between begin and end."""
        words = unicodedata.normalize(
            "NFKC", text[:MULTILINGUAL_CHARS].translate(_TO_SPACES)
        ).split()
        if not words:
            return [BEGIN, UNKNOWN, END]
        # No piece spans two words, so the likeliest split consists of the splits of the words.
        found = (self._split(word)[0] for word in words)
        return [BEGIN, *itertools.chain.from_iterable(found), END]

    def information(self, word: str) -> float:
        """Return the negative log probability of a word in nats, ignoring case."""
        return -max(self._split(each)[1] for each in {word, word.lower()})

    def _split(self, word: str) -> tuple[list[int], float]:
        """Return the likeliest split of a word; the split is cached unless the word is long."""
        split = self._known_split if len(word) <= MOST_CACHED_WORD_CHARS else self._best_split
        return split("\u2581" + word)

    def _best_split(self, text: str) -> tuple[list[int], float]:
        """Return the likeliest split of a text, and its log probability.

        The Viterbi algorithm computes the best split of each prefix, from the shortest to the whole
        text.
        """
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
        split: list[int] = []
        score = best[length]
        while length:
            if chosen[length] != UNKNOWN or split[-1:] != [UNKNOWN]:  # SentencePiece does the same.
                split.append(chosen[length])
            length = begins[length]
        return split[::-1], score


def _open_vocabulary(directory: Path, about: dict[str, Any]) -> PieceVocabulary:
    """Return the vocabulary of the model in a directory."""
    return PieceVocabulary(
        directory / "multilingual.pieces", int(about["slots"]), int(about["pieces"])
    )


@contextlib.contextmanager
def _raising_unavailable() -> Iterator[None]:
    """Raise `EmbeddingUnavailable` for any error in the block."""
    try:
        yield
    except Exception as error:  # The libraries raise bare exceptions for unreadable files.
        raise EmbeddingUnavailable(
            f"The built-in model could not be used: {error}", hint=REBUILD
        ) from error


def _run_session(session: Any, inputs: dict[str, Any]) -> Any:
    """Return the vectors that a session computes; raise ValueError if a number is not finite."""
    import numpy as np

    vectors = session.run(["vectors"], inputs)[0]
    if not np.isfinite(vectors).all():
        raise ValueError("the model computed infinite or undefined numbers")
    return vectors


def _open_session(path: Path, threads: int) -> Any:
    """Open an inference session for a model file."""
    # onnxruntime sends telemetry and stores a machine id under HOME unless this variable is set
    # before the import. The call below is for programs that imported onnxruntime earlier.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # With one thread, the caller's thread computes, so that callers run in parallel.
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # The graphs were optimised at build time; more than constant folding only costs time.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    # Convert int8 matrices to float32 once, when loading (3 ms for each run instead of 25).
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
