"""MAMA's platform under its full load: 200 jobs, 50 sockets, 100 uploads of 20 MB at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dialects.mama.load import busy, jobs_due_at_once, sockets_at_once, uploads_at_once

MEGABYTES = 500
"""How much more memory a load may take."""


@pytest.mark.soak
def test_200_jobs_50_sockets_and_100_large_uploads(
    tmp_path: Path, publish: Callable[[str], None]
) -> None:
    with busy(tmp_path / "idle") as idle, busy(tmp_path / "data") as load:
        before = load.megabytes()
        found = jobs_due_at_once(load, 200)
        assert {(each["runs"], each["status"]) for each in found} == {(1, "success")}
        sockets = sockets_at_once(load, 50)
        assert sockets == {"stream_end": 20, "4029": 30}
        uploads = uploads_at_once(load, 100, 20_000_000)
        assert uploads[200] >= 1 and uploads.keys() <= {200, 429, 503}
        grown = load.megabytes() - before
        publish(
            f"200 jobs ran once each, sockets {dict(sockets)}, uploads {dict(uploads)},"
            f" {grown} MB more, /health: {load.health()}; of an idle server beside it:"
            f" {idle.health()}"
        )
        assert grown < MEGABYTES
