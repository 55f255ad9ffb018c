"""Consumers and terms of change streams, in the metadata database."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select, update

from tailrace.clock import Clock
from tailrace.meta.store import MetaStore
from tailrace.meta.table import consumer, term
from tailrace.model.errors import MetadataError
from tailrace.model.number import Index, Offset

__all__ = ["Bounded", "Consumer", "ConsumerKey", "ConsumerStore", "Retention", "Strict", "TermStore"]


class Strict(Struct, frozen=True, tag="strict"):
    """The log is kept for the consumer until it acknowledges."""


class Bounded(Struct, frozen=True, tag="bounded"):
    """The log is kept for the consumer as long as it keeps within these bounds; beyond one of them it is ended."""

    progress_lag_ms_max: int
    """Age of the oldest commit that it has not acknowledged."""

    retained_bytes_max: int
    """Log that it has not acknowledged."""

    liveness_timeout_ms: int | None = None
    """Time without a stream or an acknowledgement."""


Retention = Strict | Bounded

ConsumerKey = tuple[str, str]
"""The owner of a consumer and its id."""


class Consumer(Struct, frozen=True):
    """One consumer. `checkpoint` is the last commit that it acknowledged, `checkpoint_offset` its last change.

    `ended` tells why it ended; None while it lives. Each registration of an id is another incarnation, from 1 upwards.
    Each owner has ids of its own.
    """

    id: str
    shard: int
    incarnation: int
    retention: Retention
    checkpoint: Index
    checkpoint_offset: Offset
    owner: str
    ended: str | None = None

    @property
    def key(self) -> ConsumerKey:
        """Return what tells it from all others."""
        return self.owner, self.id


class ConsumerStore:
    """The consumers of a metadata database. What a method wrote is durable when it returns."""

    def __init__(self, store: MetaStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def consumers(self) -> Sequence[Consumer]:
        """Return all consumers, the ended ones first that ended first."""
        statement = select(consumer).order_by(consumer.c.changed_time_us, consumer.c.owner, consumer.c.id)
        return await self._store.transact(
            lambda connection: [_from_row(row) for row in connection.execute(statement).mappings()]
        )

    async def put(self, consumer_: Consumer) -> None:
        """Keep a consumer, in place of one of the same owner and id."""
        values = {
            "id": consumer_.id,
            "shard": consumer_.shard,
            "incarnation": consumer_.incarnation,
            "retention": msgspec.json.encode(consumer_.retention).decode(),
            "checkpoint": consumer_.checkpoint,
            "checkpoint_offset": consumer_.checkpoint_offset,
            "owner": consumer_.owner,
            "ended": consumer_.ended,
            "changed_time_us": self._clock.now_us(),
        }

        def run(connection: Connection) -> None:
            connection.execute(delete(consumer).where(_is(consumer_.key)))
            connection.execute(insert(consumer).values(values))

        await self._store.transact(run)

    async def acknowledge(self, key: ConsumerKey, checkpoint: Index, offset: Offset) -> None:
        """Move a checkpoint forward; one that is already further stays."""
        statement = (
            update(consumer)
            .where(_is(key), consumer.c.checkpoint < checkpoint)
            .values(checkpoint=checkpoint, checkpoint_offset=offset, changed_time_us=self._clock.now_us())
        )
        await self._store.transact(lambda connection: connection.execute(statement))

    async def remove(self, key: ConsumerKey) -> None:
        """Forget a consumer, its incarnations included."""
        statement = delete(consumer).where(_is(key))
        await self._store.transact(lambda connection: connection.execute(statement))


def _is(key: ConsumerKey) -> ColumnElement[bool]:
    owner, consumer_id = key
    return and_(consumer.c.owner == owner, consumer.c.id == consumer_id)


def _from_row(row: Mapping[Any, Any]) -> Consumer:
    try:
        return Consumer(
            id=row["id"],
            shard=row["shard"],
            incarnation=row["incarnation"],
            retention=msgspec.json.decode(row["retention"], type=Retention),
            checkpoint=Index(row["checkpoint"]),
            checkpoint_offset=Offset(row["checkpoint_offset"]),
            owner=row["owner"],
            ended=row["ended"],
        )
    except msgspec.DecodeError as error:
        raise MetadataError(f"consumer {row['id']} in the metadata database is not readable") from error


class TermStore:
    """The terms of a metadata database. What a method wrote is durable when it returns."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def begin(self, shard: int, first_index: Index) -> Sequence[tuple[Index, int]]:
        """Begin the next term of a shard, whose first commit would be `first_index`.

        Return the first index of each term with its number, rising. A term that held no commit is forgotten, but its
        number is not used again. The first term of a shard is that of all commits before it, too.
        """

        def run(connection: Connection) -> Sequence[tuple[Index, int]]:
            mine = term.c.shard == shard
            highest = connection.execute(select(func.max(term.c.term)).where(mine)).scalar()
            begun = 1 if highest is None else highest + 1
            first = Index(1) if highest is None else first_index
            connection.execute(delete(term).where(mine, term.c.first_index >= first))
            connection.execute(insert(term).values(shard=shard, term=begun, first_index=first))
            rows = connection.execute(select(term.c.first_index, term.c.term).where(mine).order_by(term.c.term))
            return [(Index(row.first_index), row.term) for row in rows]

        return await self._store.transact(run)
