"""Options of subscriptions as the params and results of calls say them. Pure."""

from typing import Any

from tailrace.delivery.http.place import OPS
from tailrace.interface.skeindb.message import IncludeParams, SubscribeParams
from tailrace.model.errors import InvalidRequestError
from tailrace.model.op import ROW_OPS, Op
from tailrace.model.subscription import FilterOptions, Include, Subscription

__all__ = ["filter_options_of", "include_of", "options_of"]


def filter_options_of(params: SubscribeParams) -> FilterOptions:
    """Return which changes the params ask for. What needs the table's schema is not looked at.

    Raises:
        InvalidRequestError: An op is none, or a predicate is empty.
    """
    for name, text in (("where", params.where), ("cel", params.cel)):
        if text is not None and not text.strip():
            raise InvalidRequestError(f"`{name}` is empty: leave it out, or say which changes you want")
    return FilterOptions(
        _ops(params.ops) if params.ops else ROW_OPS,
        key=tuple(params.pk or ()),
        bounds=params.pk_range,
        columns=tuple(dict.fromkeys(params.columns or ())),
        where=params.where,
        cel=params.cel,
    )


def include_of(params: SubscribeParams) -> Include:
    """Return which row images the params ask for."""
    include = params.include or IncludeParams()
    return Include(before=include.before, after=include.after)


def options_of(subscription: Subscription) -> dict[str, Any]:
    """Return what a subscription asks for, as its params would say it."""
    wanted = subscription.filter
    options = {
        "pk": list(wanted.key) or None,
        "pk_range": wanted.bounds,
        "columns": list(wanted.columns) or None,
        "where": wanted.where,
        "cel": wanted.cel,
    }
    return {
        "ops": [op.word for op in wanted.ops],
        "include": {"before": subscription.include.before, "after": subscription.include.after},
        **{name: value for name, value in options.items() if value is not None},
        "auto_ack": subscription.auto_ack,
        **({"snapshot": True} if subscription.snapshot else {}),
    }


def _ops(words: list[str]) -> tuple[Op, ...]:
    """Return the ops that words name, each once, in order of their numbers."""
    cleaned = [word.strip().lower() for word in words]
    for word in cleaned:
        if word not in OPS:
            raise InvalidRequestError(f"unsupported op {word!r} in `ops`: use {', '.join(OPS)}")
    return tuple(sorted({OPS[word] for word in cleaned}))
