"""Refusals in the shape that RFC 6749, 7009, 7591 and 8707 give them."""

from __future__ import annotations

from commonplace.errors import CommonplaceError


class OAuthError(CommonplaceError):
    """A request that is refused: `error` is for programs, the message for people."""

    code = "OAUTH"

    def __init__(
        self, error: str, message: str, *, status: int = 400, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.error = error
        self.status = status
        self.retry_after = retry_after

    def body(self) -> dict[str, str]:
        """As the JSON endpoints answer it."""
        return {"error": self.error, "error_description": self.message}


class PageError(OAuthError):
    """A refusal that is shown to the person and never sent to an address that was asked for."""

    @classmethod
    def of(cls, error: OAuthError) -> PageError:
        """Another refusal, to be shown."""
        return cls(error.error, error.message, status=error.status, retry_after=error.retry_after)


def invalid_request(message: str) -> OAuthError:
    """Something is missing, malformed or there twice."""
    return OAuthError("invalid_request", message)


def invalid_grant(message: str) -> OAuthError:
    """The code or refresh token is not good, or no longer, or not for this."""
    return OAuthError("invalid_grant", message)


def invalid_client(message: str) -> OAuthError:
    """The client is not known, or did not prove to be the one it says."""
    return OAuthError("invalid_client", message, status=401)


def slow_down(wait: int) -> OAuthError:
    """Too many requests from one place, or from everywhere."""
    return OAuthError(
        "temporarily_unavailable",
        f"Too many requests; try again in {wait} seconds.",
        status=429,
        retry_after=wait,
    )
