"""What tests show of the newest PySpark holds for the oldest that Tailrace takes, in an environment of its own."""

import os
import subprocess

import pytest

from spark_venvs import ROOT, spark_venv

OLDEST = "4.2.1"
ESSENTIAL = [
    "test_spark_source.py::test_a_batch_holds_the_rows_of_a_table_typed_in_sparks_change_format",
    "test_spark_source.py::test_filters_give_the_same_whether_spark_hands_them_down_or_not",
    "test_spark_source.py::test_a_stream_holds_whole_commits_in_rising_order_and_goes_on_where_it_ended",
    "test_spark_source.py::test_a_stream_acknowledges_one_subscription_over_all_its_runs",
]
WHOLE = ["test_spark_source.py", "test_pipeline_spark.py", "test_pipeline_emit.py"]
LONG = bool(os.environ.get("LONG_TESTS"))


@pytest.mark.timeout(1800 if LONG else 600)
def test_the_spark_source_works_with_the_oldest_pyspark():
    python = spark_venv(OLDEST)
    program = f"import pyspark, pytest, sys; assert pyspark.__version__ == {OLDEST!r}; sys.exit(pytest.main())"
    chosen = [f"tests/acceptance/{name}" for name in (WHOLE if LONG else ESSENTIAL)]
    environment = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
    environment["PYSPARK_PYTHON"] = str(python)
    done = subprocess.run(
        [python, "-c", program, "-q", "-p", "no:cacheprovider", *chosen],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1700 if LONG else 570,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
