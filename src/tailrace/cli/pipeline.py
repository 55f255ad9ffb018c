"""`tailrace pipeline`: copy tables of a server into a sink and keep them up to date."""

import sys
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource
from msgspec import structs

from tailrace.cli.access import counted, member_lines, server_option, table_lines
from tailrace.cli.dead_letter import dead_letter_group
from tailrace.cli.help import Group
from tailrace.cli.pipeline_place import PipelinePlace, placed, session_choice, session_options
from tailrace.cli.pipeline_run import run, work
from tailrace.client.bulk import BulkClient
from tailrace.envelope.envelopes import ENVELOPES
from tailrace.meta.dead_letter import OnRefused
from tailrace.meta.pipeline import Definition, Mode, OnDrop
from tailrace.model.errors import ConfigError
from tailrace.model.table import TableSchema
from tailrace.pipeline.alter import altered, check_place, is_elsewhere
from tailrace.pipeline.definition import check_definition, definition_of_file
from tailrace.pipeline.sinks import check_sink, mode_of
from tailrace.sink_url import parse

__all__ = ["emit", "pipeline"]

_NAME = click.argument("name")
_POLICIES = [str(policy) for policy in OnRefused]
_DROPS = [str(policy) for policy in OnDrop]


@click.group(cls=Group)
def pipeline() -> None:
    """Copy tables into lakes, databases and files, and keep them up to date."""


@pipeline.command()
@click.argument("name", required=False)
@click.option("--file", type=click.Path(path_type=Path), help="A TOML file, in place of the other options.")
@click.option("--source", default="default", show_default=True, help="The source's name on the server.")
@click.option("--table", "tables", multiple=True, help="A table; may be repeated.")
@click.option("--sink", metavar="URL", help="URL of the sink, e.g. delta:///lake/{table} or sqlite:///copy.db.")
@click.option("--mode", type=click.Choice([str(mode) for mode in Mode]), help="How the sink stores changes.")
@click.option("--transform", metavar="SQL", default="", help="Spark SQL over the view `changes`.")
@click.option(
    "--envelope",
    type=click.Choice(list(ENVELOPES)),
    default=None,
    help="Message format; Tailrace's own by default.",
)
@click.option("--filter", metavar="PREDICATE", default="", help="Filter of changes: SQL, or CEL with the prefix cel:.")
@click.option("--project", multiple=True, metavar="PART", help="A column, or NAME = EXPRESSION; may be repeated.")
@click.option(
    "--on-refused", type=click.Choice(_POLICIES), default="park", help="What to do when a message is rejected."
)
@click.option(
    "--on-drop", type=click.Choice(_DROPS), default="mirror", help="What to do when a table is dropped in the source."
)
@server_option
@placed
def create(
    place: PipelinePlace,
    name: str | None,
    file: Path | None,
    sink: str | None,
    mode: str | None,
    envelope: str | None,
    on_refused: str,
    on_drop: str,
    **rest: Any,
) -> None:
    """Create a pipeline. It does nothing until it is run."""
    if file is not None:
        _refuse_beside_file()
        definition = definition_of_file(file, source=rest["source"], server=rest["server"])
    elif name is None or sink is None:
        raise click.UsageError("name the pipeline, its tables and its sink: NAME --table TABLE --sink URL")
    else:
        chosen = None if mode is None else Mode(mode)
        envelope_name = envelope or ""
        rest |= {"on_refused": OnRefused(on_refused), "on_drop": OnDrop(on_drop)}
        definition = check_definition(Definition(name=name, sink=sink, mode=chosen, envelope=envelope_name, **rest))
    check_sink(definition.sink, definition.mode, definition.tables)
    definition = structs.replace(definition, mode=mode_of(definition.sink, definition.mode))
    store = place.store()
    store.create(definition)
    if missing := place.missing(definition):
        click.echo(f"warning: {missing}: the pipeline can run when the server has it", err=True)
    tables = ", ".join(definition.tables)
    line = f"pipeline {definition.name}: {definition.source} ({tables}) → {parse(definition.sink)}"
    place.show(place.status(store.get(definition.name), store), line)


def _refuse_beside_file() -> None:
    """Refuse options beside a file: what they say would count for nothing."""
    source = click.get_current_context().get_parameter_source
    for name in Definition.__struct_fields__:
        if source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--file is the whole definition: write {name} into it")


@pipeline.command()
@placed
def prepare(place: PipelinePlace) -> None:
    """Let Spark start faster on this machine: make an archive of its classes, once for each Java and PySpark."""
    from tailrace.pipeline.class_archive import make_archive
    from tailrace.pipeline.spark import find_java

    java = find_java(place.directory)
    click.echo(f"making an archive of Spark's classes for {java}; this takes a minute", err=True)
    path = make_archive(java)
    place.show({"archive": str(path), "bytes": path.stat().st_size}, f"Spark starts with {path}")


@pipeline.command("ls")
@placed
def list_all(place: PipelinePlace) -> None:
    """List all pipelines."""
    store = place.store()
    listed = [place.status(found, store) for found in store.all()]
    columns = ("name", "state", "stage", "sink", "offset", "lag")
    rows = [[getattr(one, column) for column in columns] for one in listed]
    place.show(listed, *table_lines(columns, rows))


@pipeline.command()
@_NAME
@placed
def status(place: PipelinePlace, name: str) -> None:
    """Show a pipeline's status."""
    store = place.store()
    found = place.status(store.get(name), store)
    members = msgspec.to_builtins(found)
    ranges = members.pop("ranges")
    lines = member_lines(members)
    if ranges:
        lines += ["", *table_lines(list(ranges[0]), [list(one.values()) for one in ranges])]
    place.show(found, *lines)


@pipeline.command()
@_NAME
@click.option("--server", metavar="URL", help="New address of the server.")
@click.option("--sink", metavar="URL", help="The same sink with a new host, port, user or password.")
@click.option("--transform", metavar="SQL", help="New transformation; only before anything is copied.")
@click.option("--on-drop", type=click.Choice(_DROPS), help="What to do when a table is dropped in the source.")
@placed
def alter(place: PipelinePlace, name: str, on_drop: str | None, **given: str | None) -> None:
    """Change how a pipeline reaches its server and its sink, and its policies, even while it runs."""
    store = place.store()
    definition = store.get(name).definition
    begun = bool(store.progress(name))
    policy = None if on_drop is None else OnDrop(on_drop)
    changed = altered(definition, **given, on_drop=policy, begun=begun)
    if begun and is_elsewhere(definition, changed):
        check_place(changed)
    if changed.transform == definition.transform:
        store.alter(changed)
    else:  # nobody may begin with the old one meanwhile
        place.job(store).alter(changed, place.watcher())
    place.show(place.status(store.get(name), store), f"pipeline {name} is altered")


@pipeline.command()
@_NAME
@placed
def pause(place: PipelinePlace, name: str) -> None:
    """Pause a pipeline: its worker stops, and it cannot be run."""
    store = place.store()
    store.pause(name, paused=True)
    place.show(place.status(store.get(name), store), f"pipeline {name} is paused")


@pipeline.command()
@_NAME
@placed
def resume(place: PipelinePlace, name: str) -> None:
    """Resume a paused pipeline."""
    store = place.store()
    store.pause(name, paused=False)
    place.show(place.status(store.get(name), store), f"pipeline {name} can be run again")


@pipeline.command()
@_NAME
@placed
def rm(place: PipelinePlace, name: str) -> None:
    """Remove a pipeline and its progress. Data in the sink stays."""
    store = place.store()
    place.job(store).remove(name, place.watcher(), lambda: False)
    place.show({"removed": name}, f"pipeline {name} is removed; its sink is unchanged")


@pipeline.command()
@_NAME
@session_options
@placed
def reset(place: PipelinePlace, name: str, **spark: Any) -> None:
    """Reset a pipeline's progress: its next run copies its tables again, over the data in the sink."""
    store = place.store()
    place.job(store, session_choice(**spark)).reset(name, place.watcher(), lambda: False)
    place.show(place.status(store.get(name), store), f"pipeline {name} copies its tables again on its next run")


@pipeline.command()
@_NAME
@click.option("--repair", is_flag=True, help="Copy the rows that differ again, and remove extra rows.")
@session_options
@placed
def verify(place: PipelinePlace, name: str, *, repair: bool, **spark: Any) -> None:
    """Compare source and sink at one offset and list the keys that differ. Exits with 1 if any do."""
    watcher = place.watcher()
    job = place.job(place.store(), session_choice(**spark))
    verdict = job.verify(name, repair=repair, watcher=watcher, stopped=lambda: False)
    lines = [f"{name}: {'equal' if verdict.equal else 'NOT equal'} at offset {verdict.offset:,}"]
    if verdict.repaired:
        lines.append(f"  {counted(verdict.repaired, 'row')} repaired")
    for one in verdict.tables:
        wrong = f"{one.missing:,} missing, {one.extra:,} extra, {one.differs:,} different, {one.twice:,} twice"
        lines.append(f"  {one.table}: {counted(one.rows, 'row')}, {'equal' if one.equal else wrong}")
        lines += [f"    {fault}: {key}" for key, fault in one.keys]
    place.show(verdict, *lines)
    if not verdict.equal:
        sys.exit(1)


@pipeline.command()
@_NAME
@click.option("--to", "directory", metavar="DIR", required=True, type=Path, help="A new or empty directory.")
@click.option("--storage", metavar="URL", help="Where Spark keeps checkpoints; DIR/storage by default.")
@click.option("--start", default="earliest", show_default=True, help="Where in the log a new run begins.")
@placed
def emit(place: PipelinePlace, name: str, directory: Path, storage: str | None, start: str) -> None:
    """Write a Spark Declarative Pipelines project: the tables' changes, and AUTO CDC into tables."""
    from tailrace.pipeline.emit import project  # needs the extra `spark`

    definition = place.store().get(name).definition
    directory = directory.absolute()
    if directory.exists() and any(directory.iterdir()):
        raise ConfigError(f"{directory} is not empty: name a new directory")
    client = BulkClient(definition.server, place.token)
    try:
        versions = client.info(definition.source, definition.tables).schemas()
    finally:
        client.close()
    newest: dict[str, TableSchema] = {}
    for _, schema in sorted(versions.items()):
        newest[schema.table.wire] = schema
    mode = mode_of(definition.sink, definition.mode)
    where = storage or f"file://{directory}/storage"
    files = project(definition, mode, list(newest.values()), storage=where, start=start)
    for path, text in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    listed = [str(directory / path) for path in files]
    place.show({"files": listed}, *listed, f"run it with: spark-pipelines run --spec {listed[0]}")


pipeline.add_command(run)
pipeline.add_command(work)
pipeline.add_command(dead_letter_group(placed))
