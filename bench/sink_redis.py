"""Messages into streams of Redis: our target against a bare pipeline of the same library with the same fields.

Both send batches of one size to one server, in turn; each batch is atomic (MULTI and EXEC there, a script here, which
keeps the mark besides). Redis writes neither to disk.
"""

import sys

import redis

from bench._target import PASSWORD, PASSWORD_IN_URL, Redis, compare, messages, running, send_all

COUNT = 50_000
BATCH = 2_000
ROUNDS = 5


class MemoryRedis(Redis):
    """Keeps everything in memory, so that the disk is not what is measured."""

    def command(self):
        return [*super().command(), "--appendonly", "no"]


def main() -> int:
    given = messages(COUNT)
    fields = [
        {**dict(message.headers), "key": message.key, "content_type": message.content_type, "value": message.value}
        for message in given
    ]
    with running(MemoryRedis) as server:
        if server is None:
            return 0
        with redis.Redis(port=server.port, password=PASSWORD, protocol=2) as client:
            return one(server, client, given, fields)


def one(server, client, given, fields):
    """Measure both sides, each into a stream that is empty at first."""

    def bare(_):
        client.delete("bare")
        for begin in range(0, COUNT, BATCH):
            with client.pipeline(transaction=True) as pipeline:
                for number in range(begin, begin + BATCH):
                    pipeline.xadd("bare", fields[number], id=f"{number + 1}-0")
                pipeline.execute()

    def ours(number):
        client.delete("ours")
        url = f"redis://:{PASSWORD_IN_URL}@127.0.0.1:{server.port}/0?stream=ours"
        send_all(url, given, BATCH, f"round {number}")

    code = compare("Redis / bare pipeline", COUNT, {"bare": bare, "ours": ours}, ROUNDS)
    assert client.xlen("ours") == client.xlen("bare") == COUNT
    return code


if __name__ == "__main__":
    sys.exit(main())
