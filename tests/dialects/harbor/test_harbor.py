"""A dialect that is one folder, brought by another distribution, gets everything that ours have.

The folder is `plugin/`: a package, and the metadata that `pip install` would leave beside it. No
other file of the program or of its tests names it.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commonplace.dialects import registry
from commonplace.dialects.contract import Dialect
from commonplace.server.request import Paths
from server.harness import Answer, Running, calling, cli, matrix, running

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
MCP = "/mcp/harbor"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("harbor"), require_token=True) as one:
        yield one


def made_token(server: Running, *options: str) -> str:
    data = str(server.parts.library.path)
    ended = cli("token", "create", "--dialect", "harbor", "--data", data, *options)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def call(server: Running, token: str, tool: str, **arguments: Any) -> Answer:
    return server.client(token).request(*calling(tool, arguments, path=MCP))


def test_over_stdio_its_tools_are_served(tmp_path: Path) -> None:
    messages = [
        {
            "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": {"name": "tests", "version": "1"},
            },
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        calling("log_ship", {"name": "Aurora"}, identity=1)[2],
        calling("list_ships", {}, identity=2)[2],
    ]  # fmt: skip
    command = [sys.executable, "-m", "commonplace.cli", "mcp", "--dialect", "harbor"]
    ended = subprocess.run(
        [*command, "--data", str(tmp_path), "--embedding", "none"],
        input="".join(json.dumps(message) + "\n" for message in messages),
        env={**os.environ, "PYTHONPATH": str(HERE / "plugin")},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    answers = {one["id"]: one["result"] for one in map(json.loads, ended.stdout.splitlines())}
    assert answers[0]["serverInfo"]["name"] == "harbor"
    assert answers[1]["structuredContent"]["name"] == "Aurora"
    assert answers[2]["structuredContent"] == {"ships": ["Aurora"], "total": 1}


def test_over_http_a_token_of_its_own_reaches_tools_and_route(server: Running) -> None:
    token = made_token(server, "--space", "north")
    assert call(server, token, "log_ship", name="Borealis").result["name"] == "Borealis"
    ships = {"ships": ["Borealis"], "total": 1}
    assert call(server, token, "list_ships").result == ships
    answer = server.client(token).request("GET", "/v1/harbor/ships?limit=5")
    assert (answer.status, answer.json) == (200, ships)
    assert [(one.dialect, one.tool, one.success) for one in server.calls("north")] == [
        ("harbor", "show_ships", True),
        ("harbor", "list_ships", True),
        ("harbor", "log_ship", True),
    ]
    assert server.verdict("north").faults == ()


def test_its_token_is_for_this_dialect_and_scope_alone(server: Running) -> None:
    token = made_token(server, "--space", "south", "--scope", "read-only")
    client = server.client(token)
    assert call(server, token, "list_ships").result["total"] == 0
    refused = call(server, token, "log_ship", name="Borealis")
    assert refused.status == 403
    assert 'scope="read write"' in str(refused.header("www-authenticate"))
    assert client.request(*calling("recall", {"query": "x"}, path="/mcp/commonplace")).status == 403
    denied = [one.error.partition(":")[0] for one in server.calls("south") if not one.success]
    assert denied == ["FORBIDDEN", "FORBIDDEN"]


def test_its_route_refuses_in_the_usual_format(server: Running) -> None:
    client = server.client(made_token(server, "--space", "east"))
    for query, status in (("limit=100", 200), ("limit=101", 400), ("limit=x", 400), ("q=1", 400)):
        answer = client.request("GET", f"/v1/harbor/ships?{query}")
        assert answer.status == status, query
        assert status == 200 or answer.json["error"]["code"] == "INVALID_INPUT"
    posted = client.request("POST", "/v1/harbor/ships", {})
    assert (posted.status, posted.header("allow")) == (405, "GET, HEAD, OPTIONS")
    assert server.client().request("GET", "/v1/harbor/ships").status == 401
    below = client.request("GET", "/v1/harbor/ships/one")
    assert below.status == 404


def test_what_it_reserves_no_other_dialect_writes(server: Running) -> None:
    token = server.token("west", dialects=frozenset({"commonplace"}))
    forged = {"text": "The Flying Dutchman came in.", "kind": "ship"}
    answer = server.client(token).request(*calling("remember", forged))
    assert "reserved for the Harbor dialect" in answer.error
    assert call(server, made_token(server, "--space", "west"), "list_ships").result["total"] == 0


def test_it_is_an_oauth_resource(server: Running) -> None:
    metadata = server.client().request("GET", f"/.well-known/oauth-protected-resource{MCP}").json
    assert metadata["resource"] == f"{server.settings.base_url}{MCP}"
    assert metadata["scopes_supported"] == ["read", "write", "delete"]
    challenge = server.client().request(*calling("list_ships", {}, path=MCP))
    assert challenge.status == 401
    assert f"oauth-protected-resource{MCP}" in str(challenge.header("www-authenticate"))


def test_the_command_line_knows_it(tmp_path: Path) -> None:
    refused = cli("token", "create", "--dialect", "harbour", "--data", str(tmp_path))
    assert refused.returncode == 2 and "harbor" in refused.stderr


def test_it_has_rows_in_the_matrices() -> None:
    assert set(matrix("operations")["harbor"]) == {"log_ship", "list_ships", "show_ships"}
    assert {MCP, "/v1/harbor/ships"} <= matrix("routes").keys()


def test_the_docs_describe_it() -> None:
    spec = importlib.util.spec_from_file_location("write_docs", ROOT / "tools" / "write_docs.py")
    assert spec is not None and spec.loader is not None
    docs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(docs)
    page = docs.dialects_page((*registry.built_in_names(), "harbor"))
    assert "| Harbor | `/mcp/harbor` | 1, at `/v1/harbor` | 2 |" in page


def test_the_guide_shows_this_folder() -> None:
    guide = (ROOT / "docs" / "new-dialect.md").read_text()
    for name in ("__init__.py", "dialect.py"):
        assert (HERE / "plugin" / "harbor_dialect" / name).read_text() in guide
    name, _, package = (
        (HERE / "plugin" / "harbor_dialect-1.0.dist-info" / "entry_points.txt")
        .read_text().splitlines()[1].partition(" = ")
    )  # fmt: skip
    assert f'[project.entry-points."{registry.ENTRY_POINT_GROUP}"]\n{name} = "{package}"' in guide


def test_the_guide_names_every_field_of_a_declaration() -> None:
    guide = (ROOT / "docs" / "new-dialect.md").read_text()
    fields = [field.name for field in dataclasses.fields(Dialect)]
    assert [name for name in fields if f"`{name}`" not in guide and f" {name}=" not in guide] == []


def test_two_dialects_at_one_path_are_refused() -> None:
    harbor = registry.load("harbor")
    with pytest.raises(ValueError, match="two dialects are served at /mcp/harbor"):
        Paths({**registry.load_all(), "copy": harbor}, "commonplace", public_paths=())
