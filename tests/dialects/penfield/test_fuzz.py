"""The OpenAPI document against the server that it describes: no fault, no surprise."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from commonplace.dialects.penfield.routes import REST, ROOT
from commonplace.dialects.rest import Route
from penfield.conftest import Server
from penfield.test_rest import data, relate, store

CASES = 50
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance,
    response_schema_conformance,
]  # fmt: skip
NAMING = {
    "from_id": "memories", "to_id": "other", "start_memory_id": "memories",
    "source_memory_id": "other", "target_memory_id": "memories",
}  # fmt: skip
LEAKS = ("Traceback", "sqlite", "/src/", "apsw", "site-packages")
SENT: set[str] = set()
"""Those of them that were sent to the server, which may say them again."""


@pytest.fixture(scope="module")
def described(server: Server) -> Any:
    """The document as the server gives it to anybody."""
    return schemathesis.openapi.from_url(f"{server.url}/api/v2/openapi.json")


def things(client: httpx.Client, path: str) -> dict[str, str]:
    """One of each thing that an id in the path can name."""
    one, two = store(client, "harbour lantern")["id"], store(client, "harbour soup")["id"]
    link = relate(client, one, two, "contradicts")["id"]
    known = {"memories": one, "other": two, "contradictions": link, "relationships": link}
    if "/documents/" in path:
        sent = client.post("/documents/upload", files={"file": ("a.txt", b"harbour")})
        known["documents"] = data(sent, 201)["id"]
    if "/traits/" in path:
        sent = client.post("/personality/traits", json={"content": "Be brief."})
        known["traits"] = data(sent, 201)["id"]
    return known


def put_in(value: Any, known: dict[str, str]) -> Any:
    """The value with some ids that are there, so that more than 404 is seen."""
    if isinstance(value, list):
        return [put_in(part, known) for part in value]
    if not isinstance(value, dict):
        return value
    put = {name: put_in(part, known) for name, part in value.items()}
    for name, part in value.items():
        if name in NAMING and isinstance(part, str) and part[:1] < "a":
            put[name] = known[NAMING[name]]
    return put


@pytest.mark.parametrize("endpoint", REST.routes, ids=lambda one: f"{one.method} {one.path}")
def test_no_fault_and_no_surprise(endpoint: Route, described: Any, rest: httpx.Client) -> None:
    path = endpoint.path.removeprefix(ROOT)
    operation = described[path][endpoint.method]
    known = things(rest, path)
    kind = next(part for part in (*path.split("/")[::-1], "memories") if part in known)
    # Reprocessing a document that is there is 501 by contract; one that is not is 404.
    named = endpoint.operation != "reprocess_document"
    statuses: set[int] = set()

    @seed(4)
    @settings(
        max_examples=CASES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def run(case: Any) -> None:
        if named and case.path_parameters and str(case.path_parameters.get("id", "z"))[:1] < "a":
            case.path_parameters["id"] = known[kind]
        case.body = put_in(case.body, known)
        sent = repr((case.body, case.path_parameters, case.query, case.headers))
        SENT.update(leak for leak in LEAKS if leak in sent)
        response = case.call(headers=dict(rest.headers))
        case.validate_response(response, checks=CHECKS)
        statuses.add(response.status_code)
        if endpoint.operation != "rest_retrieve_artifact":
            assert not any(leak in response.text for leak in LEAKS if leak not in SENT)

    run()
    assert statuses


def test_the_document_names_every_endpoint_and_nothing_from_elsewhere(server: Server) -> None:
    response = httpx.get(f"{server.url}/api/v2/openapi.json")
    document = response.json()
    told = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    assert told == {(one.method, one.path.removeprefix(ROOT)) for one in REST.routes}
    assert document["servers"] == [{"url": "/api/v2"}]
    assert "http" not in response.text.replace("http_", "")
    for page in ("/docs", "/redoc"):
        assert httpx.get(f"{server.url}/api/v2{page}").status_code == 404
