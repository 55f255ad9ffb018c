"""Spark as a catalog sink uses it: statements, views of Arrow tables, and what its errors mean."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pyarrow as pa

from tailrace.model.errors import SinkError, SinkRefusedError, SinkUnavailableError
from tailrace.pipeline.evolve import usual

__all__ = ["CatalogSession", "SparkCatalog", "plain", "sink_error"]


class CatalogSession(Protocol):
    """A session of Spark. Everything raises SinkError alone, which repeats no value of a row."""

    def run(self, statement: str) -> pa.Table:
        """Run a statement; return its rows. Times with a zone are in UTC."""

    def exists(self, table: str) -> bool:
        """Tell whether a table is there."""

    def stage(self, view: str, rows: pa.Table) -> None:
        """Make rows known to statements as a view, in place of one of that name."""

    def drop(self, view: str) -> None:
        """Forget a view, and its rows."""


class SparkCatalog:
    """A session of PySpark, here or over Spark Connect."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def run(self, statement: str) -> pa.Table:
        """Run a statement."""
        with _spark_errors():
            return plain(self._session.sql(statement).toArrow())

    def exists(self, table: str) -> bool:
        """Tell whether a table is there."""
        with _spark_errors():
            return bool(self._session.catalog.tableExists(table))

    def stage(self, view: str, rows: pa.Table) -> None:
        """Make a view."""
        from pyspark.sql.pandas.types import from_arrow_schema

        with _spark_errors():
            types = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
            self._session.createDataFrame(rows, types).createOrReplaceTempView(view)

    def drop(self, view: str) -> None:
        """Forget a view."""
        with _spark_errors():
            self._session.catalog.dropTempView(view)


def plain(rows: pa.Table) -> pa.Table:
    """Return rows as sinks know them: times with a zone in UTC, columns that may be null, no wide texts."""
    fields = [pa.field(field.name, usual(field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields))


_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
"""How messages of Spark name what is wrong."""

_REFUSING_KINDS = frozenset(
    {
        "AnalysisException",
        "ArithmeticException",
        "DateTimeException",
        "IllegalArgumentException",
        "NumberFormatException",
        "ParseException",
        "UnsupportedOperationException",
    }
)
"""Exceptions of Spark that another try does not fix."""

_NOWHERE = frozenset(
    {"CATALOG_NOT_FOUND", "REQUIRES_SINGLE_PART_NAMESPACE", "SCHEMA_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND"}
)
"""Conditions of a catalog or a namespace that is not there; Spark takes a catalog that it does not know for a part of
a namespace of its own."""

_REFUSING_CONDITIONS = ("CAST_", "ARITHMETIC_OVERFLOW", "NUMERIC_", "NOT_NULL_", "EXCEED_LIMIT_LENGTH", "MERGE_")
"""Beginnings of conditions that the rows are the reason of, whatever exception they come in."""


def sink_error(kind: str, message: str) -> SinkError:
    """Return the error of the sink for an exception of Spark, by the name of its class and its message.

    The message may hold values of rows: only the conditions that it names are repeated.
    """
    conditions = list(dict.fromkeys(_CONDITION.findall(message)))
    shown = ", ".join(conditions[:3]) or kind
    if "TABLE_OPERATION" in shown or "MERGE INTO TABLE is not supported" in message:
        return SinkRefusedError(
            "the table cannot be merged into: it needs a format that can, such as delta or iceberg (option `using`)"
        )
    if any(one in _NOWHERE for one in conditions):
        return SinkRefusedError(
            f"Spark does not find the catalog or the namespace ({shown}): configure the catalog with "
            "--conf spark.sql.catalog.…, and make the namespace"
        )
    if kind in _REFUSING_KINDS or any(one.startswith(_REFUSING_CONDITIONS) for one in conditions):
        return SinkRefusedError(f"Spark refused it ({shown})")
    return SinkUnavailableError(f"the catalog of Spark failed ({shown})")


@contextmanager
def _spark_errors() -> Iterator[None]:
    """Raise what Spark says as an error of the sink."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise sink_error(type(error).__name__, str(error)) from None
