"""What the URL of a Redis sink says."""

import socket
import threading

import pytest

from tailrace.message.target.redis import build
from tailrace.model.errors import ConfigError, SinkRefusedError
from tailrace.sink_url import parse


@pytest.mark.parametrize(
    "text",
    [
        "redis://host/zero",
        "redis://host/0?stream=",
        "redis://host/0?stream={column}",
        "redis://host/0?maxlen=0",
        "redis://host/0?timeout=soon",
        "redis://:secret@host/0?password=secret",
    ],
)
def test_what_makes_no_sense_is_refused(text):
    with pytest.raises(ConfigError) as refused:
        build(parse(text), "sink")
    assert "secret" not in str(refused.value)


def test_the_password_is_not_shown():
    assert "secret" not in repr(build(parse("redis://ann:secret@host:1/2"), "sink")._options)


def test_a_server_that_is_no_redis_is_told():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        target = build(parse(f"redis://127.0.0.1:{server.getsockname()[1]}/0"), "sink")
        with pytest.raises(SinkRefusedError, match="is not a Redis server"):
            target.open([])
        thread.join(30)
