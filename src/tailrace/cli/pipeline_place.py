"""What the commands of pipelines share: where pipelines are kept, where Spark runs, and how to print."""

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec import Struct, structs

from tailrace.cli.pipeline_watch import JsonWatcher, TextWatcher
from tailrace.client.bulk import BulkClient, BulkInfo, BulkOptions
from tailrace.client.errors import ClientError, NotFound
from tailrace.clock import SystemClock
from tailrace.config import data_directory, load_config
from tailrace.datadir import DataDirectory, make_private
from tailrace.extra import how_to_install
from tailrace.meta.database import Database
from tailrace.meta.dead_letter import sink_of_pipeline
from tailrace.meta.dead_letter_store import DeadLetterStore
from tailrace.meta.pipeline import Definition, Pipeline
from tailrace.meta.pipeline_status import PipelineStatus, status_of
from tailrace.model.errors import ConfigError
from tailrace.pipeline.declared import declared
from tailrace.pipeline.session import SparkChoice, SparkSessions
from tailrace.pipeline.store import PipelineStore
from tailrace.sink_url import Secrets, parse

if TYPE_CHECKING:  # these need what only the extra `spark` brings
    from tailrace.pipeline.copy import CopyOptions
    from tailrace.pipeline.job import Job

__all__ = ["PipelinePlace", "placed", "session_choice", "session_options", "spark_choice", "spark_options"]

_OF_SPARK = frozenset({"numpy", "pandas", "pyspark"})
"""Packages that the extra `spark` brings, and a plain installation does without."""


class PipelinePlace(Struct, frozen=True):
    """What the options of a command say about where pipelines are kept, and how to print."""

    data: DataDirectory
    metadata_url: str
    token: str | None
    as_json: bool
    secrets: Secrets = Secrets()

    @property
    def directory(self) -> Path:
        """Return where workers keep what they need while they run."""
        return self.data.pipelines

    def store(self) -> PipelineStore:
        """Return the pipelines of the metadata database."""
        return PipelineStore(self._database())

    def dead_letters(self) -> DeadLetterStore:
        """Return the dead letters of the metadata database."""
        return DeadLetterStore(self._database())

    def _database(self) -> Database:
        make_private(self.directory)
        url, older = self.data.metadata_at(self.metadata_url)
        return Database.open(url, SystemClock(), older)

    def sink(self, name: str) -> str:
        """Return under which name the letters of a pipeline are kept."""
        return sink_of_pipeline(name)

    def require(self, name: str) -> None:
        """Look whether there is a pipeline of that name.

        Raises:
            NotFoundError: There is none.
        """
        self.store().get(name)

    def job(
        self,
        store: PipelineStore,
        spark: SparkChoice | None = None,
        copy: "CopyOptions | None" = None,
        sessions: SparkSessions | None = None,
    ) -> "Job":
        """Return what works on a pipeline."""
        from tailrace.pipeline.job import Job

        choice = spark or SparkChoice()
        return Job(store, self.directory, self.token, choice, SystemClock(), copy, sessions, self.secrets)

    def watcher(self, pipeline: str = "") -> TextWatcher | JsonWatcher:
        """Return the progress line of a run; of one of several, with the name of its pipeline."""
        return JsonWatcher(pipeline) if self.as_json else TextWatcher(pipeline)

    def missing(self, definition: Definition) -> str:
        """Return what the server says of a source or table that it does not have; nothing where it cannot be asked."""
        try:
            self._info(definition, definition.tables)
        except NotFound as error:
            return str(error)
        except ClientError:
            pass
        return ""

    def check(self, definition: Definition, choice: SparkChoice) -> None:
        """Look whether types and a transformation fit the tables, where the server has them; Spark looks at the latter.

        Raises:
            ConfigError: A type is declared for a column that its table does not have.
            TransformError: It does not fit.
            PipelineError: Spark cannot be started.
        """
        if not definition.is_transformed and not definition.types:
            return
        try:
            found = self._info(definition, definition.tables).newest()
        except ClientError as error:
            click.echo(f"warning: types and transformation are not checked: {error}", err=True)
            return
        schemas = [declared(schema, definition.types) for schema in found]
        known = {f"{schema.table.wire}.{column.name}" for schema in schemas for column in schema.columns}
        if unknown := sorted(definition.types.keys() - known):
            raise ConfigError(f"no table has the column {unknown[0]}, for which a type is declared")
        if not definition.is_transformed:
            return
        from tailrace.pipeline.transform import check_transformation
        from tailrace.pipeline.transform_function import ship

        sessions = SparkSessions(choice, self.directory)
        try:
            session = sessions.shared(self.watcher())
            ship(session, definition)
            check_transformation(definition, schemas, session)
        finally:
            sessions.stop()

    def status(self, found: Pipeline, store: PipelineStore) -> PipelineStatus:
        """Return how a pipeline is, with the head of its log where the server is there."""
        definition = found.definition
        try:
            head = self._info(definition).head
        except (ClientError, ConfigError):  # one of the pipelines that are listed may have no server
            head = None
        return status_of(
            found,
            store.progress(definition.name),
            sink=str(parse(definition.sink)),
            head=head,
            letters=store.letters_of_all().get(definition.name, 0),
        )

    def _info(self, definition: Definition, tables: Sequence[str] = ()) -> BulkInfo:
        """Ask the server what there is to read of a pipeline's source; once, and not for long."""
        client = BulkClient(definition.server, self.token, BulkOptions(timeout_s=2.0, outage_s_max=0.0))
        try:
            return client.info(definition.source, tables)
        finally:
            client.close()

    def show(self, result: Any, *lines: str) -> None:
        """Print a result: as one line of JSON, or as lines for people."""
        if self.as_json:
            click.echo(msgspec.json.encode(result))
            return
        for line in lines:
            click.echo(line)


def placed(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that lead to the pipelines; it gets them as one argument, `place`."""

    @click.option(
        "--data-dir",
        metavar="DIR",
        help="Data directory; what workers need while they run is in its subdirectory `pipeline`.",
    )
    @click.option("--metadata-url", help="Metadata database; by default an SQLite file in the data directory.")
    @click.option("--token", envvar="TAILRACE_TOKEN", help="The token for the server, or set TAILRACE_TOKEN.")
    @click.option("--secrets", metavar="FILE", default="", help="File with the values of ${NAME} in sink URLs.")
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
        place = PipelinePlace(
            DataDirectory(data_directory(config)), config.metadata_url, token, as_json, Secrets(secrets)
        )
        try:
            command(place=place, **options)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in _OF_SPARK:
                raise
            name = click.get_current_context().info_name
            raise ConfigError(f"pipeline {name} needs pyspark: {how_to_install('spark')}") from error

    return run


def session_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say where Spark runs; see `session_choice`."""
    for option in reversed(
        [
            click.option("--master", metavar="URL", help="Spark master, e.g. spark://host:7077; local[*] by default."),
            click.option("--remote", metavar="URL", help="Spark Connect server, e.g. sc://host."),
            click.option(
                "--conf", "confs", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated."
            ),
            click.option(
                "--spark-log",
                metavar="FILE",
                default="",
                help="File for what Spark prints, - for standard error; DATA_DIR/pipeline/spark.log by default.",
            ),
        ]
    ):
        command = option(command)
    return command


def session_choice(master: str | None, remote: str | None, confs: tuple[str, ...], spark_log: str) -> SparkChoice:
    """Return what the options of `session_options` say."""
    if master is not None and remote is not None:
        raise click.UsageError("name either a Spark master or a Spark Connect server: --master or --remote")
    return SparkChoice(master, remote, dict(map(_setting, confs)), spark_log)


def spark_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say where Spark runs and how tables are copied; see `spark_choice`."""
    command = click.option(
        "--page-rows",
        type=click.IntRange(1),
        default=500_000,
        help="Most rows of a range in one batch; large rows are fewer.",
    )(command)
    command = click.option(
        "--ranges", type=click.IntRange(1, 1000), default=8, help="Maximum number of ranges of a table."
    )(command)
    command = click.option(
        "--spark-ui",
        type=click.IntRange(0, 65535),
        metavar="PORT",
        help="Serve Spark's own pages on this port, 0 for any that is free; on loopback where Spark runs here.",
    )(command)
    return session_options(command)


def spark_choice(
    *, ranges: int, page_rows: int, spark_ui: int | None, **session: Any
) -> "tuple[SparkChoice, CopyOptions]":
    """Return what the options of `spark_options` say."""
    from tailrace.pipeline.copy import CopyOptions

    choice = session_choice(**session)
    if spark_ui is not None and choice.remote is not None:
        raise click.UsageError(
            "--spark-ui is for a Spark that is started here; a Spark Connect server has its own pages"
        )
    return structs.replace(choice, ui_port=spark_ui), CopyOptions(ranges, page_rows)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"write KEY=VALUE, not {text!r}", param_hint="--conf")
    return key, value
