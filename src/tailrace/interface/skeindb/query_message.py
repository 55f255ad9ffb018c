"""Params and results of the RPC methods for queries, members in the order of the wire. Pure."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from tailrace.interface.skeindb.message import SubscribeParams
from tailrace.model.errors import InvalidRequestError
from tailrace.model.number import Offset
from tailrace.model.subscription import Deliver, Format
from tailrace.model.value import Json, Value, from_literal, to_literal
from tailrace.subscription.query.result import rows_json
from tailrace.subscription.query.service import Executed

__all__ = [
    "ChangedEvent",
    "DataResult",
    "DependenciesResult",
    "DependencyResult",
    "ExecuteParams",
    "ExecuteResult",
    "PrepareParams",
    "PrepareResult",
    "QueryEntry",
    "QueryListResult",
    "SubscribeQueryParams",
    "WatchParams",
    "WatchResult",
    "arguments_of",
    "literals_of",
    "result_of",
]


class PrepareParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Params of `query.prepare`: SQL text or a query tree."""

    query: str | dict[str, Any]
    name: str = ""
    db: str | None = None


class PrepareResult(Struct, frozen=True):
    """Result of `query.prepare`."""

    query_id: str
    canonical: str


class QueryEntry(Struct, frozen=True):
    """One prepared query in the result of `query.list`."""

    query_id: str
    canonical: str
    name: str
    db: str
    created_ts_ms: int


class QueryListResult(Struct, frozen=True):
    """Result of `query.list`."""

    queries: Sequence[QueryEntry]


class ExecuteParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Params of `query.execute_prepared`."""

    query_id: str
    args: list[Any] = field(default_factory=list)
    if_none_match: str | None = None
    result_format: Format = Format.PLAIN_JSON


class DataResult(Struct, frozen=True):
    """Rows of a result, each with a value for each column."""

    columns: Sequence[str]
    rows: list[list[Json]]


class DependencyResult(Struct, frozen=True):
    """One table that a query depends on, and the offset of the last change of it that could touch the result."""

    table: str
    v: Offset


class DependenciesResult(Struct, frozen=True):
    """What a result depends on."""

    tables: Sequence[DependencyResult]


class ExecuteResult(Struct, frozen=True, kw_only=True):
    """Result of `query.execute_prepared`; without `data` where the client has it already."""

    etag: str
    not_modified: bool
    data: DataResult | UnsetType = UNSET
    deps: DependenciesResult


class WatchParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Params of `query.subscribe`."""

    query_id: str
    args: list[Any] = field(default_factory=list)


class WatchResult(Struct, frozen=True):
    """Result of `query.subscribe`."""

    query_id: str
    sse_url: str


class SubscribeQueryParams(SubscribeParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Params of `cdc.subscribe_query`."""

    query_id: str
    args: list[Any] = field(default_factory=list)
    deliver: Deliver = Deliver.INVALIDATE
    precise: bool = False


class ChangedEvent(Struct, frozen=True):
    """Data of an event: the result of a query may be another now, because of a change of this table."""

    query_id: str
    table: str
    changed: bool = True


def arguments_of(args: Sequence[Json]) -> list[Value]:
    """Return the arguments of a query from typed literals or ordinary JSON values.

    Raises:
        InvalidRequestError: One is neither.
    """
    values: list[Value] = []
    for number, argument in enumerate(args, start=1):
        if isinstance(argument, dict):
            values.append(from_literal(argument))
        elif isinstance(argument, list):
            raise InvalidRequestError(f"`args`: argument {number} is a list; send a typed literal or a scalar")
        else:
            values.append(argument)
    return values


def literals_of(args: Sequence[Json]) -> tuple[Json, ...]:
    """Return arguments as typed literals.

    Raises:
        InvalidRequestError: One is neither a typed literal nor an ordinary JSON value.
    """
    return tuple(to_literal(value) for value in arguments_of(args))


def result_of(executed: Executed, format_: Format) -> ExecuteResult:
    """Return what a run gave, for the wire."""
    found = executed.result
    return ExecuteResult(
        etag=executed.etag,
        not_modified=found is None,
        data=UNSET if found is None else DataResult(found.columns, rows_json(found.rows, format_)),
        deps=DependenciesResult([DependencyResult(table, version) for table, version in executed.tables]),
    )
