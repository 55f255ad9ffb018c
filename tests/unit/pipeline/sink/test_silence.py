"""Facts about connections to databases whose server may fall silent."""

import socket

import pytest

from tailrace.pipeline.sink.silence import connected


def test_a_connection_asks_whether_the_other_side_is_still_there():
    with socket.create_server(("127.0.0.1", 0)) as server, connected("127.0.0.1", server.getsockname()[1], 5) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        options = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        found = [made.getsockopt(socket.IPPROTO_TCP, getattr(socket, one)) for one in options]
    assert found == [30, 10, 3, 60_000]


def test_where_nobody_listens_there_is_no_connection():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        connected("127.0.0.1", port, 5)
