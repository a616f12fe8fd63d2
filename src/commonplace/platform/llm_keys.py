"""Owners' keys to language models: sealed, bound to their space, and never shown again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, Protocol

from commonplace.engine import checks
from commonplace.engine.model import iso, moment
from commonplace.errors import CommonplaceError, InvalidInput
from commonplace.platform.llm import PROVIDERS, Access
from commonplace.storage import secrets
from commonplace.storage.database import now
from commonplace.storage.ports import Rows, Store

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
        with self._store.maintain() as rows:
            secrets.put_setting(rows, _NAME + space, sealed)

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
        with self._store.maintain() as rows:
            return secrets.delete_setting(rows, _NAME + checks.space(space))

    def reseal_in(self, rows: Rows) -> None:
        """Seal every key by the newest master key."""
        for name, sealed in secrets.settings(rows, _NAME):
            bound = _bound(name.removeprefix(_NAME))
            opened = self._vault.open(sealed, *bound)
            secrets.put_setting(rows, name, self._vault.seal(opened, *bound))

    def damaged_in(self, rows: Rows) -> Iterator[str]:
        """Keys that cannot be opened: nobody is asked with them."""
        for name, sealed in secrets.settings(rows, _NAME):
            space = name.removeprefix(_NAME)
            with contextlib.suppress(CommonplaceError):
                self._vault.open(sealed, *_bound(space))
                continue
            yield f"The model key of the space {space}"

    def _read(self, space: str) -> dict[str, Any] | None:
        with self._store.read() as rows:
            sealed = secrets.setting(rows, _NAME + checks.space(space))
        if sealed is None:
            return None
        held: dict[str, Any] = json.loads(self._vault.open(sealed, *_bound(space)))
        return held


def _bound(space: str) -> tuple[str, str, str]:
    return ("llm key", space, "anthropic or openai")
