"""The authorization server: checks requests, logs people in, issues and revokes tokens."""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus, urlsplit

from commonplace.access.accounts import Account, Accounts
from commonplace.access.credentials import Credentials
from commonplace.access.declarations import OFFLINE_ACCESS, Resource
from commonplace.access.oauth import forms
from commonplace.access.oauth.clients import (
    Client,
    ClientDocuments,
    Clients,
    NewClient,
    is_document_url,
    parse_registration,
)
from commonplace.access.oauth.devices import DeviceCodes, DeviceRequest, Devices
from commonplace.access.oauth.errors import (
    OAuthError,
    PageError,
    invalid_client,
    invalid_request,
)
from commonplace.access.oauth.families import Consent, Families, IssuedTokens, is_challenge
from commonplace.access.oauth.logins import Logins
from commonplace.access.oauth.redirects import LOOPBACK_HOSTS, Redirect, find_match
from commonplace.access.oauth.resources import (
    DEVICE_CODE,
    GRANT_TYPES,
    Audience,
    Resources,
    is_valid_subject,
)
from commonplace.access.oauth.rows import MacRows
from commonplace.access.oauth.signing_in import SignIn
from commonplace.errors import NotFound
from commonplace.platform.fetching import Fetcher
from commonplace.storage.ports import Store

if TYPE_CHECKING:
    from commonplace.access.vault import Vault

CLIENT_ID_CHARS = 500
log = logging.getLogger(__name__)


class RedirectedError(OAuthError):
    """An error that is sent to the client's redirect URI, after the URI was checked."""

    def __init__(self, error: str, message: str, asked: ClientRequest) -> None:
        super().__init__(error, message)
        self.asked = asked


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """An authorization request with a valid client and redirect URI."""

    query: str
    client: Client
    redirect: Redirect | None
    """The redirect URI; None for a device, which polls for the result."""
    state: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A valid authorization request that waits for the person's decision."""

    asked: ClientRequest
    audience: Audience
    scopes: tuple[str, ...]
    challenge: str = ""


class OAuth(SignIn):
    """One authorization server for all dialects.

    `issuer` is the public URL of this server without a path: https, or http on this machine.
    `resources` are the paths that tokens are issued for; `has_subject` returns whether a space
    has a subject with an id in a dialect.
    """

    def __init__(
        self,
        store: Store,
        credentials: Credentials,
        accounts: Accounts,
        *,
        vault: Vault,
        issuer: str,
        resources: Mapping[str, Resource],
        fetcher: Fetcher | None = None,
        has_subject: Callable[[str, str, str], bool] | None = None,
    ) -> None:
        super().__init__(store, accounts)
        self._has_subject = has_subject
        self.issuer = _checked_issuer(issuer)
        self.resources = Resources(issuer, resources)
        mac_rows = MacRows(vault)
        self.clients = Clients(store, mac_rows)
        self.documents = ClientDocuments(fetcher or Fetcher())
        self.families = Families(store, mac_rows, credentials, self.clients, self.resources)
        self.devices = Devices(store, mac_rows, self.families)
        self.logins = Logins(store, mac_rows)

    # Authorization requests

    async def check_request(self, query: str, address: str) -> Request:
        """Check an authorization request. Raise PageError, or RedirectedError if the redirect URI
        is valid."""
        try:
            short = len(query) <= forms.MOST_QUERY_CHARS
            parameters = forms.parse_parameters(query, joined="resource") if short else {}
        except OAuthError as error:
            raise PageError.of(error) from None
        client = await self._asking_client(parameters.get("client_id", ""), address)
        if not client.uses_redirects:
            raise PageError("unauthorized_client", "The program is not registered for redirects.")
        redirect = find_match(list(client.redirect_uris), parameters.get("redirect_uri", ""))
        if redirect is None:
            raise PageError(
                "invalid_request",
                "The program wants to redirect you to an address that it has not registered.",
            )
        asked = ClientRequest(query, client, redirect, parameters.get("state"))
        try:
            return self._checked_request(asked, parameters)
        except OAuthError as error:
            raise RedirectedError(error.error, error.message, asked) from None

    async def _asking_client(self, client_id: str, address: str) -> Client:
        if not client_id or len(client_id) > CLIENT_ID_CHARS:
            raise PageError("invalid_request", "The request has no valid client_id.")
        try:
            found = await self._find_client(client_id, address)
        except OAuthError as error:
            raise PageError.of(error) from None
        if found is None:
            raise PageError("invalid_client", "The program is not registered here.")
        return found

    async def _find_client(self, client_id: str, address: str) -> Client | None:
        if not is_document_url(client_id):
            return await self.run_in_thread(self.clients.find, client_id)
        if not self.documents.knows(client_id):
            self.check_rate("lookup", address)
        return await self.documents.find(client_id)

    def _checked_request(self, asked: ClientRequest, parameters: Mapping[str, str]) -> Request:
        kind = parameters.get("response_type")
        if kind is None:
            raise invalid_request("response_type is missing.")
        if kind != "code":
            raise OAuthError("unsupported_response_type", "response_type must be code.")
        if parameters.get("response_mode", "query") != "query":
            raise invalid_request("response_mode must be query.")
        for name in ("request", "request_uri"):
            if name in parameters:
                raise OAuthError(f"{name}_not_supported", f"{name} is not supported.")
        if "none" in parameters.get("prompt", "").split():
            raise OAuthError(
                "interaction_required",
                "prompt=none is not supported: a person must allow the request.",
            )
        if parameters.get("code_challenge_method") != "S256":
            raise invalid_request("code_challenge_method must be S256.")
        challenge = parameters.get("code_challenge", "")
        if not is_challenge(challenge):
            raise invalid_request("code_challenge must be the S256 challenge of a verifier.")
        if "resource" not in parameters:
            raise OAuthError("invalid_target", "resource is missing: say what the token is for.")
        if " " in parameters["resource"]:
            raise OAuthError("invalid_target", "Only one resource can be asked for at a time.")
        audience = self.resources.find_by_url(parameters["resource"])
        if audience is None:
            raise OAuthError("invalid_target", "There is no such resource here.")
        return Request(
            asked, audience, _requested_scopes(audience, parameters.get("scope", "")), challenge
        )

    async def check_device(self, user_code: str, address: str) -> Request:
        """Return the request of the device with a user code; raise PageError if there is none."""
        device = await self.run_in_thread(self.devices.find, user_code)
        audience = None if device is None else self.resources.find_by_url(device.resource)
        if device is None or audience is None:
            raise PageError("invalid_grant", "No device shows that code, or it has expired.")
        client = await self._asking_client(device.client, address)
        return Request(ClientRequest(user_code, client, None), audience, device.scopes)

    # Login and consent

    async def log_in(self, name: str, password: str, address: str) -> str | None:
        """Return the cookie of a new login, or None; raise OAuthError after too many attempts."""
        found = await self.verify(name, password, address)
        return None if found is None else await self.run_in_thread(self.logins.begin, found.name)

    async def account_of(self, cookie: str) -> Account | None:
        """Return the account that is logged in with a cookie."""
        return await self.run_in_thread(self._account_of, cookie) if cookie else None

    def _account_of(self, cookie: str) -> Account | None:
        user = self.logins.user_of(cookie)
        try:
            return None if user is None else self._accounts.get(user)
        except NotFound:
            return None

    async def allow(
        self, request: Request, account: Account, *, scopes: set[str], space: str, subject: str
    ) -> str:
        """Store the person's consent; return the redirect URL with the code.

        Return an empty string for a device, which polls for the result.
        """
        allowed = tuple(s for s in request.scopes if s in scopes or s == OFFLINE_ACCESS)
        if not set(allowed) - {OFFLINE_ACCESS}:
            raise invalid_request("Allow at least one permission.")
        if space not in account.spaces:
            raise invalid_request("Choose one of your spaces.")
        resource = request.audience.resource
        subject = request.audience.subject or subject.strip()
        if not resource.subject:
            subject = ""
        elif not is_valid_subject(subject):
            shown = f"its id, as 'commonplace {resource.subject} list' shows it."
            raise invalid_request(f"Say which {resource.subject}: {shown}")
        elif self._has_subject and not await self.run_in_thread(
            self._has_subject, resource.dialect, space, subject
        ):
            raise invalid_request(
                f"There is no such {resource.subject} in that space."
                f" Give its id, as 'commonplace {resource.subject} list' shows it."
            )
        consent = Consent(
            client=request.asked.client,
            user=account.name,
            space=space,
            subject=subject,
            audience=request.audience,
            scopes=allowed,
            redirect=request.asked.redirect.uri if request.asked.redirect else "",
            challenge=request.challenge,
        )
        async with self.audit_entry(
            "allow", user=account.name, client=consent.client.id, space=space, being=subject,
            resource=request.audience.url, scopes=list(allowed),
        ):  # fmt: skip
            if request.asked.redirect is None:
                if not await self.run_in_thread(self.devices.allow, request.asked.query, consent):
                    raise PageError("expired_token", "The device's request has ended.")
                return ""
            code = await self.run_in_thread(self.families.begin, consent)
        return self.redirect_url(request.asked, {"code": code})

    async def deny_device(self, request: Request, user: str, address: str) -> None:
        """Deny a device request."""
        async with self.audit_entry(
            "deny", user=user, client=request.asked.client.id, address=address,
            resource=request.audience.url,
        ):  # fmt: skip
            await self.run_in_thread(self.devices.deny, request.asked.query)

    def redirect_url(self, asked: ClientRequest, answer: Mapping[str, str]) -> str:
        """Return the redirect URI with the response, the client's state and this server's
        issuer."""
        assert asked.redirect is not None
        parameters = dict(answer)
        if asked.state is not None:
            parameters["state"] = asked.state
        return asked.redirect.uri_with({**parameters, "iss": self.issuer})

    # Devices, tokens and clients

    async def start_device(
        self, parameters: Mapping[str, str], authorization: str | None, address: str
    ) -> DeviceCodes:
        """Begin a device request."""
        client_id = await self.authenticate_client(parameters, authorization)
        client = await self._find_client(client_id, address)
        if client is None or not client.uses_devices:
            raise OAuthError(
                "unauthorized_client",
                f"The client has not registered for the grant type {DEVICE_CODE}.",
            )
        audience = self._device_audience(parameters.get("resource"))
        scopes = _requested_scopes(audience, parameters.get("scope", ""))
        self.check_rate("device", address)
        async with self.audit_entry(
            "device", client=client.id, address=address, resource=audience.url, scopes=list(scopes)
        ):
            asked = DeviceRequest(client.id, audience.url, scopes)
            return await self.run_in_thread(self.devices.begin, asked)

    def _device_audience(self, resource: str | None) -> Audience:
        audience = (
            self.resources.default_for_devices
            if resource is None
            else self.resources.find_by_url(resource)
        )
        if audience is None:
            raise OAuthError("invalid_target", "There is no such resource here.")
        return audience

    @property
    def device_page(self) -> str:
        """The URL where a person enters a device's code."""
        return f"{self.issuer}/oauth/device"

    async def answer_token_request(
        self, parameters: Mapping[str, str], authorization: str | None, address: str = ""
    ) -> IssuedTokens:
        """Handle a request at the token endpoint."""
        asked = {name: parameters.get(name, "") for name in ("grant_type", "resource", "scope")}
        client = parameters.get("client_id", "")
        async with self.audit_entry("token", client=client, address=address, **asked):
            return await self._issue_tokens(parameters, authorization)

    async def _issue_tokens(
        self, parameters: Mapping[str, str], authorization: str | None
    ) -> IssuedTokens:
        client = await self.authenticate_client(parameters, authorization)
        kind = parameters.get("grant_type")
        if kind is None:
            raise invalid_request("grant_type is missing.")
        if kind not in GRANT_TYPES:
            raise OAuthError(
                "unsupported_grant_type",
                f"grant_type must be one of {', '.join(GRANT_TYPES)}.",
            )
        resource = parameters.get("resource")
        if kind == "authorization_code":
            return await self.run_in_thread(
                self.families.redeem, _required_parameter(parameters, "code"), client=client,
                redirect=_required_parameter(parameters, "redirect_uri"),
                verifier=_required_parameter(parameters, "code_verifier"), resource=resource,
            )  # fmt: skip
        if kind == DEVICE_CODE:
            code = _required_parameter(parameters, "device_code")
            return await self.run_in_thread(
                self.devices.redeem, code, client=client, resource=resource
            )
        scope = parameters.get("scope")
        return await self.run_in_thread(
            self.families.refresh, _required_parameter(parameters, "refresh_token"), client=client,
            scopes=None if scope is None else scope.split(), resource=resource,
        )  # fmt: skip

    async def revoke(self, parameters: Mapping[str, str], authorization: str | None) -> None:
        """Revoke a token of the client; do not revoke tokens of other clients."""
        async with self.audit_entry("revoke", client=parameters.get("client_id", "")):
            client = await self.authenticate_client(parameters, authorization)
            token = _required_parameter(parameters, "token")
            await self.run_in_thread(self.families.revoke, token, client=client)

    async def authenticate_client(
        self, parameters: Mapping[str, str], authorization: str | None
    ) -> str:
        """Authenticate the client; return its id."""
        basic = _parse_basic(authorization) if authorization is not None else None
        if basic is not None:
            client_id, secret = basic
            if "client_secret" in parameters or parameters.get("client_id", client_id) != client_id:
                raise invalid_request("The client must use one authentication method only.")
            method = "client_secret_basic"
        else:
            client_id, secret = (
                _required_parameter(parameters, "client_id"),
                parameters.get("client_secret", ""),
            )
            method = "client_secret_post" if secret else "none"
        if is_document_url(client_id):
            # The metadata document was checked before the consent; such a client has no secret.
            if method != "none":
                raise invalid_client("A client whose id is a URL must not send a secret.")
            if len(client_id) > CLIENT_ID_CHARS:
                raise invalid_client("The client_id is too long.")
            return client_id
        client = await self.run_in_thread(self.clients.find, client_id[:CLIENT_ID_CHARS])
        if client is None:
            raise invalid_client("The client is not registered here.")
        if client.auth_method == "none":
            if method != "none":
                raise invalid_client("The client has no secret, and must not send one.")
        # Both client_secret_post and client_secret_basic are accepted.
        elif method == "none" or not client.has_secret(secret):
            raise invalid_client("The client's secret is not right.")
        return client.id

    async def register(self, body: Mapping[str, Any], address: str) -> NewClient:
        """Register a new client."""
        described = parse_registration(body)
        self.check_rate("register", address)
        async with self.audit_entry("register", address=address, name=described.name):
            return await self.run_in_thread(self.clients.register, described)

    @property
    def uses_https(self) -> bool:
        """Whether the server is reached over https, so that cookies can be `Secure`."""
        return self.issuer.startswith("https://")


def new_cookie() -> str:
    """Return the value of a new cookie for a person who is not logged in."""
    return secrets.token_urlsafe(32)


def form_token(cookie: str, step: str, query: str) -> str:
    """Return the CSRF token of a form, bound to the cookie, the page and the request."""
    return hmac.digest(cookie.encode(), f"{step}\n{query}".encode(), "sha256").hex()


def _requested_scopes(audience: Audience, asked: str) -> tuple[str, ...]:
    """Return the requested scopes in the resource's order; all scopes if none is requested."""
    names = set(asked.split(" ")) - {""}
    known = audience.resource.permissions
    unknown = names - known.keys() - {OFFLINE_ACCESS} - audience.resource.ignored
    if unknown or (names & audience.resource.ignored and not names & known.keys()):
        raise OAuthError("invalid_scope", f"The scopes of this resource are {' '.join(known)}.")
    chosen = [name for name in known if name in names] or list(known)
    offline = OFFLINE_ACCESS in names or (not names and audience.resource.needs_offline_access)
    return (*chosen, OFFLINE_ACCESS) if offline else tuple(chosen)


def _required_parameter(parameters: Mapping[str, str], name: str) -> str:
    value = parameters.get(name)
    if value is None:
        raise invalid_request(f"{name} is missing.")
    return value


def _parse_basic(authorization: str) -> tuple[str, str]:
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() != "basic":
        raise invalid_client("The client must authenticate with Basic, or in the body.")
    try:
        name, found, secret = base64.b64decode(given, validate=True).decode("ascii").partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise invalid_client("The Authorization header is not valid.") from None
    if not found:
        raise invalid_client("The Authorization header is not valid.")
    return unquote_plus(name), unquote_plus(secret)


def _checked_issuer(issuer: str) -> str:
    parts = urlsplit(issuer)
    if issuer != f"{parts.scheme}://{parts.netloc}" or "@" in issuer or not parts.hostname:
        raise ValueError("the issuer must be an origin, without a path or a slash at its end")
    host = parts.netloc.rpartition(":")[0] if parts.port else parts.netloc
    if parts.scheme != "https" and not (parts.scheme == "http" and host in LOOPBACK_HOSTS):
        raise ValueError("the issuer must be https, or http on this machine")
    return issuer
