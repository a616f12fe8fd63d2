"""Send push notifications to a user's devices: Web Push to registered browsers, and ntfy.

A browser registers the URL to which this server sends, so the URL must be public and https. Its
name is resolved once, and the request goes to the resolved and checked address.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from commonplace import DISTRIBUTION
from commonplace.dialects.contract import Call
from commonplace.dialects.orchestrator.answering import Answer, Unsuccessful, operation, tool
from commonplace.dialects.orchestrator.workspaces import records
from commonplace.errors import CommonplaceError, Conflict, InvalidInput, NotFound
from commonplace.platform.exclusive import exclusive

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.library import Library
    from commonplace.engine.model import Memory
    from commonplace.platform.fetching import Fetcher

SUBSCRIPTION_KIND, NOTIFICATION_KIND = "push_subscription", "push_notification"
SECONDS = 10.0
TTL_SECONDS = 86_400
PAYLOAD_BYTES = 3_900  # maximum payload of an encrypted record of 4,096 bytes
ANSWER_BYTES = 65_536
SECRET_BYTES = 16
MOST_SUBSCRIPTIONS = 20
NOT_CONFIGURED = "push notifications not configured on this server"
NO_DEVICE = "no device is registered: open the app and allow notifications"
GONE_STATUSES = (404, 410)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pusher:
    """The operator's configuration of push notifications."""

    vapid_key: str = ""
    vapid_subject: str = "mailto:admin@localhost"
    ntfy_url: str = ""
    ntfy_token: str = ""
    local: bool = False
    """Whether a browser may register a local address, for tests."""
    fetcher: Fetcher | None = None
    """Sends requests to push services; None for the default fetcher."""

    def __repr__(self) -> str:
        return f"Pusher(web push: {bool(self.vapid_key)}, ntfy: {bool(self.ntfy_url)})"


_pushers: WeakKeyDictionary[Library, Pusher] = WeakKeyDictionary()


def pusher_of(library: Library) -> Pusher | None:
    """Return the pusher of a library's workspaces, or None if notifications are not configured."""
    return _pushers.get(library)


def set_pusher(library: Library, pusher: Pusher | None) -> None:
    """Set the pusher of a library's workspaces."""
    if pusher is None:
        _pushers.pop(library, None)
    else:
        _pushers[library] = pusher


def configured_pusher(environ: Mapping[str, str]) -> Pusher | None:
    """Return the pusher of the settings; log and ignore invalid settings."""
    key, ntfy = environ.get("COMMONPLACE_VAPID_KEY", ""), environ.get("COMMONPLACE_NTFY_URL", "")
    subject = environ.get("COMMONPLACE_VAPID_SUBJECT") or "mailto:admin@localhost"
    if key and (why := _vapid_problem(key, subject)):
        log.warning("Web Push is disabled: %s", why)
        key = ""
    if ntfy and not _is_topic(ntfy):
        log.warning(
            "ntfy is disabled: COMMONPLACE_NTFY_URL must be a topic's address,"
            " such as https://ntfy.sh/my-topic"
        )
        ntfy = ""
    if not key and not ntfy:
        return None
    return Pusher(
        vapid_key=key,
        vapid_subject=subject,
        ntfy_url=ntfy,
        ntfy_token=environ.get("COMMONPLACE_NTFY_TOKEN", ""),
        local=environ.get("COMMONPLACE_PUSH_LOCAL") == "1",
    )


def _vapid_problem(key: str, subject: str) -> str:
    """Return the reason why a VAPID key cannot be used, or an empty string."""
    if find_spec("pywebpush") is None:
        return f"it needs pywebpush (pip install '{DISTRIBUTION}[push]')"
    from py_vapid import Vapid02, VapidException

    try:
        signing = Vapid02.from_string(key)
    except ValueError:
        return "COMMONPLACE_VAPID_KEY must be a private P-256 key as base64url"
    try:
        signing.sign({"sub": subject, "aud": "https://push.example"})
    except VapidException:
        return "COMMONPLACE_VAPID_SUBJECT must be a mailto: or https: address"
    return ""


def _is_topic(address: str) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname and parts.path.strip("/"))


# Subscriptions


@operation("read", {"public_key": ""})
def show_push_key(call: Call) -> Answer:
    """Return the public key with which a browser subscribes."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pusher = pusher_of(call.memory.library)
    if pusher is None or not pusher.vapid_key:
        raise NotFound(NOT_CONFIGURED)
    from py_vapid import Vapid02

    key = Vapid02.from_string(pusher.vapid_key).public_key
    point = key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return {"public_key": base64.urlsafe_b64encode(point).decode().rstrip("=")}


@operation("write", {})
def register_subscription(
    call: Call,
    *,
    endpoint: str,
    keys: Annotated[Any, {"type": "object"}],
    expirationTime: Annotated[Any, {"type": ["number", "null"]}] = None,
) -> Answer:
    """Register a browser of the caller by its PushSubscription, or update its record."""
    del expirationTime
    memory, user = call.memory, call.caller.user
    pusher = pusher_of(memory.library)
    if pusher is None or not pusher.vapid_key:
        raise InvalidInput(NOT_CONFIGURED)
    check_address(endpoint, local=pusher.local)
    if not all(isinstance(keys.get(name), str) and keys[name] for name in ("p256dh", "auth")):
        raise InvalidInput("keys must have p256dh and auth", field="keys")
    _check_keys(keys["p256dh"], keys["auth"])
    stored = {"p256dh": keys["p256dh"], "auth": keys["auth"]}
    with exclusive(memory, "register subscription"):
        mine = subscriptions(memory, user)
        for record in mine:
            if record.attrs["endpoint"] == endpoint:
                return {"id": records.change(memory, record, keys=stored).id}
        if len(mine) >= MOST_SUBSCRIPTIONS:
            raise InvalidInput(f"a user may register at most {MOST_SUBSCRIPTIONS} devices")
        attrs = {"user": user, "endpoint": endpoint, "keys": stored, "gone": False}
        return {
            "id": records.add(memory, SUBSCRIPTION_KIND, None, f"a browser of {user}", attrs).id
        }


@operation("write", {"forgotten": False})
def forget_subscription(call: Call, *, endpoint: str) -> Answer:
    """Delete the subscription of a browser of the caller."""
    if not endpoint:
        raise InvalidInput("endpoint is required")
    mine = subscriptions(call.memory, call.caller.user)
    found = [each for each in mine if each.attrs["endpoint"] == endpoint]
    for record in found:
        records.change(call.memory, record, gone=True)
    return {"forgotten": bool(found)}


def _check_keys(point: str, secret: str) -> None:
    """Refuse keys with which messages cannot be encrypted."""
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), _decode_base64url(point))
    except ValueError:
        raise InvalidInput("p256dh must be a point of P-256 as base64url", field="keys") from None
    try:
        sixteen = len(_decode_base64url(secret)) == SECRET_BYTES
    except ValueError:
        sixteen = False
    if not sixteen:
        raise InvalidInput(f"auth must be {SECRET_BYTES} bytes as base64url", field="keys")


def _decode_base64url(text: str) -> bytes:
    return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), b"-_", True)


def subscriptions(memory: Commonplace, user: str) -> list[Memory]:
    """Return the subscriptions of a user, without deleted and expired ones."""
    return [
        record
        for record in records.listing(memory, SUBSCRIPTION_KIND)
        if record.attrs["user"] == user and not record.attrs["gone"]
    ]


def check_address(endpoint: str, *, local: bool) -> None:
    """Refuse a URL that is not public and https; host names are resolved when sending."""
    from commonplace.platform import fetching

    if local and endpoint.startswith("http://"):
        return
    if not endpoint.startswith("https://"):
        raise InvalidInput("endpoint must be an https address", field="endpoint")
    try:
        target = fetching.parse_target(endpoint)
    except fetching.FetchRefused:
        raise InvalidInput("endpoint must be an address of a push service", field="endpoint") from (
            None
        )
    if target.address is not None and not fetching.is_public(target.address):
        raise InvalidInput("endpoint must be a public address", field="endpoint")


# Sending


@tool("write", {"sent": False, "info": ""}, open_world=True, stepwise=True)
def send_push_notification(
    call: Call,
    *,
    title: Annotated[str, "A few words."],
    message: Annotated[str, "What to tell the user."],
) -> Answer:
    """Send a push notification to the user's mobile device or browser."""
    sent, info = send_notification(call.memory, call.caller.user, title, message, call.retry_key)
    return {"sent": sent, "info": info}


def send_notification(
    memory: Commonplace, user: str, title: str, message: str, key: str = ""
) -> tuple[bool, str]:
    """Send a notification; return (whether a service accepted it, a message for the caller).

    No lock is held while sending. With an idempotency key, the notification is sent at most once,
    because after a crash it is unknown whether it has arrived.
    """
    pusher = pusher_of(memory.library)
    if pusher is None:
        raise InvalidInput(NOT_CONFIGURED)
    payload = json.dumps({"title": title, "body": message}, ensure_ascii=False).encode()
    if len(payload) > PAYLOAD_BYTES:
        raise InvalidInput(f"title and message exceed {PAYLOAD_BYTES} bytes")
    browsers = subscriptions(memory, user) if pusher.vapid_key else []
    if not browsers and not pusher.ntfy_url:
        return False, NO_DEVICE
    sending = _begin_sending(memory, key) if key else None
    sent = sum(_send_to_browser(memory, pusher, record, payload) for record in browsers)
    sent += bool(pusher.ntfy_url) and _send_to_ntfy(pusher, title, message)
    if not sent:
        if sending is not None:
            records.change(memory, sending, status="failed")
        raise Unsuccessful("no push service accepted the notification")
    return True, f"notification sent to {sent} device{'s' if sent > 1 else ''}"


def _begin_sending(memory: Commonplace, key: str) -> Memory:
    """Store or reuse the record of a notification, with the status `sending`, and return it.

    Raise Conflict if an earlier attempt may have sent the notification.
    """
    ref = f"push:{key}"
    with exclusive(memory, "send push notification"):
        existing = records.find(memory, ref, NOTIFICATION_KIND)
        if existing is None:
            return records.add(
                memory, NOTIFICATION_KIND, ref, "a notification", {"status": "sending"}
            )
        if existing.attrs["status"] == "failed":
            return records.change(memory, existing, status="sending")
    raise Conflict("the notification may have been sent before a crash, so it is not sent again")


def _send_to_browser(memory: Commonplace, pusher: Pusher, record: Memory, payload: bytes) -> bool:
    import httpx
    from py_vapid import Vapid02
    from pywebpush import WebPusher

    endpoint = record.attrs["endpoint"]
    try:
        subscription = {"endpoint": endpoint, "keys": dict(record.attrs["keys"])}
        encrypted = WebPusher(subscription).encode(payload, content_encoding="aes128gcm")
        parts = urlsplit(endpoint)
        claims = {"sub": pusher.vapid_subject, "aud": f"{parts.scheme}://{parts.netloc}"}
        signed = Vapid02.from_string(pusher.vapid_key).sign(claims)
        headers = {
            **signed,
            "content-encoding": "aes128gcm",
            "content-type": "application/octet-stream",
            "ttl": str(TTL_SECONDS),
        }
        status = _post_to_push_service(pusher, endpoint, encrypted["body"], headers)
    except (CommonplaceError, httpx.HTTPError, TimeoutError, ValueError) as error:
        log.warning("a notification was not sent", extra={"why": type(error).__name__})
        return False
    if status in GONE_STATUSES:
        records.change(memory, record, gone=True)
    return 200 <= status < 300


def _post_to_push_service(
    pusher: Pusher, endpoint: str, body: bytes, headers: Mapping[str, str]
) -> int:
    """Send a request to a push service; return the response status."""
    from commonplace.platform.fetching import Fetcher

    if pusher.local and endpoint.startswith("http://"):
        return asyncio.run(_post_directly(endpoint, body, headers))
    sending = (pusher.fetcher or Fetcher()).fetch(
        endpoint, method="POST", headers=headers, content=body, most_bytes=ANSWER_BYTES,
        seconds=SECONDS, redirects=0,
    )  # fmt: skip
    return asyncio.run(sending).status


def _send_to_ntfy(pusher: Pusher, title: str, message: str) -> bool:
    import httpx

    base, _, topic = pusher.ntfy_url.rstrip("/").rpartition("/")
    headers = {"content-type": "application/json"}
    if pusher.ntfy_token:
        headers["authorization"] = f"Bearer {pusher.ntfy_token}"
    body = json.dumps({"topic": topic, "title": title, "message": message}).encode()
    try:
        return 200 <= asyncio.run(_post_directly(base, body, headers)) < 300
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        log.warning("a notification was not sent", extra={"why": type(error).__name__})
        return False


async def _post_directly(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    """Send a request to an address of the operator; return the response status."""
    import httpx

    async with (
        asyncio.timeout(SECONDS),
        httpx.AsyncClient(timeout=SECONDS) as client,
        client.stream("POST", url, content=body, headers=headers) as answer,
    ):
        return answer.status_code
