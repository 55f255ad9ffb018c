"""A process that applies batches to a sink, to be killed at any moment."""

from sink_changes import ChangingSource
from tailrace.pipeline.sinks import sink_of
from trying import patiently

BATCHES = 12


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


def work(url, mode, told):
    """Apply what the sink does not have yet, telling each batch that it has.

    A server may still be busy with what the process that was killed last had asked for.
    """
    source, batches = tell()
    sink = sink_of(url, mode, pipeline="copy")
    patiently(sink.open, source.schemas)
    applied = sink.applied()
    told.send(applied)
    for batch in batches[0 if applied is None else applied + 1 :]:
        patiently(sink.apply, batch)
        told.send(batch.number)
    sink.close()
