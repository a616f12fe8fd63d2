"""The routes of the authorization server: JSON for programs, pages for people."""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from commonplace.access.accounts import Account
from commonplace.access.oauth import forms, pages
from commonplace.access.oauth.devices import normal_user_code
from commonplace.access.oauth.errors import OAuthError, PageError
from commonplace.access.oauth.logins import LOGIN_SECONDS
from commonplace.access.oauth.metadata import PROTECTED_RESOURCE
from commonplace.access.oauth.server import (
    ClientRequest,
    OAuth,
    RedirectedError,
    Request,
    form_token,
    new_cookie,
)
from commonplace.errors import CommonplaceError

COOKIE = "commonplace_login"
_COOKIE_VALUE = re.compile(r"[A-Za-z0-9_-]{43}")
_STALE = "This page is no longer valid, or was not opened here."
_WRONG = "The name or the password is not right."
_NO_CODE = "A code has eight letters, such as BCDF-GHJK."
_LOOK = "Look again at what the device shows."

# `same-origin` and not `no-referrer`: under the latter, browsers send our own forms with the
# Origin `null`. No Cross-Origin-Opener-Policy: clients open these pages in a window of their own
# and wait for it to come back.
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
Address = Callable[[HttpRequest], str]


def peer(request: HttpRequest) -> str:
    """The address at the other end of the connection."""
    return request.client.host if request.client else ""


def routes(oauth: OAuth, address: Address = peer) -> list[Route]:
    """The routes of the authorization server; none of them needs a token.

    Guesses and registrations are counted by `address`: behind a proxy, it must tell the address
    that the proxy saw, since otherwise all the world counts as one.
    """
    machine = _Machine(oauth, address)
    people = _People(oauth, address)
    typing = _Typing(oauth, address)
    return [
        Route("/.well-known/oauth-authorization-server", machine.authorization_server),
        Route("/.well-known/openid-configuration", machine.authorization_server),
        Route(PROTECTED_RESOURCE, machine.protected_resource),
        Route(PROTECTED_RESOURCE + "/{path:path}", machine.protected_resource),
        Route("/oauth/token", _as_json(machine.token), methods=["POST"]),
        Route("/oauth/revoke", _as_json(machine.revoke), methods=["POST"]),
        Route("/oauth/register", _as_json(machine.register), methods=["POST"]),
        Route("/oauth/device_authorization", _as_json(machine.device), methods=["POST"]),
        Route(pages.DEVICE_PATH, _as_page(oauth, typing.visit), methods=["GET"]),
        Route(pages.DEVICE_PATH, _as_page(oauth, typing.answer), methods=["POST"]),
        Route("/oauth/authorize", _as_page(oauth, people.visit), methods=["GET"]),
        Route("/oauth/authorize", _as_page(oauth, people.answer), methods=["POST"]),
        Route(pages.STYLE_PATH, people.style),
    ]


# JSON endpoints


class _Machine:
    def __init__(self, oauth: OAuth, address: Address) -> None:
        self._oauth = oauth
        self._address = address

    async def authorization_server(self, _: HttpRequest) -> Response:
        return _document(self._oauth.authorization_server())

    async def protected_resource(self, request: HttpRequest) -> Response:
        path = request.path_params.get("path", "")
        body = self._oauth.protected_resource(f"/{path}" if path else "")
        if body is None:
            error = OAuthError("not_found", "There is no such resource.", status=404)
            return _json(error.body(), error.status)
        return _document(body)

    async def token(self, request: HttpRequest) -> Response:
        self._oauth.take_exchanging(self._address(request))
        parameters = await forms.read_form(request)
        tokens = await self._oauth.exchange(
            parameters, _authorization(request), self._address(request)
        )
        return _json(tokens.body())

    async def revoke(self, request: HttpRequest) -> Response:
        self._oauth.take_exchanging(self._address(request))
        parameters = await forms.read_form(request)
        await self._oauth.revoke(parameters, _authorization(request))
        return _json({})

    async def register(self, request: HttpRequest) -> Response:
        body = await forms.read_json(request)
        registered = await self._oauth.register(body, self._address(request))
        return _json(registered.body(), 201)

    async def device(self, request: HttpRequest) -> Response:
        address = self._address(request)
        self._oauth.take_exchanging(address)
        parameters = await forms.read_form(request)
        started = await self._oauth.start_device(parameters, _authorization(request), address)
        return _json(started.body(self._oauth.device_page))


def _document(body: Mapping[str, Any]) -> Response:
    headers = {"cache-control": "max-age=300", "x-content-type-options": "nosniff"}
    return JSONResponse(body, headers=headers)


def _json(body: Mapping[str, Any], status: int = 200) -> Response:
    return JSONResponse(body, status, _JSON_HEADERS)


def _as_json(endpoint: Endpoint) -> Endpoint:
    async def answered(request: HttpRequest) -> Response:
        try:
            return await endpoint(request)
        except OAuthError as error:
            refused = error
        except Exception as error:
            refused = _fault(error)
        response = _json(refused.body(), refused.status)
        if refused.retry_after is not None:
            response.headers["retry-after"] = str(refused.retry_after)
        if refused.error == "invalid_client" and "authorization" in request.headers:
            response.headers["www-authenticate"] = 'Basic realm="oauth"'
        return response

    return answered


def _authorization(request: HttpRequest) -> str | None:
    given = request.headers.getlist("authorization")
    if len(given) > 1:
        raise OAuthError("invalid_request", "There are several Authorization headers.")
    return given[0] if given else None


def _fault(error: Exception) -> OAuthError:
    """Log an unexpected failure; the client gets no details."""
    log.error("the request failed", exc_info=error)
    if isinstance(error, CommonplaceError):
        return OAuthError(
            "temporarily_unavailable", "Temporarily unavailable; try again.", status=503
        )
    return OAuthError("server_error", "Something went wrong here.", status=500)


# Pages


class _People:
    def __init__(self, oauth: OAuth, address: Address) -> None:
        self._oauth = oauth
        self._address = address
        self._cookie = f"__Host-{COOKIE}" if oauth.secure else COOKIE

    async def visit(self, http: HttpRequest) -> Response:
        """Show the consent page to a person who is logged in, the login page to others."""
        self._oauth.take_asking(self._address(http), http.url.path)
        query = http.scope["query_string"].decode("latin-1")
        request = await self._oauth.check(query, self._address(http))
        cookie = self._given(http)
        account = await self._oauth.account(cookie)
        if account is None:
            return self._login_page(request, cookie)
        return self._consent_page(request, cookie, account)

    async def answer(self, http: HttpRequest) -> Response:
        """Handle a form posted by one of the pages."""
        self._oauth.take_asking(self._address(http), http.url.path)
        try:
            form = await forms.read_form(http)
        except OAuthError as error:
            raise PageError.of(error) from None
        query, action = form.get("request", ""), form.get("action", "")
        step, act = self._actions().get(action, ("", None))
        cookie = self._given(http)
        expected = form_token(cookie, step, query)
        if (
            act is None
            or not cookie
            or not self._from_our_page(http)
            or not hmac.compare_digest(expected.encode(), form.get("token", "").encode())
        ):
            raise PageError("invalid_request", _STALE, status=403)
        request = await self._asked(query, step, http)
        return await act(request, form, cookie, http)

    async def _asked(self, query: str, step: str, http: HttpRequest) -> Request | None:
        del step
        return await self._oauth.check(query, self._address(http))

    def _actions(self) -> dict[str, tuple[str, Callable[..., Awaitable[Response]]]]:
        return {
            "login": ("login", self._log_in),
            "leave": ("login", self._deny),
            "allow": ("consent", self._allow),
            "deny": ("consent", self._deny),
            "switch": ("consent", self._switch),
        }

    def _from_our_page(self, http: HttpRequest) -> bool:
        """Whether the Origin and Sec-Fetch-Site headers, if present, name this server."""
        origins = http.headers.getlist("origin")
        sites = http.headers.getlist("sec-fetch-site")
        return origins in ([], [self._oauth.issuer]) and sites in ([], ["same-origin"])

    async def _log_in(
        self, request: Request, form: Mapping[str, str], cookie: str, http: HttpRequest
    ) -> Response:
        name, password = form.get("name", ""), form.get("password", "")
        try:
            fresh = await self._oauth.log_in(name, password, self._address(http))
        except OAuthError as error:
            wait = error.retry_after or 1
            message = f"Too many tries. Wait {_in_words(wait)}, then try again."
            page = self._login_page(request, cookie, name=name, message=message, status=429)
            page.headers["retry-after"] = str(wait)
            return page
        if fresh is None:
            return self._login_page(request, cookie, name=name, message=_WRONG, status=403)
        # Answered by a redirect, so that going back or reloading sends no password again.
        response = RedirectResponse(self._again(request), 303, _PAGE_HEADERS)
        return self._with_cookie(response, fresh)

    def _again(self, request: Request) -> str:
        return f"/oauth/authorize?{request.asked.query}"

    async def _allow(
        self, request: Request, form: Mapping[str, str], cookie: str, http: HttpRequest
    ) -> Response:
        del http
        account = await self._oauth.account(cookie)
        if account is None:
            return self._login_page(request, cookie, message="Log in again: that took too long.")
        scopes = {name[len("scope ") :] for name in form if name.startswith("scope ")}
        subject = form.get("subject", "")
        try:
            target = await self._oauth.allow(
                request, account, scopes=scopes, space=form.get("space", ""), subject=subject
            )
        except PageError:
            raise
        except OAuthError as error:
            return self._consent_page(
                request,
                cookie,
                account,
                subject=subject,
                message=error.message,
                status=error.status,
            )  # fmt: skip
        return await self._leave(cookie, self._allowed(target))

    def _allowed(self, target: str) -> Response:
        return _sent_to(target)

    async def _deny(
        self, request: Request, form: Mapping[str, str], cookie: str, http: HttpRequest
    ) -> Response:
        del form, http
        answer = {"error": "access_denied", "error_description": "The person did not allow it."}
        return await self._leave(cookie, _sent_to(self._oauth.redirect_with(request.asked, answer)))

    async def _switch(
        self, request: Request, form: Mapping[str, str], cookie: str, http: HttpRequest
    ) -> Response:
        del form, http
        await self._oauth.in_thread(self._oauth.logins.end, cookie)
        return self._login_page(request, "")

    async def _leave(self, cookie: str, response: Response) -> Response:
        """Log out with this response."""
        await self._oauth.in_thread(self._oauth.logins.end, cookie)
        response.delete_cookie(
            self._cookie, path="/", secure=self._oauth.secure, httponly=True, samesite="strict"
        )
        return response

    async def style(self, _: HttpRequest) -> Response:
        headers = {"cache-control": "max-age=3600", "x-content-type-options": "nosniff"}
        return Response(pages.STYLE, media_type="text/css", headers=headers)

    def _login_page(
        self,
        request: Request,
        cookie: str,
        *,
        name: str = "",
        message: str = "",
        status: int = 200,
    ) -> Response:
        cookie = cookie or new_cookie()
        asking = _asking(request, form_token(cookie, "login", request.asked.query))
        body = pages.login(asking, name=name[:200], message=message)
        return self._with_cookie(_page(body, status, request.asked), cookie)

    def _consent_page(
        self,
        request: Request,
        cookie: str,
        account: Account,
        *,
        subject: str = "",
        message: str = "",
        status: int = 200,
    ) -> Response:
        asking = _asking(request, form_token(cookie, "consent", request.asked.query))
        body = pages.consent(
            asking, user=account.name, spaces=account.spaces, subject=subject[:128], message=message
        )
        return _page(body, status, request.asked)

    def _given(self, http: HttpRequest) -> str:
        value = http.cookies.get(self._cookie, "")
        return value if _COOKIE_VALUE.fullmatch(value) else ""

    def _with_cookie(self, response: Response, value: str) -> Response:
        response.set_cookie(
            self._cookie,
            value,
            max_age=LOGIN_SECONDS,
            path="/",
            secure=self._oauth.secure,
            httponly=True,
            samesite="strict",
        )
        return response


class _Typing(_People):
    """The pages on which a person enters a device's code and decides."""

    async def visit(self, http: HttpRequest) -> Response:
        """Ask for the code; with a code in the query, show a logged-in person the consent page."""
        self._oauth.take_asking(self._address(http), http.url.path)
        try:
            parameters = forms.parse(http.scope["query_string"].decode("latin-1"))
        except OAuthError as error:
            raise PageError.of(error) from None
        typed, cookie = parameters.get("user_code", ""), self._given(http)
        account = await self._oauth.account(cookie)
        if account is None or not normal_user_code(typed):
            return self._code_page(cookie, typed)
        return self._consent_page(
            await self._device(normal_user_code(typed), http), cookie, account
        )

    async def _device(self, code: str, http: HttpRequest) -> Request:
        """Look up a code, within a rate limit: a script can make its own cookie and form token."""
        self._oauth.take_typing(self._address(http))
        return await self._oauth.check_device(code, self._address(http))

    async def _asked(self, query: str, step: str, http: HttpRequest) -> Request | None:
        return None if step == "code" else await self._device(query, http)

    def _actions(self) -> dict[str, tuple[str, Callable[..., Awaitable[Response]]]]:
        return {**super()._actions(), "find": ("code", self._find)}

    async def _find(
        self, request: Request | None, form: Mapping[str, str], cookie: str, http: HttpRequest
    ) -> Response:
        del request
        typed = form.get("code", "")
        code = normal_user_code(typed)
        if not code:
            return self._code_page(cookie, typed, message=_NO_CODE, status=400)
        try:
            found = await self._device(code, http)
        except PageError as error:
            if error.error != "invalid_grant":
                raise
            return self._code_page(cookie, typed, message=f"{error.message} {_LOOK}", status=404)
        account = await self._oauth.account(cookie)
        if account is None:
            return self._login_page(found, cookie)
        return self._consent_page(found, cookie, account)

    def _again(self, request: Request) -> str:
        return f"{pages.DEVICE_PATH}?user_code={request.asked.query}"

    def _allowed(self, target: str) -> Response:
        del target
        return _page(pages.decided(allowed=True))

    async def _deny(
        self, request: Request, form: Mapping[str, str], cookie: str, http: HttpRequest
    ) -> Response:
        del form
        account = await self._oauth.account(cookie)
        user = account.name if account else ""
        await self._oauth.deny_device(request, user, self._address(http))
        return await self._leave(cookie, _page(pages.decided(allowed=False)))

    def _code_page(
        self, cookie: str, typed: str, *, message: str = "", status: int = 200
    ) -> Response:
        cookie = cookie or new_cookie()
        body = pages.code(form_token(cookie, "code", ""), typed=typed[:20], message=message)
        return self._with_cookie(_page(body, status, forms_to="'self'"), cookie)


def _asking(request: Request, token: str) -> pages.PageRequest:
    return pages.PageRequest(
        client=request.asked.client,
        redirect=request.asked.redirect,
        audience=request.audience,
        scopes=request.scopes,
        request=request.asked.query,
        token=token,
    )


def _page(
    body: str, status: int = 200, asked: ClientRequest | None = None, *, forms_to: str = "'none'"
) -> Response:
    if asked is not None:
        forms_to = f"'self' {asked.redirect.form_sources}" if asked.redirect else "'self'"
    policy = (
        "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none';"
        f" form-action {forms_to}"
    )
    return HTMLResponse(body, status, {**_PAGE_HEADERS, "content-security-policy": policy})


def _sent_to(target: str) -> Response:
    # Not RedirectResponse, which would escape the URL again.
    return Response(status_code=303, headers={**_PAGE_HEADERS, "location": target})


def _as_page(oauth: OAuth, endpoint: Endpoint) -> Endpoint:
    async def answered(request: HttpRequest) -> Response:
        try:
            return await endpoint(request)
        except RedirectedError as error:
            return _sent_to(oauth.redirect_with(error.asked, error.body()))
        except OAuthError as error:
            refused = error
        except Exception as error:
            refused = _fault(error)
        response = _page(pages.refusal(refused.message), refused.status)
        if refused.retry_after is not None:
            response.headers["retry-after"] = str(refused.retry_after)
        return response

    return answered


def _in_words(seconds: int) -> str:
    return f"{seconds} seconds" if seconds < 100 else f"{-(-seconds // 60)} minutes"
