"""T17, T18: who can reach the server, what they are told without a credential, and T39."""

from __future__ import annotations

import io
import itertools
import os
import re
import socket
import stat
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from commonplace.access.accounts import Accounts
from commonplace.access.credentials import Grant
from commonplace.access.signed import Tokens
from commonplace.access.vault import open_vault
from commonplace.dialects.registry import token_formats
from commonplace.errors import CommonplaceError, InvalidInput, StorageUnavailable
from commonplace.server import door, serving
from commonplace.server.settings import Settings, is_loopback
from commonplace.storage.system import open_system
from server.harness import Client, Process, Running, cli, matrix, message, running

ROUTES: dict[str, dict[str, Any]] = matrix("routes")


def credential(data: Path, *, revoked: bool = False, **grant: Any) -> None:
    with closing(open_system(data)) as system:
        tokens = Tokens(system, open_vault(system), token_formats())
        made = tokens.credentials.create(Grant(**grant))
        if revoked:
            tokens.credentials.revoke(made.credential.id)
        tokens.close()


REACHABLE: list[tuple[dict[str, Any], bool]] = [
    ({}, False),
    ({"host": "127.0.0.1"}, False),
    ({"host": "::1"}, False),
    ({"host": "localhost"}, False),
    ({"host": "127.0.0.2"}, False),
    ({"host": "0.0.0.0"}, True),
    ({"host": "::"}, True),
    ({"host": ""}, False),  # as if it were not set
    ({"host": "192.0.2.1"}, True),
    ({"host": "10.0.0.1"}, True),
    ({"host": "example.com"}, True),
    ({"host": "127.0.0.1.evil.com"}, True),
    ({"host": "127.1"}, True),
    ({"host": "0"}, True),
    ({"host": "::ffff:127.0.0.1"}, True),
    ({"public_url": "https://memory.example"}, True),
    ({"public_url": "http://127.0.0.1:3847"}, True),
    ({"host": "127.0.0.1", "proxies": ("127.0.0.1",)}, True),
    ({"host": "0.0.0.0", "require_token": True}, True),
]


@pytest.mark.parametrize("known", ["none", "token", "revoked", "expired", "account"])
def test_what_others_can_reach_does_not_start_without_a_credential(data: Path, known: str) -> None:
    if known in ("token", "revoked"):
        credential(data, revoked=known == "revoked")
    if known == "expired":
        credential(data, lifetime=0.01)
        time.sleep(0.02)
    with closing(open_system(data)) as system:
        vault = open_vault(system)
        tokens = Tokens(system, vault, token_formats())
        accounts = Accounts(system, vault, tokens.credentials)
        if known == "account":
            accounts.add("ann", "correct horse battery", ["default"])
        for settings, reachable in REACHABLE:
            given = {f"COMMONPLACE_{name.upper()}": str(value) for name, value in settings.items()}
            given = {name: value.strip("(),'") for name, value in given.items()}
            for chosen in (
                Settings.load(given, data=data),
                Settings.load({}, data=data, **{k: v for k, v in settings.items() if v}),
            ):
                assert chosen.is_local != reachable, settings
                if reachable and known in ("none", "revoked", "expired"):
                    with pytest.raises(InvalidInput, match="is reachable from other machines"):
                        serving.check_exposure(chosen, tokens, accounts)
                else:
                    serving.check_exposure(chosen, tokens, accounts)
        tokens.close()


def test_the_command_line_says_why_it_does_not_start(data: Path) -> None:
    told = cli("serve", "--data", str(data), "--host", "0.0.0.0", "--port", "0",
               "--embedding", "none")  # fmt: skip
    assert told.returncode == 2
    assert "is reachable from other machines" in told.stderr and "token create" in told.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", *(["::"] if socket.has_dualstack_ipv6() else [])])
def test_who_listens_everywhere_answers_to_the_addresses_it_tells_of(data: Path, host: str) -> None:
    credential(data)
    with Process(data, "--host", host) as server:
        assert server.process.stdout is not None
        lines = list(itertools.takewhile(lambda line: "Next:" not in line, server.process.stdout))
        assert all(len(line) <= 81 for line in lines if str(data) not in line)
        told = " ".join("".join(lines).split())
        named = re.search(r"MCP +http://(\S+):(\d+)/mcp/commonplace", told)
        goes_by = re.search(r"names +(.+); add others to the setting allow_hosts", told)
        assert named and goes_by
        port = int(named[2])
        names = [*goes_by[1].split(", "), named[1]]
        assert {"localhost", "127.0.0.1", "[::1]"} < set(names) and "0.0.0.0" not in names
        client = Client(port)
        for name in names:
            assert client.request("GET", "/health", None, {"host": f"{name}:{port}"}).status == 200
            unknown = message("remember", {"text": "x"})
            answer = client.request("POST", "/mcp", unknown, {"host": f"{name}:{port}"})
            assert answer.status == 401
        for name in ("0.0.0.0", "evil.example", f"{names[0]}.evil.example", "192.0.2.99"):
            refused = client.request("GET", "/health", None, {"host": f"{name}:{port}"})
            assert refused.status == 421 and "allow_hosts" in str(refused.json)
        client.close()


def test_what_is_advised_at_the_start_is_about_this_server(data: Path) -> None:
    with Process(data) as server:
        assert server.process.stdout is not None
        told = "".join(itertools.islice(server.process.stdout, 14))
    port = re.search(r"listening on http://127.0.0.1:(\d+)", told)
    assert port
    assert f"look     http://127.0.0.1:{port[1]}/viewer" in told
    assert f"commonplace start --data {data}" in told
    assert f"connect claude-code --url http://127.0.0.1:{port[1]}/mcp/commonplace" in told
    assert f'commonplace remember "…" --data {data}' in told
    refused = cli("serve", "--data", str(data), "--host", "0.0.0.0", "--port", "0")
    assert f"token create --data {data}" in refused.stderr
    usual = Settings.load({}, data=data)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("COMMONPLACE_DATA", str(data))
        assert usual.command_line("audit list") == "commonplace audit list"
        address = "postgresql://commonplace:hunter2@127.0.0.1:1/none"
        named = Settings.load({}, data=data, database=address)
        assert named.command_line("token create") == "commonplace token create --database URL"
        environment.setenv("COMMONPLACE_DATABASE", address)
        assert named.command_line("token create") == "commonplace token create"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"dialect": "klingon"}, "no dialect"),
        ({"port": 70_000}, "port"),
        ({"rate": 0}, "rate"),
        ({"burst": -1}, "burst"),
        ({"call_seconds": "nan"}, "call_seconds"),
        ({"log": "xml"}, "log"),
        ({"public_url": "memory.example"}, "public_url"),
        ({"public_url": "ftp://memory.example"}, "public_url"),
        ({"public_url": "https://memory.example?x=1"}, "public_url"),
        ({"public_url": "https://memory.example/#x"}, "public_url"),
        ({"public_url": "https://ann:secret@memory.example"}, "public_url"),
        ({"public_url": "https://memory.example:99999"}, "public_url"),
        ({"public_url": "https://memory.example:0"}, "public_url"),
        ({"public_url": "http://[::1"}, "public_url"),
        ({"public_url": "https://[fe80::x]"}, "public_url"),
        ({"public_url": "https://b\u00fccher.example"}, "public_url"),
        ({"public_url": "https://memory.example/a b"}, "public_url"),
        ({"proxies": ("10.0.0.0/8",)}, "proxies"),
        ({"proxies": ("proxy.example",)}, "proxies"),
        ({"allow_hosts": 5}, "allow_hosts"),
        ({"allow_hosts": {"memory.lan": 1}}, "allow_hosts"),
        ({"port": True}, "port"),
        ({"port": 38.5}, "port"),
        ({"host": " "}, "host is empty"),
        ({"host": "\u00e4..x"}, "cannot be used"),
        ({"allow_hosts": ("a b",)}, "is not a host"),
        ({"allow_origins": ("example.com",)}, "is not an origin"),
        ({"host": "no.such.host.invalid"}, "cannot be used"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_at_the_start(
    data: Path, settings: dict[str, Any], says: str
) -> None:
    credential(data)
    with pytest.raises(CommonplaceError, match=says):  # noqa: SIM117
        with serving.open_server(
            Settings.load({}, data=data, embedding="none", **{"port": 0, **settings})
        ):
            pass


def test_a_file_of_settings_that_others_can_write_is_refused(data: Path) -> None:
    file = data / "config.toml"
    file.write_text("rate = 5\n")
    file.chmod(0o600)
    assert Settings.load({}, data=data).rate == 5
    assert Settings.load({"COMMONPLACE_RATE": "6"}, data=data).rate == 6
    assert Settings.load({"COMMONPLACE_RATE": "6"}, data=data, rate=7).rate == 7
    file.chmod(0o666)
    with pytest.raises(InvalidInput, match="written by others"):
        Settings.load({}, data=data)
    file.chmod(0o600)
    for wrong in ("rate = ", "unknown = 1\n", 'rate = "quick"\n'):
        file.write_text(wrong)
        with pytest.raises(InvalidInput):
            Settings.load({}, data=data)


@pytest.mark.parametrize(
    "command",
    ["serve --port 0", "mcp", "search x", "remember x", "doctor", "spaces", "token list",
     "audit list", "being list", "being llm-key", "backup elsewhere"],
)  # fmt: skip
def test_a_data_directory_that_is_a_file_is_told(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    from commonplace.cli.app import run

    monkeypatch.setattr(sys, "stdin", io.StringIO("sk-the-key-of-a-model\n"))
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    assert run([*command.split(), "--data", str(file)]) == 5
    told = capsys.readouterr().err
    assert f"{file} cannot be used: Not a directory. Choose another directory" in told
    assert file.read_text() == "mine"


def test_the_commands_that_come_next_can_be_typed_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from commonplace.cli.servers import _print_addresses

    program = tmp_path / "commonplace"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(program), "serve"])
    for path, command in (("", str(program)), (str(tmp_path), "commonplace")):
        monkeypatch.setenv("PATH", path)
        _print_addresses(Settings(data=tmp_path))
        assert f"\n  {command} connect claude-code" in capsys.readouterr().out


def test_a_port_in_use_is_told(server: Running) -> None:
    with pytest.raises(StorageUnavailable, match="choose another --port"):
        serving.bind("127.0.0.1", server.port)
    told = cli("serve", "--data", str(server.settings.data), "--port", str(server.port),
               "--embedding", "none")  # fmt: skip
    assert told.returncode == 5
    assert str(server.port) in told.stderr and "Traceback" not in told.stderr


WRONG = [
    "Bearer ", "Bearer x", "Bearer cpt_x", "Basic bG9jYWw6", "bearer", "", "Token x", "Bearer null",
    "Bearer cpt_" + "A" * 49, "Bearer " + "x" * 5_000, "Bearer a b", "Bearer \xff",
]  # fmt: skip


@pytest.mark.parametrize("given", WRONG)
def test_a_wrong_token_is_never_taken_for_none(server: Running, given: str) -> None:
    server.door._failures._buckets.clear()
    client = server.client()
    for path, row in ROUTES.items():
        if row.get("public"):
            continue
        for method in ("GET", "POST", "DELETE"):
            body = message("recall", {"query": "x"}) if method == "POST" else None
            answer = client.request(method, row.get("sample", path), body, {"authorization": given})
            assert answer.status == 401, (path, method, answer.body)
            assert (answer.header("www-authenticate") or "").startswith("Bearer")
            server.door._failures._buckets.clear()


def test_without_a_token_the_person_at_this_machine_is_let_in(server: Running) -> None:
    client = server.client()
    assert client.call("remember", {"text": "local"}).status == 200
    assert client.request("GET", "/metrics").status == 200
    assert client.request("GET", "/health/details").json["status"] == "ok"
    (call,) = server.calls(tool="remember")
    assert (call.caller, call.credential) == ("local", "")


def test_a_revoked_and_an_expired_token_are_wrong_ones(server: Running) -> None:
    credentials = server.parts.tokens.credentials
    made = credentials.create(Grant(space="ends"))
    client = server.client(made.token)
    assert client.call("recall", {"query": "x"}).status == 200
    credentials.revoke(made.credential.id)
    assert client.call("recall", {"query": "x"}).status == 401
    short = credentials.create(Grant(space="ends", lifetime=0.05)).token
    import time

    time.sleep(0.1)
    assert server.client(short).call("recall", {"query": "x"}).status == 401


def test_two_tokens_are_none(server: Running) -> None:
    import http.client

    token = server.token("two")
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.putrequest("GET", "/metrics")
    for _ in range(2):
        connection.putheader("authorization", f"Bearer {token}")
    connection.endheaders()
    assert connection.getresponse().status == 401
    connection.close()


@pytest.mark.parametrize(
    "settings", [{"require_token": True}, {"public_url": "https://memory.example"}]
)
def test_where_a_token_is_asked_for_loopback_needs_one_too(
    data: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "FAILURES_A_MINUTE", 10 * len(ROUTES))  # each is tried from here
    credential(data)
    with running(data, **settings) as server:
        nobody = server.client()
        for path, row in ROUTES.items():
            answer = nobody.request("GET", row.get("sample", path))
            if row.get("public"):
                assert answer.status != 401
            else:
                assert answer.status == 401, (path, answer.body)
        client = server.client(server.token("with"))
        assert client.call("remember", {"text": "x"}).status == 200
        assert server.client().call("remember", {"text": "x"}).status == 401
        assert "default" not in server.parts.library.spaces()


def test_health_says_next_to_nothing(server: Running) -> None:
    for token in (None, "cpt_wrong"):
        answer = server.client(token).request("GET", "/health")
        assert answer.status == 200 and len(answer.body) <= 64
        assert set(answer.json) == {"status", "timestamp"}
        assert answer.json["status"] == "ok"
        assert "server" not in {name.lower() for name, _ in answer.headers}
    assert server.client().request("HEAD", "/health").body == b""
    assert server.client().request("POST", "/health", {}).status == 405


def test_details_need_an_administrator(server: Running) -> None:
    for scopes, status in (({"read", "write", "delete"}, 403), ({"admin"}, 200)):
        client = server.client(server.token("admins", scopes))
        for path in ("/health/details", "/metrics"):
            assert client.request("GET", path).status == status


def test_every_answer_carries_the_headers_that_keep_browsers_out(server: Running) -> None:
    for path in ("/health", "/metrics", "/nothing", "/mcp"):
        headers = {n.lower(): v for n, v in server.client("x").request("GET", path).headers}
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
        assert headers["x-request-id"]


def test_only_the_owner_can_read_what_is_stored(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with running(tmp_path / "data") as server:
            server.client(server.token("files")).call("remember", {"text": "x"})
            server.client().call("remember", {"text": "x"})
            for path in [tmp_path / "data", *(tmp_path / "data").rglob("*")]:
                assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    finally:
        os.umask(old)


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True), ("127.255.255.254", True), ("::1", True), ("localhost", True),
        ("0.0.0.0", False), ("", False), ("LOCALHOST", False), ("localhost.", False),
        ("128.0.0.1", False), ("127.0.0.1 ", False), ("2130706433", False), ("::", False),
    ],
)  # fmt: skip
def test_only_an_address_of_this_machine_is_one(host: str, here: bool) -> None:
    assert is_loopback(host) == here


@pytest.mark.parametrize(
    "name",
    ["X-Forwarded-For", "X-Forwarded-Proto", "x-forwarded-port", "Forwarded", "Via", "X-Real-IP",
     "CF-Connecting-IP", "X-Forwarded", "CF-Ray", "Tailscale-User-Login", "True-Client-IP",
     "X-Original-URL", "X-Amzn-Trace-Id", "X-Auth-Request-Email"],
)  # fmt: skip
def test_without_a_token_nobody_behind_a_proxy_is_the_person_at_this_machine(
    server: Running, name: str
) -> None:
    forwarded = {name: "203.0.113.5"}
    client = server.client()
    before = len(server.calls("default"))
    for path, method in (("/metrics", "GET"), ("/mcp/commonplace", "POST"), ("/mcp", "POST"),
                         ("/graph", "GET"), ("/v1/beings", "GET")):  # fmt: skip
        body = None if method == "GET" else message("remember", {"text": "forwarded"})
        answer = client.request(method, path, body, forwarded)
        assert answer.status == 403, (path, answer.body)
        assert b"forwarded by a proxy" in answer.body and b"token create" in answer.body
    assert len(server.calls("default")) == before
    assert client.request("GET", "/metrics").status == 200
    known = server.client(server.token("default"))
    assert known.request("GET", "/metrics", None, forwarded).status == 200
    with connect(
        f"ws://127.0.0.1:{server.port}/v1/beings/x/bridge/ws", additional_headers=forwarded
    ) as bridge:
        assert "forwarded by a proxy" in str(bridge.recv(timeout=10))
    host = {"x-forwarded-host": f"127.0.0.1:{server.port}"}
    assert client.request("GET", "/metrics", None, host).status == 403
    assert client.request("GET", "/health", None, {**host, **forwarded}).status == 200
