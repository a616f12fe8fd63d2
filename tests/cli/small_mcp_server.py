"""Somebody else's small MCP server for the tests of `connect --check`, which can also misbehave.

small_mcp_server.py good|hang|exit|garbage|chatty|failing|reader|other|empty ARGUMENTS…

It speaks the protocol by hand, since the SDK takes longer to load than all else that is tried.
"""

from __future__ import annotations

import json
import os
import select
import sys
from typing import Any


def answer(behaviour: str, request: dict[str, Any]) -> dict[str, Any]:
    """The result of a request, or an error."""
    if request["method"] == "initialize":
        result: dict[str, Any] = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "small", "version": "1.2.3"},
        }
    elif request["method"] == "tools/list":
        tool: dict[str, Any] = {"name": "context", "inputSchema": {"type": "object"}}
        if behaviour in ("reader", "other"):
            tool |= {"name": "look", "annotations": {"readOnlyHint": behaviour == "reader"}}
        result = {"tools": [] if behaviour == "empty" else [tool]}
    elif request["method"] == "tools/call":
        said = f"nothing is known yet; {os.environ.get('SMALL', 'no')} {' '.join(sys.argv[2:])}"
        if behaviour == "failing":
            said = "the memory is on fire"
        text = {"type": "text", "text": said}
        result = {"content": [text], "isError": behaviour == "failing"}
    else:
        return {"error": {"code": -32601, "message": "Method not found"}}
    return {"result": result}


def main(behaviour: str) -> None:
    if behaviour == "exit":
        sys.exit("no such luck")
    if behaviour == "hang":
        sys.stdin.read()
    ended = False
    while behaviour == "garbage" and not ended:
        print("Hello! I am starting up.", flush=True)  # noqa: T201
        ready, _, _ = select.select([0], [], [], 0.05)
        ended = bool(ready) and not os.read(0, 65_536)
    if behaviour == "chatty":
        print("Hello! I am starting up.", flush=True)  # noqa: T201
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            told = {"jsonrpc": "2.0", "id": request["id"], **answer(behaviour, request)}
            print(json.dumps(told), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
