"""The body of HTTP errors."""

from __future__ import annotations

from typing import Any


def error_body(status: int, code: str, message: str, request: str) -> dict[str, Any]:
    """Return the body of an HTTP error."""
    del status, request
    return {"error": True, "code": code, "message": message}
