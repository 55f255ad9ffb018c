"""Messages into a stream of NATS JetStream: our target against the library's own asynchronous publishing.

Both publish the same bytes with the same headers to one server, in turn, batch by batch, each message acknowledged.
"""

import asyncio
import sys

import nats

from bench._target import PASSWORD, PASSWORD_IN_URL, Nats, compare, messages, running, send_all

COUNT = 20_000
BATCH = 2_000
ROUNDS = 4


def main() -> int:
    given = messages(COUNT)
    bytes_of = [
        (message.value, {**dict(message.headers), "content-type": message.content_type, "Nats-Msg-Id": message.id})
        for message in given
    ]
    with running(Nats) as server:
        if server is None:
            return 0

        async def publish(number):
            address = f"nats://127.0.0.1:{server.port}"
            connection = await nats.connect(address, user="sink", password=PASSWORD)
            stream = connection.jetstream()
            await stream.add_stream(name=f"bare{number}", subjects=[f"bare{number}.*"])
            for begin in range(0, COUNT, BATCH):
                sent = [
                    await stream.publish_async(f"bare{number}.orders", value, headers=headers)
                    for value, headers in bytes_of[begin : begin + BATCH]
                ]
                await asyncio.gather(*sent)
            await stream.delete_stream(f"bare{number}")
            await connection.close()

        def ours(number):
            url = f"nats://sink:{PASSWORD_IN_URL}@127.0.0.1:{server.port}/ours{number}.{{table}}?stream=ours{number}"
            send_all(url, given, BATCH)

        sides = {"bare": lambda number: asyncio.run(publish(number)), "ours": ours}
        return compare("NATS / bare publishing", COUNT, sides, ROUNDS)


if __name__ == "__main__":
    sys.exit(main())
