"""A Spark session of the user's own, in a program that is run by the Python of an environment that is not activated."""

import subprocess
import sys

import pytest

from sparking import Shop

pytest.importorskip("pyspark")

pytestmark = pytest.mark.timeout(400)

PROGRAM = """
import sys
import pyspark_tailrace
from pyspark.sql import SparkSession

pyspark_tailrace.prepare()
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
options = {"server": sys.argv[1], "source": "shop", "tables": "orders"}
print("batch", spark.read.format("tailrace").options(**options).load().count())
stream = spark.readStream.format("tailrace").options(**options).load().writeStream.format("memory").queryName("orders")
stream.option("checkpointLocation", sys.argv[2]).trigger(availableNow=True).start().awaitTermination()
print("stream", spark.table("orders").count())
"""


def test_a_program_of_an_environment_that_is_not_activated_finds_the_source(tmp_path):
    shop = Shop(tmp_path)
    try:
        shop.insert(1, 2, 3)
        shop.settle(3)
        (tmp_path / "bin").mkdir()
        other = tmp_path / "bin" / "python3"  # of another environment, which has nothing
        other.write_text("#!/bin/sh\nexit 9\n")
        other.chmod(0o755)
        nearly_empty = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path)}
        command = [sys.executable, "-c", PROGRAM, shop.server.url, str(tmp_path / "checkpoint")]
        ran = subprocess.run(command, env=nearly_empty, capture_output=True, text=True, timeout=300, check=False)
        assert ran.returncode == 0, ran.stderr[-4000:]
        assert ran.stdout.splitlines() == ["batch 3", "stream 3"]
    finally:
        shop.close()
