"""One shape for everything that is refused over HTTP."""

from __future__ import annotations

from typing import Any


def refusal(status: int, code: str, message: str, request: str) -> dict[str, Any]:
    """The body of an answer that says no."""
    del status, request
    return {"error": True, "code": code, "message": message}
