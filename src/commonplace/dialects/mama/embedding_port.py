"""The embedding server of the contract, on loopback.

Hooks use it to compare the vectors of texts.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from commonplace.errors import CommonplaceError

if TYPE_CHECKING:
    from commonplace.embedding.provider import Embedder

HOST = "127.0.0.1"
HOST_NAMES = ("127.0.0.1", "localhost", "[::1]")
BODY_BYTES = 1_048_576
MAX_TEXTS = 256
MAX_PARALLEL_REQUESTS = 8
SECONDS = 30

log = logging.getLogger(__name__)


def _encoder(embedder: Embedder) -> Any:
    """Return the encoder for cosine similarity; the built-in model has two encoders."""
    return getattr(embedder, "english", embedder)


class _HttpError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # On Windows address reuse would let another process take the port.
    allow_reuse_address = os.name == "posix"

    def __init__(self, port: int, embedder: Embedder | None) -> None:
        self.embedder = embedder
        self.loaded = False
        self.room = threading.Semaphore(MAX_PARALLEL_REQUESTS)
        super().__init__((HOST, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a broken connection at the debug level."""
        del request, client_address
        log.debug("an embedding request failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = SECONDS
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer({"/health": self._health})

    def do_POST(self) -> None:
        self._answer({"/embed": self._embed, "/embed/batch": self._embed_batch})

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests, because they contain texts of memories."""

    def version_string(self) -> str:
        return "commonplace"

    def _answer(self, paths: dict[str, Any]) -> None:
        with self.server.room:
            try:
                self._check_address()
                path = self.path.partition("?")[0]
                if path not in paths:
                    raise _HttpError(404, "Not found")
                status, body = 200, paths[path]()
            except _HttpError as error:
                status, body = error.status, {"error": str(error)}
            except CommonplaceError as error:
                status, body = 500, {"error": error.message}
            except Exception:
                log.exception("an embedding request failed")
                status, body = 500, {"error": "Internal error; see the server's log."}
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.send_header("x-content-type-options", "nosniff")
        if status != 200:
            # The request body may be unread, so the connection cannot be reused.
            self.send_header("connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(content)

    def _check_address(self) -> None:
        port = self.server.server_address[1]
        if self.headers.get_all("host", []) not in [[f"{name}:{port}"] for name in HOST_NAMES]:
            raise _HttpError(421, "Host name not allowed: use 127.0.0.1 or localhost.")
        sites = self.headers.get_all("sec-fetch-site", [])
        if "origin" in self.headers or any(site != "none" for site in sites):
            raise _HttpError(403, "Requests from web pages are not accepted.")

    def _health(self) -> dict[str, Any]:
        embedder = self.server.embedder
        return {
            "status": "ok",
            "modelLoaded": self.server.loaded,
            "model": _encoder(embedder).id if embedder else None,
            "dim": _encoder(embedder).dimensions if embedder else 0,
            "chatEnabled": False,
        }

    def _embed(self) -> dict[str, Any]:
        text = self._json_body().get("text")
        if not isinstance(text, str) or not text:
            raise _HttpError(400, 'Missing or invalid "text" field')
        (vector,), latency = self._embed_texts([text])
        return {"embedding": vector, "dim": len(vector), "latency": latency}

    def _embed_batch(self) -> dict[str, Any]:
        texts = self._json_body().get("texts")
        if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
            raise _HttpError(400, 'Missing or invalid "texts" array')
        if len(texts) > MAX_TEXTS:
            raise _HttpError(400, f"At most {MAX_TEXTS} texts are embedded at once")
        vectors, latency = self._embed_texts(texts)
        return {"embeddings": vectors, "count": len(vectors), "latency": latency}

    def _embed_texts(self, texts: list[str]) -> tuple[list[list[float]], int]:
        embedder = self.server.embedder
        if embedder is None:
            raise _HttpError(503, "There is no embedding provider")
        begun = time.perf_counter()
        vectors = _encoder(embedder).embed(texts).tolist() if texts else []
        self.server.loaded = True
        return vectors, round((time.perf_counter() - begun) * 1000)

    def _json_body(self) -> dict[str, Any]:
        if self.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
            raise _HttpError(415, "The body must be application/json")
        length = self.headers.get("content-length", "")
        if not length.isdigit():
            raise _HttpError(411, "Content-Length is missing")
        if int(length) > BODY_BYTES:
            raise _HttpError(413, f"The body is larger than {BODY_BYTES:,} bytes")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise _HttpError(400, "Invalid JSON") from None
        if not isinstance(body, dict):
            raise _HttpError(400, "Invalid JSON")
        return body


@contextlib.contextmanager
def serving(port: str, embedder: Embedder | None) -> Iterator[int | None]:
    """Serve the port during the block; yield the port, or None if it is in use."""
    try:
        server = _Server(_port_number(port), embedder)
    except (ValueError, OSError) as error:  # usually another server process already uses the port
        log.warning(
            "the embedding port cannot be used", extra={"port": port[:20], "why": str(error)}
        )
        yield None
        return
    thread = threading.Thread(target=server.serve_forever, name="mama-embedding", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


def _port_number(port: str) -> int:
    if not (port.isascii() and port.isdigit() and int(port) < 65_536):
        raise ValueError("MAMA_EMBEDDING_PORT is not a port number")
    return int(port)
