"""Messages into a queue of RabbitMQ: our target against the library's own publishing, each message confirmed.

Both publish the same bytes with the same headers to one server, in turn, as many at a time.
"""

import asyncio
import sys

import aio_pika

from bench._target import PASSWORD, PASSWORD_IN_URL, RabbitMq, compare, messages, running, send_all

COUNT = 10_000
BATCH = 1_000
ROUNDS = 4


def main() -> int:
    given = messages(COUNT)
    with running(RabbitMq) as server:
        if server is None:
            return 0

        async def publish(number):
            async with await aio_pika.connect(
                host="127.0.0.1", port=server.port, login="sink", password=PASSWORD
            ) as connection:
                channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
                await channel.declare_queue(f"bare{number}", durable=True, arguments={"x-queue-type": "quorum"})
                for begin in range(0, COUNT, BATCH):
                    sent = [
                        channel.default_exchange.publish(
                            aio_pika.Message(
                                message.value,
                                headers=dict(message.headers),
                                message_id=message.id,
                                content_type=message.content_type,
                                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                            ),
                            f"bare{number}",
                            mandatory=True,
                        )
                        for message in given[begin : begin + BATCH]
                    ]
                    await asyncio.gather(*sent)
                await channel.queue_delete(f"bare{number}")

        def ours(number):
            url = f"amqp://sink:{PASSWORD_IN_URL}@127.0.0.1:{server.port}/?queue=ours{number}"
            send_all(url, given, BATCH)

        sides = {"bare": lambda number: asyncio.run(publish(number)), "ours": ours}
        return compare("RabbitMQ / bare publishing", COUNT, sides, ROUNDS)


if __name__ == "__main__":
    sys.exit(main())
