"""The error body of the HTTP routes."""

from __future__ import annotations

from typing import Any


def refusal(status: int, code: str, message: str, request: str) -> dict[str, Any]:
    """The body of an HTTP error."""
    del status, request
    return {"error": True, "code": code, "message": message}
