"""One run of a pipeline: register, copy the tables, follow the log."""

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct, structs

from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.clock import Clock
from tailrace.model.errors import TailraceError
from tailrace.pipeline.batch_writer import BatchWriter
from tailrace.pipeline.copy import Copier, CopyOptions, next_number, planned
from tailrace.pipeline.definition import Definition
from tailrace.pipeline.errors import LeaseError, PipelineError, PipelineFailedError
from tailrace.pipeline.keeper import LEASE_S, LeaseKeeper
from tailrace.pipeline.record import Figures, Lease, Pipeline, RangeProgress
from tailrace.pipeline.sinks import keeps_rows
from tailrace.pipeline.spark import find_java, open_session
from tailrace.pipeline.stage import Stage
from tailrace.pipeline.store import PipelineStore
from tailrace.pipeline.stream import Follower, has_offsets
from tailrace.pipeline.verify import Verdict, Verifier
from tailrace.sink_url import Secrets

__all__ = ["Job", "SparkChoice", "Watcher", "taken", "worker_name"]

_OUTAGE_S_MAX = 600.0
_OUTAGE_ONCE_S_MAX = 60.0
"""Longest time for which a sink that cannot be reached is tried again."""

_CONFS = {
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": "-Xss4m -XX:TieredStopAtLevel=1",
}
"""The driver of a pipeline moves bytes: quick to start counts for more than what Java could still compile."""

_LOCAL_CONFS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

_NUMBER_MIN_FOREIGN = 1
"""Least number of the first batch where the tables of a sink have rows that are not ours: these stay."""

_WAIT_S = 1.0
"""How often to look whether a pipeline that another worker has is free."""


class SparkChoice(Struct, frozen=True):
    """Where Spark runs: here by default, a cluster by its master, or a Spark Connect server."""

    master: str | None = None
    remote: str | None = None
    confs: Mapping[str, str] = {}
    """Settings of Spark, over ours."""

    session: Any = None
    """A session that is there already, in place of all that; it is not stopped."""

    @property
    def distributed(self) -> bool:
        """Tell whether Spark runs elsewhere, too."""
        return self.remote is not None or not (self.master or "local").startswith("local")


class Watcher:
    """What is told of a run, for people. The base tells nobody."""

    def waiting(self, owner: str) -> None:
        """Another worker has the pipeline."""

    def starting(self, what: str) -> None:
        """Spark is being started with this Java."""

    def copied(self, rows: int, total: int) -> None:
        """So many rows of all have been copied."""

    def followed(self, figures: Figures) -> None:
        """The log is being followed."""


class Job:
    """One run of one pipeline. For one thread; run it once."""

    def __init__(
        self,
        store: PipelineStore,
        directory: Path,
        token: str | None,
        spark: SparkChoice,
        clock: Clock,
        options: CopyOptions | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        self._store = store
        self._directory = directory
        self._token = token
        self._spark = spark
        self._clock = clock
        self._options = structs.replace(options or CopyOptions(), distributed=spark.distributed)
        self._secrets = secrets
        self._session: Any = None

    def run(self, name: str, *, once: bool, wait: bool, watcher: Watcher, stopped: Callable[[], bool]) -> None:
        """Do what is to be done for a pipeline, and follow the log until `stopped`, or, with `once`, to its head.

        Raises:
            LeaseError: Another worker has the pipeline, and `wait` is false; or it was taken over.
            PipelineError: It is paused, has failed, or cannot go on.
            TailraceError: The server, the sink, the transformation or the metadata failed.
        """
        with taken(self._store, name, wait=wait, watcher=watcher, stopped=stopped) as keeper:
            if keeper is None:
                return
            try:
                self._run(name, keeper, once=once, watcher=watcher, stopped=stopped)
            except LeaseError:
                raise
            except TailraceError as error:
                figures = self._store.get(name).figures
                noted = structs.replace(figures, problem=str(error), time_us=self._clock.now_us())
                self._store.note(keeper.lease, noted)
                raise
            finally:
                self._stop_session()

    def checkpoint(self, name: str, generation: int) -> Path:
        """Return the checkpoint directory of a pipeline."""
        return self._directory / quote(name, safe="") / f"checkpoint-{generation}"

    def reset(self, name: str, watcher: Watcher, stopped: Callable[[], bool]) -> None:
        """Forget how far a pipeline is: its next run copies its tables anew.

        Raises:
            LeaseError: Another worker has it.
            TailraceError: The server, the sink or the metadata failed.
        """
        with taken(self._store, name, wait=False, watcher=watcher, stopped=stopped) as keeper:
            assert keeper is not None
            found = self._store.get(name)
            writer = self._writer(found.definition, 0, _OUTAGE_ONCE_S_MAX, keeper)
            try:
                progress = writer.sink().progress()
            finally:
                writer.close()
            self._store.reset(keeper.lease, 1 + next_number(progress, found.number_min))
            shutil.rmtree(self.checkpoint(name, found.generation), ignore_errors=True)
            self._unsubscribe(found.definition.server, found.subscription)

    def verify(self, name: str, *, repair: bool, watcher: Watcher, stopped: Callable[[], bool]) -> Verdict:
        """Compare the sink of a pipeline with its source, and mend it if wanted. No worker may have the pipeline.

        Raises:
            LeaseError: A worker has it: pause it first.
            PipelineError: Its tables have not been copied yet.
            TailraceError: The server, the sink, the transformation or the metadata failed.
        """
        with taken(self._store, name, wait=False, watcher=watcher, stopped=stopped) as keeper:
            assert keeper is not None
            if not keeps_rows(self._store.get(name).definition.sink):
                raise PipelineError(f"the sink of pipeline {name!r} keeps nothing that could be verified")
            if not _is_copied(self._store.progress(name)):
                raise PipelineError(f"the tables of pipeline {name!r} are not copied yet: run it first")
            found = self._store.get(name)
            client = BulkRowsClient(found.definition.server, self._token)
            writer = self._writer(found.definition, found.number_min, _OUTAGE_ONCE_S_MAX, keeper)
            try:
                return self._verifier(found, client, writer, watcher).run(repair=repair)
            finally:
                writer.close()
                client.close()
                self._stop_session()

    def remove(self, name: str, watcher: Watcher, stopped: Callable[[], bool]) -> None:
        """Stop a pipeline's worker and forget the pipeline. What the sink has stays.

        Raises:
            LeaseError: Its worker does not stop.
        """
        self._store.cancel(name)
        with taken(self._store, name, wait=True, watcher=watcher, stopped=stopped) as keeper:
            if keeper is None:
                return
            found = self._store.get(name)
            self._unsubscribe(found.definition.server, found.subscription)
            self._store.remove(keeper.lease)
        shutil.rmtree(self.checkpoint(name, 0).parent, ignore_errors=True)

    def session(self, watcher: Watcher) -> Any:
        """Return the Spark session, started when it is first needed."""
        if self._spark.session is not None:
            return self._spark.session
        if self._session is None:
            java = find_java(self._directory)
            watcher.starting(self._spark.remote or f"{self._spark.master or 'local[*]'}, {java}")
            ours = {} if self._spark.remote else _CONFS if self._spark.distributed else {**_CONFS, **_LOCAL_CONFS}
            confs = {**ours, **self._spark.confs}
            self._session = open_session(java, master=self._spark.master, remote=self._spark.remote, confs=confs)
        return self._session

    def _run(
        self, name: str, keeper: LeaseKeeper, *, once: bool, watcher: Watcher, stopped: Callable[[], bool]
    ) -> None:
        found = self._store.get(name)
        definition = found.definition
        if found.paused:
            raise PipelineError(f"pipeline {name!r} is paused: run `tailrace pipeline resume {name}`")
        outage_s_max = _OUTAGE_ONCE_S_MAX if once else _OUTAGE_S_MAX
        client = BulkRowsClient(definition.server, self._token)
        writer = self._writer(definition, found.number_min, outage_s_max, keeper)
        try:
            self._register(keeper.lease, client, writer)
            copier = Copier(
                definition,
                self._store,
                keeper.lease,
                writer.sink(),
                client,
                lambda: self.session(watcher),
                self._token,
                self._options,
            )
            copied = sum(one.rows_copied for one in self._store.progress(name))
            total = self._store.get(name).figures.rows
            for rows in copier.run():
                copied += rows
                watcher.copied(copied, total)
                if stopped() or not keeper.wanted:
                    return
            checkpoint = self.checkpoint(name, found.generation)
            self._sweep(self._store.get(name), checkpoint, client, writer, watcher)
            follower = Follower(
                definition,
                self._store,
                keeper,
                writer,
                client,
                self._clock,
                self._token,
                tending=self._spark.remote is None,
            )
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
            session = lambda: self.session(watcher)  # noqa: E731
            follower.run(session, checkpoint, once=once, stopped=stopped, tell=watcher.followed)
        finally:
            writer.close()
            client.close()

    def _register(self, lease: Lease, client: BulkRowsClient, writer: BatchWriter) -> None:
        """Plan the ranges of all tables, once, and subscribe."""
        found = self._store.get(lease.name)
        definition = found.definition
        ranges = self._store.progress(lease.name)
        if any(one.stage is Stage.FAILED for one in ranges):
            raise PipelineFailedError(lease.name, found.figures.problem or "see its status")
        if not ranges:
            info = client.info(definition.source, definition.tables)
            version = client.committed(definition.source, info.tables[0].table)
            plans = {
                table.table: planned(client, definition.source, table.table, self._options) for table in info.tables
            }
            figures = Figures(rows=sum(rows for _, rows in plans.values()))
            plan = {table: intervals for table, (intervals, _) in plans.items()}
            self._store.register(
                lease,
                plan,
                source=definition.source,
                version=version,
                number_min=_number_min(writer, found.number_min),
                figures=figures,
            )
            writer.number_min = self._store.get(lease.name).number_min
            ranges = self._store.progress(lease.name)
        if all(one.stage is Stage.REGISTER for one in ranges):
            subscription, _ = client.subscribe(definition.source, definition.tables, ranges[0].init_version)
            self._store.subscribed(lease, subscription)

    def _sweep(
        self, found: Pipeline, checkpoint: Path, client: BulkRowsClient, writer: BatchWriter, watcher: Watcher
    ) -> None:
        """Remove what an earlier run of the pipeline left in the sink that the source no longer has."""
        began_empty = found.generation == 0 and found.number_min <= _NUMBER_MIN_FOREIGN
        if not keeps_rows(found.definition.sink):
            return
        if not began_empty and writer.sink().progress() is not None and not has_offsets(checkpoint):
            self._verifier(found, client, writer, watcher).run(repair=True)

    def _verifier(self, found: Pipeline, client: BulkRowsClient, writer: BatchWriter, watcher: Watcher) -> Verifier:
        return Verifier(
            found.definition,
            client,
            writer.sink(),
            lambda: self.session(watcher),
            self._clock,
            self._token,
            found.number_min,
        )

    def _writer(self, definition: Definition, number_min: int, outage_s_max: float, keeper: LeaseKeeper) -> BatchWriter:
        return BatchWriter(
            definition,
            self._token,
            number_min,
            outage_s_max,
            keeper.check,
            secrets=self._secrets,
            metadata_url=self._store.url,
        )

    def _stop_session(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = None

    def _unsubscribe(self, server: str, subscription: str | None) -> None:
        """Close a subscription that is no longer wanted, if the server is there."""
        if subscription is None:
            return
        client = BulkRowsClient(server, self._token)
        try:
            with contextlib.suppress(TailraceError):
                client.call("cdc.close", {"sub_id": subscription})
        finally:
            client.close()


def _is_copied(ranges: Sequence[RangeProgress]) -> bool:
    """Tell whether all rows are in the sink."""
    return bool(ranges) and all(one.stage is Stage.INCREMENTAL_LOG for one in ranges)


def _number_min(writer: BatchWriter, least: int) -> int:
    """Return the least number of the first batch: 0 where the sink has nothing of the tables yet."""
    sink = writer.sink()
    progress = sink.progress()
    if progress is None and least == 0 and all(sink.is_empty(schema) for schema in writer.schemas()):
        return 0
    # One more than the next: a batch that only some of the tables have is never taken for another one.
    return max(least, _NUMBER_MIN_FOREIGN + next_number(progress, 0))


def worker_name() -> str:
    """Return the name under which this process owns pipelines."""
    return f"{socket.gethostname()[:100]}:{os.getpid()}:{time.time_ns():x}"


@contextlib.contextmanager
def taken(
    store: PipelineStore, name: str, *, wait: bool, watcher: Watcher, stopped: Callable[[], bool]
) -> Iterator[LeaseKeeper | None]:
    """Have a pipeline for the length of a `with` block; None where it was `stopped` while it waited.

    Raises:
        LeaseError: Another worker has it, and `wait` is false.
        UnknownPipelineError: There is none of that name.
    """
    owner = worker_name()
    told = ""
    while True:
        try:
            lease = store.acquire(name, owner, LEASE_S)
            break
        except LeaseError as error:
            if not wait:
                raise
            if error.owner != told:
                watcher.waiting(error.owner)
                told = error.owner
        if stopped():
            yield None
            return
        time.sleep(_WAIT_S)
    with LeaseKeeper(store, lease) as keeper:
        yield keeper
