"""A model service on loopback, in the formats of three vendors; it says the same to every request.

It streams as theirs do, and keeps the requests, so that a test sees what an agent gave its model.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SAID = "It is noted."


class Model(ThreadingHTTPServer):
    """The service; `requests` are the bodies of what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[Any] = []
        self.tokens = 1
        """What it says that a request has; many make an agent compact its context."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextlib.contextmanager
def serving_model() -> Iterator[Model]:
    """A model service, which is stopped at the end."""
    with Model() as model:
        thread = threading.Thread(target=model.serve_forever)
        thread.start()
        try:
            yield model
        finally:
            model.shutdown()
            thread.join()


def _anthropic(asked: Any, tokens: int) -> list[dict[str, Any]]:
    usage = {"input_tokens": tokens, "output_tokens": 1}
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": asked.get("model", "m"),
        "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": SAID}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def _openai(_: Any, tokens: int) -> list[dict[str, Any]]:
    content = [{"type": "output_text", "text": SAID}]
    item = {"type": "message", "role": "assistant", "id": "msg_1", "content": content}
    usage = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
    return [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}},
    ]


def _google(_: Any, tokens: int) -> list[dict[str, Any]]:
    content = {"role": "model", "parts": [{"text": SAID}]}
    usage = {
        "promptTokenCount": tokens, "candidatesTokenCount": 1, "totalTokenCount": tokens + 1
    }  # fmt: skip
    answer = {"content": content, "finishReason": "STOP", "index": 0}
    return [{"candidates": [answer], "usageMetadata": usage}]


# A part of the path, and what a stream then consists of.
FORMATS = {"/v1/messages": _anthropic, "/responses": _openai, "streamGenerateContent": _google}


class _Handler(BaseHTTPRequestHandler):
    server: Model

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_GET(self) -> None:
        self.send_error(404)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        self.server.requests.append(asked)
        events = next((make for part, make in FORMATS.items() if part in self.path), None)
        if events is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in events(asked, self.server.tokens):
            named = f"event: {event['type']}\n" if "type" in event else ""
            self.wfile.write(f"{named}data: {json.dumps(event)}\n\n".encode())
