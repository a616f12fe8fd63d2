"""Arrays that can be extended while others read them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Growing:
    """An array to append to; earlier views stay valid and unchanged."""

    def __init__(self, dtype: Any, width: int | None = None) -> None:
        shape = (0,) if width is None else (0, width)
        self._buffer: NDArray[Any] = np.empty(shape, dtype)
        self.size = 0

    def extend(self, values: NDArray[Any]) -> None:
        """Append values."""
        end = self.size + len(values)
        if end > len(self._buffer):
            if self.size == 0:
                # Make a writable copy if the array is a view of immutable bytes.
                self._buffer = np.require(values, self._buffer.dtype, ["C", "W"])
                self.size = end
                return
            room = max(end, self.size + self.size // 2)
            grown = np.empty((room, *self._buffer.shape[1:]), self._buffer.dtype)
            grown[: self.size] = self._buffer[: self.size]
            self._buffer = grown
        self._buffer[self.size : end] = values
        self.size = end

    def reserve(self, count: int) -> None:
        """Make room for values to come, and half as many more, if the array is empty.

        A large array takes real memory only for what has been written to it.
        """
        if self.size == 0:
            room = count + count // 2
            self._buffer = np.empty((room, *self._buffer.shape[1:]), self._buffer.dtype)

    def fork(self) -> Growing:
        """A copy with the same content; appending to it does not change this one."""
        fork = Growing(self._buffer.dtype)
        fork._buffer, fork.size = self.view, self.size
        return fork

    @property
    def view(self) -> NDArray[Any]:
        """The present values."""
        return self._buffer[: self.size]
