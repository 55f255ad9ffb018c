"""What benchmarks of targets share: messages that are already made, a server, and two sides in turn."""

import sys
import time
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import brokers
from tailrace.message.shape import Shape, ShapeOptions
from tailrace.message.targets import target_of
from tailrace.model.chunk import Change
from tailrace.model.image import encode_image, encode_key
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.sink_url import parse

SCHEMA = TableSchema(
    TableName("shop", "orders"),
    1,
    (Column("id", Kind.I64), Column("customer", Kind.STR), Column("status", Kind.STR), Column("total", Kind.F64)),
    ("id",),
)
TIME_US = 1_763_280_000_123_456
RATIO_MIN = 0.6


def messages(count, keys=5_000):
    """Return the messages of that many updates in our own envelope, about 330 bytes each."""
    changes = []
    for number in range(count):
        key = number % keys
        before = {"id": key, "customer": f"customer-{key}", "status": "new", "total": 10.5}
        images = (encode_image(row, SCHEMA) for row in (before, before | {"status": "paid"}))
        changes.append(
            Change(number + 1, number // 10 + 1, TIME_US, 0, Op.UPDATE, SCHEMA, encode_key([key], SCHEMA), *images)
        )
    return [message for shaped in Shape(ShapeOptions()).shaped(changes) for message in shaped.messages]


def send_all(url, given, batch, name="ours"):
    """Send messages through the target at a URL, in batches of a size, each with a mark of its own."""
    target = target_of(parse(url), name)
    target.open([given[0].change.schema])
    for begin in range(0, len(given), batch):
        assert not target.send(given[begin : begin + batch], b"%d" % begin)
    target.close()


@contextmanager
def running(kind):
    """Run a server of a kind while it is needed; None where it cannot be had."""
    if reason := kind.missing():
        print(f"skipped: {reason}")
        yield None
        return
    server = kind()
    try:
        yield server.start()
    finally:
        server.stop()


def compare(title, count, sides, rounds):
    """Run both sides in turn, print the ratio of their best rounds, and return the exit code.

    `sides` has a function for "ours" and "bare", which sends `count` messages when it is given the round's number.
    """
    best = dict.fromkeys(sides, float("inf"))
    work = dict.fromkeys(sides, float("inf"))
    for number in range(rounds):
        order = list(sides.items())
        for side, run in order if number % 2 else reversed(order):
            begin, worked = time.perf_counter(), time.process_time()
            run(number)
            best[side] = min(best[side], time.perf_counter() - begin)
            work[side] = min(work[side], time.process_time() - worked)
    ratio = best["bare"] / best["ours"]
    rates = ", ".join(f"{side} {count / seconds / 1e3:.0f} k messages/s" for side, seconds in best.items())
    rates += f"; by processor time of the sender {work['bare'] / work['ours']:.2f}"
    good = ratio >= RATIO_MIN
    print(f"{title}: {ratio:.2f} (bar {RATIO_MIN:.2f}) {'PASS' if good else 'MISS'}  {rates}", flush=True)
    return 0 if good else 1


Kafka, Nats, RabbitMq, Redis = brokers.Kafka, brokers.Nats, brokers.RabbitMq, brokers.Redis
PASSWORD, PASSWORD_IN_URL = brokers.PASSWORD, brokers.PASSWORD_IN_URL
