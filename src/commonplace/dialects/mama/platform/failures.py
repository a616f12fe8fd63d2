"""Errors of the platform's routes: their codes, HTTP statuses and two formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commonplace.access.caller import NotPermitted
from commonplace.dialects.contract import TooManyCalls
from commonplace.dialects.rest import Exchange, Reply
from commonplace.errors import CommonplaceError, InvalidInput, NotFound, StorageFull
from commonplace.platform.agents import AgentFailed

# Below these paths `error` is a string; elsewhere it is `true`.
TEXT_ERROR_PATHS = tuple(
    f"/api/{name}"
    for name in ("cron", "skills", "tokens", "heartbeat", "upload", "media", "discord", "report",
                 "screenshot", "slack", "sessions", "logs", "playgrounds", "workspace")
)  # fmt: skip


STATUSES = {
    400: "Missing, malformed or invalid", 401: "Not signed in", 403: "Not permitted",
    404: "Not found", 405: "Wrong method", 409: "Already running", 413: "Too large",
    415: "The content type is not supported", 429: "Too many requests",
    501: "A library is not installed", 502: "The other service refused it",
    503: "The other service is not set up", 507: "The disk is full",
}  # fmt: skip
SCHEMA = {
    "type": "object", "required": ["error", "code", "message"],
    "properties": {
        "error": {"anyOf": [{"type": "string"}, {"const": True}]}, "code": {"type": "string"},
        "message": {"type": "string"}, "details": {"type": "object"},
    },
}  # fmt: skip
"""The schema of all errors, for the OpenAPI document."""


class PlatformError(CommonplaceError):
    """An error of the contract, with its status and code."""

    def __init__(
        self, status: int, code: str, message: str, *, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.details = details
        self.headers: dict[str, str] = {}


def missing_fields(*names: str) -> PlatformError:
    """Return the error for missing required fields."""
    message = f"Missing required field{'s' * (len(names) > 1)}: {', '.join(names)}"
    return PlatformError(400, "BAD_REQUEST", message, details={"missing": list(names)})


def malformed(message: str) -> PlatformError:
    """Return the error for a field that cannot be parsed."""
    return PlatformError(400, "BAD_REQUEST", message)


def invalid_value(message: str) -> PlatformError:
    """Return the error for an invalid value."""
    return PlatformError(400, "VALIDATION_ERROR", message)


def not_found(what: str) -> PlatformError:
    """Return the error for something that does not exist."""
    return PlatformError(404, "NOT_FOUND", f"{what} not found")


def not_installed(package: str, extra: str = "platform") -> PlatformError:
    """Return the error for a missing library that a route needs."""
    from commonplace import DISTRIBUTION

    message = f"{package} is not installed (pip install '{DISTRIBUTION}[{extra}]')."
    return PlatformError(501, "NOT_CONFIGURED", message)


def _status_and_code(error: CommonplaceError) -> tuple[int, str]:
    if isinstance(error, PlatformError):
        return error.status, error.code
    if isinstance(error, InvalidInput):
        return 400, "VALIDATION_ERROR"
    if isinstance(error, NotFound):
        return 404, "NOT_FOUND"
    if isinstance(error, NotPermitted):
        return 403, "FORBIDDEN"
    if isinstance(error, TooManyCalls):
        return 429, "RATE_LIMITED"
    if isinstance(error, AgentFailed):
        return 502, "GATEWAY_ERROR"
    if isinstance(error, StorageFull):
        return 507, error.code
    return 500, "INTERNAL_ERROR"


def format_error(exchange: Exchange, error: CommonplaceError) -> Reply:
    """Return the error response of a request, in the format of its route."""
    status, code = _status_and_code(error)
    message = "Internal error; see the server's log." if code == "INTERNAL_ERROR" else str(error)
    text = exchange.route.path.startswith(TEXT_ERROR_PATHS)
    body: dict[str, Any] = {
        "error": message if text else True, "code": code, "message": message
    }  # fmt: skip
    headers = {}
    if isinstance(error, PlatformError):
        headers = dict(error.headers)
        if error.details:
            body["details"] = dict(error.details)
    elif isinstance(error, TooManyCalls) and error.wait:
        headers["retry-after"] = str(error.wait)
    return Reply(body, status, headers)
