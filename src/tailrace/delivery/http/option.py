"""Options of subscriptions as the params and results of calls say them. Pure."""

from datetime import UTC, datetime
from typing import Any

from tailrace.delivery.http.message import IncludeParams, PlaceParams, SubscribeParams
from tailrace.model.errors import InvalidRequestError
from tailrace.model.number import Offset
from tailrace.model.op import ROW_OPS, Op
from tailrace.model.start import After, AtTime, CursorStart, Earliest, Latest
from tailrace.model.subscription import FilterOptions, Include, Subscription

__all__ = ["OPS", "filter_options_of", "include_of", "options_of", "start_of"]

OPS = {op.word: op for op in (*ROW_OPS, Op.TRUNCATE)}
"""Ops that can be asked for, by their words."""

_WORDS: dict[str, CursorStart] = {"earliest": Earliest(), "latest": Latest()}


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
    given = {
        "pk": list(wanted.key) or None,
        "pk_range": wanted.bounds,
        "columns": list(wanted.columns) or None,
        "where": wanted.where,
        "cel": wanted.cel,
    }
    return {
        "ops": [op.word for op in wanted.ops],
        "include": {"before": subscription.include.before, "after": subscription.include.after},
        **{name: value for name, value in given.items() if value is not None},
        "auto_ack": subscription.auto_ack,
        **({"snapshot": True} if subscription.snapshot else {}),
    }


def start_of(place: str | int | PlaceParams | None, name: str) -> CursorStart:
    """Return where a subscription begins, or is moved to; `name` is that of the param.

    Raises:
        InvalidRequestError: It is neither a word that we know, nor an offset, nor a time.
    """
    match place:
        case None:
            return Latest()
        case int():
            return After(Offset(place))
        case str():
            word = _WORDS.get(place.strip().lower())
            return word if word is not None else AtTime(_time_us(place, name))
        case PlaceParams(offset, None) if offset is not None:
            return After(Offset(offset))
        case PlaceParams(None, timestamp) if timestamp is not None:
            return AtTime(_time_us(timestamp, name))
    raise InvalidRequestError(f"`{name}` has `offset` or `timestamp`, one of the two")


def _time_us(timestamp: str | int, name: str) -> int:
    if isinstance(timestamp, int):
        return timestamp * 1000
    try:
        time = datetime.fromisoformat(timestamp.strip())
    except ValueError:
        takes = '"earliest", "latest", an offset, or a time such as 2026-01-31T12:00:00Z'
        raise InvalidRequestError(f"`{name}` takes {takes}; this is none: {timestamp[:64]!r}") from None
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _ops(words: list[str]) -> tuple[Op, ...]:
    """Return the ops that words name, each once, in order of their numbers."""
    cleaned = [word.strip().lower() for word in words]
    for word in cleaned:
        if word not in OPS:
            raise InvalidRequestError(f"unsupported op {word!r} in `ops`: use {', '.join(OPS)}")
    return tuple(sorted({OPS[word] for word in cleaned}))
