"""`commonplace mcp --in-process` with its usual options, without loading the other commands."""

from __future__ import annotations

from pathlib import Path

from commonplace.cli import reporting
from commonplace.client.command import McpOptions
from commonplace.platform.projects import project_here
from commonplace.server import stdio


def serve(options: McpOptions) -> int:
    """Serve one client over standard input and output; return the exit code."""
    return reporting.run(lambda: _serve(options))


def _serve(options: McpOptions) -> int:
    stdio.run(
        options.dialect, data=None if options.data is None else Path(options.data),
        database=options.database, space=options.space, embedding=options.embedding,
        read_only=options.read_only, prefix=options.prefix,
        project=None if options.everywhere else project_here(options.project),
    )  # fmt: skip
    return 0
