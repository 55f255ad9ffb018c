"""Options of the Spark source, checked. Pure."""

import os
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from tailrace.client.bulk import BulkOptions
from tailrace.model.errors import ConfigError
from tailrace.model.number import SchemaId
from tailrace.model.table import TableSchema
from tailrace.pipeline.declared import declared, declared_type
from tailrace.pipeline.origin import Origin, ServerOrigin

__all__ = ["OPTIONS", "Layout", "Preimages", "SourceOptions", "parse_options"]


class Layout(StrEnum):
    """What the rows of a DataFrame are."""

    TYPED = "typed"
    """Rows of one table with typed columns; an update is two rows."""

    JSON = "json"
    """Rows of any tables as JSON text; an update is two rows."""

    ENVELOPE = "envelope"
    """Changes of any tables, one row each, with the row before and after as JSON text."""

    PACKED = "packed"
    """Many rows of the layout `json` in each, as Arrow, which Spark hands on as it is."""

    LATEST = "latest"
    """As `packed`, without changes that a later one of the same row, among those that are packed, makes void."""


class Preimages(StrEnum):
    """Which rows before updates there are."""

    ALL = "all"
    MOVED = "moved"
    """Those alone whose key is another one afterwards: they tell that a key is gone."""


class SourceOptions(Struct, frozen=True, kw_only=True):
    """What a DataFrame is to be read from, and how."""

    server: str | None
    log_dir: str | None
    source: str
    tables: tuple[str, ...]
    start: str
    end: str
    token: str | None
    subscription: str | None
    changes_max: int | None
    bytes_max: int | None
    partition_changes: int
    partition_bytes: int
    cores: int
    layout: Layout
    columns: tuple[str, ...]
    string_columns: tuple[str, ...]
    compression: str
    preimages: Preimages = Preimages.ALL
    types: Mapping[str, str] = {}
    """Types of columns by their names."""

    def declared(self, schemas: Mapping[SchemaId, TableSchema]) -> Mapping[SchemaId, TableSchema]:
        """Return schemas in which columns have the types that are declared for them."""
        if not self.types:
            return schemas
        types = {f"{table}.{name}": type_ for table in self.tables for name, type_ in self.types.items()}
        return {number: declared(schema, types) for number, schema in schemas.items()}

    def origin(self) -> Origin:
        """Open what the changes are read from."""
        if self.server is not None:
            return ServerOrigin(self.server, self.source, self.token, BulkOptions(compression=self.compression))
        from tailrace.pipeline.files_origin import FilesOrigin  # late: an executor that asks a server needs no log

        assert self.log_dir is not None
        return FilesOrigin(self.log_dir, self.source)


OPTIONS = {
    "server": "Address of a running server, e.g. http://127.0.0.1:8080; else the environment variable TAILRACE_SERVER.",
    "log_dir": "In place of a server: directory of the log, which the driver and all executors must see.",
    "source": "Name of the source; `default` by default.",
    "tables": "Names with commas between them, or a JSON list; all tables by default.",
    "start": "earliest (default), latest, an offset after which to begin, or a time.",
    "end": "Of a batch: latest (default), an offset, or a time; the changes before it are read.",
    "token": "Bearer token for the server; else the environment variable TAILRACE_TOKEN.",
    "subscription": "Of a stream: id of the subscription to acknowledge; one is made by default.",
    "maxChangesPerTrigger": "Of a stream: most changes in one micro-batch; only a single commit may have more.",
    "maxBytesPerTrigger": "Of a stream: about how many bytes of the log one micro-batch may have.",
    "partitionChanges": "Most changes that one task reads, about; 500000 by default.",
    "partitionBytes": "Most bytes of the log that one task reads, about; 268435456 by default.",
    "cores": "Among how many tasks to divide what is read; as many as the driver has cores by default.",
    "layout": "typed (default for one table), json (default for several), envelope, packed, or latest.",
    "columns": "Columns of the table to be read, all by default; names with commas between them, or a JSON list.",
    "stringColumns": "Columns to read as text, regardless of their type; names with commas, or a JSON list.",
    "types": "Types of columns, e.g. total decimal(12,2), paid boolean; or a JSON object.",
    "preimages": "With typed columns: all rows before updates (default), or those alone whose key is moved.",
    "compression": "Of what the server sends: none (default), lz4 or zstd.",
}
"""All options and what they mean. Spark does not mind upper and lower case in their names."""

_KNOWN = {name.lower(): name for name in OPTIONS}
_SPARKS_OWN = frozenset({"path"})
_OF_BATCHES = {"end": "batches, and a stream continues"}
_OF_STREAMS = dict.fromkeys(
    ("subscription", "maxchangespertrigger", "maxbytespertrigger"), "streams, and this is a batch"
)
_OF_SERVERS = dict.fromkeys(("token", "subscription", "compression"), "servers, and files are read here")
"""Options that have no effect elsewhere, and what to say of that."""

_PARTITION_CHANGES = 500_000
_PARTITION_BYTES = 256 << 20
_COMPRESSIONS = ("none", "lz4", "zstd")


def parse_options(options: Mapping[str, str], *, streaming: bool | None = None) -> SourceOptions:
    """Return the options that a user gave; where it is known, for a stream or for a batch.

    Raises:
        ConfigError: One is unknown, missing, wrong, or of no use here; the message names it and says what it takes.
    """
    by_name = {name.lower(): value for name, value in options.items()}
    for name in by_name.keys() - _KNOWN.keys() - _SPARKS_OWN:
        raise ConfigError(f"unknown option {name!r}: there are {', '.join(OPTIONS)}")
    server, log_dir = by_name.get("server"), by_name.get("log_dir")
    if server is None and log_dir is None:
        server = os.environ.get("TAILRACE_SERVER")
    if (server is None) == (log_dir is None):
        raise ConfigError("name either a server (option server) or the directory of a log (option log_dir)")
    useless = {True: _OF_BATCHES, False: _OF_STREAMS, None: {}}[streaming] | ({} if log_dir is None else _OF_SERVERS)
    for name, what in useless.items():
        if name in by_name:
            raise ConfigError(f"option {_KNOWN[name]} is for {what}: leave it out")
    tables = _names(by_name, "tables")
    layout = _layout(by_name, tables)
    return SourceOptions(
        server=server,
        log_dir=log_dir,
        source=by_name.get("source", "default"),
        tables=tables,
        start=by_name.get("start", "earliest"),
        end=by_name.get("end", "latest"),
        token=by_name.get("token") or os.environ.get("TAILRACE_TOKEN"),
        subscription=by_name.get("subscription"),
        changes_max=_count(by_name, "maxchangespertrigger"),
        bytes_max=_count(by_name, "maxbytespertrigger"),
        partition_changes=_count(by_name, "partitionchanges") or _PARTITION_CHANGES,
        partition_bytes=_count(by_name, "partitionbytes") or _PARTITION_BYTES,
        cores=_count(by_name, "cores") or os.cpu_count() or 1,
        layout=layout,
        columns=_names(by_name, "columns"),
        string_columns=_names(by_name, "stringcolumns"),
        types=_types(by_name),
        compression=_one_of(by_name, "compression", _COMPRESSIONS),
        preimages=Preimages(_one_of(by_name, "preimages", tuple(Preimages))),
    )


def _layout(by_name: Mapping[str, str], tables: tuple[str, ...]) -> Layout:
    text = by_name.get("layout", Layout.TYPED if len(tables) == 1 else Layout.JSON)
    try:
        layout = Layout(text)
    except ValueError:
        raise ConfigError(f"option layout takes {', '.join(Layout)}, not {text[:64]!r}") from None
    if layout is Layout.TYPED and len(tables) != 1:
        raise ConfigError("typed columns are those of one table: name it (option tables), or choose another layout")
    if layout is not Layout.TYPED:
        for name in ("columns", "stringcolumns", "types", "preimages"):
            if name in by_name:
                raise ConfigError(f"option {_KNOWN[name]} is for the layout {Layout.TYPED}")
    return layout


def _names(by_name: Mapping[str, str], name: str) -> tuple[str, ...]:
    text = by_name.get(name, "").strip()
    if text.startswith("["):
        try:
            return tuple(msgspec.json.decode(text, type=list[str]))
        except msgspec.DecodeError:
            raise ConfigError(f"option {_KNOWN[name]} is no JSON list of names: {text[:64]!r}") from None
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _types(by_name: Mapping[str, str]) -> Mapping[str, str]:
    text = by_name.get("types", "").strip()
    if text.startswith("{"):
        try:
            types = msgspec.json.decode(text, type=dict[str, str])
        except msgspec.DecodeError:
            raise ConfigError(f"option types is no JSON object of names and types: {text[:64]!r}") from None
    else:
        types = {}
        for part in filter(None, map(str.strip, _COMMAS.split(text))):
            name, space, type_ = part.partition(" ")
            if not space:
                raise ConfigError(f"option types takes names with types, e.g. total decimal(12,2), not {part[:64]!r}")
            types[name] = type_.strip()
    for name, type_ in types.items():
        declared_type(type_)
        if name in _names(by_name, "stringcolumns"):
            raise ConfigError(f"column {name!r} is in both options types and stringColumns: leave it out of one")
    return types


_COMMAS = re.compile(r",(?![^(]*\))")
"""Commas that are not inside of parentheses."""


def _count(by_name: Mapping[str, str], name: str) -> int | None:
    text = by_name.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text) < 2**63):
        raise ConfigError(f"option {_KNOWN[name]} takes a number from 1, not {text[:64]!r}")
    return int(text)


def _one_of(by_name: Mapping[str, str], name: str, words: tuple[str, ...]) -> Any:
    text = by_name.get(name, words[0]).lower()
    if text not in words:
        raise ConfigError(f"option {_KNOWN[name]} takes {', '.join(words)}, not {text[:64]!r}")
    return text
