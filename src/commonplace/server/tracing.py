"""OpenTelemetry spans, if the OTEL_* environment variables configure an endpoint.

The MCP SDK opens a span for each message that it handles, with the method and the tool but without
arguments and results; this module only configures the export. While tracing is on, the SDK handles
all messages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from commonplace import DISTRIBUTION, __version__
from commonplace.errors import InvalidInput

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def is_traced(environ: Mapping[str, str]) -> bool:
    """Return whether an endpoint for spans is configured."""
    return any(environ.get(name) for name in ENDPOINTS) and not environ.get("OTEL_SDK_DISABLED")


@contextlib.contextmanager
def tracing(environ: Mapping[str, str]) -> Iterator[bool]:
    """Send spans while the block runs; yield False if no endpoint is configured."""
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
            f"{' or '.join(ENDPOINTS)} is set, but the tracing packages are not installed.",
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
