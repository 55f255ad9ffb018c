"""Ranges, rows and changes as JimDB's messages. Pure."""

from collections.abc import Iterable, Sequence

from tailrace.delivery.grpc.proto import jimdb_base_pb2 as base
from tailrace.delivery.grpc.proto import jimdb_cdc_pb2 as proto
from tailrace.interface.jimdb.row import Pulled
from tailrace.meta.key_range import Epoch, KeyRange
from tailrace.model.table import Column, Identity, TableSchema

__all__ = ["change_messages", "column_messages", "epoch_of", "range_message"]

_WRITE, _DELETE = proto.CdcChangeData.WRITE, proto.CdcChangeData.DELETE


def epoch_of(message: base.RangeEpoch) -> Epoch:
    """Return the epoch that a request names; one that names none has none that a range ever had."""
    return Epoch(message.conf_ver, message.version)


def range_message(one: KeyRange, db_id: int, schema: TableSchema) -> base.Range:
    """Return a range."""
    return base.Range(
        id=one.id,
        start_key=one.start,
        end_key=one.end,
        range_epoch=base.RangeEpoch(conf_ver=one.epoch.conf_ver, version=one.epoch.version),
        db_id=db_id,
        table_id=one.table_id,
        key_schema=base.KeySchema(key_cols=column_messages(schema, schema.key_columns)),
    )


def column_messages(schema: TableSchema, columns: Sequence[Column]) -> list[base.ColumnInfo]:
    """Return columns of a table; a hidden row number is column 0."""
    numbers = {column.name: number for number, column in enumerate(schema.columns, 1)}
    if schema.identity is Identity.ROW_NUMBER and columns is not schema.columns:
        numbers = {}  # its name may be that of a column
    return [base.ColumnInfo(id=numbers.get(one.name, 0), name=one.name, kind=str(one.kind)) for one in columns]


def change_messages(pulled: Iterable[Pulled]) -> list[proto.CdcChangeData]:
    """Return rows or changes."""
    return [
        proto.CdcChangeData(type=_DELETE, key=one.key)
        if one.value is None
        else proto.CdcChangeData(type=_WRITE, key=one.key, value=one.value)
        for one in pulled
    ]
