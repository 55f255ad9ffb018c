"""One run of a pipeline: register, copy the tables, follow the log."""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import structs

from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.client.errors import ConnectionFailed
from tailrace.clock import Clock
from tailrace.meta.pipeline import Copying, Definition, Lease, Mode, Pipeline, RangeProgress, SinkState, Stage
from tailrace.model.errors import BehindHorizonError, SinkUnavailableError, TailraceError, UnknownPipelineError
from tailrace.pipeline.alter import altered
from tailrace.pipeline.batch_writer import BatchWriter
from tailrace.pipeline.copy import Copier, CopyOptions
from tailrace.pipeline.errors import (
    LeaseError,
    PipelineError,
    PipelineFailedError,
    SinkTableGoneError,
    SparkEndedError,
    StoppedError,
)
from tailrace.pipeline.keeper import LeaseKeeper, taken
from tailrace.pipeline.registering import register, unsubscribe
from tailrace.pipeline.session import SparkChoice, SparkSessions
from tailrace.pipeline.sinks import keeps_rows, mode_of
from tailrace.pipeline.store import PipelineStore
from tailrace.pipeline.stream import Follower, RecentRate
from tailrace.pipeline.transform_function import ship
from tailrace.pipeline.verify import Verdict, Verifier
from tailrace.pipeline.watcher import Watcher
from tailrace.sink_url import Secrets

__all__ = ["Job", "SparkChoice", "Watcher"]

_OUTAGE_S_MAX = 600.0
_OUTAGE_ONCE_S_MAX = 60.0
"""Longest time for which a sink that cannot be reached is tried again."""

_OF_STOPPING = (ConnectionFailed, SinkUnavailableError, SparkEndedError, StoppedError)
"""Errors that are none to a run that is asked to end: what stops it stops others, too, and it waits for nobody."""

_RECOPIES_MAX = 3
"""How often in one run changes may be gone that the sink lacks."""


class Job:
    """One run of one pipeline. For one thread; run it once.

    Of the `sessions` of a worker it uses one of its own and leaves Spark running.
    """

    def __init__(
        self,
        store: PipelineStore,
        directory: Path,
        token: str | None,
        spark: SparkChoice,
        clock: Clock,
        options: CopyOptions | None = None,
        sessions: SparkSessions | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        self._store = store
        self._directory = directory
        self._token = token
        self._clock = clock
        self._options = structs.replace(options or CopyOptions(), distributed=spark.distributed)
        self._sessions = sessions or SparkSessions(spark, directory)
        self._shared = sessions is not None
        self._secrets = secrets
        self._session: Any = None
        self._definition: Definition | None = None
        self._stopped: Callable[[], bool] = lambda: False

    def run(
        self,
        name: str,
        *,
        once: bool,
        wait: bool,
        watcher: Watcher,
        stopped: Callable[[], bool],
        owner: str = "",
    ) -> None:
        """Do what is to be done for a pipeline, and follow the log until `stopped`, or, with `once`, to its head.

        It ends, too, when someone pauses the pipeline; when someone removes it, it is removed. With another
        definition it goes on.

        Raises:
            LeaseError: Another worker has the pipeline, and `wait` is false; or it was taken over.
            PipelineError: It is paused, has failed, or cannot go on.
            TailraceError: The server, the sink, the transformation or the metadata failed.
        """
        self._stopped = stopped
        with taken(self._store, name, wait=wait, watcher=watcher, stopped=stopped, owner=owner) as keeper:
            if keeper is None:
                return
            try:
                self._run(name, keeper, once=once, watcher=watcher, stopped=stopped)
                while keeper.altered and not stopped():
                    self._run(name, keeper, once=once, watcher=watcher, stopped=stopped)
            except LeaseError:
                raise
            except TailraceError as error:
                keeper.check()  # a sink that another worker has moved on refuses this one for reasons that mislead
                if not isinstance(error, StoppedError):
                    self._note(keeper.lease, str(error))
                if not (stopped() and isinstance(error, _OF_STOPPING)):
                    raise
            except Exception as error:
                self._note(keeper.lease, f"it failed: {type(error).__name__}")
                raise
            finally:
                self._stop_session()
            if self._store.get(name).cancelled:
                self._forget(keeper.lease)

    def reset(self, name: str, watcher: Watcher, stopped: Callable[[], bool]) -> None:
        """Forget how far a pipeline is: its next run copies its tables again. Tables that its sink has lost are, too.

        Raises:
            LeaseError: Another worker has it.
            TailraceError: The server, the sink or the metadata failed.
        """
        with taken(self._store, name, wait=False, watcher=watcher, stopped=stopped) as keeper:
            assert keeper is not None
            found = self._store.get(name)
            writer = self._writer(found.definition, _OUTAGE_ONCE_S_MAX, keeper.check, watcher)
            try:
                writer.renew(found.definition.tables)
            finally:
                writer.close()
                self._stop_session()
            self._store.reset(keeper.lease)
            unsubscribe(found.definition.server, self._token, found.subscription)

    def copy_again(self, name: str, tables: Sequence[str], watcher: Watcher) -> None:
        """Have some tables of a pipeline copied again by its next run; those that its sink has lost are made again.

        Raises:
            LeaseError: A worker has it: pause it first.
            PipelineError: It has no such table.
            SinkTableGoneError: The sink has lost another one, too: name all of them.
            TailraceError: The server, the sink or the metadata failed.
        """
        definition = self._store.get(name).definition
        for table in tables:
            if table not in definition.tables:
                raise PipelineError(f"pipeline {name!r} has no table {table}: it has {', '.join(definition.tables)}")
        if set(tables) == set(definition.tables):
            self.reset(name, watcher, lambda: False)
            return
        with taken(self._store, name, wait=False, watcher=watcher, stopped=lambda: False) as keeper:
            assert keeper is not None
            writer = self._writer(definition, _OUTAGE_ONCE_S_MAX, keeper.check, watcher)
            try:
                writer.renew(tables)
            finally:
                writer.close()
                self._stop_session()
            self._store.drop_tables(keeper.lease, tables)

    def alter(self, name: str, given: Mapping[str, Any], watcher: Watcher) -> None:
        """Give a pipeline what may be altered only before anything of it is copied; see `altered`.

        Raises:
            LeaseError: A worker has it: pause it first.
            PipelineError: Something is copied: reset it first.
        """
        with taken(self._store, name, wait=False, watcher=watcher, stopped=lambda: False):
            definition, begun = self._store.get(name).definition, bool(self._store.progress(name))
            self._store.alter(altered(definition, begun=begun, **given))

    def verify(self, name: str, *, repair: bool, watcher: Watcher, stopped: Callable[[], bool]) -> Verdict:
        """Compare the sink of a pipeline with its source, also while a worker has it; fix it if wanted and nobody has.

        Raises:
            LeaseError: It is to be repaired, and a worker has it: pause it first.
            PipelineError: Its tables have not been copied yet.
            TailraceError: The server, the sink, the transformation or the metadata failed.
        """
        if not repair:
            return self._verify(name, None, watcher)
        with taken(self._store, name, wait=False, watcher=watcher, stopped=stopped) as keeper:
            assert keeper is not None
            return self._verify(name, keeper, watcher)

    def remove(self, name: str, watcher: Watcher, stopped: Callable[[], bool]) -> None:
        """Stop a pipeline's worker and forget the pipeline. What the sink has stays.

        Raises:
            UnknownPipelineError: There is none of that name.
        """
        self._store.cancel(name)
        having = taken(self._store, name, wait=True, watcher=watcher, stopped=stopped)
        with contextlib.suppress(UnknownPipelineError), having as keeper:  # unknown: its worker has removed it
            if keeper is not None:
                self._forget(keeper.lease)

    def session(self, watcher: Watcher) -> Any:
        """Return the Spark session, started when it is first needed."""
        if self._session is None:
            start = self._sessions.separate if self._shared else self._sessions.shared
            self._session = start(watcher, self._stopped)
            if self._definition is not None:
                ship(self._session, self._definition)
        return self._session

    def _run(
        self, name: str, keeper: LeaseKeeper, *, once: bool, watcher: Watcher, stopped: Callable[[], bool]
    ) -> None:
        found = self._store.get(name)
        keeper.begin(found)
        definition = found.definition
        if found.cancelled:
            return
        if found.paused:
            raise PipelineError(f"pipeline {name!r} is paused: run `tailrace pipeline resume {name}`")
        outage_s_max = _OUTAGE_ONCE_S_MAX if once else _OUTAGE_S_MAX
        client = BulkRowsClient(definition.server, self._token)

        def away(problem: str) -> None:
            self._note(keeper.lease, problem)
            if problem:
                watcher.away(problem)

        wanted = lambda: keeper.wanted and not stopped()  # noqa: E731
        writer = self._writer(definition, outage_s_max, keeper.check, watcher, wanted, away)
        try:
            register(self._store, keeper.lease, client, writer, self._options)
            if not self._copy(keeper, client, writer, watcher, stopped):
                return
            for _ in range(_RECOPIES_MAX):
                follower = Follower(
                    definition,
                    self._store,
                    keeper,
                    writer,
                    client,
                    self._clock,
                    self._token,
                    self._sessions.turns,
                    remote=self._sessions.choice.remote is not None,
                )
                session = lambda: self.session(watcher)  # noqa: E731
                try:
                    follower.place()
                    self._sweep(keeper.lease, client, writer, watcher)
                    with self._queries(name) as directory:
                        follower.run(session, directory, once=once, stopped=stopped, tell=watcher.followed)
                    return
                except BehindHorizonError as error:
                    self._rebase(keeper.lease, client, writer, error)
            raise PipelineError("retention removes changes faster than they can be copied: let the server keep more")
        finally:
            writer.close()
            client.close()

    def _copy(
        self,
        keeper: LeaseKeeper,
        client: BulkRowsClient,
        writer: BatchWriter,
        watcher: Watcher,
        stopped: Callable[[], bool],
    ) -> bool:
        """Copy what is left of the tables; return whether it is to go on with the log."""
        name = keeper.lease.name
        found = self._store.get(name)
        copier = Copier(
            found.definition,
            self._store,
            keeper.lease,
            writer.sink(),
            client,
            lambda: self.session(watcher),
            self._token,
            self._options,
        )

        def batches() -> Iterator[int]:
            yield from copier.resume()  # first: its number must not go to what is compared
            self._compare_added(keeper.lease, client, writer, watcher)
            yield from copier.run()

        filled = [one for one in self._store.progress(name) if one.rows_copied]
        copied = sum(one.rows_copied for one in filled)
        # Before a table that was added is copied: with its rows the sink would have progress, and nobody would notice
        # that those of the others are gone.
        if writer.sink().progress() is None and writer.is_lost(copied):
            raise SinkTableGoneError(filled[0].table)
        rate = RecentRate()
        rate.at(time.monotonic(), copied)
        for rows in batches():
            copied += rows
            rows_per_s = round(rate.at(time.monotonic(), copied), 1)
            self._note(keeper.lease, "", rows_per_s=rows_per_s)
            watcher.copied(copied, max(copied, found.figures.rows), rows_per_s)
            if stopped() or not keeper.wanted:
                return False
        return True

    def _compare_added(self, lease: Lease, client: BulkRowsClient, writer: BatchWriter, watcher: Watcher) -> None:
        """Compare tables that are to be copied, and of which the sink has rows, in place of copying them.

        These are rows of an earlier copy: those that the source no longer has must go, and the others may be equal.
        """
        found, ranges = self._store.get(lease.name), self._store.progress(lease.name)
        following = any(one.stage is Stage.INCREMENTAL_LOG for one in ranges)
        sink = writer.sink()
        if not following or _mode(found) is Mode.APPEND or sink.progress() is None:
            return
        for schema in writer.schemas():
            name = schema.table.wire
            mine = [one for one in ranges if one.table == name and one.stage is Stage.SNAPSHOT]
            if not mine or any(one.rows_copied or one.last_key for one in mine) or sink.is_empty(schema):
                continue
            watcher.comparing(f"the sink has rows of table {name}")
            alone = structs.replace(found, definition=structs.replace(found.definition, tables=(name,)))
            self._verifier(alone, client, writer, watcher).run(repair=True)
            intervals = {one.range_id: one.left for one in mine}
            ended = Copying(0, name, intervals, tuple(intervals))
            self._store.finish_copy(lease, ended, version=mine[0].init_version, rows={})

    def _sweep(self, lease: Lease, client: BulkRowsClient, writer: BatchWriter, watcher: Watcher) -> None:
        """Fix what differs in a stale sink before the log is followed.

        That is what an earlier run of the pipeline left, or what it missed because retention was quicker.
        """
        found = self._store.get(lease.name)
        if found.sink_state is not SinkState.STALE:
            return
        sink = writer.sink()
        progress = sink.progress()
        has_rows = _mode(found) is not Mode.APPEND or progress is not None
        if has_rows and all(map(sink.is_readable, writer.schemas())):
            watcher.comparing("what the sink has may differ from the source")
            self._verifier(found, client, writer, watcher).run(repair=True)
        init = max(one.init_version for one in self._store.progress(lease.name))
        if progress is not None and progress.offsets.get(found.definition.source, 0) < init:
            writer.note(init)
        self._store.compared(lease)

    def _rebase(self, lease: Lease, client: BulkRowsClient, writer: BatchWriter, error: BehindHorizonError) -> None:
        """Begin again at the head: what the sink lacks of the changes that are gone is then found by comparing.

        Raises:
            PipelineFailedError: The sink keeps changes, which are gone, or nothing that could be compared.
        """
        found = self._store.get(lease.name)
        definition = found.definition
        sink = writer.sink()
        if _mode(found) is Mode.APPEND or not all(map(sink.is_readable, writer.schemas())):
            figures = structs.replace(found.figures, problem=str(error), time_us=self._clock.now_us())
            self._store.fail(lease, figures)
            raise PipelineFailedError(lease.name, str(error)) from error
        version = client.committed(definition.source, definition.tables[0])
        subscription, _ = client.subscribe(definition.source, definition.tables, version)
        self._store.rebase(lease, version=version, subscription=subscription)
        unsubscribe(definition.server, self._token, found.subscription)

    def _verify(self, name: str, keeper: LeaseKeeper | None, watcher: Watcher) -> Verdict:
        """Compare, and fix where this worker has the pipeline."""
        if not keeps_rows(self._store.get(name).definition.sink):
            raise PipelineError(f"the sink of pipeline {name!r} stores nothing that can be verified")
        if not _is_copied(self._store.progress(name)):
            raise PipelineError(f"the tables of pipeline {name!r} are not copied yet: run it first")
        found = self._store.get(name)
        client = BulkRowsClient(found.definition.server, self._token)
        proceed = None if keeper is None else keeper.check
        writer = self._writer(found.definition, _OUTAGE_ONCE_S_MAX, proceed, watcher)
        try:
            verdict = self._verifier(found, client, writer, watcher).run(repair=keeper is not None)
        finally:
            writer.close()
            client.close()
            self._stop_session()
        if self._store.get(name).generation != found.generation:
            raise PipelineError(
                f"pipeline {name!r} started over meanwhile: verify it again when it has copied its tables"
            )
        return verdict

    def _verifier(self, found: Pipeline, client: BulkRowsClient, writer: BatchWriter, watcher: Watcher) -> Verifier:
        return Verifier(
            found.definition,
            client,
            writer.sink(),
            lambda: self.session(watcher),
            self._clock,
            self._token,
            min(one.last_log_index for one in self._store.progress(found.definition.name)),
        )

    def _note(self, lease: Lease, problem: str, rows_per_s: float = 0.0) -> None:
        """Keep why a run ended, or how quickly it copies, if it can be kept."""
        with contextlib.suppress(TailraceError):
            figures = structs.replace(self._store.get(lease.name).figures, problem=problem, rows_per_s=rows_per_s)
            self._store.note(lease, structs.replace(figures, time_us=self._clock.now_us()))

    def _forget(self, lease: Lease) -> None:
        """Remove a pipeline and its subscription."""
        found = self._store.get(lease.name)
        unsubscribe(found.definition.server, self._token, found.subscription)
        self._store.remove(lease)

    @contextlib.contextmanager
    def _queries(self, name: str) -> Iterator[Path]:
        """Give a directory for what Spark keeps of the queries of one run, which means nothing after it.

        What is there of a run that was killed, or of an older version, is removed.
        """
        directory = self._directory / quote(name, safe="")
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True, exist_ok=True)
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _writer(
        self,
        definition: Definition,
        outage_s_max: float,
        proceed: Callable[[], None] | None,
        watcher: Watcher,
        wanted: Callable[[], bool] | None = None,
        away: Callable[[str], None] | None = None,
    ) -> BatchWriter:
        self._definition = definition
        return BatchWriter(
            definition,
            self._token,
            outage_s_max,
            proceed,
            lambda: self.session(watcher),
            distributed=self._options.distributed,
            secrets=self._secrets,
            metadata_url=self._store.url,
            wanted=wanted,
            away=away,
        )

    def _stop_session(self) -> None:
        self._session = None
        if not self._shared:
            self._sessions.stop()


def _is_copied(ranges: Sequence[RangeProgress]) -> bool:
    """Tell whether all rows are in the sink."""
    return bool(ranges) and all(one.stage is Stage.INCREMENTAL_LOG for one in ranges)


def _mode(found: Pipeline) -> Mode:
    """Return what the sink makes of the changes."""
    return mode_of(found.definition.sink, found.definition.mode)
