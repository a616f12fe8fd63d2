"""The routes of the authorization server: JSON for programs, pages for people."""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from commonplace.access.accounts import Account
from commonplace.access.oauth import forms, pages
from commonplace.access.oauth.devices import normalise_user_code
from commonplace.access.oauth.errors import OAuthError, PageError
from commonplace.access.oauth.logins import LOGIN_SECONDS
from commonplace.access.oauth.resources import PROTECTED_RESOURCE
from commonplace.access.oauth.server import (
    ClientRequest,
    OAuth,
    RedirectedError,
    Request,
    form_token,
    new_cookie,
)
from commonplace.errors import CommonplaceError

LOGIN_COOKIE = "commonplace_login"
_COOKIE_VALUE = re.compile(r"[A-Za-z0-9_-]{43}")
_STALE_PAGE = "This page has expired, or was opened in another browser. Start again."
_WRONG_LOGIN = "The name or the password is not right."
_MALFORMED_CODE = "A code has eight letters, such as BCDF-GHJK."
_COMPARE_CODES = "Compare the code with the one on the device."

# `same-origin` and not `no-referrer`: under the latter, browsers send our own forms with the
# Origin `null`. No Cross-Origin-Opener-Policy: clients open these pages in a separate window and
# wait for the redirect there.
_PAGE_HEADERS = {
    "cache-control": "no-store",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
}
_JSON_HEADERS = {
    "cache-control": "no-store",
    "pragma": "no-cache",
    "x-content-type-options": "nosniff",
}

log = logging.getLogger(__name__)
Endpoint = Callable[[HttpRequest], Awaitable[Response]]
AddressOf = Callable[[HttpRequest], str]


def client_address(request: HttpRequest) -> str:
    """Return the client's address in the ASGI scope, where `Door` puts the one behind a proxy."""
    return request.client.host if request.client else ""


def routes(oauth: OAuth, address: AddressOf = client_address) -> list[Route]:
    """Return the routes of the authorization server; none of them needs a token.

    Rate limits use the result of `address`. Behind a proxy this must be the client's address, or
    else all clients share one limit.
    """
    machine = _JsonEndpoints(oauth, address)
    people = _ConsentPages(oauth, address)
    typing = _DevicePages(oauth, address)
    return [
        Route("/.well-known/oauth-authorization-server", machine.authorization_server),
        Route("/.well-known/openid-configuration", machine.authorization_server),
        Route(PROTECTED_RESOURCE, machine.protected_resource),
        Route(PROTECTED_RESOURCE + "/{path:path}", machine.protected_resource),
        Route("/oauth/token", _with_json_errors(machine.token), methods=["POST"]),
        Route("/oauth/revoke", _with_json_errors(machine.revoke), methods=["POST"]),
        Route("/oauth/register", _with_json_errors(machine.register), methods=["POST"]),
        Route("/oauth/device_authorization", _with_json_errors(machine.device), methods=["POST"]),
        Route(pages.DEVICE_PATH, _with_error_pages(oauth, typing.visit), methods=["GET"]),
        Route(pages.DEVICE_PATH, _with_error_pages(oauth, typing.answer), methods=["POST"]),
        Route("/oauth/authorize", _with_error_pages(oauth, people.visit), methods=["GET"]),
        Route("/oauth/authorize", _with_error_pages(oauth, people.answer), methods=["POST"]),
        Route(pages.STYLE_PATH, people.style),
    ]


# JSON endpoints


class _JsonEndpoints:
    def __init__(self, oauth: OAuth, address: AddressOf) -> None:
        self._oauth = oauth
        self._address = address

    async def authorization_server(self, _: HttpRequest) -> Response:
        return _document_response(self._oauth.resources.server_metadata())

    async def protected_resource(self, request: HttpRequest) -> Response:
        path = request.path_params.get("path", "")
        body = self._oauth.resources.resource_metadata(f"/{path}" if path else "")
        if body is None:
            error = OAuthError("not_found", "There is no such resource.", status=404)
            return _json_response(error.body(), error.status)
        return _document_response(body)

    async def token(self, request: HttpRequest) -> Response:
        self._oauth.check_rate("token", self._address(request))
        parameters = await forms.read_form(request)
        tokens = await self._oauth.answer_token_request(
            parameters, _authorization_header(request), self._address(request)
        )
        return _json_response(tokens.body())

    async def revoke(self, request: HttpRequest) -> Response:
        self._oauth.check_rate("token", self._address(request))
        parameters = await forms.read_form(request)
        await self._oauth.revoke(parameters, _authorization_header(request))
        return _json_response({})

    async def register(self, request: HttpRequest) -> Response:
        body = await forms.read_json(request)
        registered = await self._oauth.register(body, self._address(request))
        return _json_response(registered.body(), 201)

    async def device(self, request: HttpRequest) -> Response:
        address = self._address(request)
        self._oauth.check_rate("token", address)
        parameters = await forms.read_form(request)
        started = await self._oauth.start_device(
            parameters, _authorization_header(request), address
        )
        return _json_response(started.body(self._oauth.device_page))


def _document_response(body: Mapping[str, Any]) -> Response:
    headers = {"cache-control": "max-age=300", "x-content-type-options": "nosniff"}
    return JSONResponse(body, headers=headers)


def _json_response(body: Mapping[str, Any], status: int = 200) -> Response:
    return JSONResponse(body, status, _JSON_HEADERS)


def _with_json_errors(endpoint: Endpoint) -> Endpoint:
    async def answered(request: HttpRequest) -> Response:
        try:
            return await endpoint(request)
        except OAuthError as error:
            refused = error
        except Exception as error:
            refused = _internal_error(error)
        response = _json_response(refused.body(), refused.status)
        if refused.retry_after is not None:
            response.headers["retry-after"] = str(refused.retry_after)
        if refused.error == "invalid_client" and "authorization" in request.headers:
            response.headers["www-authenticate"] = 'Basic realm="oauth"'
        return response

    return answered


def _authorization_header(request: HttpRequest) -> str | None:
    given = request.headers.getlist("authorization")
    if len(given) > 1:
        raise OAuthError("invalid_request", "There are several Authorization headers.")
    return given[0] if given else None


def _internal_error(error: Exception) -> OAuthError:
    """Log an unexpected failure; the client gets no details."""
    log.error("the request failed", exc_info=error)
    if isinstance(error, CommonplaceError):
        return OAuthError(
            "temporarily_unavailable", "Temporarily unavailable; try again.", status=503
        )
    return OAuthError("server_error", "Something went wrong here.", status=500)


# Pages


@dataclass(frozen=True, slots=True)
class _Post:
    """A form posted by one of the pages."""

    http: HttpRequest
    form: Mapping[str, str]
    cookie: str


Action = Callable[[_Post], Awaitable[Response]]


class _ConsentPages:
    """The pages on which a person logs in and allows or denies a client."""

    def __init__(self, oauth: OAuth, address: AddressOf) -> None:
        self._oauth = oauth
        self._address = address
        self._cookie = forms.Cookie(LOGIN_COOKIE, LOGIN_SECONDS, oauth.uses_https)
        self._actions: dict[str, tuple[str, Action]] = {
            "login": ("login", self._log_in),
            "leave": ("login", self._deny),
            "allow": ("consent", self._allow),
            "deny": ("consent", self._deny),
            "switch": ("consent", self._switch_account),
        }

    async def visit(self, http: HttpRequest) -> Response:
        """Show the consent page to a logged-in person, and the login page to others."""
        self._oauth.check_rate("page", self._address(http), http.url.path)
        request = await self._check_request(http.scope["query_string"].decode("latin-1"), http)
        return await self._consent_or_login(request, self._login_cookie(http))

    async def _check_request(self, query: str, http: HttpRequest) -> Request:
        return await self._oauth.check_request(query, self._address(http))

    async def _request_of_form(self, post: _Post) -> Request:
        """Return the authorization request of a form."""
        return await self._check_request(post.form.get("request", ""), post.http)

    async def answer(self, http: HttpRequest) -> Response:
        """Handle a form posted by one of the pages."""
        self._oauth.check_rate("page", self._address(http), http.url.path)
        try:
            form = await forms.read_form(http)
        except OAuthError as error:
            raise PageError.of(error) from None
        query, cookie = form.get("request", ""), self._login_cookie(http)
        step, act = self._actions.get(form.get("action", ""), ("", None))
        expected = form_token(cookie, step, query)
        if (
            act is None
            or not cookie
            or not self._is_from_our_page(http)
            or not hmac.compare_digest(expected.encode(), form.get("token", "").encode())
        ):
            raise PageError("invalid_request", _STALE_PAGE, status=403)
        return await act(_Post(http, form, cookie))

    def _is_from_our_page(self, http: HttpRequest) -> bool:
        """Return whether the Origin and Sec-Fetch-Site headers, if present, name this server."""
        origins = http.headers.getlist("origin")
        sites = http.headers.getlist("sec-fetch-site")
        return origins in ([], [self._oauth.issuer]) and sites in ([], ["same-origin"])

    async def _log_in(self, post: _Post) -> Response:
        request = await self._request_of_form(post)
        name, password = post.form.get("name", ""), post.form.get("password", "")
        try:
            fresh = await self._oauth.log_in(name, password, self._address(post.http))
        except OAuthError as error:
            wait = error.retry_after or 1
            message = f"Too many tries. Wait {_duration_in_words(wait)}, then try again."
            page = self._login_page(request, post.cookie, name, message, 429)
            page.headers["retry-after"] = str(wait)
            return page
        if fresh is None:
            return self._login_page(request, post.cookie, name, _WRONG_LOGIN, 403)
        # Redirect, so that going back or reloading does not send the password again.
        response = RedirectResponse(self._return_path(request), 303, _PAGE_HEADERS)
        return self._cookie.set(response, fresh)

    def _return_path(self, request: Request) -> str:
        return f"/oauth/authorize?{request.asked.query}"

    async def _allow(self, post: _Post) -> Response:
        request, account = (
            await self._request_of_form(post),
            await self._oauth.account_of(post.cookie),
        )
        if account is None:
            message = "Your login has expired. Log in again."
            return self._login_page(request, post.cookie, message=message)
        scopes = {name[len("scope ") :] for name in post.form if name.startswith("scope ")}
        space, subject = post.form.get("space", ""), post.form.get("subject", "")
        try:
            target = await self._oauth.allow(
                request, account, scopes=scopes, space=space, subject=subject
            )
        except PageError:
            raise
        except OAuthError as error:
            return self._consent_page(
                request, post.cookie, account, subject, error.message, error.status
            )
        return await self._log_out(post, self._allowed_response(target))

    def _allowed_response(self, target: str) -> Response:
        return _redirect_to(target)

    async def _deny(self, post: _Post) -> Response:
        answer = {"error": "access_denied", "error_description": "The person did not allow it."}
        target = self._oauth.redirect_url((await self._request_of_form(post)).asked, answer)
        return await self._log_out(post, _redirect_to(target))

    async def _switch_account(self, post: _Post) -> Response:
        request = await self._request_of_form(post)
        await self._oauth.run_in_thread(self._oauth.logins.end, post.cookie)
        return self._login_page(request, "")

    async def _log_out(self, post: _Post, response: Response) -> Response:
        """Log out and delete the cookie with this response."""
        await self._oauth.run_in_thread(self._oauth.logins.end, post.cookie)
        return self._cookie.delete(response)

    async def style(self, _: HttpRequest) -> Response:
        headers = {"cache-control": "max-age=3600", "x-content-type-options": "nosniff"}
        return Response(pages.STYLE, media_type="text/css", headers=headers)

    async def _consent_or_login(self, request: Request, cookie: str) -> Response:
        account = await self._oauth.account_of(cookie)
        if account is None:
            return self._login_page(request, cookie)
        return self._consent_page(request, cookie, account)

    def _login_page(
        self, request: Request, cookie: str, name: str = "", message: str = "", status: int = 200
    ) -> Response:
        cookie = cookie or new_cookie()
        token = form_token(cookie, "login", request.asked.query)
        body = pages.login_page(request, token, name=name[:200], message=message)
        return self._cookie.set(_page_response(body, status, request.asked), cookie)

    def _consent_page(
        self,
        request: Request,
        cookie: str,
        account: Account,
        subject: str = "",
        message: str = "",
        status: int = 200,
    ) -> Response:
        token = form_token(cookie, "consent", request.asked.query)
        body = pages.consent_page(request, token, account, subject=subject[:128], message=message)
        return _page_response(body, status, request.asked)

    def _login_cookie(self, http: HttpRequest) -> str:
        value = http.cookies.get(self._cookie.name, "")
        return value if _COOKIE_VALUE.fullmatch(value) else ""


class _DevicePages(_ConsentPages):
    """The pages on which a person enters a device's code and decides."""

    def __init__(self, oauth: OAuth, address: AddressOf) -> None:
        super().__init__(oauth, address)
        self._actions["find"] = ("code", self._find_device)

    async def visit(self, http: HttpRequest) -> Response:
        """Show the form for the code; with a code in the query, show a logged-in person the consent
        page."""
        self._oauth.check_rate("page", self._address(http), http.url.path)
        try:
            parameters = forms.parse_parameters(http.scope["query_string"].decode("latin-1"))
        except OAuthError as error:
            raise PageError.of(error) from None
        typed, cookie = parameters.get("user_code", ""), self._login_cookie(http)
        account = await self._oauth.account_of(cookie)
        if account is None or not normalise_user_code(typed):
            return self._code_page(cookie, typed)
        return self._consent_page(
            await self._check_request(normalise_user_code(typed), http), cookie, account
        )

    async def _check_request(self, query: str, http: HttpRequest) -> Request:
        """Look up a code, within a rate limit, since a script could try many codes."""
        self._oauth.check_rate("code", self._address(http))
        return await self._oauth.check_device(query, self._address(http))

    async def _find_device(self, post: _Post) -> Response:
        typed = post.form.get("code", "")
        code = normalise_user_code(typed)
        if not code:
            return self._code_page(post.cookie, typed, _MALFORMED_CODE, 400)
        try:
            found = await self._check_request(code, post.http)
        except PageError as error:
            if error.error != "invalid_grant":
                raise
            return self._code_page(post.cookie, typed, f"{error.message} {_COMPARE_CODES}", 404)
        return await self._consent_or_login(found, post.cookie)

    def _return_path(self, request: Request) -> str:
        return f"{pages.DEVICE_PATH}?user_code={request.asked.query}"

    def _allowed_response(self, target: str) -> Response:
        del target
        return _page_response(pages.decision_page(allowed=True))

    async def _deny(self, post: _Post) -> Response:
        request, account = (
            await self._request_of_form(post),
            await self._oauth.account_of(post.cookie),
        )
        user = account.name if account else ""
        await self._oauth.deny_device(request, user, self._address(post.http))
        return await self._log_out(post, _page_response(pages.decision_page(allowed=False)))

    def _code_page(self, cookie: str, typed: str, message: str = "", status: int = 200) -> Response:
        cookie = cookie or new_cookie()
        body = pages.code_page(form_token(cookie, "code", ""), typed=typed[:20], message=message)
        return self._cookie.set(_page_response(body, status, forms_to="'self'"), cookie)


def _page_response(
    body: str, status: int = 200, asked: ClientRequest | None = None, *, forms_to: str = "'none'"
) -> Response:
    if asked is not None:
        forms_to = f"'self' {asked.redirect.form_sources}" if asked.redirect else "'self'"
    policy = (
        "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none';"
        f" form-action {forms_to}"
    )
    return HTMLResponse(body, status, {**_PAGE_HEADERS, "content-security-policy": policy})


def _redirect_to(target: str) -> Response:
    # RedirectResponse would escape the URL a second time.
    return Response(status_code=303, headers={**_PAGE_HEADERS, "location": target})


def _with_error_pages(oauth: OAuth, endpoint: Endpoint) -> Endpoint:
    async def answered(request: HttpRequest) -> Response:
        try:
            return await endpoint(request)
        except RedirectedError as error:
            return _redirect_to(oauth.redirect_url(error.asked, error.body()))
        except OAuthError as error:
            refused = error
        except Exception as error:
            refused = _internal_error(error)
        response = _page_response(pages.error_page(refused.message), refused.status)
        if refused.retry_after is not None:
            response.headers["retry-after"] = str(refused.retry_after)
        return response

    return answered


def _duration_in_words(seconds: int) -> str:
    return f"{seconds} seconds" if seconds < 100 else f"{-(-seconds // 60)} minutes"
