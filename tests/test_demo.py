"""The tour: what `make serve` runs."""

from __future__ import annotations

import re
import socket
import tempfile
from pathlib import Path

import pytest

from commonplace.cli.app import run
from commonplace.dialects.commonplace.console import sample


def test_the_tour_tells_everything_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def offline(*_: object) -> None:
        raise AssertionError("The demo must not use the network.")

    monkeypatch.setattr(socket.socket, "connect", offline)
    assert run(["demo"]) == 0
    told = capsys.readouterr().out
    assert len(told.splitlines()) <= 60
    assert max(map(len, told.splitlines())) <= 100
    assert "\x1b" not in told
    answers = re.findall(r"  \? (.*?)\n    \d\.\d\d  (.*?)\n", told)
    assert [answer for _, answer in answers] == [
        "Yuki is allergic to nuts. Check before ordering cake.",
        "The volunteers want bigger buttons: they wear gloves until April.",
        "Error E-4012 means that the GPS chip sleeps. Shake the phone.",
        "最初の現地テストは三月に葛西臨海公園で行う。双眼鏡を忘れないこと。",
        "Ольга из заповедника пришлёт список редких птиц до конца апреля.",
        "One in nine at low water. I need two hundred photos of litter.",
        "The map went blank for 41 minutes: the tide server's certificate had expired.",
        "We ship on Tuesdays; Fridays spoilt two weekends.",
        "We ship on Fridays after lunch.",
    ]
    for reason in ("meaning: ", "words: ", "context: +", "links: +"):
        assert reason in told
    assert "was   We ship on Fridays after lunch." in told
    assert told.index("After undo:") > told.index("was   We ship")
    assert list(tmp_path.iterdir()) == []


def test_it_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run(["demo", "--keep"]) == 0
    (kept,) = tmp_path.iterdir()
    assert str(kept) in capsys.readouterr().out
    assert run(["search", "gloves", "--data", str(kept), "--embedding", "none"]) == 0
    assert len(sample.NOTES) + len(sample.CONVERSATION) >= 24
