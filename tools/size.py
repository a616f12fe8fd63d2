"""Prints how many lines the program has, by room (`python tools/size.py [ROOT]`).

Counted are the lines of `src/**/*.py` after formatting at a line length of 100, so that the figure
does not depend on how the files were laid out.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

LINE_LENGTH = 100


def lines_by_room(root: Path) -> Counter[str]:
    """Lines of each room, the folders and modules directly below `src/commonplace`."""
    counted: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, "src")
        shutil.copytree(root / "src", copy, ignore=lambda _, names: [
            name for name in names if "." in name and not name.endswith(".py")
        ])  # fmt: skip
        command = [sys.executable, "-m", "ruff", "format", "--quiet", "--isolated"]
        command += ["--line-length", str(LINE_LENGTH), str(copy)]
        subprocess.run(command, check=True)  # noqa: S603
        for file in copy.rglob("*.py"):
            room = file.relative_to(copy / "commonplace").parts[0]
            counted[room] += len(file.read_text().splitlines())
    return counted


def main(root: Path) -> None:
    counted = lines_by_room(root)
    for room, lines in [*counted.most_common(), ("total", counted.total())]:
        print(f"{lines:7,} {room}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent.parent)
