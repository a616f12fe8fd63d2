"""Shared code of the platform's routes: settings, access checks, and the declaration of operations.

The platform belongs to the operator of this installation: its data is in one space, and credentials
of other spaces are refused. Some operations are for the operator only, because they run prompts,
send messages, install skills, or show logs.
"""

from __future__ import annotations

import functools
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from commonplace.access.caller import NotPermitted
from commonplace.dialects.contract import Call, Schema, Setting, Tool
from commonplace.dialects.mama.platform.failures import PlatformError, malformed, missing_fields
from commonplace.dialects.rest import Exchange
from commonplace.dialects.tool_schemas import input_schema
from commonplace.errors import InvalidInput

if TYPE_CHECKING:
    from commonplace.engine.library import Library

OWNER_SPACE = "default"
TOKEN_VARIABLES = ("MAMA_AUTH_TOKEN", "MAMA_SERVER_TOKEN")
MAX_SCRIPTS = 2
"""The maximum number of scripts that run at the same time."""
UPLOADS_PER_MINUTE = 10
"""The maximum number of uploads per minute from one address."""
MINUTE = 60.0
MAX_ADDRESSES = 10_000
"""How many addresses uploads are counted for; beyond that, the oldest address is forgotten."""
RESPONSE_BYTES = 16 * 1024 * 1024
"""Response limit for the longest answers of the contract: 100 runs of a job, or a script."""
OBJECT_BODY = {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
"""The schema of a body with any fields, for the OpenAPI document."""
Level = Literal["read", "write", "operator"]
"""The level of an operation: callers who may read or write the space, or only the operator."""


class UploadLimit:
    """Counts the uploads of each address in the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._made: OrderedDict[str, deque[float]] = OrderedDict()

    def take(self, address: str) -> int:
        """Count an upload and return 0, or return the seconds to wait without counting."""
        with self._lock:
            now = self._clock()
            times = self._made.setdefault(address, deque())
            self._made.move_to_end(address)
            while times and times[0] <= now - MINUTE:
                times.popleft()
            if len(times) >= UPLOADS_PER_MINUTE:
                return max(1, math.ceil(times[0] + MINUTE - now))
            times.append(now)
            if len(self._made) > MAX_ADDRESSES:
                self._made.popitem(last=False)  # remove the address that has been idle longest
            return 0


@dataclass(frozen=True, slots=True)
class Service:
    """The platform of one server."""

    setting: Setting
    uploads: UploadLimit = field(default_factory=UploadLimit)
    scripts: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(MAX_SCRIPTS)
    )
    """Limits the number of scripts that run at the same time."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The operator's environment."""
        return self.setting.environ

    @property
    def folder(self) -> Path:
        """The directory with copies of files that people may read and edit."""
        return self.setting.library.path / "mama"

    @property
    def has_token(self) -> bool:
        """Whether the operator has set a token in the environment."""
        return any(self.environ.get(name) for name in TOKEN_VARIABLES)


_services: WeakKeyDictionary[Library, Service] = WeakKeyDictionary()


@contextmanager
def serving(setting: Setting) -> Iterator[Service]:
    """Register the settings of a library's server for its routes during the block."""
    service = _services[setting.library] = Service(setting)
    try:
        yield service
    finally:
        del _services[setting.library]


def service_of(call: Call) -> Service:
    """Return the platform that serves a call."""
    found = _services.get(call.memory.library)
    if found is None:
        raise PlatformError(
            501, "NOT_CONFIGURED", "The platform is not running. Start the server to use it."
        )
    return found


def check_owner(call: Call) -> None:
    """Refuse a caller of another space."""
    if call.caller.space != OWNER_SPACE:
        raise NotPermitted("Only the operator of this server may use this.")


def check_operator(call: Call) -> None:
    """Refuse callers other than the operator.

    If the environment has a token, the operator is a caller with this token, or with a credential
    that has the scope `admin`. Otherwise, the operator is any caller on this machine.
    """
    check_owner(call)
    caller = call.caller
    if service_of(call).has_token:
        if not caller.credential:
            error = PlatformError(401, "UNAUTHORIZED", "This operation needs the server's token.")
            error.headers["www-authenticate"] = 'Bearer realm="MAMA"'
            raise error
    elif caller.credential and not _is_local(call.request_info.address):
        raise NotPermitted(
            "Only the operator may use this operation."
            f" Set {TOKEN_VARIABLES[0]} to use it remotely."
        )


def _is_local(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def operation(
    name: str,
    title: str,
    level: Level,
    handler: Callable[..., Any],
    required: tuple[str, ...] = (),
    properties: Mapping[str, Schema] | None = None,
    *,
    stepwise: bool = False,
    has_secret_arguments: bool = False,
    open_world: bool = False,
    response_bytes: int = RESPONSE_BYTES,
) -> Tool:
    """Return an operation of the platform; it checks the caller before running the handler."""
    check = check_operator if level == "operator" else check_owner

    @functools.wraps(handler)
    def run(call: Call, **arguments: Any) -> Any:
        check(call)
        return handler(call, **arguments)

    return Tool(
        name=name, title=title, description=handler.__doc__ or title, handler=run,
        scope="admin" if level == "operator" else level,
        input=input_schema(required, **(properties or {})),
        stepwise=stepwise, has_secret_arguments=has_secret_arguments, open_world=open_world,
        response_bytes=response_bytes,
    )  # fmt: skip


async def read_arguments(exchange: Exchange) -> dict[str, Any]:
    """Return the arguments from path, query and body; required ones must not be blank."""
    try:
        found = await exchange.request_arguments()
    except InvalidInput as error:
        raise malformed(error.message) from None
    arguments = {name: value for name, value in found.items() if value is not None}
    needed = [
        name for name in exchange.input.get("required", ()) if is_blank(arguments.get(name, ""))
    ]
    if needed:
        raise missing_fields(*needed)
    return arguments


def is_blank(value: Any) -> bool:
    """Return whether a value is a text without any character but blanks."""
    return isinstance(value, str) and not value.strip()
