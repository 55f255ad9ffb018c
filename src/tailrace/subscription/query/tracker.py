"""A tracker: follows the log for one query with its arguments, and knows where the query stands at any time."""

import asyncio
import secrets
from collections import OrderedDict
from typing import Protocol

import pyarrow.compute as pc
from msgspec import Struct, structs

from tailrace.metrics import Metrics
from tailrace.model.chunk import Chunk
from tailrace.model.commit import CommitId
from tailrace.model.errors import BehindHorizonError, InvalidRequestError
from tailrace.model.number import Offset, Position
from tailrace.model.op import Op
from tailrace.model.subscription import PreparedQuery
from tailrace.source.base import QuerySource, ResultRows
from tailrace.sql.query import Dependencies, Judge, Statement, Stored
from tailrace.subscription.log_view import LogView
from tailrace.subscription.query.etag import QueryState, begin, result_etag, state_tag
from tailrace.subscription.query.given import Given
from tailrace.subscription.query.invalidation import scan

__all__ = ["QueryLog", "QueryStanding", "Ran", "Tracker", "has_schema_change"]

_STATES_KEPT = 8

_BACKLOG_MAX = 100_000
"""From this many changes behind on, a new beginning costs less than looking at them all."""


class QueryLog(LogView, Protocol):
    """What queries need of a log."""

    @property
    def position(self) -> Position | None:
        """Return how far the log has followed the source."""

    @property
    def last_commit(self) -> CommitId | None:
        """Return the newest commit as its source knows it; None when there is none."""

    async def wait_position(self, known: Position | None, timeout_s: float) -> bool:
        """Return True as soon as `position` is another than `known`, False after the timeout."""


class QueryStanding(Struct, frozen=True):
    """Where a query stands after all changes through `state.scanned`.

    `catalog` is the source's name of the schema version that it was analysed for. A `problem` tells that the query no
    longer fits the schema; then it depends on nothing until the schema changes again.
    """

    query_id: str
    arguments: tuple[Stored, ...]
    state: QueryState
    dependencies: Dependencies
    judge: Judge
    catalog: str
    problem: InvalidRequestError | None = None

    @property
    def identity(self) -> str:
        """Return a text that is the same for all standings that judge changes alike."""
        return f"{self.query_id} {self.arguments!r} {self.state.log_id}"

    @property
    def repeatable(self) -> bool:
        """Tell whether an equal tag means an equal result."""
        return self.problem is None and not self.dependencies.volatile

    def tag(self) -> str:
        """Return the tag of the state as of now; another one each time where the result is not repeatable."""
        unique = "" if self.repeatable else secrets.token_hex(12)
        return state_tag(self.query_id, self.arguments, self.state, unique=unique)


class Ran(Struct, frozen=True):
    """A result, its ETag, and the head of the log when its run began: the result has all changes up to there.

    A result that is too large to be kept has no `rows` later on.
    """

    head: Offset
    etag: str
    catalog: str
    result: ResultRows | None


class Tracker:
    """Follows one log for one query with its arguments. For tasks of one event loop.

    It begins with the head as the version of every table, so that nothing it says depends on what was before. `epoch`
    differs for every process that serves this log: state tags of another one are never taken for ours.
    """

    def __init__(
        self,
        prepared: PreparedQuery,
        statement: Statement,
        arguments: tuple[Stored, ...],
        source: QuerySource,
        log: QueryLog,
        epoch: str,
        metrics: Metrics,
    ) -> None:
        self.prepared = prepared
        self.statement = statement
        self.arguments = arguments
        self.sent: tuple[str, ResultRows] | None = None
        """The newest result that went along with an event, and its ETag; and the one before it."""
        self.sent_before: tuple[str, ResultRows] | None = None
        self.given = Given()
        self.running = asyncio.Lock()
        """Held by a run that others wait for."""
        self.ran: Ran | None = None
        """The run that saw the newest changes."""
        self.unestablished: Offset | None = None
        """The head at which nobody could tell the result of the moment."""
        self._known: OrderedDict[str, str] = OrderedDict()
        self._source = source
        self._log = log
        self._epoch = epoch
        self._relevant = metrics.query_changes.labels("relevant")
        self._irrelevant = metrics.query_changes.labels("irrelevant")
        self._lock = asyncio.Lock()
        self._standing: QueryStanding | None = None

    @property
    def catalog(self) -> str | None:
        """Return the name of the schema version for which the query was analysed last; None before that."""
        return None if self._standing is None else self._standing.catalog

    def etag_at(self, tag: str) -> str | None:
        """Return the ETag of the result in a state, if the query was run in it."""
        return self._known.get(tag)

    def learn(self, standing: QueryStanding, ran: Ran) -> None:
        """Note what was run in a state. A run sees that state or a newer one: see `etag`."""
        if standing.repeatable:
            self._known[standing.tag()] = ran.etag
            if len(self._known) > _STATES_KEPT:
                self._known.popitem(last=False)

    def etag_of(self, result: ResultRows) -> str:
        """Return the ETag of a result. Large ones take a moment."""
        ordered = self.statement.ordered
        return result_etag(self.prepared.query_id, self.arguments, result.columns, result.rows, ordered=ordered)

    async def follow(self, through: Offset, catalog: str | None = None) -> QueryStanding:
        """Return where the query stands after all changes through `through` or later, under the schema `catalog`.

        Raises:
            SourceUnavailableError: The schema changed, and the database cannot be reached.
            LogClosedError: The log was closed.
        """
        async with self._lock:
            standing = self._standing
            if standing is None or (catalog is not None and catalog != standing.catalog):
                standing = await self._begin()
            while standing.state.scanned < through:
                standing = await self._step(standing)
                self._standing = standing
            self._standing = standing
            return standing

    async def _step(self, standing: QueryStanding) -> QueryStanding:
        scanned = standing.state.scanned
        if self._log.head - scanned > _BACKLOG_MAX:
            return self._begin_again(standing)
        try:
            chunk = await self._log.read(scanned)
        except BehindHorizonError:
            return self._begin_again(standing)
        assert chunk is not None, "nobody asks for changes beyond the head"
        if has_schema_change(chunk, scanned):
            return await self._begin()
        found = scan(standing.state, standing.judge, chunk)
        self._relevant.inc(len(found.relevant))
        self._irrelevant.inc(found.judged - len(found.relevant))
        return structs.replace(standing, state=found.state)

    async def _begin(self) -> QueryStanding:
        """Analyse the query for the schema as it is, and begin at the head."""
        problem: InvalidRequestError | None = None
        dialect = self._source.dialect
        try:
            found, catalog = await self._source.consult(lambda known: dialect.analyse(self.statement, known))
        except InvalidRequestError as error:
            problem = error
            found, catalog = await self._source.consult(dialect.independent)
        judge = dialect.judge(found, self.arguments)
        state = begin(found, f"{self._epoch}:{catalog}", self._log.head)
        return QueryStanding(self.prepared.query_id, self.arguments, state, found, judge, catalog, problem)

    def _begin_again(self, standing: QueryStanding) -> QueryStanding:
        state = begin(standing.dependencies, standing.state.log_id, self._log.head)
        return structs.replace(standing, state=state)


def has_schema_change(chunk: Chunk, after: Offset) -> bool:
    """Tell whether a schema changed in the part of a chunk that follows `after`."""
    ops = chunk.batch.column("op").slice(max(0, after + 1 - chunk.first))
    return bool(pc.any(pc.equal(ops, Op.SCHEMA.value)).as_py())
