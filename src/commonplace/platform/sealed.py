"""Secrets of a space in system.db: encrypted, bound to their space, and never shown."""

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
    """Encrypts secrets, each bound to its purpose."""

    def seal(self, value: bytes, *aad: str) -> bytes:
        """Encrypt a secret."""

    def open(self, sealed: bytes, *aad: str) -> bytes:
        """Decrypt a secret with the same associated data."""


@dataclass(frozen=True, slots=True)
class SealedSettings:
    """The secrets of one purpose: a JSON object for each space."""

    store: Store
    vault: Sealing
    name: str
    """The prefix of the setting's name."""
    associated_data: str
    """Associated data besides the space, so that encrypted values cannot be swapped."""
    title: str
    """The name of the secrets in the output of `doctor`."""

    def put(self, space: str, values: dict[str, Any]) -> None:
        """Store the secrets of a space, and replace the former ones."""
        sealed = self.vault.seal(
            json.dumps(values).encode(), *self._all_associated_data(checks.space(space))
        )
        with self.store.maintain() as rows:
            secrets.put_setting(rows, self._setting_name(space), sealed)

    def get(self, space: str) -> dict[str, Any] | None:
        """Return the secrets of a space; None if it has none."""
        with self.store.read() as rows:
            sealed = secrets.setting(rows, self._setting_name(checks.space(space)))
        if sealed is None:
            return None
        held: dict[str, Any] = json.loads(
            self.vault.open(sealed, *self._all_associated_data(space))
        )
        return held

    def forget(self, space: str) -> bool:
        """Delete the secrets of a space; return whether there were any."""
        with self.store.maintain() as rows:
            return secrets.delete_setting(rows, self._setting_name(checks.space(space)))

    def reseal_rows(self, rows: Rows) -> None:
        """Encrypt all secrets again with the newest master key."""
        for name, sealed in secrets.settings(rows, self._setting_name("")):
            bound = self._all_associated_data(name.removeprefix(self._setting_name("")))
            opened = self.vault.open(sealed, *bound)
            secrets.put_setting(rows, name, self.vault.seal(opened, *bound))

    def damaged_rows(self, rows: Rows) -> Iterator[str]:
        """Yield the secrets that cannot be decrypted."""
        for name, sealed in secrets.settings(rows, self._setting_name("")):
            space = name.removeprefix(self._setting_name(""))
            with contextlib.suppress(CommonplaceError):
                self.vault.open(sealed, *self._all_associated_data(space))
                continue
            yield f"{self.title} of the space {space}"

    def _setting_name(self, space: str) -> str:
        return f"{self.name} {space}"

    def _all_associated_data(self, space: str) -> tuple[str, str, str]:
        return (self.name, space, self.associated_data)


def llm_keys(store: Store, vault: Sealing) -> SealedSettings:
    """Return the store of API keys for language models."""
    return SealedSettings(store, vault, "llm key", "anthropic or openai", "The model key")


def mama_secrets(store: Store, vault: Sealing) -> SealedSettings:
    """Return the store of secrets in MAMA's configuration, by their path."""
    return SealedSettings(store, vault, "mama config", "secrets", "A secret of MAMA's config")


def all_sealed_settings(store: Store, vault: Sealing) -> tuple[SealedSettings, ...]:
    """Return all stores of secrets, for the rotation of the master key and for `doctor`."""
    return llm_keys(store, vault), mama_secrets(store, vault)
