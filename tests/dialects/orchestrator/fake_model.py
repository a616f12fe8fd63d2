"""A small OpenAI-compatible chat endpoint on loopback that says what it is told to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Reply = str | list[tuple[str, dict[str, Any]]] | int
"""A text, tool calls, or the status of a failure."""


class FakeModel:
    """Answers each request by `reply`, which is given the messages so far."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.reply: Callable[[list[dict[str, Any]]], Reply] = lambda _: "Fine."
        self.delay = 0.0
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                fake.requests.append(
                    {"headers": {k.lower(): v for k, v in self.headers.items()}, **body}
                )
                time.sleep(fake.delay)
                reply = fake.reply(body["messages"])
                status = reply if isinstance(reply, int) else 200
                text = json.dumps(
                    {"error": {"message": "no"}} if isinstance(reply, int) else fake.said(reply)
                ).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def said(self, reply: str | list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None}
        if isinstance(reply, str):
            message["content"] = reply
        else:
            message["tool_calls"] = [
                {
                    "id": f"call-{len(self.requests)}-{n}", "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for n, (name, arguments) in enumerate(reply)
            ]  # fmt: skip
        reason = "stop" if isinstance(reply, str) else "tool_calls"
        return {
            "id": "c", "object": "chat.completion", "created": 1, "model": "fake",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }  # fmt: skip

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
