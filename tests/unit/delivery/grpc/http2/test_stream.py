"""Counting the bytes of requests."""

from tailrace.delivery.grpc.http2.stream import Held


def test_a_connection_is_bounded_and_all_together_are():
    server = Held(100)
    one, other = Held(80, server), Held(80, server)
    assert one.take(70)
    assert not one.take(20)
    one.give(20)
    assert not other.take(40)
    other.give(40)
    assert other.take(30)
    assert server.size == 100
    one.give(70)
    other.give(30)
    assert (server.size, one.size, other.size) == (0, 0, 0)
