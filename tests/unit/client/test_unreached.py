"""Facts about what is said of servers that cannot be reached."""

import socket
import ssl

import httpx
import pytest

from tailrace.client import Client, ConnectionFailed
from tailrace.client.bulk import BulkClient, BulkOptions
from tailrace.client.unreached import unreached


def caused(by, said="All connection attempts failed"):
    """Return an error of httpx as it comes from below."""
    error = httpx.ConnectError(said)
    error.__cause__ = OSError(said)
    error.__cause__.__context__ = by
    return error


def wrong_version():
    error = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    error.reason = "WRONG_VERSION_NUMBER"
    return error


@pytest.mark.parametrize(
    ("url", "error", "said"),
    [
        ("http://h:1", caused(ConnectionRefusedError(111, "refused")), "http://h:1: nothing listens there"),
        ("http://h:1", caused(ExceptionGroup("", [ConnectionRefusedError()])), "is the server running"),
        ("http://h:1", caused(socket.gaierror(-2, "not known")), "there is no host of that name"),
        ("https://h:1", caused(wrong_version()), "write http:// instead of https://"),
        ("http://h:1", httpx.RemoteProtocolError("Server disconnected without sending a response."), "write https://"),
        ("https://h:1", httpx.RemoteProtocolError("Server disconnected without sending a response."), "response."),
        ("http://h:1", httpx.ReadTimeout(""), "http://h:1: ReadTimeout"),
    ],
)
def test_the_cause_is_said_with_the_address_and_what_to_do(url, error, said):
    assert said in unreached(url, error)


@pytest.fixture
def free_url():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_a_port_where_nothing_listens_is_named(free_url):
    with Client(free_url) as client, pytest.raises(ConnectionFailed, match=f"{free_url}: nothing listens there"):
        client.ping()
    bulk = BulkClient(free_url, options=BulkOptions(outage_s_max=0))
    with pytest.raises(ConnectionFailed, match=f"{free_url}: nothing listens there"):
        bulk.info("app")
