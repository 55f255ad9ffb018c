"""`tailrace pipeline run` and `work`: run pipelines until stopped.

The work is done in a thread while the main thread waits for signals: no signal interrupts it in the middle of a call.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import click
import msgspec

from tailrace.cli.access import counted
from tailrace.cli.pipeline_place import PipelinePlace, placed, spark_choice, spark_options
from tailrace.diagnostics import set_up_logging
from tailrace.meta.pipeline_status import PipelineStatus
from tailrace.model.errors import UnknownPipelineError
from tailrace.pipeline.errors import PipelineError
from tailrace.pipeline.keeper import worker_name
from tailrace.pipeline.session import SparkSessions
from tailrace.pipeline.worker import Worker, WorkerOptions

__all__ = ["Stop", "apart", "run", "work"]

_AGAIN_S_MIN = 1.0
"""Signals that come more quickly after the first are the same request: a terminal and a launcher may both send one."""

_LOOK_S = 0.2
_TELL_S = 5.0
"""From when on to say that the process is stopping."""


class Stop:
    """Notes that SIGINT or SIGTERM came; a second one ends the process at once, with 130. For the main thread."""

    def __init__(self) -> None:
        self._first_s: float | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._take)

    def requested(self) -> bool:
        """Tell whether the process is asked to end."""
        return self._first_s is not None

    @property
    def waited_s(self) -> float:
        """Return for how long it has been asked to."""
        return 0.0 if self._first_s is None else time.monotonic() - self._first_s

    def _take(self, *_: object) -> None:
        if self._first_s is None:
            self._first_s = time.monotonic()
        elif self.waited_s >= _AGAIN_S_MIN:
            os._exit(130)


def apart(work: Callable[[], None], stop: Stop) -> None:
    """Do `work` in a thread, and wait for its end; it looks itself whether it is to `stop`. Raises what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="tailrace-work", daemon=True)
    thread.start()
    announced = False
    while thread.is_alive():
        thread.join(_LOOK_S)
        if not announced and stop.waited_s >= _TELL_S:
            click.echo("stopping: waiting for work in progress; repeat the signal to exit at once", err=True)
            announced = True
    if raised:
        raise raised[0]


@click.command()
@click.argument("name")
@click.option("--once", is_flag=True, help="Exit when the sink has everything that is committed now.")
@click.option("--no-wait", is_flag=True, help="Fail instead of waiting if another worker runs the pipeline.")
@spark_options
@placed
def run(place: PipelinePlace, name: str, *, once: bool, no_wait: bool, **spark: Any) -> None:
    """Copy the tables of a pipeline, then follow their changes until stopped."""
    set_up_logging("warning", "auto")
    stop = Stop()
    choice, copy = spark_choice(**spark)
    store, watcher = place.store(), place.watcher()
    job = place.job(store, choice, copy)
    try:
        apart(lambda: job.run(name, once=once, wait=not no_wait, watcher=watcher, stopped=stop.requested), stop)
    finally:
        watcher.end()
    try:
        found = place.status(store.get(name), store)
    except UnknownPipelineError:
        place.show({"event": "removed", "name": name}, f"pipeline {name} is removed; its sink is unchanged")
        return
    place.show({"event": "ended", **msgspec.to_builtins(found)}, f"pipeline {name}: {_summary(found)}")
    if once and (stop.requested() or found.state == "paused"):
        raise PipelineError(f"pipeline {name!r} was stopped before it was done: run it again")


@click.command()
@click.option(
    "--most",
    type=click.IntRange(1, 1000),
    default=16,
    show_default=True,
    help="Maximum number of pipelines to run at a time.",
)
@click.option("--name", "owner", metavar="NAME", help="Unique name of this worker, the same after a restart.")
@spark_options
@placed
def work(place: PipelinePlace, *, most: int, owner: str | None, **spark: Any) -> None:
    """Run all pipelines that no other worker runs, including new ones, until stopped."""
    set_up_logging("info", "auto")
    stop = Stop()
    choice, copy = spark_choice(**spark)
    store, sessions = place.store(), SparkSessions(choice, place.directory)
    owner = owner or worker_name()
    runner = lambda: place.job(store, choice, copy, sessions)  # noqa: E731
    worker = Worker(store, runner, sessions, owner, place.watcher, WorkerOptions(most=most))
    place.show(
        {"event": "working", "worker": owner, "most": most}, f"worker {owner}: up to {counted(most, 'pipeline')}"
    )
    apart(lambda: worker.run(stop.requested), stop)
    place.show({"event": "ended", "worker": owner}, f"worker {owner} has ended")


def _summary(found: PipelineStatus) -> str:
    if found.stage in ("register", "snapshot"):
        return f"{found.rows_copied:,} of about {counted(found.rows, 'row')} copied"
    applied = f"{counted(found.changes, 'change')} applied, at offset {found.offset:,}"
    return f"{counted(found.rows_copied, 'row')} copied, {applied}"
