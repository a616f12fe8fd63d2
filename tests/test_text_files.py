"""Files are read by few processes at a time."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from commonplace.text import files

PDF = b"%PDF-1.7"
# A parser that leaves a file while it runs, and ends when it may.
SLOW = """
import json, os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
mark = folder / f"running-{os.getpid()}"
mark.touch()
while not (folder / "free").exists():
    time.sleep(0.01)
mark.unlink()
print(json.dumps({"text": "read"}))
"""


def test_more_files_than_parsers_wait_or_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "COMMAND", (sys.executable, "-I", "-c", SLOW, str(tmp_path)))
    texts: list[str] = []

    def read() -> None:
        texts.append(files.text_of("a.pdf", PDF)[0])

    threads = [threading.Thread(target=read) for _ in range(files.PARSERS + 3)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 20
    while len(list(tmp_path.glob("running-*"))) < files.PARSERS:
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(0.3)
    assert len(list(tmp_path.glob("running-*"))) == files.PARSERS
    monkeypatch.setattr(files, "WAIT_SECONDS", 0.05)
    with pytest.raises(files.TooBusy) as refused:
        files.text_of("b.pdf", PDF)
    assert refused.value.code == "BUSY"
    assert files.text_of("c.txt", b"plain text needs none")[0] == "plain text needs none"
    (tmp_path / "free").touch()
    for thread in threads:
        thread.join(30)
    assert texts == ["read"] * len(threads)
