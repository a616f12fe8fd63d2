"""Options that many commands share, and the memory that they open."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commonplace.cli.terminal import note, progress
from commonplace.dialects import registry
from commonplace.errors import CommonplaceError, InvalidInput, NotFound
from commonplace.storage.fields import FIELDS, FILTERABLE
from commonplace.text.hidden import escape_hidden

if TYPE_CHECKING:
    from commonplace.embedding.provider import Embedder
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.content.projects import Project
    from commonplace.engine.library import Library
    from commonplace.server.settings import Settings
    from commonplace.storage.ports import Store


def _path_parser(option: str, hint: str) -> Callable[[str], Path]:
    """Return a parser of paths; an empty path, which would be this directory, is refused."""

    def parse_path(name: str) -> Path:
        if not name.strip():
            raise InvalidInput(f"{option} is empty.", hint=hint, field=option.lstrip("-").lower())
        return Path(name)

    return parse_path


def option(form: str, help: str, **more: Any) -> Any:
    """Return an option for a form such as `--limit -n N`: flags and the name of the value."""
    flags, metavar = _split_form(form)
    return typer.Option(*flags, metavar=metavar, help=help, **more)


def path_option(form: str, help: str, **more: Any) -> Any:
    """Return an option whose value is a path."""
    parser = _path_parser(form.split()[0], "Name a path, or omit the option.")
    return option(form, help, parser=parser, **more)


def argument(metavar: str, help: str) -> Any:
    """Return an argument with the name that the help shows."""
    return typer.Argument(metavar=metavar, help=help)


def refuse_together(given: Mapping[str, object]) -> None:
    """Raise InvalidInput if more than one of these options is given; None and False are not."""
    names = [name for name, value in given.items() if value is not None and value is not False]
    if len(names) > 1:
        raise InvalidInput(f"{' and '.join(names)} exclude each other.", hint="Choose one.")


def path_argument(metavar: str, help: str) -> Any:
    """Return an argument that is a path."""
    parser = _path_parser(metavar.split("|")[0].removesuffix("..."), "Name a path.")
    return typer.Argument(metavar=metavar, help=help, parser=parser)


def _split_form(form: str) -> tuple[list[str], str | None]:
    words = form.split()
    values = [word for word in words if not word.startswith("-")]
    return [word for word in words if word.startswith("-")], values[0] if values else None


Data = Annotated[
    Path | None,
    path_option("--data DIR", "The data directory.", envvar="COMMONPLACE_DATA"),
]
Database = Annotated[
    str | None,
    option(
        "--database URL",
        "A PostgreSQL database to use instead of files.",
        envvar="COMMONPLACE_DATABASE",
    ),
]
Space = Annotated[str, option("--space NAME", "The space.")]
AsJson = Annotated[bool, option("--json", "Write JSON for scripts.")]
Embedding = Annotated[
    str | None,
    option(
        "--embedding builtin|none|URL",
        "Embedding model: the built-in one, none (search by words only), or the URL of an"
        " OpenAI-compatible endpoint (its key in COMMONPLACE_EMBEDDING_KEY, its model in"
        " COMMONPLACE_EMBEDDING_MODEL).",
        envvar="COMMONPLACE_EMBEDDING",
    ),
]
Ids = Annotated[list[str], argument("ID...", "IDs, or their first characters.")]
Id = Annotated[str, argument("ID", "The ID, or its first characters.")]


ProjectOption = Annotated[
    str | None,
    option("--project NAME", "Use this project instead of the project of the working directory."),
]
AllowSecrets = Annotated[
    bool,
    option(
        "--allow-secrets",
        "Store keys, tokens and passwords as they are, instead of masking them.",
        envvar="COMMONPLACE_ALLOW_SECRETS",
    ),
]
GlobalOption = Annotated[
    bool, option("--global", "Store for all projects, not only for the current one.")
]


# The values of --dialect in the help; dialects of other distributions are not listed.
DIALECTS = ", ".join(registry.built_in_names())


_OPTION_TYPES: dict[str, Any] = {"share": float, "flag": bool}


def with_fields(command: Callable[..., None], *, filters_only: bool = False) -> Callable[..., None]:
    """Decorate a command: add an option for each field of a memory.

    With `filters_only`, add only those of the fields by which a search can filter.

    The command receives the values as `details`.
    """
    chosen = {
        name: known
        for name, known in FIELDS.items()
        if known.option and (name in FILTERABLE or not filters_only)
    }

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        details = {name: given.pop(name) for name in chosen}
        for name, known in chosen.items():
            if known.type == "time":
                details[name] = parse_time(details[name], known.option.removeprefix("--"))
        details = {name: value for name, value in details.items() if value is not None}
        command(details=details, **given)

    parameters = inspect.signature(command, eval_str=True).parameters
    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                _OPTION_TYPES.get(known.type, str) | None,
                typer.Option(known.option, metavar=known.metavar or None, help=known.help),
            ],
        )
        for name, known in chosen.items()
    ]
    own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters.values()]
    at = [each.name for each in own].index("details")
    signature = inspect.Signature([*own[:at], *added, *own[at + 1 :]])
    wrapped.__signature__ = signature  # type: ignore[attr-defined]
    wrapped.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return wrapped


_database_option: str | None = None
"""The value of --database from this command line or the environment."""


def with_database(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command that has --data: add the option --database."""

    @functools.wraps(command)
    def wrapped(*, database: str | None, **given: Any) -> None:
        global _database_option
        _database_option = database
        command(**given)

    signature = inspect.signature(command, eval_str=True)
    kept = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values()
    ]
    at = [each.name for each in kept].index("data") + 1
    added = inspect.Parameter(
        "database", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Database
    )
    wrapped.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*kept[:at], added, *kept[at:]]
    )
    wrapped.__annotations__ = {
        each.name: each.annotation for each in [*kept[:at], added, *kept[at:]]
    }
    return wrapped


def settings_of(data: Path | None) -> Settings:
    """Load the settings of a data directory; all commands must use this function.

    Raise InvalidInput if config.toml or a variable is invalid, so that the command stops.
    """
    from commonplace.engine.library import directory
    from commonplace.server.settings import Settings

    return Settings.load(data=directory(data), database=_database_option)


def database_of(data: Path | None) -> str | None:
    """Return the address of the PostgreSQL database; None if the data directory has the rows."""
    return settings_of(data).database or None


def unconfigured_database(data: Path | None, environ: Mapping[str, str]) -> str | None:
    """Return the address of this command's database if a later process would not use it.

    That process has only the data directory's config.toml, and the variables in `environ`.
    """
    from commonplace.engine.library import directory
    from commonplace.server.settings import Settings

    chosen = settings_of(data).database
    later = Settings.load(environ, data=directory(data)).database
    return chosen if chosen != later else None


def warn_of_unconfigured_database(data: Path | None) -> None:
    """Say that an agent's own server will not use the database of this command."""
    import os

    from commonplace.engine.library import directory

    if unconfigured_database(data, os.environ):
        file = escape_hidden(str(directory(data) / "config.toml"))
        note("--database is not written into an agent's file: set COMMONPLACE_DATABASE for the"
             f" agent, or write database = \"…\" into {file}")  # fmt: skip


def has_system_store(data: Path | None) -> bool:
    """Return whether the system store (accounts, tokens) exists; do not create it."""
    from commonplace.engine.library import directory
    from commonplace.storage.system import system_file

    return database_of(data) is not None or system_file(directory(data)).exists()


def open_system(data: Path | None) -> Store:
    """Open the store of accounts and credentials, which all spaces share."""
    from commonplace.engine.library import directory
    from commonplace.storage import opening

    return opening.open_system(directory(data), database_of(data))


def existing_directory(data: Path | None) -> Path:
    """Return the data directory; raise NotFound if it does not exist."""
    from commonplace.engine.library import directory

    where = directory(data)
    if database_of(data) is None and not (where / "spaces").is_dir():
        raise NotFound(
            f"There is no memory in {where} yet.",
            hint='Store something first: commonplace remember "…".',
            field="data",
        )
    return where


@contextmanager
def open_library(
    data: Path | None, embedding: str | None = "none", *, allow_secrets: bool = False
) -> Iterator[Library]:
    """Open a data directory; if `embedding` is None, use the value in its settings."""
    from commonplace.embedding.provider import configured_embedder
    from commonplace.engine.library import Library

    settings = settings_of(data)
    name = settings.embedding if embedding is None else embedding
    builtin = name.strip().lower() == "builtin"
    opened = Library(
        data,
        embedder=_served_model(data) if builtin else configured_embedder(name),
        database=settings.database or None,
        allow_secrets=allow_secrets or settings.allow_secrets,
        auto_accept=settings.auto_accept,
    )
    try:
        if opened.read_only:
            note(f"{escape_hidden(str(opened.path))} is read-only: nothing is stored or counted.")
        yield opened
    finally:
        opened.close()


def check_embedding(name: str | None) -> None:
    """Raise InvalidInput if the embedding provider does not exist."""
    from commonplace.embedding.provider import open_embedder

    usual = name is None or name.strip().lower() == "builtin"
    opened = None if usual else open_embedder(name)
    if opened is not None:
        opened.close()


def _served_model(data: Path | None) -> Embedder | None:
    """Return the built-in model, served by the running server of the data directory, if any."""
    from commonplace.client import connection
    from commonplace.embedding.provider import open_embedder
    from commonplace.engine.library import directory

    try:
        place = connection.place_of(str(directory(data)), database_of(data) or "")
    except (OSError, connection.Unusable):
        return open_embedder("builtin")
    from commonplace.cli.served_model import ServedModel

    return ServedModel(place)


def current_project(name: str | None = None) -> Project | None:
    """Return the project of that name, or of the working directory; None if it has no project."""
    from commonplace.platform.projects import project_here

    if name is not None and not name.strip():
        raise InvalidInput("--project is empty.", hint="Name one.", field="project")
    return project_here(name)


@contextmanager
def open_memory(
    data: Path | None,
    space: str,
    embedding: str | None = "none",
    *,
    create: bool = False,
    hint: str = "",
    project: Project | None = None,
    allow_secrets: bool = False,
) -> Iterator[Commonplace]:
    """Open a space; raise NotFound if it does not exist, unless `create`.

    `hint` is the hint of that error.
    """
    from commonplace.engine.commonplace import Commonplace
    from commonplace.engine.model import Origin

    file = _file_of_space(data, space)
    if not create:
        check_space(data, space, hint)
    with (
        _remove_if_unused(file, space),
        open_library(data, embedding, allow_secrets=allow_secrets) as shared,
    ):
        if not create and database_of(data) is not None and not shared.exists(space):
            raise _space_not_found(data, space, hint)
        yield Commonplace(space=space, origin=Origin(client="cli"), library=shared, project=project)


def check_space(data: Path | None, space: str, hint: str = "") -> None:
    """Raise NotFound if a space has no file. In a database this is known once it is open."""
    if not _file_of_space(data, space).exists() and database_of(data) is None:
        raise _space_not_found(data, space, hint)


def _file_of_space(data: Path | None, space: str) -> Path:
    from commonplace.engine import checks
    from commonplace.engine.library import directory

    return directory(data) / "spaces" / f"{checks.space(space)}.db"


def _space_not_found(data: Path | None, space: str, hint: str) -> NotFound:
    from commonplace.engine.library import directory
    from commonplace.storage.opening import server_and_database

    database = database_of(data)
    where = directory(data) if database is None else server_and_database(database)
    return NotFound(
        f"There is no space {space} in {where} yet."
        if space != "default"
        else f"Nothing is stored in {where} yet.",
        hint=hint or _how_to_create(space),
        field="space",
    )


@contextmanager
def _remove_if_unused(file: Path, space: str) -> Iterator[None]:
    """Remove the file and directories of a new space if the command stored nothing."""
    new = [each for each in (file, file.parent, file.parent.parent) if not each.exists()]
    try:
        yield
    finally:
        with suppress(OSError, CommonplaceError):
            if file in new and file.exists():
                from commonplace.storage.sqlite.swap import delete_file

                delete_file(file, unused=space)  # fails if something was stored
            for folder in new[1:] if file in new else ():
                folder.rmdir()  # fails if the directory is not empty


def compute_embeddings(memory: Commonplace) -> int:
    """Compute missing embeddings, if the model runs on this machine; return their number."""
    from commonplace.engine.binding import engine_call
    from commonplace.engine.maintenance import upkeep

    if memory.library.embedder is None or not memory.library.embedder.local:
        return 0
    with progress("Computing embeddings") as show:
        return engine_call(memory, upkeep.embed_all, show)


def _how_to_create(space: str) -> str:
    named = "" if space == "default" else f" --space {space}"
    return f'Store something first: commonplace remember "…"{named}.'


def parse_time(value: str | None, name: str, option: str = "") -> datetime | str | None:
    """Parse a time as typed by a person: a date, `yesterday`, `7d`; local unless it has a time
    zone.

    A date means its end for `until`; for `at` it stays a date: midnight in UTC. A period means its
    start, its end for `until` and `as_of`, and the day in its middle for `at`. `option` is the name
    of the option in errors, if it is not `name`.
    """
    from commonplace.text import dates

    if value is None:
        return value
    option = option or (name if name.isupper() else f"--{name.replace('_', '-')}")
    last = timedelta()
    try:
        at = datetime.fromisoformat(value)
        if len(value) <= 10 and name == "until":
            at = at.replace(hour=23, minute=59, second=59, microsecond=999_999)
        elif len(value) <= 10 and name == "at":
            return at.replace(tzinfo=UTC)
    except ValueError:
        if name in ("until", "as_of"):
            last = timedelta(microseconds=1)
        share = 1 if last else 0.5 if name == "at" else 0
        found = dates.parse_moment(value, datetime.now(), share)
        if found is None:
            raise InvalidInput(
                f"{option} is not a date or time.",
                hint="Write it as 2026-05-31, '2026-05-31 14:00', 2026-05-31T14:00:00Z, yesterday,"
                " 7d, 'last tuesday' or 'two weeks ago'.",
                field=name,
            ) from None
        at = found
        if name == "at" and (at.hour % 12, at.minute, at.second, at.microsecond) == (0, 0, 0, 0):
            return at.replace(hour=0, tzinfo=UTC)  # no time of the day was given
    try:
        return at.astimezone() - last
    except (OverflowError, OSError, ValueError):
        raise InvalidInput(f"{option} must be between the years 1 and 9999.", field=name) from None
