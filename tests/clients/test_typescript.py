"""The generated client for TypeScript, run by Node.js against a real server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from commonplace.dialects import registry
from commonplace.server.openapi import openapi_document

from . import programs
from .conftest import Reachable

sys.path.append(str(Path(__file__).parents[2] / "tools"))
import write_client

ROOT = Path(__file__).parents[2]


def _run(program: str, server: Reachable, folder: Path, token: str) -> str:
    (folder / "commonplace.ts").write_text(write_client.client_source())
    (folder / "program.ts").write_text(program)
    done = subprocess.run(
        [programs.node(), str(folder / "program.ts")],
        env={"PATH": os.environ["PATH"], "MEMORY_URL": server.address,
             "COMMONPLACE_TOKEN": token, "NODE_NO_WARNINGS": "1"},
        capture_output=True, text=True, timeout=programs.SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_program_of_the_page_runs(server: Reachable, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "typescript.md").read_text()
    (program,) = re.findall(r"^```ts\n(.*?)^```", page, re.M | re.S)
    told = _run(program, server, tmp_path, server.token)
    assert told.splitlines() == ["We ship on Thursdays", "404 NOT_FOUND"]


def test_a_wrong_token_is_an_error_with_its_status(server: Reachable, tmp_path: Path) -> None:
    program = """
import { Commonplace } from "./commonplace.ts";
const memory = new Commonplace(process.env.MEMORY_URL, { token: "cpt_wrong" });
await memory.me().catch((error) => console.log(error.name, error.status));
"""
    assert _run(program, server, tmp_path, "") == "CommonplaceError 401\n"


def test_every_route_has_a_method() -> None:
    dialect = registry.load("commonplace")
    assert dialect.rest is not None and dialect.rest.openapi is not None
    text = write_client.client_source()
    for path, methods in openapi_document(dialect, dialect.rest, dialect.rest.openapi)[
        "paths"
    ].items():
        start = path.split("{")[0]
        for verb in methods:
            assert f'this.request("{verb.upper()}", `{start}' in text, (verb, path)
