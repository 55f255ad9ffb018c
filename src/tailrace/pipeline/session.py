"""The Spark session of a worker: started when it is first needed, shared by all of its pipelines."""

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from tailrace.pipeline.spark import find_java, open_session
from tailrace.pipeline.watcher import Watcher

__all__ = ["SparkChoice", "SparkSessions"]

logger = logging.getLogger(__name__)

_CONFS = {
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": "-Xss4m -XX:TieredStopAtLevel=1",
}
"""The driver of a pipeline moves bytes: quick to start counts for more than what Java could still compile."""

_LOCAL_CONFS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class SparkChoice(Struct, frozen=True):
    """Where Spark runs: here by default, a cluster by its master, or a Spark Connect server."""

    master: str | None = None
    remote: str | None = None
    confs: Mapping[str, str] = {}
    """Settings of Spark, over ours."""

    session: Any = None
    """A session that is there already, in place of all that; it is not stopped."""

    @property
    def distributed(self) -> bool:
        """Tell whether Spark runs elsewhere, too."""
        return self.remote is not None or not (self.master or "local").startswith("local")


class SparkSessions:
    """One Spark for any number of threads. `directory` is where a Java from pip is made usable."""

    def __init__(self, choice: SparkChoice, directory: Path) -> None:
        self.choice = choice
        self._directory = directory
        self._lock = threading.Lock()
        self._session: Any = choice.session

    def shared(self, watcher: Watcher) -> Any:
        """Return the session, started if need be.

        Raises:
            ConfigError: There is no Spark or no Java.
        """
        with self._lock:
            if self._session is None:
                self._session = self._start(watcher)
            return self._session

    def separate(self, watcher: Watcher) -> Any:
        """Return a session of the same Spark with views of its own.

        It has our source of its own, too. Spark has one for all sessions where none was registered, and each query that
        starts puts its environment into that, without a lock: of two that start at once both may fail for good.

        Raises:
            ConfigError: There is no Spark or no Java.
        """
        session = self.shared(watcher)

        from tailrace.pipeline.datasource import TailraceSource  # late: there may be no PySpark

        clone = getattr(session, "cloneSession", None)  # of Spark Connect, where a new one would forget our settings
        own = session.newSession() if clone is None else clone()
        own.dataSource.register(TailraceSource)
        return own

    def alive(self) -> bool:
        """Tell whether Spark can still be used: it has not been started, or answers."""
        with self._lock:
            if self._session is None:
                return True
            try:
                return bool(self._session.sql("SELECT 1").collect())
            except Exception:  # whatever it is that Spark says, it does not answer
                return False

    def stop(self) -> None:
        """Stop the session if it was started here."""
        with self._lock:
            session, self._session = self._session, self.choice.session
        if session is not None and session is not self.choice.session:
            try:
                session.stop()
            except Exception as error:  # it has ended already, in whatever way
                logger.warning("Spark did not stop", extra={"problem": type(error).__name__})

    def _start(self, watcher: Watcher) -> Any:
        choice = self.choice
        java = find_java(self._directory)
        watcher.starting(choice.remote or f"{choice.master or 'local[*]'}, {java}")
        ours = {} if choice.remote else _CONFS if choice.distributed else {**_CONFS, **_LOCAL_CONFS}
        confs = {**ours, **choice.confs}
        return open_session(java, master=choice.master, remote=choice.remote, confs=confs)
