"""A Spark with Iceberg in a process and an environment of its own: the only one that pip can bring is for Spark 3.5."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from spark_venvs import spark_venv
from tailrace.pipeline.sink.catalog_session import plain, sink_error
from tailrace.pipeline.spark import find_java

VERSION = "3.5.9"
WORKER = Path(__file__).with_name("iceberg_worker.py")


class IcebergSession:
    """What a catalog sink uses of a session, done by that process. Its catalog is `lake`."""

    def __init__(self, directory):
        self.directory = Path(directory)
        java = find_java(self.directory / "java")
        environment = {**os.environ, "JAVA_HOME": str(java.home), "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"}
        environment.pop("SPARK_HOME", None)
        environment["PYSPARK_PYTHON"] = str(spark_venv(VERSION))
        with (self.directory / "iceberg.log").open("w") as log:
            self.process = subprocess.Popen(
                [spark_venv(VERSION), str(WORKER), str(self.directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
        self._answer()

    def run(self, statement):
        with pa.OSFile(self._call("sql", statement)) as file:
            return plain(pa.ipc.open_file(file).read_all())

    def exists(self, table):
        return self._call("exists", table)

    def stage(self, view, rows):
        path = self.directory / "staged.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
        self._call("stage", view, str(path))

    def drop(self, view):
        self._call("drop", view)

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _call(self, name, *arguments):
        self.process.stdin.write(json.dumps({"call": name, "arguments": arguments}) + "\n")
        self.process.stdin.flush()
        answer = self._answer()
        if "kind" in answer:
            raise sink_error(answer["kind"], answer["message"])
        return answer["answer"]

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            pytest.fail(f"Spark with Iceberg ended: {(self.directory / 'iceberg.log').read_text()[-2000:]}")
        return json.loads(line)


_RUNNING = []


def iceberg_session():
    """Return the one session that all tests of a run share. Skips where its environment cannot be had."""
    if not _RUNNING:
        spark_venv(VERSION)
        _RUNNING.append(IcebergSession(tempfile.mkdtemp(prefix="tailrace-iceberg-")))
    return _RUNNING[0]


def stop_iceberg_session():
    """End it, if there is one."""
    while _RUNNING:
        _RUNNING.pop().stop()
