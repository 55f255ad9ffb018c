"""Random bytes on each port and after each handshake: the server stays up, and logs nothing."""

import asyncio
import os
import random
from contextlib import suppress

import pytest

from grpc_serving import PREFACE, SETTINGS, Bare, frame, served
from web import DEADLINE_S, Connection, web

ROUNDS = 2_000 if os.environ.get("LONG_TESTS") else 60
UPGRADE = (
    b"GET /api/v1/cdc/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def junk(rng):
    """Return bytes of which some look like a beginning."""
    return rng.choice([b"", b"GET ", b"\x81\xff", b"\x00\x00"]) + rng.randbytes(rng.choice([1, 9, 100, 3000]))


@pytest.mark.parametrize(
    "front", [b"", UPGRADE, b"POST /api/v1/rpc HTTP/1.1\r\nHost: localhost\r\n"], ids=["", "ws", "head"]
)
async def test_the_http_port_outlives_random_bytes(front, caplog):
    rng = random.Random(12)
    async with web() as world:
        for _ in range(ROUNDS):
            connection = await Connection.open(world.address)
            connection.writer.write(front)
            if front == UPGRADE:
                assert (await connection.head())[0] == 101
            connection.writer.write(junk(rng))
            with suppress(OSError):
                connection.writer.write_eof()
                async with asyncio.timeout(DEADLINE_S):
                    await connection.reader.read()
            await connection.close()
        assert (await world.client.get("/health")).status_code == 200
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


@pytest.mark.parametrize("front", [b"", PREFACE + frame(SETTINGS)], ids=["", "preface"])
def test_the_grpc_port_outlives_random_bytes(front, caplog):
    rng = random.Random(12)
    with served() as server:
        for _ in range(ROUNDS):
            with Bare(server, preface=False) as client, suppress(OSError):
                client.send(front, junk(rng), frame(rng.randrange(12), rng.randrange(256), rng.randrange(9), junk(rng)))
        with Bare(server) as client:
            client.await_frame(SETTINGS)
    assert caplog.records == []
