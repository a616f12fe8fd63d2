"""Push: Web Push that a device on loopback decrypts, and ntfy."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import http_ece
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from commonplace.dialects.contract import RequestInfo
from commonplace.dialects.orchestrator import pushing
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.platform.fetching import Fetcher
from conftest import wait_until
from server.oauth.tls import site

from .conftest import Workspace


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


class Service:
    """A push service and the device behind it, which can read what arrives."""

    def __init__(self) -> None:
        self.status = 201
        self.body: Iterator[bytes] = iter(())
        """What it answers beside the status, for as long as somebody listens."""
        self.sent, self.ended = 0, False
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.auth = b"sixteen bytes ok"
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {k.lower(): v for k, v in self.headers.items()}
                service.requests.append((self.path, headers, body))
                self.send_response(service.status)
                self.end_headers()
                with contextlib.suppress(ConnectionError):
                    for part in service.body:
                        self.wfile.write(part)
                        service.sent += len(part)
                service.ended = True

            def log_message(self, *_: Any) -> None:
                """Silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def subscription(self, name: str = "device") -> dict[str, Any]:
        keys = {"p256dh": encoded(point(self.key.public_key())), "auth": encoded(self.auth)}
        return {"endpoint": f"{self.url}/{name}", "keys": keys, "expirationTime": None}

    def read(self, body: bytes) -> dict[str, str]:
        plain = http_ece.decrypt(
            body, private_key=self.key, auth_secret=self.auth, version="aes128gcm"
        )
        told: dict[str, str] = json.loads(plain)
        return told


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    threading.Thread(target=made.server.serve_forever, daemon=True).start()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def vapid() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def private(key: ec.EllipticCurvePrivateKey) -> str:
    return encoded(key.private_numbers().private_value.to_bytes(32, "big"))


@pytest.fixture
def pushed(workspace: Workspace, vapid: ec.EllipticCurvePrivateKey) -> Workspace:
    environ = {"COMMONPLACE_VAPID_KEY": private(vapid), "COMMONPLACE_PUSH_LOCAL": "1",
               "COMMONPLACE_VAPID_SUBJECT": "mailto:ops@example.org"}  # fmt: skip
    pushing.set_pusher(workspace.library, pushing.configured_pusher(environ))
    return workspace


def send(workspace: Workspace, **more: str) -> dict[str, Any]:
    given = {"title": "Hello", "message": "The harbour closes – soon.", **more}
    return workspace.value("send_push_notification", **given)


def test_without_configuration_it_says_so(workspace: Workspace) -> None:
    assert send(workspace) == {
        "sent": False, "info": "push notifications not configured on this server",
    }  # fmt: skip
    with pytest.raises(NotFound):
        workspace.do("show_push_key")
    with pytest.raises(InvalidInput):
        workspace.do("register_subscription", endpoint="https://example.org", keys={})


def test_without_a_device_it_says_what_to_do(pushed: Workspace) -> None:
    answer = send(pushed)
    assert answer["sent"] is False
    assert "open the app" in answer["info"]
    assert pushed.value("send_push_notification", title="x")["info"] == (
        "title and message are required"
    )


def test_a_device_can_decrypt_what_it_got(
    pushed: Workspace, service: Service, vapid: ec.EllipticCurvePrivateKey
) -> None:
    assert pushed.do("show_push_key") == {"public_key": encoded(point(vapid.public_key()))}
    first = pushed.do("register_subscription", **service.subscription())
    assert pushed.do("register_subscription", **service.subscription()) == first
    assert send(pushed) == {"sent": True, "info": "notification sent to 1 device"}
    ((path, headers, body),) = service.requests
    assert path == "/device"
    assert service.read(body) == {"title": "Hello", "body": "The harbour closes – soon."}
    assert b"harbour" not in body
    assert (headers["content-encoding"], headers["ttl"]) == ("aes128gcm", "86400")
    scheme, _, rest = headers["authorization"].partition(" ")
    parts = dict(part.strip().split("=", 1) for part in rest.split(","))
    claims = jwt.decode(parts["t"], vapid.public_key(), algorithms=["ES256"], audience=service.url)
    assert scheme == "vapid"
    assert claims["sub"] == "mailto:ops@example.org"
    assert parts["k"] == encoded(point(vapid.public_key()))


def test_every_device_of_the_user_gets_it_and_nobody_elses(
    pushed: Workspace, service: Service
) -> None:
    for name in ("phone", "laptop"):
        pushed.do("register_subscription", **service.subscription(name))
    other = Workspace(pushed.gate, pushed.library, pushed.at("other").caller)
    other.do("register_subscription", **service.subscription("theirs"))
    assert send(pushed)["info"] == "notification sent to 2 devices"
    assert sorted(path for path, _, _ in service.requests) == ["/laptop", "/phone"]
    forgotten = pushed.do("forget_subscription", endpoint=f"{service.url}/phone")
    assert forgotten == {"forgotten": True}
    assert send(pushed)["info"] == "notification sent to 1 device"


def test_a_device_that_is_gone_is_not_asked_again(pushed: Workspace, service: Service) -> None:
    pushed.do("register_subscription", **service.subscription())
    service.status = 500
    assert send(pushed)["info"] == "no push service accepted the notification"
    service.status = 410
    assert send(pushed)["sent"] is False
    service.status = 201
    assert "open the app" in send(pushed)["info"]
    assert len(service.requests) == 2


def test_a_service_that_cannot_be_reached_is_told(pushed: Workspace, service: Service) -> None:
    gone = {**service.subscription(), "endpoint": "http://127.0.0.1:9/nobody"}
    pushed.do("register_subscription", **gone)
    assert send(pushed)["sent"] is False


@pytest.mark.parametrize(
    "endpoint",
    ["http://example.org/x", "https://127.0.0.1/x", "https://localhost/x", "https://10.0.0.1/x",
     "https://[::1]/x", "https://169.254.169.254/x", "ftp://example.org", "nonsense",
     "https://user@127.0.0.1/x"],
)  # fmt: skip
def test_only_public_addresses_over_https_are_registered(endpoint: str) -> None:
    with pytest.raises(InvalidInput):
        pushing.check_address(endpoint, local=False)


@pytest.mark.anyio
async def test_it_goes_to_the_address_that_was_checked(
    tmp_path: Path, workspace: Workspace, service: Service, vapid: ec.EllipticCurvePrivateKey
) -> None:
    """A name that leads elsewhere when it is looked up again leads nowhere."""
    looked_up: list[str] = []
    inside = "169.254.169.254"

    async def rebinding(host: str, port: int) -> list[str]:
        del port
        looked_up.append(host)
        return ["127.0.0.1"] if len(looked_up) == 1 else [inside]

    async with site(tmp_path, "push.example") as there:
        there.put("/device", b"", status="201 Created")
        there.put("/moved", b"", status="307 Temporary Redirect", location="/device")
        fetcher = Fetcher(allow=[("127.0.0.1", there.port)], resolver=rebinding, tls=there.tls)
        pushing.set_pusher(
            workspace.library, pushing.Pusher(vapid_key=private(vapid), fetcher=fetcher)
        )
        endpoint = f"https://push.example:{there.port}/device"
        given = {**service.subscription(), "endpoint": endpoint}
        workspace.do("register_subscription", **given)
        assert looked_up == []
        answer = await asyncio.to_thread(send, workspace)
        assert answer == {"sent": True, "info": "notification sent to 1 device"}
        assert (looked_up, there.hits) == (["push.example"], ["/device"])
        assert b"ttl: 86400" in there.requests[0].lower()
        assert (await asyncio.to_thread(send, workspace))["sent"] is False
        assert there.hits == ["/device"]
        looked_up.clear()
        workspace.do("forget_subscription", endpoint=endpoint)
        moved = {**given, "endpoint": endpoint.replace("device", "moved")}
        workspace.do("register_subscription", **moved)
        assert (await asyncio.to_thread(send, workspace))["sent"] is False
        assert there.hits == ["/device", "/moved"]


def test_under_a_key_it_is_sent_once_at_most(pushed: Workspace, service: Service) -> None:
    pushed.do("register_subscription", **service.subscription())
    keyed = replace(pushed, request_info=RequestInfo(idempotency_key="k"))
    service.status = 500
    assert send(keyed) == {"sent": False, "info": "no push service accepted the notification"}
    service.status = 201
    sent = {"sent": True, "info": "notification sent to 1 device"}
    assert [send(keyed), send(keyed)] == [sent, sent]  # the second is the answer of the first
    assert len(service.requests) == 2
    title, message = "Hello", "The harbour closes – soon."
    # As if the process ended before there was an answer to keep.
    assert pushing.send_notification(pushed.memory, "anna", title, message, "cut off")[0]
    with pytest.raises(Conflict, match="not sent again"):
        pushing.send_notification(pushed.memory, "anna", title, message, "cut off")
    assert len(service.requests) == 3


def test_a_notification_has_a_size(pushed: Workspace, service: Service) -> None:
    pushed.do("register_subscription", **service.subscription())
    room = pushing.PAYLOAD_BYTES - len(json.dumps({"title": "t", "body": ""}))
    assert send(pushed, title="t", message="x" * room)["sent"] is True
    over = send(pushed, title="t", message="x" * (room + 1))
    assert over == {"sent": False, "info": "title and message exceed 3900 bytes"}
    with pytest.raises(InvalidInput):
        pushed.do("register_subscription", endpoint=f"{service.url}/x", keys={"auth": "x"})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"p256dh": "zz"}, "p256dh must be"),
        ({"p256dh": encoded(bytes(65))}, "p256dh must be"),
        ({"p256dh": encoded(b"\x04" + bytes(64))}, "p256dh must be"),  # not on the curve
        ({"p256dh": "héllo"}, "p256dh must be"),
        ({"auth": encoded(bytes(15))}, "auth must be 16 bytes"),
        ({"auth": encoded(bytes(17))}, "auth must be 16 bytes"),
        ({"auth": "*" * 22}, "auth must be 16 bytes"),
    ],
)
def test_keys_that_nothing_can_be_encrypted_with_are_refused(
    pushed: Workspace, service: Service, change: dict[str, str], told: str
) -> None:
    given = service.subscription()
    with pytest.raises(InvalidInput, match=told):
        pushed.do(
            "register_subscription", endpoint=given["endpoint"], keys={**given["keys"], **change}
        )
    assert pushing.subscriptions(pushed.memory, "anna") == []
    padded = {name: key + "=" * (-len(key) % 4) for name, key in given["keys"].items()}
    pushed.do("register_subscription", endpoint=given["endpoint"], keys=padded)
    assert send(pushed)["sent"] is True


GOOD = encoded(bytes(31) + b"\x01")


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"COMMONPLACE_VAPID_KEY": "garbage"}, "must be a private P-256 key"),
        ({"COMMONPLACE_VAPID_KEY": encoded(bytes(32))}, "must be a private P-256 key"),
        ({"COMMONPLACE_VAPID_KEY": GOOD, "COMMONPLACE_VAPID_SUBJECT": "ops"}, "must be a mailto:"),
        ({"COMMONPLACE_NTFY_URL": "ntfy.sh/topic"}, "must be a topic's address"),
        ({"COMMONPLACE_NTFY_URL": "https://ntfy.sh/"}, "must be a topic's address"),
        ({"COMMONPLACE_NTFY_URL": "http://[/x"}, "must be a topic's address"),
    ],
)
def test_what_the_operator_set_and_cannot_work_is_told_at_the_start(
    caplog: pytest.LogCaptureFixture, environ: dict[str, str], told: str
) -> None:
    assert pushing.configured_pusher(environ) is None
    assert told in caplog.text
    assert "garbage" not in caplog.text
    good = pushing.configured_pusher({"COMMONPLACE_NTFY_URL": "http://127.0.0.1:1/t", **environ})
    assert (good is None) == ("COMMONPLACE_NTFY_URL" in environ)
    assert pushing.configured_pusher({"COMMONPLACE_VAPID_KEY": GOOD}) is not None


def test_ntfy_gets_it_too(workspace: Workspace, service: Service) -> None:
    environ = {"COMMONPLACE_NTFY_URL": f"{service.url}/harbour", "COMMONPLACE_NTFY_TOKEN": "tk"}
    pushing.set_pusher(workspace.library, pushing.configured_pusher(environ))
    assert send(workspace) == {"sent": True, "info": "notification sent to 1 device"}
    ((_, headers, body),) = service.requests
    assert headers["authorization"] == "Bearer tk"
    assert json.loads(body) == {
        "topic": "harbour", "title": "Hello", "message": "The harbour closes – soon.",
    }  # fmt: skip
    service.status = 403
    assert send(workspace)["sent"] is False


@pytest.mark.parametrize("web", [False, True])
def test_an_answer_without_end_is_not_read(
    workspace: Workspace, pushed: Workspace, service: Service, web: bool
) -> None:
    if web:
        pushed.do("register_subscription", **service.subscription())
    else:
        environ = {"COMMONPLACE_NTFY_URL": f"{service.url}/harbour"}
        pushing.set_pusher(workspace.library, pushing.configured_pusher(environ))
    service.body = iter(lambda: bytes(65_536), b"")
    assert send(workspace)["sent"] is True
    wait_until(lambda: service.ended)
    assert service.sent < 20_000_000  # what the sockets' buffers hold


def test_a_service_that_dawdles_is_given_up(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushing, "SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def dawdle() -> None:
            one, _ = listening.accept()
            with one, contextlib.suppress(ConnectionError):
                one.sendall(b"HTTP/1.1 200 OK\r\n")
                for _ in range(100):  # a byte at a time, sooner than any single wait ends
                    one.sendall(b"X")
                    time.sleep(0.1)

        waiting = threading.Thread(target=dawdle)
        waiting.start()
        environ = {"COMMONPLACE_NTFY_URL": f"http://127.0.0.1:{listening.getsockname()[1]}/harbour"}
        pushing.set_pusher(workspace.library, pushing.configured_pusher(environ))
        begun = time.monotonic()
        assert send(workspace)["sent"] is False
        assert time.monotonic() - begun < 5
        waiting.join()


def test_browsers_register_over_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from .conftest import served_at

    key = ec.generate_private_key(ec.SECP256R1())
    monkeypatch.setenv("COMMONPLACE_VAPID_KEY", private(key))
    monkeypatch.setenv("COMMONPLACE_PUSH_LOCAL", "1")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(served_at(tmp_path))
        service = Service()
        threading.Thread(target=service.server.serve_forever, daemon=True).start()
        stack.callback(service.server.server_close)
        stack.callback(service.server.shutdown)
        token = server.token()
        with server.client(token) as client:
            shown = client.get("/v1/workspaces/acme/push-key").json()
            assert shown["public_key"] == encoded(point(key.public_key()))
            path = "/v1/workspaces/acme/push-subscriptions"
            assert client.post(path, json=service.subscription()).status_code == 201
            answer = server.call(token, "send_push_notification", {"title": "t", "message": "m"})
            assert answer.value["sent"] is True
            forget = {"endpoint": service.subscription()["endpoint"]}
            assert client.post(f"{path}/forget", json=forget).json() == {"forgotten": True}


def test_no_device_too_many_is_registered_by_sixteen_at_once(
    pushed: Workspace, service: Service
) -> None:
    for n in range(pushing.MOST_SUBSCRIPTIONS - 5):
        pushed.do("register_subscription", **service.subscription(f"before-{n}"))
    ready = threading.Barrier(16)

    def register(n: int) -> bool:
        ready.wait()
        try:
            # Two ask for each device: the second finds the first's.
            pushed.do("register_subscription", **service.subscription(f"device-{n // 2}"))
        except InvalidInput as error:
            assert error.message == "a user may register at most 20 devices"
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(register, range(16))) == 10
    assert send(pushed)["info"] == "notification sent to 20 devices"
    assert len({path for path, _, _ in service.requests}) == 20
