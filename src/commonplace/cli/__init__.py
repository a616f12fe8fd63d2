"""The command line, a thin skin over the library."""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(args: Sequence[str] | None = None) -> None:
    """Run one command and exit with a code that means something."""
    try:
        from commonplace.cli.app import run

        code = run(sys.argv[1:] if args is None else args)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; everything stored so far is safe\n")
        code = INTERRUPTED
    sys.exit(code)
