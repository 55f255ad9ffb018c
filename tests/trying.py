"""Trying again while a server is away, as relays and pipelines do. Of use to test processes as well."""

import time

from tailrace.model.errors import SinkUnavailableError

GIVE_UP_S = 150
"""RabbitMQ takes long to start on a busy machine."""


def patiently(use, *arguments):
    """Return what a call of a sink or a target returns, made again while its server is away or too slow."""
    deadline = time.monotonic() + GIVE_UP_S
    while True:
        try:
            return use(*arguments)
        except SinkUnavailableError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)
