"""A pipeline where driver and executors are processes of their own: a standalone cluster, and Spark Connect.

The token that executors read with sees only the table that is copied.
"""

import contextlib
import json
import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable

from serving import wait_until
from sparking import Shop
from tailrace.access.options import AuthConfig, PrincipalConfig
from tailrace.clock import SystemClock
from tailrace.pipeline.definition import Definition
from tailrace.pipeline.job import Job, SparkChoice, Watcher
from tailrace.pipeline.spark import find_java
from tailrace.pipeline.store import PipelineStore

START_S = 200.0
"""Spark takes long to start on a busy machine."""

AUTH = AuthConfig(
    enabled=True,
    tokens=("master",),
    principals={"lake": PrincipalConfig(tokens=("lake-key",), tables=("shop.orders",))},
)


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path, AUTH, "master")
    shop.insert(*range(1, 21))
    shop.commit("INSERT INTO notes VALUES ('hidden')")
    shop.settle(21)
    yield shop
    shop.close()


@pytest.fixture
def environment(tmp_path):
    java = find_java(tmp_path / "java")
    return {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
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
        master = wait_until(address, "the master listens", START_S)
        arguments = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "2", "--memory", "1g", master]
        start("worker.Worker", *arguments, output=tmp_path / "worker.log")
        yield master
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


class Driver:
    """A process that does what it is told to, with Spark elsewhere."""

    def __init__(self, environment, shop, how, address):
        self.errors = shop.directory / "driver.err"
        script = Path(__file__).parent.parent / "cluster_script.py"
        command = [sys.executable, str(script), how, address, shop.server.url, str(shop.directory), "lake-key"]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=shop.directory,
            )

    def ask(self, what):
        """Have it do something; return what came of it."""
        self.process.stdin.write(f"{what}\n".encode())
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], START_S)
        line = self.process.stdout.readline() if ready else b""
        assert line, self.errors.read_text()[-4000:]
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def drive(environment, shop, how, address):
    """Read with a right and a wrong token, copy, follow, and compare."""
    store = PipelineStore.open(f"sqlite:///{shop.directory}/pipelines.db", SystemClock())
    sink = f"delta://{shop.directory}/lake"
    store.create(Definition(name="p", source="shop", tables=("orders",), sink=sink, server=shop.server.url))
    driver = Driver(environment, shop, how, address)
    try:
        assert driver.ask("read") == [[number, number, number] for number in range(1, 21)]
        refused = driver.ask("read wrongly")
        assert "tailrace.client.errors.Unauthorized" in refused
        assert "lake-key" not in refused
        assert driver.ask("run") == ""
        shop.insert(30, 31)
        shop.commit("UPDATE orders SET qty = 99 WHERE id < 4", "DELETE FROM orders WHERE id = 9")
        shop.commit("UPDATE orders SET id = 700 WHERE id = 12", "INSERT INTO notes VALUES ('hidden')")
        assert driver.ask("run") == ""
    finally:
        driver.close()
    job = Job(store, shop.directory / "work", "lake-key", SparkChoice(), SystemClock())
    assert job.verify("p", repair=False, watcher=Watcher(), stopped=lambda: False).equal
    table = DeltaTable(f"{shop.directory}/lake")
    assert not [path for path in table.file_uris() if "-c000" in path], "written by the driver"
    rows = table.to_pyarrow_table().to_pylist()
    source = shop.database.execute("SELECT id, qty FROM orders ORDER BY id").fetchall()
    assert sorted((row["id"], row["qty"]) for row in rows) == source
    store.close()


@pytest.mark.timeout(700)
def test_executors_of_a_cluster_read_from_the_server_with_a_token(shop, environment, cluster):
    drive(environment, shop, "master", cluster)


@pytest.mark.timeout(700)
def test_spark_connect_reads_from_the_server_with_a_token(shop, environment):
    drive(environment, shop, "remote", "local[2]")
