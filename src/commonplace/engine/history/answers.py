"""Stored answers: for 24 hours, a repeated call returns its first answer and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from commonplace.errors import CommonplaceError
from commonplace.storage import answers
from commonplace.storage.database import now
from commonplace.storage.ports import Rows, Store

KEPT_MICROSECONDS = 86_400_000_000  # microseconds: 24 hours


class AlreadyAnswered(CommonplaceError):
    """Raised if the same call was answered meanwhile; the current call is rolled back."""

    code = "ANSWERED"

    def __init__(self, result: str) -> None:
        super().__init__("The same call was answered meanwhile.")
        self.result = result


def find(store: Store, key: bytes) -> str | None:
    """Return the answer stored under a key in the last 24 hours, or None."""
    with store.read() as connection:
        return _find(connection, store.space, key)


def find_newest(store: Store, key: bytes) -> str | None:
    """As `find`, but include answers of the uncommitted transaction shared with other writers."""
    with store.maintain() as connection:
        return _find(connection, store.space, key)


def _find(connection: Rows, space: str, key: bytes) -> str | None:
    # A damaged answer is ignored: repeating the call does less harm.
    found = answers.find(connection, space, key)
    return None if found is None or found[0] < now() - KEPT_MICROSECONDS else found[1]


def keep(store: Store, key: bytes, result: str, confirmed: Sequence[bytes] = ()) -> None:
    """Store an answer in the open unit; raise Answered if the key has an answer already.

    The answers of the `confirmed` keys are removed.
    """
    with store.maintain() as connection:
        if confirmed:
            answers.remove(connection, store.space, confirmed)
        earlier = _find(connection, store.space, key)
        if earlier is not None:
            raise AlreadyAnswered(earlier)
        at = now()
        answers.remove_older(connection, store.space, at - KEPT_MICROSECONDS)
        answers.put(connection, store.space, key, at, result)


def forget(store: Store, keys: Sequence[bytes]) -> None:
    """Remove answers that their caller has got, in the open unit."""
    with store.maintain() as connection:
        answers.remove(connection, store.space, keys)
