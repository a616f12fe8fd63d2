"""Owners' keys to language models: sealed, bound to their space, and never shown again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from commonplace.engine import checks
from commonplace.engine.model import iso, moment
from commonplace.errors import CommonplaceError, InvalidInput
from commonplace.platform.llm import PROVIDERS, Access
from commonplace.storage.database import now
from commonplace.storage.sqlite import Store

if TYPE_CHECKING:
    import apsw

KEY_CHARS = 1_000
MODEL_CHARS = 200
_NAME = "llm key "


class Sealing(Protocol):
    """What seals secrets."""

    def seal(self, value: bytes, *aad: str) -> bytes:
        """The secret as it may be stored."""

    def open(self, sealed: bytes, *aad: str) -> bytes:
        """What was sealed as that."""


class LlmKeys:
    """The keys in the file above the spaces, one a space."""

    def __init__(self, store: Store, vault: Sealing) -> None:
        self._store = store
        self._vault = vault

    def put(self, space: str, key: str, *, provider: str = "anthropic", model: str = "") -> None:
        """Keep a key instead of the one before it."""
        checks.space(space)
        checks.optional(model, "model", max_chars=MODEL_CHARS)
        if not isinstance(key, str) or not 8 <= len(key) <= KEY_CHARS or not key.isascii():
            raise InvalidInput("That is not a key.", hint="Give it as the provider does.")
        if any(each.isspace() for each in key):
            raise InvalidInput("A key has no blanks in it.", hint="Give it as the provider does.")
        Access(key, provider)  # refuses a provider that there is not
        secret = {"key": key, "provider": provider, "model": model, "at": now()}
        sealed = self._vault.seal(json.dumps(secret).encode(), *_bound(space))
        with self._store.maintain() as connection:
            _write(connection, space, sealed)

    def get(self, space: str) -> Access | None:
        """The key of a space, to ask with."""
        held = self._read(space)
        return None if held is None else Access(held["key"], held["provider"], held["model"])

    def about(self, space: str) -> dict[str, Any]:
        """What may be told of it: not the key."""
        held = self._read(space)
        if held is None:
            return {"configured": False, "providers": list(PROVIDERS)}
        return {
            "configured": True,
            "provider": held["provider"],
            "model": held["model"] or None,
            "updated_at": iso(moment(held["at"])),
        }

    def forget(self, space: str) -> bool:
        """Keep it no longer; whether there was one."""
        with self._store.maintain() as connection:
            connection.execute(
                "DELETE FROM settings WHERE name = ?", (_NAME + checks.space(space),)
            )
            return connection.changes() > 0

    def reseal_in(self, connection: apsw.Connection) -> None:
        """Seal every key by the newest master key."""
        for space, sealed in _all(connection):
            opened = self._vault.open(sealed, *_bound(space))
            _write(connection, space, self._vault.seal(opened, *_bound(space)))

    def damaged_in(self, connection: apsw.Connection) -> Iterator[str]:
        """Keys that cannot be opened: nobody is asked with them."""
        for space, sealed in _all(connection):
            with contextlib.suppress(CommonplaceError):
                self._vault.open(sealed, *_bound(space))
                continue
            yield f"The model key of the space {space}"

    def _read(self, space: str) -> dict[str, Any] | None:
        with self._store.read() as connection:
            row: Any = connection.execute(
                "SELECT value FROM settings WHERE name = ?", (_NAME + checks.space(space),)
            ).fetchone()
        if row is None:
            return None
        held: dict[str, Any] = json.loads(self._vault.open(row[0], *_bound(space)))
        return held


def _bound(space: str) -> tuple[str, str, str]:
    return ("llm key", space, "anthropic or openai")


def _all(connection: apsw.Connection) -> list[tuple[str, bytes]]:
    rows: Any = connection.execute(
        "SELECT name, value FROM settings WHERE name LIKE ?", (_NAME + "%",)
    ).fetchall()
    return [(name.removeprefix(_NAME), sealed) for name, sealed in rows]


def _write(connection: apsw.Connection, space: str, sealed: bytes) -> None:
    connection.execute(
        "INSERT INTO settings (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (_NAME + space, sealed),
    )
