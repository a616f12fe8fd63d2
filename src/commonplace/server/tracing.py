"""Spans for OpenTelemetry, when an operator asks for them by its own OTEL_* variables.

The protocol's SDK opens a span for each message that it handles, with the method and the tool but
no argument and no result; this module only decides where spans are sent. While tracing is on, the
SDK handles all messages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from commonplace import DISTRIBUTION, __version__
from commonplace.errors import InvalidInput

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def is_traced(environ: Mapping[str, str]) -> bool:
    """Whether an endpoint for spans is configured."""
    return any(environ.get(name) for name in ENDPOINTS) and not environ.get("OTEL_SDK_DISABLED")


@contextlib.contextmanager
def tracing(environ: Mapping[str, str]) -> Iterator[bool]:
    """Send spans while the block runs; False if no endpoint is configured."""
    if not is_traced(environ):
        yield False
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise InvalidInput(
            f"{' or '.join(ENDPOINTS)} is set, and tracing is not installed.",
            hint=f"pip install '{DISTRIBUTION}[otel]', or unset it.",
        ) from error
    named = Resource.create({"service.name": "commonplace", "service.version": __version__})
    provider = TracerProvider(resource=named)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    try:
        yield True
    finally:
        provider.shutdown()
