"""Structured logs with request ids, and metrics for Prometheus.

Logs and metrics contain no values of arguments, no results, and of headers only the request id, so
that they leak no secret or memory.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from abc import ABC, abstractmethod
from typing import Any

from commonplace.access.caller import request_id

_LINE = "line_of_formatter"
_STANDARD_FIELDS = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", _LINE}


class _LogFormatter(logging.Formatter, ABC):
    """Formats a record once for all handlers, and exceptions without their messages."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        formatter, line = getattr(record, _LINE, (None, ""))
        if formatter is not self:
            line = self.make_line(record)
            setattr(record, _LINE, (self, line))
        return line

    @abstractmethod
    def make_line(self, record: logging.LogRecord) -> str:
        """Return the line of a record that has none yet."""

    def formatException(self, ei: Any) -> str:
        """Return the traceback with exception types, without messages, which may quote a memory."""
        text, error, seen = "", ei[1], set[int]()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            trace = "".join(traceback.format_tb(error.__traceback__))
            text = f"{trace}{type(error).__module__}.{type(error).__qualname__}\n{text}"
            error = error.__cause__ or error.__context__
        return text.rstrip()


class JsonLines(_LogFormatter):
    """Formats each record as one line of JSON."""

    def make_line(self, record: logging.LogRecord) -> str:
        """Return the record's own fields and the extra ones."""
        line = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_extra_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


class TextLines(_LogFormatter):
    """Formats each record as one line of text."""

    def make_line(self, record: logging.LogRecord) -> str:
        """Return time, level, event and the extra fields."""
        extras = "".join(f" {name}={value}" for name, value in _extra_fields(record).items())
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{at} {record.levelname.lower():7} {record.getMessage()}{extras}"
        line = line.encode("ascii", "backslashreplace").decode().replace("\n", "\\n")
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    extras = {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
    if "request" not in extras and request_id.get():
        extras["request"] = request_id.get()
    return extras


def set_up_logging(log_format: str, level: int = logging.INFO) -> None:
    """Log everything to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    quieten_libraries(level)


def log_formatter() -> logging.Formatter:
    """Return the format of the server's log; text if another program configured logging."""
    formatters = (handler.formatter for handler in logging.getLogger().handlers)
    return next((each for each in formatters if isinstance(each, _LogFormatter)), TextLines())


def quieten_libraries(level: int = logging.INFO) -> None:
    """Log only warnings and errors of libraries, and only errors where warnings quote requests."""
    for noisy in ("mcp", "httpx", "httpx2", "sse_starlette", "uvicorn.error", "asyncio"):
        logging.getLogger(noisy).setLevel(max(level, logging.WARNING))
    logging.getLogger("mcp.server.sse").setLevel(logging.ERROR)  # its warnings contain session ids


class Metrics:
    """Counters and times of requests and calls."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = CollectorRegistry()
        self.requests = Counter(
            "commonplace_http_requests", "HTTP requests", ["route", "method", "status"],
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "commonplace_http_request_seconds", "Time to answer", ["route"],
            registry=self.registry,
            buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
        )  # fmt: skip
        self.calls = Counter(
            "commonplace_calls", "Tool calls", ["dialect", "tool", "outcome"],
            registry=self.registry,
        )  # fmt: skip
        self.refused = Counter(
            "commonplace_refused",
            "Requests refused before the gate",
            ["reason"],
            registry=self.registry,
        )
        self.open_streams = Gauge(
            "commonplace_open_streams", "Event streams open now", registry=self.registry
        )
        self.open_sockets = Gauge(
            "commonplace_open_sockets", "WebSockets open now", registry=self.registry
        )

    def text(self) -> str:
        """Return the metrics in the Prometheus text format."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry).decode()
