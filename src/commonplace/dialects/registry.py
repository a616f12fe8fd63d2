"""Find the dialects: the packages in this folder, and those that other distributions install.

The module `dialect` of a package defines `DIALECT`. The package itself imports little and may
define `RESERVED`, which is read without loading the dialect. Another distribution registers a
dialect with an entry point in the group `commonplace.dialects`: its name and its package.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from commonplace import dialects
from commonplace.errors import InvalidInput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from commonplace.access.declarations import AllTokenFormats, Resource
    from commonplace.dialects.contract import Dialect
    from commonplace.engine.content.write_policy import Reservation

ENTRY_POINT_GROUP = "commonplace.dialects"


@functools.cache
def built_in_names() -> tuple[str, ...]:
    """Return the names of the dialects in this distribution, without loading them."""
    return tuple(sorted(each.name for each in iter_modules(dialects.__path__) if each.ispkg))


@functools.cache
def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    found = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda each: each.name)
    return {each.name: each for each in found if each.name not in built_in_names()}


def names() -> tuple[str, ...]:
    """Return the names of all dialects, without loading them."""
    return (*built_in_names(), *_entry_points())


def checked_name(name: str) -> str:
    """Return the name if such a dialect exists; raise InvalidInput otherwise."""
    if name not in built_in_names() and name not in _entry_points():
        raise InvalidInput(
            f"There is no dialect {name!r}.", hint=f"Available: {', '.join(names())}.",
            field="dialect",
        )  # fmt: skip
    return name


def _package_name(name: str) -> str:
    return (
        f"{dialects.__name__}.{name}" if name in built_in_names() else _entry_points()[name].module
    )


def load(name: str) -> Dialect:
    """Load the dialect with this name."""
    package = _package_name(checked_name(name))
    dialect: Dialect = import_module(f"{package}.dialect").DIALECT
    if dialect.name != name:
        raise ValueError(
            f"{package} is registered as {name!r}, but its DIALECT has the name {dialect.name!r}"
        )
    return dialect


def reservations() -> dict[str, Reservation]:
    """Return the reservation of each dialect that has one, without loading the dialects."""
    found = {
        name: getattr(import_module(_package_name(name)), "RESERVED", None) for name in names()
    }
    return {name: each for name, each in found.items() if each is not None}


@functools.cache
def internal_kinds() -> tuple[str, ...]:
    """Return the internal kinds of all dialects; the command line finds them by their kind only."""
    return tuple(kind for each in reservations().values() for kind in each.own_records)


def load_all() -> dict[str, Dialect]:
    """Load all dialects, by name."""
    return {name: load(name) for name in names()}


def token_formats() -> AllTokenFormats:
    """Return the token formats of every dialect, and of the server's own operations."""
    from commonplace.access.declarations import DEFAULT_TOKEN_FORMATS, AllTokenFormats

    formats = {name: dialect.tokens for name, dialect in load_all().items()}
    return AllTokenFormats({**formats, "server": DEFAULT_TOKEN_FORMATS})


def resources_by_path(loaded: Iterable[Dialect], default: str) -> dict[str, Resource]:
    """Return the OAuth resources of these dialects by path.

    `/mcp` belongs to the default dialect, unless a dialect declares it.
    """
    from commonplace.access.declarations import Resource

    found: dict[str, Resource] = {}
    for dialect in loaded:
        declared = dialect.resources
        if declared is None:
            declared = {path: Resource() for path in dialect.paths}
        for path, resource in declared.items():
            found[path] = replace(
                resource, dialect=dialect.name, title=resource.title or dialect.title,
                refresh=dialect.tokens.refresh,
            )  # fmt: skip
    usual = found.get("/mcp") or next(each for each in found.values() if each.dialect == default)
    return {"/mcp": usual, **found}
