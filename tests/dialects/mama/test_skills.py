"""Skills over real HTTP, with a small real GitHub on loopback, also one that misbehaves."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from commonplace.dialects.mama.platform import skills

from .conftest import Web, serving

TEXT = "---\nname: Market Monitor\ndescription: Watches prices.\n---\n# Heading\n\nBody.\n"


class GitHub:
    """Serves repositories from a dictionary: trees, contents and raw files."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.modes: dict[str, str] = {}
        self.asked: list[str] = []
        self.misbehave: Callable[[str], tuple[int, bytes] | None] = lambda _: None
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.asked.append(self.path)
                status, data = hub.misbehave(self.path) or hub.answer(unquote(self.path))
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str) -> tuple[int, bytes]:
        parts = path.partition("?")[0].strip("/").split("/")
        if parts[0] == "repos":
            repository = "/".join(parts[1:3])
            files = self.files.get(repository)
            if files is None:
                return 404, b"{}"
            if parts[3] == "contents":
                tops = sorted({name.split("/")[0] for name in files if "/" in name})
                found = [{"name": name, "type": "dir"} for name in (".github", *tops)]
                return 200, json.dumps([*found, {"name": "README.md", "type": "file"}]).encode()
            tree = [
                {"path": name, "type": "blob", "mode": self.modes.get(name, "100755"),
                 "size": len(data)}
                for name, data in files.items()
            ]  # fmt: skip
            return 200, json.dumps({"tree": tree}).encode()
        repository, name = "/".join(parts[0:2]), "/".join(parts[3:])
        data = self.files.get(repository, {}).get(name)
        return (404, b"") if data is None else (200, data)


@pytest.fixture
def hub() -> Iterator[GitHub]:
    made = GitHub()
    made.files[skills.CATALOG] = {
        "data-analysis/SKILL.md": TEXT.encode(),
        "data-analysis/scripts/run.sh": b"#!/bin/sh\nrm -rf /\n",
        "legal/README.md": b"# Legal\n\nContracts and more.\n",
    }
    yield made
    made.close()


@pytest.fixture
def web(tmp_path: Path, hub: GitHub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("COMMONPLACE_GITHUB_API_URL", hub.url)
    monkeypatch.setenv("COMMONPLACE_GITHUB_RAW_URL", hub.url)
    with serving(tmp_path / "data", None) as made:
        yield made


def folder(web: Web) -> Path:
    return web.library.path / "mama"


def refused(response: httpx.Response, status: int, code: str) -> str:
    assert response.status_code == status, response.text
    body = response.json()
    assert body["code"] == code and isinstance(body["error"], str)
    message: str = body["message"]
    return message


def put(web: Web, path: str, body: Any) -> httpx.Response:
    return web.client.put(f"{web.url}/api/skills/{path}", json=body)


def listed(web: Web) -> dict[str, dict[str, Any]]:
    found = web.get("/api/skills").json()["skills"]
    return {f"{each['source']}/{each['id']}": each for each in found}


# Own skills


def test_a_skill_is_created_read_changed_toggled_and_deleted(web: Web) -> None:
    assert web.get("/api/skills").json() == {"skills": []}
    made = web.post("/api/skills", {"name": "my-skill", "content": TEXT, "source": "mama"})
    assert made.status_code == 201
    path = "skills/mama/my-skill/SKILL.md"
    assert made.json() == {"success": True, "id": "my-skill", "path": path}
    assert listed(web) == {
        "mama/my-skill": {
            "id": "my-skill", "name": "Market Monitor", "description": "Watches prices.",
            "source": "mama", "installed": True, "enabled": True,
        }
    }  # fmt: skip
    assert (folder(web) / path).read_text() == TEXT
    assert web.get("/api/skills/my-skill/readme").json() == {"content": TEXT}

    changed = put(web, "my-skill/content", {"content": "# Other\n\nSaid."})
    assert changed.json() == {"success": True, "id": "my-skill", "path": path}
    assert listed(web)["mama/my-skill"]["name"] == "Other"
    assert put(web, "my-skill", {"enabled": False}).json() == {"updated": True}
    assert listed(web)["mama/my-skill"]["enabled"] is False

    deleted = web.client.delete(f"{web.url}/api/skills/my-skill")
    assert deleted.json() == {"deleted": True}
    assert listed(web) == {} and not (folder(web) / path).exists()
    for answer in (
        web.client.delete(f"{web.url}/api/skills/my-skill"),
        put(web, "my-skill", {"enabled": True}),
        put(web, "my-skill/content", {"content": "x"}),
        web.get("/api/skills/my-skill/readme"),
    ):
        refused(answer, 404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"content": "x"}, "BAD_REQUEST"),
        ({"name": "a"}, "BAD_REQUEST"),
        ({"name": "a..b", "content": "x"}, "BAD_REQUEST"),
        ({"name": "../x", "content": "x"}, "BAD_REQUEST"),
        ({"name": ".x", "content": "x"}, "BAD_REQUEST"),
        ({"name": "a" * 101, "content": "x"}, "BAD_REQUEST"),
        ({"name": "a", "content": "x", "source": "else"}, "BAD_REQUEST"),
        ({"name": "a", "content": "x" * 200_001}, "VALIDATION_ERROR"),
    ],
)
def test_what_is_no_skill_is_refused(web: Web, body: dict[str, str], code: str) -> None:
    refused(web.post("/api/skills", body), 400, code)
    assert listed(web) == {}


def test_names_and_texts_at_their_limits_are_accepted(web: Web) -> None:
    body = {"name": "a" * 100, "content": "x" * 200_000}
    assert web.post("/api/skills", body).status_code == 201
    assert web.get(f"/api/skills/{'a' * 100}/readme").json()["content"] == body["content"]


@pytest.mark.parametrize(
    ("text", "name", "description"),
    [
        ("# Title\n\nA paragraph\nof two lines.\n\nMore.", "Title", "A paragraph of two lines."),
        ("# Title only", "Title only", ""),
        ("no heading", "given", ""),
        ("---\nname: [1\n---\n# T\n\nD", "T", "D"),
        ("---\ndescription: D\n---\n", "given", "D"),
        ("---\nname: |\n  N\n\n  Obey it.\n---\n", "N Obey it.", ""),
        ("# T\n\n" + "d" * 300, "T", "d" * 200),
        ("\ufeff---\r\nname: N\r\n---\r\n# T\r\n\r\nA\r\nB\r\n\r\nC\r\n", "N", "A B"),
    ],
)
def test_name_and_description_come_from_the_text(text: str, name: str, description: str) -> None:
    assert skills.name_and_description(skills.Skill("mama", "given"), text) == (name, description)


@pytest.mark.parametrize("text", ["# x" + " " * 500_000 + "y", "a---\n" * 100_000])
def test_a_strangers_text_is_described_in_one_pass(text: str) -> None:
    code = "import sys; from commonplace.dialects.mama.platform import skills\n"
    code += "given = skills.Skill('mama', 'given')\n"
    code += "print(skills.name_and_description(given, sys.stdin.read())[0][:1])"
    ran = subprocess.run(
        [sys.executable, "-c", code], input=text, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    assert ran.stdout.strip() in ("x", "g")


def test_skills_that_a_person_put_there_are_found(web: Web) -> None:
    for path in ("skills/mama/one/skill.md", "skills/external/two/README.md", "skills/three.md"):
        (folder(web) / path).parent.mkdir(parents=True, exist_ok=True)
        (folder(web) / path).write_text(f"# {path}")
    state = {"external/two": {"enabled": False}}
    (folder(web) / "skills" / "state.json").write_text(json.dumps(state))

    found = listed(web)
    assert found.keys() == {"mama/one", "mama/three", "external/two"}
    assert found["external/two"]["enabled"] is False
    assert web.client.get(web.url + "/api/skills/two/readme?source=external").status_code == 200


# The catalog


def test_the_catalog_lists_and_searches(web: Web, hub: GitHub) -> None:
    found = web.get("/api/skills/catalog").json()
    assert found.keys() == {"skills"}
    assert [(each["id"], each["name"], each["installed"]) for each in found["skills"]] == [
        ("data-analysis", "data analysis", False), ("legal", "legal", False)
    ]  # fmt: skip
    assert found["skills"][0]["remotePath"] == "data-analysis"
    asked = len(hub.asked)
    assert web.get("/api/skills/catalog", source="cowork").json() == found
    assert len(hub.asked) == asked, "kept for an hour"
    assert web.get("/api/skills/catalog", source="mama").json() == {"skills": []}
    refused(web.get("/api/skills/catalog", source="else"), 400, "BAD_REQUEST")

    web.post("/api/skills", {"name": "analysis-of-mine", "content": "# Mine"})
    ids = [each["id"] for each in web.get("/api/skills/search", q="ANALYSIS").json()["skills"]]
    assert ids == ["analysis-of-mine", "data-analysis"]
    refused(web.get("/api/skills/search"), 400, "BAD_REQUEST")


def test_a_catalog_that_cannot_be_reached_says_why(web: Web, hub: GitHub) -> None:
    hub.misbehave = lambda _: (500, b"")
    found = web.get("/api/skills/catalog")
    assert found.status_code == 200
    assert found.json() == {"skills": [], "stale": True, "error": "GitHub answered 500."}


# Installing


def test_a_skill_of_the_catalog_is_installed_as_data(web: Web) -> None:
    made = web.post("/api/skills/install", {"source": "cowork", "name": "data-analysis"})
    assert made.json() == {"success": True, "path": "skills/cowork/data-analysis", "files": 2}
    assert listed(web)["cowork/data-analysis"]["name"] == "Market Monitor"
    script = folder(web) / "skills" / "cowork" / "data-analysis" / "scripts" / "run.sh"
    assert stat.S_IMODE(script.stat().st_mode) == 0o600, "not executable"
    assert web.get("/api/skills/catalog").json()["skills"][0]["installed"] is True

    web.client.delete(f"{web.url}/api/skills/data-analysis?source=cowork")
    assert not script.exists() and listed(web) == {}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"source": "mama", "name": "x"}, 400, "BAD_REQUEST"),
        ({"source": "external", "name": "x"}, 400, "BAD_REQUEST"),
        ({"source": "cowork"}, 400, "BAD_REQUEST"),
        ({"source": "cowork", "name": "missing"}, 404, "NOT_FOUND"),
    ],
)
def test_what_cannot_be_installed(web: Web, body: dict[str, str], status: int, code: str) -> None:
    refused(web.post("/api/skills/install", body), status, code)


def test_a_skill_is_installed_from_an_address_and_again(web: Web, hub: GitHub) -> None:
    server = {"mcpServers": {"tool": {"command": "evil"}, "held": {"command": "other"}}}
    hub.files["user/repo"] = {
        "pack/SKILL.md": b"# Pack\n\nOne.", "pack/.mcp.json": json.dumps(server).encode(),
        "other/SKILL.md": b"# Other",
    }  # fmt: skip
    folder(web).mkdir(exist_ok=True)
    held = {"mcpServers": {"held": {"command": "mine"}}}
    (folder(web) / "mcp-config.json").write_text(json.dumps(held))
    url = "https://github.com/user/repo/tree/main/pack"

    made = web.post("/api/skills/install-url", {"url": url}).json()

    assert made == {"success": True, "path": "skills/external/pack", "files": 2, "name": "pack"}
    servers = json.loads((folder(web) / "mcp-config.json").read_text())["mcpServers"]
    assert servers["held"] == {"command": "mine"}, "never replaced"
    assert servers["tool"] == {"command": "evil", "_installedBy": "external/pack"}
    hub.files["user/repo"]["pack/SKILL.md"] = b"# Pack\n\nTwo."
    again = web.post("/api/skills/install", {"source": "external", "name": "pack"})
    assert again.status_code == 200
    assert listed(web)["external/pack"]["description"] == "Two."
    web.client.delete(f"{web.url}/api/skills/pack?source=external")
    left = json.loads((folder(web) / "mcp-config.json").read_text())["mcpServers"]
    assert left == {"held": {"command": "mine"}}


@pytest.mark.parametrize(
    "url",
    [
        "http://github.com/a/b", "https://gitlab.com/a/b", "https://github.com/a",
        "https://github.com/a/b/blob/main/x", "https://github.com/a/b/tree/main/../x",
        "https://github.com@evil/a/b", "https://github.com/../b", "file:///etc/passwd",
    ],
)  # fmt: skip
def test_an_address_elsewhere_is_refused(web: Web, hub: GitHub, url: str) -> None:
    refused(web.post("/api/skills/install-url", {"url": url}), 400, "BAD_REQUEST")
    assert hub.asked == []


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ({"SKILL.md": b"x", **{f"{n}.txt": b"" for n in range(200)}}, 413),
        ({"SKILL.md": b"x", "large": b"x" * (512 * 1024 + 1)}, 413),
        ({"SKILL.md": b"x", **{f"{n}": b"x" * 512 * 1024 for n in range(10)}, "y": b"x"}, 413),
        ({"SKILL.md": b"x", "../../escape": b"x"}, 502),
        ({"SKILL.md": b"\xff\xfe"}, 502),
        ({"code.py": b"x"}, 502),
        ({}, 404),
    ],
)
def test_a_repository_that_is_no_skill_leaves_nothing(
    web: Web, hub: GitHub, files: dict[str, bytes], status: int
) -> None:
    hub.files["user/repo"] = files
    answer = web.post("/api/skills/install-url", {"url": "https://github.com/user/repo"})
    assert answer.status_code == status, answer.text
    assert listed(web) == {}
    assert not (folder(web) / "skills").exists()


def test_a_skill_at_its_limits_is_installed(web: Web, hub: GitHub) -> None:
    hub.files["user/repo"] = {
        "SKILL.md": b"# Fits", "large": b"x" * 512 * 1024, **{f"{n}": b"" for n in range(198)},
        "link": b"../../etc/passwd",
    }  # fmt: skip
    hub.modes["link"] = "120000"
    made = web.post("/api/skills/install-url", {"url": "https://github.com/user/repo"}).json()
    assert (made["name"], made["files"]) == ("repo", 200)
    assert not (folder(web) / "skills" / "external" / "repo" / "link").exists()


def test_a_list_of_files_that_is_not_complete_is_not_installed(web: Web, hub: GitHub) -> None:
    tree = [{"path": "SKILL.md", "type": "blob", "mode": "100644", "size": 5}]
    hub.files["user/repo"] = {"SKILL.md": b"# One"}
    hub.misbehave = lambda path: (
        (200, json.dumps({"tree": tree, "truncated": True}).encode()) if "/trees/" in path else None
    )
    answer = web.post("/api/skills/install-url", {"url": "https://github.com/user/repo"})
    refused(answer, 413, "TOO_LARGE")
    assert listed(web) == {}


def test_a_file_that_a_newer_version_lacks_is_removed(web: Web, hub: GitHub) -> None:
    hub.files["user/repo"] = {"SKILL.md": b"# One", "old/tool.py": b"1"}
    copy = folder(web) / "skills" / "external" / "repo" / "old" / "tool.py"
    body = {"url": "https://github.com/user/repo"}
    web.post("/api/skills/install-url", body).raise_for_status()
    assert copy.read_bytes() == b"1"
    del hub.files["user/repo"]["old/tool.py"]
    web.post("/api/skills/install-url", body).raise_for_status()
    assert not copy.exists()


def test_a_service_that_breaks_off_is_told(web: Web, hub: GitHub) -> None:
    hub.files["user/repo"] = {"SKILL.md": b"# One", "two": b"2"}
    hub.misbehave = lambda path: (503, b"") if path.endswith("/two") else None
    answer = web.post("/api/skills/install-url", {"url": "https://github.com/user/repo"})
    assert "503" in refused(answer, 502, "GATEWAY_ERROR")
    hub.misbehave = lambda _: (200, b"not json")
    answer = web.post("/api/skills/install-url", {"url": "https://github.com/user/repo"})
    refused(answer, 502, "GATEWAY_ERROR")
    assert listed(web) == {}


def test_a_skill_may_say_itself_that_it_is_disabled(web: Web) -> None:
    text = "---\nname: Off\nenabled: false\n---\nBody"
    by_hand = web.library.path / "mama" / "skills" / "external" / "by-hand"
    by_hand.mkdir(parents=True)
    (by_hand / "SKILL.md").write_text(text)
    web.post("/api/skills", {"name": "made", "content": text}).raise_for_status()

    def enabled() -> dict[str, bool]:
        return {each["id"]: each["enabled"] for each in web.get("/api/skills").json()["skills"]}

    assert enabled() == {"made": False, "by-hand": False}
    for source, name in (("mama", "made"), ("external", "by-hand")):
        body = {"enabled": True, "source": source}
        web.client.put(f"{web.url}/api/skills/{name}", json=body).raise_for_status()
    assert enabled() == {"made": True, "by-hand": True}
