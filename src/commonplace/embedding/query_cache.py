"""Recently asked queries and their vectors."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.float32]

# A longer text is hardly asked twice, and must not make the cache large.
LONGEST_KEY = 4_096


class QueryCache:
    """Keeps the vectors of the last `size` queries. They are read-only: callers share them."""

    def __init__(self, size: int = 1_024) -> None:
        self._size = size
        self._rows: OrderedDict[str, Rows] = OrderedDict()
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str], compute: Callable[[Sequence[str]], Rows]) -> Rows:
        """The rows for `texts`, computing only those not asked lately."""
        import numpy as np

        found = {text: row for text in texts if (row := self._recall(text)) is not None}
        missing = [text for text in dict.fromkeys(texts) if text not in found]
        if missing:
            # Not under the lock: a slow model or endpoint must not hold up hits.
            for text, row in zip(missing, compute(missing), strict=True):
                own = row.reshape(1, -1).copy()
                own.setflags(write=False)
                found[text] = own
                self._keep(text, own)
        if len(texts) == 1:
            return found[texts[0]]
        joined = np.concatenate([found[text] for text in texts])
        joined.setflags(write=False)
        return joined

    def __len__(self) -> int:
        return len(self._rows)

    def _recall(self, text: str) -> Rows | None:
        with self._lock:
            row = self._rows.get(text)
            if row is not None:
                self._rows.move_to_end(text)
            return row

    def _keep(self, text: str, row: Rows) -> None:
        if len(text) > LONGEST_KEY:
            return
        with self._lock:
            self._rows[text] = row
            self._rows.move_to_end(text)
            while len(self._rows) > self._size:
                self._rows.popitem(last=False)
