"""A process that applies batches to a sink, to be killed at any moment."""

import contextlib
import time

from sink_changes import ChangingSource
from tailrace.model.errors import SinkUnavailableError
from tailrace.pipeline.sinks import sink_of

BATCHES = 12
TRIES_MAX = 3_000


def tell():
    """Return a source and its batches, the same in every process."""
    source = ChangingSource()
    orders, lines = source.table("orders"), source.table("lines")
    batches = []
    for round_ in range(BATCHES):
        for number in range(30):
            orders.insert(round_ * 100 + number, f"customer {number}", float(round_))
            lines.insert(round_ * 100 + number, "line", None)
        for number in range(10):
            source.commit()
            orders.update((round_ // 2 * 100 + number,), total=round_ + 0.5)
            lines.update((round_ * 100 + number + 10,), id=10_000 + round_ * 100 + number)
            orders.delete((round_ * 100 + number + 15,))
        batches.append(source.batch())
    return source, batches


def persistently(use, given):
    """Use a sink as a pipeline does: a server may still be busy with what the process killed last had asked for."""
    for _ in range(TRIES_MAX):
        with contextlib.suppress(SinkUnavailableError):
            return use(given)
        time.sleep(0.02)
    return use(given)


def work(url, mode, told):
    """Apply what the sink does not have yet, telling each batch that it has."""
    source, batches = tell()
    sink = sink_of(url, mode, pipeline="copy")
    persistently(sink.open, source.schemas)
    applied = sink.applied()
    told.send(applied)
    for batch in batches[0 if applied is None else applied + 1 :]:
        persistently(sink.apply, batch)
        told.send(batch.number)
    sink.close()
