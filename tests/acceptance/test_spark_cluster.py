"""The Spark source where driver and executors are processes of their own: a standalone cluster, and Spark Connect."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from serving import wait_until
from sparking import Shop
from tailrace.pipeline.spark import find_java

pytestmark = pytest.mark.long

SCRIPT = """
import sys
from pathlib import Path
from tailrace.pipeline.spark import find_java, open_session

how, address, url, directory = sys.argv[1:]
confs = {"spark.log.level": "ERROR", "spark.executor.memory": "512m", "spark.cores.max": "2"}
confs |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
session = open_session(find_java(Path(directory)), **{how: address}, confs=confs)
options = {"server": url, "source": "shop", "tables": "orders", "partitionChanges": "3"}
batch = session.read.format("tailrace").options(**options).load()
print("batch", sorted((row._offset, row.id, row.qty) for row in batch.collect()))
stream = session.readStream.format("tailrace").options(**options).load()
written = stream.writeStream.format("parquet").option("path", f"{directory}/out")
written.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start().awaitTermination()
print("stream", sorted(row.id for row in session.read.parquet(f"{directory}/out").collect()))
session.stop()
"""

DEADLINE_S = 150


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    shop.insert(1, 2, 3)
    shop.settle(3)
    shop.insert(4, 5)
    shop.settle(5)
    yield shop
    shop.close()


@pytest.fixture
def environment(tmp_path):
    java = find_java(tmp_path / "java")
    return {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path.endswith("src")),
    }


@pytest.fixture
def cluster(environment, tmp_path):
    """Start a master and a worker out of the PySpark package; give the master's address."""
    program = Path(environment["SPARK_HOME"]) / "bin" / "spark-class"
    processes, log = [], tmp_path / "master.log"

    def start(name, *arguments, output):
        with output.open("wb") as file:
            command = [str(program), f"org.apache.spark.deploy.{name}", *arguments]
            processes.append(subprocess.Popen(command, env=environment, stdout=file, stderr=file, cwd=tmp_path))

    def address():
        found = re.search(r"Starting Spark master at (spark://\S+)", log.read_text())
        return found and found[1]

    try:
        start("master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", output=log)
        master = wait_until(address, "the master listens", 60)
        arguments = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "2", "--memory", "1g", master]
        start("worker.Worker", *arguments, output=tmp_path / "worker.log")
        wait_until(lambda: "Registering worker" in log.read_text(), "the worker is known", 60)
        yield master
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


def run(environment, shop, how, address):
    command = [sys.executable, "-c", SCRIPT, how, address, shop.server.url, str(shop.directory)]
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False, cwd=shop.directory
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stdout.splitlines()[-2:]


EXPECTED = [
    "batch [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4), (5, 5, 5)]",
    "stream [1, 2, 3, 4, 5]",
]


@pytest.mark.timeout(300)
@pytest.mark.skipif(not os.environ.get("LONG_TESTS"), reason="starts a cluster")
def test_executors_of_a_cluster_read_from_the_server(shop, environment, cluster):
    assert run(environment, shop, "master", cluster) == EXPECTED


@pytest.mark.timeout(300)
@pytest.mark.skipif(not os.environ.get("LONG_TESTS"), reason="starts a Spark Connect server")
def test_a_client_of_spark_connect_reads_from_the_server(shop, environment):
    assert run(environment, shop, "remote", "local[2]") == EXPECTED
