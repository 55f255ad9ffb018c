"""What errors of Spark mean for a sink, and rows as it knows them."""

import pyarrow as pa
import pytest

from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.pipeline.sink.catalog_session import plain, sink_error


@pytest.mark.parametrize(
    ("kind", "message", "error", "says"),
    [
        ("AnalysisException", "[UNRESOLVED_COLUMN.X] no column", SinkRefusedError, "UNRESOLVED_COLUMN.X"),
        ("ParseException", "syntax", SinkRefusedError, "Spark refused it (ParseException)"),
        ("AnalysisException", "[SCHEMA_NOT_FOUND] shop", SinkRefusedError, "make the namespace"),
        (
            "AnalysisException",
            "[UNSUPPORTED_FEATURE.TABLE_OPERATION] MERGE",
            SinkRefusedError,
            "a format that can, such as delta or iceberg",
        ),
        (
            "Py4JJavaError",
            "MERGE INTO TABLE is not supported temporarily.",
            SinkRefusedError,
            "a format that can, such as delta or iceberg",
        ),
        ("Py4JJavaError", "stage failed: [CAST_OVERFLOW] secret 4711", SinkRefusedError, "CAST_OVERFLOW"),
        ("Py4JJavaError", "CommitFailedException: secret 4711", SinkUnavailableError, "(Py4JJavaError)"),
    ],
)
def test_an_error_of_spark_is_one_of_the_sink_and_repeats_no_value(kind, message, error, says):
    made = sink_error(kind, message)
    assert type(made) is error
    assert says in str(made)
    assert "4711" not in str(made)


def test_rows_have_their_times_in_utc_and_plain_texts():
    at = pa.scalar(0, pa.timestamp("us", tz="Europe/Oslo"))
    rows = pa.table({"at": pa.array([at]), "s": pa.array(["x"], pa.large_string())})
    assert plain(rows).schema == pa.schema([("at", pa.timestamp("us", tz="UTC")), ("s", pa.string())])
