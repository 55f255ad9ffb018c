"""Which URL is which sink: the only place that knows the sinks by name. Each is imported when it is wanted."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from tailrace.clock import SystemClock
from tailrace.extra import how_to_install
from tailrace.message.outbox import Outbox, OutboxOptions
from tailrace.message.shape import ShapeOptions
from tailrace.message.targets import TARGETS, target_of
from tailrace.meta.dead_letter import sink_of_pipeline
from tailrace.meta.dead_letter_store import DeadLetterStore
from tailrace.model.errors import ConfigError
from tailrace.model.table import TableName
from tailrace.pipeline.sink.base import Mode, Sink
from tailrace.sink_url import Secrets, SinkUrl, a_sink, parse, refuse_shared, revealed, spelled

if TYPE_CHECKING:
    from tailrace.pipeline.sink.object_place import ObjectPlace
    from tailrace.pipeline.sink.storage import Storage

__all__ = ["MODES", "SINKS", "MessageOptions", "check_sink", "keeps_rows", "mode_of", "sink_of"]


class MessageOptions(Struct, frozen=True):
    """What a sink of messages needs besides its URL."""

    metadata_url: str
    """Where its dead letters are, an SQLAlchemy URL."""

    shape: ShapeOptions = ShapeOptions()
    outbox: OutboxOptions = OutboxOptions()


def sink_of(
    url: str,
    mode: Mode | None,
    *,
    pipeline: str,
    secrets: Secrets | None = None,
    messages: MessageOptions | None = None,
) -> Sink:
    """Return the sink at a URL for a pipeline, not opened yet. Without a mode it is the first that the sink has.

    Raises:
        ConfigError: No kind of sink has such a URL, it has no such mode, or a secret is missing. None is shown.
    """
    return _built(revealed(parse(url), (secrets or Secrets()).values()), mode, pipeline, messages)


def check_sink(url: str, mode: Mode | None, tables: Sequence[str] = ()) -> None:
    """Look whether a URL is that of a sink which has this mode and room for these tables. Its secrets may be missing.

    Raises:
        ConfigError: It is not, or has not.
    """
    parts = parse(url)
    _built(revealed(parts, None), mode, "check", None)
    match _PLACES.get(parts.scheme):
        case "path":
            template, where = parts.path, "path of the sink's URL"
        case "table":
            template, where = parts.options.get("table", "{table}"), "sink's option `table`"
        case _:
            return
    refuse_shared([spelled(template, TableName("source", table)) for table in tables], where)


def keeps_rows(url: str) -> bool:
    """Tell whether the sink at a URL keeps rows that can be compared with those of the source."""
    scheme = parse(url).scheme
    return scheme not in TARGETS and scheme != "console"


def _built(parts: SinkUrl, mode: Mode | None, pipeline: str, messages: MessageOptions | None) -> Sink:
    chosen = _chosen(parts, mode)
    if parts.scheme in TARGETS:
        return _message_sink(parts, pipeline, messages or MessageOptions("sqlite://"))
    try:
        return SINKS[parts.scheme][0](parts, chosen, pipeline)
    except ModuleNotFoundError as error:
        extras = _EXTRAS.get((error.name or "").partition(".")[0], "spark")
        raise ConfigError(f"{parts.scheme} sinks need {error.name}: {how_to_install(extras)}") from None


def mode_of(url: str, mode: Mode | None) -> Mode:
    """Return the mode of the sink at a URL: the one that was chosen, or its usual one.

    Raises:
        ConfigError: No kind of sink has such a URL, or it has no such mode. No password is shown.
    """
    return _chosen(parse(url), mode)


def _chosen(parts: SinkUrl, mode: Mode | None) -> Mode:
    if parts.scheme not in MODES:
        raise ConfigError(f"no sink supports {parts.scheme} URLs; supported: {', '.join(MODES)}")
    modes = MODES[parts.scheme]
    chosen = modes[0] if mode is None else mode
    if chosen not in modes:
        raise ConfigError(f"{a_sink(parts.scheme)} has no mode {chosen}: it has {', '.join(modes)}")
    return chosen


def _message_sink(url: SinkUrl, pipeline: str, options: MessageOptions) -> Sink:
    from tailrace.pipeline.sink.message import MessageSink

    dead_letters = DeadLetterStore.open(options.metadata_url, SystemClock())
    name = sink_of_pipeline(pipeline)
    target = target_of(url, name)
    outbox = Outbox(name, target, options.shape, dead_letters, SystemClock(), options.outbox)
    return MessageSink(outbox, dead_letters.close)


def _parquet(url: SinkUrl, _mode: Mode, pipeline: str) -> Sink:
    from tailrace.pipeline.sink.files import FilesSink, ParquetFormat

    return FilesSink(_storage(url), pipeline, ParquetFormat())


def _jsonl(url: SinkUrl, _mode: Mode, pipeline: str) -> Sink:
    from tailrace.pipeline.sink.files import FilesSink
    from tailrace.pipeline.sink.jsonl import JsonLinesFormat

    return FilesSink(_storage(url), pipeline, JsonLinesFormat())


def _delta(url: SinkUrl, mode: Mode, pipeline: str) -> Sink:
    from tailrace.pipeline.sink.delta import DeltaTables
    from tailrace.pipeline.sink.delta_lake import DeltaLake
    from tailrace.pipeline.sink.lake import LakeSink

    objects = _objects(url)
    template = str(_directory(url, _NOT_IN_DELTA)) if objects is None else str(objects)
    fixed, brace, _ = template.partition("{")
    root = fixed if not brace or fixed.endswith("/") else fixed.rpartition("/")[0]
    tables = DeltaTables(DeltaLake(template, objects), mode, pipeline)
    return LakeSink(_storage_at(root, objects), tables, pipeline)


def _iceberg(url: SinkUrl, mode: Mode, pipeline: str) -> Sink:
    from tailrace.pipeline.sink.iceberg import IcebergTables, Warehouse
    from tailrace.pipeline.sink.lake import LakeSink

    objects = _objects(url, "namespace", "table", "catalog")
    catalog = url.options.get("catalog", "")
    if objects is None:
        location, settings = str(_directory(url, _NOT_IN_ICEBERG)), {}
        catalog = catalog or f"sqlite:///{location}/catalog.db"
    elif objects.scheme == "az" or not catalog:
        raise ConfigError(
            "write an Iceberg sink in object storage as iceberg:s3://BUCKET/PATH?catalog=URL (or gs://), with the "
            "SQLAlchemy URL of the database that holds its catalog, e.g. sqlite:////var/lib/catalog.db"
        )
    else:
        location, settings = str(objects), objects.for_iceberg
    names = (url.options.get("namespace", "default"), url.options.get("table", "{table}"))
    tables = IcebergTables(Warehouse(location, catalog, settings), names, mode, pipeline)
    return LakeSink(_storage_at(location, objects), tables, pipeline)


def _catalog(url: SinkUrl, mode: Mode, pipeline: str) -> Sink:
    from tailrace.pipeline.sink.catalog import CatalogSink

    using = url.only("using").get("using", "")
    name = url.path.split(".")
    if url.host or url.user or "/" in url.path or not all(name) or any("{" in part for part in name[:-1]):
        raise ConfigError("write a catalog sink as catalog:CATALOG.NAMESPACE.{table}?using=iceberg")
    return CatalogSink(name, using, mode, pipeline)


def _sqlite(url: SinkUrl, mode: Mode, pipeline: str) -> Sink:
    from tailrace.pipeline.sink.sql import SqlSink
    from tailrace.pipeline.sink.sqlite import SqliteDatabase

    options = url.only("table")
    path = url.path.removeprefix("/")
    if url.host or url.user or url.port is not None or path in {"", ":memory:"}:
        raise ConfigError("an SQLite sink is a file: write sqlite:///relative.db or sqlite:////absolute.db")
    return SqlSink(SqliteDatabase(Path(path).absolute()), options.get("table", "{table}"), mode, pipeline)


def _postgres(url: SinkUrl, mode: Mode, pipeline: str) -> Sink:
    from tailrace.pipeline.sink.postgres import PostgresDatabase, PostgresOptions
    from tailrace.pipeline.sink.sql import SqlSink

    options = url.only("table", "schema", "sslmode")
    chosen = {name: options[name] for name in ("schema", "sslmode") if name in options}
    target = PostgresOptions(url.host, url.port or 5432, url.user, url.password, _database(url), **chosen)
    return SqlSink(PostgresDatabase(target), options.get("table", "{table}"), mode, pipeline)


def _mysql(url: SinkUrl, mode: Mode, pipeline: str) -> Sink:
    from tailrace.pipeline.sink.mysql import MysqlDatabase, MysqlOptions
    from tailrace.pipeline.sink.sql import SqlSink

    options = url.only("table")
    target = MysqlOptions(url.host, url.port or 3306, url.user, url.password, _database(url))
    return SqlSink(MysqlDatabase(target), options.get("table", "{table}"), mode, pipeline)


def _console(url: SinkUrl, _mode: Mode, _pipeline: str) -> Sink:
    from tailrace.pipeline.sink.jsonl import ConsoleSink

    url.only()
    if url.path or url.host:
        raise ConfigError("a console sink is written console:")
    return ConsoleSink(sys.stdout.buffer)


def _database(url: SinkUrl) -> str:
    """Return the name of the database in a URL.

    Raises:
        ConfigError: There is none, or no host.
    """
    name = url.path.removeprefix("/")
    if not url.host or not url.user or not name or "/" in name:
        raise ConfigError(f"write a {url.scheme} sink as {url.scheme}://USER:PASSWORD@HOST:PORT/DATABASE")
    return name


def _storage(url: SinkUrl) -> "Storage":
    """Return the storage that a URL names, in a directory or in object storage.

    Raises:
        ConfigError: It names neither, or an option that such a sink does not have.
    """
    objects = _objects(url)
    return _storage_at(str(_directory(url)) if objects is None else str(objects), objects)


def _objects(url: SinkUrl, *others: str) -> "ObjectPlace | None":
    """Return the place in object storage that a URL names; None where it names a directory. Options are looked at.

    Raises:
        ConfigError: It is not written as it should be, or has an option that is not among those of its place or others.
    """
    from tailrace.pipeline.sink.object_place import OPTIONS, is_object_path, object_place

    if not is_object_path(url.path):
        if "://" in url.path:
            raise ConfigError(f"{a_sink(url.scheme)} is in {_SCHEMES}, or in a directory")
        url.only(*others)
        return None
    known = OPTIONS[url.path.partition(":")[0]]
    options = url.only(*others, *known)
    return object_place(url.path, {name: value for name, value in options.items() if name in known}, os.environ)


def _storage_at(location: str, objects: "ObjectPlace | None") -> "Storage":
    """Return the storage at the path of a directory, or at a URL of the object storage that `objects` leads to."""
    from tailrace.pipeline.sink.local_storage import LocalStorage

    if objects is None:
        return LocalStorage(Path(location))
    from tailrace.pipeline.sink.object_storage import ObjectStorage

    prefix = location.removeprefix(f"{objects.scheme}://{objects.bucket}").strip("/")
    return ObjectStorage(structs.replace(objects, prefix=prefix))


def _directory(url: SinkUrl, without: str = "") -> Path:
    """Return the directory in a URL: from the root after three slashes, relative without any.

    Raises:
        ConfigError: There is none, or a host, or its path has characters that it has to be without.
    """
    if url.host or url.user or url.port is not None or url.path in {"", "/"}:
        raise ConfigError(
            f"{a_sink(url.scheme)} is a directory: write {url.scheme}:///from/the/root or {url.scheme}:relative"
        )
    path = Path(url.path).absolute()
    if odd := sorted({letter for letter in str(path) if letter in without}):
        raise ConfigError(f"{a_sink(url.scheme)} cannot be in a directory with {' '.join(odd)!r} in its path")
    return path


_SCHEMES = "s3://, gs:// or az://"

_NOT_IN_DELTA = "%\\*[]\n\r\t"
_NOT_IN_ICEBERG = "%#?"
"""Characters that the library behind a sink takes for something else than a part of a path."""

_ALL = (Mode.CURRENT, Mode.APPEND, Mode.HISTORY)

SINKS: dict[str, tuple[Callable[[SinkUrl, Mode, str], Sink], tuple[Mode, ...]]] = {
    "delta": (_delta, _ALL),
    "iceberg": (_iceberg, _ALL),
    "catalog": (_catalog, _ALL),
    "postgresql": (_postgres, _ALL),
    "mysql": (_mysql, _ALL),
    "sqlite": (_sqlite, _ALL),
    "parquet": (_parquet, (Mode.APPEND,)),
    "jsonl": (_jsonl, (Mode.APPEND,)),
    "console": (_console, (Mode.APPEND,)),
}
"""How each kind of sink of tables is built, and its modes, the usual one first."""

_SEARCH = frozenset({"opensearch", "typesense"})
"""Targets that keep one document per key."""

_PLACES = {
    **dict.fromkeys(("iceberg", "postgresql", "mysql", "sqlite"), "table"),
    **dict.fromkeys(("delta", "catalog", *(scheme for scheme, target in TARGETS.items() if target in _SEARCH)), "path"),
}
"""Where in their URLs sinks that keep a place for each table name it."""

MODES: dict[str, tuple[Mode, ...]] = {
    **{scheme: modes for scheme, (_, modes) in SINKS.items()},
    **{scheme: (Mode.CURRENT if target in _SEARCH else Mode.APPEND,) for scheme, target in TARGETS.items()},
}
"""The modes of each kind of sink, those of messages included, the usual one first."""

_EXTRAS = {"psycopg": "spark,postgresql", "pyiceberg": "spark,iceberg", "pymysql": "spark,mysql"}
"""What has to be installed for packages that only one kind of sink needs; all others come with pipelines themselves."""
