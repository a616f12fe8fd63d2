"""Reports of storage maintenance: findings, repairs, backups and restores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

Progress = Callable[[int, int], None]
"""A function that is called with the number of finished steps and the total."""
Severity = Literal["error", "warning", "note"]
MOST_LISTED = 100
"""How many rows of a finding are listed, and how many findings of a check."""
MOST_ROWS_SHOWN = 4  # How many further rows are shown for the same fault.
REPAIR = "Run 'commonplace doctor --repair' to rebuild it from the rows."
RESTORE = (
    "Restore it from a backup with 'commonplace restore', or save the intact rows with"
    " 'commonplace doctor --salvage DIR'."
)
RESTORE_SYSTEM = (
    "Stop every process that uses it, and restore it from a backup with"
    " 'commonplace restore BACKUP --system --overwrite'."
)


class Report:
    """A dataclass that can be converted to JSON."""

    __slots__ = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the public fields as plain values."""
        names = [each.name for each in fields(self) if not each.name.startswith("_")]  # type: ignore[arg-type]
        return {name: _plain(getattr(self, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, Report):
        return value.as_dict()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


@dataclass(slots=True)
class Finding(Report):
    """A fault that a check found, in one or more rows."""

    check: str
    severity: Severity
    what: str
    hint: str = ""
    count: int = 1
    rows: list[str] = field(default_factory=list)
    """The first rows with the fault; `what` names the first of them."""

    def __str__(self) -> str:
        """Return the description of the first row, and the names of a few other rows."""
        if self.count == 1:
            return self.what
        shown = ", ".join(self.rows[1 : MOST_ROWS_SHOWN + 1])
        more = ", …" if self.count > MOST_ROWS_SHOWN + 1 else ""
        return f"{self.what} The same is true of {self.count - 1:,} more: {shown}{more}."


@dataclass(slots=True)
class Diagnosis(Report):
    """The findings of a check of a space or file. Notes and warnings are not damage."""

    space: str
    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    _found: Counter[tuple[str, Severity]] = field(default_factory=Counter)
    _alike: dict[tuple[str, ...], Finding] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """Whether no data is damaged or missing."""
        return not any(finding.severity == "error" for finding in self.findings)

    def has_damage_in(self, *checks: str) -> bool:
        """Return whether one of these checks found damage."""
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
        """Add a finding. If `what` contains {row}, the same fault in other rows is added to it.

        After a hundred different findings of one check, further ones are only counted.
        """
        key = (check, severity, what, hint)
        same = self._alike.get(key)
        if same is not None:
            if str(row) != same.rows[-1]:  # Two passages of one memory count as one row.
                same.count += 1
                same.rows += [str(row)] if len(same.rows) < MOST_LISTED else []
            return
        self._found[check, severity] += 1
        if self._found[check, severity] > MOST_LISTED:
            return
        finding = Finding(check, severity, what, hint)
        if row is not None:
            finding.what, finding.rows = what.replace("{row}", str(row)), [str(row)]
            self._alike[key] = finding
        self.findings.append(finding)

    def finish(self) -> Diagnosis:
        """Add the number of findings that were not listed."""
        for (check, severity), count in self._found.items():
            if count > MOST_LISTED:
                more = f"{count - MOST_LISTED} more findings of this check."
                self.findings.append(Finding(check, severity, more))
        return self

    def as_dict(self) -> dict[str, Any]:
        """Return the public fields as plain values."""
        shown = Report.as_dict(self)
        return {"space": shown.pop("space"), "healthy": self.healthy, **shown}


@dataclass(frozen=True, slots=True)
class Repair(Report):
    """The rebuilt parts, and the diagnoses before and after."""

    rebuilt: list[str]
    before: Diagnosis
    after: Diagnosis


@dataclass(frozen=True, slots=True)
class BackupReport(Report):
    """The content of a backup."""

    path: Path
    spaces: dict[str, int]
    """How many memories each space has."""
    digest: dict[str, str]
    """For each space, a SHA-256 of its content."""
    files: tuple[str, ...] = ()
    """The files that belong to no space."""


@dataclass(frozen=True, slots=True)
class RestoreReport(Report):
    """The restored spaces and files, and the new paths of the replaced files."""

    path: Path
    spaces: dict[str, int]
    digest: dict[str, str]
    replaced: dict[str, str]
    """The new path of each replaced file, by its space or its name."""
    files: tuple[str, ...] = ()
    """The restored files that belong to no space."""


@dataclass(frozen=True, slots=True)
class MoveReport(Report):
    """The spaces that a move has copied, and those that the target already had."""

    moved: dict[str, int]
    """The number of rows of each copied space."""
    there: list[str]
    """The spaces that the target already had with equal rows."""
    system: Literal["moved", "there", "left out", "none"]
    """What happened to accounts, tokens and other rows that belong to no space."""


@dataclass(frozen=True, slots=True)
class Salvage(Report):
    """The number of rows of each table that were saved into a new file, and the lost rows."""

    path: Path
    saved: dict[str, int]
    lost: list[str]
