"""Keepalives and status updates."""

import struct

import pytest

from tailrace.model.errors import SourceStateError
from tailrace.source.postgres.replication_message import Keepalive, decode_keepalive, status_update

EPOCH_US = 946_684_800_000_000


@pytest.mark.parametrize("reply", [False, True])
def test_a_keepalive_tells_how_far_the_server_is_and_whether_it_waits(reply):
    assert decode_keepalive(struct.pack(">cQqB", b"k", 77, 5, reply)) == Keepalive(77, reply)


@pytest.mark.parametrize("payload", [b"", b"k", b"z" * 18, b"k" * 19])
def test_anything_else_is_a_typed_error(payload):
    with pytest.raises(SourceStateError, match="unknown replication message"):
        decode_keepalive(payload)


def test_a_status_update_confirms_what_the_log_has_and_nothing_more():
    made = status_update(received_lsn=90, confirmed_lsn=70, now_us=EPOCH_US + 3, reply=True)
    assert struct.unpack(">cQQQqB", made) == (b"r", 90, 70, 70, 3, 1)
    made = status_update(received_lsn=10, confirmed_lsn=70, now_us=EPOCH_US, reply=False)
    assert struct.unpack(">cQQQqB", made) == (b"r", 70, 70, 70, 0, 0)
