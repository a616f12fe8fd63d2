from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from commonplace.errors import InvalidInput, StorageCorrupt
from commonplace.storage.derived import pack, quantise, unpack_matrix


def unit_rows(count: int, dimensions: int) -> np.ndarray:
    rows = np.random.default_rng(7).normal(size=(count, dimensions)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_packed_vector_is_a_little_endian_scale_and_bytes() -> None:
    packed = pack(np.array([1.27, -0.01, 0.0], np.float32))
    assert struct.unpack("<f", packed[:4])[0] == pytest.approx(0.01)
    assert struct.unpack("3b", packed[4:]) == (127, -1, 0)


def test_directions_survive_packing() -> None:
    rows = unit_rows(200, 384)
    whole, scales = unpack_matrix(b"".join(quantise(rows)), 384)
    assert whole.dtype == np.int8
    assert whole.flags.c_contiguous
    assert scales.dtype == np.float32
    back = whole * scales[:, None]
    cosines = (back * rows).sum(axis=1) / np.linalg.norm(back, axis=1)
    assert cosines.min() > 0.9999
    assert np.abs(back @ back.T - rows @ rows.T).max() < 0.005


@given(
    arrays.arrays(
        np.float32,
        st.integers(1, 40),
        elements=st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False),
    ).filter(lambda vector: np.abs(vector).max() > 1e-30)
)
def test_every_number_comes_back_within_half_a_step(vector: np.ndarray) -> None:
    step = float(np.abs(vector).max()) / 127
    whole, scales = unpack_matrix(pack(vector), len(vector))
    error = np.abs((whole[0].astype(np.float32) * scales[0]).astype(np.float64) - vector).max()
    assert error <= step * 0.5001


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_refused(bad: float) -> None:
    rows = unit_rows(3, 8)
    rows[1, 4] = bad
    with pytest.raises(InvalidInput, match="not finite"):
        quantise(rows)


def test_a_vector_without_direction_is_refused() -> None:
    with pytest.raises(InvalidInput, match="zero"):
        pack(np.zeros(8, np.float32))
    with pytest.raises(InvalidInput, match="zero"):
        pack(np.full(8, 1e-44, np.float32))


def test_a_vector_without_numbers_is_refused() -> None:
    with pytest.raises(InvalidInput, match="shape"):
        pack(np.empty(0, np.float32))


def test_nothing_packs_to_nothing() -> None:
    assert quantise(np.empty((0, 384), np.float32)) == []
    whole, scales = unpack_matrix(b"", 384)
    assert whole.shape == (0, 384)
    assert scales.shape == (0,)


def test_torn_bytes_are_reported_not_read() -> None:
    packed = pack(unit_rows(1, 16)[0])
    with pytest.raises(StorageCorrupt, match="multiple"):
        unpack_matrix(packed[:-1], 16)
    with pytest.raises(StorageCorrupt, match="scale"):
        unpack_matrix(b"\x00" * 20, 16)
    with pytest.raises(StorageCorrupt, match="scale"):
        unpack_matrix(struct.pack("<f", float("nan")) + packed[4:], 16)
