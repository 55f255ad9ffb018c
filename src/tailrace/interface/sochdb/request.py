"""Requests of `sochdb.v1.SubscriptionService` in our own words. Pure."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from tailrace.delivery.grpc.call import GrpcCall
from tailrace.delivery.grpc.proto import sochdb_pb2 as proto
from tailrace.model.errors import BeyondHeadError, InvalidRequestError
from tailrace.model.number import Offset
from tailrace.model.op import ROW_OPS, Op
from tailrace.model.start import After, Latest, Start
from tailrace.model.subscription import FilterOptions, QueryTarget, SourceTarget, Subscription, SubscriptionId

__all__ = [
    "SUBSCRIPTION",
    "Delivery",
    "asked_for",
    "batch_of",
    "check_resumed",
    "delivery_of",
    "filter_of",
    "name_of",
    "number_of",
    "start_of",
    "start_of_named",
    "target_of",
    "watched_of",
]

SUBSCRIPTION = "x-tailrace-subscription"
"""Metadata: which subscription a stream is of."""

_KEEP = "x-tailrace-keep"
_AUTO_ACK = "x-tailrace-auto-ack"
_FLAGS = {"true": True, "1": True, "false": False, "0": False}

_TABLES_MAX = 1024
_TABLE_CHARACTERS_MAX = 512
_KEY_BYTES_MAX = 64 << 10
_BATCH_MAX = 1 << 16
"""More events than this are never in one write, whatever a client allows."""

_NAME = re.compile(r"sub-([1-9][0-9]{0,17})|sub_([0-9a-f]{16})", re.ASCII)
_OPS = {int(op): op for op in (*ROW_OPS, Op.SCHEMA)}


class Delivery(Struct, frozen=True):
    """What the metadata of a call ask for besides the stream."""

    keep: bool
    """The subscription outlives its stream."""

    auto_ack: bool
    """What was sent counts as acknowledged."""


def delivery_of(call: GrpcCall, named: Subscription | None = None) -> Delivery:
    """Return what the metadata of a call ask for, of a new subscription or of the one that they name.

    A new subscription that ends with its stream acknowledges what was sent: nobody else will. One that is kept waits
    for an acknowledgement by default. One that exists acknowledges as it was made to; the metadata change that for
    their stream only. It outlives the stream in any case.

    Raises:
        InvalidRequestError: One is neither true nor false, or a subscription that exists is not to be kept.
    """
    if named is not None:
        if not _flag(call, _KEEP, default=True):
            raise InvalidRequestError(f"a subscription that exists outlives this stream: leave out {_KEEP}")
        return Delivery(keep=True, auto_ack=_flag(call, _AUTO_ACK, default=named.auto_ack))
    keep = _flag(call, _KEEP, default=False)
    return Delivery(keep, _flag(call, _AUTO_ACK, default=not keep))


def target_of(source: str, tables: Iterable[str]) -> SourceTarget:
    """Return what a request is for.

    Raises:
        InvalidRequestError: There are too many tables, or one has a name that no table can have.
    """
    names = tuple(dict.fromkeys(tables))
    if len(names) > _TABLES_MAX:
        raise InvalidRequestError(f"tables: {len(names)} are too many: name at most {_TABLES_MAX}, or none for all")
    for name in names:
        if not 0 < len(name) <= _TABLE_CHARACTERS_MAX:
            raise InvalidRequestError(f"tables: a name has 1 to {_TABLE_CHARACTERS_MAX} characters")
    return SourceTarget(source, names)


def filter_of(operations: Iterable[int], where: str) -> FilterOptions:
    """Return which changes a request wants. Operations that nobody knows are left out; none is all.

    Truncations go to those who want deletions, and as the schema changes that they are on this wire.
    """
    known = {_OPS[number] for number in operations if number in _OPS}
    if Op.SCHEMA in known:
        known.add(Op.TRUNCATE)
    return FilterOptions(tuple(sorted(known or set(Op))), where=where or None)


def watched_of(source: str, table: str, key: bytes) -> tuple[SourceTarget, FilterOptions]:
    """Return what a request for one key is for, and which changes it wants.

    Raises:
        InvalidRequestError: The key is too large, or the table's name too long.
    """
    if len(key) > _KEY_BYTES_MAX:
        raise InvalidRequestError(f"key: {len(key)} bytes are too many: a key has at most {_KEY_BYTES_MAX}")
    return target_of(source, [table] if table else []), FilterOptions(ROW_OPS, raw_key=key or None)


def start_of(start_sequence: int) -> Start:
    """Return where a stream begins. SochDB names the first change that it wants; 0 is the next that comes."""
    return After(Offset(start_sequence - 1)) if start_sequence else Latest()


def start_of_named(start_sequence: int, cursor: Offset) -> After:
    """Return where a stream of a subscription that exists begins: what it acknowledged is never sent again."""
    return After(max(Offset(start_sequence - 1), cursor)) if start_sequence else After(cursor)


@contextmanager
def asked_for(start_sequence: int) -> Iterator[None]:
    """Have a start beyond the head name the sequence that was asked for: inside, a start is the offset before it."""
    try:
        yield
    except BeyondHeadError as error:
        raise BeyondHeadError(requested=start_sequence, head=error.head) from error


def batch_of(batch_size: int, default: int) -> int:
    """Return how many events one write may have."""
    return min(batch_size, _BATCH_MAX) if batch_size else default


def check_resumed(request: proto.SubscribeRequest, subscription: Subscription) -> None:
    """Refuse a request that wants something else than the subscription which it names.

    Raises:
        InvalidRequestError: It says which changes, or the subscription has none of SochDB's form.
    """
    if request.tables or request.operations or request.where_predicate:
        raise InvalidRequestError(
            "the subscription says which changes it is for: leave out tables, operations and where_predicate, "
            f"or {SUBSCRIPTION}"
        )
    if subscription.snapshot:
        raise InvalidRequestError("this subscription begins with a snapshot: stream that over HTTP, and acknowledge it")
    if isinstance(subscription.target, QueryTarget):
        raise InvalidRequestError("this subscription is for a query: stream it over HTTP")


def name_of(subscription_id: SubscriptionId) -> str:
    """Return the name of a subscription in SochDB."""
    return f"sub-{subscription_id}"


def number_of(name: str) -> SubscriptionId | None:
    """Return the number of a subscription from its name in SochDB or SkeinDB; None for what is no name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return SubscriptionId(int(match[1]) if match[1] else int(match[2], 16))


def _flag(call: GrpcCall, name: str, *, default: bool) -> bool:
    text = call.header(name)
    if text is None:
        return default
    flag = _FLAGS.get(text.strip().lower())
    if flag is None:
        raise InvalidRequestError(f"{name}: {text[:32]!r} is neither true nor false")
    return flag
