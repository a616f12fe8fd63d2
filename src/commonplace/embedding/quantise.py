"""Vectors as they are stored: a float32 scale and one int8 per dimension, little-endian."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonplace.errors import InvalidInput, StorageCorrupt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SCALE_BYTES = 4


def quantise(vectors: NDArray[np.float32]) -> list[bytes]:
    """One packed vector per row. Multiplied by its scale, it gives the row back within half of it.

    Raises `InvalidInput` for a row that is zero or not finite: it has no direction to search by.
    """
    import numpy as np

    rows = np.asarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise InvalidInput(f"Vectors must be rows of a matrix, not of shape {rows.shape}.")
    if rows.shape[0] == 0:
        return []
    largest = np.abs(rows).max(axis=1)
    scales = (largest / np.float32(127)).astype("<f4")
    # Also true of a row so small that its scale would lose precision to zero.
    if not np.isfinite(largest).all() or (scales < np.finfo(np.float32).tiny).any():
        raise InvalidInput("A vector is zero or holds a number that is not finite.")
    whole = np.clip(np.rint(rows / scales[:, None]), -127, 127).astype(np.int8)
    packed = np.empty((rows.shape[0], SCALE_BYTES + rows.shape[1]), np.uint8)
    packed[:, :SCALE_BYTES] = scales.view(np.uint8).reshape(-1, SCALE_BYTES)
    packed[:, SCALE_BYTES:] = whole.view(np.uint8)
    return [row.tobytes() for row in packed]


def pack(vector: NDArray[np.float32]) -> bytes:
    """One vector, packed."""
    import numpy as np

    return quantise(np.asarray(vector, dtype=np.float32).reshape(1, -1))[0]


def unpack_many(joined: bytes, dimensions: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """The int8 matrix and the scales of packed vectors laid end to end.

    Raises `StorageCorrupt` when the bytes are not whole vectors of that length.
    """
    import numpy as np

    size = SCALE_BYTES + dimensions
    if dimensions < 1 or len(joined) % size:
        raise StorageCorrupt(
            f"Stored vectors take {len(joined)} bytes, which is no multiple of {size}.",
            hint="Run `commonplace doctor` to embed the memories again.",
        )
    packed = np.frombuffer(joined, np.uint8).reshape(-1, size)
    scales = packed[:, :SCALE_BYTES].copy().view("<f4").reshape(-1).astype(np.float32)
    if not (np.isfinite(scales) & (scales > 0)).all():
        raise StorageCorrupt(
            "A stored vector has a scale that is not a positive number.",
            hint="Run `commonplace doctor` to embed the memories again.",
        )
    return packed[:, SCALE_BYTES:].copy().view(np.int8), scales
