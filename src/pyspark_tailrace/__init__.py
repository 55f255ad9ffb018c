"""The door by which Spark finds Tailrace: `spark.readStream.format("tailrace")` needs no registration."""

from tailrace.pipeline.datasource import TailraceSource as DefaultSource

__all__ = ["DefaultSource"]
