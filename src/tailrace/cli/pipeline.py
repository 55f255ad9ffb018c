"""`tailrace pipeline`: copy tables of a server into a sink and keep them up to date."""

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from tailrace.cli.access import table_lines
from tailrace.cli.dead_letter import dead_letter_group
from tailrace.cli.pipeline_watch import JsonWatcher, TextWatcher
from tailrace.client.bulk import BulkClient, BulkOptions
from tailrace.client.errors import ClientError
from tailrace.clock import SystemClock
from tailrace.config import data_directory, load_config
from tailrace.envelope.envelopes import ENVELOPES
from tailrace.message.outbox import OnRefused
from tailrace.meta.dead_letter_store import DeadLetterStore
from tailrace.pipeline.copy import CopyOptions
from tailrace.pipeline.definition import Definition, check_definition, definition_of_file
from tailrace.pipeline.job import Job, SparkChoice
from tailrace.pipeline.record import Pipeline
from tailrace.pipeline.sink.base import Mode
from tailrace.pipeline.sinks import check_sink
from tailrace.pipeline.status import Status, status_of
from tailrace.pipeline.store import PipelineStore
from tailrace.sink_url import Secrets

__all__ = ["pipeline"]

_NAME = click.argument("name")
_POLICIES = [str(policy) for policy in OnRefused]


class Place(Struct, frozen=True):
    """What the options of a command say about where pipelines are kept, and how to print."""

    directory: Path
    metadata_url: str
    token: str | None
    as_json: bool
    secrets: Secrets = Secrets()

    @property
    def url(self) -> str:
        """Return the URL of the metadata database."""
        return self.metadata_url or f"sqlite:///{self.directory / 'pipelines.db'}"

    def store(self) -> PipelineStore:
        """Return the pipelines of the metadata database."""
        self.directory.mkdir(parents=True, exist_ok=True)
        return PipelineStore.open(self.url, SystemClock())

    def letters(self) -> DeadLetterStore:
        """Return the dead letters of the metadata database."""
        self.directory.mkdir(parents=True, exist_ok=True)
        return DeadLetterStore.open(self.url, SystemClock())

    def job(self, store: PipelineStore, spark: SparkChoice | None = None, copy: CopyOptions | None = None) -> Job:
        """Return what works on a pipeline."""
        return Job(store, self.directory, self.token, spark or SparkChoice(), SystemClock(), copy, self.secrets)

    def watcher(self) -> TextWatcher | JsonWatcher:
        """Return what is told of a run."""
        return JsonWatcher() if self.as_json else TextWatcher()

    def show(self, result: Any, *lines: str) -> None:
        """Print a result: as one line of JSON, or as lines for people."""
        if self.as_json:
            click.echo(msgspec.json.encode(result))
            return
        for line in lines:
            click.echo(line)


def _placed(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that lead to the pipelines; it gets them as one argument, `place`."""

    @click.option("--data-dir", metavar="DIR", help="Pipelines and checkpoints are in its directory `pipeline`.")
    @click.option("--metadata-url", help="Metadata database; by default an SQLite file in the data directory.")
    @click.option("--token", envvar="TAILRACE_TOKEN", help="The token for the server, or set TAILRACE_TOKEN.")
    @click.option("--secrets", metavar="FILE", default="", help="File with what ${NAME} in URLs of sinks stands for.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(command)
    def run(
        *,
        data_dir: str | None,
        metadata_url: str | None,
        token: str | None,
        secrets: str,
        as_json: bool,
        **options: Any,
    ) -> None:
        config = load_config(None, os.environ, {"data_dir": data_dir, "metadata_url": metadata_url})
        directory = data_directory(config) / "pipeline"
        command(place=Place(directory, config.metadata_url, token, as_json, Secrets(secrets)), **options)

    return run


@click.group()
def pipeline() -> None:
    """Copy tables into lakes, databases and files, and keep them up to date."""


@pipeline.command()
@click.argument("name", required=False)
@click.option("--file", type=click.Path(path_type=Path), help="A TOML file, in place of the other options.")
@click.option("--source", default="default", show_default=True, help="The source's name on the server.")
@click.option("--table", "tables", multiple=True, help="A table; may be repeated.")
@click.option("--sink", metavar="URL", help="Where to, e.g. delta:///lake/{table} or sqlite:///copy.db.")
@click.option("--mode", type=click.Choice([str(mode) for mode in Mode]), help="What the sink makes of the changes.")
@click.option("--transform", metavar="SQL", default="", help="Spark SQL over the view `changes`.")
@click.option(
    "--envelope",
    type=click.Choice(list(ENVELOPES)),
    default=None,
    help="How a message tells a change; our own way by default.",
)
@click.option("--filter", metavar="PREDICATE", default="", help="Which changes: SQL, or CEL behind cel:.")
@click.option("--project", multiple=True, metavar="PART", help="A column, or NAME = EXPRESSION; may be repeated.")
@click.option("--on-refused", type=click.Choice(_POLICIES), default="park", help="What if a message is refused.")
@click.option(
    "--server",
    metavar="URL",
    envvar="TAILRACE_SERVER",
    default="http://127.0.0.1:8080",
    show_default=True,
    help="The server, or set TAILRACE_SERVER.",
)
@_placed
def create(
    place: Place,
    name: str | None,
    file: Path | None,
    sink: str | None,
    mode: str | None,
    envelope: str | None,
    on_refused: str,
    **rest: Any,
) -> None:
    """Make a pipeline. It does nothing until it is run."""
    if file is not None:
        definition = definition_of_file(file)
    elif name is None or sink is None:
        raise click.UsageError("name the pipeline, its tables and its sink: NAME --table TABLE --sink URL")
    else:
        chosen = None if mode is None else Mode(mode)
        told = envelope or ""
        policy = OnRefused(on_refused)
        definition = check_definition(
            Definition(name=name, sink=sink, mode=chosen, envelope=told, on_refused=policy, **rest)
        )
    check_sink(definition.sink, definition.mode)
    store = place.store()
    store.create(definition)
    tables = ", ".join(definition.tables)
    line = f"pipeline {definition.name}: {definition.source} ({tables}) → {definition.shown_sink}"
    place.show(_status(store.get(definition.name), store, place), line)


@pipeline.command("ls")
@_placed
def list_all(place: Place) -> None:
    """List all pipelines."""
    store = place.store()
    listed = [_status(found, store, place) for found in store.all()]
    columns = ("name", "state", "stage", "sink", "offset", "lag")
    rows = [[getattr(one, column) for column in columns] for one in listed]
    place.show(listed, *table_lines(columns, rows))


@pipeline.command()
@_NAME
@_placed
def status(place: Place, name: str) -> None:
    """Show how a pipeline is."""
    store = place.store()
    found = _status(store.get(name), store, place)
    members = msgspec.to_builtins(found)
    ranges = members.pop("ranges")
    lines = table_lines(("what", ""), [[key, value] for key, value in members.items() if value not in ("", None)])[1:]
    if ranges:
        lines += ["", *table_lines(list(ranges[0]), [list(one.values()) for one in ranges])]
    place.show(found, *lines)


@pipeline.command()
@_NAME
@click.option("--once", is_flag=True, help="End when the sink has what is committed now.")
@click.option("--no-wait", is_flag=True, help="Fail where another worker has the pipeline, in place of waiting.")
@click.option("--master", metavar="URL", help="Spark master, e.g. spark://host:7077; local[*] by default.")
@click.option("--remote", metavar="URL", help="Spark Connect server, e.g. sc://host.")
@click.option("--ranges", "ranges_max", type=click.IntRange(1, 1000), default=8, help="Most ranges of a table.")
@click.option("--page-rows", type=click.IntRange(1), default=50_000, help="Rows of a range in one batch.")
@click.option("--conf", "confs", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
@_placed
def run(place: Place, name: str, *, once: bool, no_wait: bool, confs: tuple[str, ...], **rest: Any) -> None:
    """Copy the tables of a pipeline, then follow their changes, until told to stop."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    settings = dict(_setting(conf) for conf in confs)
    store, watcher = place.store(), place.watcher()
    spark = SparkChoice(rest["master"], rest["remote"], settings)
    job = place.job(store, spark, CopyOptions(rest["ranges_max"], rest["page_rows"]))
    try:
        job.run(name, once=once, wait=not no_wait, watcher=watcher, stopped=stop.is_set)
    finally:
        watcher.end()
    found = _status(store.get(name), store, place)
    place.show({"event": "ended", **msgspec.to_builtins(found)}, f"pipeline {name}: {_summary(found)}")


@pipeline.command()
@_NAME
@_placed
def pause(place: Place, name: str) -> None:
    """Pause a pipeline: its worker stops, and it cannot be run."""
    store = place.store()
    store.pause(name, paused=True)
    place.show(_status(store.get(name), store, place), f"pipeline {name} is paused")


@pipeline.command()
@_NAME
@_placed
def resume(place: Place, name: str) -> None:
    """Let a paused pipeline be run again."""
    store = place.store()
    store.pause(name, paused=False)
    place.show(_status(store.get(name), store, place), f"pipeline {name} can be run again")


@pipeline.command()
@_NAME
@_placed
def rm(place: Place, name: str) -> None:
    """Remove a pipeline and its progress. What its sink has stays."""
    store = place.store()
    place.job(store).remove(name, place.watcher(), lambda: False)
    place.show({"removed": name}, f"pipeline {name} is removed; its sink is as it was")


@pipeline.command()
@_NAME
@_placed
def reset(place: Place, name: str) -> None:
    """Forget how far a pipeline is: its next run copies its tables anew, over what the sink has."""
    store = place.store()
    place.job(store).reset(name, place.watcher(), lambda: False)
    place.show(_status(store.get(name), store, place), f"pipeline {name} copies its tables anew when it is next run")


@pipeline.command()
@_NAME
@click.option("--repair", is_flag=True, help="Copy the rows anew that differ, and remove those that are too many.")
@_placed
def verify(place: Place, name: str, *, repair: bool) -> None:
    """Compare source and sink at one offset, and name the keys that differ. Exits with 1 where some do."""
    watcher = place.watcher()
    verdict = place.job(place.store()).verify(name, repair=repair, watcher=watcher, stopped=lambda: False)
    lines = [f"{name}: {'equal' if verdict.equal else 'NOT equal'} at offset {verdict.offset:,}"]
    if verdict.repaired:
        lines.append(f"  {verdict.repaired:,} rows repaired")
    for one in verdict.tables:
        wrong = f"{one.missing:,} missing, {one.extra:,} extra, {one.differs:,} different"
        lines.append(f"  {one.table}: {one.rows:,} rows, {'equal' if one.equal else wrong}")
        lines += [f"    {fault}: {key}" for key, fault in one.keys]
    place.show(verdict, *lines)
    if not verdict.equal:
        sys.exit(1)


pipeline.add_command(dead_letter_group(_placed))


def _status(found: Pipeline, store: PipelineStore, place: Place) -> Status:
    """Return how a pipeline is, with the head of its log where the server is there."""
    client = BulkClient(found.definition.server, place.token, BulkOptions(timeout_s=2.0, outage_s_max=0.0))
    try:
        head = client.info(found.definition.source).head
    except ClientError:
        head = None
    finally:
        client.close()
    letters = place.letters()
    try:
        parked = letters.figures().get(found.definition.name)
    finally:
        letters.close()
    return status_of(found, store.progress(found.definition.name), head, 0 if parked is None else parked.letters)


def _summary(found: Status) -> str:
    if found.stage in ("register", "snapshot"):
        return f"{found.rows_copied:,} of about {found.rows:,} rows copied"
    return f"{found.rows_copied:,} rows copied, {found.changes:,} changes applied, at offset {found.offset:,}"


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"write KEY=VALUE, not {text!r}", param_hint="--conf")
    return key, value
