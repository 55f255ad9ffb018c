"""The query service: prepared queries, their results and ETags, and what their subscriptions are sent."""

import asyncio
import base64
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tailrace.clock import Clock
from tailrace.meta.store import MetaStore
from tailrace.metrics import Metrics
from tailrace.model.errors import (
    CaptureDisabledError,
    InvalidRequestError,
    QueryTimeoutError,
    SourceAbilityError,
    SourceUnavailableError,
    TailraceError,
    UnknownQueryError,
    UnknownSourceError,
)
from tailrace.model.number import Offset
from tailrace.model.subscription import Format, PreparedQuery, QueryTarget, SubscriptionId
from tailrace.model.table import TableName
from tailrace.model.value import Value, from_literal
from tailrace.source.base import CAPTURE_ONLY, Barrier, QuerySource, ResultRows, RunLimits
from tailrace.sql.dialect import Dialect
from tailrace.sql.query import Statement
from tailrace.subscription.query.etag import not_modified
from tailrace.subscription.query.options import QueryOptions
from tailrace.subscription.query.precise import VerifiedResult, is_invalidated, verify
from tailrace.subscription.query.result import InlineLimits, inline_members
from tailrace.subscription.query.tracker import QueryLog, QueryStanding, Ran, Tracker
from tailrace.subscription.table import known_table

__all__ = ["Executed", "QueryOptions", "QueryService", "QueryShard"]

_ATTEMPTS_MAX = 3
"""So often a query is run again when the schema changes under it."""

_NAME_MAX = 255

_ROWS_FEW = 200
"""The ETag of a result with more rows is computed in a thread."""

_OUTCOMES: Mapping[type[TailraceError], str] = {QueryTimeoutError: "timeout", SourceUnavailableError: "unavailable"}
"""How a failed run is counted; any other failure is the query's own and counts as refused."""


class QueryShard(Struct, frozen=True):
    """One source as queries see it: its reading side and its log."""

    source: QuerySource
    log: QueryLog


class Executed(Struct, frozen=True):
    """The answer to a run. Without `result`, the client has the result already. `tables` gives each one's version."""

    etag: str
    result: ResultRows | None
    tables: Sequence[tuple[str, Offset]]


class QueryService:
    """Prepared queries of all sources. Get one by `open`. For tasks of one event loop."""

    def __init__(
        self,
        shards: Mapping[str, QueryShard | None],
        store: MetaStore,
        clock: Clock,
        options: QueryOptions | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.options = options or QueryOptions()
        self.metrics = metrics or Metrics()
        self._shards = dict(shards)
        self._store = store
        self._clock = clock
        self._epoch = secrets.token_hex(8)
        self._prepared: dict[str, PreparedQuery] = {}
        self._statements: OrderedDict[str, Statement] = OrderedDict()
        self._catalogs: dict[str, tuple[Offset, str]] = {}
        self.verified: dict[SubscriptionId, VerifiedResult] = {}
        """What precise subscriptions know that nobody reads now."""
        self._trackers: OrderedDict[tuple[str, str], Tracker] = OrderedDict()
        self.metrics.queries_prepared.set_function(lambda: len(self._prepared))
        self.metrics.queries_followed.set_function(lambda: len(self._trackers))

    @classmethod
    async def open(
        cls,
        shards: Mapping[str, QueryShard | None],
        store: MetaStore,
        clock: Clock,
        options: QueryOptions | None = None,
        metrics: Metrics | None = None,
    ) -> "QueryService":
        """Return a service that knows the queries in the metadata database."""
        service = cls(shards, store, clock, options, metrics)
        service._prepared = {prepared.query_id: prepared for prepared in await store.queries()}
        return service

    @property
    def sources(self) -> Collection[str]:
        """Return the names of the sources, also of those that cannot be queried."""
        return self._shards.keys()

    def shard(self, source: str) -> QueryShard:
        """Return a source as queries see it.

        Raises:
            SourceAbilityError: It can only be captured.
        """
        shard = self._shards[source]
        if shard is None:
            raise SourceAbilityError(source, CAPTURE_ONLY)
        return shard

    async def catalog(self, tracker: Tracker, through: Offset) -> str:
        """Return the name of a schema version that is older neither than a change of the log nor than a tracker.

        A log tells of tables and views that changed, but not of indexes, on which it depends what can touch a result.

        Raises:
            SourceUnavailableError: The database cannot be reached.
        """
        source = tracker.prepared.source
        checked, version = self._catalogs.get(source, (Offset(-1), ""))
        if checked < through or version != tracker.catalog:
            shard = self.shard(source)
            head = shard.log.head
            _, version = await shard.source.consult(lambda _: None)
            self._catalogs[source] = (head, version)
        return version

    async def prepare(
        self,
        query: str | Mapping[str, Any],
        *,
        name: str = "",
        source: str | None = None,
        admit: Callable[[Sequence[TableName]], None] | None = None,
    ) -> PreparedQuery:
        """Keep a query, SQL or a tree, and return it; the same one twice is the same. Durable on return.

        `admit` is shown the tables that the query depends on, and may raise.

        Raises:
            InvalidRequestError: It cannot be read, or the database does not take it.
            UnknownSourceError: There is no such source.
            SourceAbilityError: It can only be captured.
            SourceUnavailableError: The database cannot be reached.
        """
        prepared = await self.draft(query, name=name, source=source, admit=admit)
        if prepared is not self._prepared.get(prepared.query_id):
            self.check_room([prepared])
            await self._store.put_query(prepared)
            self.adopt([prepared])
        return prepared

    async def draft(
        self,
        query: str | Mapping[str, Any],
        *,
        name: str = "",
        source: str | None = None,
        pending: Mapping[str, PreparedQuery] | None = None,
        admit: Callable[[Sequence[TableName]], None] | None = None,
    ) -> PreparedQuery:
        """Return what `prepare` would keep, or the prepared query that is the same; see there.

        `pending` are others by their ids that are to be kept as well.
        """
        source = self._source(source)
        self.shard(source)  # before the query is judged: it may be in another dialect
        if len(name) > _NAME_MAX:
            raise InvalidRequestError(f"name is longer than {_NAME_MAX} characters")
        statement = await self.parse(query, source)
        tables = await self._tables(statement, source)
        if admit is not None:
            admit(tables)
        query_id = self._query_id(statement, source, pending or {})
        known = self._prepared.get(query_id)
        if known is not None and (not name or name == known.name):
            return known
        original = query if isinstance(query, str) else msgspec.json.encode(query).decode()
        return PreparedQuery(query_id, source, statement.text, original, name, self._clock.now_us())

    async def parse(self, query: str | Mapping[str, Any], source: str) -> Statement:
        """Return the statement that a query is, SQL or a tree, for a source that is there.

        Raises:
            InvalidRequestError: It cannot be read.
        """
        dialect = self._dialect(source)

        def read() -> Statement:
            return dialect.parse_query(query if isinstance(query, str) else dialect.query_of_tree(query, source))

        return await asyncio.to_thread(read)

    def check_room(self, prepared: Sequence[PreparedQuery]) -> None:
        """Refuse queries that would be too many.

        Raises:
            InvalidRequestError: They would.
        """
        if len(self._prepared.keys() | {entry.query_id for entry in prepared}) > self.options.prepared_max:
            raise InvalidRequestError(f"there are already {self.options.prepared_max} prepared queries")

    def adopt(self, prepared: Sequence[PreparedQuery]) -> None:
        """Know queries that the metadata database has."""
        self._prepared |= {entry.query_id: entry for entry in prepared}

    def queries(self) -> list[PreparedQuery]:
        """Return all prepared queries, the oldest first."""
        return list(self._prepared.values())

    def get(self, query_id: str) -> PreparedQuery:
        """Return a prepared query.

        Raises:
            UnknownQueryError: There is none of that id.
        """
        found = self._prepared.get(query_id)
        if found is None or found.source not in self._shards:
            raise UnknownQueryError(query_id)
        return found

    async def resolve(self, target: QueryTarget, prepared: PreparedQuery | None = None) -> QueryTarget:
        """Return a target with the tables that the query depends on now; `prepared` is it where it is not kept yet.

        Raises:
            UnknownQueryError: There is none of that id.
            InvalidRequestError: The arguments are not those of the query, or it no longer fits the schema.
            SourceUnavailableError: The database cannot be reached.
        """
        prepared = prepared or self.get(target.query_id)
        statement, source = await self._statement(prepared), prepared.source
        self._dialect(source).bind([from_literal(literal) for literal in target.args], statement.arguments)
        return msgspec.structs.replace(target, tables=await self._tables(statement, source))

    async def tables(self, prepared: PreparedQuery) -> Sequence[TableName]:
        """Return the tables that a query depends on now.

        Raises:
            InvalidRequestError: It no longer fits the schema.
            SourceUnavailableError: The database cannot be reached.
        """
        return await self._tables(await self._statement(prepared), prepared.source)

    async def tracker(self, query_id: str, args: Sequence[Value]) -> Tracker:
        """Return what follows a query with these arguments.

        Raises:
            UnknownQueryError: There is none of that id.
            InvalidRequestError: The arguments are not those of the query.
            CaptureDisabledError: Nothing is captured.
        """
        if not self.options.capture_enabled:
            raise CaptureDisabledError
        prepared = self.get(query_id)
        statement = await self._statement(prepared)
        arguments = self._dialect(prepared.source).bind(args, statement.arguments)
        key = (query_id, repr(arguments))
        tracker = self._trackers.get(key)
        if tracker is None:
            shard = self.shard(prepared.source)
            tracker = Tracker(prepared, statement, arguments, shard.source, shard.log, self._epoch, self.metrics)
            self._trackers[key] = tracker
            if len(self._trackers) > self.options.trackers_max:
                self._trackers.popitem(last=False)
        self._trackers.move_to_end(key)
        return tracker

    async def execute(self, query_id: str, args: Sequence[Value], if_none_match: str | None = None) -> Executed:
        """Return the result of a query, or that it is the one that the client has by an ETag.

        The query is not run where nothing can have touched the result since it was run last.

        Raises:
            UnknownQueryError: There is none of that id.
            InvalidRequestError: The arguments are wrong, the query no longer fits the schema, or gives too much.
            QueryTimeoutError: It took too long.
            SourceUnavailableError: The database cannot be reached.
        """
        tracker = await self.tracker(query_id, args)
        source = tracker.prepared.source
        for _ in range(_ATTEMPTS_MAX):
            standing, complete = await self._stand(tracker)
            if standing.problem is not None:
                raise InvalidRequestError(str(standing.problem))
            tables = self._versions(source, standing)
            known = tracker.etag_at(standing.tag()) if complete else None
            if known is not None and not_modified(if_none_match, known):
                tracker.given.note(known)
                self.metrics.query_answers.labels("not_modified").inc()
                return Executed(known, None, tables)
            ran = await self._run_for_client(tracker)
            if ran.catalog == standing.catalog:
                tracker.learn(standing, ran)
                same = not_modified(if_none_match, ran.etag)
                self.metrics.query_answers.labels("unchanged" if same else "result").inc()
                return Executed(ran.etag, None if same else ran.result, tables)
        raise SourceUnavailableError("the schema of the database keeps changing")

    async def newest(self, tracker: Tracker, standing: QueryStanding) -> Ran | None:
        """Return a result that has all changes that a standing has. Whoever asks at the same time shares one run.

        None where it cannot be had: it is too large, takes too long, or no longer fits the schema.
        """
        async with tracker.running:
            ran = tracker.ran
            if ran is None or ran.head < standing.state.scanned or ran.catalog != standing.catalog:
                try:
                    ran = await self._run_for_client(tracker)
                except (InvalidRequestError, QueryTimeoutError, SourceUnavailableError):
                    return None
        if ran.catalog != standing.catalog:
            return None
        tracker.learn(standing, ran)
        return ran

    async def verify(
        self, tracker: Tracker, standing: QueryStanding, verified: VerifiedResult, through: Offset
    ) -> VerifiedResult:
        """Return what a precise subscription knows after changes through `through` that can touch the result."""
        ran = await self.newest(tracker, standing)
        await tracker.given.settle()  # a run that began before this one may give what was there before
        given, number = tracker.given.since(verified.number), tracker.given.number
        found = verify(verified, through, number, None if ran is None else ran.etag, given)
        outcome = "failed" if ran is None else "changed" if is_invalidated(found, through) else "same"
        self.metrics.query_checks.labels(outcome).inc()
        return found

    async def begin_precise(self, subscription_id: SubscriptionId, target: QueryTarget, cursor: Offset) -> None:
        """Find out the result with which a new precise subscription begins, if that can be had."""
        try:
            tracker = await self.tracker(target.query_id, [from_literal(literal) for literal in target.args])
            found = await self.establish(tracker, cursor)
        except TailraceError:
            return  # the first invalidation is sent then
        if found is not None:
            self.verified[subscription_id] = found

    async def establish(self, tracker: Tracker, after: Offset) -> VerifiedResult | None:
        """Return what a precise subscription knows that has had every event through `after`; None if nothing.

        The result of that moment is known where no change since then can have touched it, neither before nor while the
        query is run.
        """
        head = self.shard(tracker.prepared.source).log.head
        if tracker.unestablished == head:
            return None  # nothing has changed since it could not be had
        tracker.unestablished = head
        try:
            standing, complete = await self._stand(tracker)
            if not (complete and standing.repeatable and _untouched(standing, after)):
                return None
            ran = await self.newest(tracker, standing)
            await tracker.given.settle()
            number = tracker.given.number
            later, complete = await self._stand(tracker)
        except SourceUnavailableError:
            return None
        if ran is None or not complete or later.tag() != standing.tag():
            return None
        tracker.unestablished = None
        return VerifiedResult(max(after, standing.state.scanned), number, ran.etag)

    async def _stand(self, tracker: Tracker) -> tuple[QueryStanding, bool]:
        """Return where a query stands with all that the database has now; False where the log does not have it yet."""
        shard = self.shard(tracker.prepared.source)
        barrier = await shard.source.newest(self.options.barrier_timeout_s)
        complete = await self._reach(shard, barrier)
        return await tracker.follow(shard.log.head, barrier.catalog), complete

    async def _run_for_client(self, tracker: Tracker) -> Ran:
        """Run a query, and note what it gives as handed out."""
        with tracker.given.running():
            head = self.shard(tracker.prepared.source).log.head
            result = await self.run(tracker)
            large = len(result.rows) > _ROWS_FEW
            etag = await asyncio.to_thread(tracker.etag_of, result) if large else tracker.etag_of(result)
            tracker.given.note(etag)
        ran = Ran(head, etag, result.catalog, result)
        if tracker.ran is None or head >= tracker.ran.head:
            kept = result if len(result.rows) <= self.options.delta_rows_max else None
            tracker.ran = Ran(head, etag, result.catalog, kept)
        return ran

    async def run(self, tracker: Tracker) -> ResultRows:
        """Run a query, whether or not anybody knows its result."""
        limits = RunLimits(self.options.rows_max, self.options.bytes_max, self.options.run_timeout_s)
        shard = self.shard(tracker.prepared.source)
        begin_s, outcome = self._clock.monotonic_s(), "ok"
        try:
            return await shard.source.run(tracker.statement.text, tracker.arguments, limits)
        except TailraceError as error:
            outcome = _OUTCOMES.get(type(error), "refused")
            raise
        finally:
            self.metrics.query_runs.labels(outcome).observe(self._clock.monotonic_s() - begin_s)

    async def inline(self, tracker: Tracker, standing: QueryStanding, format_: Format) -> tuple[str | None, bytes]:
        """Return the ETag of the new result, and the members with which an event tells it, for `deliver: "result"`.

        A result that cannot be had (it is too large, takes too long, no longer fits the schema) is left out.
        """
        limits = InlineLimits(self.options.inline_rows_max, self.options.inline_bytes_max)
        ran = await self.newest(tracker, standing)
        if ran is None or ran.result is None:
            return None if ran is None else ran.etag, inline_members(None, None, format_, limits)
        sent = tracker.sent
        if sent is not None and sent[0] == ran.etag:
            return ran.etag, inline_members(sent[1], tracker.sent_before, format_, limits)
        if len(ran.result.rows) <= self.options.delta_rows_max:
            tracker.sent_before, tracker.sent = sent, (ran.etag, ran.result)
        return ran.etag, inline_members(ran.result, sent, format_, limits)

    async def _reach(self, shard: QueryShard, barrier: Barrier) -> bool:
        """Wait until the log has what the database had; tell whether it does."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self.options.barrier_timeout_s
        while not shard.source.reached(barrier, position := shard.log.position):
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                return False
            await shard.log.wait_position(position, left_s)
        return True

    async def _statement(self, prepared: PreparedQuery) -> Statement:
        statement = self._statements.get(prepared.query_id)
        if statement is None:
            statement = await self.parse(prepared.text, prepared.source)
            self._statements[prepared.query_id] = statement
            if len(self._statements) > self.options.trackers_max:
                self._statements.popitem(last=False)
        else:
            self._statements.move_to_end(prepared.query_id)
        return statement

    def _query_id(self, statement: Statement, source: str, pending: Mapping[str, PreparedQuery]) -> str:
        """Return the id of a statement; one that another source has already gets one that names its own source."""
        known = self._prepared.get(statement.query_id) or pending.get(statement.query_id)
        if known is None or known.source == source:
            return statement.query_id
        digest = hashlib.sha256(f"{source}\n{statement.text}".encode()).digest()
        return "q_" + base64.b32encode(digest).decode().rstrip("=").lower()

    async def _tables(self, statement: Statement, source: str) -> tuple[TableName, ...]:
        dialect = self._dialect(source)
        shard = self.shard(source)
        found, _ = await shard.source.consult(lambda catalog: dialect.analyse(statement, catalog))
        return tuple(known_table(shard.log, source, name) for name in found.tables)

    def _dialect(self, source: str) -> Dialect:
        return self.shard(source).source.dialect

    def _source(self, name: str | None) -> str:
        if name is None:
            if len(self._shards) != 1:
                raise InvalidRequestError(f"say which database: `db` is one of {', '.join(sorted(self._shards))}")
            return next(iter(self._shards))
        if name not in self._shards:
            raise UnknownSourceError(name)
        return name

    def _versions(self, source: str, standing: QueryStanding) -> Sequence[tuple[str, Offset]]:
        return [(f"{source}.{table}", version) for table, version in sorted(standing.state.versions.items())]


def _untouched(standing: QueryStanding, after: Offset) -> bool:
    """Tell whether no change after an offset can have touched the result, as far as a standing goes."""
    return max(standing.state.versions.values(), default=Offset(0)) <= after
