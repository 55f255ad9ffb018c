"""ETags of query results, and tags of the states that queries are in. Pure.

The **ETag** of a result is a hash of the query, its arguments, and the columns and rows of the result itself. So an
equal result has an equal ETag, in whichever process and however it came about.

The **state tag** is a hash of the query, its arguments, the catalog's version, and for each table it depends on the
offset of the last change that could touch the result: its *version*. While the state is the same, so is the result, and
nobody needs to run the query to know that. Why a 304 that relies on it never hides a changed result:

* A version only grows, and offsets are never used twice within one log. `log_id` tells logs apart: a log that is begun
  again counts from 1 again.
* A state begins with the head as the version of every table. An equal tag from earlier must have had that same head as
  its version, and no change has come since.
* A state ends with its process: `log_id` tells processes apart too.
* The caller computes the tag of a state *before* it runs the query, and compares tags only after it has scanned every
  change that the database had committed when the request came.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec import json as msgspec_json

from tailrace.model.number import Offset
from tailrace.sql.query import Dependencies, Stored
from tailrace.subscription.query.delta import Row

__all__ = ["QueryState", "advance", "begin", "not_modified", "result_etag", "state_tag"]

_FORM = 2
"""Goes into every ETag and tag; raised when their making changes."""

_ENTITY_TAG = re.compile(r'(?:W/)?("[^"]*")')


class QueryState(Struct, frozen=True):
    """How far changes were scanned for one query with its arguments, and each table's version."""

    log_id: str
    catalog_version: str
    scanned: Offset
    versions: dict[str, Offset]


def begin(dependencies: Dependencies, log_id: str, head: Offset) -> QueryState:
    """Return a state that knows nothing of earlier changes: they might all have touched the result."""
    return QueryState(log_id, dependencies.catalog_version, head, dict.fromkeys(dependencies.tables, head))


def advance(state: QueryState, relevant: Mapping[str, Offset], scanned: Offset) -> QueryState:
    """Return the state after all changes through `scanned`; `relevant` are the last ones that matter, by table."""
    assert scanned >= state.scanned
    versions = {table: max(version, relevant.get(table, version)) for table, version in state.versions.items()}
    return QueryState(state.log_id, state.catalog_version, scanned, versions)


def state_tag(query_id: str, arguments: Sequence[Stored], state: QueryState, *, unique: str = "") -> str:
    """Return the tag of a state, of the form of an ETag. No result has it as its ETag.

    A volatile query passes something `unique` each time: no tag of it is ever seen again.
    """
    versions = sorted(state.versions.items())
    parts = [_FORM, "state", query_id, _arguments(arguments), state.log_id, state.catalog_version, versions, unique]
    return _tag(msgspec_json.encode(parts))


def result_etag(
    query_id: str, arguments: Sequence[Stored], columns: Sequence[str], rows: Sequence[Row], *, ordered: bool
) -> str:
    """Return the weak validator of a result: `W/"q:…"`.

    It is the same for the same columns and the same rows, equally often, with the same types and values; and in the
    same order where the query is `ordered`.
    """
    encode = msgspec.msgpack.Encoder().encode  # which tells 1, 1.0, '1' and x'31' apart
    encoded = [encode(row) for row in rows]
    head = [_FORM, "result", query_id, _arguments(arguments), list(columns), len(rows)]
    digest = hashlib.sha256(msgspec_json.encode(head))
    for row in encoded if ordered else sorted(encoded):
        digest.update(b"%d:" % len(row))
        digest.update(row)
    return _tag(digest.digest())


def not_modified(if_none_match: str | None, current: str) -> bool:
    """Return whether a client that sent this `If-None-Match` already has the result of the current ETag.

    Validators are compared weakly (RFC 9110, 8.8.3.2). `*` matches nothing: it does not say what the client has.
    """
    if not if_none_match:
        return False
    tag = current.removeprefix("W/")
    return tag in _ENTITY_TAG.findall(if_none_match)


def _tag(content: bytes) -> str:
    digest = hashlib.sha256(content).digest()
    return f'W/"q:{base64.b32encode(digest[:20]).decode().lower()}"'


def _arguments(arguments: Sequence[Stored]) -> list[list[str]]:
    """Return arguments so that different ones look different: 1, 1.0 and '1', and bytes."""
    return [
        [type(value).__name__, value.hex() if isinstance(value, bytes | float) else str(value)] for value in arguments
    ]
