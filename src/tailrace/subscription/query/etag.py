"""ETags of query results, and the state from which they are computed. Pure.

The ETag of a result is a hash of the query, its arguments, the catalog's version, and for each table it depends on the
offset of the last change that could touch the result: its *version*. So an invalidation and a new ETag are the same
thing. Why a 304 never hides a changed result:

* A version only grows, and offsets are never used twice within one log. `log_id` tells logs apart: a log that is begun
  anew counts from 1 again.
* A state begins with the head as the version of every table. An equal ETag from earlier must have had that same head as
  its version, and no change has come since.
* A state ends with its process: `log_id` tells processes apart too, so a restart gives every client a new ETag once.
* The caller computes the ETag of a result *before* it runs the query, and compares ETags only after it has scanned
  every change that the database had committed when the request came.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec import json as msgspec_json

from tailrace.model.number import Offset
from tailrace.subscription.query.argument import Stored
from tailrace.subscription.query.dependency import Dependencies

__all__ = ["QueryState", "advance", "begin", "etag", "not_modified"]

_FORM = 1
"""Goes into every ETag; raised when their making changes."""

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


def etag(query_id: str, arguments: Sequence[Stored], state: QueryState, *, unique: str = "") -> str:
    """Return the weak validator of the result that the query has as of this state: `W/"q:…"`.

    A volatile query passes something `unique` each time: no ETag of it is ever seen again.
    """
    versions = sorted(state.versions.items())
    parts = [_FORM, query_id, _arguments(arguments), state.log_id, state.catalog_version, versions, unique]
    digest = hashlib.sha256(msgspec_json.encode(parts)).digest()
    return f'W/"q:{base64.b32encode(digest[:20]).decode().lower()}"'


def not_modified(if_none_match: str | None, current: str) -> bool:
    """Return whether a client that sent this `If-None-Match` already has the result of the current ETag.

    Validators are compared weakly (RFC 9110, 8.8.3.2). `*` matches nothing: it does not say what the client has.
    """
    if not if_none_match:
        return False
    tag = current.removeprefix("W/")
    return tag in _ENTITY_TAG.findall(if_none_match)


def _arguments(arguments: Sequence[Stored]) -> list[list[str]]:
    """Return arguments so that different ones look different: 1, 1.0 and '1', and bytes."""
    return [
        [type(value).__name__, value.hex() if isinstance(value, bytes | float) else str(value)] for value in arguments
    ]
