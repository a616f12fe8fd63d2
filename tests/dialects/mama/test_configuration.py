"""The configuration over real HTTP: defaults, merging, secrets, the file, and who may change it."""

from __future__ import annotations

import hashlib
import json
import stat
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from commonplace.access.caller import ALL_SCOPES, FULL_SCOPES
from commonplace.access.credentials import Grant
from commonplace.dialects.contract import Setting
from commonplace.dialects.mama.platform import heartbeat
from commonplace.dialects.mama.platform.configuration import DEFAULTS, MASK
from commonplace.dialects.mama.platform.heartbeat import is_quiet
from commonplace.dialects.mama.platform.service import Service, _services
from commonplace.platform.sealed import mama_secrets

from .conftest import Web, serving

SECTIONS = {
    "version", "agent", "database", "logging", "discord", "slack", "telegram", "chatwork",
    "heartbeat", "roles", "multi_agent",
}  # fmt: skip


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with serving(tmp_path / "data", None) as made:
        yield made


def put(web: Web, body: Any) -> httpx.Response:
    return web.client.put(web.url + "/api/config", json=body)


def refused(response: httpx.Response, status: int, code: str) -> str:
    """The message of a failure, whose `error` is true."""
    assert response.status_code == status, response.text
    body = response.json()
    assert (body["error"], body["code"]) == (True, code)
    message: str = body["message"]
    return message


def test_every_section_has_its_defaults(web: Web) -> None:
    shown = web.get("/api/config").json()

    assert shown.keys() == SECTIONS
    assert shown["agent"]["max_turns"] == 10
    assert shown["agent"]["timeout"] == 300_000
    assert shown["agent"]["tools"]["gateway"] == ["*"]
    assert shown["heartbeat"] == {
        "enabled": False, "interval": 1_800_000, "quiet_start": 23, "quiet_end": 8,
        "notify_channel_id": "",
    }  # fmt: skip
    assert shown["multi_agent"]["loop_prevention"] == {
        "max_chain_length": 3, "global_cooldown_ms": 2_000, "chain_window_ms": 60_000,
    }  # fmt: skip
    tiers = {name: agent["tier"] for name, agent in shown["multi_agent"]["agents"].items()}
    assert tiers == {"conductor": 1, "developer": 1, "reviewer": 3, "architect": 2, "pm": 2}


def test_a_change_is_merged_and_holds_at_once(web: Web) -> None:
    answer = put(web, {"agent": {"max_turns": 7}, "roles": {"definitions": {"a": {"b": 1}}}})

    assert answer.json().keys() == {"success", "message"} and answer.json()["success"] is True
    shown = web.get("/api/config").json()
    assert (shown["agent"]["max_turns"], shown["agent"]["timeout"]) == (7, 300_000)
    assert shown["roles"]["definitions"] == {"a": {"b": 1}}
    put(web, {"roles": {"definitions": {"c": 2}}})
    assert web.get("/api/config").json()["roles"]["definitions"] == {"a": {"b": 1}, "c": 2}
    put(web, {"agent": {"tools": {"gateway": ["mama_search"]}}})
    assert web.get("/api/config").json()["agent"]["tools"]["gateway"] == ["mama_search"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"unknown": {}},
        {"agent": []},
        {"agent": {"max_turns": 0}},
        {"agent": {"max_turns": 101}},
        {"agent": {"max_turns": True}},
        {"agent": {"timeout": 999}},
        {"agent": {"timeout": "soon"}},
        {"agent": {"backend": "other"}},
        {"agent": {"model": "gpt-5"}},
        {"agent": {"effort": "max"}},
        {"heartbeat": {"interval": 59_999}},
        {"heartbeat": {"quiet_start": 24}},
        {"heartbeat": {"quiet_end": -1}},
        {"heartbeat": {"enabled": "yes"}},
        {"discord": {"token": 5}},
        {"multi_agent": {"agents": []}},
    ],
)
def test_what_makes_no_sense_changes_nothing(web: Web, wrong: dict[str, Any]) -> None:
    before = web.get("/api/config").json()

    refused(put(web, {"slack": {"enabled": True}, **wrong}), 400, "VALIDATION_ERROR")

    assert web.get("/api/config").json() == before


@pytest.mark.parametrize(
    "right",
    [
        {"agent": {"max_turns": 1}}, {"agent": {"max_turns": 100}}, {"agent": {"timeout": 1000}},
        {"heartbeat": {"interval": 60_000}}, {"heartbeat": {"quiet_start": 0, "quiet_end": 23}},
        {"agent": {"backend": "codex-mcp", "model": "gpt-5-mini"}},
        {"agent": {"backend": "codex-mcp", "model": "o3"}},
        {"agent": {"model": "claude-opus-4-6", "effort": "max"}},
    ],
)  # fmt: skip
def test_values_at_their_limits_are_accepted(web: Web, right: dict[str, Any]) -> None:
    assert put(web, right).status_code == 200


def test_a_body_that_is_no_object_is_refused(web: Web) -> None:
    refused(put(web, [1]), 400, "VALIDATION_ERROR")


def test_secrets_are_masked_sealed_and_kept(web: Web) -> None:
    put(web, {"discord": {"token": "s3cret-of-discord"}, "agent": {"api_key": "sk-of-agent"}})

    shown = web.get("/api/config").json()
    assert (shown["discord"]["token"], shown["agent"]["api_key"]) == (MASK, MASK)
    assert shown["slack"]["bot_token"] == ""
    put(web, {"discord": {"token": MASK, "enabled": True}})
    assert web.get("/api/dashboard/status").json()["gateways"]["discord"] == {
        "configured": True, "enabled": True, "channel": None,
    }  # fmt: skip
    for file in web.library.path.rglob("*"):
        if file.is_file():
            assert b"s3cret-of-discord" not in file.read_bytes(), file
    for removed in ("", None):
        put(web, {"discord": {"token": "again"}})
        put(web, {"discord": {"token": removed}})
        assert web.get("/api/config").json()["discord"]["token"] == ""


def test_what_is_shown_only_cannot_be_set(web: Web) -> None:
    before = web.get("/api/config").json()
    change = {
        "database": {"path": "/elsewhere"}, "logging": {"file": "/elsewhere"},
        "agent": {"tools": {"mcp_config": "/elsewhere"}},
    }  # fmt: skip
    assert put(web, change).status_code == 200
    assert web.get("/api/config").json() == before


def test_the_place_of_the_data_is_not_told(web: Web) -> None:
    for path in ("/api/config", "/api/dashboard/status"):
        told = web.get(path)
        assert told.json()["database"] == {"path": "spaces/default.db"}
        assert str(web.library.path) not in told.text


def test_a_copy_is_written_and_an_edited_one_is_read(web: Web) -> None:
    put(web, {"agent": {"max_turns": 9}, "slack": {"bot_token": "xoxb-1"}})
    file = web.library.path / "mama" / "config.yaml"
    assert yaml.safe_load(file.read_text())["agent"]["max_turns"] == 9
    assert "xoxb-1" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    file.write_text("agent:\n  max_turns: 3\ndiscord:\n  token: by-hand\nother: 1\n")

    shown = web.get("/api/config").json()
    assert (shown["agent"]["max_turns"], shown["discord"]["token"]) == (3, MASK)
    assert "other" not in shown


@pytest.mark.parametrize("broken", ["agent: [", "- a\n- b\n", "agent:\n  max_turns: 0\n", "\udcff"])
def test_a_broken_file_changes_nothing(web: Web, broken: str) -> None:
    put(web, {"agent": {"max_turns": 9}})
    file = web.library.path / "mama" / "config.yaml"
    file.write_bytes(broken.encode("utf-8", "surrogateescape"))

    assert web.get("/api/config").json()["agent"]["max_turns"] == 9
    assert file.read_bytes() == broken.encode("utf-8", "surrogateescape")


def test_a_file_that_is_set_back_by_hand_is_read(web: Web) -> None:
    put(web, {"agent": {"max_turns": 9}})
    file = web.library.path / "mama" / "config.yaml"
    older = file.read_bytes()
    put(web, {"agent": {"max_turns": 10}})
    file.write_bytes(older)

    assert web.get("/api/config").json()["agent"]["max_turns"] == 9
    assert put(web, {"agent": {"timeout": 5_000}}).status_code == 200
    assert web.get("/api/config").json()["agent"]["max_turns"] == 9


def test_a_copy_that_nobody_edited_follows_the_record(web: Web) -> None:
    put(web, {"agent": {"max_turns": 9}})
    put(web, {"agent": {"max_turns": 10}})
    file = web.library.path / "mama" / "config.yaml"
    web.memory.undo()  # as a restore, or a server on another machine, changes the record

    assert web.get("/api/config").json()["agent"]["max_turns"] == 9
    assert yaml.safe_load(file.read_text())["agent"]["max_turns"] == 9
    file.unlink()
    assert web.get("/api/config").json()["agent"]["max_turns"] == 9
    assert yaml.safe_load(file.read_text())["agent"]["max_turns"] == 9


def test_undo_brings_back_a_secret_with_its_setting(web: Web) -> None:
    put(web, {"discord": {"enabled": True, "token": "first"}})
    put(web, {"discord": {"enabled": False, "token": ""}})
    assert web.get("/api/config").json()["discord"]["token"] == ""

    web.memory.undo()

    found = web.get("/api/config").json()["discord"]
    assert (found["enabled"], found["token"]) == (True, MASK)


def test_secrets_that_an_older_release_sealed_are_known(web: Web) -> None:
    put(web, {"discord": {"token": "t"}})
    service = next(each for each in _services.values() if each.setting.library is web.library)
    assert service.setting.vault is not None
    stored = mama_secrets(service.setting.system, service.setting.vault())
    stored.put("default", {"slack.bot_token": "older"})
    shown = web.get("/api/config").json()
    assert (shown["slack"]["bot_token"], shown["discord"]["token"]) == (MASK, "")
    put(web, {"discord": {"token": "new"}})
    shown = web.get("/api/config").json()
    assert (shown["slack"]["bot_token"], shown["discord"]["token"]) == (MASK, MASK)


def test_two_writers_lose_nothing_of_each_other(web: Web) -> None:
    start = threading.Barrier(8)
    statuses = []

    def write(number: int) -> None:
        start.wait()
        with httpx.Client(timeout=60) as client:
            body = {"roles": {"definitions": {f"role{number}": {"n": number}}}}
            statuses.append(client.put(web.url + "/api/config", json=body).status_code)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert statuses == [200] * 8
    wanted = {f"role{number}": {"n": number} for number in range(8)}
    assert web.get("/api/config").json()["roles"]["definitions"] == wanted
    file = web.library.path / "mama" / "config.yaml"
    assert yaml.safe_load(file.read_text())["roles"]["definitions"] == wanted


def test_it_survives_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path / "data", None) as first:
        put(first, {"agent": {"max_turns": 9}, "telegram": {"token": "t"}})
    with serving(tmp_path / "data", None) as again:
        shown = again.get("/api/config").json()
    assert (shown["agent"]["max_turns"], shown["telegram"]["token"]) == (9, MASK)


def test_the_audit_has_no_value_of_it(web: Web) -> None:
    put(web, {"discord": {"token": "s3cret-of-discord"}})

    from commonplace.engine.history import audit

    with web.library.lease("default") as space:
        rows = audit.listing(space.store, limit=10)
    row = next(row for row in rows if row.tool == "put_config")
    assert "s3cret" not in json.dumps(row.arguments)


# Who may call


def test_a_token_of_the_environment_is_needed_once_it_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAMA_AUTH_TOKEN", "the-token")
    with serving(tmp_path / "data", None, {"MAMA_AUTH_TOKEN": "the-token"}) as web:
        assert web.get("/api/config").status_code == 200, "reading is as before"
        answer = put(web, {"agent": {"max_turns": 9}})
        refused(answer, 401, "UNAUTHORIZED")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        for given in ("Bearer the-token", "the-token"):
            headers = {"authorization": given}
            changed = web.client.put(web.url + "/api/config", json={}, headers=headers)
            assert changed.status_code == 200, changed.text
        wrong = web.client.put(
            web.url + "/api/config", json={}, headers={"authorization": "Bearer no"}
        )
        assert wrong.status_code == 401
        held = web.tokens.credentials.create(Grant(space="default", scopes=ALL_SCOPES))
        headers = {"authorization": f"Bearer {held.token}"}
        assert web.client.put(web.url + "/api/config", json={}, headers=headers).status_code == 200


def test_a_browser_signs_in_with_the_token_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAMA_AUTH_TOKEN", "the-token")
    with serving(tmp_path / "data", None, {"MAMA_AUTH_TOKEN": "the-token"}) as web:
        origin = {"origin": web.url}
        for wrong in ("", "the-toke", "other"):
            told = web.client.post(web.url + "/sign-in", json={"token": wrong}, headers=origin)
            assert told.status_code == 401
        told = web.client.post(web.url + "/sign-in", json={"token": "the-token"}, headers=origin)
        assert told.status_code == 200
        assert told.json()["space"] == "default" and "admin" in told.json()["scopes"]
        assert "httponly" in told.headers["set-cookie"].lower()
        body = {"agent": {"max_turns": 7}}
        forged = web.client.put(web.url + "/api/config", json=body, headers=origin)
        assert forged.status_code == 403, "without the CSRF token"
        headers = {**origin, "x-csrf-token": told.json()["csrf_token"]}
        web.client.put(web.url + "/api/config", json=body, headers=headers).raise_for_status()
        assert web.get("/api/mcp-servers").status_code == 200
        cookies = dict(web.client.cookies)
    monkeypatch.setenv("MAMA_AUTH_TOKEN", "another-token")
    with serving(tmp_path / "data", None, {"MAMA_AUTH_TOKEN": "another-token"}) as web:
        web.client.cookies.update(cookies)
        assert web.get("/api/mcp-servers").status_code == 401, "the session ends with the token"
        assert not web.get("/session").json()["signed_in"]
        (stored,) = web.tokens.credentials.listing()
        assert "the-token" not in str(stored)
        assert hashlib.sha256(b"the-token").hexdigest() not in str(stored)


def test_a_credential_of_another_space_is_refused(web: Web) -> None:
    held = web.tokens.credentials.create(Grant(space="other", scopes=ALL_SCOPES))
    headers = {"authorization": f"Bearer {held.token}"}
    for path in ("/api/config", "/api/dashboard/status"):
        refused(web.client.get(web.url + path, headers=headers), 403, "FORBIDDEN")
    refused(web.client.put(web.url + "/api/config", json={}, headers=headers), 403, "FORBIDDEN")


def test_a_credential_without_the_right_changes_nothing(web: Web) -> None:
    held = web.tokens.credentials.create(Grant(space="default", scopes=FULL_SCOPES))
    headers = {"authorization": f"Bearer {held.token}"}
    assert web.client.get(web.url + "/api/config", headers=headers).status_code == 200
    refused(web.client.put(web.url + "/api/config", json={}, headers=headers), 403, "FORBIDDEN")


# Small parts


@pytest.mark.parametrize(
    ("start", "end", "hour", "quiet"),
    [
        (23, 8, 23, True), (23, 8, 7, True), (23, 8, 8, False), (23, 8, 22, False),
        (1, 5, 1, True), (1, 5, 5, False), (1, 5, 0, False), (8, 8, 8, False),
    ],
)  # fmt: skip
def test_quiet_hours_may_go_over_midnight(start: int, end: int, hour: int, quiet: bool) -> None:
    assert is_quiet(start, end, hour) is quiet


def test_the_defaults_are_valid() -> None:
    from commonplace.dialects.mama.platform.configuration import check

    check(DEFAULTS)


@pytest.mark.parametrize(
    "body",
    [
        {"multi_agent": {"agents": {"a.b": {"bot_token": "secret"}}}},
        {"multi_agent": {"agents": {"pm": {"tier": "x"}}}},
        {"multi_agent": {"agents": {"pm": {"trigger_prefix": 5}}}},
        {"multi_agent": {"agents": {"pm": {"persona_file": "../../system.db"}}}},
        {"multi_agent": {"agents": {"pm": {"backend": "other"}}}},
        {"multi_agent": {"agents": {"pm": 5}}},
        {"roles": {"definitions": {"r": [{"token": "secret"}]}}},
        {"roles": {"definitions": {"r": {"token": ["secret"]}}}},
        {"heartbeat": {"interval": 2**31}},
        {"agent": {"timeout": 2**31}},
        {"roles": {"definitions": {"r": "x" * 200_000}}},
    ],
)  # fmt: skip
def test_what_no_agent_could_use_is_refused(web: Web, body: dict[str, Any]) -> None:
    before = web.get("/api/config").json()
    refused(put(web, body), 400, "VALIDATION_ERROR")
    assert web.get("/api/config").json() == before


def test_a_name_with_a_dot_hides_its_secret(web: Web) -> None:
    roles = {"definitions": {"a.b": {"token": "secret-1"}, "a%2Eb": {"token": "secret-2"}}}
    assert put(web, {"roles": roles}).status_code == 200

    shown = web.get("/api/config").json()["roles"]["definitions"]
    assert shown == {"a.b": {"token": MASK}, "a%2Eb": {"token": MASK}}
    assert "secret-" not in (web.library.path / "mama" / "config.yaml").read_text()


@pytest.mark.parametrize(
    "text",
    [
        "roles: {definitions: {a: 2024-01-01}}", "roles: {definitions: &r {x: *r}}",
        "roles: {definitions: {a: .nan}}", 'roles: {definitions: {a: "\\0"}}',
        "roles: {definitions: {a: !!binary aGVsbG8=}}", "roles: {definitions: {? [1] : 3}}",
        "multi_agent: {agents: {x: {bot_token: 123}}}", "roles: {definitions: {a: !!set {x}}}",
        f"roles: {{definitions: {{a: {'[' * 100}{']' * 100}}}}}", "version: 2",
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_stored_leaves_the_configuration_as_it_was(
    web: Web, text: str
) -> None:
    assert put(web, {"heartbeat": {"quiet_end": 7}}).status_code == 200
    before = web.get("/api/config").json()
    (web.library.path / "mama" / "config.yaml").write_text(text)

    answer = web.get("/api/config")
    assert (answer.status_code, answer.json()) == (200, before)
    assert web.get("/api/multi-agent/status").status_code == 200
    assert put(web, {"heartbeat": {"quiet_end": 6}}).status_code == 200


def test_agents_of_mamas_own_file_lose_only_the_fields_that_make_no_sense(web: Web) -> None:
    file = web.library.path / "mama" / "config.yaml"
    file.parent.mkdir(exist_ok=True)
    agent = {
        "name": "Dev", "model": "gpt-5", "backend": "codex-mcp", "tier": 7, "cooldown_ms": "soon",
        "persona_file": "~/.mama/personas/dev.md",
        "tool_permissions": {"allowed": ["Bash", "Read"]},
    }  # fmt: skip
    file.write_text(yaml.safe_dump({"multi_agent": {"agents": {"dev": agent}}}))

    found = web.get("/api/multi-agent/agents").json()["agents"]
    (dev,) = [each for each in found if each["id"] == "dev"]
    assert (dev["name"], dev["backend"], dev["model"]) == ("Dev", "codex-mcp", "gpt-5")
    assert (dev["tier"], dev["cooldown_ms"]) == (1, 5_000)
    assert dev["persona_file"] == "personas/dev.md"
    assert dev["tool_permissions"] == {"allowed": ["Bash", "Read"]}


@pytest.mark.parametrize("agent", ["backend: other", "model: gpt-5", "effort: huge"])
def test_a_file_with_a_model_that_cannot_be_used_changes_nothing(web: Web, agent: str) -> None:
    put(web, {"agent": {"max_turns": 9, "api_key": "k"}})
    before = web.get("/api/config").json()
    (web.library.path / "mama" / "config.yaml").write_text(f"agent:\n  {agent}\n")

    assert web.get("/api/config").json() == before
    assert put(web, {"heartbeat": {"quiet_end": 6}}).status_code == 200


def test_an_agent_that_is_removed_by_hand_does_not_come_back_with_its_token(web: Web) -> None:
    put(web, {"multi_agent": {"agents": {"dev": {"name": "Dev", "bot_token": "secret-1"}}}})
    file = web.library.path / "mama" / "config.yaml"
    tree = yaml.safe_load(file.read_text())
    del tree["multi_agent"]["agents"]["dev"]
    file.write_text(yaml.safe_dump(tree))

    assert "dev" not in web.get("/api/config").json()["multi_agent"]["agents"]
    assert "dev" not in [each["id"] for each in web.get("/api/multi-agent/agents").json()["agents"]]


def test_a_shorter_interval_takes_effect_at_once(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "FIRST_SECONDS", 0.0)
    here = Service(Setting(library=web.library, system=None, environ={}))  # type: ignore[arg-type]
    quiet = {"enabled": True, "quiet_start": 0, "quiet_end": 0}
    put(web, {"heartbeat": {**quiet, "interval": 86_400_000}})
    beat = heartbeat.HeartbeatScheduler(here)
    beat.tick(web.memory)
    first = beat._due()
    put(web, {"heartbeat": {"interval": 60_000}})
    beat.tick(web.memory)
    assert first - beat._due() == timedelta(milliseconds=86_400_000 - 60_000)
