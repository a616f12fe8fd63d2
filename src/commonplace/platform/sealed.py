"""Secrets of a space in system.db: sealed, bound to their space, and never shown."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from commonplace.engine import checks
from commonplace.errors import CommonplaceError
from commonplace.storage import secrets
from commonplace.storage.ports import Rows, Store


class Sealing(Protocol):
    """Seals secrets, each bound to what it is for."""

    def seal(self, value: bytes, *aad: str) -> bytes:
        """The secret as it may be stored."""

    def open(self, sealed: bytes, *aad: str) -> bytes:
        """Decrypt a secret that was sealed for the same use."""


@dataclass(frozen=True, slots=True)
class SealedSettings:
    """One JSON object of secrets a space, of one purpose."""

    store: Store
    vault: Sealing
    name: str
    """The purpose, which begins the name of the setting."""
    bound: str
    """Sealed with the purpose and the space, so that no other sealed value can take its place."""
    title: str
    """Its name in the output of `doctor`."""

    def put(self, space: str, values: dict[str, Any]) -> None:
        """Store the secrets of a space instead of those before."""
        sealed = self.vault.seal(json.dumps(values).encode(), *self._bound(checks.space(space)))
        with self.store.maintain() as rows:
            secrets.put_setting(rows, self._setting(space), sealed)

    def get(self, space: str) -> dict[str, Any] | None:
        """The secrets of a space."""
        with self.store.read() as rows:
            sealed = secrets.setting(rows, self._setting(checks.space(space)))
        if sealed is None:
            return None
        held: dict[str, Any] = json.loads(self.vault.open(sealed, *self._bound(space)))
        return held

    def forget(self, space: str) -> bool:
        """Delete the secrets of a space; return whether there were any."""
        with self.store.maintain() as rows:
            return secrets.delete_setting(rows, self._setting(checks.space(space)))

    def reseal_rows(self, rows: Rows) -> None:
        """Seal all of them by the newest master key."""
        for name, sealed in secrets.settings(rows, self._setting("")):
            bound = self._bound(name.removeprefix(self._setting("")))
            opened = self.vault.open(sealed, *bound)
            secrets.put_setting(rows, name, self.vault.seal(opened, *bound))

    def damaged_rows(self, rows: Rows) -> Iterator[str]:
        """The secrets that cannot be decrypted."""
        for name, sealed in secrets.settings(rows, self._setting("")):
            space = name.removeprefix(self._setting(""))
            with contextlib.suppress(CommonplaceError):
                self.vault.open(sealed, *self._bound(space))
                continue
            yield f"{self.title} of the space {space}"

    def _setting(self, space: str) -> str:
        return f"{self.name} {space}"

    def _bound(self, space: str) -> tuple[str, str, str]:
        return (self.name, space, self.bound)


def llm_keys(store: Store, vault: Sealing) -> SealedSettings:
    """Keys to language models."""
    return SealedSettings(store, vault, "llm key", "anthropic or openai", "The model key")


def mama_secrets(store: Store, vault: Sealing) -> SealedSettings:
    """The secrets of MAMA's configuration, by their path in it."""
    return SealedSettings(store, vault, "mama config", "secrets", "A secret of MAMA's config")


def every(store: Store, vault: Sealing) -> tuple[SealedSettings, ...]:
    """All sealed settings, for a new master key and for `doctor`."""
    return llm_keys(store, vault), mama_secrets(store, vault)
