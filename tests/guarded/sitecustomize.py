"""Loaded by the processes that tests start: a database on the event loop ends them.

The guard begins when a process imports apsw, and not before: some load little on purpose.
"""

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


class _Guarding(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        del path, target
        if name != "apsw":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def loaded(module: ModuleType) -> None:
                load(module)
                _watch()

            spec.loader.exec_module = loaded  # type: ignore[method-assign]
        return spec


def _watch() -> None:
    sys.path.insert(0, str(Path(__file__).parent.parent))
    try:
        import loop_guard
    finally:
        del sys.path[0]
    loop_guard.watch(ends=True)


sys.meta_path.insert(0, _Guarding())
