"""Pipelines of a captured shop, inside the process of a test."""

import sqlite3

from serving import wait_until
from sparking import Shop
from tailrace.clock import SystemClock
from tailrace.meta.pipeline import Definition, Stage
from tailrace.pipeline.copy import CopyOptions
from tailrace.pipeline.job import Job
from tailrace.pipeline.session import SparkChoice
from tailrace.pipeline.store import PipelineStore
from tailrace.pipeline.watcher import Watcher


class PipelinePlace:
    """A shop, and pipelines of it that use the session of the tests."""

    def __init__(self, directory, spark):
        self.directory = directory
        self.spark = spark
        self.shop = Shop(directory)
        self.store = PipelineStore.open(f"sqlite:///{directory / 'pipelines.db'}", SystemClock())

    def job(self, distributed=False):
        choice = SparkChoice("spark://elsewhere" if distributed else None, session=self.spark)
        return Job(self.store, self.directory / "work", None, choice, SystemClock(), CopyOptions(3, 4))

    def create(self, name="p", **members):
        given = {"tables": ("orders",), "sink": f"sqlite:///{self.directory / name}.db", **members}
        self.store.create(Definition(name=name, source="shop", server=self.shop.server.url, **given))

    def run(self, name="p", watcher=None, **options):
        self.job(**options).run(name, once=True, wait=False, watcher=watcher or Watcher(), stopped=lambda: False)

    def verify(self, name="p"):
        return self.job().verify(name, repair=False, watcher=Watcher(), stopped=lambda: False)

    def lose_changes(self):
        """Have retention remove changes that no pipeline has seen."""
        horizon = self.shop.info()["horizon"]
        for number in range(4, 41):
            self.shop.insert(number)
        wait_until(lambda: self.shop.info()["horizon"] > horizon + 5, "changes removed")

    def rows(self, query, name="p"):
        database = sqlite3.connect(self.directory / f"{name}.db")
        try:
            return database.execute(query).fetchall()
        finally:
            database.close()

    def copied(self, name):
        """Tell whether the tables of a pipeline are in its sink."""
        ranges = self.store.progress(name)
        return bool(ranges) and all(one.stage is Stage.INCREMENTAL_LOG for one in ranges)

    def close(self):
        self.store.close()
        self.shop.close()
