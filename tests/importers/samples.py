"""A small store of each format, made from its documented schema or by the program itself."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import apsw

AT = "2026-03-01T10:00:00+00:00"
EPOCH = 1_772_359_200


def database(path: Path, script: str, *rows: tuple[str, tuple[Any, ...]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = apsw.Connection(str(path))
    connection.execute(script)
    for statement, values in rows:
        connection.execute(statement, values)
    connection.close()
    return path


def lines(path: Path, *values: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def note(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def claude_code(folder: Path) -> Path:
    def line(role: str, text: str, uuid: str) -> dict[str, Any]:
        message = {"role": role, "content": text}
        return {"type": role, "sessionId": "s1", "uuid": uuid, "timestamp": AT, "message": message,
                "cwd": "/nowhere/api", "gitBranch": "main"}  # fmt: skip

    file = folder / "projects" / "-nowhere-api" / "s1.jsonl"
    lines(file, line("user", "Use port 8080 for the gateway.", "u1"),
          line("assistant", "The gateway uses port 8080.", "u2"))  # fmt: skip
    lines(file.parent / "s1" / "subagents" / "agent-1.jsonl", line("user", "Search", "u3"))
    return folder / "projects"


def codex(folder: Path) -> Path:
    meta = {"timestamp": AT, "type": "session_meta", "payload": {"id": "c1", "cwd": "/nowhere/web"}}
    said = [
        {"timestamp": AT, "type": "response_item",
         "payload": {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}}
        for role, kind, text in (("user", "input_text", "Rename the table users."),
                                 ("assistant", "output_text", "It is called people now."))
    ]  # fmt: skip
    lines(folder / "sessions" / "2026" / "03" / "01" / "rollout-1.jsonl", meta, *said)
    return folder / "sessions"


def gemini(folder: Path) -> Path:
    lines(folder / "tmp" / "api" / "chats" / "session-1.jsonl",
          {"sessionId": "g1", "projectHash": "h", "startTime": AT},
          {"id": "m1", "timestamp": AT, "type": "user", "content": "Which colour is the logo?"},
          {"id": "m2", "timestamp": AT, "type": "gemini", "content": "The logo is green."},
          )  # fmt: skip
    return folder / "tmp"


def opencode(folder: Path) -> Path:
    database(
        folder / "opencode.db",
        "CREATE TABLE session (id text PRIMARY KEY, parent_id text, directory text, title text);"
        "CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer,"
        " data text);"
        "CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text, data text);",
        ("INSERT INTO session VALUES (?, ?, ?, ?)", ("ses_1", None, "/nowhere/cli", "x")),
        ("INSERT INTO message VALUES (?, ?, ?, ?)",
         ("msg_1", "ses_1", EPOCH * 1000, json.dumps({"role": "user"}))),
        ("INSERT INTO part VALUES (?, ?, ?, ?)",
         ("prt_1", "msg_1", "ses_1", json.dumps({"type": "text", "text": "Prefer tabs."}))),
    )  # fmt: skip
    return folder


def cursor(folder: Path) -> Path:
    chat = {"createdAt": EPOCH * 1000, "fullConversationHeadersOnly": [{"bubbleId": "b1"}]}
    database(
        folder / "User" / "globalStorage" / "state.vscdb",
        "CREATE TABLE ItemTable (key TEXT UNIQUE, value BLOB);"
        "CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);",
        ("INSERT INTO cursorDiskKV VALUES (?, ?)", ("composerData:c", json.dumps(chat))),
        ("INSERT INTO cursorDiskKV VALUES (?, ?)",
         ("bubbleId:c:b1", json.dumps({"type": 1, "text": "Explain the parser."}))),
    )  # fmt: skip
    return folder / "User"


def chatgpt(folder: Path) -> Path:
    def node(name: str, parent: str | None, role: str, text: str) -> dict[str, Any]:
        message = {"id": name, "author": {"role": role}, "create_time": float(EPOCH),
                   "content": {"content_type": "text", "parts": [text]}}  # fmt: skip
        return {"id": name, "parent": parent, "children": [], "message": message}

    nodes = {
        "root": {"id": "root", "parent": None, "children": ["a"], "message": None},
        "a": node("a", "root", "user", "Plan a trip to Lisbon."),
        "old": node("old", "a", "assistant", "An answer that was regenerated."),
        "b": node("b", "a", "assistant", "Three days in Lisbon, then Sintra."),
        "hidden": node("hidden", "b", "system", "system"),
    }
    conversation = {"title": "Trip", "create_time": float(EPOCH), "mapping": nodes,
                    "current_node": "hidden", "conversation_id": "conv"}  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "export.zip", "w") as archive:
        archive.writestr("conversations.json", json.dumps([conversation]))
        archive.writestr("user.json", "{}")
    return folder / "export.zip"


def claude(folder: Path) -> Path:
    messages = [
        {"uuid": "m1", "sender": "human", "text": "My cat is called Miso.", "created_at": AT},
        {"uuid": "m2", "sender": "assistant", "text": "", "created_at": AT,
         "content": [{"type": "thinking", "thinking": "hm"},
                     {"type": "text", "text": "Hello Miso!"}]},
    ]  # fmt: skip
    conversations = [{"uuid": "c1", "name": "Cat", "chat_messages": messages}]
    return note(folder / "conversations.json", json.dumps(conversations))


def mem0(folder: Path) -> Path:
    results = [{"id": "0b1c", "memory": "Likes oat milk", "hash": "x", "user_id": "ana",
                "metadata": {"mood": "calm"}, "categories": ["food"],
                "created_at": AT}]  # fmt: skip
    return note(folder / "memories.json", json.dumps({"results": results}))


def server_memory(folder: Path) -> Path:
    return lines(
        folder / "memory.json",
        {
            "type": "entity",
            "name": "Ana",
            "entityType": "person",
            "observations": ["Runs", "Cooks"],
        },
        {
            "type": "entity",
            "name": "Acme",
            "entityType": "company",
            "observations": ["Makes anvils"],
        },
        {"type": "relation", "from": "Ana", "to": "Acme", "relationType": "works at"},
    )


def mempalace(folder: Path) -> Path:
    database(
        folder / "chroma.sqlite3",
        "CREATE TABLE collections (id TEXT PRIMARY KEY, name TEXT);"
        "CREATE TABLE segments (id TEXT PRIMARY KEY, collection TEXT);"
        "CREATE TABLE embeddings (id INTEGER PRIMARY KEY, segment_id TEXT, embedding_id TEXT);"
        "CREATE TABLE embedding_metadata (id INTEGER, key TEXT, string_value TEXT,"
        " int_value INTEGER, float_value REAL, bool_value INTEGER, PRIMARY KEY (id, key));",
        ("INSERT INTO collections VALUES (?, ?)", ("c", "mempalace_drawers")),
        ("INSERT INTO segments VALUES (?, ?)", ("s", "c")),
        ("INSERT INTO embeddings VALUES (?, ?, ?)", (1, "s", "drawer_1")),
        ("INSERT INTO embedding_metadata (id, key, string_value) VALUES (?, ?, ?)",
         (1, "chroma:document", "The vault code is in the blue book.")),
        ("INSERT INTO embedding_metadata (id, key, string_value) VALUES (?, ?, ?)",
         (1, "wing", "home")),
    )  # fmt: skip
    return folder


def mama(folder: Path) -> Path:
    return database(
        folder / "mama-memory.db",
        "CREATE TABLE decisions (id TEXT PRIMARY KEY, topic TEXT, decision TEXT, reasoning TEXT,"
        " created_at INTEGER, supersedes TEXT);"
        "CREATE TABLE decision_edges (from_id TEXT, to_id TEXT, relationship TEXT, reason TEXT);"
        "CREATE TABLE checkpoints (id INTEGER PRIMARY KEY, timestamp INTEGER, summary TEXT);",
        ("INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?)",
         ("decision_auth_1", "auth", "Use JWT", "It is stateless", EPOCH * 1000, None)),
        ("INSERT INTO checkpoints VALUES (?, ?, ?)", (1, EPOCH * 1000, "Half of it is done.")),
    )  # fmt: skip


def claude_mem(folder: Path) -> Path:
    return database(
        folder / "claude-mem.db",
        "CREATE TABLE observations (id INTEGER PRIMARY KEY AUTOINCREMENT, memory_session_id TEXT,"
        " project TEXT, text TEXT, type TEXT, created_at TEXT, created_at_epoch INTEGER,"
        " title TEXT, subtitle TEXT, facts TEXT, narrative TEXT, concepts TEXT);"
        "CREATE TABLE session_summaries (id INTEGER PRIMARY KEY AUTOINCREMENT,"
        " memory_session_id TEXT, project TEXT, request TEXT, investigated TEXT, learned TEXT,"
        " completed TEXT, next_steps TEXT, created_at TEXT, created_at_epoch INTEGER);"
        "CREATE TABLE user_prompts (id INTEGER PRIMARY KEY AUTOINCREMENT, session_db_id INTEGER,"
        " content_session_id TEXT, prompt_number INTEGER, prompt_text TEXT, created_at TEXT,"
        " created_at_epoch INTEGER);",
        ("INSERT INTO observations (project, type, title, facts, narrative, concepts,"
         " created_at_epoch) VALUES (?, ?, ?, ?, ?, ?, ?)",
         ("api", "bugfix", "Fixed the leak", '["The pool was never closed"]', "A long story.",
          '["gotcha"]', EPOCH * 1000)),
        ("INSERT INTO session_summaries (project, request, learned, created_at_epoch)"
         " VALUES (?, ?, ?, ?)", ("api", "Fix the leak", "Pools must be closed", EPOCH * 1000)),
        ("INSERT INTO user_prompts (content_session_id, prompt_number, prompt_text,"
         " created_at_epoch) VALUES (?, ?, ?, ?)", ("s1", 1, "Find the leak", EPOCH * 1000)),
    )  # fmt: skip


def mcp_memory_service(folder: Path) -> Path:
    return database(
        folder / "sqlite_vec.db",
        "CREATE TABLE memories (id INTEGER PRIMARY KEY AUTOINCREMENT, content_hash TEXT UNIQUE NOT"
        " NULL, content TEXT NOT NULL, tags TEXT, memory_type TEXT, metadata TEXT, created_at REAL,"
        " updated_at REAL, created_at_iso TEXT, updated_at_iso TEXT, deleted_at REAL DEFAULT NULL);"
        "CREATE TABLE memory_graph (source_hash TEXT, target_hash TEXT, similarity REAL,"
        " connection_types TEXT, metadata TEXT, created_at REAL, relationship_type TEXT);",
        *(("INSERT INTO memories (content_hash, content, tags, created_at, deleted_at)"
           " VALUES (?, ?, ?, ?, ?)", row)
          for row in (("h1", "Deploys run on Fridays", "ops, deploy", float(EPOCH), None),
                      ("h2", "Fridays are quiet", "ops", float(EPOCH), None),
                      ("h3", "Deleted", "", float(EPOCH), float(EPOCH)))),
        ("INSERT INTO memory_graph VALUES (?, ?, ?, ?, ?, ?, ?)",
         ("h1", "h2", 0.5, "[]", "{}", float(EPOCH), "supports")),
    )  # fmt: skip


def obsidian(folder: Path) -> Path:
    (folder / ".obsidian").mkdir(parents=True)
    note(folder / "Garden.md", "---\ntags:\n  - plants\n  - green\ncreated: 2026-03-01\n---\n"
         "Water the [[Tomato|tomatoes]] daily. #summer\n\n```\n#define [[Not a link]]\n```\n",
         )  # fmt: skip
    note(folder / "Plants" / "Tomato.md", "# Tomato\n\nNeeds sun. See [[Nowhere]].\n")
    note(folder / ".trash" / "Gone.md", "deleted")
    return folder


def basic_memory(folder: Path) -> Path:
    note(folder / "coffee.md",
         "---\ntitle: Coffee\ntype: note\npermalink: coffee\ntags:\n- drinks\n---\n\n# Coffee\n\n"
         "## Observations\n- [method] Pour over is best #brew\n- [x] a task\n\n"
         "## Relations\n- pairs with [[Cake]]\n")  # fmt: skip
    note(folder / "cake.md", "---\ntitle: Cake\npermalink: cake\n---\nSweet.\n")
    return folder


def claude_md(folder: Path) -> Path:
    return note(
        folder / "CLAUDE.md",
        "Intro.\n\n# Build\n\nRun make.\n\n## Tests\n\n```\n# not a heading\npytest\n```\n\n"
        "# Empty\n\n# Style\n\nTabs.\n",
    )


def csv(folder: Path) -> Path:
    return note(folder / "notes.csv", 'Title,Content,Tags,Date,Mood\nTea,"Green, hot","drinks;hot",'
                "2026-03-01,calm\n,,,,\n")  # fmt: skip


def jsonl(folder: Path) -> Path:
    return lines(folder / "notes.jsonl", {"id": "1", "content": "Uses vim", "tags": ["editor"]})


# name → (who makes it, how many items there are, a text that one of them has)
SAMPLES: Mapping[str, tuple[Callable[[Path], Path], int, str]] = {
    "claude-code": (claude_code, 2, "Use port 8080 for the gateway."),
    "codex": (codex, 2, "It is called people now."),
    "gemini": (gemini, 2, "The logo is green."),
    "opencode": (opencode, 1, "Prefer tabs."),
    "cursor": (cursor, 1, "Explain the parser."),
    "chatgpt": (chatgpt, 2, "Three days in Lisbon, then Sintra."),
    "claude": (claude, 2, "Hello Miso!"),
    "mem0": (mem0, 1, "Likes oat milk"),
    "server-memory": (server_memory, 2, "Runs\nCooks"),
    "mempalace": (mempalace, 1, "The vault code is in the blue book."),
    "mama": (mama, 2, "Half of it is done."),
    "claude-mem": (claude_mem, 3, "Find the leak"),
    "mcp-memory-service": (mcp_memory_service, 2, "Deploys run on Fridays"),
    "obsidian": (obsidian, 2, "# Tomato\n\nNeeds sun. See [[Nowhere]]."),
    "basic-memory": (basic_memory, 2, "Sweet."),
    "claude-md": (claude_md, 4, "Tabs."),
    "csv": (csv, 1, "Green, hot"),
    "jsonl": (jsonl, 1, "Uses vim"),
}
