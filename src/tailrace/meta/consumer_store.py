"""Consumers of change streams in the metadata database."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, update

from tailrace.clock import Clock
from tailrace.meta.consumer import Consumer, ConsumerKey, Retention
from tailrace.meta.store import MetaStore
from tailrace.meta.table import consumer
from tailrace.model.errors import MetadataError
from tailrace.model.number import Index, Offset

__all__ = ["ConsumerStore"]


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

    async def put(self, kept: Consumer) -> None:
        """Keep a consumer, in place of one of the same owner and id."""
        values = {
            "id": kept.id,
            "shard": kept.shard,
            "incarnation": kept.incarnation,
            "retention": msgspec.json.encode(kept.retention).decode(),
            "checkpoint": kept.checkpoint,
            "checkpoint_offset": kept.checkpoint_offset,
            "owner": kept.owner,
            "ended": kept.ended,
            "changed_time_us": self._clock.now_us(),
        }

        def run(connection: Connection) -> None:
            connection.execute(delete(consumer).where(_is(kept.key)))
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
