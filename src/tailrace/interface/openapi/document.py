"""The OpenAPI document of the HTTP interface, made from the types that requests are decoded into and answers from."""

from collections.abc import Collection, Mapping
from functools import cached_property
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tailrace import __version__
from tailrace.delivery.http.answer import json_answer
from tailrace.delivery.http.envelope import ErrorAnswer
from tailrace.delivery.http.health import HealthResult, ReadyResult
from tailrace.delivery.problem import Problem
from tailrace.interface.openapi.bulk import BULK_TYPES
from tailrace.interface.openapi.event import ANSWERS, QUERY_RECORDS, RECORDS_OF_MANY, Event, Frame
from tailrace.interface.openapi.paths import PATHS
from tailrace.interface.openapi.rpc import REF, error_codes, ref_of, rpc_schemas
from tailrace.interface.skeindb.command import Command
from tailrace.interface.skeindb.message import PollResult, Signature
from tailrace.interface.skeindb.methods import signatures
from tailrace.meta.pipeline_status import PipelinesResult, PipelineStatus

__all__ = ["OPENAPI_PATH", "OpenApiEndpoint", "describe"]

OPENAPI_PATH = "/api/v1/openapi.json"

_VERSION = "3.1.1"
_DESCRIPTION = """Every committed row change of a database: calls, streams, prepared queries, probes and metrics.

`POST /api/v1/rpc` carries all calls: the schema `CdcPollRequest` says what `cdc.poll` takes, `CdcPollAnswer` what it
gives. Errors of calls have status 200 and `ok` false. Integers are written without a point. Wherever GET is
answered, HEAD is too. An unknown path is answered with 404 and a wrong verb with 405, both with an `ErrorAnswer`."""

_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "One of the configured tokens, if there are any."},
    "access_token": {
        "type": "apiKey",
        "in": "query",
        "name": "access_token",
        "description": "The same for browsers, whose EventSource and WebSocket send no headers.",
    },
}


class OpenApiEndpoint:
    """Answers `GET /api/v1/openapi.json`. The document is made once, when first asked for."""

    def __init__(self, methods: Mapping[str, Signature], paths: Collection[str]) -> None:
        self._methods = methods
        self._paths = paths

    async def answer(self, _request: Request) -> Response:
        """Answer one request."""
        return json_answer(HTTPStatus.OK, self._document)

    @cached_property
    def _document(self) -> bytes:
        return msgspec.json.encode(describe(self._methods, self._paths))


def describe(methods: Mapping[str, Signature] | None = None, paths: Collection[str] = PATHS.keys()) -> dict[str, Any]:
    """Return the document of a server that has these methods and paths; of one that has all, where none are given.

    Raises:
        KeyError: A path is not described.
    """
    return {
        "openapi": _VERSION,
        "info": {
            "title": "Tailrace",
            "version": __version__,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"access_token": []}, {}],
        "paths": {path: PATHS[path] for path in paths},
        "components": {
            "schemas": _schemas(signatures() if methods is None else methods),
            "securitySchemes": _SECURITY,
        },
    }


def _schemas(methods: Mapping[str, Signature]) -> dict[str, Any]:
    kinds = [kind for types in methods.values() for kind in (types.params, types.result)]
    kinds += [*BULK_TYPES, PipelinesResult, PipelineStatus, ErrorAnswer, Event, Frame, HealthResult, ReadyResult]
    kinds += [*RECORDS_OF_MANY.values(), *QUERY_RECORDS.values(), *ANSWERS.values()]
    (*_, command), schemas = msgspec.json.schema_components([*kinds, Command], ref_template=REF)
    _narrow(schemas)
    return {**schemas, "Command": command, **rpc_schemas(methods, schemas)}


_ENVELOPED = {
    "description": "A change in the envelope that was asked for, where that is not our own.",
    "type": "object",
    "not": {"required": ["seq"]},  # else any event of ours that is not as described would pass as one of these
}


def _narrow(schemas: dict[str, Any]) -> None:
    """Say what the types of Python do not: what encoded bytes hold, and which words a text may be."""
    schemas[PollResult.__name__]["properties"]["events"] = {
        "type": "array",
        "items": {"anyOf": [ref_of(Event.__name__), _ENVELOPED]},
    }
    schemas[Problem.__name__]["properties"]["code"] = {"enum": error_codes()}
    schemas[ErrorAnswer.__name__]["properties"]["ok"] = {"const": False}
