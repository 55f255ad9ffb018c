"""Places in the log and ops, as requests over HTTP say them. Pure."""

from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta, Struct

from tailrace.model.errors import InvalidRequestError
from tailrace.model.number import Offset
from tailrace.model.op import ROW_OPS, Op
from tailrace.model.start import After, AtTime, CursorStart, Earliest, Latest

__all__ = ["OPS", "OffsetParam", "PlaceParams", "start_of"]

OffsetParam = Annotated[int, Meta(ge=0, le=2**63 - 1)]

OPS = {op.word: op for op in (*ROW_OPS, Op.TRUNCATE)}
"""Ops that can be asked for, by their words."""

_WORDS: dict[str, CursorStart] = {"earliest": Earliest(), "latest": Latest()}


class PlaceParams(Struct, frozen=True, forbid_unknown_fields=True):
    """A place in the log: after an offset, or at a time. One of the two."""

    offset: OffsetParam | None = None
    timestamp: str | int | None = None


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
    raise InvalidRequestError(f"`{name}` takes either `offset` or `timestamp`")


def _time_us(timestamp: str | int, name: str) -> int:
    if isinstance(timestamp, int):
        return timestamp * 1000
    try:
        time = datetime.fromisoformat(timestamp.strip())
    except ValueError:
        takes = '"earliest", "latest", an offset, or a time such as 2026-01-31T12:00:00Z'
        raise InvalidRequestError(f"`{name}` takes {takes}, not {timestamp[:64]!r}") from None
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
