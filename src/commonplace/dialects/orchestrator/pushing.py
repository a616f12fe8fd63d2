"""Notifications to a person's devices: Web Push to browsers that registered, and ntfy.

What a browser registers is an address that we then send to, so it must be a public one over https;
the name in it is looked up once, and what is sent goes to the address that was found and checked.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from commonplace import DISTRIBUTION
from commonplace.dialects.orchestrator.answering import Unsuccessful
from commonplace.dialects.orchestrator.shapes import records
from commonplace.errors import CommonplaceError, Conflict, InvalidInput
from commonplace.platform.exclusive import exclusive

if TYPE_CHECKING:
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.library import Library
    from commonplace.engine.model import Memory
    from commonplace.platform.fetching import Fetcher

KIND, SENDING = "push_subscription", "push_notification"
SECONDS = 10.0
LIVES_SECONDS = 86_400
PAYLOAD_BYTES = 3_900  # what fits into the 4,096 of an encrypted record
ANSWER_BYTES = 65_536
SECRET_BYTES = 16
MOST_SUBSCRIPTIONS = 20
NOT_CONFIGURED = "push notifications not configured on this server"
NO_DEVICE = "no device is registered: open the app and allow notifications"
GONE = (404, 410)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pusher:
    """How notifications are sent, as the operator has set it."""

    vapid_key: str = ""
    vapid_subject: str = "mailto:admin@localhost"
    ntfy_url: str = ""
    ntfy_token: str = ""
    local: bool = False
    """Whether a browser may register an address that is not public; for trying it out."""
    fetcher: Fetcher | None = None
    """What reaches the addresses of browsers; the usual one if not given."""

    def __repr__(self) -> str:
        return f"Pusher(web push: {bool(self.vapid_key)}, ntfy: {bool(self.ntfy_url)})"


_pushers: WeakKeyDictionary[Library, Pusher] = WeakKeyDictionary()


def of(library: Library) -> Pusher | None:
    """How notifications of a library's workspaces are sent; None if they are not."""
    return _pushers.get(library)


def put(library: Library, pusher: Pusher | None) -> None:
    """Let notifications of a library's workspaces be sent."""
    if pusher is None:
        _pushers.pop(library, None)
    else:
        _pushers[library] = pusher


def configured(environ: Mapping[str, str]) -> Pusher | None:
    """What the operator has set; None for nothing. What cannot work is told and left out."""
    key, ntfy = environ.get("COMMONPLACE_VAPID_KEY", ""), environ.get("COMMONPLACE_NTFY_URL", "")
    subject = environ.get("COMMONPLACE_VAPID_SUBJECT") or "mailto:admin@localhost"
    if key and (why := _unusable(key, subject)):
        log.warning("there is no Web Push: %s", why)
        key = ""
    if ntfy and not _is_topic(ntfy):
        log.warning(
            "there is no ntfy: COMMONPLACE_NTFY_URL must be a topic's address,"
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


def _unusable(key: str, subject: str) -> str:
    """Why nothing can be signed with a key; empty if it can."""
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


def register(memory: Commonplace, user: str, endpoint: str, keys: Mapping[str, Any]) -> Memory:
    """Remember a browser of a user's; the same one again is the one already there."""
    pusher = of(memory.library)
    if pusher is None or not pusher.vapid_key:
        raise InvalidInput(NOT_CONFIGURED)
    check_address(endpoint, local=pusher.local)
    if not all(isinstance(keys.get(name), str) and keys[name] for name in ("p256dh", "auth")):
        raise InvalidInput("keys must have p256dh and auth", field="keys")
    _check_keys(keys["p256dh"], keys["auth"])
    kept = {"p256dh": keys["p256dh"], "auth": keys["auth"]}
    with exclusive(memory, "register subscription"):
        mine = subscriptions(memory, user)
        for record in mine:
            if record.attrs["endpoint"] == endpoint:
                return records.change(memory, record, keys=kept)
        if len(mine) >= MOST_SUBSCRIPTIONS:
            raise InvalidInput(f"a user may register {MOST_SUBSCRIPTIONS} devices")
        attrs = {"user": user, "endpoint": endpoint, "keys": kept, "gone": False}
        return records.add(memory, KIND, None, f"a browser of {user}", attrs)


def _check_keys(point: str, secret: str) -> None:
    """Refuse keys that nothing could be encrypted with."""
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), _decoded(point))
    except ValueError:
        raise InvalidInput("p256dh must be a point of P-256 as base64url", field="keys") from None
    try:
        sixteen = len(_decoded(secret)) == SECRET_BYTES
    except ValueError:
        sixteen = False
    if not sixteen:
        raise InvalidInput(f"auth must be {SECRET_BYTES} bytes as base64url", field="keys")


def _decoded(text: str) -> bytes:
    import base64

    return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), b"-_", True)


def subscriptions(memory: Commonplace, user: str) -> list[Memory]:
    """The browsers of a user that can still be reached."""
    return [
        record
        for record in records.listing(memory, KIND)
        if record.attrs["user"] == user and not record.attrs["gone"]
    ]


def forget(memory: Commonplace, user: str, endpoint: str) -> bool:
    """No longer send to a browser; whether it was known."""
    found = [each for each in subscriptions(memory, user) if each.attrs["endpoint"] == endpoint]
    for record in found:
        records.change(memory, record, gone=True)
    return bool(found)


def check_address(endpoint: str, *, local: bool) -> None:
    """Refuse an address that is not a public one over https; names are looked up when sending."""
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


def send(
    memory: Commonplace, user: str, title: str, message: str, key: str = ""
) -> tuple[bool, str]:
    """(whether it reached a service, what to say). Holds no lock while it sends.

    Under a key it is sent once at most: whoever was cut off while sending cannot know whether it
    arrived, and a person is not told the same thing twice.
    """
    pusher = of(memory.library)
    if pusher is None:
        raise InvalidInput(NOT_CONFIGURED)
    payload = json.dumps({"title": title, "body": message}, ensure_ascii=False).encode()
    if len(payload) > PAYLOAD_BYTES:
        raise InvalidInput(f"title and message exceed {PAYLOAD_BYTES} bytes")
    browsers = subscriptions(memory, user) if pusher.vapid_key else []
    if not browsers and not pusher.ntfy_url:
        return False, NO_DEVICE
    sending = _begun(memory, key) if key else None
    sent = sum(_to_browser(memory, pusher, record, payload) for record in browsers)
    sent += bool(pusher.ntfy_url) and _to_ntfy(pusher, title, message)
    if not sent:
        if sending is not None:
            records.change(memory, sending, status="failed")
        raise Unsuccessful("no push service accepted the notification")
    return True, f"notification sent to {sent} device{'s' if sent > 1 else ''}"


def _begun(memory: Commonplace, key: str) -> Memory:
    """The note that a notification is on its way; one that is there already is not sent again."""
    ref = f"push:{key}"
    with exclusive(memory, "send push notification"):
        there = records.find(memory, ref, SENDING)
        if there is None:
            return records.add(memory, SENDING, ref, "a notification", {"status": "sending"})
        if there.attrs["status"] == "failed":
            return records.change(memory, there, status="sending")
    raise Conflict("the notification was on its way when it was cut off, and is not sent twice")


def _to_browser(memory: Commonplace, pusher: Pusher, record: Memory, payload: bytes) -> bool:
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
            "ttl": str(LIVES_SECONDS),
        }
        status = _post(pusher, endpoint, encrypted["body"], headers)
    except (CommonplaceError, httpx.HTTPError, TimeoutError, ValueError) as error:
        log.warning("a notification was not sent", extra={"why": type(error).__name__})
        return False
    if status in GONE:
        records.change(memory, record, gone=True)
    return 200 <= status < 300


def _post(pusher: Pusher, endpoint: str, body: bytes, headers: Mapping[str, str]) -> int:
    """The status that a push service answers with."""
    from commonplace.platform.fetching import Fetcher

    if pusher.local and endpoint.startswith("http://"):
        return asyncio.run(_status(endpoint, body, headers))
    sending = (pusher.fetcher or Fetcher()).fetch(
        endpoint, method="POST", headers=headers, content=body, most_bytes=ANSWER_BYTES,
        seconds=SECONDS, redirects=0,
    )  # fmt: skip
    return asyncio.run(sending).status


def _to_ntfy(pusher: Pusher, title: str, message: str) -> bool:
    import httpx

    base, _, topic = pusher.ntfy_url.rstrip("/").rpartition("/")
    headers = {"content-type": "application/json"}
    if pusher.ntfy_token:
        headers["authorization"] = f"Bearer {pusher.ntfy_token}"
    body = json.dumps({"topic": topic, "title": title, "message": message}).encode()
    try:
        return 200 <= asyncio.run(_status(base, body, headers)) < 300
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        log.warning("a notification was not sent", extra={"why": type(error).__name__})
        return False


async def _status(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    """What an address that the operator has set answers with; nothing else of it is read."""
    import httpx

    async with (
        asyncio.timeout(SECONDS),
        httpx.AsyncClient(timeout=SECONDS) as client,
        client.stream("POST", url, content=body, headers=headers) as answer,
    ):
        return answer.status_code


def public_key(pusher: Pusher) -> str:
    """What a browser needs to subscribe."""
    import base64

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    from py_vapid import Vapid02

    key = Vapid02.from_string(pusher.vapid_key).public_key
    point = key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return base64.urlsafe_b64encode(point).decode().rstrip("=")
