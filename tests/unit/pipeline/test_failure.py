"""Facts about what becomes of a query that failed."""

import pytest

from tailrace.client.errors import ConnectionFailed, Unauthorized
from tailrace.model.errors import SinkRefusedError
from tailrace.pipeline.errors import LeaseError, PipelineError
from tailrace.pipeline.failure import failure_of

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
