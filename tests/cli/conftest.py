"""Directories in memory: what is tested here needs no real disk."""

from __future__ import annotations

from server.conftest import shared_data, tmp_path

__all__ = ["shared_data", "tmp_path"]
