"""Files and rows agree, whatever is done from both sides, and wherever the process is killed."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from commonplace.dialects.clawbrain import documents, locations, mirror
from commonplace.dialects.clawbrain.directory import Directory, Stat
from commonplace.engine.model import LIVE_STATES
from conftest import wait_until

from .brain import Brain, Refused, opened

NAMES = ("a", "b", "c")
CONTENTS = st.one_of(
    st.sampled_from(
        [
            "plain",
            "---",
            "---\nid: x\n---\n",
            "a\r\nb",
            "\U0001f980",
            "- fact\n\n---\n\nmore",
            "\ufeffx",
        ]
    ),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1).filter(
        lambda text: text.strip() != ""
    ),
)
TAGS = st.lists(st.sampled_from(["x", "y, z", 'q"q', "ü"]), max_size=3, unique=True)


def disagreements(brain: Brain) -> list[str]:
    """What a file and its row say differently, in either direction."""
    found = []
    live, _ = brain.memory.browse(kinds=locations.KINDS, limit=1000)
    wanted = {mirror.path_of(memory): memory for memory in live}
    paths = {path for path in brain.paths() if not path.startswith("archive/")}
    paths -= brain.problems.keys()
    for path in wanted.keys() ^ paths:
        found.append(f"{path} is only on one side")
    for path in wanted.keys() & paths:
        memory, document = wanted[path], documents.parse(brain.file(path).read_bytes())
        own = documents.of_memory(memory)
        assert own is not None
        if (
            document.content != memory.text.strip()
            and document.content != memory.text.replace("\r\n", "\n").strip()
        ):
            found.append(f"{path}: {document.content!r} is not {memory.text!r}")
        if (document.id, document.tags, document.pinned) != (own.id, own.tags, own.pinned):
            found.append(f"{path}: the frontmatter differs")
    return found


class BothSides(RuleBasedStateMachine):
    """Tools, editors and starts in any order."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = contextlib.ExitStack()
        root = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._root = root
        self._open()
        self.texts: set[str] = set()

    def _open(self) -> None:
        self._session = contextlib.ExitStack()
        self.brain = self._session.enter_context(opened(self._root / "data", self._root / "files"))

    def _file(self, name: str) -> Path:
        return self.brain.file(f"entities/people/{name}.md")

    @rule(name=st.sampled_from(NAMES), content=CONTENTS, tags=TAGS)
    def store(self, name: str, content: str, tags: list[str]) -> None:
        with contextlib.suppress(Refused):
            self.brain.store(name, content, tags=tags)
            self.texts.add(content.strip())

    @rule(name=st.sampled_from(NAMES), content=CONTENTS)
    def update(self, name: str, content: str) -> None:
        with contextlib.suppress(Refused):
            self.brain.call("memory_update", id=f"entity-people-{name}", content=content)
            self.texts.add(content.strip())

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        with contextlib.suppress(Refused):
            self.brain.call("memory_delete", id=f"entity-people-{name}")

    @rule(name=st.sampled_from(NAMES), content=CONTENTS, tags=TAGS, windows=st.booleans())
    def edit(self, name: str, content: str, tags: list[str], windows: bool) -> None:
        if not self._file(name).parent.exists():
            return
        document = documents.Document(
            f"entity-people-{name}", "entity", "people", tuple(tags), "2026-01-01T00:00:00Z",
            "2026-01-01T00:00:00Z", False, content,
        )  # fmt: skip
        data = document.render()
        if windows:
            data = b"\xef\xbb\xbf" + data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        with self.brain.paused():
            self._file(name).write_bytes(data)
        self.texts.add(documents.parse(data).content)

    @rule(one=st.sampled_from(NAMES), other=st.sampled_from(NAMES))
    def move(self, one: str, other: str) -> None:
        if self._file(one).exists() and not self._file(other).exists():
            self._file(one).rename(self._file(other))

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        self._file(name).unlink(missing_ok=True)

    @rule(name=st.sampled_from(NAMES), content=CONTENTS, theirs=CONTENTS)
    def both_at_once(self, name: str, content: str, theirs: str) -> None:
        with self.brain.paused(), contextlib.suppress(Exception):
            document = documents.parse(self._file(name).read_bytes())
            self.brain.memory.revise(f"entity-people-{name}", text=content)
            self.texts.add(content.strip())
            changed = documents.Document(
                document.id, document.type, document.category, document.tags, document.created,
                document.updated, document.pinned, theirs, document.more,
            )  # fmt: skip
            self._file(name).write_bytes(changed.render())
            self.texts.add(documents.parse(changed.render()).content)

    @rule()
    def undo(self) -> None:
        from commonplace.errors import CommonplaceError

        with contextlib.suppress(CommonplaceError):
            self.brain.memory.undo()

    @rule()
    def start_again(self) -> None:
        self._session.close()
        self._open()

    @invariant()
    def agree(self) -> None:
        self.brain.sync()
        assert disagreements(self.brain) == []

    @invariant()
    def nothing_is_lost(self) -> None:
        """Every text that anybody saved is in a row or in a former form of one."""
        with self.brain.library.lease("default") as space, space.store.read() as connection:
            rows = connection.execute("SELECT text FROM memories").fetchall()
            kept = {text.strip() for (text,) in rows}
            for (row,) in connection.execute("SELECT row FROM versions WHERE entity = 'memories'"):
                kept.add(json.loads(row).get("text", "").strip())
        assert {text for text in self.texts if text} <= kept

    def teardown(self) -> None:
        self._session.close()
        self._stack.close()


def test_files_and_rows_agree_whatever_is_done_from_both_sides() -> None:
    run_state_machine_as_test(
        BothSides,
        settings=settings(
            max_examples=12, stateful_step_count=12, deadline=None, derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


def test_a_write_that_forgets_the_note_is_detected(
    brain: Brain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks above can fail: a mirror that takes over nothing leaves both sides apart."""
    brain.store("a", "One.")
    monkeypatch.setattr(mirror.Mirror, "pull", lambda self: None)
    with brain.paused():
        path = brain.file("entities/people/a.md")
        path.write_text(path.read_text().replace("One.", "Two."))
        brain.sync()
        assert disagreements(brain) != []


@settings(max_examples=60, deadline=None)
@given(CONTENTS, TAGS, st.booleans())
def test_a_document_survives_its_file(content: str, tags: list[str], pinned: bool) -> None:
    document = documents.Document(
        "entity-people-x", "entity", "people", tuple(tags), "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z", pinned, content,
    )  # fmt: skip
    if not content.strip():
        return

    read = documents.parse(document.render())

    assert (read.content, read.tags, read.pinned) == (content.strip(), tuple(tags), pinned)


CHILD = textwrap.dedent(
    """
    import json, os, signal, sys
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    from clawbrain.brain import opened
    from commonplace.dialects.clawbrain.directory import Directory
    from commonplace.engine.maintenance import file_copies

    def die(root, place, at):
        steps = [0]

        def dying(real):
            def step(*arguments, **named):
                steps[0] += 1
                if steps[0] == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **named)
            return step

        said = open(root / "said", "w")
        with opened(root / "data", root / "files") as brain:
            if place == "os":
                for name in ("fsync", "rename", "unlink"):
                    setattr(os, name, dying(getattr(os, name)))
            else:
                file_copies.record_files = dying(file_copies.record_files)
            for number in range(3):
                identity = brain.store(f"n{{number}}", f"First {{number}}.")
                print("stored", number, file=said, flush=True)
                brain.call("memory_update", id=identity, content=f"Second {{number}}.")
                print("updated", number, file=said, flush=True)
            brain.call("memory_delete", id="entity-people-n0")
            print("deleted 0", file=said, flush=True)
            brain.memory.revise("entity-people-n1", title="n1", credit=0.4)

    for name, place, at in json.loads(sys.argv[2]):
        root = Path(sys.argv[1], name)
        root.mkdir()
        child = os.fork()  # each is a process of its own, and none imports everything again
        if not child:
            die(root, place, at)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    """
)


def test_a_process_killed_anywhere_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD.format(tests=str(Path(__file__).parents[1])))
    moments = [("os", n) for n in (1, 2, 3, 4, 6, 9, 13, 18, 24)] + [("note", n) for n in (1, 2, 5)]
    named = [(f"{place}-{at}", place, at) for place, at in moments]
    ran = subprocess.run(
        [sys.executable, script, tmp_path, json.dumps(named)],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert ran.stdout.split() == [str(-signal.SIGKILL)] * len(moments)
    for name, _, _ in named:
        check_after_a_kill(tmp_path / name, (tmp_path / name / "said").read_text().split("\n"))


def check_after_a_kill(root: Path, said: list[str]) -> None:
    # What was acknowledged is in its file before anybody has repaired anything.
    files = {p.stem: p.read_text() for p in (root / "files" / "entities").rglob("*.md")}
    for number in range(3):
        if f"updated {number}" in said and f"n{number}" in files:
            assert f"Second {number}." in files[f"n{number}"]
    with opened(root / "data", root / "files") as brain:
        assert disagreements(brain) == []
        assert not [p for p in brain.files.rglob("*") if p.name.startswith((".tmp-", ".swap-"))]
        assert not list(brain.files.rglob("*conflict*")), "nobody else wrote"
        texts = {m.ref: m for m in brain.memory.browse(limit=100)[0]}
        for number in range(3):
            found = texts.get(f"entity-people-n{number}")
            if "deleted 0" in said and number == 0:
                assert found is None
            elif f"updated {number}" in said:
                assert number == 0 or (found is not None and found.text == f"Second {number}.")
            elif f"stored {number}" in said:
                assert found is not None


OTHER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    from clawbrain.brain import opened

    root = Path(sys.argv[1])
    with opened(root / "data", root / "files") as brain:
        print("ready", flush=True)
        for line in sys.stdin:
            name = line.strip()
            brain.store(name, f"By the other: {{name}}.")
            print((brain.file(f"entities/people/{{name}}.md")).exists(), flush=True)
    """
)


def test_two_processes_share_a_directory_and_one_keeps_it(tmp_path: Path) -> None:
    script = tmp_path / "other.py"
    script.write_text(OTHER.format(tests=str(Path(__file__).parents[1])))
    with contextlib.ExitStack() as stack:
        with opened(tmp_path / "data", tmp_path / "files") as brain:
            child = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, script, tmp_path], stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, text=True,
                )
            )  # fmt: skip
            assert child.stdin is not None and child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            child.stdin.write("theirs\n")
            child.stdin.flush()
            assert child.stdout.readline() == "True\n", "it waited for the keeper to write"
            brain.store("mine", "By the keeper.")
            assert brain.call("memory_search", query="by the")["total_matches"] == 2
            assert disagreements(brain) == []
        # The keeper is gone: the other takes over.
        child.stdin.write("later\n")
        child.stdin.flush()
        assert child.stdout.readline() == "True\n"
        path = tmp_path / "files" / "entities" / "people" / "later.md"
        path.write_text(path.read_text().replace("By the other", "Edited"))
        child.stdin.write("last\n")
        child.stdin.close()
        assert child.wait(30) == 0
    with opened(tmp_path / "data", tmp_path / "files") as brain:
        found = brain.call("memory_retrieve", id="entity-people-later")["content"]
        assert found == "Edited: later."
        assert sorted(p.split("/")[-1] for p in brain.paths()) == [
            "last.md", "later.md", "mine.md", "theirs.md",
        ]  # fmt: skip


def test_many_threads_store_and_every_file_is_there(brain: Brain) -> None:
    def work(number: int) -> None:
        for step in range(4):
            brain.store(f"t{number}-{step}", f"Text {number} {step}.")
            assert brain.file(f"entities/people/t{number}-{step}.md").exists()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(brain.paths()) == 24
    assert disagreements(brain) == []


Put = Callable[[Directory, str, bytes], tuple[Stat, str]]


def saved_while_tools_write(
    brain: Brain, monkeypatch: pytest.MonkeyPatch, put: Put
) -> tuple[set[str], set[str]]:
    """(what an editor saved just before files were put in place, all that is or was in any row)."""
    identity = brain.store("a", "Start.")
    path, over, about_to = brain.file("entities/people/a.md"), threading.Event(), threading.Event()

    def slowly(self: Directory, path: str, data: bytes) -> tuple[Stat, str]:
        about_to.set()
        time.sleep(0.05)
        return put(self, path, data)

    monkeypatch.setattr(Directory, "swap", slowly)
    saved: set[str] = set()

    def update() -> None:
        number = 0
        while not over.is_set():
            number += 1
            brain.call("memory_update", id=identity, content=f"Tool {number}.")

    thread = threading.Thread(target=update)
    thread.start()
    while len(saved) < 15:
        about_to.clear()
        assert about_to.wait(30)
        document = documents.parse(path.read_bytes())
        text = f"Person {len(saved)}."
        beside = path.with_name(".saving")
        beside.write_bytes(replace(document, content=text).render())
        beside.replace(path)
        saved.add(text)
        # A person who saves again before anybody looked has overwritten it themselves.
        wait_until(lambda: text not in path.read_text())  # noqa: B023
    over.set()
    thread.join(30)
    brain.sync()
    rows, _ = brain.memory.browse(states=["active", "archived"], limit=1000)
    forms = [form.memory.text for row in rows for form in brain.memory.history.versions(row.id)]
    return saved, set(forms)


def test_nothing_that_a_person_saves_while_tools_write_is_lost(
    brain: Brain, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, kept = saved_while_tools_write(brain, monkeypatch, Directory.swap)

    assert saved <= kept
    assert disagreements(brain) == []


def test_a_write_over_what_was_just_saved_is_detected(
    brain: Brain, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overwrite(self: Directory, path: str, data: bytes) -> tuple[Stat, str]:
        return self.write(path, data), ""

    saved, kept = saved_while_tools_write(brain, monkeypatch, overwrite)

    assert not saved <= kept


def test_a_file_that_cannot_be_written_is_told_and_written_later(brain: Brain) -> None:
    brain.store("a", "One.")
    folder = brain.file("entities/people")
    folder.rename(brain.file("entities/elsewhere"))
    folder.write_text("a file where a folder should be")

    with pytest.raises(Refused, match="stored, but its file could not be written"):
        brain.store("b", "Two.")
    folder.unlink()
    wait_until(lambda: brain.file("entities/people/b.md").exists())
    assert brain.memory.get("entity-people-b").state in LIVE_STATES
