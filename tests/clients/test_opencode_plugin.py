"""OpenCode's plugin, as Node.js runs it: what it gives to a prompt, and what it captures."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from clients.programs import node
from commonplace import Commonplace, NotFound
from commonplace.cli import agent_plugins
from commonplace.platform import hooks

HOOK = [sys.executable, "-m", "commonplace.client.hook"]
# What OpenCode does with a plugin, with its client's answers from standard input.
HOST = """
const given = JSON.parse(await new Response(process.stdin).text());
const { Commonplace } = await import(given.plugin);
const client = { session: {
  get: async ({ path }) => ({ data: given.sessions[path.id] }),
  messages: async ({ path }) => ({ data: given.messages[path.id] }),
  list: async () => { throw new Error("not now"); },
} };
const plugin = await Commonplace({ client, directory: given.directory });
const output = { message: { id: "msg_2" }, parts: given.parts };
await plugin["chat.message"]({ sessionID: "ses_1" }, output);
for (const id of ["ses_1", "ses_child", "ses_unknown"]) {
  await plugin.event({ event: { type: "session.idle", properties: { sessionID: id } } });
}
process.stdout.write(JSON.stringify(output.parts));
process.exit(0);
"""


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def message(identity: str, role: str, *parts: dict[str, Any], **info: Any) -> dict[str, Any]:
    time = {"created": 1_794_945_865_563, "completed": 1_794_945_865_999}
    return {"info": {"id": identity, "role": role, "time": time, **info}, "parts": list(parts)}


def test_a_session_of_opencode_is_given_what_matters_and_captured(tmp_path: Path) -> None:
    data, work = tmp_path / "data", tmp_path / "work"
    work.mkdir()
    with Commonplace(data, embedding="none") as memory:
        memory.remember("Half way through the move", kind="checkpoint")
        hooks.handle_event(memory, {"event": "Stop", "cwd": str(work)})
    plugin = tmp_path / "commonplace.mjs"
    command = [*HOOK, "--data", str(data)]
    plugin.write_text(agent_plugins.plugin_files("opencode", command)["commonplace.js"])
    recalled = text("recalled before", synthetic=True)
    given = {
        "plugin": str(plugin), "directory": str(work), "parts": [text("Where were we?")],
        "sessions": {"ses_1": {"directory": str(work)}, "ses_child": {"parentID": "ses_1"}},
        "messages": {
            "ses_1": [
                message("msg_1", "user", text("Use tabs. <private>hush</private>"), recalled),
                message("msg_2", "assistant", text("Tabs it is."), {"type": "tool", "tool": "x"}),
                message("msg_3", "assistant", text("not done"), time={"created": 1}),
            ],
            "ses_child": [message("msg_9", "user", text("for a sub-agent"))],
        },
    }  # fmt: skip
    done = subprocess.run(
        [node(), "--input-type=module", "-e", HOST], input=json.dumps(given), check=True,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    own, added = json.loads(done.stdout)
    assert own == given["parts"][0]  # type: ignore[index]
    assert added["synthetic"] is True and added["messageID"] == "msg_2"
    assert "Half way through the move" in added["text"]

    copy = data / "transcripts" / "opencode" / "ses_1.jsonl"
    wanted = [
        ("user", "Use tabs.", "opencode:msg_1"), ("assistant", "Tabs it is.", "opencode:msg_2"),
    ]  # fmt: skip
    with Commonplace(data, embedding="none") as opened:
        memory = opened.within(None)

        def lines() -> list[tuple[str, str, str | None]]:
            try:
                said = memory.conversations.history("opencode:ses_1")
            except NotFound:
                return []
            return [(each.speaker, each.memory.text, each.memory.ref) for each in said]

        until = time.monotonic() + 60  # the hook may have started a server, which takes it in
        while (lines() != wanted or copy.exists()) and time.monotonic() < until:
            hooks.handle_spooled_events(data, lambda _: memory)
            time.sleep(0.1)
        assert lines() == wanted
        found = memory.browse(limit=100)[0]
    assert not any("sub-agent" in one.text or "hush" in one.text for one in found)
    assert not copy.exists()


def test_a_plugin_whose_memory_is_gone_keeps_no_prompt_back(tmp_path: Path) -> None:
    plugin = tmp_path / "commonplace.mjs"
    command = ["/nowhere/hook", "--data", "/dev/null/x"]
    plugin.write_text(agent_plugins.plugin_files("opencode", command)["commonplace.js"])
    given = {
        "plugin": str(plugin), "directory": str(tmp_path), "parts": [text("Hello there")],
        "sessions": {"ses_1": {}}, "messages": {"ses_1": [message("m", "user", text("x"))]},
    }  # fmt: skip
    done = subprocess.run(
        [node(), "--input-type=module", "-e", HOST], input=json.dumps(given), check=True,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert json.loads(done.stdout) == given["parts"]
