"""Errors in the contract's two formats: the result of a tool, and a REST error."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from commonplace.access.caller import NotPermitted
from commonplace.dialects.contract import Tool, Wire, as_json
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, NotFound

VERSION = "2.0.0"


class Failure(CommonplaceError):
    """An error of this contract, with its code over MCP, and its code and status over REST."""

    tool_code: ClassVar[str] = "VALIDATION_ERROR"
    rest_code: ClassVar[str] = "VAL_VALIDATION_FAILED"
    status: ClassVar[int] = 422

    def __init_subclass__(cls, *, tool: str = "", rest: str = "", status: int = 0) -> None:
        cls.tool_code = tool or cls.tool_code
        cls.rest_code = rest or cls.rest_code
        cls.status = status or cls.status

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        field: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, hint=hint, field=field)
        if hint and not message.endswith((".", "!", "?")):
            self.args = (f"{message}. {hint}",)
        self.details = dict(details or {})


class Invalid(Failure, InvalidInput, rest="VAL_FIELD_INVALID"):
    """A value is not valid."""


class UnknownValue(Invalid, rest="VAL_ENUM_INVALID"):
    """A value is not one of the allowed values."""


class BadPath(Invalid, tool="INVALID_PATH", status=400):
    """A path is not valid for an artifact."""


class TooBig(Invalid, rest="VAL_FIELD_TOO_LONG", status=413):
    """A file is larger than the limit."""


class Missing(Failure, NotFound, tool="NOT_FOUND", rest="RES_NOT_FOUND", status=404):
    """A relationship, trait, checkpoint or artifact does not exist in this space."""


class NoMemory(Missing, rest="RES_MEMORY_NOT_FOUND"):
    """A memory does not exist in this space."""


class NoDocument(Missing, rest="RES_DOCUMENT_NOT_FOUND"):
    """A document does not exist in this space."""


class AlreadyExists(
    Failure, Conflict, tool="ALREADY_EXISTS", rest="RES_ALREADY_EXISTS", status=409
):
    """An object already exists, or an action was already carried out."""


class NameTaken(AlreadyExists, tool="DUPLICATE_NAME"):
    """Another checkpoint already has this name."""


class AlreadyRelated(AlreadyExists, rest="RES_RELATIONSHIP_EXISTS"):
    """The relationship already exists."""


class Protected(Failure, InvalidInput, tool="FORBIDDEN", rest="AUTH_FORBIDDEN", status=403):
    """The memory can only be changed by other endpoints or dialects."""


class Forbidden(
    Failure, NotPermitted, tool="FORBIDDEN", rest="AUTH_INSUFFICIENT_PERMISSIONS", status=403
):
    """The credential does not have the permission."""


class Deprecated(Failure, tool="DEPRECATED", rest="NOT_IMPLEMENTED", status=501):
    """The tool is deprecated."""

    code = "DEPRECATED"


class NotOffered(Failure, tool="NOT_IMPLEMENTED", rest="NOT_IMPLEMENTED", status=501):
    """The contract itself does not offer what this endpoint would do."""

    code = "NOT_IMPLEMENTED"


def require_text(value: str, field: str) -> str:
    """Return the text; raise Invalid if it is blank."""
    if not value.strip():
        raise Invalid(f"{field} must not be blank.", field=field)
    return value


def check_weights(field: str, *weights: float) -> None:
    """Raise Invalid if the weights do not add up to 1, within a hundredth."""
    if abs(sum(weights) - 1.0) > 0.01 + 1e-9:
        raise Invalid(
            f"The weights must add up to 1.0, not {sum(weights):g}.",
            field=field,
            details={"sum": sum(weights)},
        )


# Codes of other errors: (code over MCP, code over REST, status).
_CODES_BY_ERROR: dict[str, tuple[str, str, int]] = {
    "INVALID_INPUT": ("VALIDATION_ERROR", "VAL_VALIDATION_FAILED", 422),
    "NOT_FOUND": ("NOT_FOUND", "RES_NOT_FOUND", 404),
    "CONFLICT": ("ALREADY_EXISTS", "RES_ALREADY_EXISTS", 409),
    "FORBIDDEN": ("FORBIDDEN", "AUTH_INSUFFICIENT_PERMISSIONS", 403),
    "UNAUTHORIZED": ("UNAUTHORIZED", "AUTH_TOKEN_INVALID", 401),
    "TOKEN_EXPIRED": ("UNAUTHORIZED", "AUTH_TOKEN_EXPIRED", 401),
    "INVALID_CREDENTIALS": ("UNAUTHORIZED", "AUTH_INVALID_CREDENTIALS", 401),
    "RATE_LIMITED": ("RATE_LIMITED", "BIZ_RATE_LIMIT_EXCEEDED", 429),
    "RESPONSE_TOO_LARGE": ("VALIDATION_ERROR", "VAL_VALIDATION_FAILED", 422),
    "TIMEOUT": ("TIMEOUT", "SYS_SERVICE_UNAVAILABLE", 503),
    "STORAGE_FULL": ("STORAGE_FULL", "SYS_SERVICE_UNAVAILABLE", 507),
    "BUSY": ("UNAVAILABLE", "SYS_SERVICE_UNAVAILABLE", 503),
    "STORAGE_UNAVAILABLE": ("UNAVAILABLE", "SYS_SERVICE_UNAVAILABLE", 503),
    "STORAGE_READ_ONLY": ("UNAVAILABLE", "SYS_SERVICE_UNAVAILABLE", 503),
    "EMBEDDING_UNAVAILABLE": ("UNAVAILABLE", "SYS_BAD_GATEWAY", 502),
}
_INTERNAL_CODES = ("INTERNAL_ERROR", "SYS_INTERNAL_ERROR", 500)
# REST error codes of requests that the server refuses before the gate, by status.
_CODES_BY_STATUS = {
    400: "VAL_VALIDATION_FAILED", 401: "AUTH_TOKEN_INVALID", 403: "AUTH_FORBIDDEN",
    404: "RES_NOT_FOUND", 405: "VAL_VALIDATION_FAILED", 408: "VAL_VALIDATION_FAILED",
    413: "VAL_FIELD_TOO_LONG", 415: "VAL_VALIDATION_FAILED", 421: "AUTH_FORBIDDEN",
    429: "BIZ_RATE_LIMIT_EXCEEDED",
}  # fmt: skip


def codes_of(error: CommonplaceError) -> tuple[str, str, int]:
    """Return (code over MCP, code over REST, status) of any error."""
    if _is_bad_path(error):
        return BadPath.tool_code, BadPath.rest_code, BadPath.status
    if isinstance(error, Failure):
        return error.tool_code, error.rest_code, error.status
    return _CODES_BY_ERROR.get(error.code, _INTERNAL_CODES)


def _is_bad_path(error: CommonplaceError) -> bool:
    """Return whether the schema refused a path, before `check_path` was called.

    Such a path has a NUL character, is not a string, or is too long.
    """
    is_invalid = type(error) is InvalidInput and "is required" not in error.message
    return is_invalid and error.field in ("path", "path_prefix")


def format_error(tool: Tool, error: CommonplaceError) -> Wire:
    """Return the error result of a tool."""
    body: dict[str, Any]
    if isinstance(error, Forbidden):
        body = {"error": "Forbidden", "status_code": 403}
    else:
        body = {
            "success": False,
            "error": str(error),
            "error_code": codes_of(error)[0],
            "operation": tool.name,
        }
    return {
        "content": [{"type": "text", "text": as_json(body)}],
        "structuredContent": body,
        "isError": True,
    }


def stamp(at: datetime | None) -> str | None:
    """Format a time as ISO 8601 in UTC with milliseconds; return None for None."""
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def response_meta(request: str) -> dict[str, Any]:
    """Return the metadata of a response."""
    return {"timestamp": stamp(datetime.now(UTC)), "version": VERSION, "request_id": request}


def error_body(
    code: str,
    message: str,
    request: str,
    details: Mapping[str, Any] | None = None,
    field_errors: Mapping[str, list[str]] | None = None,
) -> dict[str, Any]:
    """Return the body of a REST error."""
    return {
        "status": "error",
        "error": {
            "code": code,
            "message": message,
            "details": dict(details or {}),
            "field_errors": dict(field_errors or {}),
        },
        "meta": response_meta(request),
    }


_MESSAGES = {
    404: "There is no such endpoint; see GET /api/v2/openapi.json.",
    405: "This method is not allowed for this endpoint; see GET /api/v2/openapi.json.",
}


def format_refusal(status: int, code: str, message: str, request: str) -> dict[str, Any]:
    """Return the error body of a request that the server refuses before the gate."""
    rest_code = _CODES_BY_STATUS.get(status, "SYS_INTERNAL_ERROR")
    if code in ("TOKEN_EXPIRED", "INVALID_CREDENTIALS"):
        rest_code = _CODES_BY_ERROR[code][1]
    return error_body(rest_code, _MESSAGES.get(status, message), request)
