"""Every failure in the contract's two shapes: a tool's result, and a REST error."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from commonplace.access.caller import NotPermitted
from commonplace.dialects.contract import Tool, Wire, as_json
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, NotFound

VERSION = "2.0.0"


class Failure(CommonplaceError):
    """A failure of this contract: its code over MCP, its code and status over REST."""

    tool_code: ClassVar[str] = "VALIDATION_ERROR"
    rest_code: ClassVar[str] = "VAL_VALIDATION_FAILED"
    status: ClassVar[int] = 422

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


class Invalid(Failure, InvalidInput):
    """A value that the contract does not accept."""

    rest_code = "VAL_FIELD_INVALID"


class Unknown(Invalid):
    """A value that is none of those there are."""

    rest_code = "VAL_ENUM_INVALID"


def require_text(value: str, field: str) -> str:
    """The text, if it is not blank."""
    if not value.strip():
        raise Invalid(f"{field} must say something.", field=field)
    return value


def check_weights(field: str, *weights: float) -> None:
    """Refuse weights that do not add up to 1, give or take a hundredth."""
    if abs(sum(weights) - 1.0) > 0.01 + 1e-9:
        raise Invalid(
            f"The weights must add up to 1.0, not {sum(weights):g}.",
            field=field,
            details={"sum": sum(weights)},
        )


class BadPath(Failure, InvalidInput):
    """A path that an artifact cannot have."""

    tool_code = "INVALID_PATH"
    rest_code = "VAL_FIELD_INVALID"
    status = 400


class TooBig(Failure, InvalidInput):
    """A file beyond its limit."""

    rest_code = "VAL_FIELD_TOO_LONG"
    status = 413


class NoMemory(Failure, NotFound):
    """No such memory in this space."""

    tool_code, rest_code, status = "NOT_FOUND", "RES_MEMORY_NOT_FOUND", 404


class NoDocument(Failure, NotFound):
    """No such document in this space."""

    tool_code, rest_code, status = "NOT_FOUND", "RES_DOCUMENT_NOT_FOUND", 404


class Nothing(Failure, NotFound):
    """No such thing in this space."""

    tool_code, rest_code, status = "NOT_FOUND", "RES_NOT_FOUND", 404


class Exists(Failure, Conflict):
    """It is there already."""

    tool_code, rest_code, status = "ALREADY_EXISTS", "RES_ALREADY_EXISTS", 409


class NameTaken(Exists):
    """A checkpoint of that name is there already."""

    tool_code = "DUPLICATE_NAME"


class Related(Exists):
    """The two are related so already."""

    rest_code = "RES_RELATIONSHIP_EXISTS"


class Protected(Failure, InvalidInput):
    """A memory that is managed elsewhere."""

    tool_code, rest_code, status = "FORBIDDEN", "AUTH_FORBIDDEN", 403


class Forbidden(Failure, NotPermitted):
    """The credential lacks the permission."""

    tool_code, rest_code, status = "FORBIDDEN", "AUTH_INSUFFICIENT_PERMISSIONS", 403


class Deprecated(Failure):
    """A tool that is kept for old clients only."""

    code = "DEPRECATED"
    tool_code, rest_code, status = "DEPRECATED", "NOT_IMPLEMENTED", 501


class NotImplementedYet(Failure):
    """What the contract itself does not offer yet."""

    code = "NOT_IMPLEMENTED"
    tool_code, rest_code, status = "NOT_IMPLEMENTED", "NOT_IMPLEMENTED", 501


# What failures that are not of this contract are called here: over MCP, over REST, its status.
_OTHERS: dict[str, tuple[str, str, int]] = {
    "INVALID_INPUT": ("VALIDATION_ERROR", "VAL_VALIDATION_FAILED", 422),
    "NOT_FOUND": ("NOT_FOUND", "RES_NOT_FOUND", 404),
    "CONFLICT": ("ALREADY_EXISTS", "RES_ALREADY_EXISTS", 409),
    "FORBIDDEN": ("FORBIDDEN", "AUTH_INSUFFICIENT_PERMISSIONS", 403),
    "UNAUTHORIZED": ("UNAUTHORIZED", "AUTH_TOKEN_INVALID", 401),
    "TOKEN_EXPIRED": ("UNAUTHORIZED", "AUTH_TOKEN_EXPIRED", 401),
    "RATE_LIMITED": ("RATE_LIMITED", "BIZ_RATE_LIMIT_EXCEEDED", 429),
    "RESPONSE_TOO_LARGE": ("VALIDATION_ERROR", "VAL_VALIDATION_FAILED", 422),
    "TIMEOUT": ("TIMEOUT", "SYS_SERVICE_UNAVAILABLE", 503),
    "STORAGE_FULL": ("STORAGE_FULL", "SYS_SERVICE_UNAVAILABLE", 507),
    "BUSY": ("UNAVAILABLE", "SYS_SERVICE_UNAVAILABLE", 503),
    "STORAGE_UNAVAILABLE": ("UNAVAILABLE", "SYS_SERVICE_UNAVAILABLE", 503),
    "STORAGE_READ_ONLY": ("UNAVAILABLE", "SYS_SERVICE_UNAVAILABLE", 503),
    "EMBEDDING_UNAVAILABLE": ("UNAVAILABLE", "SYS_BAD_GATEWAY", 502),
}
_FAULT = ("INTERNAL_ERROR", "SYS_INTERNAL_ERROR", 500)
# What the door itself refuses, by status.
_AT_THE_DOOR = {
    400: "VAL_VALIDATION_FAILED", 401: "AUTH_TOKEN_INVALID", 403: "AUTH_FORBIDDEN",
    404: "RES_NOT_FOUND", 405: "VAL_VALIDATION_FAILED", 408: "VAL_VALIDATION_FAILED",
    413: "VAL_FIELD_TOO_LONG", 415: "VAL_VALIDATION_FAILED", 421: "AUTH_FORBIDDEN",
    429: "BIZ_RATE_LIMIT_EXCEEDED",
}  # fmt: skip


def named(error: CommonplaceError) -> tuple[str, str, int]:
    """(code over MCP, code over REST, status) of any failure."""
    if _is_bad_path(error):
        return BadPath.tool_code, BadPath.rest_code, BadPath.status
    if isinstance(error, Failure):
        return error.tool_code, error.rest_code, error.status
    return _OTHERS.get(error.code, _FAULT)


def _is_bad_path(error: CommonplaceError) -> bool:
    """Whether a path was refused before the path rules saw it: a NUL, not text, too long."""
    given = type(error) is InvalidInput and "is required" not in error.message
    return given and error.field in ("path", "path_prefix")


def fail(tool: Tool, error: CommonplaceError) -> Wire:
    """A failure as a tool's result."""
    body: dict[str, Any]
    if isinstance(error, Forbidden):
        body = {"error": "Forbidden", "status_code": 403}
    else:
        body = {
            "success": False,
            "error": str(error),
            "error_code": named(error)[0],
            "operation": tool.name,
        }
    return {
        "content": [{"type": "text", "text": as_json(body)}],
        "structuredContent": body,
        "isError": True,
    }


def stamp(at: datetime | None) -> str | None:
    """A moment with milliseconds, in UTC; None stays None."""
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def meta(request: str) -> dict[str, Any]:
    """What stands beside every answer."""
    return {"timestamp": stamp(datetime.now(UTC)), "version": VERSION, "request_id": request}


def error_body(
    code: str,
    message: str,
    request: str,
    details: Mapping[str, Any] | None = None,
    field_errors: Mapping[str, list[str]] | None = None,
) -> dict[str, Any]:
    """The one shape of a REST error."""
    return {
        "status": "error",
        "error": {
            "code": code,
            "message": message,
            "details": dict(details or {}),
            "field_errors": dict(field_errors or {}),
        },
        "meta": meta(request),
    }


_SAYS = {
    404: "There is no such endpoint; see GET /api/v2/openapi.json.",
    405: "This endpoint has another method; see GET /api/v2/openapi.json.",
}


def refuse(status: int, code: str, message: str, request: str) -> dict[str, Any]:
    """The error body of a request that is refused before the gate."""
    usual = _AT_THE_DOOR.get(status, "SYS_INTERNAL_ERROR")
    told = _OTHERS[code][1] if code == "TOKEN_EXPIRED" else usual
    return error_body(told, _SAYS.get(status, message), request)
