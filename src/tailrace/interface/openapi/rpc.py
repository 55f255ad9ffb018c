"""The envelopes of `POST /api/v1/rpc` in the OpenAPI document: one kind of request and of answer for each method. Pure.

`RpcRequest` is identified by `method`. An answer does not say which method it is from, so `RpcAnswer` is any of them;
`CdcPollAnswer` is what answers a `CdcPollRequest`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.delivery.http.answer import CODES
from tailrace.delivery.http.envelope import NOT_SUPPORTED, UNSUPPORTED_VERSION, VERSION, ErrorAnswer
from tailrace.delivery.problem import TABLE
from tailrace.interface.skeindb.message import Signature

__all__ = ["REF", "answer_name", "error_codes", "ref_of", "request_name", "rpc_schemas"]

REF = "#/components/schemas/{name}"
"""Where the document keeps its schemas."""

_REQUEST_ID = {"type": ["string", "integer", "null"]}


def rpc_schemas(methods: Mapping[str, Signature], components: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the schemas of all envelopes, by name. `components` has those of params and results."""
    schemas: dict[str, Any] = {}
    for method, types in methods.items():
        params = types.params.__name__
        schemas[request_name(method)] = _request(method, params, components[params].get("required", ()))
        schemas[answer_name(method)] = _answer(method, types.result.__name__)
    requests = {method: REF.format(name=request_name(method)) for method in methods}
    answers = [*map(answer_name, methods), ErrorAnswer.__name__]
    schemas["RpcRequest"] = {
        "description": "A call; without `id`, or with null, it is carried out and nothing is answered.",
        "oneOf": [{"$ref": ref} for ref in requests.values()],
        "discriminator": {"propertyName": "method", "mapping": requests},
    }
    schemas["RpcAnswer"] = {
        "description": "The answer to a call, with `result`, or with `error` where `ok` is false.",
        "anyOf": [ref_of(name) for name in answers],
    }
    return schemas


def request_name(method: str) -> str:
    """Return the name of the schema of a method's requests."""
    return f"{_name(method)}Request"


def answer_name(method: str) -> str:
    """Return the name of the schema of a method's good answers."""
    return f"{_name(method)}Answer"


def error_codes() -> list[str]:
    """Return all codes that an error envelope may have."""
    return sorted({*TABLE.values(), *CODES.values(), NOT_SUPPORTED, UNSUPPORTED_VERSION})


def ref_of(name: str) -> dict[str, Any]:
    """Return a reference to a schema of the document."""
    return {"$ref": REF.format(name=name)}


def _request(method: str, params: str, required_params: Sequence[str]) -> dict[str, Any]:
    return {
        "title": request_name(method),
        "type": "object",
        "properties": {
            "skeinql": {"const": VERSION},
            "id": _REQUEST_ID,
            "method": {"const": method},
            "params": ref_of(params),
        },
        "required": ["skeinql", "method", *(["params"] if required_params else [])],
    }


def _answer(method: str, result: str) -> dict[str, Any]:
    return {
        "title": answer_name(method),
        "type": "object",
        "properties": {"id": _REQUEST_ID, "ok": {"const": True}, "result": ref_of(result)},
        "required": ["id", "ok", "result"],
    }


def _name(method: str) -> str:
    return "".join(part.capitalize() for part in method.replace(".", "_").split("_"))
