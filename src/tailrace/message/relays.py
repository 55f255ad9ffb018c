"""The sinks of a server: each in a thread of its own, fed by its subscription."""

import asyncio
import logging
import threading
import time
from collections.abc import Mapping

from msgspec import structs

from tailrace.access.namespace import source_of
from tailrace.clock import Clock
from tailrace.message.feed_reader import FeedReader
from tailrace.message.outbox import Outbox
from tailrace.message.relay import Relay
from tailrace.message.sink import SinkConfig, sink_named
from tailrace.message.targets import target_of
from tailrace.meta.database import Database
from tailrace.meta.dead_letter_store import DeadLetterStore
from tailrace.meta.sink_store import SinkFigures, SinkRun, SinkState, SinkStore
from tailrace.metrics import Metrics
from tailrace.model.errors import ConfigError, TailraceError, UnknownSourceError
from tailrace.sink_url import Secrets, parse, revealed
from tailrace.subscription.service import SubscriptionService

__all__ = ["Relays"]

logger = logging.getLogger(__name__)

_STOP_S_MAX = 10.0
"""Longest time that a sink has to finish what it has in hand when the server stops."""


class Relays:
    """Runs the sinks of a configuration. Start and stop it from the event loop of the service.

    A sink that fails says so and is tried again, with growing pauses, unless its target refuses it or it cannot go on
    as it is configured: then it ends. The others, and the server, go on.
    """

    def __init__(
        self,
        service: SubscriptionService,
        database: Database,
        sinks: Mapping[str, SinkConfig],
        secrets: Secrets,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._service = service
        self._database = database
        self._sinks = sinks
        self._secrets = secrets
        self._clock = clock
        self._metrics = metrics
        self._relays: list[Relay] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start all sinks.

        Raises:
            ConfigError: A URL is wrong, there is no such source, or a secret is missing. Then none runs.
        """
        if not self._sinks:
            return
        loop = asyncio.get_running_loop()
        dead_letters, store = DeadLetterStore(self._database), SinkStore(self._database)
        for name, config in self._sinks.items():
            with sink_named(name):
                config = self._resolved(config)  # noqa: PLW2901
                target = target_of(revealed(parse(config.url), self._secrets.values()), name)
                outbox = Outbox(name, target, config.shape, dead_letters, self._clock, config.outbox)
            store.meet(name, source=config.source, url=config.shown_url)
            reader = FeedReader(self._service, loop, name, config, store)
            relay = Relay(outbox, reader, self._teller(name, store, dead_letters), self._clock)
            self._relays.append(relay)
            thread = threading.Thread(target=self._run, args=(name, relay), name=f"tailrace-sink-{name}", daemon=True)
            self._threads.append(thread)
        for thread in self._threads:
            thread.start()

    async def stop(self) -> None:
        """Have all sinks finish what they have in hand, and end."""
        for relay in self._relays:
            relay.stop()
        deadline_s = time.monotonic() + _STOP_S_MAX
        for thread in self._threads:
            await asyncio.to_thread(thread.join, max(0.0, deadline_s - time.monotonic()))

    def _resolved(self, config: SinkConfig) -> SinkConfig:
        """Return a sink with the source that it is for."""
        try:
            return structs.replace(config, source=source_of(config.source, self._service.logs, "source"))
        except UnknownSourceError as error:
            raise ConfigError(str(error)) from error

    def _run(self, name: str, relay: Relay) -> None:
        try:
            relay.keep_running()
        except TailraceError as error:
            logger.error("sink failed", extra={"sink": name, "problem": str(error)})

    def _teller(self, name: str, store: SinkStore, dead_letters: DeadLetterStore) -> "_Teller":
        return _Teller(name, store, dead_letters, self._metrics, self._clock)


class _Teller:
    """Keeps how a sink goes where people and programs look for it."""

    def __init__(
        self, name: str, store: SinkStore, dead_letters: DeadLetterStore, metrics: Metrics, clock: Clock
    ) -> None:
        self._name = name
        self._run = SinkRun(store, name)
        self._dead_letters = dead_letters
        self._metrics = metrics
        self._clock = clock
        self._messages = 0

    def __call__(self, figures: SinkFigures) -> None:
        metrics = self._metrics
        metrics.sink_messages.labels(self._name).inc(figures.messages - self._messages)
        self._messages = figures.messages
        metrics.sink_offset.labels(self._name).set(figures.offset)
        failed = figures.state is SinkState.FAILED
        metrics.sink_failed.labels(self._name).set(failed)
        metrics.sink_waiting.labels(self._name).set(bool(figures.problem) and not failed)
        self._run.note(figures)
        parked = self._dead_letters.figures().get(self._name)
        metrics.sink_letters.labels(self._name).set(0 if parked is None else parked.letters)
        age_s = 0.0 if parked is None else (self._clock.now_us() - parked.oldest_time_us) / 1e6
        metrics.sink_letter_age.labels(self._name).set(age_s)
