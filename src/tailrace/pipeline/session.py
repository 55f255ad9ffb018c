"""The Spark session of a worker: started when it is first needed, shared by all of its pipelines."""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from tailrace.pipeline.errors import StoppedError
from tailrace.pipeline.spark import find_java, open_session
from tailrace.pipeline.spark_log import SparkLog
from tailrace.pipeline.watcher import Watcher

__all__ = ["SparkChoice", "SparkSessions", "Turns"]

logger = logging.getLogger(__name__)

_CONFS = {
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": "-Xss4m -XX:TieredStopAtLevel=1",
}
"""The driver of a pipeline moves bytes: quick to start counts for more than what Java could still compile."""

_LOCAL_CONFS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

_LOOK_S = 0.1
"""How often to look whether a Spark that is being started is still wanted."""

_STOP_S_MAX = 15.0
"""Longest time that Spark is given to end."""


class SparkChoice(Struct, frozen=True):
    """Where Spark runs: here by default, a cluster by its master, or a Spark Connect server."""

    master: str | None = None
    remote: str | None = None
    confs: Mapping[str, str] = {}
    """Settings of Spark, over ours."""

    log: str = ""
    """File for what Spark prints: `spark.log` in the directory of pipelines by default; `-` is standard error."""

    ui_port: int | None = None
    """Port of Spark's own pages, 0 for any that is free; None for no pages."""

    session: Any = None
    """A session that is there already, in place of all that; it is not stopped."""

    @property
    def distributed(self) -> bool:
        """Tell whether Spark runs elsewhere, too."""
        return self.remote is not None or not (self.master or "local").startswith("local")


class Turns:
    """Lets threads do one after the other what is better not done by all at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def held(self, stopped: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Hold the turn within a `with` block.

        Raises:
            StoppedError: It was `stopped` before the turn came.
        """
        while not self._lock.acquire(timeout=_LOOK_S):
            if stopped():
                raise StoppedError
        try:
            yield
        finally:
            self._lock.release()


class SparkSessions:
    """One Spark for any number of threads. `directory` is where a Java from pip is made usable."""

    def __init__(self, choice: SparkChoice, directory: Path) -> None:
        self.choice = choice
        self.turns = Turns()
        """Whose turn it is to start a query."""

        self._directory = directory
        self._starts = Turns()
        self._session: Any = choice.session

    def shared(self, watcher: Watcher, stopped: Callable[[], bool] = lambda: False) -> Any:
        """Return the session, started if need be.

        Raises:
            ConfigError: There is no Spark or no Java.
            PipelineError: Spark cannot be started.
            StoppedError: It was `stopped` before Spark had started.
        """
        with self._starts.held(stopped):
            if self._session is None:
                self._session = self._started(watcher, stopped)
            return self._session

    def separate(self, watcher: Watcher, stopped: Callable[[], bool] = lambda: False) -> Any:
        """Return a session of the same Spark with views of its own.

        It has our source of its own, too. Spark has one for all sessions where none was registered, and each query that
        starts puts its environment into that, without a lock: of two that start at once both may fail for good.

        Raises:
            ConfigError: There is no Spark or no Java.
            PipelineError: Spark cannot be started.
            StoppedError: It was `stopped` before Spark had started.
        """
        session = self.shared(watcher, stopped)

        from tailrace.pipeline.datasource import TailraceSource  # late: there may be no PySpark

        clone = getattr(session, "cloneSession", None)  # of Spark Connect, where a new one would forget our settings
        own = session.newSession() if clone is None else clone()
        own.dataSource.register(TailraceSource)
        return own

    def alive(self) -> bool:
        """Tell whether Spark can still be used: it has not been started, or answers."""
        with self._starts.held():
            if self._session is None:
                return True
            try:
                return bool(self._session.sql("SELECT 1").collect())
            except Exception:  # whatever it is that Spark says, it does not answer
                return False

    def stop(self) -> None:
        """Stop the session if it was started here."""
        with self._starts.held():
            session, self._session = self._session, self.choice.session
        if session is not None and session is not self.choice.session:
            ending = threading.Thread(target=_stop, args=(session,), name="tailrace-spark-stop", daemon=True)
            ending.start()
            ending.join(_STOP_S_MAX)
            if ending.is_alive():
                logger.warning("Spark did not stop in time", extra={"seconds": _STOP_S_MAX})

    def _started(self, watcher: Watcher, stopped: Callable[[], bool]) -> Any:
        """Start Spark in a thread of its own: that takes many seconds, and cannot be interrupted.

        Nor does PySpark then put its own handler in the place of ours for SIGINT, which it does in the main thread.
        """
        future: Future[Any] = Future()

        def start() -> None:
            try:
                future.set_result(self._start(watcher))
            except Exception as error:  # whatever it is, it is raised to who waits
                future.set_exception(error)

        threading.Thread(target=start, name="tailrace-spark-start", daemon=True).start()
        while not stopped():
            if wait([future], timeout=_LOOK_S).done and not (future.exception() and stopped()):
                return future.result()
        raise StoppedError  # also where Spark was stopped by what stops us

    def _start(self, watcher: Watcher) -> Any:
        choice = self.choice
        java = find_java(self._directory)
        watcher.starting(choice.remote or f"{choice.master or 'local[*]'}, {java}")
        ours = {} if choice.remote else _CONFS if choice.distributed else {**_CONFS, **_LOCAL_CONFS}
        if choice.ui_port is not None:
            # Nobody who sees the pages may end jobs. Spark binds them to all addresses unless this variable says else.
            ours = {**ours, "spark.ui.enabled": "true", "spark.ui.port": str(choice.ui_port)}
            ours["spark.ui.killEnabled"] = "false"
            if not choice.distributed:
                os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        confs = {**ours, **choice.confs}
        log = None if choice.log == "-" else SparkLog(Path(choice.log or self._directory / "spark.log"))
        session = open_session(java, master=choice.master, remote=choice.remote, confs=confs, log=log)
        if choice.ui_port is not None:
            watcher.spark_ui(session.sparkContext.uiWebUrl)
        return session


def _stop(session: Any) -> None:
    try:
        session.stop()
    except Exception as error:  # it has ended already, in whatever way
        logger.debug("Spark had ended", extra={"problem": type(error).__name__})
