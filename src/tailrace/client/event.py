"""What a feed yields: changes, and control events between them. Pure.

Members have the names of the HTTP interface, but for `offset`, which is `seq` there.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from tailrace.client.errors import BadAnswer
from tailrace.model.errors import InvalidValueError
from tailrace.model.subscription import Format
from tailrace.model.value import LITERAL_TAGS, Array, Text, from_literal

__all__ = ["Backpressure", "Control", "Event", "Heartbeat", "Notice", "decode_control", "decode_event"]

_T = TypeVar("_T")

_WIDTH_MAX = 60
_BYTES_SHOWN = 16
_ITEMS_SHOWN = 32

_MEMBERS = frozenset({"seq", "db", "table", "op", "pk", "before", "after", "query_id", "etag", "commit_ts_ms", "lsn"})
"""Members of an event that have a place of their own."""


class Event(Struct, Generic[_T], frozen=True, kw_only=True):
    """One change, or the invalidation of a query.

    In the format `objects_json` the values of `pk`, `before` and `after` are Python values without loss (int, float,
    Decimal, str, bytes, `Text` for dates, UUIDs, JSON and all else that is written as text, `Array`, None). A value of
    a type that this client does not know is the typed literal itself, an object. In `plain_json` they are what the JSON
    says.
    """

    offset: int
    """Number of the change in its log; rises from event to event, not always by one."""

    db: str
    """Name of the source."""

    table: str

    op: str
    """`insert`, `update` or `delete`; `truncate` where all rows of the table were removed at once, with no `pk` and no
    images; `read` for a row of a snapshot; `invalidate` for a query."""

    commit_ts_ms: int
    """When the change was committed, in milliseconds since the Unix epoch."""

    pk: tuple[Any, ...] = ()
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    query_id: str | None = None
    etag: str | None = None

    more: Mapping[str, Any]
    """Members of the event that are not named here."""

    raw: bytes
    """The event as the server sent it: one line of JSON."""

    acknowledge: Callable[[int], _T]
    """What `ack` calls with the offset."""

    def __str__(self) -> str:
        """Return the change as a person wants to see it: one line, an update with what it changed."""
        clock = datetime.fromtimestamp(self.commit_ts_ms / 1000, UTC).isoformat(" ", "milliseconds")[:-6]
        key = ",".join(map(_shown, self.pk))
        head = f"{clock} #{self.offset} {self.op} {self.db}.{self.table}"
        return "  ".join(filter(None, (f"{head} {key}".rstrip(), self._body())))

    def __repr__(self) -> str:
        """Return the members that say something, without the raw line and what acknowledges."""
        members = {name: getattr(self, name) for name in self.__struct_fields__ if name not in {"raw", "acknowledge"}}
        said = ", ".join(f"{name}={value!r}" for name, value in members.items() if value not in (None, (), {}))
        return f"Event({said})"

    def _body(self) -> str:
        if self.query_id is not None:
            return f"{self.query_id} {self.etag or ''}".rstrip()
        before, after = self.before, self.after
        if before is not None and after is not None:
            changed = [name for name in after if name not in before or before[name] != after[name]]
            old = {name: _shown(before[name]) if name in before else "?" for name in changed}  # ?: not sent
            pairs = [f"{name}: {old[name]} → {_shown(after[name])}" for name in changed]
            return "  ".join(pairs) or "(no column changed)"
        return "  ".join(f"{name}={_shown(value)}" for name, value in (after or before or {}).items())

    def ack(self) -> _T:
        """Acknowledge all changes up to this one. In the async client the result must be awaited."""
        return self.acknowledge(self.offset)


class Backpressure(Struct, frozen=True):
    """How near a subscription is to losing changes to retention; as a control event, that its state changed."""

    state: str
    """`healthy`, `pressure`, `throttle`, `paused` or `resnapshot_required`."""

    lag: int
    """How many changes the newest is ahead of the acknowledged one."""

    remaining_until_resnapshot: int | None = None
    """How many more changes it may fall behind; None where retention does not count changes."""

    paused: bool = False


class Heartbeat(Struct, frozen=True):
    """The feed lives. `scanned` is how far it has looked, matches or not."""

    scanned: int


class Notice(Struct, frozen=True):
    """A control event that this client has no type for."""

    name: str
    data: Any


Control = Backpressure | Heartbeat | Notice
"""What a feed tells about itself."""

_NONE: Mapping[str, Any] = MappingProxyType({})
_DECODER = msgspec.json.Decoder(dict[str, Any])
_CONTROLS: Mapping[str, type[Backpressure | Heartbeat]] = {"backpressure": Backpressure, "heartbeat": Heartbeat}


def decode_control(name: str, data: bytes) -> Control:
    """Return the control event of a stream.

    Raises:
        BadAnswer: Its data is not what its name promises.
    """
    try:
        kind = _CONTROLS.get(name)
        return Notice(name, msgspec.json.decode(data)) if kind is None else msgspec.json.decode(data, type=kind)
    except ValueError as error:
        raise BadAnswer(f"a {name} event is malformed: {error}") from error


def decode_event(raw: bytes, format_: Format | None, acknowledge: Callable[[int], _T]) -> Event[_T]:
    """Return the event of a line of JSON.

    Without a format the key decides: typed literals only are `objects_json`. That errs only where a plain key
    is a JSON document that looks like a literal.

    Raises:
        BadAnswer: It is no event, or not of that format.
    """
    try:
        members = _DECODER.decode(raw)
        literal = format_ is Format.OBJECTS_JSON or (format_ is None and _has_literals(members))
        convert = _value if literal else _as_it_is
        return Event(
            offset=int(members["seq"]),
            db=members["db"],
            table=members["table"],
            op=members["op"],
            commit_ts_ms=members["commit_ts_ms"],
            pk=tuple([convert(value) for value in members.get("pk") or ()]),
            before=_image(members.get("before"), convert),
            after=_image(members.get("after"), convert),
            query_id=members.get("query_id"),
            etag=members.get("etag"),
            more=_NONE if members.keys() <= _MEMBERS else _others(members),
            raw=raw,
            acknowledge=acknowledge,
        )
    except (KeyError, AttributeError, TypeError, ValueError, InvalidValueError) as error:
        raise BadAnswer(f"an event is malformed: {error!r}") from error


def _shown(value: Any) -> str:
    """Return a value in few characters; of a long one the beginning."""
    match value:
        case None:
            return "null"
        case bytes():
            begin = value[:_BYTES_SHOWN].hex()
            return f"x'{begin}'" if len(value) <= _BYTES_SHOWN else f"x'{begin}…' ({len(value):,} bytes)"
        case Text():
            text = value.text
        case Decimal():
            text = str(value)
        case Array(items, lower):
            text = _shown_items(items) + (f" from {list(lower)}" if lower else "")
        case _:
            text = repr(value)
    return text if len(text) <= _WIDTH_MAX else f"{text[: _WIDTH_MAX - 1]}…"


def _shown_items(items: Sequence[Any]) -> str:
    shown = [_shown_items(item) if isinstance(item, tuple) else _shown(item) for item in items[:_ITEMS_SHOWN]]
    return f"[{', '.join(shown)}{', …' if len(items) > _ITEMS_SHOWN else ''}]"


def _others(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if name not in _MEMBERS}


def _has_literals(members: Mapping[str, Any]) -> bool:
    """Tell whether the values of an event are typed literals, by its key, or by its images if it has none."""
    values = list(members.get("pk") or ())
    if not values:
        values = [value for name in ("before", "after") for value in (members.get(name) or {}).values()]
    return all(isinstance(value, dict) and "t" in value for value in values)


def _image(image: Any, convert: Callable[[Any], Any]) -> dict[str, Any] | None:
    return None if image is None else {name: convert(value) for name, value in image.items()}


def _value(literal: Any) -> Any:
    """Return the value of a literal; a literal of a type that a newer server has stays what it is, an object."""
    if isinstance(literal, dict) and isinstance(tag := literal.get("t"), str) and tag not in LITERAL_TAGS:
        return literal
    return from_literal(literal)


def _as_it_is(value: Any) -> Any:
    return value
