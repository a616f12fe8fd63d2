"""Browser sessions: a session cookie, and the CSRF token that belongs to it.

The cookie's value is random. Its digest is stored as a credential of the sort `session`, which is
listed, revoked and expires like any other. The value is accepted in the cookie only. A request that
changes anything must also come from a page of this server: it must have this server's origin and
the CSRF token, which only such a page can read.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from commonplace.access.caller import SCOPES
from commonplace.access.credentials import SECOND, Credential, Grant, Unauthenticated
from commonplace.access.oauth import forms
from commonplace.access.oauth.errors import OAuthError, invalid_request
from commonplace.access.oauth.signing_in import SignIn
from commonplace.access.signed import Tokens
from commonplace.engine.model import iso, moment
from commonplace.errors import CommonplaceError
from commonplace.storage.database import now

COOKIE = "commonplace_session"
SIGN_OUT = "/sign-out"
SESSION_SECONDS = 12 * 3_600
SESSION_NAME = "browser session"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
CSRF_HEADER = "x-csrf-token"
CSRF_FIELD = "csrf_token"
FORM_TYPE = "application/x-www-form-urlencoded"
MOST_FORM_FIELDS = 1_000
_COOKIE_VALUE = re.compile(r"cps_[A-Za-z0-9_-]{43}")

Headers = Sequence[tuple[bytes, bytes]]
log = logging.getLogger(__name__)


class CsrfRefused(CommonplaceError):
    """A request with a session cookie did not come from a page of this server; nothing was
    changed."""

    code = "CSRF_REFUSED"


def csrf_token(cookie: str) -> str:
    """Return the CSRF token of a session, which is derived from the cookie."""
    return hmac.digest(cookie.encode(), b"commonplace csrf 1", "sha256").hex()


def _new_cookie() -> str:
    return f"cps_{secrets.token_urlsafe(32)}"


class BrowserSessions:
    """The browser sessions of a server. Methods that read or write the storage are blocking."""

    def __init__(self, tokens: Tokens, origin: str) -> None:
        self._tokens = tokens
        self._credentials = tokens.credentials
        self._origin = origin
        self.cookie = forms.Cookie(COOKIE, SESSION_SECONDS, origin.startswith("https://"))

    def begin(self, grant: Grant, former: str = "") -> tuple[str, Credential]:
        """Begin a session; return its cookie and its credential. End the session of the cookie
        `former`."""
        self.end(former)
        cookie = _new_cookie()
        return cookie, self._credentials.create_session(grant, cookie)

    def begin_by_token(self, token: str, former: str = "") -> tuple[str, Credential]:
        """Begin a session with the rights of an API token; the session ends when the token ends.

        A token from an environment variable is accepted, too.
        """
        cookie = _new_cookie()
        if (found := self._tokens.session_of_environment_token(token, cookie)) is not None:
            self.end(former)
            caller, mark = found
            grant = Grant(
                user=caller.user, space=caller.space, scopes=caller.scopes,
                dialects=caller.dialects, name=SESSION_NAME, client=mark, lifetime=SESSION_SECONDS,
            )  # fmt: skip
            return cookie, self._credentials.create_session(grant, cookie)
        credential = self._credentials.find(token)
        if credential.sort != "token" or credential.resource:
            raise Unauthenticated("not a token to sign in with")
        rest = float(SESSION_SECONDS)
        if credential.expires_at is not None:
            rest = min(rest, (credential.expires_at - now()) / SECOND)
        grant = credential.as_grant(
            name=SESSION_NAME, client=credential.id, family="", lifetime=rest
        )
        return self.begin(grant, former)

    def begin_by_code(self, code: str, former: str = "") -> tuple[str, Credential]:
        """Begin a session with a one-time code, which the CLI creates on the server's machine."""
        credential = self._credentials.use_code(code)
        grant = credential.as_grant(
            name=SESSION_NAME, client="", family="", lifetime=SESSION_SECONDS
        )
        return self.begin(grant, former)

    def find(self, cookie: str) -> Credential:
        """Return the valid session of a cookie; raise Unauthenticated if there is none."""
        credential = self._credentials.find_session(cookie)
        # A `client` with a space in it identifies an environment token; credential ids have none.
        if " " in credential.client:
            if not self._tokens.is_environment_token_set(credential.client, cookie):
                raise Unauthenticated("the token is no longer set in the environment")
        elif credential.client:
            self._credentials.get_valid(credential.client)
        return credential

    def end(self, cookie: str) -> None:
        """Revoke the session of a cookie, if there is one."""
        with contextlib.suppress(Unauthenticated):
            self._credentials.revoke(self.find(cookie).id)

    def cookie_of(self, headers: Headers) -> str:
        """Return the session cookie of a request; empty if there is no valid one, or several."""
        sent = b";".join(value for name, value in headers if name == b"cookie").decode("latin-1")
        pairs = (pair.strip().partition("=") for pair in sent.split(";"))
        values = {value for name, _, value in pairs if name == self.cookie.name}
        value = values.pop() if len(values) == 1 else ""
        return value if _COOKIE_VALUE.fullmatch(value) else ""

    def check_origin(self, headers: Headers) -> None:
        """Refuse a request unless its Origin and Sec-Fetch-Site headers name this server."""
        named: dict[bytes, list[str]] = {b"host": [], b"origin": [], b"sec-fetch-site": []}
        for name, value in headers:
            if name in named:
                named[name].append(value.decode("latin-1").lower())
        scheme = "https" if self.cookie.secure else "http"
        ours = [[self._origin.lower()], [f"{scheme}://{host}" for host in named[b"host"]]]
        sites = named[b"sec-fetch-site"]
        if named[b"origin"] not in ours or sites not in ([], ["same-origin"]):
            raise CsrfRefused(
                "The Origin header does not name this server.",
                hint="Send the request from a page of this server.",
            )

    def check_change(self, cookie: str, headers: Headers, body: bytes = b"") -> None:
        """Refuse a change from another site's page, or without the session's CSRF token."""
        self.check_origin(headers)
        found = dict(headers)
        given = found.get(CSRF_HEADER.encode(), b"")
        kind = found.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        if not given and kind == FORM_TYPE:
            with contextlib.suppress(ValueError):  # too many fields
                fields = parse_qs(body.decode("latin-1"), max_num_fields=MOST_FORM_FIELDS)
                given = "".join(fields.get(CSRF_FIELD, [])).encode("latin-1", "replace")
        if not hmac.compare_digest(csrf_token(cookie).encode(), given):
            raise CsrfRefused(
                "The CSRF token is missing or wrong.",
                hint=f"Send the token of GET /session in the header {CSRF_HEADER},"
                f" or in the form field {CSRF_FIELD}.",
            )


Endpoint = Callable[[Request], Awaitable[Response]]
AddressOf = Callable[[Request], str]
BeginSession = Callable[[str, str], tuple[str, Credential]]
"""A function that begins a session with a secret, and ends the session of a former cookie."""


def routes(sign_in: SignIn, sessions: BrowserSessions, address: AddressOf) -> list[Route]:
    """Return the routes to sign in, to show the signed-in user, and to sign out.

    `SIGN_OUT` relies on `Door` to call `check_change` for the cookie's session.
    """
    signing = _SignInEndpoints(sign_in, sessions, address)
    return [
        Route("/session", _with_error_responses(signing.show), methods=["GET"]),
        Route("/sign-in", _with_error_responses(signing.sign_in), methods=["POST"]),
        Route(SIGN_OUT, _with_error_responses(signing.sign_out), methods=["POST"]),
    ]


class _SignInEndpoints:
    def __init__(self, sign_in: SignIn, sessions: BrowserSessions, address: AddressOf) -> None:
        self._sign_in = sign_in
        self._sessions = sessions
        self._address = address

    async def show(self, request: Request) -> Response:
        """Return the signed-in user, and the CSRF token for changes."""
        cookie = self._sessions.cookie_of(request.headers.raw)
        try:
            credential = await self._sign_in.run_in_thread(self._sessions.find, cookie)
        except Unauthenticated:
            return JSONResponse({"signed_in": False})
        return JSONResponse(_session_as_json(cookie, credential))

    async def sign_in(self, request: Request) -> Response:
        """Begin a session with a name and password, an API token, or a one-time code."""
        self._sessions.check_origin(request.headers.raw)
        self._sign_in.check_rate("page", self._address(request), request.url.path)
        given = await _read_fields(request)
        former = self._sessions.cookie_of(request.headers.raw)
        begin: BeginSession | None = None
        if "token" in given:
            begin, secret = self._sessions.begin_by_token, given["token"]
        elif "code" in given:
            begin, secret = self._sessions.begin_by_code, given["code"]
        if begin is not None:
            cookie, credential = await self._begin_by_secret(begin, secret, former, request)
        else:
            cookie, credential = await self._begin_by_password(given, former, request)
        return self._sessions.cookie.set(JSONResponse(_session_as_json(cookie, credential)), cookie)

    async def _begin_by_password(
        self, given: dict[str, str], former: str, request: Request
    ) -> tuple[str, Credential]:
        name, password = given.get("name", ""), given.get("password", "")
        account = await self._sign_in.verify(name, password, self._address(request))
        if account is None:
            raise Unauthenticated("wrong name or password")
        space = given.get("space", account.spaces[0])
        if space not in account.spaces:
            raise invalid_request("Choose one of your spaces.")
        grant = Grant(user=account.name, space=space, name=SESSION_NAME, lifetime=SESSION_SECONDS)
        return await self._sign_in.run_in_thread(self._sessions.begin, grant, former)

    async def _begin_by_secret(
        self, begin: BeginSession, secret: str, former: str, request: Request
    ) -> tuple[str, Credential]:
        async with self._sign_in.audit_entry("sign in", address=self._address(request)) as failed:
            try:
                return await self._sign_in.run_in_thread(begin, secret, former)
            except Unauthenticated as error:
                failed(error.reason)
                raise

    async def sign_out(self, request: Request) -> Response:
        """End the browser's session."""
        cookie = self._sessions.cookie_of(request.headers.raw)
        with contextlib.suppress(Unauthenticated):
            session = await self._sign_in.run_in_thread(self._sessions.find, cookie)
            told = {"user": session.user, "address": self._address(request)}
            async with self._sign_in.audit_entry("sign out", **told):
                await self._sign_in.run_in_thread(self._sessions.end, cookie)
        return self._sessions.cookie.delete(Response(status_code=204))


async def _read_fields(request: Request) -> dict[str, str]:
    """Return the fields of a form or of a JSON object."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM_TYPE:
        return await forms.read_form(request)
    body = await forms.read_json(request)
    if not all(isinstance(value, str) for value in body.values()):
        raise invalid_request("Every field must be a string.")
    return body


def _session_as_json(cookie: str, credential: Credential) -> dict[str, Any]:
    assert credential.expires_at is not None
    return {
        "signed_in": True,
        "user": credential.user,
        "space": credential.space,
        "scopes": [scope for scope in SCOPES if scope in credential.scopes],
        "expires_at": iso(moment(credential.expires_at)),
        "csrf_token": csrf_token(cookie),
    }


def _with_error_responses(endpoint: Endpoint) -> Endpoint:
    """Wrap an endpoint: answer its errors in the server's usual format."""

    async def answer(request: Request) -> Response:
        headers: dict[str, str] = {}
        try:
            return await endpoint(request)
        except OAuthError as error:
            status, code, message = error.status, error.error.upper(), error.message
            if error.retry_after is not None:
                headers["retry-after"] = str(error.retry_after)
        except Unauthenticated as error:
            log.warning("sign-in refused", extra={"why": error.reason})
            status, code = 401, error.code
            message = "The name, the password or the token is not right."
        except CsrfRefused as error:
            status, code, message = 403, error.code, str(error)
        except CommonplaceError as error:
            log.error("the request failed", exc_info=error)
            status, code, message = 503, error.code, "Temporarily unavailable; try again."
        return JSONResponse({"error": {"code": code, "message": message}}, status, headers)

    return answer
