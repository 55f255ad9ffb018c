"""An emitted project, as Spark's own `spark-pipelines` takes it."""

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import tailrace
from databases import free_port
from serving import run, wait_until
from sparking import CONFS, Shop
from tailrace.pipeline.spark import find_java

SPARK_S_MAX = 250.0
"""Starting Spark, and each call, takes long on a busy machine."""


@pytest.fixture
def emitted(tmp_path):
    """Give the directory of a project for a shop with a table that has a key and one that has none."""
    shop = Shop(tmp_path)
    shop.insert(1, 2, 3)
    shop.commit("INSERT INTO notes VALUES ('hi')")
    shop.settle(4)
    shop.commit("UPDATE orders SET qty = 9 WHERE id = 2", "DELETE FROM orders WHERE id = 1")
    shop.settle(6)
    tables = ("--table", "orders", "--table", "notes")
    place = ("--data-dir", tmp_path / "work")
    made = run(
        *("pipeline", "create", "lake", "--source", "shop", *tables, "--server", shop.server.url, *place),
        *("--sink", "delta:///lake/{table}", "--transform", "SELECT * FROM changes WHERE _offset <> 3"),
    )
    assert made.returncode == 0, made.stderr
    told = run("pipeline", "emit", "lake", "--to", tmp_path / "project", *place)
    assert told.returncode == 0, told.stderr
    again = run("pipeline", "emit", "lake", "--to", tmp_path / "project", *place)
    assert (again.returncode, "is not empty" in again.stderr) == (2, True)
    yield tmp_path / "project"
    shop.close()


class Connect:
    """A Spark Connect server of the PySpark that is installed, and its `spark-pipelines`."""

    def __init__(self, directory):
        self.directory = directory
        self.programs = Path(sys.executable).parent
        self.environment = {
            **os.environ,
            "JAVA_HOME": str(find_java(directory / "java").home),
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(Path(tailrace.__file__).parents[1]),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self.port = free_port()
        settings = {
            **CONFS,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.ui.enabled": "false",
        }
        confs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        self.log = (directory / "connect.log").open("w")
        self.process = subprocess.Popen(
            [self.programs / "spark-submit", "--master", "local[2]", *confs, "--class", server, "spark-internal"],
            cwd=directory,
            env=self.environment,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        wait_until(self.answers, "Spark Connect listening", SPARK_S_MAX)

    def answers(self):
        assert self.process.poll() is None, (self.directory / "connect.log").read_text()[-3000:]
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def pipelines(self, project, *arguments):
        """Run `spark-pipelines`; return what it says."""
        spec = ("--spec", project / "spark-pipeline.yml", "--remote", f"sc://127.0.0.1:{self.port}")
        done = subprocess.run(
            [self.programs / "spark-pipelines", *arguments, *spec],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SPARK_S_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def stop(self):
        self.process.terminate()
        self.process.wait(SPARK_S_MAX)
        self.log.close()


@pytest.fixture
def connect(tmp_path):
    connect = Connect(tmp_path)
    yield connect
    connect.stop()


@pytest.mark.timeout(900)
def test_spark_takes_the_project_and_runs_it_as_far_as_parquet_goes(emitted, connect):
    assert "Run is COMPLETED" in connect.pipelines(emitted, "dry-run")
    assert "Run is COMPLETED" in connect.pipelines(emitted, "run", "--refresh", "orders_changes")
    rows = pq.read_table(connect.directory / "warehouse" / "orders_changes").sort_by("_offset").to_pylist()
    assert [(row["_change_type"], row["id"], row["qty"]) for row in rows] == [
        ("insert", 1, 1),
        ("insert", 2, 2),
        ("update_postimage", 2, 9),
        ("delete", 1, 1),
    ]
