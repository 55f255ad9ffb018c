"""What the URL of a Redis sink says."""

import pytest

from tailrace.message.target.redis import build
from tailrace.model.errors import ConfigError
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
