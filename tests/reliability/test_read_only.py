"""A data directory that can only be read: reading works and says so, writing is refused clearly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commonplace import Commonplace
from commonplace.engine.history import audit
from commonplace.storage.system import open_system

MOUNT = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
USER = 65534  # nobody: root is not held by rights


def _can_mount() -> list[str]:
    """How a read-only mount of our own is made here; nothing where it cannot be."""
    for way in (["unshare", "-m"], ["unshare", "-rm"]):
        try:
            made = subprocess.run(
                [*way, "sh", "-c", MOUNT, "/tmp", "true"], capture_output=True, timeout=20
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if made.returncode == 0:
            return way
    return []


UNSHARE = _can_mount()
WAYS = ["rights", *(["disk"] if UNSHARE else [])]

# Everything is done once where it may be written, so that all modules are loaded before the
# rights are given up.
CHILD = """
import contextlib, io, json, os, sys
from pathlib import Path
from commonplace import Commonplace
from commonplace.cli.app import run
from commonplace.engine.content import memories
from commonplace.engine.binding import engine_call
from commonplace.errors import CommonplaceError

def command(*args):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(args)
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}

def use(data, scratch):
    found = {}
    with Commonplace(data, embedding="none") as memory:
        found["read only"] = memory.library.read_only
        found["get"] = memory.get("one").text
        found["recall"] = [hit.memory.text for hit in memory.recall("harbour")]
        found["find_text"] = memory.find_text("arbou")[1]
        found["browse"] = memory.browse()[1]
        found["usage"] = memory.usage("one").accesses
        diagnosis = memory.library.maintenance.check("default")
        found["doctor"] = [diagnosis.healthy, [f.severity for f in diagnosis.findings]]
        found["beside"] = [each.healthy for each in memory.library.maintenance.check_shared_files()]
        for name, write in {
            "remember": lambda: memory.remember("x"),
            "revise": lambda: memory.revise("one", text="x"),
            "undo": lambda: memory.undo(),
            "count_reads_now": lambda: engine_call(memory, memories.count_reads_now, ["one"]),
            "another space": lambda: memory.at("other").remember("x"),
            "purge": lambda: memory.purge("one"),
        }.items():
            try:
                write()
                found[name] = "done"
            except CommonplaceError as error:
                found[name] = [error.code, error.hint]
    os.environ["COMMONPLACE_EMBEDDING"] = "none"
    where = ("--data", data)
    found["search"] = command("search", "harbour", "--json", *where)
    found["show"] = command("show", "one", *where)
    found["export"] = command("export", str(Path(scratch) / "out.jsonl"), *where)
    found["backup"] = command("backup", str(Path(scratch) / "copy"), *where)
    found["doctor command"] = command("doctor", *where)
    found["remember command"] = command("remember", "x", *where)
    return found

data, warm, scratch, user = sys.argv[1:]
with Commonplace(warm, embedding="none") as memory:
    memory.remember("The harbour.", ref="one")
command("token", "create", "--dialect", "mama", "--data", warm)
os.makedirs(scratch + "/warm")
use(warm, scratch + "/warm")
if int(user):
    os.seteuid(int(user))
print(json.dumps(use(data, scratch)))
"""

CRASH = """
import os, sys
from commonplace import Commonplace
memory = Commonplace(sys.argv[1], embedding="none")
memory.remember("The harbour closes at ten.", ref="late")
os._exit(0)
"""


@pytest.fixture
def data(quick_disk: Path) -> Iterator[Path]:
    place = quick_disk / "data"
    with Commonplace(place, embedding="none") as memory:
        memory.remember("The harbour closes at nine.", ref="one")
        memory.revise("one", tags=["port"])
    store = open_system(place)
    audit.append(store, audit.Entry(
        request="", dialect="d", tool="t", success=True, milliseconds=1, arguments="{}",
        result="{}"))  # fmt: skip
    store.close()
    yield place
    _set_rights(place, 0o700, 0o600)


def _set_rights(data: Path, folders: int, files: int) -> None:
    for place in (data, *data.rglob("*")):
        place.chmod(folders if place.is_dir() else files)


def used(data: Path, way: str) -> dict[str, Any]:
    """What a process finds for which the directory can only be read."""
    place = data.parent
    scratch = place / "scratch"
    scratch.mkdir()
    user, prefix = 0, []
    if way == "rights":
        user = USER if os.geteuid() == 0 else 0
        place.chmod(0o755)
        scratch.chmod(0o777)
        _set_rights(data, 0o555, 0o444)
    else:
        prefix = [*UNSHARE, "sh", "-c", MOUNT, str(data)]
    ended = subprocess.run(
        [*prefix, sys.executable, "-c", CHILD, str(data), str(place / "warm"), str(scratch),
         str(user)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_reading_works_and_writing_is_refused_in_so_many_words(data: Path, way: str) -> None:
    before = {file.name: file.read_bytes() for file in data.rglob("*") if file.is_file()}
    found = used(data, way)
    assert found["read only"] is True
    assert found["get"] == "The harbour closes at nine."
    assert found["recall"] == [found["get"]]
    assert (found["find_text"], found["browse"], found["usage"]) == (1, 1, 0)
    assert found["doctor"] == [True, ["note"]] and found["beside"] == [True]
    for write in ("remember", "revise", "undo", "count_reads_now", "another space", "purge"):
        code, hint = found[write]
        assert code == "STORAGE_READ_ONLY", write
        assert "COMMONPLACE_DATA" in hint
    for reading in ("search", "show", "export", "backup", "doctor command"):
        assert found[reading]["code"] == 0, found[reading]
        assert "is read-only" in found[reading]["err"], reading
    assert json.loads(found["search"]["out"])["memory"]["text"] == found["get"]
    assert "note: The file is read-only." in found["doctor command"]["out"]
    refused = found["remember command"]
    assert refused["code"] == 5 and "read-only" in refused["err"]
    _set_rights(data, 0o700, 0o600)
    assert {f.name: f.read_bytes() for f in data.rglob("*") if f.is_file()} == before


@pytest.mark.parametrize("way", WAYS)
def test_what_a_writer_left_in_the_log_is_read_too(data: Path, way: str) -> None:
    subprocess.run([sys.executable, "-c", CRASH, str(data)], check=True, timeout=60)
    assert (data / "spaces" / "default.db-wal").stat().st_size
    found = used(data, way)
    assert found["browse"] == 2
    assert sorted(found["recall"]) == ["The harbour closes at nine.", "The harbour closes at ten."]


def test_a_file_of_an_older_release_says_what_to_do(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from commonplace.errors import UnsupportedVersion
    from commonplace.storage import schema
    from commonplace.storage.sqlite import Store, readonly

    newer = (*schema.MIGRATIONS, "CREATE TABLE later (x)")
    monkeypatch.setattr(readonly, "is_read_only", lambda path: True)
    with pytest.raises(UnsupportedVersion) as caught:
        Store(data / "spaces" / "default.db", "default", steps=newer)
    assert "Make it writable" in caught.value.hint
