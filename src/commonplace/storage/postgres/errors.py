"""Translates errors of PostgreSQL to typed errors."""

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

CHECK = "Run 'commonplace database check'."

# By SQLSTATE: first the whole code, then its class of two characters.
_BY_STATE: dict[str, tuple[type[CommonplaceError], str, str]] = {
    "53100": (
        StorageFull,
        "The database has no room to write; nothing of this call was stored.",
        "Free disk space on its server and try again; reading goes on.",
    ),
    "53300": (
        StorageUnavailable,
        "The database has no connection left.",
        "Raise its max_connections, or run fewer servers.",
    ),
    "25006": (
        StorageReadOnly,
        "The database can only be read; nothing of this call was stored.",
        "It may be a standby: name the primary, or both with target_session_attrs=read-write.",
    ),
    "55P03": (
        StorageUnavailable,
        "Another server has been writing to this space for over 30 seconds.",
        "Try again; if it lasts, look for a stopped server.",
    ),
    "28": (
        StorageUnavailable,
        "The database refused the user name or the password.",
        "Look at the address that 'commonplace database init' printed.",
    ),
    "3D000": (
        StorageUnavailable,
        "There is no such database on the server.",
        "Look at the name at the end of the address.",
    ),
    "3F000": (StorageUnavailable, "The database has no tables of ours.", CHECK),
    "42P01": (StorageUnavailable, "A table is missing in the database.", CHECK),
    "42501": (StorageUnavailable, "The database's role may not do that.", CHECK),
    "23": (Conflict, "Something with the same identity exists already.", ""),
    "XX001": (StorageCorrupt, "The database is damaged.", "Restore it from a backup."),
    "XX002": (StorageCorrupt, "An index of the database is damaged.", "Rebuild it with REINDEX."),
    "22021": (
        InvalidInput,
        "A text holds a character that cannot be stored.",
        "Leave it out.",
    ),
}


def typed(error: psycopg.Error) -> CommonplaceError:
    """The typed error for an error of PostgreSQL."""
    state = error.sqlstate or ""
    found = _BY_STATE.get(state) or _BY_STATE.get(state[:2])
    if found is not None:
        kind, message, hint = found
        return kind(message, hint=hint)
    if not state or state[:2] in ("08", "57"):
        return StorageUnavailable(
            "The connection to the database was lost; nothing of this call was acknowledged.",
            hint="Try again; if it lasts, look at the database's server.",
        )
    return StorageUnavailable(
        f"The database refused ({type(error).__name__}, code {state}).",
        hint="Nothing of this call was acknowledged; look at its log and try again.",
    )


def unreachable(error: psycopg.Error, where: str) -> CommonplaceError:
    """The error for a connection that could not be made; libpq explains some as text only.

    Without `where`, it does not name the database.
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
            hint="Look at the address, and whether its server runs."
            if where
            else "Try again; if it lasts, look at the database's server.",
        )
    return kind(message, hint=hint)
