"""Sessions of agents are captured word for word, once, and given back where they matter."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commonplace import Commonplace, Project
from commonplace.client import files
from commonplace.platform import capture, hooks, ignoring, session_context, transcript_lines
from commonplace.text.prose import Item, envelope
from commonplace.text.session_details import session_details
from server.harness import running

AT = "2026-03-01T10:00:00.000Z"


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commonplace]:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("COMMONPLACE_PROJECT")
    with Commonplace(tmp_path / "data", embedding="none") as opened:
        yield opened


class Session:
    """A session of Claude Code that writes its transcript."""

    def __init__(self, folder: Path, name: str = "s1") -> None:
        self.name, self.cwd = name, str(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder.parent / f"{name}.jsonl"
        self._number = 0

    def says(self, role: str, content: Any, **more: Any) -> None:
        self._number += 1
        line = {
            "cwd": self.cwd, "sessionId": self.name, "gitBranch": "main", "type": role,
            "message": {"role": role, "content": content},
            "uuid": f"{self.name}-{self._number}", "timestamp": AT, **more,
        }  # fmt: skip
        with self.file.open("a") as stream:
            stream.write(json.dumps(line) + "\n")

    def event(self, name: str, **more: Any) -> dict[str, Any]:
        return {"hook_event_name": name, "session_id": self.name, "cwd": self.cwd,
                "transcript_path": str(self.file), **more}  # fmt: skip


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path / "work" / "shop")


def texts(memory: Commonplace) -> list[str]:
    return [each.text for each in memory.browse(order="oldest", limit=1000)[0]]


def test_stop_captures_new_lines_with_speaker_place_and_trust(
    memory: Commonplace, session: Session
) -> None:
    session.says("user", "Use tabs in this project.")
    session.says("assistant", [{"type": "text", "text": "Tabs it is."}])
    assert hooks.handle_event(memory, session.event("Stop")) is None
    session.says("user", "And four of them.")
    hooks.handle_event(memory, session.event("Stop"))
    lines = memory.conversations.history("claude-code:s1")
    assert [(line.speaker, line.memory.text) for line in lines] == [
        ("user", "Use tabs in this project."), ("assistant", "Tabs it is."),
        ("user", "And four of them."),
    ]  # fmt: skip
    assert {line.memory.trust for line in lines} == {"inferred"}
    assert lines[0].memory.tags == (f"project:{session.cwd}", "branch:main")
    assert lines[0].memory.occurred_at is not None
    assert lines[0].memory.origin.client == "claude-code"
    memory.undo()
    assert "And four of them." not in texts(memory)


def test_a_session_replayed_ten_times_grows_nothing(memory: Commonplace, session: Session) -> None:
    for number in range(300):
        session.says("user", f"Line number {number} of the heron project is about nests.")
    hooks.handle_event(memory, session.event("Stop"))
    before = memory.browse(limit=1)[1], len(memory.history.operations(limit=1000))
    size = sum(file.stat().st_size for file in memory.library.path.rglob("*"))
    notes = list((memory.library.path / capture.NOTES_FOLDER).rglob("*.json"))
    for turn in range(10):
        if turn % 2:
            for note in notes:
                note.unlink()  # the transcript is read from its start again
        for name in ("SessionStart", "Stop", "SessionEnd"):
            hooks.handle_event(memory, session.event(name))
    assert (memory.browse(limit=1)[1], len(memory.history.operations(limit=1000))) == before
    assert sum(file.stat().st_size for file in memory.library.path.rglob("*")) <= size * 1.01


def test_a_killed_session_is_read_to_its_end_at_the_next_start(
    memory: Commonplace, tmp_path: Path
) -> None:
    killed = Session(tmp_path / "work" / "shop", "killed")
    killed.says("user", "First words.")
    hooks.handle_event(memory, killed.event("SessionStart", source="startup"))
    hooks.handle_event(memory, killed.event("Stop"))
    killed.says("user", "Last words before the kill.")
    with killed.file.open("a") as stream:
        stream.write('{"type":"user","sessionId":"killed","uuid":"k9","mess')  # torn
    assert "Last words before the kill." not in texts(memory)
    following = Session(tmp_path / "work" / "other", "next")
    hooks.handle_event(memory, following.event("SessionStart", source="startup"))
    assert texts(memory) == ["First words.", "Last words before the kill."]


def test_lines_that_are_written_after_the_stop_hook_are_captured(
    memory: Commonplace, session: Session
) -> None:
    hooks.handle_event(memory, session.event("SessionStart"))
    hooks.handle_event(memory, session.event("Stop"))  # Claude Code writes the turn's lines later
    session.says("user", "Use tabs in this project.")
    session.says("assistant", "Tabs it is.")
    eventually_holds(memory, ["Use tabs in this project.", "Tabs it is."])


def test_a_killed_session_is_read_to_its_end_when_a_server_starts(
    tmp_path: Path, session: Session
) -> None:
    with Commonplace(tmp_path / "data", space="team", embedding="none") as before:
        hooks.handle_event(before, session.event("SessionStart"))
    session.says("user", "Use tabs in this project.")  # and it was killed
    with running(tmp_path / "data") as server:
        memory = Commonplace(library=server.parts.library, space="team")
        eventually_holds(memory, ["Use tabs in this project."])


def eventually_holds(memory: Commonplace, wanted: list[str]) -> None:
    until = time.monotonic() + 60
    while texts(memory) != wanted and time.monotonic() < until:
        time.sleep(0.05)
    assert texts(memory) == wanted


def test_a_line_that_replaces_an_earlier_one_is_stored(
    memory: Commonplace, session: Session
) -> None:
    for text in ("first " * 60, "second", "third"):
        session.says("user", text)
    hooks.handle_event(memory, session.event("Stop"))
    lines = session.file.read_text().splitlines(keepends=True)
    session.file.write_text(lines[0])
    session.says("user", "another second " * 40)
    session.says("user", "another third")
    hooks.handle_event(memory, session.event("Stop"))
    assert session.file.stat().st_size > sum(map(len, lines))
    found = [text.split()[0] for text in texts(memory)]
    assert found == ["first", "second", "third", "another", "another"]
    hooks.handle_event(memory, session.event("Stop"))
    assert len(texts(memory)) == 5


def test_a_replaced_transcript_is_read_from_its_start(
    memory: Commonplace, session: Session
) -> None:
    session.says("user", "The first file, which is a little longer than the other one is.")
    hooks.handle_event(memory, session.event("Stop"))
    session.file.write_text("")
    session.name = "s2"
    session.says("user", "A new file in its place, and with quite some more text than before.")
    hooks.handle_event(memory, session.event("Stop"))
    assert len(texts(memory)) == 2


def test_what_nobody_said_is_not_captured(memory: Commonplace, session: Session) -> None:
    block = envelope([Item("x", "note", "The heron nests by the lake")])
    session.says("user", f"{block}\nWhat do you think?")
    session.says("user", "The code is <private>open sesame</private> as always.")
    session.says("user", "meta", isMeta=True)
    session.says("assistant", "done by a sub-agent", isSidechain=True)
    session.says("assistant", [{"type": "thinking", "thinking": "hm"}])
    session.says("user", [{"type": "tool_result", "content": "noise"}])
    session.says("user", "<command-name>/clear</command-name>")
    session.says("user", "Use token ghp_a1B2c3D4e5F6a1B2c3D4e5F6a1B2c3D4e5F6 please")
    hooks.handle_event(memory, session.event("Stop"))
    assert texts(memory) == [
        "What do you think?", "The code is  as always.",
        "Use token [masked: github token] please",
    ]  # fmt: skip


def test_sub_agents_and_prompts_of_programs_get_nothing(
    memory: Commonplace, session: Session
) -> None:
    memory.remember("The failing login test of the API needs Redis")
    session.says("user", "hello there")
    assert hooks.handle_event(memory, session.event("Stop", agent_id="a1")) is None
    assert texts(memory) == ["The failing login test of the API needs Redis"]
    asked = {"prompt": "Please fix the failing login test of the API"}
    assert hooks.handle_event(memory, session.event("UserPromptSubmit", **asked))
    for source in ("sdk", "system", "loop_wakeup", "schedule_wakeup", "poll_event"):
        event = session.event("UserPromptSubmit", **asked, source=source)
        assert hooks.handle_event(memory, event) is None
    assert hooks.handle_event(memory, session.event("UserPromptSubmit", **asked, source="user"))


def test_callers_elsewhere_cannot_have_files_of_this_machine_read(
    memory: Commonplace, session: Session
) -> None:
    session.says("user", "hello there")
    for name in ("SessionStart", "Stop", "PreCompact", "SessionEnd"):
        assert hooks.handle_event(memory, session.event(name), capturing=False) is None
    assert texts(memory) == []


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "s1.jsonl", "/nowhere/s1.jsonl", "/tmp\0/x.jsonl", "/", ""]
)
def test_only_transcripts_are_read(memory: Commonplace, session: Session, path: str) -> None:
    event = {**session.event("Stop"), "transcript_path": path}
    assert hooks.handle_event(memory, event) is None
    assert hooks.handle_event(memory, {**event, "hook_event_name": "SessionStart"}) is None
    other = session.file.with_name("other.jsonl")
    other.write_text('{"a": 1}\nnot json\n')
    hooks.handle_event(memory, {**event, "transcript_path": str(other)})
    assert texts(memory) == []


# Directories that are left alone


@pytest.mark.parametrize(
    ("rules", "where", "ignored"),
    [
        ("*", "", True), ("*", "a/b", True), ("a/", "a", True), ("a/", "a/b", True),
        ("a/", "", False), ("a/", "b", False), ("/a", "b/a", False), ("a", "b/a", True),
        ("*\n!a/", "a", True),
        ("*\n!a/\n!a/**", "a", False), ("# *", "", False), ("", "", False),
        ("a/*\n!a/b", "a/b", False),
        ("**/secret", "x/secret/y", True), ("*.private", "x.private", True),
        ("\ufeffa/", "a", True), ("!\na/", "a", True), ("[z-a]\na/", "a", True),
        ("!\n/\n[z-a]", "a", False),
    ],
)  # fmt: skip
def test_the_rules_are_those_of_git(tmp_path: Path, rules: str, where: str, ignored: bool) -> None:
    (tmp_path / ".commonplaceignore").write_text(rules, encoding="utf-8")
    here = tmp_path / where
    here.mkdir(parents=True, exist_ok=True)
    assert ignoring.is_ignored(str(here)) == ignored


def test_a_directory_that_cannot_exist_is_not_ignored() -> None:
    assert not ignoring.is_ignored("/a\0b")
    assert not ignoring.is_ignored("/a\ud800b")


def test_an_ignored_session_is_never_stored(memory: Commonplace, session: Session) -> None:
    rules = Path(session.cwd) / ".commonplaceignore"
    rules.write_text("*\n")
    session.says("user", "This stays out of it, I decided to use Redis.")
    for name in ("SessionStart", "Stop", "PreCompact", "SessionEnd"):
        hooks.handle_event(memory, session.event(name))
    assert texts(memory) == []
    rules.unlink()
    session.says("user", "This may be stored.")
    hooks.handle_event(memory, session.event("Stop"))
    assert texts(memory) == ["This may be stored."], "what was said meanwhile is not stored later"


# What a session is given


def test_a_session_starts_with_what_matters_here(memory: Commonplace, session: Session) -> None:
    here = Project(session.cwd)
    inside, other = memory.within(here), memory.within(Project("/elsewhere"))
    memory.remember("The user is Ann, who tends herons", kind="identity")
    inside.remember("Never feed the herons", pinned=True)
    inside.remember("We build nests of reed", kind="decision")
    inside.remember("Half way through the nest", kind="checkpoint")
    other.remember("We build nests of steel", kind="decision")
    other.remember("Half way through the bridge", kind="checkpoint")
    memory.remember("Do as I say, said a web page", kind="decision", trust="external")
    context = hooks.context_in(hooks.handle_event(memory, session.event("SessionStart")))
    for text in ("who tends herons", "Never feed", "nests of reed", "Half way through the nest"):
        assert text in context
    for text in ("steel", "bridge", "web page"):
        assert text not in context
    assert context.startswith("<recalled ")
    hooks.handle_event(memory, session.event("Stop"))
    inside.remember("The lake has frozen over", kind="note")
    later = Session(Path(session.cwd), "later")
    assert "frozen" in hooks.context_in(hooks.handle_event(memory, later.event("SessionStart")))


def test_the_home_directory_gets_what_is_global(memory: Commonplace) -> None:
    memory.within(Project("/w")).remember("We build nests of steel", kind="decision")
    memory.remember("We build nests of reed", kind="decision")
    event = {"event": "SessionStart", "cwd": os.environ["HOME"]}
    context = hooks.context_in(hooks.handle_event(memory, event))
    assert "reed" in context and "steel" not in context


@pytest.mark.parametrize("letter", ["x", "é", "鷺", "🪶"])
def test_contexts_keep_their_size_in_bytes(memory: Commonplace, letter: str) -> None:
    for number in range(60):
        memory.remember(f"heron {number} {letter * 900}", kind="decision", pinned=number % 3 == 0)
    context = session_context.start_context(memory)
    assert 5_000 < len(context.encode()) <= session_context.START_BYTES
    asked = session_context.prompt_context(memory, "What about the heron?")
    assert 0 < len(asked.encode()) <= session_context.PROMPT_BYTES


def test_what_was_said_in_this_session_is_not_given_back(
    memory: Commonplace, session: Session
) -> None:
    session.says("user", "The failing login test of the API needs Redis")
    hooks.handle_event(memory, session.event("Stop"))
    asked = {"prompt": "Please fix the failing login test of the API"}
    assert hooks.handle_event(memory, session.event("UserPromptSubmit", **asked)) is None
    other = Session(Path(session.cwd), "s2")
    found = hooks.context_in(hooks.handle_event(memory, other.event("UserPromptSubmit", **asked)))
    assert "needs Redis" in found
    elsewhere = Session(Path(session.cwd).parent / "other", "s3")
    assert hooks.handle_event(memory, elsewhere.event("UserPromptSubmit", **asked)) is None


def test_compaction_keeps_what_a_summary_drops(memory: Commonplace, session: Session) -> None:
    session.says("user", "We decided to keep the cache in Redis. Look at src/api/login.py please.")
    session.says("assistant", "I ran `pytest tests/api -q` and `git rebase main`.")
    session.says("user", "Now fix the failing test")
    hooks.handle_event(memory, session.event("PreCompact", trigger="auto"))
    hooks.handle_event(memory, session.event("PreCompact", trigger="auto"))  # the same once more
    assert memory.browse(kinds=["checkpoint"])[1] == 1
    hooks.handle_event(
        memory, session.event("PostCompact", compact_summary="They ran `git rebase main`")
    )
    given = hooks.handle_event(memory, session.event("SessionStart", source="compact"))
    context = hooks.context_in(given)
    assert "Now fix the failing test" in context and "keep the cache in Redis" in context
    assert "src/api/login.py" in context and "pytest tests/api -q" in context
    assert "git rebase main" not in context
    session.says("user", "Next is the logout")
    hooks.handle_event(memory, session.event("PreCompact"))
    (only,), total = memory.browse(kinds=["checkpoint"])
    assert total == 1 and "Next is the logout" in only.text


def test_what_is_carried_over_is_verbatim_and_few() -> None:
    found = session_details(
        ["Run:\n```sh\n$ make test\nuv sync --all\n```\nSee https://example.org/a/b and 1/2.",
         *(f"`git show {number}` in lib/file{number}.py" for number in range(30))]
    )  # fmt: skip
    assert found.commands[-1] == "git show 29" and len(found.commands) == 12
    assert found.paths[-1] == "lib/file29.py"
    block = "Run:\n```sh\n$ make test\nuv sync --all\n```"
    assert session_details([block]).commands == ("make test", "uv sync --all")
    assert session_details(["See https://example.org/a/b, and 1/2, w/o."]).paths == ()
    assert session_details(["Always run main.py.  Why? We agreed on 3.11!"]).decisions == (
        "Always run main.py.", "We agreed on 3.11!",
    )  # fmt: skip


def test_a_copy_that_a_plugin_wrote_is_stored_once_and_deleted(
    memory: Commonplace, tmp_path: Path
) -> None:
    copies = memory.library.path / capture.COPIES_FOLDER / "opencode"
    line = {
        "transcript": "opencode", "session": "o1", "cwd": str(tmp_path / "shop"), "id": "m1",
        "role": "user", "at": 1_794_945_865_563, "text": "We decided to use Redis.",
    }  # fmt: skip

    def event(name: str, *lines: dict[str, Any]) -> None:
        copies.mkdir(parents=True, exist_ok=True)
        (copies / "o1.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
        given = {"hook_event_name": name, "session_id": "o1", "cwd": str(tmp_path / "shop"),
                 "transcript_path": str(copies / "o1.jsonl")}  # fmt: skip
        hooks.handle_event(memory, given)
        assert list(copies.iterdir()) == []

    event("Stop", line)
    event("Stop", line, {**line, "id": "m2", "role": "assistant", "text": "Redis it is."})
    event("PreCompact", line, {**line, "id": "m3", "text": "Run `make all`."})
    said = memory.within(None).conversations.history("opencode:o1")
    assert [each.memory.text for each in said] == [
        "We decided to use Redis.", "Redis it is.", "Run `make all`.",
    ]  # fmt: skip
    there = memory.within(Project(str(tmp_path / "shop")))
    assert session_context.latest_checkpoint(there, "o1") is not None


def test_a_copy_whose_earlier_lines_became_shorter_is_read_whole(
    memory: Commonplace, tmp_path: Path
) -> None:
    """OpenClaw's history has no longer what was put before a message in its turn."""
    copies = memory.library.path / capture.COPIES_FOLDER / "openclaw"
    copies.mkdir(parents=True)
    file, cwd = copies / "s1.jsonl", str(tmp_path / ("deep" * 60))
    recalled = "<recalled 0123456789>\n" + "x" * 100 + "\n</recalled 0123456789>\n"
    for texts in ([f"{recalled}One."], ["One.", "Two."], ["One.", "Two.", "Three."]):
        lines = [{"transcript": "openclaw", "session": "s1", "cwd": cwd, "id": f"m{number}",
                  "role": "user", "text": text} for number, text in enumerate(texts)]  # fmt: skip
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        hooks.handle_event(memory, {"event": "Stop", "session": "s1", "transcript": str(file)})
    said = memory.within(None).conversations.history("openclaw:s1")
    assert [each.memory.text for each in said] == ["One.", "Two.", "Three."]


def test_a_copy_that_grew_while_it_was_read_stays_until_all_of_it_is_stored(
    memory: Commonplace,
) -> None:
    copies = memory.library.path / capture.COPIES_FOLDER / "opencode"
    copies.mkdir(parents=True)
    file = copies / "o2.jsonl"
    line = {
        "transcript": "opencode", "session": "o2", "cwd": "", "id": "m1",
        "role": "user", "at": 1_794_945_865_563, "text": "We decided to use Redis.",
    }  # fmt: skip
    file.write_text(json.dumps(line) + "\n")
    capture.capture(memory, str(file))
    with file.open("a") as written:
        written.write(json.dumps({**line, "id": "m2", "text": "And no Kafka."}) + "\n")
    capture.drop_copy(memory, str(file))
    assert file.exists()
    assert capture.capture(memory, str(file)) == 1
    capture.drop_copy(memory, str(file))
    assert not file.exists()


def test_a_transcript_without_directories_gets_that_of_its_session(
    memory: Commonplace, tmp_path: Path
) -> None:
    file = tmp_path / "c1.jsonl"
    said = {"role": "user", "message": {"content": [{"type": "text", "text": "Use tabs here."}]}}
    file.write_text(json.dumps(said) + "\n")
    event = {"hook_event_name": "Stop", "session_id": "c1", "cwd": str(tmp_path / "shop"),
             "transcript_path": str(file)}  # fmt: skip
    hooks.handle_event(memory, event)
    (line,) = memory.within(None).conversations.history("cursor:c1")
    assert line.memory.tags == (f"project:{tmp_path / 'shop'}",)


def test_a_line_that_was_purged_is_not_captured_again(
    memory: Commonplace, session: Session
) -> None:
    session.says("user", "My number is 0173 5550199.")
    session.says("user", "And the rest stays.")
    hooks.handle_event(memory, session.event("Stop"))
    (line,) = [each for each in memory.browse()[0] if "0173" in each.text]
    assert memory.purge(line.id).sources == ("claude-code",)
    for note in (memory.library.path / capture.NOTES_FOLDER).rglob("*.json"):
        note.unlink()  # the transcript is read from its start again
    hooks.handle_event(memory, session.event("Stop"))
    assert texts(memory) == ["And the rest stays."]


def test_a_transcript_that_cannot_be_read_holds_up_no_other_and_no_start(
    memory: Commonplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = [Session(tmp_path / "work" / name, name) for name in ("a", "b", "c")]
    for each in killed:
        hooks.handle_event(memory, each.event("SessionStart"))
    for each in killed:
        each.says("user", f"Words of {each.name}")
    memory.remember("We build nests of reed", kind="decision")
    find = capture.client_of

    def client_of(path: Path) -> str | None:
        if path == killed[1].file:
            raise PermissionError(13, "Permission denied", str(path))
        return find(path)

    monkeypatch.setattr(capture, "client_of", client_of)
    following = Session(tmp_path / "work" / "other", "next").event("SessionStart")
    assert "nests of reed" in hooks.context_in(hooks.handle_event(memory, following))
    assert {"Words of a", "Words of c"} <= set(texts(memory))
    monkeypatch.undo()
    hooks.handle_event(memory, following)
    assert "Words of b" in texts(memory)


def test_the_agents_variable_names_the_project_of_its_hooks(
    memory: Commonplace, tmp_path: Path
) -> None:
    """A server that runs for many agents has variables of its own."""
    there = {"COMMONPLACE_PROJECT": "expedition"}
    memory.within(Project("expedition")).remember("The heron nests at the lake", kind="decision")
    session = Session(tmp_path / "work" / "shop")
    start = session.event("SessionStart")
    assert hooks.handle_event(memory, start, environ={}) is None
    assert "lake" in hooks.context_in(hooks.handle_event(memory, start, environ=there))
    asked = session.event("UserPromptSubmit", prompt="Where does the heron nest?")
    assert hooks.handle_event(memory, asked, environ={}) is None
    assert "lake" in hooks.context_in(hooks.handle_event(memory, asked, environ=there))
    session.says("user", "The camp is at the ford.")
    hooks.handle_event(memory, session.event("Stop"), environ=there)
    session.says("user", "It was killed here.")
    hooks.handle_event(memory, Session(tmp_path / "other", "s2").event("SessionStart"), environ={})
    lines = memory.conversations.history("claude-code:s1")
    labels = ("project:expedition", "branch:main")
    assert [line.memory.tags for line in lines] == [labels, labels]
    name = files.prepared_context_file(
        str(memory.library.path), "default", session.cwd, "expedition"
    )
    assert "lake" in Path(name).read_text()
    without = Path(files.prepared_context_file(str(memory.library.path), "default", session.cwd))
    assert not without.exists()


def test_a_spooled_event_keeps_the_agents_variable(
    memory: Commonplace, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.says("user", "The camp is at the ford.")
    memory.remember("x")
    monkeypatch.setenv("COMMONPLACE_PROJECT", "expedition")
    files.spool_event(str(memory.library.path), "default", session.event("SessionEnd"))
    monkeypatch.delenv("COMMONPLACE_PROJECT")
    hooks.handle_spooled_events(memory.library.path, memory.at)
    (line,) = memory.conversations.history("claude-code:s1")
    assert line.memory.tags == ("project:expedition", "branch:main")


@pytest.mark.parametrize("text", ["project = shop", f"project = '{'x' * 93}'", b"\xff"])
def test_a_session_beside_a_bad_settings_file_does_not_become_global(
    memory: Commonplace, session: Session, text: str | bytes
) -> None:
    written = text if isinstance(text, bytes) else text.encode()
    (Path(session.cwd) / ".commonplace.toml").write_bytes(written)
    session.says("user", "The camp is at the ford.")
    hooks.handle_event(memory, session.event("Stop"))
    (line,) = memory.conversations.history("claude-code:s1")
    assert line.memory.tags == (f"project:{session.cwd}", "branch:main")
    later = Session(Path(session.cwd), "s2").event("UserPromptSubmit", prompt="Where is the camp?")
    assert "ford" in hooks.context_in(hooks.handle_event(memory, later))


def test_a_project_that_gets_another_name_is_noticed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr(transcript_lines.time, "monotonic", lambda: now)
    assert transcript_lines.labels_of(session.cwd, "") == (f"project:{session.cwd}",)
    (Path(session.cwd) / ".commonplace.toml").write_text('project = "shop"')
    now += transcript_lines.PROJECT_SECONDS
    assert transcript_lines.labels_of(session.cwd, "") == ("project:shop",)
