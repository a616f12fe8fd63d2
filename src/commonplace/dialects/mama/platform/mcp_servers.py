"""The MCP servers in mcp-config.json. They are listed, but never started."""

from __future__ import annotations

import json
import re
from typing import Any

from commonplace.dialects.contract import Call
from commonplace.dialects.mama.platform import service
from commonplace.dialects.mama.platform.failures import malformed, not_found
from commonplace.dialects.mama.platform.files import StoredFile
from commonplace.dialects.mama.platform.service import operation
from commonplace.dialects.rest import Route
from commonplace.dialects.tool_schemas import TEXT
from commonplace.platform.exclusive import exclusive

SERVERS = "mcpServers"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def _parse_json(data: bytes) -> dict[str, Any]:
    tree = json.loads(data)
    if not isinstance(tree, dict) or not isinstance(tree.get(SERVERS, {}), dict):
        raise ValueError("it is not an object with mcpServers")
    return tree


def _render_json(tree: dict[str, Any]) -> bytes:
    return (json.dumps(tree, ensure_ascii=False, indent=2) + "\n").encode()


FILE = StoredFile("mcp-config.json", _parse_json, _render_json, {SERVERS: {}})


def list_servers(call: Call) -> Any:
    """List MCP servers without their commands, addresses and environment variables."""
    tree = FILE.load(call.memory, service.service_of(call))
    return {
        "servers": [
            {
                "name": name,
                "type": server.get("type") or "stdio",
                "hasCommand": bool(server.get("command")),
                "hasUrl": bool(server.get("url")),
                "hasArgs": bool(server.get("args")),
                "argCount": len(server["args"]) if isinstance(server.get("args"), list) else 0,
            }
            for name, server in sorted(tree.get(SERVERS, {}).items())
            if isinstance(server, dict)
        ]
    }


def delete_server(call: Call, *, name: str) -> Any:
    """Remove an MCP server from the configuration."""
    if not _NAME.fullmatch(name):
        raise malformed("name must be 1 to 64 letters, digits, - or _.")
    running = service.service_of(call)
    with exclusive(call.memory, "delete MCP server"):
        tree = FILE.load(call.memory, running)
        servers = dict(tree.get(SERVERS, {}))
        if name not in servers:
            raise not_found("MCP server")
        del servers[name]
        FILE.save(call.memory, running, {**tree, SERVERS: servers})
    return {"deleted": True, "name": name}


OPERATIONS = (
    operation("list_mcp_servers", "List MCP servers", "operator", list_servers),
    operation(
        "delete_mcp_server", "Delete an MCP server", "operator", delete_server, ("name",),
        {"name": TEXT},
    ),
)  # fmt: skip
ROUTES = (
    Route("GET", "/api/mcp-servers", "list_mcp_servers"),
    Route("DELETE", "/api/mcp-servers/{name}", "delete_mcp_server"),
)
