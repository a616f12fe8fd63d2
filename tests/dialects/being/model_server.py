"""A small real model service: it speaks both wires, well or badly, and answers by a script."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Script = Callable[[str, Any], Any]
"""(what is asked for, what is shown) to the answer: text as it is, anything else as JSON."""

PURPOSES = {
    '"scenes": [': "extract",
    '"roots": [': "classify",
    '"merges": [': "consolidate",
    '"splits": [': "split",
    '"diary": text': "reflect",
    '"keywords": [': "choose",
}


class ModelServer:
    """What is asked is kept; `manners` are taken in turn, the last for good."""

    def __init__(self) -> None:
        self.script: Script = lambda what, shown: "I would rather not say."
        self.manners: list[str] = ["well"]
        self.asked: list[tuple[str, Any]] = []
        self.keys: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.during: Callable[[str], None] = lambda what: None
        """Called while the model thinks."""
        self.url = ""
        self.sent = 0
        """Bytes of the last answer."""
        self.stop = threading.Event()

    def environ(self) -> dict[str, str]:
        return {
            "COMMONPLACE_LLM_ANTHROPIC_URL": self.url,
            "COMMONPLACE_LLM_OPENAI_URL": f"{self.url}/v1",
        }

    def count(self, what: str) -> int:
        return sum(1 for each, _ in self.asked if each == what)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: ModelServer

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        key = self.headers.get("x-api-key") or self.headers.get("authorization", "")
        anthropic = self.path.partition("?")[0].endswith("/messages")
        told, shown = _read(body, anthropic)
        what = next((name for mark, name in PURPOSES.items() if mark in told), "other")
        model = self.model
        model.bodies.append(body)
        model.keys.append(key.removeprefix("Bearer "))
        model.asked.append((what, shown))
        manner = model.manners.pop(0) if len(model.manners) > 1 else model.manners[0]
        if manner == "hung":
            model.stop.wait(30)
            self.close_connection = True
            return
        if manner == "slow":
            time.sleep(0.5)
        if manner in ("429", "500", "401"):
            headers = {"retry-after": "0"} if manner == "429" else {}
            self._send(int(manner), json.dumps({"error": {"message": "no", "type": "e"}}), headers)
            return
        if manner == "garbage":
            self._send(200, "<html>{{{ not json", {})
            return
        if manner == "endless":
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.close_connection = True
            with contextlib.suppress(ConnectionError):
                while not model.stop.is_set():
                    self.wfile.write(b" " * 65_536)
                    model.sent += 65_536
            return
        if manner == "compressed":
            self._send(200, "{}", {"content-encoding": "gzip"})
            return
        if manner == "empty":
            self._send(200, "{}", {})
            return
        model.during(what)
        answer = model.script(what, shown)
        text = answer if isinstance(answer, str) else json.dumps(answer)
        written = _written(text, body["model"], anthropic)
        if anthropic and body.get("stream"):
            self._send(200, _streamed(written), {"content-type": "text/event-stream"})
        else:
            self._send(200, json.dumps(written), {})

    def _send(self, status: int, text: str, headers: dict[str, str]) -> None:
        data = text.encode()
        self.model.sent = len(data)
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def _read(body: dict[str, Any], anthropic: bool) -> tuple[str, Any]:
    """(the instructions, what was shown) of a request."""

    def plain(content: Any) -> str:
        if isinstance(content, str):
            return content
        return "".join(part.get("text", "") for part in content)

    messages = body["messages"]
    if anthropic:
        told, prompt = plain(body.get("system", "")), plain(messages[-1]["content"])
    else:
        told, prompt = plain(messages[0]["content"]), plain(messages[-1]["content"])
    try:
        return told, json.loads(prompt)
    except ValueError:
        return told, prompt


def _written(text: str, model: str, anthropic: bool) -> dict[str, Any]:
    if anthropic:
        return {
            "id": "m", "type": "message", "role": "assistant", "model": model,
            "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
            "stop_sequence": None, "usage": {"input_tokens": 1000, "output_tokens": 100},
        }  # fmt: skip
    return {
        "id": "m", "object": "chat.completion", "created": 1, "model": model,
        "choices": [{"index": 0, "finish_reason": "stop",
                     "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
    }  # fmt: skip


def _streamed(message: dict[str, Any]) -> str:
    """A message of Anthropic's wire as the events that a stream has."""
    (block,), usage = message["content"], message["usage"]
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {**block, "text": ""}},
        {"type": "content_block_delta", "index": 0,
         "delta": {"type": "text_delta", "text": block["text"]}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "usage": usage,
         "delta": {"stop_reason": "end_turn", "stop_sequence": None}},
        {"type": "message_stop"},
    ]  # fmt: skip
    return "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)


@contextmanager
def model_server() -> Iterator[ModelServer]:
    model = ModelServer()
    handler = type("Handler", (_Handler,), {"model": model})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    model.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield model
    finally:
        model.stop.set()
        server.shutdown()
        thread.join()
        server.server_close()
