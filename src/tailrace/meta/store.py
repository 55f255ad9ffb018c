"""The metadata database as the rest of Tailrace sees it."""

import asyncio
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from sqlalchemy import Connection, delete, insert, select, text, update

from tailrace.clock import Clock
from tailrace.meta.database import Database
from tailrace.meta.subscription_row import subscription_of, values_of
from tailrace.meta.table import query, server, shard, subscription
from tailrace.model.number import Offset
from tailrace.model.subscription import (
    PreparedQuery,
    Subscription,
    SubscriptionDraft,
    SubscriptionId,
)

__all__ = ["MetaStore"]

_T = TypeVar("_T")


class _Move(Struct, frozen=True):
    """Where a cursor is to go: forwards only, unless forced."""

    cursor: Offset
    forced: bool = False


class _Call(Struct, frozen=True, eq=False):
    """Statements that wait for their transaction, and where their result goes."""

    statements: Callable[[Connection], Any]
    result: Future[Any]


_CALLS_TOGETHER_MAX = 256
"""Most calls in one transaction."""


class MetaStore:
    """The metadata database for the tasks of one event loop. What a method wrote is durable when it returns.

    All statements run on one thread of the store's own; callers may be many tasks of one event loop. What they ask for
    while that thread is busy shares the next transaction, in the order of the calls; of a cursor only the last place.
    """

    def __init__(self, database: Database, thread: ThreadPoolExecutor, clock: Clock) -> None:
        self.database = database
        """For whoever has threads of its own."""
        self._thread = thread
        self._clock = clock
        self._lock = threading.Lock()
        self._moves: dict[SubscriptionId, _Move] = {}
        self._flush: Future[None] | None = None
        self._waiting: list[_Call] = []
        self._closed = False

    @classmethod
    async def open(cls, url: str, clock: Clock, older: Path | None = None) -> "MetaStore":
        """Connect to the database at an SQLAlchemy URL and bring it to the newest version; see `Database.open`.

        Raises:
            ConfigError: The URL is malformed or its driver is not installed.
            MetadataError: The database refused, or was written by a newer Tailrace.
        """
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tailrace-meta")
        opening = asyncio.get_running_loop().run_in_executor(
            thread, lambda: Database.open(url, clock, older, checked=True)
        )
        try:
            return cls(await opening, thread, clock)
        except BaseException:
            thread.shutdown(wait=False)
            raise

    @property
    def url(self) -> str:
        """Return the URL of the database, with its password."""
        return self.database.url

    async def call(self, use: Callable[[], _T]) -> _T:
        """Return what a call of one of the stores that block returns, called by the thread of this one."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, use)

    async def subscriptions(self) -> Sequence[Subscription]:
        """Return all subscriptions in order of their numbers."""
        statement = select(subscription).order_by(subscription.c.id)
        return await self._run(
            lambda connection: [subscription_of(row) for row in connection.execute(statement).mappings()]
        )

    async def add(self, draft: SubscriptionDraft) -> Subscription:
        """Keep a new subscription under the next number, which was never given before."""
        values = values_of(draft) | {"created_time_us": self._clock.now_us()}

        def run(connection: Connection) -> Subscription:
            key = connection.execute(insert(subscription), values).inserted_primary_key  # quicker than `values` in it
            assert key is not None
            return subscription_of(values | {"id": key[0]})

        return await self._run(run)

    async def put_all(
        self, drafts: Mapping[SubscriptionId, SubscriptionDraft], queries: Sequence[PreparedQuery] = ()
    ) -> Sequence[Subscription]:
        """Keep subscriptions under numbers of the caller's choice, and queries, in place of those that have the ids.

        All of them or, when that fails, none.
        """
        values = [values_of(draft) | {"id": number} for number, draft in drafts.items()]
        values = [row | {"created_time_us": self._clock.now_us()} for row in values]

        def run(connection: Connection) -> Sequence[Subscription]:
            for prepared in queries:
                _put_query(connection, prepared)
            for row in values:
                connection.execute(delete(subscription).where(subscription.c.id == row["id"]))
                connection.execute(insert(subscription), row)
            if connection.dialect.name == "postgresql":
                connection.execute(_PASS_NUMBERS)
            return [subscription_of(row) for row in values]

        return await self._run(run)

    async def advance(self, subscription_id: SubscriptionId, cursor: Offset) -> None:
        """Move a cursor forward; one that is already further stays. An unknown number does nothing."""
        await self._move(subscription_id, lambda known: _Move(max(cursor, known.cursor), known.forced), cursor)

    async def reset(self, subscription_id: SubscriptionId, cursor: Offset) -> None:
        """Move a cursor forward or back. An unknown number does nothing."""
        await self._move(subscription_id, lambda _: _Move(cursor, forced=True), cursor)

    async def pause(self, subscription_id: SubscriptionId, *, paused: bool) -> None:
        """Keep whether a subscription is paused. An unknown number does nothing."""
        statement = update(subscription).where(subscription.c.id == subscription_id).values(paused=paused)
        await self._run(lambda connection: connection.execute(statement))

    async def set_snapshot(self, subscription_id: SubscriptionId, *, wanted: bool, offset: Offset | None) -> None:
        """Keep whether a snapshot is still wanted, and where the one belongs that was wholly sent."""
        statement = update(subscription).where(subscription.c.id == subscription_id)
        await self._run(
            lambda connection: connection.execute(statement.values(snapshot=wanted, snapshot_offset=offset))
        )

    async def remove(self, subscription_id: SubscriptionId) -> None:
        """Forget a subscription; its number stays used."""
        statement = delete(subscription).where(subscription.c.id == subscription_id)
        await self._run(lambda connection: connection.execute(statement))

    async def remove_transient(self) -> None:
        """Forget the subscriptions of streams that a crash has ended."""
        statement = delete(subscription).where(subscription.c.transient)
        await self._run(lambda connection: connection.execute(statement))

    async def queries(self) -> Sequence[PreparedQuery]:
        """Return all prepared queries, the oldest first."""
        statement = select(query).order_by(query.c.created_time_us, query.c.query_id)
        return await self._run(
            lambda connection: [PreparedQuery(**row) for row in connection.execute(statement).mappings()]
        )

    async def put_query(self, prepared: PreparedQuery) -> None:
        """Keep a prepared query, in place of one of the same id."""
        await self._run(lambda connection: _put_query(connection, prepared))

    async def server_id(self) -> str:
        """Return the name of whoever keeps this metadata: made up once, the same for ever."""

        def run(connection: Connection) -> str:
            found: str | None = connection.execute(select(server.c.id)).scalar()
            if found is None:
                found = str(uuid.uuid4())
                connection.execute(insert(server).values(id=found))
            return found

        return await self._run(run)

    async def shards(self, sources: Sequence[str]) -> Mapping[str, int]:
        """Return the shard of each source. New sources get the next numbers, in this order; no number is used twice."""

        def run(connection: Connection) -> Mapping[str, int]:
            known = {row.source: row.id for row in connection.execute(select(shard))}
            for source in sources:
                if source not in known:
                    known[source] = max(known.values(), default=-1) + 1
                    connection.execute(insert(shard).values(source=source, id=known[source]))
            return {source: known[source] for source in sources}

        return await self._run(run)

    async def transact(self, statements: Callable[[Connection], _T]) -> _T:
        """Run statements as one transaction and return what they do; durable on return.

        Raises:
            MetadataError: The database refused.
        """
        return await self._run(statements)

    async def close(self) -> None:
        """Finish what was begun and disconnect. Safe to repeat."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self.database.close)
        self._thread.shutdown(wait=True)

    async def _move(self, subscription_id: SubscriptionId, join: Callable[["_Move"], "_Move"], cursor: Offset) -> None:
        with self._lock:
            self._moves[subscription_id] = join(self._moves.get(subscription_id, _Move(cursor)))
            if self._flush is None:
                self._flush = self._thread.submit(self._write_moves)
            flush = self._flush
        # Shared by all callers of this round: one that is cancelled must not take it from the others.
        await asyncio.shield(asyncio.wrap_future(flush))

    def _write_moves(self) -> None:
        with self._lock:
            moves, self._moves, self._flush = self._moves, {}, None

        def run(connection: Connection) -> None:
            for subscription_id, move in moves.items():
                statement = update(subscription).where(subscription.c.id == subscription_id)
                if not move.forced:
                    statement = statement.where(subscription.c.cursor < move.cursor)
                connection.execute(statement.values(cursor=move.cursor))

        self.database.transact(run)

    async def _run(self, statements: Callable[[Connection], _T]) -> _T:
        call: _Call = _Call(statements, Future())
        with self._lock:
            self._waiting.append(call)
            if len(self._waiting) == 1:
                self._thread.submit(self._run_waiting)
        # A caller that is cancelled must not take it from the others of the same transaction.
        return await asyncio.shield(asyncio.wrap_future(call.result))

    def _run_waiting(self) -> None:
        with self._lock:
            calls, self._waiting = self._waiting[:_CALLS_TOGETHER_MAX], self._waiting[_CALLS_TOGETHER_MAX:]
            if self._waiting:
                self._thread.submit(self._run_waiting)
        if not self._run_together(calls):
            for call in calls:  # one of them failed, and none is done: each by itself
                self._run_together([call])

    def _run_together(self, calls: Sequence[_Call]) -> bool:
        """Run calls in one transaction; False when one failed, which undoes all."""
        try:
            results = self.database.transact(lambda connection: [call.statements(connection) for call in calls])
        except Exception as error:  # whoever fails by itself gets it
            if len(calls) > 1:
                return False
            calls[0].result.set_exception(error)
            return True
        for call, result in zip(calls, results, strict=True):
            call.result.set_result(result)
        return True


_PASS_NUMBERS = text(
    "SELECT setval(pg_get_serial_sequence('tailrace_subscription', 'id'), max(id)) FROM tailrace_subscription"
)
"""Where numbers come from a sequence, it must pass those that were chosen."""


def _put_query(connection: Connection, prepared: PreparedQuery) -> None:
    connection.execute(delete(query).where(query.c.query_id == prepared.query_id))
    connection.execute(insert(query).values(msgspec.structs.asdict(prepared)))
