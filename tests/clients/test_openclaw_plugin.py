"""OpenClaw's plugin, as Node.js runs it: what it gives to a prompt, and what it captures."""

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
# What OpenClaw's documentation says that it does with a plugin; each call is one hook.
HOST = """
const given = JSON.parse(await new Response(process.stdin).text());
const { default: plugin } = await import(given.plugin);
const handlers = {}, answers = [];
plugin.register({ on: (name, handler) => { handlers[name] = handler; } });
for (const [name, event, context] of given.calls) {
  answers.push((await handlers[name](event, context)) ?? null);
}
process.stdout.write(JSON.stringify([plugin.id, answers]));
process.exit(0);
"""


def played(folder: Path, command: list[str], calls: list[Any]) -> list[Any]:
    """What the plugin returns to these hooks."""
    for name, content in agent_plugins.texts("openclaw", command).items():
        (folder / name).write_text(content)
    about = json.loads((folder / "package.json").read_text())
    (entry,) = about["openclaw"]["extensions"]
    given = {"plugin": str(folder / entry), "calls": calls}
    done = subprocess.run(
        [node(), "--input-type=module", "-e", HOST], input=json.dumps(given), check=True,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    identity, answers = json.loads(done.stdout)
    manifest = json.loads((folder / "openclaw.plugin.json").read_text())
    setting = agent_plugins.PLUGINS["openclaw"].setting
    assert setting is not None and setting[0][-1] == identity == manifest["id"]
    return list(answers)


def said(role: str, words: str, at: int) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": words}], "timestamp": at}


def test_a_session_of_openclaw_is_given_what_matters_and_captured(tmp_path: Path) -> None:
    data, work = tmp_path / "data", tmp_path / "work"
    work.mkdir()
    with Commonplace(data, embedding="none") as memory:
        memory.remember("Half way through the move", kind="checkpoint")
        hooks.answer(memory, {"event": "Stop", "cwd": str(work)})
    person = {"sessionId": "s1", "sessionKey": "agent:main:main", "workspaceDir": str(work),
              "trigger": "user"}  # fmt: skip
    timer = {**person, "trigger": "heartbeat"}
    child = {**person, "sessionId": "s2", "sessionKey": "agent:main:subagent:1"}
    first = [said("user", "Use tabs. <private>hush</private>", 1_794_945_865_563),
             said("assistant", "Tabs it is.", 1_794_945_866_000),
             {"role": "toolResult", "content": [], "timestamp": 1}]  # fmt: skip
    # Later its history holds the message without what was put before it.
    changed = [said("user", "Use tabs, please.", 1_794_945_865_563), *first[1:]]
    prompt = {"prompt": "[context] Where were we?", "currentUserMessage": "Where were we?"}
    answers = played(tmp_path, [*HOOK, "--data", str(data)], [
        ["before_prompt_build", {**prompt, "messages": []}, timer],
        ["before_prompt_build", {**prompt, "messages": []}, child],
        ["before_prompt_build", {**prompt, "messages": []}, person],
        ["agent_end", {"messages": [said("user", "for a sub-agent", 1)], "success": True}, child],
        ["agent_end", {"messages": [said("user", "a heartbeat", 1)], "success": True}, timer],
        ["agent_end", {"messages": first, "success": True}, person],
        ["agent_end", {"messages": changed, "success": True}, person],
    ])  # fmt: skip
    assert answers[:2] == [None, None] and answers[3:] == [None] * 4
    assert "Half way through the move" in answers[2]["prependContext"]

    wanted = [("user", "Use tabs."), ("assistant", "Tabs it is.")]
    with Commonplace(data, embedding="none") as opened:
        memory = opened.within(None)

        def lines() -> list[tuple[str, str]]:
            try:
                found = memory.conversations.history("openclaw:s1")
            except NotFound:
                return []
            return [(each.speaker, each.memory.text) for each in found]

        until = time.monotonic() + 60  # the hook may have started a server, which takes it in
        while lines() != wanted and time.monotonic() < until:
            hooks.take_in(data, lambda _: memory)
            time.sleep(0.1)
        assert lines() == wanted
        found = memory.browse(limit=100)[0]
    texts = " ".join(one.text for one in found)
    assert not any(word in texts for word in ("sub-agent", "heartbeat", "hush"))


def test_a_plugin_whose_memory_is_gone_keeps_no_prompt_back(tmp_path: Path) -> None:
    context = {"sessionId": "s1", "workspaceDir": str(tmp_path)}
    answers = played(tmp_path, ["/nowhere/hook", "--data", "/dev/null/x"], [
        ["before_prompt_build", {"prompt": "Hello there", "messages": []}, context],
        ["agent_end", {"messages": [said("user", "Hello there", 1)], "success": True}, context],
        ["before_compaction", {"messageCount": 1}, {}],
    ])  # fmt: skip
    assert answers == [None, None, None]
