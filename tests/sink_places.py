"""Where the sinks under test write, and another way to look at what they wrote."""

import itertools
import json
import os
import sqlite3
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

import databases
from iceberg_session import iceberg_session
from object_server import KEY, ObjectServer
from spreading import SpreadingSink
from tailrace.pipeline.sink.base import Mode
from tailrace.pipeline.sink.catalog import CatalogSink
from tailrace.pipeline.sink.row import key_names
from tailrace.pipeline.sinks import sink_of

LONG = bool(os.environ.get("LONG_TESTS"))


class Place:
    """One place for one kind of sink: gives sinks that are not opened yet, and reads tables past them."""

    kinds = tuple(Mode)

    def __init__(self, url, mode):
        self.url, self.mode = url, mode

    def sink(self, pipeline="copy"):
        return sink_of(self.url, self.mode, pipeline=pipeline)


class FilesPlace(Place):
    kinds = (Mode.APPEND,)

    def __init__(self, directory, mode, scheme):
        super().__init__(f"{scheme}://{directory}/out", mode)
        self.directory = directory / "out"

    def contents(self, table):
        return [row for path in sorted(self.directory.glob(f"*/batch=*/table={table}/*")) for row in self.read(path)]


class ParquetPlace(FilesPlace):
    def __init__(self, directory, mode, _servers):
        super().__init__(directory, mode, "parquet")

    def read(self, path):
        return pq.read_table(path, partitioning=None).to_pylist()


class JsonLinesPlace(FilesPlace):
    def __init__(self, directory, mode, _servers):
        super().__init__(directory, mode, "jsonl")

    def read(self, path):
        return [json.loads(line) for line in path.read_text().splitlines()]


class DeltaPlace(Place):
    def __init__(self, directory, mode, _servers):
        super().__init__(f"delta://{directory}/lake/{{table}}", mode)
        self.directory = directory / "lake"

    def contents(self, table):
        return DeltaTable(self.directory / table).to_pyarrow_table().to_pylist()

    def files(self, table):
        return len(DeltaTable(self.directory / table).file_uris())


class SpreadDeltaPlace(DeltaPlace):
    """The same tables, written by tasks."""

    kinds = (Mode.CURRENT, Mode.APPEND)

    def sink(self, pipeline="copy"):
        return SpreadingSink(super().sink(pipeline))


class IcebergPlace(Place):
    def __init__(self, directory, mode, _servers):
        super().__init__(f"iceberg://{directory}/warehouse?namespace=shop", mode)
        self.directory = directory / "warehouse"

    def contents(self, table):
        return self.scanned(table, lambda scan: scan.to_arrow().to_pylist())

    def files(self, table):
        return self.scanned(table, lambda scan: len(list(scan.plan_files())))

    def scanned(self, table, read):
        catalog = SqlCatalog("tailrace", uri=f"sqlite:///{self.directory}/catalog.db")
        try:
            return read(catalog.load_table(("shop", table)).scan())
        finally:
            catalog.close()


class ObjectsPlace(Place):
    """A bucket of its own on a running S3 server."""

    kinds = tuple(Mode) if LONG else (Mode.CURRENT,)

    def __init__(self, url, mode, servers):
        self.server = servers.get(ObjectServer)
        self.bucket = self.server.bucket()
        super().__init__(f"{url.format(bucket=self.bucket)}?{self.server.options()}", mode)

    def objects(self, prefix=""):
        return self.server.objects(self.bucket, prefix)


class ParquetObjectsPlace(ObjectsPlace):
    kinds = (Mode.APPEND,)

    def __init__(self, _directory, mode, servers):
        super().__init__("parquet:s3://{bucket}/a/out", mode, servers)

    def contents(self, table):
        """Read what manifests name, and nothing else."""
        found, rows = self.objects("a/out/"), []
        for name in sorted(name for name in found if name.endswith("/_manifest.json")):
            for one in json.loads(found[name])["tables"]:
                files = [name.replace("_manifest.json", file) for file in one["files"] if one["table"] == table]
                rows += [row for file in files for row in self.read(found[file])]
        return rows

    def read(self, data):
        return pq.read_table(pa.BufferReader(data), partitioning=None).to_pylist()


class JsonLinesObjectsPlace(ParquetObjectsPlace):
    def __init__(self, _directory, mode, servers):
        ObjectsPlace.__init__(self, "jsonl:s3://{bucket}/a/out", mode, servers)

    def read(self, data):
        return [json.loads(line) for line in data.decode().splitlines()]


class DeltaObjectsPlace(ObjectsPlace):
    def __init__(self, _directory, mode, servers):
        super().__init__("delta:s3://{bucket}/lake/{{table}}", mode, servers)

    def table(self, name):
        options = {"AWS_ENDPOINT_URL": self.server.endpoint, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
        options |= {f"AWS_{name.upper()}": value for name, value in KEY.items()}
        return DeltaTable(f"s3://{self.bucket}/lake/{name}", storage_options=options)

    def contents(self, table):
        return self.table(table).to_pyarrow_table().to_pylist()

    def files(self, table):
        return len(self.table(table).file_uris())


class SpreadDeltaObjectsPlace(DeltaObjectsPlace):
    """The same tables, written by tasks."""

    kinds = (Mode.CURRENT, Mode.APPEND) if LONG else (Mode.CURRENT,)

    def sink(self, pipeline="copy"):
        return SpreadingSink(super().sink(pipeline))


class IcebergObjectsPlace(ObjectsPlace):
    """A warehouse in a bucket; the catalog is a file on this machine."""

    def __init__(self, directory, mode, servers):
        super().__init__("iceberg:s3://{bucket}/warehouse", mode, servers)
        self.catalog = f"sqlite:///{directory}/catalog.db"
        self.url += f"&namespace=shop&catalog={quote(self.catalog, safe='')}"

    def contents(self, table):
        return self.scanned(table, lambda scan: scan.to_arrow().to_pylist())

    def files(self, table):
        return self.scanned(table, lambda scan: len(list(scan.plan_files())))

    def scanned(self, table, read):
        options = {f"s3.{name.replace('_', '-')}": value for name, value in KEY.items()}
        options |= {"s3.endpoint": self.server.endpoint, "s3.region": "us-east-1"}
        catalog = SqlCatalog("tailrace", uri=self.catalog, **options)
        try:
            return read(catalog.load_table(("shop", table)).scan())
        finally:
            catalog.close()


class SqlitePlace(Place):
    def __init__(self, directory, mode, _servers):
        super().__init__(f"sqlite:///{directory}/out.db", mode)
        self.path = directory / "out.db"

    def contents(self, table):
        connection = sqlite3.connect(self.path)
        connection.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in connection.execute(f'SELECT * FROM "{table}"')]
        finally:
            connection.close()


class ServerPlace(Place):
    """A part of its own of the database on a running server."""

    def __init__(self, _directory, mode, servers):
        self.server = servers.get(self.kind)
        self.part = f"sink_{next(NUMBERS)}"
        self.execute(f"CREATE SCHEMA {self.part}")
        super().__init__(self.address(), mode)

    def execute(self, statement):
        """Run a statement past the sink."""
        cursor = self.server.shared(databases.DATABASE).cursor()
        cursor.execute(statement)
        rows = cursor.fetchall() if cursor.description else []
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in rows]


class PostgresPlace(ServerPlace):
    kind = databases.Postgres

    def address(self):
        return f"{self.server.url}?schema={self.part}"

    def contents(self, table):
        return self.execute(f'SELECT * FROM {self.part}."{table}"')


class MariaDbPlace(ServerPlace):
    kind = databases.MariaDb

    def address(self):
        return self.server.url.replace(f"/{databases.DATABASE}", f"/{self.part}")

    def contents(self, table):
        return self.execute(f"SELECT * FROM {self.part}.`{table}`")


class CatalogPlace(Place):
    """A namespace of its own in the Iceberg catalog of a Spark. The sink is given that session in place of ours."""

    def __init__(self, _directory, mode, _servers):
        super().__init__("catalog:lake", mode)
        self.session = iceberg_session()
        self.namespace = f"sink_{next(NUMBERS)}"

    def sink(self, pipeline="copy"):
        sink = CatalogSink(("lake", self.namespace, "{table}"), "iceberg", self.mode, pipeline)
        sink.connect_by(lambda: self.session)
        return sink

    def contents(self, table):
        return self.session.run(f"SELECT * FROM lake.{self.namespace}.`{table}`").to_pylist()


NUMBERS = itertools.count()
PLACES = {
    "parquet": ParquetPlace,
    "jsonl": JsonLinesPlace,
    "delta": DeltaPlace,
    "delta-spread": SpreadDeltaPlace,
    "iceberg": IcebergPlace,
    "parquet-s3": ParquetObjectsPlace,
    "delta-s3": DeltaObjectsPlace,
    "delta-spread-s3": SpreadDeltaObjectsPlace,
    "iceberg-s3": IcebergObjectsPlace,
    "sqlite": SqlitePlace,
    "postgresql": PostgresPlace,
    "mysql": MariaDbPlace,
}
SLOW_PLACES = {"catalog": CatalogPlace, "jsonl-s3": JsonLinesObjectsPlace} if LONG else {}
CONTRACTED = PLACES | SLOW_PLACES


def rows_of(sink, schema):
    """Return what a sink says the rows of a table are, by key."""
    names = key_names(schema)
    found = [row for batch in sink.rows(schema) for row in pa.table(batch).to_pylist()]
    rows = {tuple(row[name] for name in names): row for row in found}
    assert len(rows) == len(found), "a key twice"
    return rows
