"""The server's settings: options, COMMONPLACE_* variables, and config.toml."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from commonplace.client import config
from commonplace.errors import InvalidInput
from commonplace.storage.opening import is_database_url

PORT = 3847
_EXPECTED = {
    bool: "true or false", tuple: "a list of strings", str: "a string", int: "a whole number",
    float: "a number",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the server. The defaults suit one person's machine."""

    data: Path
    """The data directory; not a setting of config.toml, which is in it."""
    database: str = ""
    """The address of a PostgreSQL database that holds the rows instead of the data directory."""
    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 for all of this machine, which needs a token."""
    port: int = PORT
    """The port to listen on."""
    public_url: str = ""
    """The URL that remote clients use, when a proxy is in front."""
    allow_hosts: tuple[str, ...] = ()
    """Further host names that a request's Host header may have, such as memory.lan:3847."""
    allow_origins: tuple[str, ...] = ()
    """Further web pages that may call the server, such as https://app.example."""
    proxies: tuple[str, ...] = ()
    """Addresses of proxies whose X-Forwarded-For header is trusted."""
    require_token: bool = False
    """Whether programs on this machine need a token, too."""
    embedding: str = "builtin"
    """builtin, none (search by words only), or the base URL of an OpenAI-compatible service."""
    dialect: str = "commonplace"
    """The dialect served at /mcp, unless the caller acts as a subject of another dialect."""
    rate: float = 100.0
    """Average requests per second allowed for each credential and each address."""
    burst: int = 2_000
    """How many requests may come at once before the rate limit applies."""
    body_bytes: int = 1_048_576
    """The largest JSON body in bytes, unless a dialect's contract allows more."""
    call_seconds: float = 30.0
    """The time limit of a call in seconds."""
    audit_days: int = 0
    """After how many days audit entries are deleted; 0 for never."""
    allow_secrets: bool = False
    """Whether keys, tokens and passwords are stored as they are, instead of being masked."""
    auto_accept: bool = False
    """Whether memories proposed from conversations are stored without a person's decision."""
    idle_seconds: float = 900.0
    """After how many idle seconds a server started in the background stops."""
    log: str = "text"
    """How the log is written: text or json."""

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, **options: Any) -> Self:
        """Load the settings: options first, then the environment, then config.toml, then the
        defaults."""
        environ = os.environ if environ is None else environ
        given = options.pop("data", None) or environ.get("COMMONPLACE_DATA")
        data = Path(given or _default_data_directory())
        settings = cls(data=data.expanduser().absolute())
        known = {field.name: field.type for field in fields(cls) if field.name != "data"}
        for source, values in (
            ("config.toml", _file_settings(settings.data)),
            ("the environment", _environment_settings(environ, known)),
            ("the command line", {k: v for k, v in options.items() if v is not None}),
        ):
            for name, value in values.items():
                if name not in known:
                    raise InvalidInput(
                        f"{source} sets {name!r}, which is not a setting.",
                        hint=f"The settings are: {', '.join(known)}.",
                    )
                converted = _convert(name, value, getattr(settings, name), source)
                settings = replace(settings, **{name: converted})
        return settings._checked()

    def _checked(self) -> Self:
        if not 0 <= self.port <= 65_535:
            raise InvalidInput("port must be 0 to 65535.", field="port")
        for name in ("rate", "burst", "body_bytes", "call_seconds", "idle_seconds"):
            if not 0 < getattr(self, name) < 1e12:
                raise InvalidInput(
                    f"{name} must be more than 0 and less than 1,000,000,000,000.", field=name
                )
        if self.database and not is_database_url(self.database):
            raise InvalidInput(
                "database must be an address that begins with postgresql://.", field="database"
            )
        if not 0 <= self.audit_days <= 36_500:
            raise InvalidInput("audit_days must be 0 (for ever) to 36500.", field="audit_days")
        if self.log not in ("text", "json"):
            raise InvalidInput("log must be text or json.", field="log")
        if self.public_url and not _is_base_url(self.public_url):
            raise InvalidInput(
                "public_url must be an http or https URL with only a host, a port and a path.",
                hint="Write it like https://memory.example, with other letters than a-z as xn--….",
                field="public_url",
            )
        for proxy in self.proxies:
            if not _is_ip(proxy):
                raise InvalidInput(
                    f"{proxy!r} in proxies is not an address.",
                    hint="Write each as 10.0.0.5 or fd00::5; names and ranges are not supported.",
                    field="proxies",
                )
        if not self.host.strip():
            raise InvalidInput("host is empty.", hint="Write 127.0.0.1, or 0.0.0.0.", field="host")
        # an IPv6 address in brackets, as in a URL
        if self.host.startswith("[") and self.host.endswith("]"):
            return replace(self, host=self.host[1:-1])
        return self

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server, without a proxy."""
        return is_loopback(self.host) and not self.public_url and not self.proxies

    @property
    def on_every_address(self) -> bool:
        """Whether the server listens on every address of this machine."""
        return self.host in ("0.0.0.0", "::")  # noqa: S104

    def command_line(self, words: str, program: str = "commonplace") -> str:
        """Return a command line for this data directory, to be shown to a person."""
        found = f"{program} {words}"
        if self.data != _default_data_directory():
            found += f" --data {shlex.quote(str(self.data))}"
        # The address has a password; a command finds it by itself unless it was an option.
        if self.database != Settings.load(data=self.data).database:
            found += " --database URL"
        return found

    @property
    def base_url(self) -> str:
        """The URL that clients use."""
        if self.public_url:
            return self.public_url.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def local_url(self) -> str:
        """The URL for programs on the server's machine."""
        if not self.on_every_address or self.public_url:
            return self.base_url
        return f"http://{'[::1]' if ':' in self.host else '127.0.0.1'}:{self.port}"


def _default_data_directory() -> Path:
    """Return the data directory that is used without --data."""
    given = os.environ.get("COMMONPLACE_DATA") or "~/.commonplace"
    return Path(given).expanduser().absolute()


def _is_base_url(url: str) -> bool:
    """Return whether a URL has only a scheme, host, port and path."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or port == 0 or "@" in parts.netloc:
        return False
    named = _is_ip(host) if ":" in host else re.fullmatch(r"[a-z0-9](?:[a-z0-9.-]{0,252})", host)
    return bool(named) and not re.search(r"[?#\s\x00-\x1f]", url)


def _is_ip(text: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


@lru_cache(1_024)
def is_loopback(host: str) -> bool:
    """Return whether an address is a loopback address."""
    if host == "localhost":
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _file_settings(data: Path) -> dict[str, Any]:
    try:
        return config.read(str(data))
    except config.Unreadable as error:
        raise InvalidInput(str(error), hint=error.hint, field="config") from error


def _environment_settings(environ: Mapping[str, str], known: Mapping[str, Any]) -> dict[str, str]:
    found = {name: environ.get(f"COMMONPLACE_{name.upper()}") for name in known}
    found["port"] = found.get("port") or environ.get("MAMA_SERVER_PORT")
    return {name: value for name, value in found.items() if value}


def _convert(name: str, value: Any, default: Any, source: str) -> Any:
    """Convert a value to the type of its default."""
    wrong = InvalidInput(
        f"{name} from {source} is not valid: {value!r}.",
        hint=f"It must be {_EXPECTED[type(default)]}.",
        field=name,
    )
    if isinstance(default, bool):
        text = str(value).strip().lower()
        if text not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
            raise wrong
        return text in ("1", "true", "yes", "on")
    if isinstance(default, tuple):
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
            raise wrong
        return tuple(value)
    if isinstance(default, str):
        if not isinstance(value, str):
            raise wrong
        return value
    if isinstance(value, bool) or (isinstance(default, int) and isinstance(value, float)):
        raise wrong
    try:
        return type(default)(value)
    except (TypeError, ValueError):
        raise wrong from None
