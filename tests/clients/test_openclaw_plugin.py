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
    for name, content in agent_plugins.plugin_files("openclaw", command).items():
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
        hooks.handle_event(memory, {"event": "Stop", "cwd": str(work)})
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
    stopped = {**timer, "sessionId": "s3", "sessionKey": "agent:main:other"}  # it never ends
    answers = played(tmp_path, [*HOOK, "--data", str(data)], [
        ["before_prompt_build", {**prompt, "messages": []}, timer],
        ["before_prompt_build", {**prompt, "messages": []}, child],
        ["before_prompt_build", {**prompt, "messages": []}, person],
        ["agent_end", {"messages": [said("user", "for a sub-agent", 1)], "success": True}, child],
        ["agent_end", {"messages": [said("user", "a heartbeat", 1)], "success": True}, timer],
        ["before_prompt_build", {**prompt, "messages": []}, stopped],
        ["agent_end", {"messages": first, "success": True}, person],
        ["agent_end", {"messages": changed, "success": True}, person],
    ])  # fmt: skip
    assert answers[:2] == [None, None] and answers[3:] == [None] * 5
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
            hooks.handle_spooled_events(data, lambda _: memory)
            time.sleep(0.1)
        assert lines() == wanted
        found = memory.browse(limit=100)[0]
    texts = " ".join(one.text for one in found)
    assert not any(word in texts for word in ("sub-agent", "heartbeat", "hush"))


def test_a_message_is_stored_once_although_openclaw_changes_it_after_the_turn(
    tmp_path: Path,
) -> None:
    """The shapes are those of OpenClaw 2026.9.6, whose history has other times than the turn."""
    data, work = tmp_path / "data", tmp_path / "work"
    work.mkdir()
    Commonplace(data, embedding="none").close()
    place = {"sessionId": "s1", "sessionKey": "agent:main:main", "workspaceDir": str(work)}

    def turn(run: str, trigger: str = "user") -> dict[str, str]:
        return {**place, "runId": run, "trigger": trigger}

    def kept(message: dict[str, Any], at: int | None = None, **about: Any) -> dict[str, Any]:
        words = message["content"][0]["text"]
        return {**message, "content": words, "timestamp": at or message["timestamp"],
                "__openclaw": about}  # fmt: skip

    def answered(words: str, at: int) -> tuple[dict[str, Any], dict[str, Any]]:
        return said("user", words, at), said("assistant", f"{words}, done.", at + 9)

    first, second = answered("Use tabs", 1_794_945_865_563), answered("Why", 1_794_945_965_563)
    poll, third = answered("[poll]", 1_794_946_065_563), answered("Use tabs", 1_794_946_165_563)
    history = [kept(first[0], 1_794_945_860_000, senderIsOwner=True), kept(first[1], runId="r1")]
    later = [*history, kept(second[0], 1_794_945_960_000), kept(second[1], runId="r2")]
    with_poll = [
        *later, {**kept(poll[0], 1_794_946_060_000), "provenance": {"kind": "internal_system"}},
        kept(poll[1], runId="r3"),
    ]  # fmt: skip
    prompt = {"prompt": "x", "currentUserMessage": "", "messages": []}
    played(tmp_path, [*HOOK, "--data", str(data)], [
        ["before_prompt_build", prompt, turn("r1")],
        ["agent_end", {"messages": [*first]}, turn("r1")],
        ["before_prompt_build", prompt, turn("r2")],
        # The context is compacted within the turn; such an event has nothing but the key.
        ["before_compaction", {"messages": [*history, *second]}, {"sessionKey": "agent:main:main"}],
        ["agent_end", {"messages": later}, turn("r2")],
        ["before_prompt_build", prompt, turn("r3", "heartbeat")],
        ["before_compaction", {"messages": [*later, *poll]}, {"sessionKey": "agent:main:main"}],
        ["agent_end", {"messages": [*later, *poll]}, turn("r3", "heartbeat")],
        ["before_prompt_build", prompt, turn("r4")],
        ["agent_end", {"messages": [*with_poll, *third]}, turn("r4")],
    ])  # fmt: skip
    wanted = ["Use tabs", "Use tabs, done.", "Why", "Why, done.", "Use tabs", "Use tabs, done."]
    assert stored(data, "openclaw:s1", len(wanted)) == wanted


def test_a_compaction_without_messages_keeps_a_checkpoint_that_is_given_back(
    tmp_path: Path,
) -> None:
    data, work = tmp_path / "data", tmp_path / "work"
    work.mkdir()
    Commonplace(data, embedding="none").close()
    place = {"sessionId": "s1", "sessionKey": "agent:main:main", "workspaceDir": str(work)}
    command = [*HOOK, "--data", str(data)]
    asked = said("user", "We decided to keep src/app/main.py. Run `make lint`.", 1_794_945_865_563)
    played(tmp_path, command, [["agent_end", {"messages": [asked]}, place]])
    stored(data, "openclaw:s1", 1)
    # Without a server the event would be spooled, and the checkpoint kept later.
    server = [sys.executable, "-m", "commonplace.cli", "restart", "--data", str(data)]
    subprocess.run(server, check=True, capture_output=True, timeout=120)
    prompt = {"prompt": "Go on", "currentUserMessage": "", "messages": []}
    before, _, after = played(tmp_path, command, [
        ["before_prompt_build", prompt, place],
        ["before_compaction", {"messageCount": 4, "tokenCount": 31}, place],
        ["before_prompt_build", prompt, place],
    ])  # fmt: skip
    assert before is None
    for words in ("decided: We decided to keep src/app/main.py.", "make lint", "src/app/main.py"):
        assert words in after["prependContext"]


def stored(data: Path, conversation: str, count: int) -> list[str]:
    """The lines of a conversation, when there are so many of them and nothing waits."""
    with Commonplace(data, embedding="none") as opened:
        memory = opened.within(None)
        until = time.monotonic() + 60  # the hook may have started a server, which takes them in
        while True:
            hooks.handle_spooled_events(data, lambda _: memory)
            try:
                found = memory.conversations.history(conversation)
            except NotFound:
                found = []
            waits = [*(data / "transcripts").glob("*/*.jsonl"), *(data / "inbox").glob("*.json")]
            if (len(found) >= count and not waits) or time.monotonic() > until:
                return [line.memory.text for line in found]
            time.sleep(0.1)


def test_a_plugin_whose_memory_is_gone_keeps_no_prompt_back(tmp_path: Path) -> None:
    context = {"sessionId": "s1", "workspaceDir": str(tmp_path)}
    answers = played(tmp_path, ["/nowhere/hook", "--data", "/dev/null/x"], [
        ["before_prompt_build", {"prompt": "Hello there", "messages": []}, context],
        ["agent_end", {"messages": [said("user", "Hello there", 1)], "success": True}, context],
        ["before_compaction", {"messageCount": 1}, {}],
    ])  # fmt: skip
    assert answers == [None, None, None]
