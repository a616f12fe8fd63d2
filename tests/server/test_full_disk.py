"""R3 through the server: on a full disk reading goes on, audited, until the ballast is used up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commonplace.storage.sqlite.store import BALLAST_BYTES as BYTES
from reliability.test_disk_full import NAMESPACES

TESTS = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `full_disk.py` saw."""
    for number, namespace in enumerate(NAMESPACES):
        place = tmp_path_factory.mktemp(f"full-{number}")
        mounts = ["mount", "-t", "tmpfs", "tmpfs", place]
        if subprocess.run([*namespace, *mounts], capture_output=True, check=False).returncode:
            continue
        done = subprocess.run(
            [*namespace, sys.executable, "-m", "server.full_disk", str(place)],
            cwd=TESTS, env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        assert "Logging error" not in done.stderr, done.stderr[:4000]
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    pytest.skip(f"no mount namespace here: neither {NAMESPACES[0]} nor {NAMESPACES[1]}")


def test_every_read_of_every_dialect_goes_on_and_is_audited(seen: dict[str, Any]) -> None:
    def outcome(answers: dict[str, Any]) -> dict[str, Any]:
        return {name: (one["status"], one["failed"]) for name, one in answers.items()}

    assert seen["ballast"] == BYTES
    assert len(seen["reads"]) > 100
    assert outcome(seen["reads"]) == outcome(seen["before"])
    assert seen["rows"] == len(seen["reads"])


def test_writes_are_refused_in_the_shape_of_their_dialect_and_change_nothing(
    seen: dict[str, Any],
) -> None:
    writes = seen["writes"]
    assert not seen["changed"]
    assert writes.pop("POST /api/restart")["status"] == 501  # not of this server, and no write
    statuses = {one["status"] for one in writes.values()}
    assert 507 in statuses and 500 not in statuses
    for name in (
        "commonplace remember", "clawbrain memory_store", "mama save", "penfield store",
        "orchestrator memory_add_drawer", "being update_notes",
    ):  # fmt: skip
        assert writes[name]["no_room"], (name, writes[name])
    for name, shape in {
        "POST /api/mama/save": '{"error":true,"code":"STORAGE_FULL","message":',
        "POST /v1/beings/{being_id}/messages": '{"error":"The disk is full',
        "POST /api/v2/memories": '{"status":"error","error":{"code":"SYS_SERVICE_UNAVAIL',
        "POST /v1/clawbrain/outcomes": '{"error":{"code":"STORAGE_FULL"',
    }.items():
        assert writes[name]["status"] == 507, (name, writes[name])
        assert writes[name]["body"].startswith(shape)


def test_a_server_starts_on_a_full_disk_and_reads(seen: dict[str, Any]) -> None:
    assert not seen["restarted"]["failed"], seen["restarted"]


def test_when_the_ballast_is_used_up_no_read_is_answered_without_an_audit_entry(
    seen: dict[str, Any],
) -> None:
    last = seen["last"]
    assert last["answered"] == last["audited"] > 200
    assert last["answer"]["no_room"]
    assert seen["left"] == 0
    # A small entry may still fit where a larger one did not.
    answered = [name for name, one in seen["refused"].items() if one["status"] != 507]
    assert len(answered) <= seen["refused_rows"] < len(seen["refused"])


def test_with_room_again_writing_works_and_the_ballast_is_whole(seen: dict[str, Any]) -> None:
    assert not seen["again"]["failed"]
    assert seen["whole"] == BYTES
    assert seen["faults"] == []
