"""Run the long reliability tests part by part, with progress, and resume after an interruption.

Each part is one test marked `soak`, in a process of its own, and may take 60 minutes. Parts that
passed on the current commit are not run again; `--again` runs them all. A part can be chosen by any
piece of its name: `python tools/soak.py kills bit_flips`, or `make soak PART=kills`. What each part
counted, with its seed and date, is printed at the end and kept in `.soak/state.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LIMIT_SECONDS = 60 * 60
REPORT_SECONDS = 30.0
QUIET_OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:schemathesis")


def say(*lines: str) -> None:
    """Print lines at once, also into a file or a pipe."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen parts; return 0 if all of them have passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help="pieces of names; all parts without any")
    parser.add_argument("--list", action="store_true", help="only list the parts and their state")
    parser.add_argument("--again", action="store_true", help="also run parts that have passed")
    parser.add_argument(
        "--tests", type=Path, default=ROOT / "tests" / "reliability", help=argparse.SUPPRESS
    )
    parser.add_argument("--folder", type=Path, default=ROOT / ".soak", help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    found = collect_parts(options.tests)
    chosen = [
        part for part in found if not options.parts or any(each in part for each in options.parts)
    ]
    if not chosen:
        say("No part matches. The parts are:", *map(short_name, found))
        return 2
    options.folder.mkdir(exist_ok=True)
    state = RunState(options.folder / "state.json", checked_out_commit())
    for number, part in enumerate(chosen, 1):
        done = state.parts.get(part)
        if options.list or (done and done["passed"] and not options.again):
            say(f"[{number}/{len(chosen)}] {short_name(part)}: {outcome_text(done)}")
            continue
        say(f"[{number}/{len(chosen)}] {short_name(part)}: started")
        state.record(part, run_part(part, options.tests, options.folder, options.limit))
        say(f"[{number}/{len(chosen)}] {short_name(part)}: {outcome_text(state.parts[part])}")
    return 0 if options.list else print_summary(state, chosen)


def collect_parts(tests: Path) -> list[str]:
    """Return the ids of all soak tests."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pytest", "--collect-only", "-m", "soak",
         *QUIET_OPTIONS, str(tests)],
        cwd=base_directory(tests), env=pytest_environment(tests), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    found = [line.strip() for line in done.stdout.splitlines() if "::" in line]
    if done.returncode or not found:
        sys.exit(f"The soak tests cannot be collected:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found


def run_part(part: str, tests: Path, folder: Path, limit: float) -> dict[str, Any]:
    """Run one part and print its progress; return its outcome for the state file."""
    progress, figures, log = (folder / name for name in ("progress", "figures", "log"))
    for file in (progress, figures):
        file.unlink(missing_ok=True)
    started = reported = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "pytest", "-m", "soak", *QUIET_OPTIONS,
             "-o", "faulthandler_timeout=0", part],
            cwd=base_directory(tests), stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True, env=pytest_environment(tests)
            | {"SOAK_PROGRESS": str(progress), "SOAK_FIGURES": str(figures)},
        )  # fmt: skip
        try:
            while (code := process.poll()) is None and time.monotonic() - started < limit:
                time.sleep(0.2)
                if time.monotonic() - reported >= REPORT_SECONDS:
                    reported = time.monotonic()
                    done = progress.read_text(encoding="utf-8") if progress.exists() else "running"
                    minutes = (reported - started) / 60
                    say(f"    {short_name(part)}: {done}, {minutes:.1f} minutes")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()
    seconds = time.monotonic() - started
    lines = figures.read_text(encoding="utf-8").splitlines() if figures.exists() else []
    if code != 0:
        why = f"took over {limit / 60:g} minutes" if code is None else f"pytest exited with {code}"
        say(log.read_text(encoding="utf-8")[-4000:])
        log = log.rename(log.with_name(f"failed-{int(time.time())}.log"))
        lines.append(f"{why}; see {log}")
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    return {"passed": code == 0, "date": date, "seconds": round(seconds, 1), "figures": lines}


def base_directory(tests: Path) -> Path:
    """Return the directory to which the ids of tests are relative."""
    return ROOT if tests.is_relative_to(ROOT) else tests.parent


def pytest_environment(tests: Path) -> dict[str, str]:
    """Return the environment of pytest, in which the helpers of the tests can be imported."""
    paths = (str(ROOT / "tests"), str(tests), os.environ.get("PYTHONPATH", ""))
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}


class RunState:
    """The outcomes of the parts that were run on one commit, kept in a file."""

    def __init__(self, path: Path, commit: str) -> None:
        self._path, self._commit = path, commit
        self.parts: dict[str, dict[str, Any]] = {}
        if path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["commit"] == commit:
                self.parts = kept["parts"]
            else:
                say(f"The code has changed since commit {kept['commit'][:12]}: starting over.")

    def record(self, part: str, outcome: dict[str, Any]) -> None:
        self.parts[part] = outcome
        whole = {"commit": self._commit, "parts": self.parts}
        temporary = self._path.with_suffix(".new")
        temporary.write_text(json.dumps(whole, indent=1), encoding="utf-8")
        temporary.replace(self._path)


def checked_out_commit() -> str:
    """Return the commit that is checked out, with a mark if files differ from it."""
    try:
        head, changes = (
            subprocess.run(  # noqa: S603
                ["git", *command],  # noqa: S607
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            for command in (("rev-parse", "HEAD"), ("status", "--porcelain", "-uno"))
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head} with changes" if changes else head


def short_name(part: str) -> str:
    """Return the file and the test of a part, without the prefixes that all parts have."""
    file, _, name = part.partition("::")
    return f"{Path(file).stem.removeprefix('test_')}: {name.removeprefix('test_')}"


def outcome_text(done: dict[str, Any] | None) -> str:
    if done is None:
        return "not run yet"
    return f"{'passed' if done['passed'] else 'FAILED'} in {done['seconds'] / 60:.1f} minutes"


def print_summary(state: RunState, chosen: list[str]) -> int:
    say("", "figures")
    for part in chosen:
        done = state.parts[part]
        for figure in done["figures"] or ["no figures"]:
            say(f"  {done['date']}  {short_name(part)}  {figure}")
    failed = [part for part in chosen if not state.parts[part]["passed"]]
    say("", f"{len(chosen) - len(failed)} of {len(chosen)} parts passed.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
