"""Typed errors: each has a stable code, a message that says what is wrong, and a hint."""

from __future__ import annotations

import errno
from collections.abc import Mapping

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
"""The `errno` values that mean a full disk or an exhausted quota."""


class CommonplaceError(Exception):
    """Base of all typed errors. `code` is stable; `message` is for people."""

    code: str = "ERROR"

    def __init__(self, message: str, *, hint: str = "", field: str | None = None) -> None:
        super().__init__(message if not hint else f"{message} {hint}")
        self.message = message
        self.hint = hint
        self.field = field

    def as_dict(self) -> dict[str, str]:
        """Return the error as plain values for JSON."""
        parts = {"code": self.code, "message": self.message, "hint": self.hint}
        if self.field is not None:
            parts["field"] = self.field
        return parts


class InvalidInput(CommonplaceError):
    """An argument is invalid; nothing was changed."""

    code = "INVALID_INPUT"


class NotFound(CommonplaceError):
    """The object does not exist in this space."""

    code = "NOT_FOUND"


class Conflict(CommonplaceError):
    """The object already exists or was changed meanwhile; this call changed nothing."""

    code = "CONFLICT"


class StorageFull(CommonplaceError):
    """The disk is full; this call stored nothing."""

    code = "STORAGE_FULL"


class StorageUnavailable(CommonplaceError):
    """The disk or the database failed; this call was not acknowledged."""

    code = "STORAGE_UNAVAILABLE"


class StorageReadOnly(StorageUnavailable):
    """The data directory is read-only; nothing was stored. The library and the command line can
    still read it; a server cannot, since it has to write audit entries."""

    code = "STORAGE_READ_ONLY"


class StorageCorrupt(CommonplaceError):
    """Stored data is damaged, and is not returned."""

    code = "STORAGE_CORRUPT"


class UnsupportedVersion(CommonplaceError):
    """The file was written by a newer release, or by another program."""

    code = "UNSUPPORTED_VERSION"


class EmbeddingUnavailable(CommonplaceError):
    """The embedding provider failed; search by words still works."""

    code = "EMBEDDING_UNAVAILABLE"


# The exit codes of the program, by the kind of error.
EXIT_CODES: dict[type[CommonplaceError], int] = {
    InvalidInput: 2,
    NotFound: 3,
    Conflict: 4,
    StorageFull: 5,
    StorageUnavailable: 5,
    StorageCorrupt: 5,
    UnsupportedVersion: 5,
    EmbeddingUnavailable: 5,
}


def error_of(parts: Mapping[str, str]) -> CommonplaceError:
    """Rebuild an error from its `as_dict`, which another process has sent."""
    kinds: list[type[CommonplaceError]] = [*EXIT_CODES, StorageReadOnly]
    kind = {each.code: each for each in kinds}.get(parts["code"], CommonplaceError)
    return kind(parts["message"], hint=parts["hint"], field=parts.get("field"))


def exit_code(error: CommonplaceError) -> int:
    """Return the exit code of a program that fails with this error."""
    known = (code for kind, code in EXIT_CODES.items() if isinstance(error, kind))
    return next(known, EXIT_CODES[InvalidInput])
