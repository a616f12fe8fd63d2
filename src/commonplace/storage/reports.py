"""What maintenance of the storage reports: findings, repairs, backups and restores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Progress = Callable[[int, int], None]
"""Called with how much is done, and how much there is."""
Severity = Literal["error", "warning", "note"]
NAMED = 100
SHOWN = 4  # of many rows with the same fault, beside the first
REPAIR = "Run 'commonplace doctor --repair': it is rebuilt from the rows."


RESTORE = (
    "Restore it from a backup with 'commonplace restore', or save the sound rows with"
    " 'commonplace doctor --salvage DIR'."
)
RESTORE_SYSTEM = (
    "Stop what uses it, and restore it from a backup with"
    " 'commonplace restore BACKUP --system --overwrite'."
)


@dataclass(slots=True)
class Finding:
    """Something that is not as it should be, of one row or of many."""

    check: str
    severity: Severity
    what: str
    hint: str = ""
    count: int = 1
    rows: list[str] = field(default_factory=list)
    """The first hundred rows of which it is true; `what` names the first."""

    def __str__(self) -> str:
        """As people read it: the first row in full, of the others a few."""
        if self.count == 1:
            return self.what
        shown = ", ".join(self.rows[1 : SHOWN + 1])
        more = ", …" if self.count > SHOWN + 1 else ""
        return f"{self.what} The same of {self.count - 1:,} more: {shown}{more}."

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "check": self.check, "severity": self.severity, "what": self.what, "hint": self.hint,
            "count": self.count, "rows": self.rows,
        }  # fmt: skip


@dataclass(slots=True)
class Diagnosis:
    """What an examination found. A note is no illness."""

    space: str
    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    _told: Counter[tuple[str, str]] = field(default_factory=Counter)
    _alike: dict[tuple[str, ...], Finding] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """Whether nothing is damaged or missing."""
        return not any(finding.severity == "error" for finding in self.findings)

    def ill(self, *checks: str) -> bool:
        """Whether one of these checks found damage."""
        return any(f.severity == "error" and f.check in checks for f in self.findings)

    def add(
        self,
        check: str,
        what: str,
        hint: str = "",
        severity: Severity = "error",
        *,
        row: object = None,
    ) -> None:
        """Note a finding; the same of another row, put where `what` says {row}, joins it.

        After a hundred different ones of one check they are only counted.
        """
        key = (check, severity, what, hint)
        same = self._alike.get(key)
        if same is not None:
            if str(row) != same.rows[-1]:  # two passages of one memory are one row
                same.count += 1
                same.rows += [str(row)] if len(same.rows) < NAMED else []
            return
        self._told[check, severity] += 1
        if self._told[check, severity] <= NAMED:
            if row is None:
                self.findings.append(Finding(check, severity, what, hint))
                return
            first = Finding(check, severity, what.replace("{row}", str(row)), hint, rows=[str(row)])
            self._alike[key] = first
            self.findings.append(first)

    def finish(self) -> Diagnosis:
        """Say how many findings were not listed."""
        for (check, severity), count in self._told.items():
            if count > NAMED:
                more = f"{count - NAMED} more of this kind."
                self.findings.append(Finding(check, severity, more))  # type: ignore[arg-type]
        return self

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "space": self.space,
            "healthy": self.healthy,
            "findings": [finding.as_dict() for finding in self.findings],
            "counts": self.counts,
        }


@dataclass(frozen=True, slots=True)
class Repair:
    """What was rebuilt, and the examinations before and after."""

    rebuilt: list[str]
    before: Diagnosis
    after: Diagnosis

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "rebuilt": self.rebuilt,
            "before": self.before.as_dict(),
            "after": self.after.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup holds."""

    path: Path
    spaces: dict[str, int]
    """Memories of each space."""
    digest: dict[str, str]
    """For each space a SHA-256 over all it says."""
    files: tuple[str, ...] = ()
    """What it holds beside spaces."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "path": str(self.path), "spaces": self.spaces, "digest": self.digest,
            "files": list(self.files),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What was restored, and where what it replaced is kept."""

    path: Path
    spaces: dict[str, int]
    digest: dict[str, str]
    replaced: dict[str, str]
    """Where the former files are, by the space or the file."""
    files: tuple[str, ...] = ()
    """What was restored beside spaces."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "path": str(self.path), "spaces": self.spaces, "digest": self.digest,
            "replaced": self.replaced, "files": list(self.files),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Salvage:
    """What could be saved into a new file, and what could not."""

    path: Path
    saved: dict[str, int]
    lost: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"path": str(self.path), "saved": self.saved, "lost": self.lost}
