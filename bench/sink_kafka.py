"""Messages into Kafka: our target against a bare producer of the same library with the same keys, values and headers.

Both send to one broker (Tansu), in turn, and wait until it has everything. The bare producer gets all at once and looks
at no report; ours gets batches, and knows of each message that it has arrived before it takes the next batch.
"""

import sys

from confluent_kafka import Producer

from bench._target import Kafka, compare, messages, running
from tailrace.message.targets import target_of
from tailrace.sink_url import parse

COUNT = 100_000
BATCH = 5_000
ROUNDS = 5


class DirectKafka(Kafka):
    """Without the proxy of the tests before it."""

    def command(self):
        command = super().command()
        command[-1] = f"tcp://127.0.0.1:{self.port}"
        return command


def main() -> int:
    given = messages(COUNT)
    with running(DirectKafka) as server:
        if server is None:
            return 0
        return sum(one(server, given, options) for options in ("", "&compression=lz4", "&transactions=true"))


def one(server, given, options):
    """Measure one way to send."""
    name = options.strip("&") or "plain"
    target = target_of(parse(f"kafka://127.0.0.1:{server.port}/ours-{name[:4]}?timeout=30{options}"), name)
    target.open([given[0].change.schema])
    target.send(given[:1], b"first")
    settings = {"bootstrap.servers": f"127.0.0.1:{server.port}", "acks": "all", "enable.idempotence": True}
    if "lz4" in options:
        settings["compression.type"] = "lz4"
    producer = Producer(settings)
    parts = [(message.key, message.value, [*message.headers, ("content-type", "")]) for message in given]
    producer.produce("bare", b"first")
    producer.flush(30)

    def bare(_):
        for key, value, headers in parts:
            while True:
                try:
                    producer.produce("bare", value, key, headers=headers)
                    break
                except BufferError:
                    producer.poll(0.01)
        assert producer.flush(60) == 0

    def ours(number):
        for begin in range(0, COUNT, BATCH):
            assert not target.send(given[begin : begin + BATCH], b"%d/%d" % (number, begin))

    code = compare(f"Kafka, {name} / bare producer", COUNT, {"bare": bare, "ours": ours}, ROUNDS)
    target.close()
    return code


if __name__ == "__main__":
    sys.exit(min(main(), 1))
