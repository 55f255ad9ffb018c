"""Progress of a pipeline's run, for people."""

from tailrace.meta.pipeline import Figures

__all__ = ["Watcher"]


class Watcher:
    """Is notified of a run's progress. The base class does nothing."""

    def waiting(self, owner: str) -> None:
        """Another worker has the pipeline."""

    def starting(self, what: str) -> None:
        """Spark is being started with this Java."""

    def spark_ui(self, url: str) -> None:
        """Spark shows its own pages at this address."""

    def copied(self, rows: int, total: int, rows_per_s: float) -> None:
        """Note that some rows of all have been copied, at this rate of late."""

    def comparing(self, reason: str) -> None:
        """Source and sink are compared, and what differs is copied again."""

    def away(self, problem: str) -> None:
        """The sink cannot be reached, and is tried again."""

    def followed(self, figures: Figures) -> None:
        """The log is being followed."""

    def failed(self, problem: str, again_s: float | None) -> None:
        """The run ended with a problem; a worker tries again after a while, unless that is pointless."""
