"""Texts that would do harm if they were not shown as texts, in everything that a page shows."""

from __future__ import annotations

from typing import Any

from commonplace import Commonplace, Line
from commonplace.engine.content.memories import Draft
from commonplace.engine.model import Origin
from commonplace.importers import storing
from commonplace.importers.items import Item
from commonplace.platform import review
from reliability.test_odd_input import HOSTILE as QUERIES
from reliability.test_odd_input import ODD
from server.harness import Client, Running

TEXTS = [
    "<script>window.hit = 1</script>",
    '<img src=x onerror="window.hit = 1">',
    '<svg onload="window.hit = 1"><a xlink:href="javascript:window.hit=1"><text>x</text></a></svg>',
    "[click](javascript:window.hit=1) [data](data:text/html,<script>window.hit=1</script>)",
    "![](javascript:window.hit=1) ![x](http://example.invalid/track.png)",
    "[vb](vbscript:x) [file](file:///etc/passwd) <a href='javascript:window.hit=1'>go</a>",
    "</textarea></pre></li></main><style>*{display:none}</style><h1>forged</h1>",
    "--><base href='http://example.invalid/'><meta http-equiv=refresh content='0;url=//x.invalid'>",
    "{{constructor.constructor('window.hit=1')()}} ${window.hit=1} <%= window.hit %>",
    "invoice\u202efdp.exe \u2066isolated\u2069 zero\u200bwidth \ufeffmark \U000e0041tag",
    "\x1b[31mred\x1b[0m \x07bell line\u2028separator \x85next \ue000private",
    "## Heading\n\n- [ ] item\n\n> quote\n\n```html\n<script>window.hit=1</script>\n```"
    "\n\n|a|\n|-|\n|<b>|",
    "#" * 3_000 + "*" * 3_000 + "[" * 3_000 + "`" * 3_000 + "_" * 3_000,
    "שלום עולם, مرحبا بالعالم, हिन्दी, 日本語, ไทย, 👩‍👩‍👧‍👦",
    "a" * 5_000,
]
SHORT = "<img src=x onerror=window.hit=1> [a](javascript:window.hit=1) \u202egnp"
KEY = "AKIA" + "Q7RSTUVWXYZ2345A"
PAGE = "<p id=p>Hello</p><script>p.textContent = window.origin</script>"


def fill(server: Running) -> list[str]:
    """Put such texts into every field of the person's memory; the ids of those of TEXTS."""
    memory = Commonplace(library=server.parts.library)
    ids = _memories(memory)
    for text in [*ODD, " ".join(QUERIES)]:
        if "\x00" not in text and text.isprintable() and text.strip():
            memory.remember(text[:2_000], kind="note")
    memory.facts.add(SHORT, SHORT[:60], SHORT, valid_from="2026-01-01")
    server.token("default", name=SHORT[:90])
    client = server.client()
    client.call("recall", {"query": SHORT})
    client.call("remember", {"text": ""})  # refused
    _being(client)
    _workspace(client)
    _mama(server, client)
    _captured(memory)
    client.close()
    memory.remember(SHORT)  # so that the newest operation shows it
    return ids


def _memories(memory: Commonplace) -> list[str]:
    ids = []
    for number, text in enumerate(TEXTS):
        short = text[:90].replace("\x00", "").strip()
        stored = memory.remember(
            text, title=short if number % 2 else "", tags=[short[:80]],
            source=short if short.isprintable() else "", trust="external",
            origin=Origin(client=short, user=short, tool=short),
        )  # fmt: skip
        memory.revise(stored.id, text + "\n" + text[::-1][:1_000])
        ids.append(stored.id)
    for number, one in enumerate(ids[1:]):
        memory.links.add(ids[0], one, "supports", reason=TEXTS[number][:500])
    return ids


def _captured(memory: Commonplace) -> None:
    """Proposals, projects and imports, and such texts beside secrets."""
    for text in TEXTS:
        short = text[:80].strip()
        said = memory.conversations.add("talk", Line(speaker="user", text=text))[0].memory
        attrs = {"kind": short, "source": said.id, "line": f"{text} and more"}
        tags = [f"project:{short}"]
        memory.remember_many([
            Draft(text=text, kind=review.KIND, state=review.PENDING_STATE, tags=tags, attrs=attrs)
        ])  # fmt: skip
        memory.remember(f"{text[:300]} {KEY} {text[:300]}", tags=tags)
        storing.Import(memory, short, origin=storing.import_origin()).run(
            iter([Item(key=short, text=text)])
        )


def send(client: Client, method: str, path: str, body: Any) -> Any:
    answer = client.request(method, path, body)
    assert answer.status in (200, 201), (path, answer.status, answer.body)
    return answer.json


def _being(client: Client) -> None:
    being = send(client, "POST", "/v1/beings", {"name": SHORT})["id"]
    root = f"/v1/beings/{being}"
    send(client, "PUT", f"{root}/soul", {"name": SHORT, "personality": SHORT})
    send(client, "PUT", f"{root}/rules", {"title": SHORT, "content": SHORT, "category": SHORT})
    send(client, "POST", f"{root}/notes", {"content": SHORT})
    diary = {"target": "diary", "action": "append", "content": SHORT}
    send(client, "POST", f"{root}/memory/update", diary)
    send(client, "POST", f"{root}/messages", {"messages": [{"role": "user", "content": SHORT}]})


def _workspace(client: Client) -> None:
    root = "/v1/workspaces/current"
    agent = {"name": SHORT, "slug": "mallory", "system_prompt": SHORT}
    send(client, "POST", f"{root}/agents", agent)
    made = send(client, "POST", f"{root}/conversations", {"title": SHORT})
    said = {"role": "user", "text": SHORT}
    where = f"{root}/conversations/{made['id']}/messages"
    send(client, "POST", where, said)


def _mama(server: Running, client: Client) -> None:
    for topic in ("auth_strategy", "caching"):
        body = {"topic": topic, "decision": SHORT, "reasoning": SHORT}
        send(client, "POST", "/api/mama/save", body)
    send(client, "POST", "/api/checkpoint/save", {"summary": SHORT})
    job = {"name": SHORT, "cron_expr": "0 * * * *", "prompt": SHORT}
    send(client, "POST", "/api/cron", job)
    skill = {"name": "hostile", "content": f"# {SHORT}\n\n{SHORT}"}
    send(client, "POST", "/api/skills", skill)
    folder = server.parts.library.path / "mama" / "workspace" / "playgrounds"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lab.html").write_text(PAGE)
