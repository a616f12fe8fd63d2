"""Translate errors of PostgreSQL to the errors of this package."""

from __future__ import annotations

import psycopg

from commonplace.errors import (
    CommonplaceError,
    Conflict,
    InvalidInput,
    StorageCorrupt,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
)

CHECK_HINT = "Run 'commonplace database check'."

# The key is an SQLSTATE: the whole code is looked up first, then its class of two characters.
_BY_STATE: dict[str, tuple[type[CommonplaceError], str, str]] = {
    "53100": (
        StorageFull,
        "The database server has no free disk space; nothing of this call was stored.",
        "Free space on the database server and try again; reading still works.",
    ),
    "53300": (
        StorageUnavailable,
        "The database has no free connection.",
        "Raise its max_connections, or run fewer servers.",
    ),
    "25006": (
        StorageReadOnly,
        "The database is read-only; nothing of this call was stored.",
        "It may be a standby: use the primary, or both with target_session_attrs=read-write.",
    ),
    "55P03": (
        StorageUnavailable,
        "Another server has been writing to this space for over 30 seconds.",
        "Try again. If the error persists, look for a suspended server.",
    ),
    "28": (
        StorageUnavailable,
        "The database refused the user name or the password.",
        "Compare the URL with the one that 'commonplace database init' printed.",
    ),
    "3D000": (
        StorageUnavailable,
        "There is no such database on the server.",
        "Check the name at the end of the URL.",
    ),
    "3F000": (
        StorageUnavailable,
        "The tables of this program are missing in the database.",
        CHECK_HINT,
    ),
    "42P01": (StorageUnavailable, "A table is missing in the database.", CHECK_HINT),
    "42501": (StorageUnavailable, "The role of the database URL lacks a permission.", CHECK_HINT),
    "23": (Conflict, "An object with the same id already exists.", ""),
    "XX001": (StorageCorrupt, "The database is damaged.", "Restore it from a backup."),
    "XX002": (StorageCorrupt, "An index of the database is damaged.", "Rebuild it with REINDEX."),
    "22021": (
        InvalidInput,
        "A text contains a character that the database cannot store.",
        "Remove the character from the text.",
    ),
}


def typed_error(error: psycopg.Error) -> CommonplaceError:
    """Return the error of this package for an error of PostgreSQL."""
    state = error.sqlstate or ""
    found = _BY_STATE.get(state) or _BY_STATE.get(state[:2])
    if found is not None:
        kind, message, hint = found
        return kind(message, hint=hint)
    if not state or state[:2] in ("08", "57"):
        return StorageUnavailable(
            "The connection to the database was lost; this call was not acknowledged.",
            hint="Try again. If the error persists, check the database server.",
        )
    return StorageUnavailable(
        f"The database refused a statement ({type(error).__name__}, code {state}).",
        hint="This call was not acknowledged. Check the log of the database and try again.",
    )


def unreachable_error(error: psycopg.Error, where: str) -> CommonplaceError:
    """Return the error for a connection that could not be opened.

    libpq describes some causes only as text. Without `where`, the error does not name the database.
    """
    said = str(error)
    if "authentication failed" in said or "no password supplied" in said:
        kind, message, hint = _BY_STATE["28"]
    elif "does not exist" in said and "database" in said:
        kind, message, hint = _BY_STATE["3D000"]
    elif error.sqlstate and (known := _BY_STATE.get(error.sqlstate)):
        kind, message, hint = known
    elif "too many clients" in said or "remaining connection slots" in said:
        kind, message, hint = _BY_STATE["53300"]
    else:
        return StorageUnavailable(
            f"The database at {where} does not answer."
            if where
            else "The database does not answer.",
            hint="Check the URL, and whether the server runs."
            if where
            else "Try again. If the error persists, check the database server.",
        )
    return kind(message, hint=hint)
