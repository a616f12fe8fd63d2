"""Derived rows for search: terms, passages, labels and trigrams of memories.

They are written in the transaction of the memory's row, and can be rebuilt from that row.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from commonplace.errors import InvalidInput, StorageCorrupt
from commonplace.storage.ports import Rows
from commonplace.storage.tables import WritingUnit
from commonplace.text.analysis import (
    ANALYSIS_VERSION,
    DETECTION_WORDS,
    ChunkReader,
    Memo,
    analyse,
    ascii_chunks,
    chunk_reader,
    read_english_chunk,
)
from commonplace.text.passages import Span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_KNOWN_TERMS = 100_000
_KNOWN_CHUNKS = 32_768
_CODE = 8  # bytes

_TIMES = [bytes((times,)) for times in range(256)]


def _term_code(term: str) -> bytes:
    """Return 64 bits of a term's BLAKE2b hash, the same on every machine."""
    return blake2b(term.encode(), digest_size=_CODE).digest()


_codes = Memo(_term_code, _KNOWN_TERMS)


@cache
def _chunk_codes(read: ChunkReader) -> Memo[bytes]:
    """Return a cached function from a chunk to the concatenated codes of its terms."""
    return Memo(lambda chunk: b"".join([_codes[term] for term in read(chunk)]), _KNOWN_CHUNKS)


def _english_code(chunk: str) -> bytes | tuple[()]:
    """Return the codes of a chunk of an English text; raise KeyError for one of another language.

    Without codes, return `b""` for a stop word, which shows that the text is English, and `()` for
    any other chunk.
    """
    terms, shows_it = read_english_chunk(chunk)
    codes = _codes[terms[0]] if len(terms) == 1 else b"".join([_codes[t] for t in terms])
    return codes if codes or shows_it else ()


_english_codes = Memo[Any](_english_code, _KNOWN_CHUNKS)


def term_number(term: str) -> int:
    """Return the code of a term as a number, the key of its postings."""
    return int.from_bytes(_codes[term], "little")


def term_codes(terms: Iterable[str]) -> bytes:
    """Return the codes of terms, concatenated, 8 bytes each. The codes are not cached."""
    return b"".join(map(_term_code, terms))


def pack_terms(terms: Iterable[str]) -> bytes:
    """Return the distinct terms with their counts, packed, in the order of first occurrence."""
    return _pack([_codes[term] for term in terms])


def pack_text(text: str) -> bytes:
    """Return the same as `pack_terms(analyse(text))`, but faster for ASCII texts."""
    if text.isascii():
        codes: list[bytes] = list(filter(None, _codes_of(text)))
        joined = b"".join(codes)
        if len(joined) > _CODE * len(codes):  # These chunks have several terms.
            codes = [joined[at : at + _CODE] for at in range(0, len(joined), _CODE)]
        if codes:
            return _pack(codes)
    return pack_terms(analyse(text))


def _codes_of(text: str) -> list[Any]:
    """Return the codes of each chunk of an ASCII text."""
    chunks = ascii_chunks(text)
    if len(chunks) <= DETECTION_WORDS:
        try:
            codes = list(map(_english_codes.__getitem__, chunks))
            if b"" in codes:
                return codes
        except KeyError:
            pass  # A chunk is of another language.
    return list(map(_chunk_codes(chunk_reader(text, chunks)).__getitem__, chunks))


def _pack(codes: Sequence[bytes]) -> bytes:
    if len(set(codes)) == len(codes):  # This is the usual case for a short text.
        return b"\x01".join([*codes, b""])
    counts = Counter(codes)
    return b"".join([code + _TIMES[min(times, 255)] for code, times in counts.items()])


def terms_sum(memory: int, packed: bytes) -> int:
    """Return the checksum of a memory's packed terms."""
    return zlib.crc32(packed, memory & 0xFFFFFFFF)


def passage_sum(
    memory: int, ordinal: int, start: int, stop: int, model: int | None, vector: bytes | None
) -> int:
    """Return the checksum of a passage."""
    place: int = passage_code(memory, ordinal, start, stop, -1 if model is None else model)
    return zlib.crc32(vector or b"") ^ place


def passage_code(memory: Any, ordinal: Any, start: Any, stop: Any, model: Any) -> Any:
    """Return 32 bits that identify a passage and its model.

    The arguments are numbers or arrays.
    """
    low = memory & 0x7FFFFFFF  # No product exceeds 64 bits.
    code = low * 0x9E3779B1 + ordinal * 0x85EBCA77 + start * 0xC2B2AE3D + stop * 0x27D4EB2F
    return (code + (memory >> 31) * 0x2545F491 + (model + 1) * 0x165667B1) & 0xFFFFFFFF


class Passage(NamedTuple):
    """A range of a memory's text, and its vector if it has one."""

    span: Span
    model: int | None
    vector: bytes | None


class DerivedData(Protocol):
    """All data derived from one memory."""

    terms: bytes
    folded: str
    spans: Sequence[Span]
    labels: Sequence[str]
    vectors: Sequence[bytes] | None


_INSERTS = {
    "lexemes": "INSERT INTO lexemes (memory, space, analysis, terms, sum) VALUES (?, ?, ?, ?, ?)",
    "passages": "INSERT INTO passages (memory, ordinal, space, start, stop, model, vector, sum,"
    " change) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "labels": "INSERT INTO labels (space, label, memory) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
}


def write_rows(connection: Rows, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """Insert rows into one of the tables."""
    connection.executemany(_INSERTS[table], rows)


def lexeme_row(space: str, memory: int, terms: bytes) -> tuple[int, str, int, bytes, int]:
    """Return the row of a memory's packed terms."""
    return memory, space, ANALYSIS_VERSION, terms, terms_sum(memory, terms)


def label_rows(space: str, memory: int, labels: Iterable[str]) -> list[tuple[str, str, int]]:
    """Return the rows of a memory's labels, by which searches filter."""
    return [(space, label, memory) for label in labels]


def passage_rows(
    space: str, memory: int, passages: Iterable[Passage], change: int = 0
) -> Iterator[tuple[int, int, str, int, int, int | None, bytes | None, int, int]]:
    """Yield the rows of a memory's passages.

    `change` is not 0 if the passages are written outside of an operation.
    """
    for ordinal, (span, model, vector) in enumerate(passages):
        start, stop = span.start, span.stop
        code = passage_sum(memory, ordinal, start, stop, model, vector)
        yield memory, ordinal, space, start, stop, model, vector, code, change


def write_entries(
    connection: Rows,
    space: str,
    nums: Sequence[int],
    entries: Sequence[DerivedData],
    model: int | None,
) -> None:
    """Store the derived rows of new memories, table by table; `model` made the vectors."""
    # Use generators, so that no second list of all rows is built.
    pairs = list(zip(nums, entries, strict=True))
    write_rows(connection, "lexemes", (lexeme_row(space, num, e.terms) for num, e in pairs))
    write_rows(
        connection,
        "passages",
        (row for num, e in pairs for row in passage_rows(space, num, _passages_of_entry(e, model))),
    )
    labels = [row for num, e in pairs for row in label_rows(space, num, e.labels)]
    if labels:
        write_rows(connection, "labels", labels)
    connection.add_grams(space, [(num, e.folded) for num, e in pairs])


def _passages_of_entry(entry: DerivedData, model: int | None) -> Iterator[Passage]:
    vectors = None if model is None else entry.vectors
    for ordinal, span in enumerate(entry.spans):
        if vectors is None:
            yield Passage(span, None, None)
        else:
            yield Passage(span, model, vectors[ordinal])


def replace_passages(
    connection: Rows, space: str, memory: int, passages: Sequence[Passage], change: int
) -> None:
    """Replace a memory's passages outside of an operation (see `Store.next_change`)."""
    connection.execute("DELETE FROM passages WHERE space = ? AND memory = ?", (space, memory))
    write_rows(connection, "passages", passage_rows(space, memory, passages, change))


def read_passages(connection: Rows, space: str, memory: int) -> list[Passage]:
    """Return a memory's passages in order."""
    return [
        Passage(Span(start, stop), model, vector)
        for start, stop, model, vector in connection.execute(
            "SELECT start, stop, model, vector FROM passages"
            " WHERE space = ? AND memory = ? ORDER BY ordinal",
            (space, memory),
        )
    ]


def embedded_since(connection: Rows, space: str, change: int) -> list[int]:
    """Return memories whose vectors were written after a change, outside of operations."""
    found = connection.execute(
        "SELECT DISTINCT memory FROM passages WHERE space = ? AND change > 0 AND change > ?",
        (space, change),
    )
    return [row[0] for row in found]


def newest_change(connection: Rows, space: str) -> int:
    """Return the newest change that any passage names."""
    row = connection.execute(
        "SELECT coalesce(max(change), 0) FROM passages WHERE space = ? AND change > 0", (space,)
    ).fetchone()
    return int(row[0]) if row else 0


def record_derived_change(unit: WritingUnit, memory: int) -> None:
    """Record that a memory's derived rows have changed, for the in-memory indexes."""
    unit.connection.execute(
        "INSERT INTO touches (space, memory, seq) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (unit.space, memory, unit.seq),
    )


def count_derived_changes(rows: Rows, space: str, seq: int) -> int:
    """Return the number of memories whose derived rows an operation changed."""
    found = rows.execute(
        "SELECT count(*) FROM touches WHERE space = ? AND seq = ?", (space, seq)
    ).fetchone()
    return 0 if found is None else int(found[0])


def drop_entries(connection: Rows, space: str, memory: int) -> None:
    """Delete a memory's derived rows."""
    for table in _INSERTS:
        connection.execute(f"DELETE FROM {table} WHERE space = ? AND memory = ?", (space, memory))  # noqa: S608
    connection.drop_grams(space, memory)


def memories_with_grams(
    connection: Rows, space: str, grams: Iterable[str], most: int | None = None
) -> list[int]:
    """Return the numbers of at most `most` memories that contain all these trigrams."""
    return connection.memories_with_grams(space, list(dict.fromkeys(grams)), most)


class Model(Protocol):
    """The identity of an embedding model."""

    @property
    def id(self) -> str: ...
    @property
    def weights(self) -> str: ...
    @property
    def dimensions(self) -> int: ...


def model_number(connection: Rows, space: str, model: Model) -> int:
    """Return the number by which vectors refer to this model; assigned on first use."""
    known = find_model_number(connection, space, model.id, model.weights)
    if known is not None:
        return known
    row = connection.execute(
        "INSERT INTO models (num, space, id, weights, dimensions)"
        " SELECT coalesce(max(num), 0) + 1, ?1, ?2, ?3, ?4 FROM models WHERE space = ?1"
        " RETURNING num",
        (space, model.id, model.weights, model.dimensions),
    ).fetchone()
    assert row is not None
    return int(row[0])


def find_model_number(connection: Rows, space: str, model: str, weights: str) -> int | None:
    """Return the number of a model that has stored vectors, or None."""
    row = connection.execute(
        "SELECT num FROM models WHERE space = ? AND id = ? AND weights = ?",
        (space, model, weights),
    ).fetchone()
    return None if row is None else int(row[0])


# A stored vector is a float32 scale and one int8 for each dimension, little-endian.
SCALE_BYTES = 4


def quantise(vectors: NDArray[np.float32]) -> list[bytes]:
    """Return one packed vector for each row.

    A packed vector multiplied by its scale equals the row to within half the scale. Raise
    `InvalidInput` for a row that is zero or not finite, because it has no direction.
    """
    import numpy as np

    rows = np.asarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise InvalidInput(f"Vectors must be rows of a matrix, not of shape {rows.shape}.")
    if rows.shape[0] == 0:
        return []
    largest = np.abs(rows).max(axis=1)
    scales = (largest / np.float32(127)).astype("<f4")
    # This is also true of a row that is so small that its scale would be rounded to zero.
    if not np.isfinite(largest).all() or (scales < np.finfo(np.float32).tiny).any():
        raise InvalidInput("A vector is zero or contains a number that is not finite.")
    whole = np.clip(np.rint(rows / scales[:, None]), -127, 127).astype(np.int8)
    packed = np.empty((rows.shape[0], SCALE_BYTES + rows.shape[1]), np.uint8)
    packed[:, :SCALE_BYTES] = scales.view(np.uint8).reshape(-1, SCALE_BYTES)
    packed[:, SCALE_BYTES:] = whole.view(np.uint8)
    return [row.tobytes() for row in packed]


def pack(vector: NDArray[np.float32]) -> bytes:
    """Return one vector, packed."""
    import numpy as np

    return quantise(np.asarray(vector, dtype=np.float32).reshape(1, -1))[0]


def unpack_matrix(joined: bytes, dimensions: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return the int8 matrix and the scales of concatenated packed vectors.

    Raise `StorageCorrupt` if the bytes are not whole vectors of that length.
    """
    import numpy as np

    size = SCALE_BYTES + dimensions
    if dimensions < 1 or len(joined) % size:
        raise StorageCorrupt(
            f"Stored vectors take {len(joined)} bytes, which is not a multiple of {size}.",
            hint="Run 'commonplace doctor --repair' to compute the vectors again.",
        )
    packed = np.frombuffer(joined, np.uint8).reshape(-1, size)
    scales = packed[:, :SCALE_BYTES].copy().view("<f4").reshape(-1).astype(np.float32)
    if not (np.isfinite(scales) & (scales > 0)).all():
        raise StorageCorrupt(
            "A stored vector has a scale that is not a positive number.",
            hint="Run 'commonplace doctor --repair' to compute the vectors again.",
        )
    return packed[:, SCALE_BYTES:].copy().view(np.int8), scales
