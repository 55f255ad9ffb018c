"""The routes of the bulk interface in the OpenAPI document. Pure."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tailrace.interface.bulk.message import (
    BulkResult,
    BulkSubscribeParams,
    BulkSubscribeResult,
    CutsResult,
    RangesResult,
)
from tailrace.interface.bulk.stream import CONTENT_TYPE, Compression
from tailrace.model.op import Op

__all__ = ["BULK_PATHS", "BULK_TYPES"]

BULK_TYPES: tuple[type[Struct], ...] = (BulkResult, CutsResult, BulkSubscribeParams, BulkSubscribeResult, RangesResult)
"""Types whose schemas the document must have for these routes."""

_JSON = "application/json"
_NUMBER_MAX = 2**63 - 1


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _answer(description: str, kind: str, schema: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"description": description, "content": {kind: {"schema": schema}}, **more}


def _param(name: str, description: str, schema: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema, **more}


def _offset(name: str, description: str, *, least: int = 0, **more: Any) -> dict[str, Any]:
    return _param(name, description, {"type": "integer", "minimum": least, "maximum": _NUMBER_MAX}, **more)


def _number(name: str, description: str) -> dict[str, Any]:
    return _param(name, description, {"type": "integer", "minimum": -_NUMBER_MAX - 1, "maximum": _NUMBER_MAX})


_BOUNDS = {
    "key_min": "the key",
    "key_max": "the key",
    "time_us_min": "when changes were committed, in microseconds since 1970",
    "time_us_max": "when changes were committed, in microseconds since 1970",
}
_ERROR = _ref("ErrorAnswer")
_SOURCE = {
    "name": "source",
    "in": "path",
    "description": "Name of the source.",
    "required": True,
    "schema": {"type": "string"},
}
_TABLES = _param(
    "tables", "Tables by name; all when left out.", {"type": "array", "items": {"type": "string"}}, explode=True
)
_AFTER = _offset("after", "The change after which to begin.", required=True)
_THROUGH = _offset("through", "The last change; the head by default.")
_REFUSALS = {
    "400": {
        "description": "A param is missing or wrong, lies beyond the head, or the request is not HTTP.",
        "content": {_JSON: {"schema": _ERROR}, "text/plain": {"schema": {"type": "string"}}},
    },
    "401": _answer(
        "The request has no credentials, or wrong ones.",
        _JSON,
        _ERROR,
        headers={"WWW-Authenticate": {"schema": {"const": "Bearer"}}},
    ),
    "403": _answer("The caller may not read this.", _JSON, _ERROR),
    "404": _answer("There is no such source or table.", _JSON, _ERROR),
    "409": _answer("Nothing is captured.", _JSON, _ERROR),
    "429": _answer("The caller asks too often, or has too many subscriptions.", _JSON, _ERROR),
    "503": {
        "description": "The server stops, a database cannot be reached now, or there are too many connections.",
        "content": {_JSON: {"schema": _ERROR}, "text/plain": {"schema": {"type": "string"}}},
    },
}
_TABLE = _param("table", "The table.", {"type": "string"}, required=True)
_KEYS = [
    _param("after", "Key after which the interval begins, as JSON; its beginning by default.", {"type": "string"}),
    _param("through", "Last key of the interval, as JSON; its end by default.", {"type": "string"}),
]
_GONE = {"410": _answer("Retention has removed the change after `after`.", _JSON, _ERROR)}

BULK_PATHS: dict[str, dict[str, Any]] = {
    "/api/v1/bulk/{source}": {
        "get": {
            "operationId": "describeBulk",
            "summary": "Tell what there is to read of a source, and which offset a place is.",
            "parameters": [
                _SOURCE,
                _TABLES,
                _param("from", "A place: `earliest`, `latest`, an offset, or a time.", {"type": "string"}),
                _offset("beyond", "Answer as soon as the head is beyond this offset."),
                _offset("wait_ms", "Longest time to wait for that; 1000 by default, at most 10000."),
            ],
            "responses": {**_REFUSALS, "200": _answer("What there is.", _JSON, _ref(BulkResult.__name__))},
        }
    },
    "/api/v1/bulk/{source}/cuts": {
        "get": {
            "operationId": "cutBulk",
            "summary": "Tell where an interval can be cut so that no commit is divided.",
            "parameters": [
                _SOURCE,
                _AFTER,
                _THROUGH,
                _offset("changes", "Most changes between two cuts, but in a single commit.", least=1),
                _offset("bytes", "About how many bytes of the log between two cuts.", least=1),
                _offset("count", "Most cuts.", least=1),
            ],
            "responses": {**_REFUSALS, **_GONE, "200": _answer("The cuts.", _JSON, _ref(CutsResult.__name__))},
        }
    },
    "/api/v1/bulk/{source}/changes": {
        "get": {
            "operationId": "readBulk",
            "summary": "Read the changes of an interval.",
            "parameters": [
                _SOURCE,
                _AFTER,
                _THROUGH,
                _TABLES,
                _param(
                    "ops",
                    "Kinds of changes; all when left out.",
                    {"type": "array", "items": {"enum": [op.word for op in Op]}},
                    explode=True,
                ),
                _param("key", "Column that is the key of the tables, to be bounded.", {"type": "string"}),
                *(_number(name, f"Bound of {what}, included.") for name, what in _BOUNDS.items()),
                _offset("wait_ms", "Longest time to wait at the head, where `through` is left out; at most 10000."),
                _param("compression", "How buffers are compressed.", {"enum": [*map(str, Compression)]}),
            ],
            "responses": {
                **_REFUSALS,
                **_GONE,
                "200": _answer(
                    "An Arrow IPC stream. One that breaks off is not whole.",
                    CONTENT_TYPE,
                    {"type": "string", "format": "binary"},
                    headers={"Tailrace-Through": {"required": True, "schema": {"type": "string"}}},
                ),
            },
        }
    },
    "/api/v1/bulk/{source}/ranges": {
        "get": {
            "operationId": "cutTable",
            "summary": "Cut the keys of a table into runs of rows.",
            "parameters": [
                _SOURCE,
                _TABLE,
                *_KEYS,
                _offset("rows", "Rows in a run.", least=1),
                _offset("parts", "Into how many runs to cut the whole table, where `rows` is left out.", least=1),
                _offset("count", "Most cuts.", least=1),
            ],
            "responses": {**_REFUSALS, "200": _answer("The cuts.", _JSON, _ref(RangesResult.__name__))},
        }
    },
    "/api/v1/bulk/{source}/rows": {
        "get": {
            "operationId": "readTable",
            "summary": "Read the first rows of an interval of keys, as they were at one offset.",
            "parameters": [
                _SOURCE,
                _TABLE,
                *_KEYS,
                _offset("rows", "Most rows.", least=1),
                _param("typed", "A column for each of the table's, where all values fit.", {"type": "boolean"}),
            ],
            "responses": {
                **_REFUSALS,
                "200": _answer(
                    "An Arrow IPC stream of one page.", CONTENT_TYPE, {"type": "string", "format": "binary"}
                ),
            },
        }
    },
    "/api/v1/bulk/{source}/subscriptions": {
        "post": {
            "operationId": "subscribeBulk",
            "summary": "Make a durable subscription that shows how far a bulk reader is.",
            "parameters": [_SOURCE],
            "requestBody": {"content": {_JSON: {"schema": _ref(BulkSubscribeParams.__name__)}}},
            "responses": {
                **_REFUSALS,
                "201": _answer("The subscription.", _JSON, _ref(BulkSubscribeResult.__name__)),
            },
        }
    },
}
"""What the document says of each path."""
