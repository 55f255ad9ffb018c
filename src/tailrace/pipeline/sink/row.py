"""Naming rows that a sink refuses: by table and key, never by their other values. Pure."""

from collections.abc import Callable, Iterable

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.meta.pipeline import Mode
from tailrace.model.errors import SinkRefusedError
from tailrace.model.table import TableSchema
from tailrace.pipeline.sink.base import TableChanges
from tailrace.pipeline.typed import hidden_key

__all__ = ["key_names", "key_text", "refuse_rows_without_key", "refuse_unidentified", "refused_row"]

_KEY_CHARACTERS_MAX = 200


def key_names(schema: TableSchema) -> list[str]:
    """Return the names of the columns of a table's key, in key order."""
    hidden = hidden_key(schema)
    return list(schema.key) if hidden is None else [hidden]


def refuse_unidentified(schemas: Iterable[TableSchema], mode: Mode) -> None:
    """Check that rows can be found by their key, as every mode but `append` must.

    Raises:
        SinkRefusedError: A table has no key that identifies its rows.
    """
    for schema in schemas:
        if mode is not Mode.APPEND and not schema.identity.is_unique:
            raise SinkRefusedError(
                f"mode {mode} needs a key that identifies rows, and the table has none (identity {schema.identity}): "
                "give it a primary key or a unique index, or use mode append",
                table=schema.table.wire,
            )


def key_text(rows: pa.Table, schema: TableSchema, row: int) -> str:
    """Return the key of a row for people, shortened where it is long."""
    values = [rows[name][row].as_py() for name in key_names(schema)]
    text = msgspec.json.encode(values).decode()
    return text if len(text) <= _KEY_CHARACTERS_MAX else f"{text[:_KEY_CHARACTERS_MAX]}…"


def refuse_rows_without_key(table: TableChanges) -> None:
    """Check that each row has a whole key, as rows that are found by their key must.

    Raises:
        SinkRefusedError: A column of some key is null.
    """
    for name in key_names(table.schema):
        if table.changes[name].null_count:
            row = pc.index(table.changes[name].is_null(), pa.scalar(value=True)).as_py()
            raise SinkRefusedError(
                f"column {name!r} of the key is null: such rows can only be appended",
                table=table.schema.table.wire,
                key=key_text(table.changes, table.schema, row),
            )


def refused_row(rows: pa.Table, takes: Callable[[pa.Table], bool]) -> int | None:
    """Return the place of the first row that a sink does not take, by halving; None where it is no single row.

    `takes` tries some of the rows and leaves nothing behind.
    """
    if takes(rows) or not takes(rows.slice(0, 0)):
        return None
    good, bad = 0, rows.num_rows  # the first `good` rows are taken, the first `bad` are not
    while bad - good > 1:
        middle = (good + bad) // 2
        if takes(rows.slice(good, middle - good)):
            good = middle
        else:
            bad = middle
    return good
