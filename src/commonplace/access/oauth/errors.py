"""Refusals in the shape that RFC 6749, 7009, 7591 and 8707 give them."""

from __future__ import annotations

from commonplace.errors import CommonplaceError


class OAuthError(CommonplaceError):
    """A refused request: `error` is the code of the RFC, the message is for people."""

    code = "OAUTH"

    def __init__(
        self, error: str, message: str, *, status: int = 400, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.error = error
        self.status = status
        self.retry_after = retry_after

    def body(self) -> dict[str, str]:
        """The response body of the JSON endpoints."""
        return {"error": self.error, "error_description": self.message}


class PageError(OAuthError):
    """A refusal shown as a page, since the redirect URI cannot be trusted."""

    @classmethod
    def of(cls, error: OAuthError) -> PageError:
        """The page for another error."""
        return cls(error.error, error.message, status=error.status, retry_after=error.retry_after)


def invalid_request(message: str) -> OAuthError:
    """A parameter is missing, malformed or repeated."""
    return OAuthError("invalid_request", message)


def invalid_grant(message: str) -> OAuthError:
    """The code or refresh token is invalid, expired, or issued for something else."""
    return OAuthError("invalid_grant", message)


def invalid_client(message: str) -> OAuthError:
    """The client is unknown, or its authentication failed."""
    return OAuthError("invalid_client", message, status=401)


def slow_down(wait: int) -> OAuthError:
    """A rate limit is exceeded."""
    return OAuthError(
        "temporarily_unavailable",
        f"Too many requests; try again in {wait} seconds.",
        status=429,
        retry_after=wait,
    )
