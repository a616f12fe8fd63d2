"""API keys of users for language models: encrypted, bound to their space, and never shown again."""

from __future__ import annotations

from typing import Any

from commonplace.engine import checks
from commonplace.engine.model import iso, moment
from commonplace.errors import InvalidInput
from commonplace.platform import sealed
from commonplace.platform.llm import PROVIDERS, Access
from commonplace.platform.sealed import Sealing
from commonplace.storage.database import now
from commonplace.storage.ports import Store

KEY_CHARS = 1_000
MODEL_CHARS = 200


def check_key(space: str, key: str, *, provider: str, model: str) -> None:
    """Raise InvalidInput if a key cannot be stored."""
    checks.space(space)
    checks.optional_text(model, "model", max_chars=MODEL_CHARS)
    if not isinstance(key, str) or not 8 <= len(key) <= KEY_CHARS or not key.isascii():
        raise InvalidInput(
            "This is not a valid API key.", hint="Copy it exactly as the provider shows it."
        )
    if any(each.isspace() for each in key):
        raise InvalidInput(
            "An API key has no spaces.", hint="Copy it exactly as the provider shows it."
        )
    Access(key, provider)  # raises InvalidInput for an unknown provider


class LlmKeys:
    """The API keys in system.db, one for each space."""

    def __init__(self, store: Store, vault: Sealing) -> None:
        self._sealed = sealed.llm_keys(store, vault)

    def put(self, space: str, key: str, *, provider: str = "anthropic", model: str = "") -> None:
        """Store a key, and replace the former one."""
        check_key(space, key, provider=provider, model=model)
        self._sealed.put(space, {"key": key, "provider": provider, "model": model, "at": now()})

    def get(self, space: str) -> Access | None:
        """Return the key of a space as access to its model."""
        held = self._sealed.get(space)
        return None if held is None else Access(held["key"], held["provider"], held["model"])

    def describe(self, space: str) -> dict[str, Any]:
        """Return the provider and model of a key, without the key."""
        held = self._sealed.get(space)
        if held is None:
            return {"configured": False, "providers": list(PROVIDERS)}
        return {
            "configured": True,
            "provider": held["provider"],
            "model": held["model"] or None,
            "updated_at": iso(moment(held["at"])),
        }

    def forget(self, space: str) -> bool:
        """Delete the key of a space; return whether there was one."""
        return self._sealed.forget(space)
