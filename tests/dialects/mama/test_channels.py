"""Messages out, over real HTTP: small real Discord and Slack servers on loopback, also ones that
misbehave."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
from PIL import Image

from commonplace.dialects.mama.platform import channels, heartbeat, paths, runs
from dialects.orchestrator.fake_model import FakeModel
from web.conftest import chrome

from .conftest import Web, serving

Answer = tuple[int, dict[str, Any]]
PICTURE = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


class Outside:
    """A service that notes what it is sent and answers as it is told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, bytes]] = []
        self.reply: Callable[[str], Answer] = lambda _: (200, {"ok": True})
        self.retry_after = ""
        outside = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                token = self.headers.get("authorization", "")
                outside.asked.append((self.command, self.path, token, body))
                status, told = outside.reply(self.path)
                data = json.dumps(told).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                if status == 429 and outside.retry_after:
                    self.send_header("retry-after", outside.retry_after)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = _any

            def log_message(self, *_: Any) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def texts(self) -> list[str]:
        return [json.loads(body)["content"] for _, _, _, body in self.asked]


@pytest.fixture
def outside() -> Iterator[Outside]:
    made = Outside()
    yield made
    made.close()


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with FakeModel() as made:
        yield made


@pytest.fixture
def web(
    tmp_path: Path, outside: Outside, model: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Web]:
    monkeypatch.setenv("COMMONPLACE_DISCORD_URL", outside.url)
    monkeypatch.setenv("COMMONPLACE_SLACK_URL", outside.url + "/api")
    monkeypatch.setenv("COMMONPLACE_LLM_PROVIDER", "openai")
    monkeypatch.setenv("COMMONPLACE_LLM_OPENAI_URL", model.url)
    with serving(tmp_path / "data", None) as made:
        set_up(made)
        yield made


def set_up(web: Web) -> None:
    web.client.put(
        web.url + "/api/config",
        json={
            "discord": {"enabled": True, "token": "d-token"},
            "slack": {"enabled": True, "bot_token": "xoxb-token"},
        },
    ).raise_for_status()


def refused(response: httpx.Response, status: int, code: str) -> str:
    assert response.status_code == status, response.text
    body = response.json()
    assert body["code"] == code and isinstance(body["error"], str)
    message: str = body["message"]
    return message


def workspace(web: Web, name: str, data: bytes) -> str:
    file = web.library.path / "mama" / "workspace" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return name


# Discord


def test_a_message_is_sent_to_discord(web: Web, outside: Outside) -> None:
    answer = web.post("/api/discord/send", {"channelId": "123456789", "message": "Hello @everyone"})

    assert answer.json() == {"success": True}
    method, path, token, body = outside.asked[0]
    assert (method, path) == ("POST", "/channels/123456789/messages")
    assert token == "Bot d-token"
    assert json.loads(body) == {
        "content": "Hello @everyone", "allowed_mentions": {"parse": []}
    }  # fmt: skip


def test_a_long_message_is_sent_in_parts_in_order(web: Web, outside: Outside) -> None:
    text = "\n".join(f"line {number:04d} " + "x" * 90 for number in range(100))
    web.post("/api/discord/send", {"channelId": "1", "message": text})
    sent = outside.texts()
    assert len(sent) > 1 and all(len(part) <= 2_000 for part in sent)
    assert "\n".join(sent) == text


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", [""]), ("abc", ["abc"]), ("abcdefghij", ["abcdefghij"]),
        ("abcdefghijk", ["abcdefghij", "k"]), ("abcdef\nghijk", ["abcdef", "ghijk"]),
        ("abcdef ghijk", ["abcdef", "ghijk"]), ("a\nbcdefghijklm", ["a\nbcdefghi", "jklm"]),
        ("abcdefghij\n", ["abcdefghij"]), ("\n" * 12 + "abc", ["abc"]), ("  ", ["  "]),
    ],
)  # fmt: skip
def test_texts_are_cut_at_newlines_and_blanks(text: str, parts: list[str]) -> None:
    assert channels.split_text(text, 10) == parts


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"message": "x"}, "BAD_REQUEST"),
        ({"channelId": "1"}, "BAD_REQUEST"),
        ({"channelId": "1", "message": " \n"}, "BAD_REQUEST"),
        ({"channelId": "../x", "message": "x"}, "BAD_REQUEST"),
        ({"channelId": "1" * 26, "message": "x"}, "BAD_REQUEST"),
        ({"channelId": "1", "message": "x" * 20_001}, "VALIDATION_ERROR"),
    ],
)
def test_what_cannot_be_sent(web: Web, outside: Outside, body: dict[str, str], code: str) -> None:
    refused(web.post("/api/discord/send", body), 400, code)
    assert outside.asked == []


def test_without_a_connection_nothing_is_sent(web: Web, outside: Outside) -> None:
    web.client.put(web.url + "/api/config", json={"discord": {"enabled": False}})
    for path, body in (
        ("/api/discord/send", {"message": "x"}),
        ("/api/discord/cron", {"prompt": "x"}),
        ("/api/discord/image", {"imagePath": "../outside.png"}),
        ("/api/report", {}),
        ("/api/screenshot", {"htmlFile": "x.html"}),
    ):
        answer = web.post(path, {"channelId": "1", **body})
        refused(answer, 503, "GATEWAY_NOT_CONNECTED")
    assert outside.asked == []


def test_a_wish_to_wait_is_followed(web: Web, outside: Outside) -> None:
    answers = [(429, {"retry_after": 0.05}), (429, {"retry_after": 0.05}), (200, {})]
    outside.reply = lambda _: answers.pop(0)
    sent = web.post("/api/discord/send", {"channelId": "1", "message": "x"})
    assert sent.json() == {"success": True} and len(outside.asked) == 3


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_a_refusal_of_discord_is_told_by_its_status(
    web: Web, outside: Outside, status: int
) -> None:
    outside.reply = lambda _: (status, {"retry_after": 0.01, "message": "secret detail"})
    told = refused(
        web.post("/api/discord/send", {"channelId": "1", "message": "x"}), 502, "GATEWAY_ERROR"
    )
    assert str(status) in told and "secret" not in told


def test_a_prompt_is_answered_on_discord(web: Web, outside: Outside, model: FakeModel) -> None:
    model.reply = lambda _: "r" * 150
    answer = web.post("/api/discord/cron", {"channelId": "1", "prompt": "Generate daily report"})
    assert answer.json() == {"success": True, "response": "r" * 100 + "..."}
    assert outside.texts() == ["r" * 150]


def test_an_image_is_sent_to_discord(web: Web, outside: Outside) -> None:
    name = workspace(web, "media/outbound/chart.png", PICTURE)
    body = {"channelId": "1", "imagePath": name, "caption": "Daily chart"}
    assert web.post("/api/discord/image", body).json() == {"success": True}
    sent = outside.asked[0][3]
    assert PICTURE in sent and b'filename="chart.png"' in sent and b"Daily chart" in sent


@pytest.mark.parametrize(
    ("path", "status"),
    [("/etc/config.png", 400), ("/etc/passwd", 400), ("a.txt", 400), ("missing.png", 404)],
)
def test_other_images_are_not_sent(web: Web, outside: Outside, path: str, status: int) -> None:
    workspace(web, "a.txt", b"x")
    answer = web.post("/api/discord/image", {"channelId": "1", "imagePath": path})
    assert answer.status_code == status and outside.asked == []


def test_an_image_of_the_temporary_directory_may_be_sent(web: Web, outside: Outside) -> None:
    file = Path("/tmp") / f"commonplace-{os.getpid()}.png"
    file.write_bytes(PICTURE)
    try:
        body = {"channelId": "1", "imagePath": str(file)}
        assert web.post("/api/discord/image", body).json() == {"success": True}
    finally:
        file.unlink()


# Reports


def test_a_report_tells_what_is_new(web: Web, outside: Outside, model: FakeModel) -> None:
    decision = {"topic": "tea", "decision": "Green tea", "reasoning": "Calm"}
    web.post("/api/mama/save", decision)
    model.reply = lambda _: "Tea is green."

    first = web.post("/api/report", {"channelId": "1"}).json()
    assert first == {"success": True, "reportType": "delta", "response": "Tea is green."}
    assert "Green tea" in str(model.requests[0]["messages"])
    assert outside.texts() == ["Tea is green."]
    again = web.post("/api/report", {"channelId": "1", "reportType": "delta"}).json()
    assert again["response"] == "HEARTBEAT_OK"
    assert len(outside.asked) == 1, "nothing is sent without news"
    full = web.post("/api/report", {"channelId": "1", "reportType": "full"}).json()
    assert full["reportType"] == "full" and len(outside.asked) == 2
    refused(web.post("/api/report", {"channelId": "1", "reportType": "x"}), 400, "BAD_REQUEST")


def test_a_report_tells_of_runs(web: Web, outside: Outside, model: FakeModel) -> None:
    model.reply = lambda _: "Two jobs ran."
    for number, answer in enumerate(("The backup is done.", heartbeat.NOTHING_TO_DO)):
        runs.add_run(web.memory, f"exec_{number}", "job_1", "p", "cron")
        runs.finish_run(web.memory, f"exec_{number}", answer, None)

    assert web.post("/api/report", {"channelId": "1"}).json()["response"] == "Two jobs ran."
    asked = str(model.requests[0]["messages"])
    assert "The backup is done." in asked and heartbeat.NOTHING_TO_DO not in asked
    again = web.post("/api/report", {"channelId": "1"}).json()
    assert again["response"] == heartbeat.NOTHING_TO_DO


def test_what_is_stored_while_a_report_is_written_is_in_the_next_one(
    web: Web, model: FakeModel
) -> None:
    def write(_: Any) -> str:
        web.memory.remember("The kettle is broken.")
        runs.finish_run(web.memory, "exec_1", "The backup is done.", None)
        model.reply = lambda _: "Read."
        return "Written."

    web.memory.remember("Tea is green.")
    runs.add_run(web.memory, "exec_1", "job_1", "p", "cron")
    model.reply = write
    for expected in ("Written.", "Read.", heartbeat.NOTHING_TO_DO):
        answer = web.post("/api/report", {"channelId": "1"}).json()
        assert answer["response"] == expected
    second = str(model.requests[1]["messages"])
    assert "The kettle is broken." in second and "The backup is done." in second
    assert "Tea is green." not in second


# Screenshots


def test_a_screenshot_needs_a_page_and_its_extra(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)  # as if it was not installed
    workspace(web, "reports/chart.html", b"<p>Chart</p>")
    for path, status in (("/etc/x.html", 400), ("a.txt", 400), ("missing.html", 404)):
        answer = web.post("/api/screenshot", {"channelId": "1", "htmlFile": path})
        assert answer.status_code == status
    answer = web.post("/api/screenshot", {"channelId": "1", "htmlFile": "reports/chart.html"})
    assert "[screenshot]" in refused(answer, 501, "NOT_CONFIGURED")


def test_a_screenshot_is_taken_without_scripts_and_sent(
    web: Web, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMONPLACE_CHROMIUM", chrome())
    page = f"""<body style="margin:0;background:#00ff00"><img src="{outside.url}/spy.png">
    <script>document.body.style.background = "red"</script></body>"""
    workspace(web, "reports/chart.html", page.encode())
    body = {"channelId": "1", "htmlFile": "reports/chart.html", "caption": "Chart"}

    told = web.client.post(web.url + "/api/screenshot", json=body, timeout=120)

    assert told.status_code == 200, told.text
    assert told.json().keys() == {"success", "screenshot"}
    file = web.library.path / "mama" / "workspace" / told.json()["screenshot"]
    with Image.open(file) as image:
        assert image.size == (1280, 800)
        assert image.convert("RGB").getpixel((640, 700)) == (0, 255, 0), "no script ran"
    ((method, path, _, sent),) = outside.asked
    assert (method, path) == ("POST", "/channels/1/messages")
    assert file.read_bytes() in sent and b"Chart" in sent


# Slack


def test_a_message_is_sent_to_slack(web: Web, outside: Outside) -> None:
    body = {"channelId": "C01234567", "message": "Hello from MAMA!"}
    assert web.post("/api/slack/send", body).json() == {"success": True}
    method, path, token, sent = outside.asked[0]
    assert (method, path, token) == ("POST", "/api/chat.postMessage", "Bearer xoxb-token")
    assert "Hello from MAMA!" in str(parse_qs(sent.decode())) or b"Hello from MAMA!" in sent


def test_a_file_is_sent_before_its_message(web: Web, outside: Outside) -> None:
    def reply(path: str) -> Answer:
        if path.startswith("/api/files.getUploadURLExternal"):
            return 200, {"ok": True, "upload_url": outside.url + "/upload", "file_id": "F1"}
        return 200, {"ok": True, "files": [{"id": "F1"}]}

    outside.reply = reply
    name = workspace(web, "attachment.png", PICTURE)
    body = {
        "channelId": "C01234567", "message": "See", "filePath": name, "caption": "Check this out",
    }  # fmt: skip
    assert web.post("/api/slack/send", body).json() == {"success": True}
    order = [re.split(r"[?]", path)[0] for _, path, _, _ in outside.asked]
    assert order == [
        "/api/files.getUploadURLExternal", "/upload", "/api/files.completeUploadExternal",
        "/api/chat.postMessage",
    ]  # fmt: skip
    assert PICTURE in outside.asked[1][3]
    assert "Check" in outside.asked[2][3].decode()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"channelId": "C01"}, 400),
        ({"channelId": "C01", "message": " "}, 400),
        ({"channelId": "c01", "message": "x"}, 400),
        ({"channelId": "C01", "filePath": "memory.db"}, 400),
        ({"channelId": "C01", "filePath": ".env"}, 400),
        ({"channelId": "C01", "filePath": "../../system.db"}, 400),
        ({"channelId": "C01", "filePath": "missing.png"}, 404),
        ({"channelId": "C01", "filePath": "large.bin"}, 413),
    ],
)
def test_what_is_not_sent_to_slack(
    web: Web, outside: Outside, body: dict[str, str], status: int
) -> None:
    if body.get("filePath") == "large.bin":
        workspace(web, "large.bin", b"x" * (20 * 1024 * 1024 + 1))
    assert web.post("/api/slack/send", body).status_code == status
    assert outside.asked == []


@pytest.mark.parametrize("asked", ["3600", "0.01", "soon", ""])
def test_slack_is_not_waited_for_longer_than_discord(
    web: Web, outside: Outside, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.setattr(channels, "WAIT_SECONDS", 0.05)
    outside.retry_after = asked
    answers = [(429, {"ok": False, "error": "ratelimited"}), (200, {"ok": True})]
    outside.reply = lambda _: answers.pop(0)
    sent = web.post("/api/slack/send", {"channelId": "C01", "message": "x"})
    assert sent.json() == {"success": True} and len(outside.asked) == 2


def test_a_refusal_of_slack_is_told(web: Web, outside: Outside) -> None:
    outside.reply = lambda _: (200, {"ok": False, "error": "channel_not_found"})
    body = {"channelId": "C01", "message": "x"}
    told = refused(web.post("/api/slack/send", body), 502, "GATEWAY_ERROR")
    assert "channel_not_found" in told


@pytest.mark.parametrize(
    ("path", "body"), [("/api/discord/cron", {"prompt": "Hi"}), ("/api/report", {})]
)
def test_a_model_that_refuses_is_the_other_services_fault(
    web: Web, outside: Outside, model: FakeModel, path: str, body: dict[str, Any]
) -> None:
    model.reply = lambda _: 401
    web.memory.remember("something to report")
    told = refused(web.post(path, {"channelId": "1", **body}), 502, "GATEWAY_ERROR")
    assert "401" in told
    assert outside.asked == []


def test_without_slack_nothing_is_sent(web: Web, outside: Outside) -> None:
    web.client.put(web.url + "/api/config", json={"slack": {"bot_token": ""}})
    body = {"channelId": "C01", "message": "x"}
    refused(web.post("/api/slack/send", body), 503, "GATEWAY_NOT_CONNECTED")


# Checks of the set-up


def test_stored_secrets_are_tried_with_one_call(
    web: Web, outside: Outside, model: FakeModel
) -> None:
    model.reply = lambda _: "ready"
    outside.reply = lambda _: (200, {"ok": True, "username": "bot", "user": "slackbot"})
    told = {
        what: web.post("/api/setup/check", {"what": what}).json()
        for what in ("llm", "discord", "slack")
    }
    assert all(each["ok"] is True for each in told.values()), told
    assert "bot" in told["discord"]["message"] and "slackbot" in told["slack"]["message"]
    outside.reply = lambda _: (401, {"ok": False, "error": "invalid_auth"})
    for what in ("discord", "slack"):
        assert web.post("/api/setup/check", {"what": what}).json()["ok"] is False
    model.reply = lambda _: 401
    told = web.post("/api/setup/check", {"what": "llm"}).json()
    assert told["ok"] is False and "401" in told["message"]
    wrong = web.post("/api/setup/check", {"what": "else"})
    assert (wrong.status_code, wrong.json()["code"]) == (400, "VALIDATION_ERROR")


def test_a_file_is_kept_back_by_its_own_name(web: Web, outside: Outside) -> None:
    workspace(web, "private.db", b"rows")
    folder = web.library.path / "mama" / "workspace"
    (folder / "picture.png").symlink_to(folder / "private.db")
    for path in ("private.db/", "picture.png", str(folder / "private.db") + "/"):
        body = {"channelId": "C01234567", "filePath": path}
        refused(web.post("/api/slack/send", body), 400, "BAD_REQUEST")
    body = {"channelId": "1", "imagePath": "picture.png"}
    refused(web.post("/api/discord/image", body), 400, "BAD_REQUEST")
    assert outside.asked == []


def test_a_temporary_data_directory_is_not_sent(
    web: Web, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "TEMPORARY", web.library.path.parent)
    assert (web.library.path / "system.db-wal").exists()
    for path in (str(web.library.path / "system.db-wal"), "../config.yaml"):
        body = {"channelId": "C01234567", "filePath": path}
        refused(web.post("/api/slack/send", body), 400, "BAD_REQUEST")
    assert outside.asked == []
