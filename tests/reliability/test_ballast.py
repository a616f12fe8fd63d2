"""The ballast of a space: who has one, that it takes real room, and that maintenance ignores it."""

from __future__ import annotations

from pathlib import Path

from commonplace import Commonplace
from commonplace.engine.binding import lease
from commonplace.engine.history import audit
from commonplace.storage.sqlite.store import BALLAST_BYTES as BYTES
from commonplace.storage.sqlite.store import BALLAST_STEP as STEP
from commonplace.storage.sqlite.store import Ballast

CALL = audit.Entry(
    request="1", dialect="commonplace", tool="recall", success=True, milliseconds=0,
    arguments="{}", result="{}",
)  # fmt: skip


def audited(memory: Commonplace) -> Path:
    """Write an audit entry, as the server does for every call; where the ballast is then."""
    with lease(memory) as space:
        audit.append(space.store, CALL)
        return space.store.path.with_name(space.store.path.name + "-ballast")


def test_the_library_alone_makes_none(tmp_path: Path) -> None:
    with Commonplace(tmp_path, embedding="none") as memory:
        memory.remember("A kettle")
        memory.recall("kettle")
    assert [path.name for path in (tmp_path / "spaces").iterdir()] == ["default.db"]


def test_the_first_audited_call_makes_one_that_takes_real_room(tmp_path: Path) -> None:
    with Commonplace(tmp_path, embedding="none") as memory:
        found = audited(memory).stat()
    assert found.st_size == BYTES
    assert found.st_blocks * 512 >= BYTES
    assert found.st_mode & 0o777 == 0o600


def test_it_is_given_up_in_steps_and_filled_up_before_the_next_write(tmp_path: Path) -> None:
    with Commonplace(tmp_path, embedding="none") as memory:
        path = audited(memory)
        ballast = Ballast(path.with_name("default.db"))
        steps = 0
        while ballast.give_up_step():
            steps += 1
            assert path.stat().st_size == BYTES - steps * STEP
        assert steps == BYTES // STEP
        memory.remember("There is room again")
        assert path.stat().st_size == BYTES


def test_backup_restore_doctor_and_listing_ignore_it(tmp_path: Path) -> None:
    with Commonplace(tmp_path / "data", embedding="none") as memory:
        memory.remember("A kettle")
        audited(memory)
        maintenance = memory.library.maintenance
        assert memory.library.spaces() == ["default"]
        assert maintenance.check("default").findings == []
        maintenance.backup(tmp_path / "copy")
        assert not list((tmp_path / "copy").rglob("*ballast*"))
        maintenance.restore(tmp_path / "copy", overwrite=True)
        assert memory.browse(limit=1)[1] == 1
        assert [path.name for path in (tmp_path / "data" / "spaces").glob("*ballast*")] == [
            "default.db-ballast"
        ]


def test_a_file_that_cannot_be_made_stops_nothing(tmp_path: Path) -> None:
    with Commonplace(tmp_path, embedding="none") as memory:
        memory.remember("A kettle")
        (tmp_path / "spaces" / "default.db-ballast").mkdir()
        audited(memory)
        memory.remember("Another")
        assert memory.browse(limit=1)[1] == 2
