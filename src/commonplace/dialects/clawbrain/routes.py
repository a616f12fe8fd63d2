"""The hook by which a host tells of outcomes: `POST /v1/clawbrain/outcomes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from commonplace.access.caller import NotPermitted
from commonplace.dialects.contract import Rest
from commonplace.errors import CommonplaceError, InvalidInput

_STATUS: Mapping[type[CommonplaceError], int] = {InvalidInput: 400, NotPermitted: 403}


def routes(rest: Rest) -> list[BaseRoute]:
    """The one route."""

    async def outcomes(request: Request) -> Response:
        try:
            judged = await rest.perform(request, "record_outcome", _object(rest, request))
        except CommonplaceError as error:
            return _failed(error)
        return JSONResponse(judged)

    return [Route("/v1/clawbrain/outcomes", outcomes, methods=["POST"])]


def _object(rest: Rest, request: Request) -> dict[str, Any]:
    try:
        given = rest.json(request)
    except ValueError:
        raise InvalidInput("The body is not valid JSON.") from None
    if not isinstance(given, dict):
        raise InvalidInput("The body must be a JSON object.")
    return given


def _failed(error: CommonplaceError) -> Response:
    found = (status for kind, status in _STATUS.items() if isinstance(error, kind))
    answer = JSONResponse({"error": error.as_dict()}, next(found, 503))
    if isinstance(error, NotPermitted):
        answer.headers["www-authenticate"] = 'Bearer error="insufficient_scope", scope="write"'
    return answer
