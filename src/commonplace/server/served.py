"""The table of dialects: where each one lives, and the paths it is served at."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from commonplace.dialects.contract import Dialect
from commonplace.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Served:
    """A dialect's module, loaded when it is asked for, and its paths."""

    module: str
    paths: tuple[str, ...]


DIALECTS: dict[str, Served] = {
    "commonplace": Served("commonplace.dialects.commonplace", ("/mcp/commonplace",)),
}


def load(name: str) -> Dialect:
    """The dialect of that name."""
    served = DIALECTS.get(name)
    if served is None:
        raise InvalidInput(
            f"There is no dialect {name!r}.", hint=f"There are: {', '.join(DIALECTS)}.",
            field="dialect",
        )  # fmt: skip
    dialect: Dialect = import_module(served.module).DIALECT
    return dialect
