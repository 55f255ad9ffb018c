"""What can be wrong with a pipeline in its worker; servers know `UnknownPipelineError` and `PipelineExistsError`, too.

PipelineError                 a pipeline cannot go on: do what the message says
├── LeaseError                another worker has the pipeline: wait, or stop that worker
├── PipelineFailedError       it has failed for good: reset it
├── SchemaMovedError          a table has another schema than its rows were planned with: plan again
├── SparkEndedError           Spark has ended: run the pipeline, or start the worker, again
├── TableDroppedError         a table was dropped, and the pipeline is to stop there: alter or reset it
├── StoppedError              the run was asked to end before it had what it waits for: end quietly
└── TransformError            the transformation cannot be used: fix it
SinkTableGoneError            a `SinkRefusedError`: a table is gone from the sink: bring it back, or reset the pipeline
SinkMovedError                a `SinkRefusedError`: another worker wrote into the sink: go on where it is
"""

from tailrace.model.errors import PipelineExistsError, SinkRefusedError, TailraceError, UnknownPipelineError

__all__ = [
    "LeaseError",
    "PipelineError",
    "PipelineExistsError",
    "PipelineFailedError",
    "SchemaMovedError",
    "SinkMovedError",
    "SinkTableGoneError",
    "SparkEndedError",
    "StoppedError",
    "TableDroppedError",
    "TransformError",
    "UnknownPipelineError",
]


class PipelineError(TailraceError):
    """A pipeline cannot go on, or cannot do this now. The message says what to do."""


class LeaseError(PipelineError):
    """Another worker has the pipeline, or has taken it over. Nothing more is written by this one."""

    def __init__(self, name: str, owner: str = "") -> None:
        other = f"worker {owner} has pipeline {name!r}: stop that worker, or pause the pipeline"
        super().__init__(other if owner else f"this worker no longer has pipeline {name!r}")
        self.name = name
        self.owner = owner


class PipelineFailedError(PipelineError):
    """A pipeline has failed for good, e.g. because retention removed changes that it had not read. Reset it."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"pipeline {name!r} has failed: {reason}. "
            f"Run `tailrace pipeline reset {name}`, which copies the tables again"
        )
        self.name = name
        self.reason = reason


class SchemaMovedError(PipelineError):
    """The schema of a table changed while its rows were read. Look at the new one and read them again."""

    def __init__(self, table: str) -> None:
        super().__init__(f"the schema of table {table} keeps changing: try again later")
        self.table = table


class SparkEndedError(PipelineError):
    """The process of Spark has ended. Run the pipeline, or start the worker, again."""


class StoppedError(PipelineError):
    """A run was asked to end while it waited for something that takes long, Spark's start for example. End quietly."""

    def __init__(self) -> None:
        super().__init__("stopped before it was done: run it again")


class TableDroppedError(PipelineError):
    """A table was dropped, and the pipeline is to stop at that. Alter what it does then, or reset it."""

    def __init__(self, name: str, table: str, offset: int) -> None:
        super().__init__(
            f"table {table} was dropped at offset {offset}: run `tailrace pipeline alter {name} --on-drop mirror` to "
            f"remove its rows from the sink, too, or `--on-drop keep` to keep them there"
        )
        self.table = table
        self.offset = offset


class TransformError(PipelineError):
    """Spark does not take the transformation, or it leaves out columns that a sink needs. Fix it."""


class SinkTableGoneError(SinkRefusedError):
    """A table is gone from a sink that had changes of it. Bring it back, or reset the pipeline to copy it again."""

    def __init__(self, table: str) -> None:
        reason = "it is gone from the sink, which had changes of it: reset the pipeline to copy it again"
        super().__init__(reason, table=table)


class SinkMovedError(SinkRefusedError):
    """A sink has other changes than those that a batch follows on: another worker wrote into it. Go on where it is."""
