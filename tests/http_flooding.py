"""Floods of cheap requests against an HTTP port, from a process of its own. Run: PORT KIND CONNECTIONS.

Each connection sends one kind of flood for ever, as fast as the server reads, reads all answers, and begins anew when
it is closed.
"""

import select
import socket
import sys
import time
from contextlib import suppress

LIFE_S = 120.0
"""A flood ends by itself, should whoever started it be gone."""

HOST = b"Host: localhost\r\n"
PIPELINED = 2000


def get(path, *headers):
    return b"GET %s HTTP/1.1\r\n" % path + HOST + b"".join(headers) + b"\r\n"


def post(body):
    head = b"POST /api/v1/rpc HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


UPGRADE = (
    b"GET /api/v1/cdc/ws HTTP/1.1\r\n" + HOST + b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
CALL = post(b'{"skeinql":"1.0","id":1,"method":"cdc.list","params":{}}')

FLOODS = {
    "gets": (get(b"/health"), False),
    "missing": (get(b"/no/such/path"), False),
    "bad_tokens": (get(b"/api/v1/cdc/sse/1", b"Authorization: Bearer nobody\r\n"), False),
    "calls": (CALL, False),
    "broken_calls": (post(b'{"skeinql":'), False),
    "large_heads": (get(b"/health", b"X-Large: " + b"x" * 60_000 + b"\r\n"), False),
    "many_headers": (get(b"/health", *(b"X-%d: y\r\n" % number for number in range(4000))), False),
    "pipelined": (get(b"/health") * PIPELINED, False),
    "pipelined_calls": (CALL * PIPELINED, False),
    "pipelined_missing": (get(b"/no") * PIPELINED, False),
    "connections": (get(b"/health", b"Connection: close\r\n"), True),
    "upgrades": (UPGRADE, True),
}
"""What is sent, and whether a connection is closed after its first answer."""


def flood(port, kind, connections):
    data, once = FLOODS[kind]
    unsent = {}
    end_s = time.monotonic() + LIFE_S
    fill(unsent, port, connections, data)
    print("flooding", flush=True)
    while time.monotonic() < end_s:
        fill(unsent, port, connections, data)
        readable, writable, _ = select.select(unsent, [one for one in unsent if unsent[one]], [], 1.0)
        gone = {one for one in writable if not send(one, unsent)}
        gone |= {one for one in readable if not receive(one) or once}
        for one in gone:
            one.close()
            del unsent[one]
        for one in readable:
            if one in unsent:
                unsent[one] = unsent[one] or memoryview(data)


def fill(unsent, port, connections, data):
    """Have so many connections open, as far as the server lets us."""
    with suppress(OSError):
        while len(unsent) < connections:
            one = socket.create_connection(("127.0.0.1", port), timeout=10)
            one.setblocking(False)
            unsent[one] = memoryview(data)


def send(one, unsent):
    """Send what the connection takes; tell whether it is still there."""
    try:
        unsent[one] = unsent[one][one.send(unsent[one]) :]
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def receive(one):
    """Read what has come; tell whether the connection is still there."""
    try:
        return bool(one.recv(1 << 18))
    except BlockingIOError:
        return True
    except OSError:
        return False


if __name__ == "__main__":
    flood(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
