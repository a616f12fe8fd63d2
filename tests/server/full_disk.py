"""A server on a small file system that is filled: run in a mount namespace of its own.

`python -m server.full_disk DIRECTORY` mounts it, and prints what was seen as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from commonplace.dialects import registry
from commonplace.dialects.being import beings
from commonplace.engine.commonplace import Commonplace
from server.harness import BOOKKEEPING, Answer, Client, Running, content_of, matrix, running

SIZE = "40m"
NO_ROOM = "The disk is full"


class Caller:
    """Somebody who asks for everything, with one credential."""

    def __init__(self, server: Running) -> None:
        memory = Commonplace(library=server.parts.library, space="default")
        self.own = {
            "own": memory.remember("own kettle", kind="entity").id,
            "other": memory.remember("other").id,
            "kept": memory.remember("kept", kind="decision").id,
            "checkpoint": memory.remember("half way", kind="checkpoint").id,
            "being": beings.create(memory, "Aria").id,
        }
        self.own["relationship"] = self.own["other"]
        self.own["operation"] = memory.history.operations(limit=1)[0].id
        self.client = server.client(server.token())
        self.being = server.client(server.token(dialects=frozenset({"being"})))

    def tools(self, *, reads: bool) -> dict[str, Answer]:
        """The answers of all MCP tools that read, or of those that do not."""
        rows, answers = matrix("operations"), {}
        for name in registry.names():
            dialect = registry.load(name)
            client = self.being if name == "being" else self.client
            path = f"/mcp/{self.own['being']}" if name == "being" else dialect.paths[0]
            for tool in dialect.tools:
                if tool.reads == reads and tool.name != "get_storage_access":
                    arguments = self._put(rows[name][tool.name]["arguments"])
                    answers[f"{name} {tool.name}"] = client.call(tool.name, arguments, path=path)
        return answers

    def routes(self, *, reads: bool) -> dict[str, Answer]:
        """The same over REST."""
        rows, answers = matrix("operations"), {}
        for name in registry.names():
            dialect = registry.load(name)
            operations = {tool.name: tool for tool in dialect.operations}
            for route in dialect.rest.routes if dialect.rest else ():
                tool = operations.get(route.operation)
                if tool is None or tool.reads != reads or tool.open_world:
                    continue  # what asks somebody outside needs more than a disk
                if route.public or route.method == "WEBSOCKET":
                    continue
                given = self._put(rows[name][tool.name]["arguments"])
                if "being_id" in given:
                    given["being_id"] = self.own["being"]
                known = defaultdict(lambda: "current", id=self.own["kept"]) | given
                path = route.path.format_map(known)
                rest = {key: one for key, one in given.items() if f"{{{key}}}" not in route.path}
                if route.method in ("GET", "DELETE"):
                    path, rest = f"{path}?{urlencode(rest)}" if rest else path, None
                answers[f"{route.method} {route.path}"] = self.client.request(
                    route.method, path, rest
                )
        return answers

    def _put(self, told: Any) -> Any:
        if isinstance(told, dict):
            return {name: self._put(one) for name, one in told.items()}
        if isinstance(told, list):
            return [self._put(one) for one in told]
        return self.own[told[1:]] if isinstance(told, str) and told[:1] == "$" else told


def fill(disk: Path) -> None:
    """Write until nothing more fits."""
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def shown(answers: dict[str, Answer]) -> dict[str, Any]:
    return {name: _shown(answer) for name, answer in answers.items()}


def _shown(answer: Answer) -> dict[str, Any]:
    body = answer.body.decode()
    result = answer.json.get("result", {}) if answer.body[:1] == b"{" else {}
    return {
        "status": answer.status,
        "failed": bool(isinstance(result, dict) and result.get("isError")),
        "no_room": NO_ROOM in body or "STORAGE_FULL" in body,
        "body": body[:300],
    }


def main(place: Path) -> dict[str, Any]:
    disk = place / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", disk], check=True)
    seen: dict[str, Any] = {}
    with running(disk) as server:
        caller = Caller(server)
        ballast = server.file("default").with_name("default.db-ballast")
        seen["before"] = shown(caller.tools(reads=True) | caller.routes(reads=True))
        seen["ballast"] = ballast.stat().st_size
        fill(disk)
        rows = server.verdict().rows
        full = caller.tools(reads=True) | caller.routes(reads=True)
        seen["reads"] = shown(full)
        seen["rows"] = server.verdict().rows - rows
        content = content_of(server.file("default"), BOOKKEEPING)
        seen["writes"] = shown(caller.tools(reads=False) | caller.routes(reads=False))
        stored = caller.client.request("POST", "/api/v2/memories", {"content": "A kettle"})
        seen["writes"]["POST /api/v2/memories"] = _shown(stored)
        seen["changed"] = content_of(server.file("default"), BOOKKEEPING) != content
    with running(disk) as server:  # and started on it
        caller.client = server.client()
        seen["restarted"] = _shown(caller.client.call("recall", {"query": "kettle"}))
        seen["last"] = until_used_up(server, caller.client)
        seen["left"] = ballast.stat().st_size
        rows = server.verdict().rows
        seen["refused"] = shown(caller.routes(reads=True))
        seen["refused_rows"] = server.verdict().rows - rows
        (disk / "filler").unlink()
        seen["again"] = _shown(caller.client.call("remember", {"text": "There is room again"}))
        seen["whole"] = ballast.stat().st_size
        seen["faults"] = [fault.what for fault in server.verdict().faults]
    return seen


def until_used_up(server: Running, client: Client) -> dict[str, Any]:
    """Read until that is refused too: how often it was answered, and audited."""
    rows, answered = server.verdict().rows, 0
    while True:
        answer = _shown(client.call("recall", {"query": "kettle"}))
        if answer["failed"]:
            audited = server.verdict().rows - rows
            return {"answered": answered, "audited": audited, "answer": answer}
        answered += 1


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
