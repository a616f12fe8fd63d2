"""Error responses as defined in RFC 6749, 7009, 7591 and 8707."""

from __future__ import annotations

from commonplace.errors import CommonplaceError


class OAuthError(CommonplaceError):
    """A refused request: `error` is the error code of the RFC; the message is for people."""

    code = "OAUTH"

    def __init__(
        self, error: str, message: str, *, status: int = 400, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.error = error
        self.status = status
        self.retry_after = retry_after

    def body(self) -> dict[str, str]:
        """Return the response body of the JSON endpoints."""
        return {"error": self.error, "error_description": self.message}


class PageError(OAuthError):
    """A refusal that is shown as a page, since the redirect URI cannot be trusted."""

    @classmethod
    def of(cls, error: OAuthError) -> PageError:
        """Return another error as a page."""
        return cls(error.error, error.message, status=error.status, retry_after=error.retry_after)


def invalid_request(message: str) -> OAuthError:
    """Return the error for a missing, malformed or repeated parameter."""
    return OAuthError("invalid_request", message)


def invalid_grant(message: str) -> OAuthError:
    """Return the error for an invalid or expired code or refresh token."""
    return OAuthError("invalid_grant", message)


def invalid_client(message: str) -> OAuthError:
    """Return the error for an unknown client or a failed client authentication."""
    return OAuthError("invalid_client", message, status=401)


def slow_down(wait: int) -> OAuthError:
    """Return the error for an exceeded rate limit."""
    return OAuthError(
        "temporarily_unavailable",
        f"Too many requests; try again in {wait} seconds.",
        status=429,
        retry_after=wait,
    )
