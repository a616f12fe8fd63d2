"""The OpenAPI document of the platform against the server that it describes: no fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from commonplace.dialects.mama import platform
from commonplace.dialects.rest import Route

from .conftest import Web, serving

CASES = 50
CHECKS = [status_code_conformance, response_schema_conformance]
LEAKS = ("Traceback", "sqlite", "site-packages", "/src/")
ROUTES = [
    route
    for route in platform.ROUTES
    if route.method != "WEBSOCKET" and route.operation != "restart_server"
]


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A server to which neither GitHub nor a model can be reached."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DISCORD_URL", "SLACK_URL", "GITHUB_API_URL", "GITHUB_RAW_URL"):
            patch.setenv(f"COMMONPLACE_{name}", "http://127.0.0.1:9")
        with serving(tmp_path_factory.mktemp("fuzz") / "data", None) as made:
            yield made


@pytest.fixture(scope="module")
def described(web: Web) -> Any:
    return schemathesis.openapi.from_url(f"{web.url}/api/openapi.json")


def test_the_document_names_every_route(web: Web) -> None:
    document = httpx.get(f"{web.url}/api/openapi.json").json()
    told = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    assert told == {(one.method, one.path) for one in platform.ROUTES if one.method != "WEBSOCKET"}
    ids = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
    assert len(set(ids)) == len(ids) == len(told)


# The server is in this process, and its threads use `random` while cases are made.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@pytest.mark.parametrize("route", ROUTES, ids=lambda one: f"{one.method} {one.path}")
def test_no_request_is_a_fault_of_the_server(route: Route, described: Any, web: Web) -> None:
    statuses: set[int] = set()

    @seed(5)
    @settings(
        max_examples=CASES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=described[route.path][route.method].as_strategy())
    def run(case: Any) -> None:
        response = case.call()
        case.validate_response(response, checks=CHECKS)
        statuses.add(response.status_code)
        if response.status_code >= 400:
            assert not any(leak in response.text for leak in LEAKS)

    run()
    assert statuses and not statuses & {500}
    assert web.get("/api/config").status_code == 200
