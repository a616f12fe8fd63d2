"""Artifacts: documents with versions and reviews, found by an id or a path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commonplace.engine import checks
from commonplace.engine.content.write_policy import (
    check_artifact,
    mask_content,
    mask_row,
    mask_text,
)
from commonplace.engine.history.timeline import read_as_of, rows_at
from commonplace.engine.library import OpenSpace
from commonplace.engine.model import Artifact, ArtifactVersion, Origin, Review, When
from commonplace.errors import Conflict, InvalidInput, NotFound
from commonplace.storage.database import new_id
from commonplace.storage.ports import Rows
from commonplace.storage.tables import ARTIFACTS, CONTENTS, REVIEWS, Row
from commonplace.storage.writing import Unit

CONTENT_BYTES = checks.CONTENT_BYTES
PATH_CHARS = checks.PATH_CHARS


def _need_artifact(connection: Rows, space: str, name: str, seq: int | None = None) -> Row:
    """Return the row of an artifact by its id or path, now or after an operation; or raise
    NotFound.
    """
    checks.text(name, "artifact", max_chars=PATH_CHARS)
    if seq is not None:
        for then in rows_at(connection, space, ARTIFACTS, seq, state="active"):
            if name in (then["id"], then["path"]):
                return then
        raise NotFound("There was no such artifact at that time.", field="artifact")
    by_id = ARTIFACTS.first(connection, space, state="active", id=name)
    row = by_id or ARTIFACTS.first(connection, space, state="active", path=name)
    if row is None:
        raise NotFound("There is no such artifact.", field="artifact")
    return row


def _as_bytes(content: object) -> bytes:
    if isinstance(content, str):
        content = checks.optional_text(content, "content", max_chars=CONTENT_BYTES).encode()
    if not isinstance(content, bytes):
        raise InvalidInput("content must be text or bytes.", field="content")
    if len(content) > CONTENT_BYTES:
        raise InvalidInput(
            f"content has {len(content):,} bytes; at most {CONTENT_BYTES:,} are allowed.",
            field="content",
        )
    return bytes(content)


def create(
    space: OpenSpace,
    content: str | bytes,
    *,
    path: str | None = None,
    title: str = "",
    media_type: str = "text/markdown",
    attrs: Mapping[str, Any] | None = None,
    origin: Origin | None = None,
) -> Artifact:
    """Create an artifact with version 1; raise Conflict if the path is taken."""
    origin = checks.origin(origin)
    data = mask_content(space, _as_bytes(content))
    given = {"path": path, "title": title, "media_type": media_type, "attrs": attrs}
    values = checks.columns(ARTIFACTS, given)
    mask_row(space, values)
    check_artifact(path)
    with space.write("create artifact", origin) as unit:
        if path is not None:
            _check_free(unit, path)
        row = ARTIFACTS.insert(
            unit,
            {
                **values,
                "id": new_id(),
                "origin": origin.dump(),
                "version": 1,
                "status": "draft",
                "state": "active",
                "created_at": unit.at,
                "updated_at": unit.at,
            },
        )
        _put_content(unit, row["id"], 1, data, "Initial version", origin)
        return Artifact.of(row)


def _check_free(unit: Unit, path: str) -> None:
    """Raise Conflict if the path is taken, or equals the id of another artifact."""
    if ARTIFACTS.first(unit.connection, unit.space, state="active", path=path):
        raise Conflict(
            "There is already an artifact at this path.", hint="Update it.", field="path"
        )
    if ARTIFACTS.by_id(unit.connection, unit.space, path):
        raise Conflict(
            "The path is the id of another artifact.", hint="Choose another path.", field="path"
        )


def _put_content(
    unit: Unit, artifact: str, version: int, content: bytes, summary: str, origin: Origin
) -> None:
    CONTENTS.insert(
        unit,
        {
            "artifact": artifact,
            "version": version,
            "content": content,
            "summary": summary,
            "origin": origin.dump(),
            "created_at": unit.at,
        },
    )


def update(
    space: OpenSpace,
    name: str,
    content: str | bytes,
    *,
    summary: str = "",
    expected_version: int | None = None,
    origin: Origin | None = None,
) -> Artifact:
    """Store a new version; with `expected_version`, only if that is the newest version."""
    origin = checks.origin(origin)
    expected = checks.optional_integer(expected_version, "expected_version")
    data = mask_content(space, _as_bytes(content))
    summary = mask_text(
        space, checks.optional_text(summary, "summary", max_chars=checks.REASON_CHARS)
    )
    with space.write("update artifact", origin) as unit:
        row = _need_artifact(unit.connection, space.name, name)
        check_artifact(row["path"])
        if expected is not None and row["version"] != expected:
            raise Conflict(
                f"version conflict: expected {expected} but current is {row['version']}",
                hint="Read it again and repeat the change.",
                field="expected",
            )
        version = row["version"] + 1
        new = ARTIFACTS.replace(
            unit, row, {"version": version, "status": "draft", "updated_at": unit.at}
        )
        _put_content(unit, row["id"], version, data, summary or f"Version {version}", origin)
        return Artifact.of(new)


def get(space: OpenSpace, name: str, *, as_of: When | None = None) -> Artifact:
    """Return an artifact without its content, by id or path, now or as of a time."""
    with read_as_of(space, as_of) as (connection, seq):
        return Artifact.of(_need_artifact(connection, space.name, name, seq))


def read(
    space: OpenSpace, name: str, *, version: int | None = None, as_of: When | None = None
) -> tuple[Artifact, ArtifactVersion]:
    """Return an artifact with the content of one version, the newest by default."""
    with read_as_of(space, as_of) as (connection, seq):
        row = _need_artifact(connection, space.name, name, seq)
        wanted = row["version"] if version is None else checks.integer(version, "version")
        for content in rows_at(
            connection, space.name, CONTENTS, seq, artifact=row["id"], version=wanted
        ):
            return Artifact.of(row), ArtifactVersion.of(content)
        raise NotFound(f"version {wanted} not found", field="version")


def versions(space: OpenSpace, name: str, *, as_of: When | None = None) -> list[ArtifactVersion]:
    """Return every version, oldest first."""
    with read_as_of(space, as_of) as (connection, seq):
        row = _need_artifact(connection, space.name, name, seq)
        rows = rows_at(connection, space.name, CONTENTS, seq, artifact=row["id"])
        return [
            ArtifactVersion.of(each) for each in sorted(rows, key=lambda each: int(each["version"]))
        ]


def listing(
    space: OpenSpace, *, prefix: str | None = None, as_of: When | None = None
) -> list[Artifact]:
    """Return artifacts by path, those without a path last; `prefix` selects paths by their
    beginning.
    """
    if prefix is not None:
        checks.text(prefix, "prefix", max_chars=PATH_CHARS)
    with read_as_of(space, as_of) as (connection, seq):
        rows = rows_at(connection, space.name, ARTIFACTS, seq, state="active")
    if prefix is not None:
        rows = [row for row in rows if (row["path"] or "").startswith(prefix)]
    rows.sort(key=lambda row: (row["path"] is None, row["path"] or "", row["num"]))
    return [Artifact.of(row) for row in rows]


def delete(space: OpenSpace, name: str, *, origin: Origin | None = None) -> None:
    """Hide an artifact and free its path; undo brings it back."""
    with space.write("delete artifact", origin) as unit:
        row = _need_artifact(unit.connection, space.name, name)
        check_artifact(row["path"])
        ARTIFACTS.replace(unit, row, {"state": "archived"})


def review(
    space: OpenSpace,
    name: str,
    outcome: str,
    *,
    reviewer: str = "",
    comments: str = "",
    version: int | None = None,
    origin: Origin | None = None,
) -> Review:
    """Record a review: approved, changes_requested, rejected or commented.

    Without `version`, it is a review of the newest version. A review of the newest version sets the
    artifact's status, unless its outcome is "commented".
    """
    origin = checks.origin(origin)
    checks.one_of(outcome, "outcome", ("approved", "changes_requested", "rejected", "commented"))
    values = checks.columns(
        REVIEWS, {"outcome": outcome, "reviewer": reviewer, "comments": comments}
    )
    mask_row(space, values)
    with space.write("review artifact", origin) as unit:
        row = _need_artifact(unit.connection, space.name, name)
        wanted = row["version"] if version is None else checks.integer(version, "version")
        if not CONTENTS.first(unit.connection, space.name, artifact=row["id"], version=wanted):
            raise NotFound(f"version {wanted} not found", field="version")
        made = REVIEWS.insert(
            unit,
            {
                **values,
                "artifact": row["id"],
                "version": wanted,
                "origin": origin.dump(),
                "created_at": unit.at,
            },
        )
        if outcome != "commented" and wanted == row["version"]:
            ARTIFACTS.replace(unit, row, {"status": outcome})
        return Review.of(made)


def reviews(
    space: OpenSpace, name: str, *, version: int | None = None, as_of: When | None = None
) -> list[Review]:
    """Return the reviews of one version, or of all, oldest first."""
    if version is not None:
        checks.integer(version, "version")
    with read_as_of(space, as_of) as (connection, seq):
        row = _need_artifact(connection, space.name, name, seq)
        rows = rows_at(connection, space.name, REVIEWS, seq, artifact=row["id"])
        return [Review.of(each) for each in rows if version in (None, each["version"])]
