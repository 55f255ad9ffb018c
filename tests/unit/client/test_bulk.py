"""Facts about the client of the bulk interface that need no server of ours."""

import contextlib
import socket
import threading

import pytest

from tailrace.client.bulk import BulkClient
from tailrace.client.errors import ConnectionFailed

ANSWER = b'{"ok":true,"result":{"acked_offset":7}}'


@pytest.fixture
def forgetful():
    """A server that answers once on each connection and then closes it, as one does that was idle for long."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER))

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_what_may_be_said_again_is_where_the_server_has_closed_the_connection_meanwhile(forgetful):
    client = BulkClient(forgetful)
    for _ in range(3):
        assert client.call("cdc.ack", {"sub_id": "s", "offset": 7}, again=True) == {"acked_offset": 7}
    client.close()


def test_what_must_not_be_said_twice_is_not(forgetful):
    client = BulkClient(forgetful)
    client.call("cdc.subscribe", {})
    with pytest.raises(ConnectionFailed):
        client.call("cdc.subscribe", {})
    client.close()
