"""A worker: runs every pipeline of a metadata database that nobody else has, each in a thread of its own."""

import logging
import math
import random
import threading
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from queue import Empty, SimpleQueue
from typing import Protocol

from msgspec import Struct

from tailrace.meta.pipeline import Definition, Pipeline
from tailrace.model.errors import MetadataError, TailraceError, UnknownPipelineError
from tailrace.pipeline.errors import LeaseError, PipelineError, PipelineFailedError
from tailrace.pipeline.session import SparkSessions
from tailrace.pipeline.store import PipelineStore
from tailrace.pipeline.watcher import Watcher
from tailrace.retry import Backoff

__all__ = ["Runner", "Worker", "WorkerOptions", "chosen"]

logger = logging.getLogger(__name__)


class WorkerOptions(Struct, frozen=True):
    """How a worker works."""

    most: int = 16
    """Pipelines at one time; others wait for a place here, or another worker."""

    look_s: float = 1.0
    """How often to look which pipelines there are."""

    backoff: Backoff = Backoff(first_s=2.0, longest_s=300.0)
    """Pauses before a pipeline that has failed is tried again."""

    sound_s: float = 60.0
    """A pipeline that ran for so long before it failed is tried again as if for the first time."""

    stop_s_max: float = 60.0
    """Longest time that pipelines are given to finish their batch when the worker stops."""


class Runner(Protocol):
    """Runs one pipeline, or removes it; see `tailrace.pipeline.job.Job`."""

    def run(
        self, name: str, *, once: bool, wait: bool, watcher: Watcher, stopped: Callable[[], bool], owner: str = ""
    ) -> None:
        """Run until it is to stop."""

    def remove(self, name: str, watcher: Watcher, stopped: Callable[[], bool]) -> None:
        """Forget a pipeline."""


class _Rest(Struct, frozen=True):
    """Why a pipeline is not tried now. It counts for the pipeline as it was then: who fixes it is not kept waiting."""

    failures: int
    end_s: float
    generation: int
    definition: Definition

    def holds(self, found: Pipeline, now_s: float) -> bool:
        """Tell whether the pipeline rests."""
        same = (found.generation, found.definition) == (self.generation, self.definition)
        return same and now_s < self.end_s and not found.cancelled


class _Ended(Struct, frozen=True):
    found: Pipeline
    ran_s: float
    error: Exception | None


class Worker:
    """Runs pipelines until it is stopped. One that fails rests for a while; the others do not notice.

    All of them share one Spark. `owner` is the name under which it has pipelines: at the start it takes those back that
    it had under this name, so no two workers may have the same at one time.
    """

    def __init__(
        self,
        store: PipelineStore,
        runners: Callable[[], Runner],
        sessions: SparkSessions,
        owner: str,
        watchers: Callable[[str], Watcher],
        options: WorkerOptions | None = None,
    ) -> None:
        self._store = store
        self._runners = runners
        self._sessions = sessions
        self._owner = owner
        self._watchers = watchers
        self._options = options or WorkerOptions()
        self._running: dict[str, threading.Thread] = {}
        self._rests: dict[str, _Rest] = {}
        self._ended: SimpleQueue[_Ended] = SimpleQueue()
        self._stop = threading.Event()
        self._stopped: Callable[[], bool] = self._stop.is_set

    def run(self, stopped: Callable[[], bool]) -> None:
        """Run pipelines until `stopped`.

        Raises:
            PipelineError: Spark has ended.
        """
        had = self._owner
        self._stopped = stopped
        try:
            while not stopped():
                if self._look(had):
                    had = ""
                self._gather(self._options.look_s)
        finally:
            self._end()

    def _look(self, had: str) -> bool:
        """Begin with the pipelines that are free, or that a worker of the name `had` has; False where unable."""
        try:
            found = self._store.all()
        except MetadataError as error:
            logger.warning("pipelines not known", extra={"problem": str(error)})
            return False
        now_s = time.monotonic()
        rests = self._rests
        resting = {name for one in found if (name := one.definition.name) in rests and rests[name].holds(one, now_s)}
        for one in chosen(found, {*self._running, *resting}, self._options.most - len(self._running), had):
            name = one.definition.name
            self._running[name] = threading.Thread(
                target=self._run_one, args=(one,), name=f"tailrace-pipeline-{name}", daemon=True
            )
            self._running[name].start()
            logger.info("pipeline started", extra={"pipeline": name})
        return True

    def _run_one(self, found: Pipeline) -> None:
        """Run one pipeline, in its thread, until it ends in whatever way."""
        begin_s = time.monotonic()
        name = found.definition.name
        watcher, stopped = self._watchers(name), lambda: self._stop.is_set() or self._stopped()
        error: Exception | None = None
        try:
            runner = self._runners()
            if found.cancelled:
                runner.remove(name, watcher, stopped)
            else:
                runner.run(name, once=False, wait=False, watcher=watcher, stopped=stopped, owner=self._owner)
        except Exception as raised:  # whatever it is, it is this pipeline's alone
            error = raised
        self._ended.put(_Ended(found, time.monotonic() - begin_s, error))

    def _gather(self, wait_s: float) -> None:
        """Note which pipelines have ended; wait a moment for the first."""
        try:
            ended = self._ended.get(timeout=wait_s)
            while True:
                self._note(ended)
                ended = self._ended.get_nowait()
        except Empty:
            return

    def _note(self, ended: _Ended) -> None:
        """Note why a pipeline has ended, and let it rest where it failed."""
        found, error = ended.found, ended.error
        name = found.definition.name
        self._running.pop(name).join()
        logger.info("pipeline ended", extra={"pipeline": name, "ran_s": round(ended.ran_s, 1)})
        match error:
            case None | LeaseError() | UnknownPipelineError():
                self._rests.pop(name, None)
            case PipelineFailedError():
                self._rests[name] = _Rest(0, math.inf, found.generation, found.definition)
                self._watchers(name).failed(str(error), None)
            case _:
                self._rest(
                    ended, str(error) if isinstance(error, TailraceError) else f"it failed: {type(error).__name__}"
                )

    def _rest(self, ended: _Ended, problem: str) -> None:
        """Let a pipeline rest, the longer the more often it has failed."""
        found, error = ended.found, ended.error
        name = found.definition.name
        if not isinstance(error, TailraceError):
            trace = "" if error is None else "".join(traceback.format_tb(error.__traceback__))
            logger.error("pipeline failed", extra={"pipeline": name, "problem": problem, "trace": trace})
        before = self._rests.get(name)
        failures = 1 if before is None or ended.ran_s >= self._options.sound_s else before.failures + 1
        pause_s = self._options.backoff.pause_s(failures, random.random())  # noqa: S311 (spread, not secrecy)
        self._rests[name] = _Rest(failures, time.monotonic() + pause_s, found.generation, found.definition)
        self._watchers(name).failed(problem, pause_s)
        if not self._sessions.alive():
            raise PipelineError("Spark has ended: start the worker again")

    def _end(self) -> None:
        """Have all pipelines stop, give up what they have, and stop Spark."""
        self._stop.set()
        end_s = time.monotonic() + self._options.stop_s_max
        for name, thread in self._running.items():
            thread.join(max(0.0, end_s - time.monotonic()))
            if thread.is_alive():
                logger.warning("pipeline did not stop in time", extra={"pipeline": name})
        self._sessions.stop()


def chosen(found: Sequence[Pipeline], busy: Collection[str], room: int, had: str) -> list[Pipeline]:
    """Return which pipelines to begin with: those that a worker of the name `had` has first, at most `room`. Pure.

    Left out are those that are `busy` or paused, and those that another worker has; who is to be removed is not.
    """
    free = [
        one
        for one in found
        if one.definition.name not in busy
        and (one.cancelled or not one.paused)
        and (not one.leased or (had and one.owner == had))
    ]
    return sorted(free, key=lambda one: not (had and one.owner == had))[: max(room, 0)]
