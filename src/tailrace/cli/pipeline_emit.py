"""`tailrace pipeline emit`: a pipeline as a project that Spark runs by itself."""

from pathlib import Path

import click

from tailrace.cli.pipeline_place import Place, placed
from tailrace.client.bulk import BulkClient
from tailrace.model.errors import ConfigError
from tailrace.model.table import TableSchema
from tailrace.pipeline.sinks import mode_of

__all__ = ["emit"]


@click.command()
@click.argument("name")
@click.option("--to", "directory", metavar="DIR", required=True, type=Path, help="A new or empty directory.")
@click.option("--storage", metavar="URL", help="Where Spark keeps checkpoints; DIR/storage by default.")
@click.option("--start", default="earliest", show_default=True, help="Where in the log a new run begins.")
@placed
def emit(place: Place, name: str, directory: Path, storage: str | None, start: str) -> None:
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
