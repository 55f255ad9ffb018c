"""The state file: how far the log is synced, for readers in other processes and for a quick, strict open. Pure.

0      8    12       16    24          32       40              48            56
magic  crc  version  head  last index  horizon  active segment  synced bytes  time µs
"""

import struct
import zlib

from msgspec import Struct

from tailrace.model.number import Index, Offset

__all__ = ["STATE_BYTES", "STATE_NAME", "State", "pack_state", "unpack_state"]

STATE_NAME = "state"
_MAGIC = b"TRSTATE1"
_VERSION = 1
_LAYOUT = struct.Struct("<8sIIQQQQQQ")
STATE_BYTES = _LAYOUT.size


class State(Struct, frozen=True, kw_only=True):
    """What is durable. `active_index` is the first index of the active segment, 0 while there is none."""

    head: Offset
    last_index: Index
    horizon: Offset
    active_index: Index
    synced_bytes: int
    time_us: int


def pack_state(state: State) -> bytes:
    """Return the bytes of the state file."""
    rest = _LAYOUT.pack(
        _MAGIC,
        0,
        _VERSION,
        state.head,
        state.last_index,
        state.horizon,
        state.active_index,
        state.synced_bytes,
        state.time_us,
    )[12:]
    return _MAGIC + zlib.crc32(rest).to_bytes(4, "little") + rest


def unpack_state(data: bytes) -> State | None:
    """Return what a state file says; None when it is damaged, torn or of another version."""
    if len(data) != STATE_BYTES:
        return None
    magic, crc, version, head, last_index, horizon, active_index, synced_bytes, time_us = _LAYOUT.unpack(data)
    if magic != _MAGIC or version != _VERSION or zlib.crc32(data[12:]) != crc:
        return None
    return State(
        head=head,
        last_index=last_index,
        horizon=horizon,
        active_index=active_index,
        synced_bytes=synced_bytes,
        time_us=time_us,
    )
