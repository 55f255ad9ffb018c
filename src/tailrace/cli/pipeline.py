"""`tailrace pipeline`: copy tables of a server into a sink and keep them up to date."""

import functools
import sys
from collections.abc import Callable, Sequence
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
from tailrace.cli.units import DURATION, SIZE
from tailrace.client.bulk import BulkClient
from tailrace.envelope.envelopes import ENVELOPES
from tailrace.meta.dead_letter import OnRefused
from tailrace.meta.pipeline import Definition, Mode, OnDrop
from tailrace.model.errors import ConfigError
from tailrace.pipeline.alter import altered, check_place, is_elsewhere, is_fixed
from tailrace.pipeline.declared import split_name
from tailrace.pipeline.definition import check_definition, definition_of_file
from tailrace.pipeline.sink.upkeep import UpkeepOptions
from tailrace.pipeline.sinks import check_sink, mode_of
from tailrace.sink_url import parse

__all__ = ["emit", "pipeline"]

_NAME = click.argument("name")
_PY_FILES = click.option(
    "--py-files", multiple=True, metavar="FILE", help="A .py or .zip file that the function needs; may be repeated."
)
_TYPES = click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TABLE.COLUMN=TYPE",
    help="Type of a column, e.g. orders.total=decimal(12,2); may be repeated.",
)
_OPERATION = (
    click.option(
        "--trigger", "trigger_s", type=DURATION, help="How often a batch begins, e.g. 10s; at once by default."
    ),
    click.option("--batch-changes", type=click.IntRange(1), help="Most changes in one batch."),
    click.option("--batch-bytes", type=SIZE, help="About how much of the log one batch has at most, e.g. 64MB."),
    click.option(
        "--maintain-every",
        "maintain_every_s",
        type=DURATION,
        help="How often a lake is maintained, e.g. 1d; never (0s) by default.",
    ),
    click.option(
        "--partition-by",
        multiple=True,
        metavar="TABLE.COLUMN",
        help="Partition column of a new Delta table; may be repeated.",
    ),
    click.option(
        "--property",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        help="Property of new Delta tables; may be repeated.",
    ),
)
_NO_CHECK = click.option("--no-check", is_flag=True, help="Do not start Spark to check the transformation.")
_RETENTION_S_MIN = 3600.0
_POLICIES = [str(policy) for policy in OnRefused]
_DROPS = [str(policy) for policy in OnDrop]


@click.group(cls=Group)
def pipeline() -> None:
    """Copy tables into lakes, databases and files, and keep them up to date."""


def _operated(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say how a pipeline is operated; it gets those that are given as `operation`."""

    @functools.wraps(command)
    def run(**options: Any) -> None:
        names = ("trigger_s", "batch_changes", "batch_bytes", "maintain_every_s", "partition_by", "properties")
        given = {name: options.pop(name) for name in names}
        chosen = {name: value for name, value in given.items() if value not in (None, ())}
        if "batch_bytes" in chosen:
            chosen["batch_bytes"] = int(chosen["batch_bytes"])
        if "properties" in chosen:
            chosen["properties"] = dict(_pair(text, "--property", "KEY=VALUE") for text in chosen["properties"])
        command(operation=chosen, **options)

    for option in reversed(_OPERATION):
        run = option(run)
    return run


@pipeline.command()
@click.argument("name", required=False)
@click.option("--file", type=click.Path(path_type=Path), help="A TOML file, in place of the other options.")
@click.option("--source", default="default", show_default=True, help="The source's name on the server.")
@click.option("--table", "tables", multiple=True, help="A table; may be repeated.")
@click.option("--sink", metavar="URL", help="URL of the sink, e.g. delta:///lake/{table} or sqlite:///copy.db.")
@click.option("--mode", type=click.Choice([str(mode) for mode in Mode]), help="How the sink stores changes.")
@click.option("--transform", metavar="SQL", default="", help="Spark SQL over the view `changes`.")
@click.option(
    "--transform-function",
    metavar="MODULE:FUNCTION",
    default="",
    help="Python function that takes a DataFrame of changes and returns one.",
)
@_PY_FILES
@_TYPES
@_NO_CHECK
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
@_operated
@session_options
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
    py_files: tuple[str, ...],
    types: tuple[str, ...],
    operation: dict[str, Any],
    *,
    no_check: bool,
    master: str | None,
    remote: str | None,
    confs: tuple[str, ...],
    spark_log: str,
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
        rest |= {"py_files": _absolute(py_files), "types": dict(map(_typed, types)), **operation}
        definition = check_definition(Definition(name=name, sink=sink, mode=chosen, envelope=envelope_name, **rest))
    check_sink(definition.sink, definition.mode, definition.tables)
    definition = structs.replace(definition, mode=mode_of(definition.sink, definition.mode))
    store = place.store()
    missing = place.missing(definition)
    if missing:
        click.echo(f"warning: {missing}: the pipeline can run when the server has it", err=True)
    elif not no_check:
        place.check(definition, session_choice(master, remote, confs, spark_log))
    store.create(definition)
    tables = ", ".join(definition.tables)
    line = f"pipeline {definition.name}: {definition.source} ({tables}) → {parse(definition.sink)}"
    place.show(place.status(store.get(definition.name), store), line)


def _absolute(files: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(Path(file).absolute()) for file in files)


def _typed(text: str) -> tuple[str, str]:
    return _pair(text, "--type", "TABLE.COLUMN=TYPE")


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"write {form}, not {text!r}", param_hint=option)
    return name, value.strip()


def _changed_tables(tables: Sequence[str], added: Sequence[str], removed: Sequence[str]) -> tuple[str, ...]:
    for table in removed:
        if table not in tables:
            raise click.BadParameter(f"the pipeline has no table {table}", param_hint="--remove-table")
    return (*(one for one in tables if one not in removed), *added)


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
@click.option(
    "--transform-function", metavar="MODULE:FUNCTION", help="New transformation; only before anything is copied."
)
@_PY_FILES
@_TYPES
@_NO_CHECK
@click.option("--on-drop", type=click.Choice(_DROPS), help="What to do when a table is dropped in the source.")
@click.option("--add-table", multiple=True, metavar="TABLE", help="A further table; may be repeated.")
@click.option("--remove-table", multiple=True, metavar="TABLE", help="A table to let go; may be repeated.")
@_operated
@session_options
@placed
def alter(
    place: PipelinePlace,
    name: str,
    on_drop: str | None,
    add_table: tuple[str, ...],
    remove_table: tuple[str, ...],
    py_files: tuple[str, ...],
    types: tuple[str, ...],
    operation: dict[str, Any],
    *,
    no_check: bool,
    master: str | None,
    remote: str | None,
    confs: tuple[str, ...],
    spark_log: str,
    **given: Any,
) -> None:
    """Change how a pipeline reaches its server and its sink, and its policies, even while it runs."""
    store = place.store()
    definition = store.get(name).definition
    begun = bool(store.progress(name))
    given |= {"on_drop": None if on_drop is None else OnDrop(on_drop), "py_files": _absolute(py_files) or None}
    given |= operation
    if add_table or remove_table:
        given["tables"] = _changed_tables(definition.tables, add_table, remove_table)
    if types:
        merged = {**definition.types, **dict(map(_typed, types))}
        given["types"] = {name: type_ for name, type_ in merged.items() if type_}
    changed = altered(definition, begun=begun, **given)
    if add_table and (missing := place.missing(changed)):  # the other tables would wait for it
        raise ConfigError(f"{missing}: add the table when the server has it")
    if begun and is_elsewhere(definition, changed):
        check_place(changed)
    if not is_fixed(definition, changed):
        store.alter(changed)
    else:  # nobody may begin with the old one meanwhile
        if not no_check:
            place.check(changed, session_choice(master, remote, confs, spark_log))
        place.job(store).alter(name, given, place.watcher())
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
@click.option("--table", "tables", multiple=True, required=True, help="A table; may be repeated.")
@session_options
@placed
def copy(place: PipelinePlace, name: str, tables: tuple[str, ...], **spark: Any) -> None:
    """Have some tables copied again by the next run, while the others go on where they are."""
    store = place.store()
    place.job(store, session_choice(**spark)).copy_again(name, tables, place.watcher())
    listed = ", ".join(tables)
    place.show(place.status(store.get(name), store), f"pipeline {name} copies {listed} again on its next run")


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
@click.option("--target-size", type=SIZE, default="128MB", show_default=True, help="Size that files are to have.")
@click.option(
    "--retention",
    type=DURATION,
    default="7d",
    show_default=True,
    help="For how long files and snapshots that are no longer used stay.",
)
@click.option("--z-order", multiple=True, metavar="TABLE.COLUMN", help="Column to order rows by; may be repeated.")
@placed
def maintain(place: PipelinePlace, name: str, target_size: float, retention: float, z_order: tuple[str, ...]) -> None:
    """Maintain the tables of a lake: put small files together, and remove what is no longer used."""
    from tailrace.pipeline.maintenance import maintain as maintained

    definition = place.store().get(name).definition
    if retention < _RETENTION_S_MIN:
        raise click.BadParameter("it is 1h or more: who reads needs the files", param_hint="--retention")
    for one in z_order:
        if split_name(one, definition.tables) is None:
            raise click.BadParameter(
                f"write TABLE.COLUMN with a table of the pipeline, not {one!r}", param_hint="--z-order"
            )
    client = BulkClient(definition.server, place.token)
    try:
        schemas = client.info(definition.source, definition.tables).newest()
    finally:
        client.close()
    done = maintained(definition, schemas, UpkeepOptions(int(target_size), retention, z_order), place.secrets)
    rows = [[one.table, one.files_before, one.files, one.removed, one.skipped] for one in done]
    place.show({"name": name, "tables": done}, *table_lines(("table", "before", "files", "removed", "skipped"), rows))


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
        newest = client.info(definition.source, definition.tables).newest()
    finally:
        client.close()
    mode = mode_of(definition.sink, definition.mode)
    where = storage or f"file://{directory}/storage"
    files = project(definition, mode, newest, storage=where, start=start)
    for path, text in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    listed = [str(directory / path) for path in files]
    place.show({"files": listed}, *listed, f"run it with: spark-pipelines run --spec {listed[0]}")


pipeline.add_command(run)
pipeline.add_command(work)
pipeline.add_command(dead_letter_group(placed))
