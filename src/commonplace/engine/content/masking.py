"""Secrets are masked before anything is stored, unless the library was opened to allow them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from commonplace.text import secrets

if TYPE_CHECKING:
    from commonplace.engine.library import OpenSpace

_noticed: ContextVar[list[str] | None] = ContextVar("noticed", default=None)


@contextmanager
def noticing() -> Iterator[list[str]]:
    """Collect the kinds of the secrets that are masked in this block and thread."""
    found: list[str] = []
    token = _noticed.set(found)
    try:
        yield found
    finally:
        _noticed.reset(token)


def masked_so_far() -> list[str]:
    """Return the kinds of the secrets that were masked since the innermost `noticing` began."""
    return list(_noticed.get() or ())


def mask_text(space: OpenSpace, text: str) -> str:
    """Return a text as it may be stored."""
    if space.allow_secrets:
        return text
    masked, kinds = secrets.mask(text)
    _note(kinds)
    return masked


def mask_row(space: OpenSpace, values: dict[str, Any]) -> None:
    """Mask the secrets in the values of a row; they are in their stored form."""
    if space.allow_secrets:
        return
    for name in ("text", "title", "reason", "subject", "object"):
        if isinstance(values.get(name), str):
            values[name] = mask_text(space, values[name])
    given = values.get("attrs")
    if isinstance(given, str) and given != "{}":
        masked, kinds = secrets.mask_values(json.loads(given))
        if kinds:
            values["attrs"] = json.dumps(masked, ensure_ascii=False, separators=(",", ":"))
            _note(kinds)


def mask_content(space: OpenSpace, content: bytes) -> bytes:
    """Return the content of a document as it may be stored; only text has secrets that are seen."""
    if space.allow_secrets or b"\0" in content[:8_000]:
        return content
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    return mask_text(space, text).encode()


def _note(kinds: list[str]) -> None:
    noticed = _noticed.get()
    if kinds and noticed is not None:
        noticed.extend(kinds)
