"""Write the MCP bundle for Claude Desktop: a ZIP file with a manifest of version 0.3.

python tools/write_bundle.py DIR    writes DIR/commonplace.mcpb

The bundle holds no program: it starts this version of the distribution with `uvx`.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

from write_plugin import PUBLISHER, SERVER, SUMMARY

from commonplace import DISTRIBUTION, __version__
from commonplace.dialects.commonplace.dialect import DIALECT

ENTRY_POINT = "server/main.py"
MAIN_SOURCE = '''\
"""Starts the server where the distribution is installed; the manifest runs `uvx` instead."""

from commonplace.cli import main

main(["mcp"])
'''
FILE_TIME = (2026, 1, 1, 0, 0, 0)  # the same bytes at every run


def manifest() -> dict[str, Any]:
    """Return the manifest, which describes the bundle."""
    return {
        "manifest_version": "0.3",
        "name": SERVER,
        "display_name": DIALECT.title,
        "version": __version__,
        "description": SUMMARY,
        "author": PUBLISHER,
        "license": "Apache-2.0",
        "keywords": ["memory", "search", "offline"],
        "server": {
            "type": "python",
            "entry_point": ENTRY_POINT,
            "mcp_config": {
                "command": "uvx",
                "args": ["--from", f"{DISTRIBUTION}=={__version__}", "commonplace", "mcp"],
                "env": {"COMMONPLACE_DATA": "${user_config.data}"},
            },
        },
        "tools": [
            {"name": tool.name, "description": tool.description}
            for tool in DIALECT.tools
            if not tool.hidden
        ],
        "compatibility": {
            "platforms": ["darwin", "win32", "linux"],
            "runtimes": {"python": ">=3.11"},
        },
        "user_config": {
            "data": {
                "type": "directory",
                "title": "Data directory",
                "description": "Where the memories are stored.",
                "required": False,
                "default": "${HOME}/.commonplace",
            }
        },
    }


def write_bundle(folder: Path) -> Path:
    """Write the bundle into a folder, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{SERVER}.mcpb"
    files = {"manifest.json": json.dumps(manifest(), indent=2) + "\n", ENTRY_POINT: MAIN_SOURCE}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, text in files.items():
            bundle.writestr(zipfile.ZipInfo(name, FILE_TIME), text)
    return path


if __name__ == "__main__":
    sys.stdout.write(f"{write_bundle(Path(sys.argv[1]))}\n")
