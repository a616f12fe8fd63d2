"""Write the client for TypeScript, generated from the OpenAPI document of our REST routes.

python tools/write_client.py DIR    writes DIR/commonplace.ts, one file without dependencies
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from commonplace import __version__
from commonplace.dialects import registry
from commonplace.server.openapi import openapi_document

OPERATION_PREFIX = "console_"
TYPES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean",
         "null": "null"}  # fmt: skip
FILE_START = """\
// A client of Commonplace {version}, generated from its OpenAPI document; do not edit.
// It needs fetch: Node.js 18 or newer, Deno, Bun, or a browser on the server's own address.

export type Json = any;

/** What the server refused: its HTTP status, its code, and what to do. */
export class CommonplaceError extends Error {{
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {{
    super(message);
    this.name = "CommonplaceError";
    this.status = status;
    this.code = code;
  }}
}}

export interface Options {{
  /** A token of `commonplace token create`; none is needed on the server's own machine. */
  token?: string;
  /** How long a request may take, in milliseconds. */
  timeout?: number;
}}

export class Commonplace {{
  private readonly base: string;
  private readonly options: Options;

  constructor(base = "http://127.0.0.1:3847", options: Options = {{}}) {{
    this.base = base.replace(/\\/+$/, "") + "{root}";
    this.options = options;
  }}

  private async request(
    method: string, path: string, query: Record<string, unknown>, body?: unknown,
  ): Promise<Json> {{
    const given = Object.entries(query).filter(([, value]) => value !== undefined);
    const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
    const headers: Record<string, string> = {{ accept: "application/json" }};
    if (this.options.token) headers.authorization = `Bearer ${{this.options.token}}`;
    if (body !== undefined) headers["content-type"] = "application/json";
    const response = await fetch(this.base + path + (given.length ? `?${{search}}` : ""), {{
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(this.options.timeout ?? 30_000),
    }});
    const text = await response.text();
    let answer: Json;
    try {{
      answer = text ? JSON.parse(text) : null;
    }} catch {{
      throw new CommonplaceError(response.status, "NOT_JSON", text.slice(0, 200));
    }}
    if (!response.ok) {{
      const error = answer?.error ?? {{}};
      const message = error.message ?? `The server answered ${{response.status}}.`;
      throw new CommonplaceError(response.status, error.code ?? "ERROR", message);
    }}
    return answer;
  }}
"""


def client_source() -> str:
    """Return the source of the client."""
    dialect = registry.load("commonplace")
    assert dialect.rest is not None and dialect.rest.openapi is not None
    told = openapi_document(dialect, dialect.rest, dialect.rest.openapi)
    parts = [FILE_START.format(version=__version__, root=told["servers"][0]["url"])]
    for path, methods in told["paths"].items():
        parts += [_method_source(path, verb.upper(), one) for verb, one in methods.items()]
    return "\n".join(parts) + "}\n"


def _method_source(path: str, verb: str, operation: Mapping[str, Any]) -> str:
    """Return the source of a method: its parameters are the path's, then objects for the rest."""
    in_path = [one for one in operation["parameters"] if one["in"] == "path"]
    in_query = [one for one in operation["parameters"] if one["in"] == "query"]
    body = operation.get("requestBody")
    content = body["content"]["application/json"]["schema"] if body else None
    given = [f"{_camel_case(one['name'])}: {_typescript_type(one['schema'])}" for one in in_path]
    query, sent = "{}", ""
    if in_query:
        fields = {one["name"]: (one["schema"], one["required"]) for one in in_query}
        given.append(_object_parameter("query", fields))
        query = "query"
    if content is not None:
        required = set(content.get("required", ()))
        fields = {n: (s, n in required) for n, s in content.get("properties", {}).items()}
        given.append(_object_parameter("body", fields))
        sent = ", body"
    where = re.sub(r"{(\w+)}", lambda m: f"${{encodeURIComponent({_camel_case(m[1])})}}", path)
    name = _camel_case(operation["operationId"].removeprefix(OPERATION_PREFIX))
    return (
        f"  /** {operation['summary']}. */\n"
        f"  {name}({', '.join(given)}): Promise<Json> {{\n"
        f'    return this.request("{verb}", `{where}`, {query}{sent});\n'
        "  }\n"
    )


def _object_parameter(name: str, fields: Mapping[str, tuple[Mapping[str, Any], bool]]) -> str:
    shown = "; ".join(
        f"{n}{'' if needed else '?'}: {_typescript_type(s)}" for n, (s, needed) in fields.items()
    )
    default = "" if any(needed for _, needed in fields.values()) else " = {}"
    return f"{name}: {{ {shown} }}{default}"


def _typescript_type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(f'"{value}"' for value in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_typescript_type({**schema, "type": one}) for one in kind)
    if kind == "array":
        return f"({_typescript_type(schema.get('items', {}))})[]"
    return TYPES.get(str(kind), "Json")


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "commonplace.ts").write_text(client_source(), encoding="utf-8")
