"""An archive of Spark's classes is made on request, and Java takes it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.pipeline.spark import archive_path, find_java

pytest.importorskip("pyspark")


SESSION = """
import sys
from pathlib import Path

from pyspark import SparkContext
from tailrace.pipeline.spark import find_java, open_session
from tailrace.pipeline.spark_log import SparkLog

directory = Path(sys.argv[1])
open_session(find_java(directory), log=SparkLog(directory / "spark.log"))
maps = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text()
print(*{line.split()[-1] for line in maps.splitlines() if "spark-classes" in line})
"""
"""Starts Spark and tells which archives of classes its Java has in memory."""


@pytest.mark.timeout(400)
def test_an_archive_is_made_for_the_jars_that_spark_runs_with_and_java_takes_it(tmp_path):
    command = [sys.executable, "-m", "tailrace", "pipeline", "prepare", "--data-dir", str(tmp_path), "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=390)
    made = json.loads(answer.stdout)
    java = find_java(tmp_path / "pipeline")
    assert Path(made["archive"]) == archive_path(java)
    assert made["bytes"] > 50_000_000
    script = [sys.executable, "-c", SESSION, str(tmp_path / "pipeline")]
    mapped = subprocess.run(script, capture_output=True, text=True, check=True, timeout=120).stdout
    assert mapped.split() == [made["archive"]]
