"""Run the TypeScript example of the Being contract against a real being; change only its host and
token.

It needs node and npm; `make cowork` runs it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "tests" / "dialects" / "being" / "cowork"
PROGRAM = [sys.executable, "-m", "commonplace.cli"]


def _program_output(*words: str) -> str:
    done = subprocess.run([*PROGRAM, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def main() -> int:
    """Serve, make a being, and let the example talk to it."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        print("node and npm are needed", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        work, data = Path(scratch) / "cowork", Path(scratch) / "data"
        shutil.copytree(EXAMPLE, work)
        subprocess.run(
            [npm, "install", "--silent", "--no-audit", "--no-fund"], cwd=work, check=True
        )
        being = _program_output("being", "create", "Aria", "--data", str(data))
        token = _program_output("token", "create", "--dialect", "being", "--data", str(data))
        server = subprocess.Popen(
            [*PROGRAM, "serve", "--port", "0", "--data", str(data), "--embedding", "none"],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found is not None
            source = (work / "example.ts").read_text(encoding="utf-8")
            source = source.replace("https://worker.ruddia.com/mcp/", f"{found[0]}/mcp/{being}")
            source = source.replace("brt_xxxxxxxxxxxxxxxx", token)
            whole = 'const userInput = "How is the garden?";\n' + source
            whole += (work / "then.ts").read_text(encoding="utf-8")
            (work / "run.ts").write_text(whole, encoding="utf-8")
            tsx = work / "node_modules" / "tsx" / "dist" / "cli.mjs"
            return subprocess.run([node, str(tsx), "run.ts"], cwd=work, timeout=120).returncode
        finally:
            server.terminate()
            server.wait(20)


if __name__ == "__main__":
    sys.exit(main())
