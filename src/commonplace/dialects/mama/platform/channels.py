"""Send messages, reports and screenshots to Discord and Slack."""

from __future__ import annotations

import itertools
import json
import re
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx

from commonplace.dialects.contract import Call
from commonplace.dialects.mama.platform import (
    agents,
    configuration,
    heartbeat,
    paths,
    runs,
    service,
)
from commonplace.dialects.mama.platform.failures import (
    PlatformError,
    invalid_value,
    malformed,
    missing_fields,
    not_installed,
)
from commonplace.dialects.mama.platform.files import records
from commonplace.dialects.mama.platform.paths import OpenedFile
from commonplace.dialects.mama.platform.service import Service, operation, read_arguments
from commonplace.dialects.rest import Route
from commonplace.dialects.tool_schemas import TEXT
from commonplace.engine.commonplace import Commonplace
from commonplace.engine.model import Event, iso
from commonplace.platform import lookup
from commonplace.platform.agents import AgentFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DISCORD_URL, SLACK_URL = "https://discord.com/api/v10", "https://slack.com/api/"
DISCORD_CHARS, SLACK_CHARS = 2_000, 40_000
SECONDS = 20.0
MAX_RETRIES, WAIT_SECONDS = 3, 10.0
PROMPT_SECONDS = 300.0
FILE_BYTES = 20 * 1024 * 1024
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
PRIVATE_SUFFIXES = (".db", ".sqlite", ".sqlite3", ".key", ".pem", ".env")
REPORT_CHARS, REPORT_DAYS = 50_000, 30
REPORT_EVENT = "mama.report"
_DISCORD_CHANNEL = re.compile(r"[0-9]{1,25}")
_SLACK_CHANNEL = re.compile(r"[A-Z0-9]{2,30}")


def split_text(text: str, most: int) -> list[str]:
    """Split a text into parts of a limited length, at a newline or blank if possible.

    No part is blank, because the services refuse a blank message.
    """
    found = []
    while len(text) > most:
        part = text[:most]
        cut = next((at for mark in ("\n", " ") if (at := part.rfind(mark)) >= most // 2), most)
        found.append(text[:cut])
        text = text[cut:].lstrip("\n ") if cut < most else text[cut:]
    return [part for part in (*found, text) if part.strip()] or [text]


def _service_error(service_name: str, why: str) -> PlatformError:
    return PlatformError(502, "GATEWAY_ERROR", f"{service_name} {why}")


def _not_connected(name: str) -> PlatformError:
    return PlatformError(
        503, "GATEWAY_NOT_CONNECTED",
        f"{name} is not set up: set {name.lower()}.enabled and its token in the configuration.",
    )  # fmt: skip


# --- Discord -------------------------------------------------------------------------------------


def _discord_token(tree: dict[str, Any]) -> str:
    token = tree["discord"]["token"]
    if tree["discord"]["enabled"] is not True or not token:
        raise _not_connected("Discord")
    return str(token)


class Discord:
    """A client of Discord's API, for one request."""

    def __init__(self, running: Service, token: str, pause: Callable[[float], None] = time.sleep):
        self._url = (running.environ.get("COMMONPLACE_DISCORD_URL") or DISCORD_URL).rstrip("/")
        self._pause = pause
        self._client = httpx.Client(
            timeout=SECONDS, follow_redirects=False, trust_env=False,
            headers={"authorization": f"Bot {token}", "user-agent": "DiscordBot (commonplace, 1)"},
        )  # fmt: skip

    def __enter__(self) -> Discord:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def call(self, method: str, path: str, **request: Any) -> Any:
        """Send one request; retry a few times after the delay of Retry-After."""
        for attempt in range(MAX_RETRIES + 1):
            try:
                answer = self._client.request(method, self._url + path, **request)
            except httpx.HTTPError:
                raise _service_error("Discord", "cannot be reached.") from None
            if answer.status_code == 429 and attempt < MAX_RETRIES:
                self._pause(min(_retry_after(answer), WAIT_SECONDS))
                continue
            if answer.status_code >= 300:
                raise _service_error("Discord", f"answered {answer.status_code}.")
            return answer
        raise AssertionError("unreachable")

    def send(self, channel: str, text: str, file: OpenedFile | None = None) -> None:
        """Send a text in as many messages as needed, or one message with a file."""
        path = f"/channels/{channel}/messages"
        quiet: dict[str, Any] = {"allowed_mentions": {"parse": []}}
        if file is not None:
            payload = json.dumps({"content": text, **quiet})
            self.call(
                "POST", path, data={"payload_json": payload},
                files={"files[0]": (file.name, file.data)},
            )  # fmt: skip
            return
        for part in split_text(text, DISCORD_CHARS):
            self.call("POST", path, json={"content": part, **quiet})


def _retry_after(answer: httpx.Response) -> float:
    try:
        seconds = answer.json().get("retry_after")
    except (ValueError, AttributeError):
        seconds = None
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        seconds = answer.headers.get("retry-after", "1")
    return _parse_seconds(seconds)


def _parse_seconds(seconds: str | float) -> float:
    try:
        return max(0.0, float(seconds))
    except ValueError:
        return 1.0


def _discord_settings(call: Call, channel: str) -> tuple[Service, dict[str, Any], str]:
    if not _DISCORD_CHANNEL.fullmatch(channel):
        raise malformed("channelId must be 1 to 25 digits.")
    running = service.service_of(call)
    tree = configuration.effective_configuration(call.memory, running)
    return running, tree, _discord_token(tree)


def notify(running: Service, tree: dict[str, Any], channel: str, text: str) -> None:
    """Send a notification of this server to a Discord channel."""
    if not _DISCORD_CHANNEL.fullmatch(channel):
        raise malformed("The Discord channel for notifications must be 1 to 25 digits.")
    with Discord(running, _discord_token(tree)) as discord:
        discord.send(channel, text)


def discord_send(call: Call, *, channelId: str, message: str) -> Any:
    """Send a text message to a Discord channel."""
    running, _, token = _discord_settings(call, channelId)
    with Discord(running, token) as discord:
        discord.send(channelId, message)
    return {"success": True}


def discord_prompt(call: Call, *, channelId: str, prompt: str) -> Any:
    """Run a prompt and send its answer to a Discord channel."""
    running, _, token = _discord_settings(call, channelId)
    answer = agents.ask_agent(running, prompt, agent="discord", seconds=PROMPT_SECONDS)
    with Discord(running, token) as discord:
        discord.send(channelId, answer)
    return {"success": True, "response": _truncate(answer, 100)}


def _truncate(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "..."


def _refuse_other_than_image(path: str) -> None:
    if not path.lower().endswith(IMAGE_SUFFIXES):
        raise malformed(f"imagePath must end with {', '.join(IMAGE_SUFFIXES)}.")


def discord_image(call: Call, *, channelId: str, imagePath: str, caption: str) -> Any:
    """Send an image file to a Discord channel."""
    running, _, token = _discord_settings(call, channelId)
    _refuse_other_than_image(imagePath)
    file = paths.read_file(running, imagePath, most=FILE_BYTES, temporary=True)
    _refuse_other_than_image(file.name)  # the target of a link may have another type
    with Discord(running, token) as discord:
        discord.send(channelId, caption, file)
    return {"success": True}


# --- reports -------------------------------------------------------------------------------------


def _new_entries(memory: Commonplace, since: datetime, until: datetime) -> str:
    """Return memories and runs of a period, newest first, as text for a model."""
    found, size = [], 0
    new = lookup.all_memories(memory, page=200, created_since=since, created_until=until)
    stored = (f"- [{one.kind}] {one.text}" for one in new)
    for line in itertools.chain(stored, _run_lines(memory, since, until)):
        line = line[:2_000]
        size += len(line) + 1
        if size > REPORT_CHARS:
            break
        found.append(line)
    return "\n".join(found)


def _run_lines(memory: Commonplace, since: datetime, until: datetime) -> Iterator[str]:
    """Yield the runs that began or ended in a period, except heartbeats without a result."""
    for run in records.page(memory, runs.KIND, limit=200):
        output = run.attrs["output"] or run.attrs["error"] or ""
        if since <= run.updated_at <= until and output.strip() != heartbeat.NOTHING_TO_DO:
            yield f"- [run of {run.attrs['job']}: {run.attrs['status']}] {output}"


def _report_end(event: Event) -> datetime:
    """Return the end of a report's period, which is before its model was called."""
    until = (event.payload or {}).get("until")  # an older release has not stored it
    return datetime.fromisoformat(until) if isinstance(until, str) else event.at


def report(call: Call, *, channelId: str, reportType: str) -> Any:
    """Write a report of new memories, or of 30 days, and send it to a Discord channel."""
    if reportType not in ("delta", "full"):
        raise malformed("reportType must be delta or full.")
    running, _, token = _discord_settings(call, channelId)
    now = datetime.now(UTC)
    since = now - timedelta(days=REPORT_DAYS)
    last = call.memory.events.all(kind=REPORT_EVENT, newest=True, limit=1)
    if reportType == "delta" and last:
        since = _report_end(last[0])
    news = _new_entries(call.memory, since, now)
    if reportType == "delta" and not news:
        return {"success": True, "reportType": reportType, "response": heartbeat.NOTHING_TO_DO}
    form = heartbeat.FILE.load(call.memory, running).strip()
    prompt = (
        f"Write a report for a chat channel, under {DISCORD_CHARS} characters, of what follows."
        f"{chr(10) * 2 + 'Its form:' + chr(10) + form if form else ''}\n\nStored since"
        f" {since:%Y-%m-%d %H:%M} UTC:\n{news or 'nothing'}"
    )
    answer = agents.ask_agent(running, prompt, agent="report", seconds=PROMPT_SECONDS)
    with Discord(running, token) as discord:
        discord.send(channelId, answer)
    about = {"channel": channelId, "until": iso(now)}
    call.memory.events.record(REPORT_EVENT, reportType, about)
    return {"success": True, "reportType": reportType, "response": _truncate(answer, 200)}


def screenshot(call: Call, *, channelId: str, htmlFile: str, caption: str) -> Any:
    """Send a picture of an HTML file of the workspace to a Discord channel."""
    running, _, token = _discord_settings(call, channelId)
    if htmlFile.startswith("/") or not htmlFile.lower().endswith((".html", ".htm")):
        raise malformed("htmlFile must be a relative path of an .html file in the workspace.")
    page = paths.read_file(running, htmlFile, most=5_000_000)
    from commonplace.dialects.mama.platform import screenshots

    picture = screenshots.take_screenshot(running, page)
    with Discord(running, token) as discord:
        discord.send(channelId, caption, picture)
    inside = picture.path.relative_to(paths.workspace(running).resolve())
    return {"success": True, "screenshot": inside.as_posix()}


# --- Slack ---------------------------------------------------------------------------------------


def slack_client(running: Service, token: str) -> Any:
    """Return a client of Slack's own library, for the configured address."""
    try:
        from slack_sdk import WebClient
        from slack_sdk.http_retry.builtin_handlers import RateLimitErrorRetryHandler
    except ImportError:
        raise not_installed("slack-sdk") from None

    class Retries(RateLimitErrorRetryHandler):
        """Wait for the delay of Retry-After as for Discord's; the library's has no limit."""

        def prepare_for_next_attempt(self, *, state: Any, response: Any = None, **_: Any) -> None:
            headers = httpx.Headers([(k, str(v[0])) for k, v in response.headers.items() if v])
            time.sleep(min(_parse_seconds(headers.get("retry-after", "1")), WAIT_SECONDS))
            state.next_attempt_requested = True
            state.increment_current_attempt()

    url = running.environ.get("COMMONPLACE_SLACK_URL") or SLACK_URL
    client = WebClient(token=token, base_url=url.rstrip("/") + "/", timeout=int(SECONDS))
    client.retry_handlers.append(Retries(max_retry_count=MAX_RETRIES))
    return client


def _refuse_private_type(name: str) -> None:
    if name.startswith(".") or name.lower().endswith(PRIVATE_SUFFIXES):
        raise malformed("Files of this type must not be sent.")


def slack_send(
    call: Call,
    *,
    channelId: str,
    message: str,
    filePath: str,
    caption: str,
) -> Any:
    """Send a message, a file, or both to a Slack channel."""
    if service.is_blank(message):
        message = ""  # Slack would refuse it after the file was sent
    if not message and not filePath:
        raise missing_fields("message")
    if not _SLACK_CHANNEL.fullmatch(channelId):
        raise malformed("channelId must be 2 to 30 capital letters or digits.")
    running = service.service_of(call)
    tree = configuration.effective_configuration(call.memory, running)
    token = tree["slack"]["bot_token"]
    if tree["slack"]["enabled"] is not True or not token:
        raise _not_connected("Slack")
    file = None
    if filePath:
        _refuse_private_type(filePath.rpartition("/")[2])
        file = paths.read_file(running, filePath, most=FILE_BYTES, temporary=True)
        _refuse_private_type(file.name)  # the target of a link may have another type
    client = slack_client(running, token)
    from slack_sdk.errors import SlackClientError

    try:
        if file is not None:
            client.files_upload_v2(
                channel=channelId, content=file.data, filename=file.name,
                initial_comment=caption or None,
            )  # fmt: skip
        for part in split_text(message, SLACK_CHARS) if message else []:
            client.chat_postMessage(channel=channelId, text=part)
    except (SlackClientError, OSError) as error:
        why = getattr(getattr(error, "response", None), "get", lambda *_: None)("error")
        known = why if isinstance(why, str) and re.fullmatch(r"[a-z_]{1,60}", why) else ""
        raise _service_error(
            "Slack", f"refused it ({known})." if known else "refused it."
        ) from None
    return {"success": True}


# --- checks of the configuration -----------------------------------------------------------------


def check_setup(call: Call, *, what: str) -> Any:
    """Test a stored secret with one real request."""
    if what not in ("llm", "discord", "slack"):
        raise invalid_value("what must be llm, discord or slack.")
    running = service.service_of(call)
    tree = configuration.effective_configuration(call.memory, running)
    try:
        if what == "llm":
            answer = agents.ask_agent(
                running, "Answer with the one word: ready", agent="setup", seconds=60.0
            )
            return {"ok": True, "message": f"The model answered: {_truncate(answer, 100)}"}
        if what == "discord":
            if not tree["discord"]["token"]:
                return {"ok": False, "message": "No token is set."}
            with Discord(running, tree["discord"]["token"]) as discord:
                name = discord.call("GET", "/users/@me").json().get("username")
            return {"ok": True, "message": f"Signed in as {str(name)[:100]}."}
        return _check_slack(running, tree["slack"]["bot_token"])
    except (PlatformError, AgentFailed) as error:
        return {"ok": False, "message": error.message}
    except (ValueError, AttributeError):
        return {"ok": False, "message": "The service sent an invalid answer."}


def _check_slack(running: Service, token: str) -> dict[str, Any]:
    if not token:
        return {"ok": False, "message": "No bot_token is set."}
    client = slack_client(running, token)
    from slack_sdk.errors import SlackClientError

    try:
        identity = client.auth_test()
    except (SlackClientError, OSError):
        return {"ok": False, "message": "Slack refused the token, or cannot be reached."}
    return {"ok": True, "message": f"Signed in as {str(identity.get('user'))[:100]}."}


_CHANNEL = {"channelId": TEXT}
_TEXT = {"type": "string", "minLength": 1, "maxLength": 20_000}
_CAPTION = {"type": "string", "maxLength": 2_000, "default": ""}
_SLACK_TEXT = {"type": "string", "maxLength": 200_000, "default": ""}
_OUT = {"stepwise": True, "open_world": True}
OPERATIONS = (
    operation("discord_send", "Send to Discord", "operator", discord_send,
              ("channelId", "message"), {**_CHANNEL, "message": _TEXT}, **_OUT),
    operation("discord_prompt", "Run a prompt for Discord", "operator", discord_prompt,
              ("channelId", "prompt"), {**_CHANNEL, "prompt": _TEXT}, **_OUT),
    operation("discord_image", "Send an image to Discord", "operator", discord_image,
              ("channelId", "imagePath"),
              {**_CHANNEL, "imagePath": TEXT, "caption": _CAPTION}, **_OUT),
    operation("send_report", "Send a report", "operator", report, ("channelId",),
              {**_CHANNEL, "reportType": {**TEXT, "default": "delta"}}, **_OUT),
    operation("send_screenshot", "Send a screenshot", "operator", screenshot,
              ("channelId", "htmlFile"),
              {**_CHANNEL, "htmlFile": TEXT, "caption": _CAPTION}, **_OUT),
    operation("slack_send", "Send to Slack", "operator", slack_send, ("channelId",),
              {**_CHANNEL, "message": _SLACK_TEXT, "filePath": {**TEXT, "default": ""},
               "caption": _CAPTION}, **_OUT),
    operation("check_setup", "Check the set-up", "operator", check_setup, ("what",),
              {"what": TEXT}, **_OUT),
)  # fmt: skip
ROUTES = (
    Route("POST", "/api/discord/send", "discord_send", read=read_arguments),
    Route("POST", "/api/discord/cron", "discord_prompt", read=read_arguments),
    Route("POST", "/api/discord/image", "discord_image", read=read_arguments),
    Route("POST", "/api/report", "send_report", read=read_arguments),
    Route("POST", "/api/screenshot", "send_screenshot", read=read_arguments),
    Route("POST", "/api/slack/send", "slack_send", read=read_arguments, body_bytes=3_000_000),
    Route("POST", "/api/setup/check", "check_setup", read=read_arguments),
)
