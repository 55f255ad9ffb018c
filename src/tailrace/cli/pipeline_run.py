"""`tailrace pipeline run` and `work`: what runs pipelines until it is asked to stop."""

from typing import Any

import click
import msgspec

from tailrace.cli.access import counted
from tailrace.cli.apart import Stop, apart
from tailrace.cli.pipeline_place import Place, placed, spark_choice, spark_options
from tailrace.diagnostics import set_up_logging
from tailrace.meta.pipeline_status import PipelineStatus
from tailrace.model.errors import UnknownPipelineError
from tailrace.pipeline.errors import PipelineError
from tailrace.pipeline.keeper import worker_name
from tailrace.pipeline.session import SparkSessions
from tailrace.pipeline.worker import Worker, WorkerOptions

__all__ = ["run", "work"]


@click.command()
@click.argument("name")
@click.option("--once", is_flag=True, help="Exit when the sink has everything that is committed now.")
@click.option("--no-wait", is_flag=True, help="Fail instead of waiting if another worker runs the pipeline.")
@spark_options
@placed
def run(place: Place, name: str, *, once: bool, no_wait: bool, **spark: Any) -> None:
    """Copy the tables of a pipeline, then follow their changes until stopped."""
    set_up_logging("warning", "auto")
    stop = Stop()
    choice, copy = spark_choice(**spark)
    store, watcher = place.store(), place.watcher()
    job = place.job(store, choice, copy)
    try:
        apart(lambda: job.run(name, once=once, wait=not no_wait, watcher=watcher, stopped=stop.asked), stop)
    finally:
        watcher.end()
    try:
        found = place.status(store.get(name), store)
    except UnknownPipelineError:
        place.show({"event": "removed", "name": name}, f"pipeline {name} is removed; its sink is as it was")
        return
    place.show({"event": "ended", **msgspec.to_builtins(found)}, f"pipeline {name}: {_summary(found)}")
    if once and (stop.asked() or found.state == "paused"):
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
def work(place: Place, *, most: int, owner: str | None, **spark: Any) -> None:
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
    apart(lambda: worker.run(stop.asked), stop)
    place.show({"event": "ended", "worker": owner}, f"worker {owner} has ended")


def _summary(found: PipelineStatus) -> str:
    if found.stage in ("register", "snapshot"):
        return f"{found.rows_copied:,} of about {counted(found.rows, 'row')} copied"
    applied = f"{counted(found.changes, 'change')} applied, at offset {found.offset:,}"
    return f"{counted(found.rows_copied, 'row')} copied, {applied}"
