"""The routes in the OpenAPI document: params, statuses and bodies of each. Pure."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST

from tailrace.delivery.http.envelope import ErrorAnswer
from tailrace.delivery.http.health import HealthResult, ReadyResult
from tailrace.delivery.http.streaming import STREAMS_MAX
from tailrace.envelope.envelopes import WHOLE
from tailrace.interface.openapi.bulk import BULK_PATHS
from tailrace.interface.openapi.event import ANSWERS, QUERY_RECORDS, RECORDS, RECORDS_OF_MANY, Frame
from tailrace.interface.openapi.rpc import ref_of
from tailrace.interface.skeindb.query_message import ExecuteResult
from tailrace.meta.pipeline_status import PipelinesResult, PipelineStatus
from tailrace.model.subscription import Format

__all__ = ["PATHS"]

_JSON = "application/json"
_TEXT = "text/plain"
_STREAM = "text/event-stream"
_OFFSET = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_SUB_ID = "sub_[0-9a-f]{16}"
_NAME = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
_STRING = {"type": "string"}


def _content(*kinds: tuple[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {"content": {kind: {"schema": schema} for kind, schema in kinds}}


def _answer(description: str, *kinds: tuple[str, Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    return {"description": description, **(_content(*kinds) if kinds else {}), **more}


def _param(name: str, place: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    required = {"required": True} if place == "path" else {}
    return {"name": name, "in": place, "description": description, **required, "schema": schema}


_ERROR = (_JSON, ref_of(ErrorAnswer.__name__))
_WORDS = (_TEXT, _STRING)

_ANY_ROUTE = {
    "400": _answer("The request is not HTTP, or its head is too large.", _WORDS),
    "503": _answer("There are too many connections, or credentials cannot be resolved now.", _WORDS, _ERROR),
}
_TOKEN_ROUTE = {
    **_ANY_ROUTE,
    "401": _answer(
        "The server asks for credentials, and the request has none, or wrong ones, or some that have expired.",
        _ERROR,
        headers={"WWW-Authenticate": {"schema": {"const": "Bearer"}}},
    ),
    "403": _answer("The caller may not do this, or not see this.", _ERROR, _WORDS),
    "429": _answer(
        "The caller calls too often, or has too many streams.",
        _ERROR,
        _WORDS,
        headers={"Retry-After": {"schema": _STRING}},
    ),
}
_STREAM_REFUSALS = {
    **_TOKEN_ROUTE,
    "400": _answer("The place to begin at is none, or lies beyond the newest change; in words.", _WORDS),
    "404": _answer("There is no such subscription.", _WORDS, _ERROR),
    "503": _answer("The server stops, or there are too many connections.", _WORDS, _ERROR),
}
_WS_REFUSALS = {
    "101": {"description": "The connection is a WebSocket from here on; it carries text frames of JSON."},
    **_STREAM_REFUSALS,
    "426": _answer(
        "The request does not ask for an upgrade.", _ERROR, headers={"Upgrade": {"schema": {"const": "websocket"}}}
    ),
}

_SUB_ID_PARAM = _param("sub_id", "path", "The subscription.", {"type": "string", "pattern": f"^{_SUB_ID}$"})
_SEEN_PARAMS = [
    _param("from_offset", "query", "The last change that the client has seen; counts before the header.", _OFFSET),
    _param("Last-Event-ID", "header", "The same, as a browser sends it when it comes again.", _OFFSET),
]
_HEARTBEAT_PARAM = _param("heartbeat", "query", "1: tell after silence how far the stream is.", {"enum": ["1"]})
_ENVELOPE_PARAM = _param("envelope", "query", "Envelope that changes are wrapped in.", {"enum": [*WHOLE]})
_QUERY_PARAMS = [
    _param("query_id", "path", "The prepared query.", _STRING),
    {
        "name": "args",
        "in": "query",
        "description": "The arguments: typed literals or ordinary JSON values.",
        "content": {_JSON: {"schema": {"type": "array"}}},
    },
]
_QUERY_REFUSALS = {
    **_TOKEN_ROUTE,
    "400": _answer("The params or the arguments are wrong, or the query no longer fits the schema.", _ERROR, _WORDS),
    "404": _answer("There is no such query.", _WORDS, _ERROR),
    "503": _answer("The database cannot be read now, or there are too many connections.", _ERROR, _WORDS),
    "504": _answer("The query took longer than it may.", _ERROR),
}
_PIPELINE_REFUSALS = {
    **_TOKEN_ROUTE,
    "503": _answer("The metadata database cannot be read now, or there are too many connections.", _ERROR, _WORDS),
}
_CACHE = {name: {"schema": _STRING, "required": True} for name in ("ETag", "Cache-Control", "Vary")}


def _stream(description: str, records: Mapping[str, type[Struct]]) -> dict[str, Any]:
    return {"200": _answer(description, (_STREAM, _STRING), **{"x-records": _named(records)})}


def _frames(records: Mapping[str, type[Struct]]) -> dict[str, Any]:
    """Return what is said over a WebSocket."""
    extensions = {"x-frame": ref_of(Frame.__name__), "x-command": ref_of("Command")}
    return {**extensions, "x-records": _named(records), "x-answers": _named(ANSWERS)}


def _named(records: Mapping[str, type[Struct]]) -> dict[str, Any]:
    """Return what `data` is, by the name of the record. OpenAPI has no word for it."""
    return {name: ref_of(kind.__name__) for name, kind in records.items()}


_RPC = {
    "operationId": "call",
    "summary": "Call a method.",
    "requestBody": {"required": True, **_content((_JSON, ref_of("RpcRequest")))},
    "responses": {
        **_TOKEN_ROUTE,
        "200": _answer("The call was understood; `ok` tells whether it went well.", (_JSON, ref_of("RpcAnswer"))),
        "204": _answer("The call had no id: it was carried out, and nothing is answered."),
        "400": _answer("The body is not JSON.", _ERROR, _WORDS),
        "408": _answer("The body did not arrive in time.", _ERROR),
        "413": _answer("The body is too large.", _ERROR),
        "415": _answer("Content-Type is not application/json.", _ERROR),
        "422": _answer("The body is JSON but no request.", _ERROR),
    },
}

PATHS: dict[str, dict[str, Any]] = {
    "/api/v1/rpc": {"post": _RPC},
    "/api/v1/cdc/sse/{sub_id}": {
        "get": {
            "operationId": "streamSubscription",
            "summary": "Stream the changes of a subscription.",
            "parameters": [_SUB_ID_PARAM, *_SEEN_PARAMS, _HEARTBEAT_PARAM, _ENVELOPE_PARAM],
            "responses": {**_stream("Server-sent events, without end.", RECORDS), **_STREAM_REFUSALS},
        }
    },
    "/api/v1/cdc/sse": {
        "get": {
            "operationId": "streamSubscriptions",
            "summary": "Stream the changes of several subscriptions.",
            "parameters": [
                {
                    "name": "sub",
                    "in": "query",
                    "description": "The subscriptions, each with the last offset seen behind a colon, if any.",
                    "required": True,
                    "schema": {
                        "type": "array",
                        "items": {"type": "string", "pattern": f"^{_SUB_ID}(:[0-9]{{1,19}})?$"},
                        "minItems": 1,
                        "maxItems": STREAMS_MAX,
                    },
                },
                _param(
                    "Last-Event-ID",
                    "header",
                    "The id of the last record received; counts before `sub`.",
                    {"type": "string", "pattern": "^[0-9a-f]{1,16}:[0-9]{1,20}(,[0-9a-f]{1,16}:[0-9]{1,20}){0,63}$"},
                ),
                _HEARTBEAT_PARAM,
                _ENVELOPE_PARAM,
            ],
            "responses": {
                **_stream("Server-sent events, without end; each `data` begins with `sub_id`.", RECORDS_OF_MANY),
                **_STREAM_REFUSALS,
            },
        }
    },
    "/api/v1/cdc/ws": {
        "get": {
            "operationId": "openWebSocket",
            "summary": "Open a WebSocket for several subscriptions; the client's frames say which.",
            "parameters": [_HEARTBEAT_PARAM, _ENVELOPE_PARAM],
            "responses": _WS_REFUSALS,
            **_frames(RECORDS_OF_MANY),
        }
    },
    "/api/v1/cdc/ws/{sub_id}": {
        "get": {
            "operationId": "openWebSocketOfSubscription",
            "summary": "Open a WebSocket for one subscription.",
            "parameters": [_SUB_ID_PARAM, *_SEEN_PARAMS, _HEARTBEAT_PARAM, _ENVELOPE_PARAM],
            "responses": _WS_REFUSALS,
            **_frames(RECORDS),
        }
    },
    "/api/v1/q/{query_id}": {
        "get": {
            "operationId": "executeQuery",
            "summary": "Run a prepared query, unless the client has its result.",
            "parameters": [
                *_QUERY_PARAMS,
                _param("result_format", "query", "How values are written.", ref_of(Format.__name__)),
                _param("If-None-Match", "header", "ETags of results that the client has.", _STRING),
            ],
            "responses": {
                **_QUERY_REFUSALS,
                "200": _answer("The result.", (_JSON, ref_of(ExecuteResult.__name__)), headers=_CACHE),
                "304": _answer("The client has the result.", headers=_CACHE),
            },
        }
    },
    "/api/v1/q/{query_id}/events": {
        "get": {
            "operationId": "streamQuery",
            "summary": "Stream when the result of a query may have changed.",
            "parameters": [*_QUERY_PARAMS, *_SEEN_PARAMS],
            "responses": {
                **_stream("Server-sent events without a name, without end.", QUERY_RECORDS),
                **_QUERY_REFUSALS,
            },
        }
    },
    "/api/v1/pipelines": {
        "get": {
            "operationId": "listPipelines",
            "summary": "Tell how all pipelines are that the caller may see.",
            "responses": {
                **_PIPELINE_REFUSALS,
                "200": _answer("How they are.", (_JSON, ref_of(PipelinesResult.__name__))),
            },
        }
    },
    "/api/v1/pipelines/{name}": {
        "get": {
            "operationId": "showPipeline",
            "summary": "Tell how a pipeline is.",
            "parameters": [
                _param("name", "path", "Name of the pipeline.", {"type": "string", "pattern": f"^{_NAME}$"})
            ],
            "responses": {
                **_PIPELINE_REFUSALS,
                "200": _answer("How it is.", (_JSON, ref_of(PipelineStatus.__name__))),
                "404": _answer("There is no such pipeline, or the caller may not see it.", _ERROR, _WORDS),
            },
        }
    },
    "/api/v1/openapi.json": {
        "get": {
            "operationId": "describe",
            "summary": "This document.",
            "responses": {**_TOKEN_ROUTE, "200": _answer("An OpenAPI document.", (_JSON, {"type": "object"}))},
        }
    },
    "/health": {
        "get": {
            "operationId": "health",
            "summary": "Tell that the process lives.",
            "security": [],
            "responses": {**_ANY_ROUTE, "200": _answer("It does.", (_JSON, ref_of(HealthResult.__name__)))},
        }
    },
    "/ready": {
        "get": {
            "operationId": "ready",
            "summary": "Tell whether every source is being captured.",
            "security": [],
            "responses": {
                **_ANY_ROUTE,
                "200": _answer("It is.", (_JSON, ref_of(ReadyResult.__name__))),
                "503": _answer("Not yet, or not now.", (_JSON, ref_of(ReadyResult.__name__)), _WORDS),
            },
        }
    },
    "/metrics": {
        "get": {
            "operationId": "metrics",
            "summary": "Show the metrics in Prometheus' text form.",
            "responses": {**_TOKEN_ROUTE, "200": _answer("The metrics.", (CONTENT_TYPE_LATEST, _STRING))},
        }
    },
    **BULK_PATHS,
}
"""What the document says of each path. Wherever GET is answered, HEAD is too."""
