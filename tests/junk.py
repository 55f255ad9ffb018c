"""Bytes that are junk, and bytes that look right for a while: HTTP/1, WebSocket and HTTP/2, by chance."""

import json

from hpack import Encoder

from grpc_serving import DATA, HEADERS, PREFACE, SETTINGS, frame

UPGRADE = (
    b"GET /api/v1/cdc/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
HEAD = b"POST /api/v1/rpc HTTP/1.1\r\nHost: localhost\r\n"

_METHODS = [b"GET", b"POST", b"PUT", b"OPTIONS", b"HEAD", b"CONNECT", b"PRI", b"get"]
_PATHS = [
    b"/",
    b"/health",
    b"/metrics",
    b"/api/v1/rpc",
    b"/api/v1/cdc/sse",
    b"/api/v1/cdc/sse/sub_1",
    b"/api/v1/cdc/ws",
]
_NAMES = [
    b"Connection",
    b"Upgrade",
    b"Expect",
    b"Origin",
    b"Range",
    b"If-None-Match",
    b"Last-Event-ID",
    b"Content-Type",
    b"Authorization",
    b"Accept-Encoding",
    b"Access-Control-Request-Method",
]
_VALUES = [b"", b"close", b"websocket", b"100-continue", b"h2c", b"null", b"-1", b"gzip;q=x", b"\xff\xfe", b"text/\x7f"]
_COMMANDS = [
    {"type": "subscribe", "sub_id": "sub_1"},
    {"type": "unsubscribe", "sub_id": None},
    {"type": "ack", "sub_id": "x", "offset": -1},
    {"type": 3},
    [],
    {"type": "ping", "id": 1 << 70},
]


def junk(rng):
    """Return bytes of which some look like a beginning."""
    return rng.choice([b"", b"GET ", b"\x81\xff", b"\x00\x00"]) + rng.randbytes(rng.choice([1, 9, 100, 3000]))


def requests(rng):
    """Return some requests, one behind the other, with a body that is declared by its length, in chunks, or wrongly."""
    return b"".join(_request(rng) for _ in range(rng.randint(1, 5)))


def _request(rng):
    lines = [b"%s %s HTTP/1.1" % (rng.choice(_METHODS), rng.choice(_PATHS) + _query(rng)), b"Host: localhost"]
    lines += [b"%s: %s" % (rng.choice(_NAMES), rng.choice(_VALUES)) for _ in range(rng.randint(0, 5))]
    body = rng.choice([b"", b"{", b'{"skeinql":"1.0","id":1,"method":"cdc.list","params":{}}', rng.randbytes(40)])
    match rng.randrange(4):
        case 0:
            lines.append(b"Content-Length: %d" % len(body))
        case 1:
            lines.append(b"Content-Length: %d" % (len(body) + rng.randint(-3, 3)))
        case 2:
            lines.append(b"Transfer-Encoding: chunked")
            body = b"%x\r\n%s\r\n%s\r\n\r\n" % (len(body), body, rng.choice([b"0", b"", b"zz"]))
    return b"\r\n".join([*lines, b"", body])


def _query(rng):
    return rng.choice([b"", b"?", b"?from_offset=-1", b"?access_token=%00", b"?a=%ff%zz&a", b"#x"])


def messages(rng):
    """Return some frames of a WebSocket, masked as they must be for the most part."""
    return b"".join(_message(rng) for _ in range(rng.randint(1, 8)))


def _message(rng):
    kind = rng.choice([0, 1, 1, 1, 2, 8, 9, 10, rng.randrange(16)])
    first = kind | rng.choice([0x80, 0x80, 0x80, 0, 0xC0])
    body = rng.choice([json.dumps(rng.choice(_COMMANDS)).encode(), b"", rng.randbytes(rng.choice([2, 100, 300]))])
    size = len(body) if rng.random() < 0.9 else rng.choice([0, 125, 65_535, 1 << 62])
    masked = 0x80 if rng.random() < 0.9 else 0
    if size < 126:
        head = bytes((first, masked | size))
    elif size < 1 << 16:
        head = bytes((first, masked | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, masked | 127)) + size.to_bytes(8, "big")
    mask = rng.randbytes(4)
    return head + mask + bytes(byte ^ mask[number % 4] for number, byte in enumerate(body)) if masked else head + body


def frames(rng):
    """Return the beginning of an HTTP/2 connection and some frames: calls that are right, half right, and others."""
    encoder = Encoder()
    return PREFACE + frame(SETTINGS) + b"".join(_frame(rng, encoder) for _ in range(rng.randint(1, 12)))


def _frame(rng, encoder):
    stream = rng.choice([0, 1, 1, 3, 5, 2, 1 << 30])
    match rng.randrange(4):
        case 0:
            fields = [(":method", "POST"), (":scheme", "https"), (":path", rng.choice(["/", "/a.B/C", "/é", ""]))]
            fields += [("content-type", "application/grpc"), ("te", rng.choice(["trailers", ""]))]
            fields += [(rng.choice(["grpc-timeout", "x-bin", "X", ""]), rng.choice(["1S", "9" * 40, "=", "\x00"]))]
            rng.shuffle(fields)
            return frame(HEADERS, rng.choice([0, 1, 4, 5, 255]), stream, encoder.encode(fields))
        case 1:
            message = bytes((rng.choice([0, 1, 2]),)) + rng.choice([0, 5, 1 << 31]).to_bytes(4, "big") + b"hello"
            return frame(DATA, rng.choice([0, 1, 8]), stream, message)
        case 2:
            return frame(rng.randrange(12), rng.randrange(256), stream, rng.randbytes(rng.choice([0, 4, 5, 8, 100])))
        case _:
            return frame(rng.randrange(10), 0, stream, rng.choice([bytes(4), bytes(6), bytes(8), b"\xff" * 6]))
