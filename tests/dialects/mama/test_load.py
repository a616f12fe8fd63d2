"""Many jobs, sockets and uploads at once: each is answered, and memory stays bounded."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from .load import busy, jobs_due_at_once, sockets_at_once, uploads_at_once


def test_a_server_bears_many_jobs_sockets_and_uploads_at_once(tmp_path: Path) -> None:
    with busy(tmp_path) as load:
        found = jobs_due_at_once(load, 30)
        assert {(each["runs"], each["status"], each["output"]) for each in found} == {
            (1, "success", "Done.")
        }
        before = load.megabytes()
        assert sockets_at_once(load, 50) == {"stream_end": 20, "4029": 30}
        told: Counter[int] = uploads_at_once(load, 100, 100_000)
        assert told.keys() == {200, 429} and told[200] >= 10
        assert load.megabytes() - before < 200
