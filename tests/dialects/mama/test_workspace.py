"""Files of the platform over real HTTP: playgrounds, skills of the workspace, MCP servers, the log,
sessions; and the rules for paths that callers name."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from commonplace.dialects.contract import Setting
from commonplace.dialects.mama.platform import logs, paths, playgrounds, sessions
from commonplace.dialects.mama.platform.failures import PlatformError
from commonplace.dialects.mama.platform.service import Service
from commonplace.engine.content.conversations import Line

from .conftest import Web, serving


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with serving(tmp_path / "data", None) as made:
        yield made


@pytest.fixture
def here(web: Web) -> Service:
    return Service(Setting(library=web.library, system=None, environ={}))  # type: ignore[arg-type]


def refused(response: httpx.Response, status: int, code: str) -> None:
    assert response.status_code == status, response.text
    assert response.json()["code"] == code


# Playgrounds


def make(web: Web, here: Service, name: str = "Skill Lab", html: str = "<p>Hi</p>") -> str:
    with web.memory.unit("make"):
        return playgrounds.store_playground(web.memory, here, name, html, "A lab")


def test_names_in_any_script_have_pages_of_their_own(web: Web, here: Service) -> None:
    pages = {name: f"<p>{name}" for name in ("연습장", "그래프", "C", "C++", "x" * 70, "x" * 80)}
    slugs = {
        name: playgrounds.store_playground(web.memory, here, name, html)
        for name, html in pages.items()
    }
    assert list(slugs.values()) == ["playground", "playground-2", "c", "c-2", "x" * 64,
                                    "x" * 58 + "-2"]  # fmt: skip
    again = playgrounds.store_playground(web.memory, here, "그래프", "<p>new")
    assert again == "playground-2"
    for name, slug in slugs.items():
        shown = "<p>new" if slug == again else pages[name]
        assert web.get(f"/playgrounds/{slug}.html").text == shown
    assert [each["name"] for each in web.get("/api/playgrounds").json()] == [
        "연습장", "C", "C++", "x" * 70, "x" * 80, "그래프",
    ]  # fmt: skip


def test_playgrounds_are_listed_served_and_deleted(web: Web, here: Service) -> None:
    assert web.get("/api/playgrounds").json() == []
    slug = make(web, here)

    (found,) = web.get("/api/playgrounds").json()
    assert found.pop("created_at").startswith("20")
    assert found == {"name": "Skill Lab", "slug": "skill-lab", "description": "A lab"}
    page = web.get(f"/playgrounds/{slug}.html")
    assert page.text == "<p>Hi</p>"
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'")
    assert "allow-same-origin" not in policy

    for _ in range(2):
        answer = web.client.delete(f"{web.url}/api/playgrounds/{slug}")
        assert answer.json() == {"success": True}
    assert web.get("/api/playgrounds").json() == []
    refused(web.get(f"/playgrounds/{slug}.html"), 404, "NOT_FOUND")


def test_a_page_that_a_person_put_there_is_found(web: Web, here: Service) -> None:
    folder = here.folder / "workspace" / "playgrounds"
    folder.mkdir(parents=True)
    (folder / "by-hand.html").write_text("<p>Mine</p>")
    (folder / "index.json").write_text("{ broken")
    (folder / "No Page.html").write_text("x")

    assert [each["slug"] for each in web.get("/api/playgrounds").json()] == ["by-hand"]
    assert web.get("/playgrounds/by-hand.html").text == "<p>Mine</p>"


def test_a_page_comes_back_when_its_copy_is_gone(web: Web, here: Service) -> None:
    slug = make(web, here)
    (here.folder / "workspace" / "playgrounds" / f"{slug}.html").unlink()
    assert web.get(f"/playgrounds/{slug}.html").text == "<p>Hi</p>"


@pytest.mark.parametrize("slug", ["Upper", "a" * 65, "a_b", "a.b"])
def test_a_slug_of_another_form_is_refused(web: Web, slug: str) -> None:
    refused(web.client.delete(f"{web.url}/api/playgrounds/{slug}"), 400, "BAD_REQUEST")


@pytest.mark.parametrize("file", ["index.json", "a.htm", "%2e%2e%2fconfig.html", "a%00.html"])
def test_nothing_but_pages_is_served(web: Web, file: str) -> None:
    assert web.get(f"/playgrounds/{file}").status_code in (400, 404)


def test_a_page_may_have_500_kb(web: Web, here: Service) -> None:
    assert make(web, here, "fits", "x" * 500_000) == "fits"
    with pytest.raises(PlatformError, match="larger"):
        make(web, here, "too large", "x" * 500_001)


# Skills in the workspace


def test_skills_of_the_workspace_are_listed_and_read(web: Web, here: Service) -> None:
    assert web.get("/api/workspace/skills").json() == {"skills": []}
    folder = paths.workspace(here) / "skills"
    for name, text in (("market-monitor", "# Market"), ("empty", "")):
        (folder / name).mkdir(parents=True)
        if text:
            (folder / name / "SKILL.md").write_text(text)

    assert web.get("/api/workspace/skills").json() == {"skills": [{"id": "market-monitor"}]}
    found = web.get("/api/workspace/skills/market-monitor/content").json()
    assert found == {"content": "# Market"}
    refused(web.get("/api/workspace/skills/empty/content"), 404, "NOT_FOUND")
    refused(web.get("/api/workspace/skills/a.b/content"), 400, "BAD_REQUEST")


def test_a_link_out_of_the_workspace_is_not_read(web: Web, here: Service, tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("secret")
    folder = paths.workspace(here) / "skills" / "trap"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").symlink_to(secret)

    refused(web.get("/api/workspace/skills/trap/content"), 404, "NOT_FOUND")


# Paths from callers


def test_a_relative_path_lies_in_the_workspace(here: Service) -> None:
    file = paths.workspace(here) / "a" / "b.txt"
    file.parent.mkdir(parents=True)
    file.write_text("text")
    (paths.workspace(here) / "link.txt").symlink_to(file)

    for given in ("a/b.txt", str(file), "a/../a/b.txt", "link.txt"):
        assert paths.read_file(here, given, most=4).data == b"text"
    with pytest.raises(PlatformError) as caught:
        paths.read_file(here, "a/b.txt", most=3)
    assert caught.value.status == 413


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ("", 400), ("a\0b", 400), ("~/x", 400), ("C:\\x", 400), ("../../master.key", 400),
        ("/etc/passwd", 400), ("missing.txt", 404), (".", 404), ("x" * 5_000, 404),
    ],
)  # fmt: skip
def test_a_path_elsewhere_is_refused(here: Service, given: str, status: int) -> None:
    paths.workspace(here).mkdir(parents=True)
    with pytest.raises(PlatformError) as caught:
        paths.read_file(here, given, most=100)
    assert caught.value.status == status


def test_a_directory_of_a_similar_name_is_outside(here: Service) -> None:
    beside = here.folder / "workspace-of-others"
    beside.mkdir(parents=True)
    paths.workspace(here).mkdir()
    (beside / "x").write_text("x")
    with pytest.raises(PlatformError, match="outside"):
        paths.read_file(here, "../workspace-of-others/x", most=100)


def test_only_own_files_are_read_from_the_temporary_directory(here: Service) -> None:
    file = Path("/tmp") / f"commonplace-{os.getpid()}-paths.txt"
    file.write_text("own")
    try:
        assert paths.read_file(here, str(file), most=100, temporary=True).data == b"own"
        with pytest.raises(PlatformError, match="outside"):
            paths.read_file(here, str(file), most=100)
        if os.getuid() == 0:
            os.chown(file, 65534, 65534)
            with pytest.raises(PlatformError, match="outside"):
                paths.read_file(here, str(file), most=100, temporary=True)
    finally:
        file.unlink()


def test_a_pipe_is_not_waited_for(here: Service) -> None:
    paths.workspace(here).mkdir(parents=True)
    os.mkfifo(paths.workspace(here) / "pipe")
    with pytest.raises(PlatformError, match="regular"):
        paths.read_file(here, "pipe", most=100)


# MCP servers


def test_mcp_servers_are_listed_without_what_they_run(web: Web, here: Service) -> None:
    assert web.get("/api/mcp-servers").json() == {"servers": []}
    servers = {
        "local": {"command": "secret-command", "args": ["a", "b"], "env": {"KEY": "secret"}},
        "far": {"type": "http", "url": "https://secret.example", "headers": {"x": "secret"}},
    }
    here.folder.mkdir(parents=True, exist_ok=True)
    (here.folder / "mcp-config.json").write_text(json.dumps({"mcpServers": servers}))

    answer = web.get("/api/mcp-servers")
    assert "secret" not in answer.text
    assert answer.json()["servers"] == [
        {"name": "far", "type": "http", "hasCommand": False, "hasUrl": True, "hasArgs": False,
         "argCount": 0},
        {"name": "local", "type": "stdio", "hasCommand": True, "hasUrl": False, "hasArgs": True,
         "argCount": 2},
    ]  # fmt: skip
    deleted = web.client.delete(web.url + "/api/mcp-servers/far")
    assert deleted.json() == {"deleted": True, "name": "far"}
    assert "far" not in json.loads((here.folder / "mcp-config.json").read_text())["mcpServers"]
    refused(web.client.delete(web.url + "/api/mcp-servers/far"), 404, "NOT_FOUND")
    refused(web.client.delete(web.url + "/api/mcp-servers/a.b"), 400, "BAD_REQUEST")


# The log


def test_the_log_is_shown_from_its_end(web: Web, here: Service) -> None:
    for number in range(30):
        logging.getLogger("commonplace.test").warning("line %d", number)

    told = web.get("/api/logs/daemon", tail=5).json()
    assert told.keys() == {"lines", "total", "totalBytes", "mtime", "truncated"}
    assert len(told["lines"]) == 5 and told["total"] >= 30 and told["truncated"] is False
    assert "line 29" in "\n".join(web.get("/api/logs/daemon").json()["lines"])
    assert stat.S_IMODE(logs.log_path(here).stat().st_mode) == 0o600
    assert told["totalBytes"] > 0

    now = web.get("/api/logs/daemon").json()["mtime"]
    unchanged = web.get("/api/logs/daemon", since=now + 60_000)
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert web.get("/api/logs/daemon", tail=0).status_code == 200, "clamped"
    assert web.get("/api/logs/daemon", tail=9_999).status_code == 200, "clamped"


def test_the_log_has_no_words_of_an_exception_whoever_else_listens(web: Web) -> None:
    said = "what a memory" + " says"
    try:
        raise ValueError(said)
    except ValueError:
        logging.getLogger("commonplace.test").exception("it failed")
    shown = "\n".join(web.get("/api/logs/daemon").json()["lines"])
    assert "it failed" in shown and "ValueError" in shown
    assert "what a memory says" not in shown


def test_a_long_tail_is_cut_at_a_megabyte(web: Web, here: Service) -> None:
    logs.log_path(here).parent.mkdir(parents=True, exist_ok=True)
    logs.log_path(here).write_text(("x" * 99_999 + "\n") * 20)
    told = web.get("/api/logs/daemon", tail=20).json()
    assert (len(told["lines"]), told["truncated"]) == (10, True)


def test_before_the_first_line_there_is_no_log(tmp_path: Path) -> None:
    with serving(tmp_path / "data", None) as web:
        file = web.library.path / "mama" / "logs" / "daemon.log"
        file.unlink(missing_ok=True)
        refused(web.get("/api/logs/daemon"), 404, "NOT_FOUND")


# Sessions


def talk(web: Web, source: str, channel: str, id: str, *texts: str) -> None:
    for text in texts:
        name = sessions.conversation_name(source, channel, id)
        web.memory.conversations.add(name, Line(speaker="user", text=text))


def test_sessions_are_listed_by_source(web: Web) -> None:
    assert web.get("/api/sessions").json() == {
        "viewer": [], "discord": [], "telegram": [], "slack": []
    }  # fmt: skip
    assert web.get("/api/sessions/last-active").json() == {"session": None}
    talk(web, "viewer", "web", "one", "Hello", "again")
    talk(web, "mobile", "phone", "two", "Hi")
    talk(web, "discord", "123", "three", "Yo")
    web.memory.conversations.add("of-others", Line(speaker="user", text="no session"))

    found = web.get("/api/sessions").json()
    assert [each["id"] for each in found["viewer"]] == ["two", "one"]
    assert [each["id"] for each in found["discord"]] == ["three"]
    one = found["viewer"][1]
    assert one.keys() == {
        "id", "source", "channelId", "channelName", "userId", "createdAt", "lastActive",
        "messageCount",
    }  # fmt: skip
    assert (one["source"], one["channelId"], one["messageCount"]) == ("viewer", "web", 2)
    assert 0 < one["createdAt"] <= one["lastActive"]
    assert web.get("/api/sessions/last-active").json()["session"]["id"] == "three"


def test_the_dashboard_counts_memories_and_sessions(web: Web) -> None:
    for topic in ("tea", "tea", "milk"):
        body: dict[str, Any] = {"topic": topic, "decision": "Yes", "reasoning": "Because"}
        saved = web.post("/api/mama/save", body).json()
        if topic == "tea":
            web.post("/graph/update", {"id": saved["id"], "outcome": "failed"})
    talk(web, "viewer", "web", "one", "Hello")

    told = web.get("/api/dashboard/status").json()
    assert told.keys() == {
        "timestamp", "gateways", "heartbeat", "agent", "memory", "sessions", "database", "server",
    }  # fmt: skip
    assert told["memory"]["topTopics"] == [
        {"topic": "tea", "count": 2}, {"topic": "milk", "count": 1},
    ]  # fmt: skip
    assert told["memory"]["outcomes"] == {"failed": 2}  # one of them is superseded
    assert told["sessions"]["total"] == 1 and told["sessions"]["bySource"] == {"viewer": 1}


def test_what_a_person_put_there_by_mistake_fails_no_list(web: Web) -> None:
    folder = web.library.path / "mama"
    pages, skills = folder / "workspace" / "playgrounds", folder / "skills" / "mama"
    (pages / "folder.html").mkdir(parents=True)
    (pages / "link.html").symlink_to("/nowhere")
    (pages / "nul.html").write_bytes(b"a\0b")
    (pages / "index.json").write_text("[" * 100_000)
    (pages / "ok.html").write_text("<p>")
    (skills / "folder" / "SKILL.md").mkdir(parents=True)
    (skills / "nul").mkdir()
    (skills / "nul" / "SKILL.md").write_bytes(b"# a\0b")
    (skills.parent / "state.json").write_text('{"x": NaN}')
    (folder / "mcp-config.json").write_text('{"mcpServers": {"a\\u0000": {}}}')
    (folder / "workspace" / "media" / "inbound" / "folder.txt").mkdir(parents=True)

    assert [each["slug"] for each in web.get("/api/playgrounds").json()] == ["ok"]
    assert web.get("/api/skills").json() == {"skills": []}
    assert web.get("/api/mcp-servers").json() == {"servers": []}
    refused(web.get("/api/media/folder.txt"), 404, "NOT_FOUND")
    assert web.post("/api/skills", {"name": "new", "content": "# New"}).status_code == 201


def test_a_linked_skill_outside_the_workspace_is_not_listed(web: Web, tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", web.library.path / "mama" / "workspace" / "skills"
    for made in (outside, folder / "inside"):
        made.mkdir(parents=True)
        (made / "SKILL.md").write_text("# A skill")
    (folder / "linked").symlink_to(outside)
    assert web.get("/api/workspace/skills").json() == {"skills": [{"id": "inside"}]}
    refused(web.get("/api/workspace/skills/linked/content"), 404, "NOT_FOUND")


def test_a_directory_is_not_opened_for_reading(here: Service) -> None:
    (here.folder / "workspace" / "media").mkdir(parents=True)
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    for _ in range(20):
        with pytest.raises(PlatformError, match="not found"):
            paths.read_file(here, "media", most=10)
    after = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    assert after < before + 20


def test_a_change_that_fails_leaves_no_copy_behind(web: Web, here: Service) -> None:
    with pytest.raises(RuntimeError), web.memory.unit("try"):
        playgrounds.store_playground(web.memory, here, "Gone", "<p>")
        raise RuntimeError
    assert web.get("/api/playgrounds").json() == []
    assert not (here.folder / playgrounds.FOLDER / "gone.html").exists()

    playgrounds.store_playground(web.memory, here, "Kept", "<p>")
    with pytest.raises(RuntimeError), web.memory.unit("try"):
        playgrounds._page_file("kept").delete(web.memory, here)
        raise RuntimeError
    assert (here.folder / playgrounds.FOLDER / "kept.html").exists()


def test_the_longest_tail_of_the_log_is_sent(web: Web, here: Service) -> None:
    file = logs.log_path(here)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(('"' * 299 + "\n") * 6_000)
    answer = web.get("/api/logs/daemon", tail=5_000)
    assert answer.status_code == 200, answer.text[:200]
    assert answer.json()["truncated"] is True
    assert sum(len(line) + 1 for line in answer.json()["lines"]) <= logs.MOST_BYTES
