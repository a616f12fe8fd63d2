"""Loaded by the processes that tests start: a database on the event loop ends them.

The guard begins when a process imports apsw or psycopg, and not before: some load little on
purpose. If the tests run on PostgreSQL, so do these processes.
"""

import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


class _Loading(MetaPathFinder):
    """Does something once a module is loaded."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        del path, target
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def loaded(module: ModuleType) -> None:
                load(module)
                sys.path.insert(0, str(Path(__file__).parent.parent))
                try:
                    self._then(module)
                finally:
                    del sys.path[0]

            spec.loader.exec_module = loaded  # type: ignore[method-assign]
        return spec


def _watch(apsw: ModuleType) -> None:
    del apsw
    import loop_guard

    loop_guard.watch(ends=True)


def _watch_postgres(psycopg: ModuleType) -> None:
    del psycopg
    import loop_guard

    loop_guard.watch_postgres(ends=True)


def _use_postgres(module: ModuleType) -> None:
    import postgres_engine

    postgres_engine.use(module)


sys.meta_path.insert(0, _Loading("apsw", _watch))
sys.meta_path.insert(0, _Loading("psycopg", _watch_postgres))
if os.environ.get("COMMONPLACE_TEST_ENGINE") == "postgres":
    for name in (
        "commonplace.cli.options", "commonplace.engine.library", "commonplace.server.serving",
        "commonplace.storage.system",
    ):  # fmt: skip
        sys.meta_path.insert(0, _Loading(name, _use_postgres))
