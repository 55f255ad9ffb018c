"""Subscriptions: what a durable reader asked for and how far it has acknowledged; the queries that some are for."""

import re
from enum import StrEnum
from typing import NewType

from msgspec import Struct

from tailrace.model.errors import UnknownSubscriptionError
from tailrace.model.number import Offset
from tailrace.model.op import Op
from tailrace.model.start import CursorStart, Latest
from tailrace.model.table import TableName
from tailrace.model.value import Json

__all__ = [
    "Deliver",
    "FilterOptions",
    "Format",
    "Include",
    "PreparedQuery",
    "QueryTarget",
    "SourceTarget",
    "Subscription",
    "SubscriptionDraft",
    "SubscriptionId",
    "TableTarget",
    "Target",
    "parse_sub_id",
    "sub_id_of",
]

SubscriptionId = NewType("SubscriptionId", int)
"""Number of a subscription: from 1, counted by the metadata database, never reused."""


_SUB_ID = re.compile(r"sub_([0-9a-f]{16})", re.ASCII)
"""Names of subscriptions on the wires."""


class Format(StrEnum):
    """How keys and row images are written for a subscriber."""

    OBJECTS_JSON = "objects_json"
    """Each value as a typed literal."""

    PLAIN_JSON = "plain_json"
    """Each value as ordinary JSON."""


class Include(Struct, frozen=True):
    """Which row images a subscriber gets."""

    before: bool = False
    after: bool = False


class TableTarget(Struct, frozen=True, tag="table"):
    """The subscription is for the changes of these tables, all of one source."""

    tables: tuple[TableName, ...]


class Deliver(StrEnum):
    """What a subscriber of a query gets when its result may have changed."""

    INVALIDATE = "invalidate"
    """That it may have, and the new ETag."""

    RESULT = "result"
    """The new result as well, or how it differs, where that is not too large."""


class QueryTarget(Struct, frozen=True, tag="query"):
    """The subscription is for changes that can touch the result of a prepared query with these arguments.

    `args` are typed literals. `precise` leaves out those after which the result is the same as before. `tables` are
    those that the query depended on when the subscription was made, for people: what it depends on is found out again
    each time.
    """

    query_id: str
    args: tuple[Json, ...] = ()
    deliver: Deliver = Deliver.INVALIDATE
    tables: tuple[TableName, ...] = ()
    precise: bool = False


class SourceTarget(Struct, frozen=True, tag="source"):
    """The subscription is for the changes of a source: of the tables of these names, which need not be there yet.

    Names are as the wires show them. None of them is all tables, those to come included.
    """

    source: str
    names: tuple[str, ...] = ()

    @property
    def tables(self) -> tuple[TableName, ...]:
        """Return the names as those of tables, for people and for rights, which go by `wire`; `*` for all.

        Whether a name begins with a schema only a log knows: no table is to be looked up by what is returned.
        """
        return tuple(TableName(self.source, name) for name in self.names or ("*",))


Target = TableTarget | QueryTarget | SourceTarget
"""What a subscription is for. A tagged union: each kind of target is one more member."""


class FilterOptions(Struct, frozen=True, omit_defaults=True):
    """Which changes of the target are wanted. Conditions are ANDed."""

    ops: tuple[Op, ...]

    key: tuple[Json, ...] = ()
    """One exact key as typed literals; none for all keys."""

    bounds: dict[str, Json] | None = None
    """Inclusive `lower_bound` and `upper_bound` of the key, each a typed literal or a list of them."""

    columns: tuple[str, ...] = ()
    """Columns of which one must have changed, and to which images are cut; none for all."""

    where: str | None = None
    """SQL predicate over the row."""

    cel: str | None = None
    """CEL expression over the change."""

    raw_key: bytes | None = None
    """One exact key in its raw form; see `tailrace.model.raw_key`."""


class Subscription(Struct, frozen=True):
    """One durable reader. `cursor` is the last acknowledged offset.

    While it is `paused` it gets no changes; the cursor stays, and retention goes on without regard to it. With
    `auto_ack` a stream acknowledges what it has sent. With `snapshot` the rows of the table come first; until they are
    acknowledged the cursor stays, and `snapshot_offset` tells where the rows that were wholly sent belong. A
    `transient` one is gone with the stream that made it, and its cursor is not kept on disk.
    """

    id: SubscriptionId
    source: str
    target: Target
    filter: FilterOptions
    include: Include
    format: Format
    cursor: Offset
    created_time_us: int
    paused: bool = False
    auto_ack: bool = False
    snapshot: bool = False
    snapshot_offset: Offset | None = None
    transient: bool = False
    owner: str | None = None
    """Id of the principal that made it; None where nobody asked who that was."""


class SubscribeRequest(Struct, frozen=True):
    """What someone asks of a new subscription: the changes of a target from now on, or from a place in the log."""

    target: Target
    filter: FilterOptions
    include: Include
    format: Format
    start: CursorStart = Latest()
    auto_ack: bool = False
    snapshot: bool = False
    """Whether the rows of the table as they are now come first. Only of tables, and only from now on."""

    transient: bool = False
    """Whether it goes with its stream: its maker closes it; one that is left over is removed at the next start."""


class SubscriptionDraft(Struct, frozen=True):
    """A subscription that has no number yet."""

    source: str
    target: Target
    filter: FilterOptions
    include: Include
    format: Format
    cursor: Offset
    paused: bool = False
    auto_ack: bool = False
    snapshot: bool = False
    transient: bool = False
    owner: str | None = None


class PreparedQuery(Struct, frozen=True):
    """One query that clients can run by its id.

    `text` is its canonical form and what the database runs; `original` is what the client sent, SQL or the JSON of a
    tree. What it depends on is not kept: that changes with the database's schema.
    """

    query_id: str
    source: str
    text: str
    original: str
    name: str
    created_time_us: int


def sub_id_of(subscription_id: SubscriptionId) -> str:
    """Return the name of a subscription in SkeinDB: `sub_` and 16 hexadecimal digits."""
    return f"sub_{subscription_id:016x}"


def parse_sub_id(name: str) -> SubscriptionId:
    """Return the number of a subscription from its name in SkeinDB.

    Raises:
        UnknownSubscriptionError: No subscription ever has such a name.
    """
    match = _SUB_ID.fullmatch(name)
    if match is None:
        raise UnknownSubscriptionError(name)
    return SubscriptionId(int(match[1], 16))
