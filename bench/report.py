"""One table a run, and the same as JSON with what is needed to read it later."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
CACHE = RESULTS / "cache"
COLUMNS = ("", "measured", "against", "ratio", "target", "")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: what was measured, against what, and what it must reach."""

    name: str
    measured: str
    against: str = ""
    ratio: float | None = None
    target: str = ""
    ok: bool | None = None
    values: dict[str, Any] = field(default_factory=dict)
    """The bare numbers, for JSON."""


@dataclass(frozen=True)
class Section:
    """Rows that were measured together, with what a reader must know about them."""

    title: str
    rows: Sequence[Row]
    notes: Sequence[str] = ()


def say(text: str) -> None:
    """Progress, for the person who waits."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def milliseconds(seconds: float) -> str:
    """A duration as people read it."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def share(value: float) -> str:
    """A share of 0..1 with three decimals."""
    return f"{value:.3f}"


def resident_bytes() -> int:
    """Bytes of memory this process holds now, or the most it has held where the system hides it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


def format_table(sections: Iterable[Section]) -> str:
    """The sections as one table of aligned columns."""
    sections = list(sections)
    lines = [_cells(row) for section in sections for row in section.rows]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *lines, strict=True)]
    out = [_line(COLUMNS, widths).rstrip()]
    for section in sections:
        out += ["", f"{section.title}"]
        out += [_line(_cells(row), widths).rstrip() for row in section.rows]
        out += [f"  · {note}" for note in section.notes]
    return "\n".join(out)


def _cells(row: Row) -> tuple[str, ...]:
    verdict = "" if row.ok is None else "ok" if row.ok else "MISSED"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}×"
    return (f"  {row.name}", row.measured, row.against, ratio, row.target, verdict)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (
        cell.ljust(width) if place in (0, 2, 4, 5) else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join([first, *rest])


def machine_facts() -> dict[str, Any]:
    """What the figures depend on beside the code."""
    import apsw

    names = ("apsw", "numpy", "onnxruntime", "simsimd", "sqlite-vec")
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        check=False,
    )
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        **{name: _version(name) for name in names},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:  # some parts need fewer packages
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def write_json(path: Path, sections: Iterable[Section]) -> None:
    """The run as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    run = {"machine": machine_facts(), "sections": [asdict(section) for section in sections]}
    path.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
