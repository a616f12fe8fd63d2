"""Reads `config.toml` of a data directory, for all programs."""

from __future__ import annotations

import os
from typing import Any

SETTING_NAMES = (
    "database", "host", "port", "public_url", "allow_hosts", "allow_origins", "proxies",
    "require_token", "embedding", "dialect", "rate", "burst", "body_bytes", "call_seconds",
    "audit_days", "allow_secrets", "auto_accept", "idle_seconds", "log",
)  # fmt: skip
"""The names of all settings, in the order of `server.settings.Settings`."""


class Unreadable(ValueError):
    """The file cannot be read, or contains an unknown setting; the program must stop."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def read(data: str) -> dict[str, Any]:
    """Return the settings in the file; empty if there is no file."""
    path = os.path.join(data, "config.toml")  # noqa: PTH118
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o022:
                raise Unreadable(f"{path} can be written by others.", f"chmod 600 {path}")
            import tomllib

            found = tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError):  # opening the directory reports the error
        return {}
    except OSError as error:
        told = f"{path} cannot be read: {error.strerror}."
        raise Unreadable(told, "Check its permissions, or rename it.") from error
    except Unreadable:
        raise
    except ValueError as error:  # not TOML, or not UTF-8
        told = f"{path} is not valid TOML: {error}."
        raise Unreadable(told, "Correct it, or rename it.") from error
    for name in found:
        if name not in SETTING_NAMES:
            told = f"{path} sets {name!r}, which is not a setting."
            raise Unreadable(told, f"The settings are: {', '.join(SETTING_NAMES)}.")
    if not isinstance(found.get("database", ""), str):
        raise Unreadable(f"database in {path} is not a string.", "Write it in quotes.")
    return found
