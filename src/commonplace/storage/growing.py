"""Arrays that grow while they are read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Growing:
    """An array that grows at its end; earlier views stay valid and unchanged."""

    def __init__(self, dtype: Any, width: int | None = None) -> None:
        shape = (0,) if width is None else (0, width)
        self._buffer: NDArray[Any] = np.empty(shape, dtype)
        self.size = 0

    def extend(self, values: NDArray[Any]) -> None:
        """Put values at the end."""
        end = self.size + len(values)
        if end > len(self._buffer):
            if self.size == 0:
                # What was read as one value is still the bytes it came as, which nobody may change.
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
        """Make room for values to come, if there are none yet."""
        if self.size == 0:
            self._buffer = np.empty((count, *self._buffer.shape[1:]), self._buffer.dtype)

    def fork(self) -> Growing:
        """The same content; growing it leaves this one alone."""
        fork = Growing(self._buffer.dtype)
        fork._buffer, fork.size = self.view, self.size
        return fork

    @property
    def view(self) -> NDArray[Any]:
        """All there is at the moment."""
        return self._buffer[: self.size]
