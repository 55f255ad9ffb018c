"""What a driver does whose tasks run elsewhere: reads the log with a token, right and wrong, and runs a pipeline."""

import json
import sys
from pathlib import Path

from pyspark.errors import PySparkException

from tailrace.clock import SystemClock
from tailrace.pipeline import batch_writer
from tailrace.pipeline.copy import CopyOptions
from tailrace.pipeline.job import Job, SparkChoice, Watcher
from tailrace.pipeline.spark import find_java, open_session
from tailrace.pipeline.store import PipelineStore

CONFS = {
    "spark.log.level": "ERROR",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.driver.extraJavaOptions": "-Xss4m -XX:TieredStopAtLevel=1",
    "spark.cores.max": "2",
    "spark.task.maxFailures": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

batch_writer._SPREAD_MIN_DISTRIBUTED = 1  # tasks write the few changes that there are, too


def main(how, address, server, directory, token):
    """Do one thing after the other; before each, wait for a line, then tell what came of it in one."""
    session = open_session(find_java(Path(directory)), **{how: address}, confs=CONFS)
    choice = SparkChoice(**{how: address}, session=session)
    store = PipelineStore.open(f"sqlite:///{directory}/pipelines.db", SystemClock())

    def read(given):
        options = {"server": server, "source": "shop", "tables": "orders", "partitionChanges": "3", "token": given}
        frame = session.read.format("tailrace").options(**options).load()
        return sorted((row._offset, row.id, row.qty) for row in frame.collect())

    def run():
        job = Job(store, Path(directory) / "work", token, choice, SystemClock(), CopyOptions(3, 4))
        job.run("p", once=True, wait=False, watcher=Watcher(), stopped=lambda: False)
        return store.get("p").figures.problem

    for line in sys.stdin:
        try:
            told = {"read": lambda: read(token), "read wrongly": lambda: read("wrong"), "run": run}[line.strip()]()
        except PySparkException as error:
            told = f"{type(error).__name__}: {error}"
        print(json.dumps(told), flush=True)
    session.stop()


main(*sys.argv[1:])
