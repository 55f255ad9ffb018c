"""Params of the calls that make subscriptions, from Python values. Pure."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict

from tailrace.model.subscription import Format
from tailrace.model.value import to_literal

__all__ = ["SubscribeOptions", "format_of", "literals", "start_param", "subscribe_params", "table_params"]


class SubscribeOptions(TypedDict, total=False):
    """Options of a subscription, all to be left out at will. Conditions are ANDed."""

    include: Collection[str]
    """Row images to deliver: `before`, `after`; both by default."""

    ops: Collection[str]
    """`insert`, `update`, `delete`, `truncate`; all by default. Truncations come with deletions."""

    pk: Sequence[Any]
    """One exact key: a Python value, or a typed literal such as `{"t": "u64", "v": 1}`, for each key column."""

    pk_range: tuple[Any, Any]
    """Lower and upper bound of the key, both inclusive; None leaves a side open. A composite key takes a tuple each."""

    columns: Collection[str]
    """Deliver a change only where one of these columns changed, and only these columns."""

    where: str
    """SQL predicate over the row."""

    cel: str
    """CEL expression over the change."""

    format: Literal["objects_json", "plain_json"]
    """`objects_json`, the default, carries values without loss; `plain_json` is ordinary JSON."""

    from_: str | int | datetime
    """Where to begin: `latest` (the default), `earliest`, behind an offset, or at a time."""

    snapshot: bool
    """Deliver the rows that are there first, as `read` events."""

    auto_ack: bool
    """Let the server acknowledge what it has sent, whether it was processed or not. See also `events(auto_ack=…)`."""

    deliver: Literal["result"]
    """Of a query: deliver the new result with each event."""

    precise: bool
    """Of a query: leave out events after which the result is the same as before; the server runs the query to know."""


_AS_THEY_ARE = ("where", "cel", "snapshot", "auto_ack", "deliver", "precise")


def table_params(db: str | None, table: str | None) -> dict[str, str]:
    """Return the params that name a table. A single name is the table's: then the server's only source is meant.

    Raises:
        TypeError: There is no name at all.
    """
    if table is None:
        if db is None:
            raise TypeError("name the table: subscribe('users') or subscribe('app', 'users')")
        return {"table": db}
    return {"table": table} if db is None else {"db": db, "table": table}


def subscribe_params(target: Mapping[str, Any], options: SubscribeOptions) -> dict[str, Any]:
    """Return the params of `cdc.subscribe_table` or `cdc.subscribe_query` for a target."""
    include = options.get("include", ("before", "after"))
    params: dict[str, Any] = {
        **target,
        "include": dict.fromkeys(include, True),
        "format": format_of(options).value,
    }
    fields: Mapping[str, Any] = options
    params |= {name: list(fields[name]) for name in ("ops", "columns") if name in fields}
    params |= {name: fields[name] for name in _AS_THEY_ARE if name in fields}
    if "pk" in options:
        params["pk"] = literals(options["pk"])
    if "pk_range" in options:
        bounds = zip(("lower_bound", "upper_bound"), options["pk_range"], strict=True)
        params["pk_range"] = {name: _bound(bound) for name, bound in bounds if bound is not None}
    if "from_" in options:
        params["from"] = start_param(options["from_"])
    return params


def format_of(options: SubscribeOptions) -> Format:
    """Return the format that the options ask for."""
    return Format(options.get("format", Format.OBJECTS_JSON))


def start_param(start: str | int | datetime) -> str | int:
    """Return where to begin as a param."""
    return start.isoformat() if isinstance(start, datetime) else start


def literals(values: Sequence[Any]) -> list[dict[str, Any]]:
    """Return values as typed literals; what is one already stays as it is."""
    return [value if isinstance(value, dict) else to_literal(value) for value in values]


def _bound(bound: Any) -> Any:
    return literals(bound) if isinstance(bound, tuple | list) else literals([bound])[0]
