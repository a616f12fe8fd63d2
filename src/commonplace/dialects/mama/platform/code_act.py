"""Run JavaScript of the operator's agents in a sandbox, with read-only functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from commonplace.access.caller import READ_ONLY_SCOPES, Caller
from commonplace.dialects.agent_calls import AgentCalls
from commonplace.dialects.contract import Call, TooManyCalls
from commonplace.dialects.mama.platform import configuration, paths, service
from commonplace.dialects.mama.platform.failures import PlatformError, not_installed
from commonplace.dialects.mama.platform.service import Service, operation, read_arguments
from commonplace.dialects.rest import Exchange, Route
from commonplace.engine.commonplace import Commonplace
from commonplace.platform import sandbox
from commonplace.platform.agents import Ability
from commonplace.storage.directories import make_private

CODE_CHARS = 100_000
DEFAULT_TIMEOUT, MIN_TIMEOUT, MAX_TIMEOUT = 30_000, 100, 60_000
FILE_BYTES = 200_000
AGENT = "code-act"
PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "mama_search": ("query", "type", "limit"),
    "mama_load_checkpoint": (),
    "Read": ("path",),
    "os_list_bots": (),
    "os_get_config": ("section",),
}
"""The functions that scripts can call, with their parameters in order."""


DESCRIPTIONS = {
    "Read": "Read a text file of the workspace.",
    "os_list_bots": "List the channels, and which of them are set up.",
    "os_get_config": "Get the configuration, or a section of it; secrets are masked.",
}


def _text_function(function: sandbox.Function) -> Callable[[Mapping[str, Any]], str]:
    def call(arguments: Mapping[str, Any]) -> str:
        try:
            return json.dumps(function([dict(arguments)]), ensure_ascii=False)
        except sandbox.FunctionError as error:
            return f"error: {error}"

    return call


def arguments_by_name(name: str, arguments: Sequence[Any]) -> dict[str, Any]:
    """Return arguments by name, from positional arguments or from one object."""
    parameters = PARAMETERS[name]
    if len(arguments) == 1 and isinstance(arguments[0], dict):
        given_by_name = arguments[0]
    else:
        given_by_name = dict(zip(parameters, arguments, strict=False))
    return {key: value for key, value in given_by_name.items() if value is not None}


class Functions:
    """The functions that a script may call, in the operator's space."""

    def __init__(self, memory: Commonplace, running: Service) -> None:
        self._memory = memory
        self._running = running
        caller = Caller(
            space=service.OWNER_SPACE, user="local", scopes=READ_ONLY_SCOPES,
            credential=f"agent:{AGENT}", dialects=frozenset({"mama"}),
        )  # fmt: skip
        self._calls = AgentCalls(running.setting, caller, "mama")

    def functions_by_name(self) -> dict[str, sandbox.Function]:
        """Return all functions by name."""
        made: dict[str, Callable[..., Any]] = {
            "mama_search": lambda **given: self._call_tool("search", given),
            "mama_load_checkpoint": lambda **given: self._call_tool("load_checkpoint", given),
            "Read": self._read_file,
            "os_list_bots": self._list_bots,
            "os_get_config": self._get_config,
        }
        return {name: self._sandbox_function(name, function) for name, function in made.items()}

    def abilities(self) -> list[Ability]:
        """Return, as abilities of a model, the functions that are not tools of the dialect."""
        made = []
        for name, function in self.functions_by_name().items():
            if not name.startswith("mama_"):
                properties = {each: {"type": "string"} for each in PARAMETERS[name]}
                schema = {"type": "object", "properties": properties}
                made.append(Ability(name, DESCRIPTIONS[name], schema, _text_function(function)))
        return made

    def _sandbox_function(self, name: str, function: Callable[..., Any]) -> sandbox.Function:
        def call(arguments: Sequence[Any]) -> Any:
            try:
                return function(**arguments_by_name(name, arguments))
            except PlatformError as error:
                raise sandbox.FunctionError(error.message) from None
            except TypeError:
                message = f"{name} takes {', '.join(PARAMETERS[name]) or 'no arguments'}."
                raise sandbox.FunctionError(message) from None

        return call

    def _call_tool(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        text = self._calls.tool_function(tool)(arguments)
        if text.startswith(("error: ", "Error: ")):
            raise sandbox.FunctionError(text)
        return json.loads(text)

    def _read_file(self, path: str = "") -> dict[str, Any]:
        if not isinstance(path, str):
            raise sandbox.FunctionError("Read needs the argument path.")
        data = paths.read_file(self._running, path, most=FILE_BYTES).data
        try:
            return {"content": data.decode()}
        except UnicodeDecodeError:
            raise sandbox.FunctionError("The file is not UTF-8 text.") from None

    def _masked_configuration(self) -> dict[str, Any]:
        return configuration.mask_secrets(
            configuration.effective_configuration(self._memory, self._running)
        )

    def _list_bots(self) -> dict[str, Any]:
        tree = self._masked_configuration()
        secrets = {
            "discord": "token", "slack": "bot_token", "telegram": "token", "chatwork": "api_token"
        }  # fmt: skip
        return {
            "bots": [
                {
                    "platform": name, "configured": bool(tree[name][secret]),
                    "enabled": tree[name]["enabled"],
                }
                for name, secret in secrets.items()
            ]
        }  # fmt: skip

    def _get_config(self, section: str = "") -> Any:
        tree = self._masked_configuration()
        if section and section not in tree:
            raise sandbox.FunctionError(f"Sections: {', '.join(tree)}.")
        return tree[section] if section else tree


def run_code(call: Call, *, code: str, timeout: int) -> Any:
    """Run JavaScript in a sandbox."""
    if find_spec("quickjs_rs") is None:
        raise not_installed("quickjs-rs")
    running = service.service_of(call)
    if not running.scripts.acquire(blocking=False):
        raise TooManyCalls("Two scripts are already running. Try again later.", wait=1)
    try:
        cache = running.folder / "cache"
        make_private(cache)
        functions = Functions(call.memory, running).functions_by_name()
        ran = sandbox.run(code, functions, timeout / 1000, cache)
    finally:
        running.scripts.release()
    outcome: dict[str, Any] = {"success": ran.success}
    outcome |= {"result": ran.result} if ran.success else {"error": ran.error}
    return {
        **outcome,
        "duration": ran.milliseconds,
        "logs": ran.logs,
        "toolCalls": [{"name": name, "input": list(given)} for name, given in ran.calls],
    }


async def _read_arguments(exchange: Exchange) -> dict[str, Any]:
    given = await read_arguments(exchange)
    timeout = given.get("timeout")
    if isinstance(timeout, int | float) and not isinstance(timeout, bool):
        given["timeout"] = int(max(MIN_TIMEOUT, min(timeout, MAX_TIMEOUT)))
    return given


OPERATIONS = (
    operation(
        "run_code", "Run JavaScript", "operator", run_code, ("code",),
        {
            "code": {"type": "string", "minLength": 1, "maxLength": CODE_CHARS},
            "timeout": {
                "type": "integer", "minimum": MIN_TIMEOUT, "maximum": MAX_TIMEOUT,
                "default": DEFAULT_TIMEOUT,
            },
        },
        stepwise=True,
    ),
)  # fmt: skip
ROUTES = (Route("POST", "/api/code-act", "run_code", read=_read_arguments, body_bytes=2_000_000),)
