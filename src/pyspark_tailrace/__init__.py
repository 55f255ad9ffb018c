"""The door by which Spark finds Tailrace: `spark.readStream.format("tailrace")` needs no registration.

`prepare()`, called before a session is made, has Spark run on this machine with the Python that runs the program.
"""

from tailrace.pipeline.datasource import TailraceSource as DefaultSource
from tailrace.pipeline.spark import prepare

__all__ = ["DefaultSource", "prepare"]
