"""What travels inside a replication stream: log data and keepalives from the server, status updates to it. Pure.

Chapter "Streaming Replication Protocol" of PostgreSQL's documentation; the payloads of `CopyData` messages.

    w   int64 start   int64 server's end   int64 time   data
    k   int64 server's end   int64 time   int8 reply wanted
    r   int64 written   int64 flushed   int64 applied   int64 time   int8 reply wanted
"""

from struct import Struct as Layout

from msgspec import Struct

from tailrace.model.errors import SourceStateError

__all__ = ["DATA_BEGIN", "Keepalive", "decode_keepalive", "status_update"]

DATA_BEGIN = 25
"""Where the data of a `w` message begins."""

_KEEPALIVE = Layout(">cQqB")
_STATUS = Layout(">cQQQqB")
_EPOCH_US = 946_684_800_000_000


class Keepalive(Struct, frozen=True):
    """How far the server has sent everything there is, and whether it wants an answer at once."""

    end_lsn: int
    reply: bool


def decode_keepalive(payload: bytes) -> Keepalive:
    """Return a keepalive.

    Raises:
        SourceStateError: It is none.
    """
    if len(payload) != _KEEPALIVE.size or payload[:1] != b"k":
        raise SourceStateError(f"the server sent an unknown replication message: {payload[:24].hex(' ')}")
    _, end_lsn, _, reply = _KEEPALIVE.unpack(payload)
    return Keepalive(end_lsn, bool(reply))


def status_update(*, received_lsn: int, confirmed_lsn: int, now_us: int, reply: bool) -> bytes:
    """Return a status update: what was received, what may be forgotten, and whether we want an answer."""
    received_lsn = max(received_lsn, confirmed_lsn)
    return _STATUS.pack(b"r", received_lsn, confirmed_lsn, confirmed_lsn, now_us - _EPOCH_US, reply)
