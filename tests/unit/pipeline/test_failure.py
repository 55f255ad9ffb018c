"""Facts about what becomes of a query that failed."""

import re

import pytest

from tailrace.client.errors import ConnectionFailed, Unauthorized
from tailrace.model.errors import SinkRefusedError
from tailrace.pipeline.errors import LeaseError, PipelineError
from tailrace.pipeline.failure import INTERRUPTED, brief, failure_of

TRACEBACK = """[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_EXCEPTION] An error occurred:
Traceback (most recent call last):
  File "/x/datasource.py", line 1, in read
    raise ConnectionFailed("once")
tailrace.client.errors.ConnectionFailed: once

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
{last}
 SQLSTATE: 38000
=== Streaming Query ===
"""


def raised(last):
    return TRACEBACK.format(last=f"tailrace.{last}")


AWAY = raised("client.errors.ConnectionFailed: http://x: refused")
UNKNOWN = raised("client.errors.Unauthorized: no valid token")
MISFIT = raised("model.errors.MisfitError: table t")
CLOSED = "py4j: x\n: java.io.IOException: Stream closed"


@pytest.mark.parametrize(
    ("text", "problem", "kind", "words", "final", "away"),
    [
        (AWAY, None, ConnectionFailed, "cannot be reached: http://x: refused", False, True),
        (UNKNOWN, None, Unauthorized, "no valid token", True, False),
        (MISFIT, None, PipelineError, "table t", True, False),
        (CLOSED, None, PipelineError, "Spark failed: py4j: x", False, False),
        (CLOSED, ValueError("ours"), PipelineError, "Spark failed", False, False),
        ("", None, PipelineError, "does not say why", False, False),
        (CLOSED, SinkRefusedError("a row"), SinkRefusedError, "a row", True, False),
        (CLOSED, LeaseError("p"), LeaseError, "no longer has", True, False),
        (CLOSED, ConnectionFailed("away"), ConnectionFailed, "away", False, True),
    ],
)
def test_what_spark_and_the_sink_tell_becomes_an_error_and_whether_to_try_again(
    text, problem, kind, words, final, away
):
    failure = failure_of(text, problem)
    assert type(failure.error) is kind
    assert words in str(failure.error)
    assert (failure.final, failure.away) == (final, away)


def test_long_texts_are_cut():
    assert len(str(failure_of("x" * 10_000, None).error)) < 600


@pytest.mark.parametrize("text", [AWAY, UNKNOWN, MISFIT])
def test_a_brief_text_becomes_the_same_error(text):
    long = (
        f"py4j.protocol.Py4JJavaError: An error occurred while calling o1.x.\n{text}" + "\tat org.x(y.scala:1)\n" * 500
    )
    told = f"RuntimeError: Py4JJavaError: {brief(long)}"
    assert len(told) < 1200
    assert "py4j.protocol.Py4JJavaError: An error" not in told  # where the regular expression of Spark would begin
    found, wanted = failure_of(told, None), failure_of(text, None)
    assert (type(found.error), str(found.error)) == (type(wanted.error), str(wanted.error))
    assert (found.final, found.away) == (wanted.final, wanted.away)


def test_spark_knows_the_text_of_what_was_interrupted():
    spark = (
        r"py4j.protocol.Py4JJavaError: An error occurred while calling((.|\r\n|\r|\n)*)(java.lang.InterruptedException)"
    )
    assert re.search(spark, INTERRUPTED)
